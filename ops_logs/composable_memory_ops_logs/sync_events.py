"""Events of an index catching up with its files."""

# Annotations are read at run time to derive the format on disk, so this module does not postpone them.
from collections.abc import Sequence
from typing import ClassVar

from composable_memory_ops_logs.events import ErrorInfo, EventDetail
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncStart(EventDetail):
    """An index begins to catch up with its files."""

    action: ClassVar[str] = "sync.start"
    reason: str
    force: bool
    needs_full_reindex: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncFileIndexed(EventDetail):
    """A source is done: counts of its files."""

    action: ClassVar[str] = "sync.file_indexed"
    source: str
    indexed: int
    skipped: int
    removed: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncFileSkipped(EventDetail):
    """A file could not be indexed."""

    action: ClassVar[str] = "sync.file_skipped"
    path: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncComplete(EventDetail):
    """The index has caught up."""

    action: ClassVar[str] = "sync.complete"
    reason: str
    full_reindex: bool
    files_indexed: int
    chunks_written: int
    embedded: int
    removed: int
    embeddings_pending: int = 0
    problems: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncFailed(EventDetail):
    """The index could not catch up."""

    action: ClassVar[str] = "sync.failed"
    reason: str
    error: ErrorInfo
