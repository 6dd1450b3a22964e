"""The feedback store as JSON lines and back: everything in it that nothing else can bring back.

The first line names the format, its version and that of the store; each other line is one row of a table, its
columns by name. What the store calculates or counts again (the quota, marks)
is not there. A line that was written once is read by all later versions.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from sqlite3 import Connection
from typing import Literal

from pydantic import BaseModel, ValidationError

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.store.codecs import ROWS
from composable_memory_feedback.store.schema import VERSION
from composable_memory_ops_logs.quick_dataclass import dataclass

FORMAT = "composable-memory-feedback"
FORMAT_VERSION = 2
COUNTED_BEFORE = ("backend_queries",)
"""What earlier versions wrote too, and this one counts by the judgements."""
TOLD_LINES = 10
"""So many bad lines are told with what is wrong with them."""


class _Head(BaseModel):
    """The first line."""

    format: Literal["composable-memory-feedback"]
    version: int
    store_version: int = 0
    exported_at: str = ""
    memory: str | None = None


_HISTORY = ("weight_tables", "weight_changes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """How many rows of each table an import added, how many the store had, and what was left out and why."""

    added: Mapping[str, int] = field(default_factory=dict)
    known: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def export_lines(connection: Connection, *, memory: str, at: datetime) -> Iterator[tuple[str, bytes]]:
    """Yield each line with the name of its table, the first line with a blank one."""
    head = _Head.model_construct(
        format=FORMAT,
        version=FORMAT_VERSION,
        store_version=VERSION,
        exported_at=at.isoformat(timespec="seconds"),
        memory=memory,
    )
    yield "", _line(head.model_dump())
    for table in ROWS:
        columns = ", ".join(ROWS[table].model_fields)
        finished = " WHERE detail IS NOT NULL" if table == "evaluations" else ""
        rows = connection.execute(
            f"SELECT {columns} FROM checked_{table}{finished} ORDER BY place"  # noqa: S608 - our own names
        )
        for row in rows:
            yield table, _line({"table": table, **dict(row)})


def import_lines(connection: Connection, lines: Iterable[bytes], *, memory: str) -> Imported:
    """Add what is not there yet, inside a transaction; what the store has stays as it is.

    Golden questions, and the history of weights, are taken as a whole: where the store has others, they are
    left out. An experiment of the memory that the lines come from is one of `memory` afterwards.

    Raises:
        FeedbackError: A line is not what an export writes; the transaction has to be undone.
    """
    numbered = enumerate(lines, 1)
    head = _head_of(next(numbered, (1, b""))[1])
    rows: dict[str, list[dict[str, object]]] = {table: [] for table in ROWS}
    problems: list[str] = []
    for number, line in numbered:
        try:
            table, row = _row_of(line)
            if table in COUNTED_BEFORE:
                continue
        except (FeedbackError, ValueError) as error:
            problems.append(f"line {number}: {_reason(error)}")
        else:
            if table == "experiments" and row["memory"] in (head.memory, None):
                row["memory"] = memory
            rows[table].append(row)
    if problems:
        more = f" and {len(problems) - TOLD_LINES} more" if len(problems) > TOLD_LINES else ""
        raise FeedbackError(
            f"{len(problems)} lines cannot be read" if len(problems) > 1 else "a line cannot be read",
            subject="; ".join(problems[:TOLD_LINES]) + more,
            advice="nothing was imported; correct them, or export again",
        )
    return _Import(connection, rows).run()


class _Import:
    """One import of rows that were checked."""

    def __init__(self, connection: Connection, rows: Mapping[str, Sequence[dict[str, object]]]) -> None:
        self._connection = connection
        self._rows = rows
        self._added: Counter[str] = Counter()
        self._known: Counter[str] = Counter()
        self._left_out: list[str] = []

    def run(self) -> Imported:
        self._history()
        self._golden()
        for table in ("experiments", "outcomes", "evaluations", "judgements"):
            self._add(table, self._rows[table])
        return Imported(added=+self._added, known=+self._known, left_out=tuple(self._left_out))

    def _add(self, table: str, rows: Sequence[dict[str, object]]) -> None:
        """Insert rows that are not there; a conflict with another row leaves a row out."""
        columns = ROWS[table].model_fields
        names, values = ", ".join(columns), ", ".join(f":{one}" for one in columns)
        same = " AND ".join(f"{one} IS :{one}" for one in _IDENTITY[table])
        find = f"SELECT 1 FROM {table} WHERE {same}"  # noqa: S608 - our own names
        insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({values})"  # noqa: S608 - our own names
        refused = added = 0
        for row in rows:
            if self._connection.execute(find, row).fetchone():
                self._known[table] += 1
            elif self._connection.execute(insert, row).rowcount:
                added += 1
            else:
                refused += 1
        if added:
            self._added[table] += added
        if refused:
            self._left_out.append(f"{refused} of {table}: the store has others with the same key")

    def _history(self) -> None:
        """Add what follows on the history of weights that the store has, if that is how the lines begin."""
        pairs = {table: (self._all(table), self._rows[table]) for table in _HISTORY}
        if all(one == other for own, given in pairs.values() for one, other in zip(own, given, strict=False)):
            for table, (own, given) in pairs.items():
                self._known[table] += min(len(own), len(given))
                self._add(table, given[len(own) :])
        else:
            self._left_out.append("the history of weights: the store has another one")

    def _golden(self) -> None:
        own, given = self._all("golden"), self._rows["golden"]
        if given and own == given:
            self._known["golden"] += len(own)
        elif given and own:
            self._left_out.append("the golden questions: the store has others")
        else:
            self._add("golden", given)

    def _all(self, table: str) -> list[dict[str, object]]:
        columns = ", ".join(ROWS[table].model_fields)
        rows = self._connection.execute(f"SELECT {columns} FROM checked_{table} ORDER BY place")  # noqa: S608
        return [dict(row) for row in rows]


_IDENTITY: Mapping[str, Sequence[str]] = {
    "weight_tables": ("version", "detail"),
    "weight_changes": ("version", "at", "actor", "action", "reason", "base"),
    "golden": ("question", "query"),
    "experiments": ("id",),
    "outcomes": ("experiment_id", "trace_id", "query_id"),
    "evaluations": ("reserved_at", "detail"),
    "judgements": ("trace_id", "query_id", "path", "start_line", "end_line", "start_char", "kind", "judge"),
}
"""By which columns a row is known again."""


def _line(row: Mapping[str, object]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _head_of(line: bytes) -> _Head:
    try:
        head = _Head.model_validate_json(line)
    except ValidationError as error:
        raise FeedbackError(
            "this is not an export of the feedback store",
            subject="line 1",
            advice="use a file written by `cmem feedback export`",
        ) from error
    if head.version > FORMAT_VERSION:
        raise FeedbackError(
            f"the export is version {head.version}, but this program knows {FORMAT_VERSION}",
            subject="line 1",
            advice="update composable-memory",
        )
    return head


def _row_of(line: bytes) -> tuple[str, dict[str, object]]:
    """Return the table and the columns of a line, times as they were written."""
    row = json.loads(line)
    table = row.pop("table", None) if isinstance(row, dict) else None
    if table in COUNTED_BEFORE:
        return str(table), {}
    if not isinstance(table, str) or table not in ROWS:
        raise ValueError(f"it names none of the store's tables: {', '.join(sorted(ROWS))}")
    ROWS[table].model_validate(row)
    missing = {name: one.default for name, one in ROWS[table].model_fields.items() if name not in row}
    return table, row | missing


def _reason(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        where = ".".join(str(one) for one in first["loc"])
        return f"{where}: {first['msg']}" if where else first["msg"]
    return str(error)
