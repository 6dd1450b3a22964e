"""The values of a recall."""

from datetime import datetime
from typing import Literal, get_args

from composable_memory.recall.name_matching import folded
from composable_memory.types import Degradation
from composable_memory_ops_logs.quick_dataclass import dataclass

DEFAULT_MAX_ITEMS = 20

RecallKind = Literal["world", "experience", "opinion", "observation", "passage", "fact"]
"""The type of a retained line, a passage that names the entity, or a fact of the graph."""

RECALL_KINDS: tuple[RecallKind, ...] = get_args(RecallKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledItem:
    """One thing that is known.

    `timestamp` is the day of a note, in UTC, or the start of a fact's validity; `by_file_time` is true if the
    note does not state its day, so that its file's modification time was used. `source` cites the place, as
    `path#L3-L7`, and is `source_gone` if that file no longer exists; `id` is that of the retained line or
    fact. `ended_at` is when it ceased to hold, if the graph knows.
    """

    kind: RecallKind
    content: str
    timestamp: datetime | None = None
    entities: tuple[str, ...] = ()
    source: str | None = None
    id: str | None = None
    confidence: float | None = None
    tags: tuple[str, ...] = ()
    ended_at: datetime | None = None
    source_gone: bool | None = None
    by_file_time: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """What is known about an entity or a time, and what was searched for it.

    For an entity, current facts come first, then current lines, then what has ended, then passages; for a
    time, the newest first, and last, if the time has a start, what is dated only by its file. `names` are the
    known names that matched `entity`, `nearest` similar ones. `total` counts the items before the cut to
    `max_results`; passages are only searched if there is room. `notes` and `lines` count what was read.
    """

    items: tuple[RecalledItem, ...]
    entity: str | None = None
    names: tuple[str, ...] = ()
    nearest: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    types: tuple[RecallKind, ...] = ()
    query: str | None = None
    total: int = 0
    notes: int = 0
    lines: int = 0
    degraded: tuple[Degradation, ...] = ()

    @property
    def is_renamed(self) -> bool:
        """Return whether the entity was matched under a different name."""
        return any(folded(name) != folded(self.entity or "") for name in self.names)
