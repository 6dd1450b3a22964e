"""The result of a sync so far, and how it is reported: to the caller, in the index and in the log."""

from collections.abc import Collection, Mapping
from dataclasses import field
from pathlib import Path

from composable_memory.paths import Reading
from composable_memory.types import SyncReport
from composable_memory_adapters.builtin.notes.changed_notes import FAULTS
from composable_memory_adapters.builtin.store.index_meta import SyncMark
from composable_memory_adapters.builtin.store.index_writes import Tally
from composable_memory_adapters.builtin.sync.embedding import EmbedOutcome
from composable_memory_adapters.builtin.sync.indexer import NotesPass
from composable_memory_ops_logs import SyncFileIndexed, SyncFileSkipped
from composable_memory_ops_logs.log import OpsLog
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_PROBLEMS = 50


@dataclass(slots=True, kw_only=True)
class SyncResult:
    """What a sync has found and done so far.

    `is_full` is set if all notes are written, not only changed ones. `mended` describes repaired damage,
    `mismatch` how the index differs from the settings, `not_rebuilt` why a rebuild failed. `languages` are
    the languages' shares of a sample of the passages.
    """

    reason: str
    workspace: Path
    is_full: bool
    notes: NotesPass = field(default_factory=NotesPass)
    tally: Tally = field(default_factory=Tally)
    vectors: EmbedOutcome = field(default_factory=EmbedOutcome)
    mended: str | None = None
    mismatch: str | None = None
    not_rebuilt: str | None = None
    languages: Mapping[str, float] = field(default_factory=dict)

    @property
    def faults(self) -> list[str]:
        """Return which files could not be read, or not in full, and why."""
        return [self._fault(key, why) for key, why in self.notes.faults.items()]

    @property
    def problems(self) -> tuple[str, ...]:
        """Return all problems except damage that has been repaired."""
        other = self.not_rebuilt or self.vectors.problem or self.mismatch
        return (*self.faults, *self.notes.scan.remarks, *filter(None, (self._western, other)))

    @property
    def _western(self) -> str | None:
        if not (keys := self.notes.western):
            return None
        more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
        return f"{keys[0]}{more}: {FAULTS[Reading.AS_WESTERN]}; save them as UTF-8 if letters look wrong"

    def report(self) -> SyncReport:
        """Return the report for whoever asked for the sync."""
        notes, tally = self.notes, self.tally
        return SyncReport(
            reason=self.reason,
            files_indexed=tally.indexed,
            files_unchanged=max(0, len(notes.scan.files) - tally.indexed - len(notes.unread)),
            files_removed=tally.removed,
            chunks_written=tally.chunks,
            embedded=self.vectors.embedded,
            embeddings_pending=self.vectors.pending,
            problems=(*filter(None, (self.mended,)), *self.problems),
            passed_over=notes.scan.passed_over,
        )

    def mark(self, finished_ms: int) -> SyncMark:
        """Return the mark to store in the index: when all notes were indexed, and all problems."""
        # A file that is not text is no note: answers do not lack it, so it is only listed as a problem.
        faults, no_text = self.notes.faults.items(), FAULTS[Reading.NO_TEXT]
        lacking = [self._fault(key, why) for key, why in faults if why != no_text]
        return SyncMark(
            finished_ms=finished_ms,
            unreadable=tuple(lacking[:MAX_PROBLEMS]),
            problems=self.problems[:MAX_PROBLEMS],
            passed_over=self.notes.scan.passed_over,
            languages=self.languages,
        )

    def log_files(self, ops_log: OpsLog, *, source: str, known: Collection[str]) -> None:
        """Log the counts, and each unreadable file whose fault is not `known`."""
        unreadable = self.notes.unreadable
        for key, why in unreadable.items():
            if self._fault(key, why) not in known:
                skipped = SyncFileSkipped(path=key, reason=why)
                ops_log.emit(skipped, status="failure", backend="builtin")
        counts = SyncFileIndexed(
            source=source,
            indexed=self.tally.indexed,
            skipped=len(unreadable),
            removed=self.tally.removed,
            total=len(self.notes.scan.files),
        )
        ops_log.emit(counts, backend="builtin")

    def _fault(self, key: str, why: str) -> str:
        return f"{key or self.workspace}: {why}"
