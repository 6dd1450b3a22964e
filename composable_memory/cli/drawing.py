"""Draws a waterfall in the terminal."""

from collections.abc import Callable, Mapping
from datetime import UTC
from shutil import get_terminal_size

from composable_memory.cli.screen import can_draw, say
from composable_memory.query.waterfall import Step, Waterfall, bar

__all__ = ["draw"]

NOTE_CHARS = 30
"""How much of a line is kept free for the note on a step."""


def draw(one: Waterfall) -> None:
    """Write the time line of a trace, then what came of it."""
    started = one.started_at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    say(f"trace {one.trace_id}  {started}  {one.total_ms:.1f} ms", bold=True)
    if one.query is not None:
        say(f"query {one.query}")
    say()
    _draw_steps(one)
    _list("results", one.results, _result)
    _list("dropped", one.dropped, _dropped)
    _list("degraded", one.degraded, lambda row: f"{row.get('backend')}: {row.get('reason')}")


def _draw_steps(one: Waterfall) -> None:
    labels = [_label(step) for step in one.steps]
    label_width = max(map(len, labels))
    bar_width = max(10, get_terminal_size().columns - label_width - NOTE_CHARS - 16)
    for step, label in zip(one.steps, labels, strict=True):
        drawn = bar(step, one.total_ms, bar_width)
        if not can_draw():
            drawn = "".join(" " if char == " " else "#" for char in drawn)
        took = f"{step.duration_ms:.1f} ms" if step.duration_ms else ""
        say(f"{label.ljust(label_width)} |{drawn}| {took.rjust(10)}  {step.note}", colour=_colour(step))
        if step.error:
            say(f"{' ' * label_width}  {step.error}", colour="red")


def _label(step: Step) -> str:
    return f"{step.action} {step.backend or ''}".rstrip()


def _colour(step: Step) -> str | None:
    return {"failure": "red", "partial": "yellow"}.get(step.status)


def _list(
    title: str, rows: tuple[Mapping[str, object], ...], line: Callable[[Mapping[str, object]], str]
) -> None:
    if not rows:
        return
    say()
    say(title, bold=True)
    for row in rows:
        say(f"  {line(row)}")


def _result(row: Mapping[str, object]) -> str:
    scores = [_number(row.get(key)) for key in ("score", "rawScore", "calibratedScore")]
    merged = row.get("mergedWith")
    also = f"; merged with {', '.join(map(str, merged))}" if isinstance(merged, list) and merged else ""
    return (
        f"{scores[0]} {_place(row)} [{row.get('backend')}]  raw {scores[1]}, calibrated {scores[2]}, "
        f"weight {row.get('weight')}, rank {row.get('backendRank')}{also}"
    )


def _dropped(row: Mapping[str, object]) -> str:
    return f"{_place(row)} [{row.get('backend')}]  {row.get('reason')}: {row.get('detail')}"


def _place(row: Mapping[str, object]) -> str:
    path, first, last = row.get("path"), row.get("startLine"), row.get("endLine")
    return f"{path}:{first}-{last}" if first else str(path)


def _number(value: object) -> str:
    return f"{value:.3f}" if isinstance(value, int | float) else "?"
