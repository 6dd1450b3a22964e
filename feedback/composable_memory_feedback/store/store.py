"""The feedback store: everything that learning remembers; each method is one transaction."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from composable_memory_feedback.golden import GoldenRecord
from composable_memory_feedback.store.entries import Entries, Entry
from composable_memory_feedback.store.experiments import ExperimentRows
from composable_memory_feedback.store.export_import import Imported, export_lines, import_lines
from composable_memory_feedback.store.judgements import JudgementRows
from composable_memory_feedback.store.kinds import (
    EVALUATIONS,
    GOLDEN,
    JUDGEMENTS,
    KINDS,
    MARKS,
    plain_text,
)
from composable_memory_feedback.store.weights import WeightRows
from composable_memory_ops_logs.erasing import PLACES, masked_value


class FeedbackStore(JudgementRows, WeightRows, ExperimentRows):
    """Judgements, evaluations, weights, experiments and golden questions in one SQLite file.

    It blocks: call it from a thread, not on an event loop. Several threads may share one, and several
    processes may have the file open; a wait for another process ends after five seconds. Times need a zone.
    Every method raises `FeedbackError` if the file cannot be used, and has then changed nothing.
    """

    # Golden questions and marks

    def put_golden(self, records: Sequence[GoldenRecord]) -> None:
        """Store golden questions, replacing all earlier ones."""
        with self.writing() as entries:
            entries.remove(id_ for id_, _ in entries.index(GOLDEN.name))
            GOLDEN.put(entries, *records)

    def golden(self) -> list[GoldenRecord]:
        """Return the golden questions in the order in which they were stored."""
        with self.reading() as entries:
            return GOLDEN.all(entries)

    def mark(self, name: str) -> str | None:
        """Return the value of a named mark."""
        with self.reading() as entries:
            found = entries.find(MARKS, [name]).get(name)
        return None if found is None else found.detail

    def set_mark(self, name: str, value: str) -> None:
        """Set a named mark, such as how far the log was read."""
        with self.writing() as entries:
            entries.put([Entry(MARKS, name, "", plain_text(value))])

    def wait_for_change(self, seconds: float) -> None:
        """Wait this many seconds and return: there are no notifications for a file."""
        time.sleep(seconds)

    # Forgetting

    def mask(self, mask: Callable[[str], str], *, is_rehearsal: bool = False) -> int:
        """Mask the texts that people and models wrote or asked; return how many entries changed.

        Keys, places and numbers stay, but no earlier copy: the file and its copies are rebuilt so that
        nothing is left of the texts. A rehearsal changes nothing.
        """
        with self.reading() if is_rehearsal else self.writing() as entries:
            masked = _masked(entries, mask)
            if not is_rehearsal:
                entries.put(masked)
        if not is_rehearsal:
            self.scrub()
        return len(masked)

    # Copies, export and import

    def is_empty(self) -> bool:
        """Return whether the store has nothing that could be lost."""
        with self.reading() as entries:
            return not any(entries.count(kind)[0] for kind in KINDS)

    def restore_from(self, source: Path, *, memory: str, was: str) -> None:
        """Replace the content by that of a copy, all or nothing; other processes see it at their next look.

        Experiments of the memory `was` become experiments of `memory`.

        Raises:
            FeedbackError: The copy is not a store, or of another version; this one is unchanged.
        """
        self.take_over(source)
        self.move_experiments(was, memory)

    def export(self, write: Callable[[bytes], object], *, memory: str) -> Counter[str]:
        """Write everything that nothing else can restore, from one snapshot, as JSON lines; count by kind."""
        counts: Counter[str] = Counter()
        with self.reading() as entries:
            for kind, line in export_lines(entries, memory=memory, at=self._clock()):
                write(line)
                counts[kind] += 1
        del counts[""]
        return counts

    def import_(self, lines: Iterable[bytes], *, memory: str) -> Imported:
        """Add what an export has and the store does not; existing values stay. Repeating it changes nothing.

        Raises:
            FeedbackError: A line is not what an export writes; nothing was imported.
        """
        with self.writing() as entries:
            return import_lines(entries, lines, memory=memory)


_WITH_TEXTS = (JUDGEMENTS.name, EVALUATIONS.name, GOLDEN.name)
"""The kinds with text that somebody wrote. Weights are never changed."""

_KEPT = PLACES | {"backend", "by", "intent", "kind"}


def _masked(entries: Entries, mask: Callable[[str], str]) -> list[Entry]:
    """Return the entries that change, in their new form."""
    changed = []
    for entry in (one for kind in _WITH_TEXTS for one in entries.read(kind)):
        before = json.loads(entry.detail)
        after = masked_value(before, mask, kept=_KEPT)
        if after != before:
            changed.append(entry._replace(detail=json.dumps(after, ensure_ascii=False)))
    return changed
