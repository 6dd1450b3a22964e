"""Two backends for tests of learning: asked for `item 7`, one has its note first, the other one third."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from composable_memory.config.settings import SettingsModel
from composable_memory.interfaces import BackendServices, BackendSpec, Capability
from composable_memory.testing.in_memory import FakeBackend
from composable_memory.types import MemorySearchResult, SearchOptions

__all__ = ["ENTRY_POINTS", "WRONG", "ListingBackend", "sure", "vague"]

ENTRY_POINTS = f"""
[composable_memory.backends]
sure = {__name__}:sure
vague = {__name__}:vague
"""


class ListingBackend(FakeBackend):
    """Answers every question with notes of given names, `{}` in them being the last word of the question."""

    def __init__(self, backend_id: str, listed: Sequence[tuple[str, float]]) -> None:
        super().__init__(backend_id)
        self._listed = listed

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        """Return its notes."""
        self.note_question(query, options)
        word = query.split()[-1].strip("?")
        return [self._result(name.format(word), score) for name, score in self._listed]

    def _result(self, name: str, score: float) -> MemorySearchResult:
        return MemorySearchResult(
            path=f"memory/{name}.md",
            start_line=1,
            end_line=3,
            score=score,
            snippet=f"This is {name}.",
            source="memory",
        )


def _spec(backend_id: str, *listed: tuple[str, float]) -> BackendSpec:
    @asynccontextmanager
    async def opened(_settings: SettingsModel, _services: BackendServices) -> AsyncIterator[ListingBackend]:
        yield ListingBackend(backend_id, listed)

    return BackendSpec(
        id=backend_id,
        summary="Lists notes by the last word.",
        settings=SettingsModel,
        open=opened,
        capabilities=frozenset({Capability.CALIBRATED}),
    )


WRONG = ("around", "beside", "other")
"""How the notes are called that nobody asked for."""

sure = _spec("sure", ("item-{}", 0.9), ("other-{}", 0.2))
vague = _spec("vague", ("around-{}", 0.9), ("beside-{}", 0.8), ("item-{}", 0.5))
