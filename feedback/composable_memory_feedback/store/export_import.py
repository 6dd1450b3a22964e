"""Exports the feedback store as JSON lines, and imports them: everything that nothing else can restore.

The first line has the format, its version and that of the store; each other line is a value of one `kind`, in
`detail`. What the store can count again (the quota, marks) is left out.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.store import earlier_layouts
from composable_memory_feedback.store.entries import VERSION, Entries, Entry
from composable_memory_feedback.store.experiments import running_in
from composable_memory_feedback.store.kinds import EXPERIMENTS, GOLDEN, KINDS, WEIGHTS, Kind
from composable_memory_ops_logs.quick_dataclass import dataclass

FORMAT = "composable-memory-feedback"
FORMAT_VERSION = 3
"""Before version 3, a line was a row of an earlier layout."""
TOLD_LINES = 10
"""How many bad lines are reported with their errors."""


class _Head(BaseModel):
    """The first line."""

    format: Literal["composable-memory-feedback"]
    version: int
    store_version: int = 0
    exported_at: str = ""
    memory: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """How many of each kind an import added and the store already had, and what was left out and why."""

    added: Mapping[str, int] = field(default_factory=dict)
    known: Mapping[str, int] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


def export_lines(entries: Entries, *, memory: str, at: datetime) -> Iterator[tuple[str, bytes]]:
    """Yield each line with its kind; the first line has an empty one."""
    head = _Head.model_construct(
        format=FORMAT,
        version=FORMAT_VERSION,
        store_version=VERSION,
        exported_at=at.isoformat(timespec="seconds"),
        memory=memory,
    )
    yield "", f"{head.model_dump_json()}\n".encode()
    for kind in KINDS:
        for entry in entries.read(kind):
            yield kind, f'{{"kind":"{kind}","detail":{entry.detail}}}\n'.encode()


def import_lines(entries: Entries, lines: Iterable[bytes], *, memory: str) -> Imported:
    """Add what is missing, inside a transaction; what the store has is unchanged.

    Golden questions and the history of weights are each imported as a whole: if the store has others, they
    are left out. Experiments of the exporting memory become experiments of `memory`.

    Raises:
        FeedbackError: A line is not what an export writes; the transaction must be rolled back.
    """
    numbered = enumerate(lines, 1)
    head = _head_of(next(numbered, (1, b""))[1])
    given: dict[str, list[Entry]] = {kind: [] for kind in KINDS}
    problems: list[str] = []
    converter = earlier_layouts.Converter()
    for number, line in numbered:
        try:
            entry = _entry_of(line) if head.version == FORMAT_VERSION else _entry_of_row(line, converter)
        except FeedbackError as error:
            problems.append(f"line {number}: {error.subject}")
        except (LookupError, TypeError, ValueError) as error:
            problems.append(f"line {number}: {error}")
        else:
            if entry is not None:
                given[entry.kind].append(entry)
    if problems:
        more = f" and {len(problems) - TOLD_LINES} more" if len(problems) > TOLD_LINES else ""
        raise FeedbackError(
            f"{len(problems)} lines cannot be read" if len(problems) > 1 else "a line cannot be read",
            subject="; ".join(problems[:TOLD_LINES]) + more,
            advice="nothing was imported; correct them, or export again",
        )
    given[EXPERIMENTS.name] = [_moved(one, head.memory, memory) for one in given[EXPERIMENTS.name]]
    added, known, left_out = Counter[str](), Counter[str](), list[str]()
    for kind, those in given.items():
        new = _new_of(those, entries, KINDS[kind])
        if new is None:
            left_out.append(_OTHERS[kind])
            continue
        known[kind] = len(those) - len(new)
        for entry in new:
            if kind == EXPERIMENTS.name and _is_second(entry, entries):
                left_out.append(f"experiment {EXPERIMENTS.read(entry.detail).id}: another one is running")
            else:
                entries.put([entry])
                added[kind] += 1
    return Imported(added=+added, known=+known, left_out=tuple(left_out))


_OTHERS = {
    WEIGHTS.name: "the history of weights: the store has another one",
    GOLDEN.name: "the golden questions: the store has others",
}


def _new_of(given: list[Entry], entries: Entries, kind: Kind[Any]) -> list[Entry] | None:
    """Return what the store does not have; None if it has something else instead of the whole."""
    if kind.name not in _OTHERS:
        by_key = {one.key or "": one for one in reversed(given)}
        known = entries.find(kind.name, [*by_key])
        return [one for key, one in by_key.items() if key not in known][::-1]
    own, values = kind.all(entries), [kind.read(one.detail) for one in given]
    is_same = all(one == other for one, other in zip(own, values, strict=False))
    if own and given and not (is_same and (kind is WEIGHTS or len(own) == len(given))):
        return None
    return given[len(own) :]


def _moved(entry: Entry, was: str | None, memory: str) -> Entry:
    record = EXPERIMENTS.read(entry.detail)
    return EXPERIMENTS.entry(replace(record, memory=memory)) if record.memory in (was, None) else entry


def _is_second(entry: Entry, entries: Entries) -> bool:
    record = EXPERIMENTS.read(entry.detail)
    return record.is_running and running_in(entries, record.memory) is not None


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


def _entry_of(line: bytes) -> Entry:
    given = json.loads(line)
    kind = KINDS.get(str(given.get("kind"))) if isinstance(given, dict) else None
    if kind is None:
        raise ValueError(f"it names none of the store's kinds: {', '.join(sorted(KINDS))}")
    return kind.entry(kind.read(json.dumps(given["detail"])))


def _entry_of_row(line: bytes, converter: earlier_layouts.Converter) -> Entry | None:
    row = json.loads(line)
    table = row.pop("table", "") if isinstance(row, dict) else ""
    return converter.entry(table, row)
