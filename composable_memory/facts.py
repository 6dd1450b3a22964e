"""Values of a memory of facts: statements about entities, each with the time in which it holds."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime

from composable_memory.types import JsonValue, Origin, TimeWindow
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One statement of a graph: `text` says it in words, about the entities `source` and `target`.

    It held in the world from `valid_at` until before `invalid_at`; None means unknown, and still holding. It
    was recorded at `created_at`; `expired_at` is when it was found to hold no longer. After `expires_at` it
    must not be returned any more. `confidence` is in [0, 1]. `episodes` are the ids of what it was taken
    from.
    """

    id: str
    group_id: str
    text: str
    relation: str
    source: str
    target: str
    valid_at: datetime | None = None
    invalid_at: datetime | None = None
    created_at: datetime | None = None
    expired_at: datetime | None = None
    expires_at: datetime | None = None
    confidence: float | None = None
    episodes: tuple[str, ...] = ()
    origins: tuple[Origin, ...] = ()

    @property
    def statement(self) -> str:
        """Return the text, preceded by its subject if it only has a pronoun for that, or nothing."""
        said, names = self.text.casefold(), self.source.casefold().split()
        is_named = any(name in said for name in names if len(name) > 2 or not name.isascii())
        return self.text if is_named or not names else f"{self.source}: {self.text}"

    def holds_at(self, moment: datetime) -> bool:
        """Return whether the fact held in the world at `moment`."""
        return self.holds_within(TimeWindow(start=moment, end=moment))

    def holds_within(self, window: TimeWindow) -> bool:
        """Return whether the fact held at some moment in `window`; one that ended as it began never did."""
        began = self.valid_at is None or self.valid_at <= window.end
        ended = self.invalid_at is not None and (
            self.invalid_at <= window.start or self.invalid_at == self.valid_at
        )
        return began and not ended

    def is_current(self, now: datetime) -> bool:
        """Return whether the fact still holds, as far as is known."""
        return self.expired_at is None and self.holds_at(now)

    def is_forgotten(self, now: datetime) -> bool:
        """Return whether the fact has expired, so that it must not be returned."""
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphEntity:
    """Somebody or something that facts are about; `fact_count` counts its facts in the graph."""

    id: str
    group_id: str
    name: str
    kind: str | None = None
    summary: str = ""
    fact_count: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """A content as kept in a graph: what facts were taken from.

    `id` is the graph's own, `content_id` that of the content. `observed_at` is when it was said or seen,
    `ingested_at` when it was written to the graph.
    """

    id: str
    group_id: str
    content_id: str
    text: str = ""
    observed_at: datetime | None = None
    ingested_at: datetime | None = None
    origin: Origin | None = None
    source: str = ""
    fact_count: int = 0
    metadata: Mapping[str, JsonValue] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbourhood:
    """Entities and the facts between them."""

    entities: tuple[GraphEntity, ...] = ()
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Adopted:
    """How many episodes from before workspaces were told apart were adopted, and how many are left."""

    episodes: int
    left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Forgotten:
    """What was removed with an episode: facts without other support, entities without facts."""

    episode_id: str
    facts: int
    entities: int
