"""The interface of a fact store, either a database or a REST service, and its values."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Annotated, Final, Protocol

from pydantic import BaseModel, ConfigDict, Field

from composable_memory.content import Health
from composable_memory.facts import Episode, Fact, Forgotten, GraphEntity, Neighbourhood
from composable_memory.types import Degradation, Origin, TimeWindow
from composable_memory_adapters.graphiti.episodes import EpisodeDraft
from composable_memory_ops_logs.quick_dataclass import dataclass

BACKEND_ID: Final = "graphiti"
STATES: Final = "STATES"
"""The relation of facts of which only the text is known."""

LINES = 250
"""Lines of a copy handled at once: each may have a vector of a thousand numbers."""
VECTORS = ("name_embedding", "fact_embedding")
"""Properties that are vectors; a node or a relationship has at most one."""

Label = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What to search for, and in which groups; with a `window`, what was true within it.

    `when` has the words of `text` that name the window, `entities` the names in it.
    """

    text: str
    groups: tuple[str, ...]
    limit: int
    now: datetime
    window: TimeWindow | None = None
    when: str = ""
    entities: tuple[str, ...] = ()

    @property
    def as_of(self) -> datetime:
        """Return the time the question is about: the end of its window if that is past, otherwise now."""
        return min(self.window.end, self.now) if self.window else self.now

    def is_true_of(self, fact: Fact) -> bool:
        """Return whether a fact held at the time the question is about."""
        return fact.is_current(self.now) if self.window is None else fact.holds_within(self.window)

    def admits(self, fact: Fact) -> bool:
        """Return whether a fact began before the end of that time, even if it is over."""
        return self.window is None or fact.valid_at is None or fact.valid_at <= self.window.end


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredFact:
    """A fact and how well it answers, in [0, 1]; `exact` means that it contains every content word."""

    fact: Fact
    score: float
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredPassage:
    """A sentence of an episode that no extracted fact states; `score` as in `ScoredFact`."""

    episode_id: str
    group_id: str
    text: str
    score: float
    exact: bool = False
    observed_at: datetime | None = None
    origin: Origin | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactAnswer:
    """The facts that answer, best first, the passages that no fact repeats, and what is missing."""

    facts: tuple[ScoredFact, ...] = ()
    passages: tuple[ScoredPassage, ...] = ()
    degraded: tuple[Degradation, ...] = ()
    engines: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """The outcome of adding episodes: how many entities and facts were written; `certain` if they are stored.

    It is not certain if a service accepts episodes and reads them later.
    """

    entities: int = 0
    facts: int = 0
    certain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How much a store holds; None if it cannot tell."""

    facts: int | None = None
    entities: int | None = None
    episodes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeIds:
    """The ids of the episodes in a group.

    `whole` episodes were completely written; `retired` ones are no longer valid.
    """

    present: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    retired: frozenset[str] = frozenset()


class NodeLine(BaseModel):
    """A node of a group's graph."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: str
    labels: tuple[Label, ...]
    properties: dict[str, object]


class LinkLine(BaseModel):
    """A relationship between two nodes, each given by a label and a UUID."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: str
    type: Label
    source_label: Label
    source: str
    target_label: Label
    target: str
    properties: dict[str, object]


class FactStore(Protocol):
    """Facts in groups. Every call raises a `BackendError` if the store cannot be reached."""

    async def search(self, question: Question) -> FactAnswer:
        """Return the facts that answer a question, with their origins."""
        ...

    async def add(self, group_id: str, drafts: Sequence[EpisodeDraft]) -> Added:
        """Store episodes of one group and the facts they state; storing one twice changes nothing.

        Storing a retired one again restores it and its facts.

        Raises:
            BackendRejected: one of them can never be stored, for example because a model refuses it.
        """
        ...

    async def retire(self, group_id: str, episode_ids: Sequence[str], *, at: datetime) -> int:
        """End the facts that only these episodes support; return their number."""
        ...

    async def merge(self, group_id: str, merged: EpisodeDraft, episode_ids: Sequence[str]) -> None:
        """Replace several episodes by one, to which their facts then point; repeating it is harmless."""
        ...

    async def episode_ids(self, group_id: str) -> EpisodeIds | None:
        """Return which episodes are stored; None if the store cannot tell."""
        ...

    async def forget(self, group_id: str, episode_id: str) -> Forgotten | None:
        """Remove an episode with everything that only it supports; None if it does not exist."""
        ...

    async def fact(self, group_id: str, fact_id: str) -> Fact | None:
        """Return one fact with its origins."""
        ...

    async def history(self, fact: Fact) -> Sequence[Fact]:
        """Return everything ever stated of the same entity and relation, oldest first."""
        ...

    async def facts(
        self,
        groups: Sequence[str],
        *,
        about: str | None,
        as_of: datetime | None,
        current_at: datetime | None,
        limit: int,
    ) -> Sequence[Fact]:
        """Return facts, newest first: by when they begin to hold, or else when they were recorded."""
        ...

    async def entities(
        self, groups: Sequence[str], *, named: str | None, limit: int
    ) -> Sequence[GraphEntity]:
        """Return entities, those with the most facts first."""
        ...

    async def episodes(self, groups: Sequence[str], *, limit: int, place: str = "") -> Sequence[Episode]:
        """Return episodes, latest observed first; with `place`, at least all whose origin contains it."""
        ...

    async def episode(self, group_id: str, episode_id: str) -> Episode | None:
        """Return one episode, by the id of the graph or of the content."""
        ...

    async def neighbourhood(
        self, groups: Sequence[str], entity: str | None, *, depth: int, limit: int
    ) -> Neighbourhood:
        """Return entities and the facts between them."""
        ...

    async def counts(self, groups: Sequence[str]) -> Counts:
        """Return how much is in the groups."""
        ...

    async def refresh(self, groups: Sequence[str], *, force: bool) -> Sequence[str]:
        """Update indexes and vectors to match the settings; return the problems, in words."""
        ...

    async def scrub(self) -> str | None:
        """Erase removed content from our files; return a note on others' files that may still have it."""
        ...

    def describe(self) -> Mapping[str, str]:
        """Return facts about the store, such as kind, version and address, without secrets."""
        ...

    async def health(self) -> Health:
        """Return whether the store answers; never raises if it is down."""
        ...
