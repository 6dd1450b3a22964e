"""What is asked of a place for facts and a Graphiti service has no way for."""
# ruff: noqa: ARG002 - the arguments are those of the promise

from collections.abc import Sequence
from datetime import datetime
from typing import NoReturn

from composable_memory.errors import UnsupportedOperation
from composable_memory.facts import GraphEntity, Neighbourhood
from composable_memory_adapters.graphiti.episodes import EpisodeDraft
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID, Counts, EpisodeIds


class BeyondService:
    """The part of `FactStore` that a service does not offer; a refusal is an `UnsupportedOperation`."""

    async def entities(
        self, groups: Sequence[str], *, named: str | None, limit: int
    ) -> Sequence[GraphEntity]:
        """Refuse: the service tells the ids of entities alone."""
        refuse("list entities, which a Graphiti service does not tell")

    async def neighbourhood(
        self, groups: Sequence[str], entity: str | None, *, depth: int, limit: int
    ) -> Neighbourhood:
        """Refuse: the service tells the ids of entities alone."""
        refuse("show a neighbourhood, since a Graphiti service does not tell its entities")

    async def retire(self, group_id: str, episode_ids: Sequence[str], *, at: datetime) -> int:
        """End nothing: the service sets no times, its model ends what a later episode contradicts."""
        return 0

    async def merge(self, group_id: str, merged: EpisodeDraft, episode_ids: Sequence[str]) -> None:
        """Refuse: the service changes no episodes."""
        refuse("merge episodes, which a Graphiti service does not do")

    async def episode_ids(self, group_id: str) -> EpisodeIds | None:
        """Return None: the service shows the last episodes alone."""
        return None

    async def scrub(self) -> str:
        """Return that what the service keeps of what was removed is for its owner to delete."""
        return "the logs, journals and backups of the Graphiti service are its owner's"

    async def counts(self, groups: Sequence[str]) -> Counts:
        """Return nothing known: the service does not count."""
        return Counts()

    async def refresh(self, groups: Sequence[str], *, force: bool) -> Sequence[str]:
        """Do nothing: indexes and vectors are the service's own."""
        return ()


def refuse(operation: str) -> NoReturn:
    """Raise the error for something that a service has no way for; `operation` names it and says why."""
    raise UnsupportedOperation(BACKEND_ID, operation)
