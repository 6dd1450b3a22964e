"""Turns the events of one trace into a waterfall: what ran when, for how long, with what outcome (pure)."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise

from pydantic import JsonValue

from composable_memory.json_documents import document
from composable_memory_ops_logs import OpsEvent
from composable_memory_ops_logs.line_format import event_to_wire
from composable_memory_ops_logs.quick_dataclass import dataclass

EIGHTHS = "▏▎▍▌▋▊▉█"
"""A cell filled from the left, in eighths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One event on the time line, or a leg of a backend, such as `keyword` with the action `query.keyword`.

    `start_ms` counts from the start of the trace. `duration_ms` is 0 for an event without duration. `note`
    summarises the outcome, `error` says what went wrong.
    """

    action: str
    status: str
    start_ms: float
    duration_ms: float
    note: str
    backend: str | None = None
    leg: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Waterfall:
    """One trace, its events in logged order: the question first, the outcome last.

    `results`, `dropped` and `degraded` are those of the last merge, as logged.
    """

    trace_id: str
    started_at: datetime
    total_ms: float
    steps: tuple[Step, ...]
    query: str | None = None
    results: tuple[Mapping[str, object], ...] = ()
    dropped: tuple[Mapping[str, object], ...] = ()
    degraded: tuple[Mapping[str, object], ...] = ()


def waterfall(events: Sequence[OpsEvent]) -> Waterfall:
    """Lay out the events of one trace; those of the same millisecond keep their order.

    An event is written when its step ends, so a step began `duration_ms` before its time stamp.

    Raises:
        ValueError: there are no events, or they belong to several traces.
    """
    traces = {event.trace_id for event in events}
    if len(traces) != 1:
        raise ValueError(f"a waterfall shows the events of one trace, not of {len(traces)}")
    begun = min(event.began for event in events)
    steps = [step for event in sorted(events, key=lambda event: event.ts) for step in _steps(event, begun)]
    merged = _last_detail(events, "query.merged")
    query = _last_detail(events, "query.start").get("query")
    return Waterfall(
        trace_id=traces.pop(),
        started_at=begun,
        total_ms=max(step.start_ms + step.duration_ms for step in steps),
        steps=tuple(steps),
        query=query if isinstance(query, str) else None,
        results=_rows(merged, "finalResults"),
        dropped=_rows(merged, "dropped"),
        degraded=_rows(merged, "degraded"),
    )


def trace_document(events: Sequence[OpsEvent]) -> dict[str, JsonValue]:
    """Return one trace as a time line and as events."""
    drawn = waterfall(events)
    return document(
        trace_id=drawn.trace_id,
        started_at=drawn.started_at,
        total_ms=drawn.total_ms,
        query=drawn.query,
        steps=drawn.steps,
        events=[*map(event_to_wire, events)],
    )


def bar(step: Step, total_ms: float, width: int) -> str:
    """Draw a step as `width` characters; one without duration is the thinnest stroke."""
    scale = width / total_ms if total_ms > 0 else 0.0
    first = min(int(step.start_ms * scale), width - 1)
    last_eighth = round((step.start_ms + step.duration_ms) * scale * 8)
    eighths = min(max(1, last_eighth - first * 8), (width - first) * 8) if step.duration_ms else 1
    full, rest = divmod(eighths, 8)
    return (" " * first + "█" * full + (EIGHTHS[rest - 1] if rest else "")).ljust(width)


def place_of(row: Mapping[str, object]) -> str:
    """Return the place of a result in a trace, such as `a.md:3-7`."""
    first = row.get("startLine")
    return f"{row.get('path')}:{first}-{row.get('endLine')}" if first else str(row.get("path"))


def note_on(event: OpsEvent) -> str:
    """Summarise the outcome of an event read back from the log."""
    detail = event.logged
    match event.action:
        case "query.start":
            return _asked(detail)
        case "query.backend_result":
            return _found(detail)
        case "query.merged":
            return _merged(detail)
    return ", ".join(f"{_words(key)} {value}" for key, value in detail.items() if _is_short(value))


def _steps(event: OpsEvent, begun: datetime) -> Iterator[Step]:
    """Yield the step of an event, and below a backend's step its legs, in the order in which they began."""
    step = _step(event, begun)
    yield step
    legs = event.logged.get("legs")
    spans = ((leg, span) for leg, span in legs.items()) if isinstance(legs, Mapping) else ()
    for leg, (start, took) in sorted(spans, key=lambda one: one[1]):
        yield Step(
            action=f"query.{leg}",
            status="success",
            start_ms=round(step.start_ms + start, 3),
            duration_ms=took,
            note="",
            backend=event.backend,
            leg=leg,
        )


def _step(event: OpsEvent, begun: datetime) -> Step:
    detail = event.logged
    return Step(
        action=event.action,
        status=event.status,
        start_ms=round((event.began - begun).total_seconds() * 1000, 3),
        duration_ms=round(event.duration_ms or 0.0, 3),
        note=note_on(event),
        backend=event.backend,
        error=_error(detail),
    )


def _last_detail(events: Sequence[OpsEvent], action: str) -> Mapping[str, object]:
    found = [event for event in events if event.action == action]
    return max(found, key=lambda event: event.ts).logged if found else {}


def _rows(detail: Mapping[str, object], key: str) -> tuple[Mapping[str, object], ...]:
    rows = detail.get(key)
    return tuple(row for row in rows if isinstance(row, Mapping)) if isinstance(rows, list) else ()


def _error(detail: Mapping[str, object]) -> str | None:
    match detail.get("error"):
        case {"type": kind, "message": message}:
            return f"{kind}: {message}"
        case None:
            return None
        case other:
            return str(other)


def _asked(detail: Mapping[str, object]) -> str:
    active, skipped = detail.get("activeBackends"), detail.get("skippedBackends")
    note = f"asked {', '.join(map(str, active)) or 'nobody'}" if isinstance(active, list) else ""
    if isinstance(skipped, Mapping) and skipped:
        note += "; not " + ", ".join(f"{name} ({reason})" for name, reason in skipped.items())
    return note


def _found(detail: Mapping[str, object]) -> str:
    if skipped := detail.get("skipped"):
        return f"skipped: {skipped}"
    return f"candidates: {detail.get('resultCount', 0)}, weight {detail.get('weight')}"


def _merged(detail: Mapping[str, object]) -> str:
    before, after = detail.get("totalBeforeDedup"), detail.get("totalAfterDedup")
    results = len(_rows(detail, "finalResults"))
    fusion = f"{detail.get('fusion')}{', interleaved' if detail.get('experiment') else ''}"
    return f"candidates: {before}, distinct: {after}, results: {results} ({fusion})"


def _is_short(value: object) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and 0 < len(value) <= 60)


def _words(key: str) -> str:
    """Split a camelCase key into words: `filesIndexed` becomes "files indexed"."""
    return key[:1] + "".join(
        f" {char.lower()}" if char.isupper() and before.islower() else char for before, char in pairwise(key)
    )
