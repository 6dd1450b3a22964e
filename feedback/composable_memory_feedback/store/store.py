"""The feedback store: everything that learning remembers; each method is one transaction."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection

from composable_memory_feedback.golden import GoldenRecord
from composable_memory_feedback.store.codecs import QUERIES, QUESTIONS, plain_text
from composable_memory_feedback.store.experiments import ExperimentRows
from composable_memory_feedback.store.export_import import Imported, export_lines, import_lines
from composable_memory_feedback.store.judgements import JudgementRows
from composable_memory_feedback.store.weights import WeightRows
from composable_memory_ops_logs.erasing import masked_value

_PUT_GOLDEN = "INSERT INTO golden (question, query) VALUES (?, ?)"

_GOLDEN = "SELECT question, query FROM checked_golden ORDER BY id"

_MARK = "SELECT value FROM marks WHERE name = ?"

_SET_MARK = """
INSERT INTO marks (name, value) VALUES (?, ?)
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE marks.value IS NOT excluded.value
"""


class FeedbackStore(JudgementRows, WeightRows, ExperimentRows):
    """Judgements, evaluations, weights, experiments and golden questions in one SQLite file.

    It blocks: call it from a thread, not on an event loop. Several threads may share one, and several
    processes may have the file open; a wait for another process ends after five seconds. Times need a zone.
    Every method raises `FeedbackError` when the file cannot be used, and has then changed nothing.
    """

    # Golden questions and marks

    def put_golden(self, records: Sequence[GoldenRecord]) -> None:
        """Keep golden questions in the place of all that were kept before."""
        rows = [(QUESTIONS.write(one.question), QUERIES.write(one.query)) for one in records]
        with self.writing() as connection:
            connection.execute("DELETE FROM golden")
            connection.executemany(_PUT_GOLDEN, rows)

    def golden(self) -> list[GoldenRecord]:
        """Return the golden questions in the order in which they were put."""
        with self.reading() as connection:
            return [
                GoldenRecord(question=QUESTIONS.read(row["question"]), query=QUERIES.read(row["query"]))
                for row in connection.execute(_GOLDEN)
            ]

    def mark(self, name: str) -> str | None:
        """Return the value of a named mark."""
        with self.reading() as connection:
            row = connection.execute(_MARK, (name,)).fetchone()
        return None if row is None else str(row["value"])

    def set_mark(self, name: str, value: str) -> None:
        """Set a named mark, such as how far the log was read."""
        with self.writing() as connection:
            connection.execute(_SET_MARK, (name, plain_text(value)))

    def wait_for_change(self, seconds: float) -> None:
        """Return after so many seconds: nobody tells of changes of a file."""
        time.sleep(seconds)

    # Forgetting

    def mask(self, mask: Callable[[str], str], *, is_rehearsal: bool = False) -> int:
        """Mask the texts that people and models wrote or asked; return in how many rows one changed.

        Keys, places and numbers stay, and no copy of before is kept: the file and its copies are made anew,
        so that nothing is left of the texts. In a rehearsal nothing is changed.
        """
        with self.reading() if is_rehearsal else self.writing() as connection:
            found = mask_rows(connection, mask, is_rehearsal=is_rehearsal)
        if not is_rehearsal:
            self.scrub()
        return found

    # Copies, export and import

    def is_empty(self) -> bool:
        """Return whether nothing is kept that could be lost."""
        with self.reading() as connection:
            return not any(
                True for table, _ in export_lines(connection, memory="", at=self._clock()) if table
            )

    def restore_from(self, source: Path, *, memory: str, was: str) -> None:
        """Make a copy the content of this store, all or nothing; other processes see it with their next look.

        An experiment of the memory that it `was` is one of `memory` then.

        Raises:
            FeedbackError: The copy is no store, or of a later version; this one is as before.
        """
        self.take_over(source)
        self.move_experiments(was, memory)

    def export(self, write: Callable[[bytes], object], *, memory: str) -> Counter[str]:
        """Write all that nothing else can bring back, of one moment, as JSON lines; return rows by table."""
        with self.reading() as connection:
            connection.execute("BEGIN")
            try:
                counts: Counter[str] = Counter()
                for table, line in export_lines(connection, memory=memory, at=self._clock()):
                    write(line)
                    counts[table] += 1
            finally:
                connection.execute("ROLLBACK")
        del counts[""]
        return counts

    def import_(self, lines: Iterable[bytes], *, memory: str) -> Imported:
        """Add what an export holds and the store does not; what it has stays. Twice is as good as once.

        Raises:
            FeedbackError: A line is not what an export writes; nothing was imported.
        """
        with self.writing() as connection:
            return import_lines(connection, lines, memory=memory)


TEXT_COLUMNS: Mapping[str, Sequence[str]] = {
    "judgements": ("rationale",),
    "golden": ("question", "query"),
    "evaluations": ("detail",),
}
"""The columns, by table, in which somebody's words are kept. What weights say is never changed."""


def mask_rows(connection: Connection, mask: Callable[[str], str], *, is_rehearsal: bool) -> int:
    """Mask the texts in these columns, also within JSON; return how many rows change."""
    found = 0
    for table, columns in TEXT_COLUMNS.items():
        values = ", ".join(f"{name} = ?" for name in columns)
        update = f"UPDATE {table} SET {values} WHERE id = ?"  # noqa: S608 - our own names
        for row in connection.execute(f"SELECT id, {', '.join(columns)} FROM {table}").fetchall():  # noqa: S608
            before = [row[name] for name in columns]
            after = [text and _masked(text, mask) for text in before]
            found += after != before
            if after != before and not is_rehearsal:
                connection.execute(update, (*after, row["id"]))
    return found


def _masked(text: str, mask: Callable[[str], str]) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return mask(text)
    masked = masked_value(value, mask)
    return text if masked == value else json.dumps(masked, ensure_ascii=False, separators=(",", ":"))
