"""What the graph memory needs of a store of facts: a database, or a REST service."""

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
"""The relation of facts of which only their text is known."""

LINES = 250
"""So many lines of a copy are handled at once: each may have a vector of a thousand numbers."""
VECTORS = ("name_embedding", "fact_embedding")
"""Properties that are vectors; a node or a relationship has one at most."""

Label = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is looked for, and among the facts of which groups; with a `window`, what was true within it.

    `when` holds the words of `text` that name the window, `entities` the names in it.
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
        """Return the time it is about: the end of its window, as far as that is past, or now."""
        return min(self.window.end, self.now) if self.window else self.now

    def is_true_of(self, fact: Fact) -> bool:
        """Return whether a fact held at the time it is about."""
        return fact.is_current(self.now) if self.window is None else fact.holds_within(self.window)

    def admits(self, fact: Fact) -> bool:
        """Return whether a fact began before the end of the time it is about, though it may be over."""
        return self.window is None or fact.valid_at is None or fact.valid_at <= self.window.end


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredFact:
    """A fact and how well it answers, in [0, 1]; `exact` says that it holds every content word."""

    fact: Fact
    score: float
    exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredPassage:
    """A sentence of an episode, from which no fact was taken that says it; `score` as in `ScoredFact`."""

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
    """What became of episodes: how many entities and facts were written; `certain` says that they are there.

    A service that takes episodes and reads them later is not certain.
    """

    entities: int = 0
    facts: int = 0
    certain: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How much a store holds; None where it cannot say."""

    facts: int | None = None
    entities: int | None = None
    episodes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeIds:
    """The ids of the episodes in a group.

    Of those that are `whole` everything was written to the end; `retired` are those that hold no more.
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
    """A relationship between two nodes, which are named by a label and their UUIDs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    group: str
    type: Label
    source_label: Label
    source: str
    target_label: Label
    target: str
    properties: dict[str, object]


class FactStore(Protocol):
    """Facts in groups. Every call raises a `BackendError` when the place cannot be reached."""

    async def search(self, question: Question) -> FactAnswer:
        """Return the facts that answer a question, with their origins."""
        ...

    async def add(self, group_id: str, drafts: Sequence[EpisodeDraft]) -> Added:
        """Store episodes of one group and the facts that they state; storing one twice changes nothing.

        One that was retired and is stored again holds again, with its facts.

        Raises:
            BackendRejected: one of them can never be stored, for instance since a model refuses it.
        """
        ...

    async def retire(self, group_id: str, episode_ids: Sequence[str], *, at: datetime) -> int:
        """End the facts that only these episodes support; return how many."""
        ...

    async def merge(self, group_id: str, merged: EpisodeDraft, episode_ids: Sequence[str]) -> None:
        """Put one episode in the place of several, whose facts stay and point to it; twice is as once."""
        ...

    async def episode_ids(self, group_id: str) -> EpisodeIds | None:
        """Return which episodes are there; None where the place cannot tell."""
        ...

    async def forget(self, group_id: str, episode_id: str) -> Forgotten | None:
        """Remove an episode with what only it supports; None if it is not there."""
        ...

    async def fact(self, group_id: str, fact_id: str) -> Fact | None:
        """Return one fact with its origins."""
        ...

    async def history(self, fact: Fact) -> Sequence[Fact]:
        """Return all that the graph says or said of the same entity and relation, oldest first."""
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
        """Return facts, the newest first: by the time they hold from, else were recorded at."""
        ...

    async def entities(
        self, groups: Sequence[str], *, named: str | None, limit: int
    ) -> Sequence[GraphEntity]:
        """Return entities, those with most facts first."""
        ...

    async def episodes(self, groups: Sequence[str], *, limit: int, place: str = "") -> Sequence[Episode]:
        """Return episodes, the latest observed first; with a `place`, all whose origin has it, or more."""
        ...

    async def episode(self, group_id: str, episode_id: str) -> Episode | None:
        """Return one episode, by the graph's id or the content's."""
        ...

    async def neighbourhood(
        self, groups: Sequence[str], entity: str | None, *, depth: int, limit: int
    ) -> Neighbourhood:
        """Return entities and the facts between them."""
        ...

    async def counts(self, groups: Sequence[str]) -> Counts:
        """Return how much the groups hold."""
        ...

    async def refresh(self, groups: Sequence[str], *, force: bool) -> Sequence[str]:
        """Bring indexes and vectors in step with the settings; return what could not be, in words."""
        ...

    async def scrub(self) -> str | None:
        """Leave nothing of what was removed in files of ours; return what is not ours and may hold it."""
        ...

    def describe(self) -> Mapping[str, str]:
        """Return what is known of the place, such as its kind, version and address without secrets."""
        ...

    async def health(self) -> Health:
        """Return whether the place answers; never raises for one that is down."""
        ...
