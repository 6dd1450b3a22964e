"""The values of a recall."""

from datetime import datetime
from typing import Literal, get_args

from composable_memory.recall.name_matching import folded
from composable_memory.types import Degradation
from composable_memory_ops_logs.quick_dataclass import dataclass

DEFAULT_MAX_ITEMS = 20

RecallKind = Literal["world", "experience", "opinion", "observation", "passage", "fact"]
"""The type of a retained line, a passage that names what was asked for, or a fact of the graph."""

RECALL_KINDS: tuple[RecallKind, ...] = get_args(RecallKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecalledItem:
    """One thing that is known.

    `timestamp` is the day that a note is of, in UTC, or since when a fact holds; `by_file_time` is true where
    a note tells no day, so that it is that of the last change of its file. `source` cites where it stands, as
    `path#L3-L7`, and is `source_gone` where that file is there no more; `id` is that of the retained line or
    the fact. `ended_at` is when it ceased to hold, as far as the graph knows.
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
    """What is known of an entity or a time, and what was looked at for it.

    Of an entity, current facts come first, then current lines, then what has ended, then passages; of a time,
    the newest, and behind them, where it has a beginning, what only the time of a file puts there. `names`
    are the known names that were taken for `entity`, `nearest` others like it. `total` counts what was found
    before it was cut to `max_results`; passages are only looked for where there is room. `notes` and `lines`
    count what was read.
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
        """Return whether something known by another name was taken for the entity."""
        return any(folded(name) != folded(self.entity or "") for name in self.names)
