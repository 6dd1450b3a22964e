"""Draws a chart in the terminal: every line of it as a field of blocks over the same time."""

from collections.abc import Iterator, Sequence
from datetime import UTC
from shutil import get_terminal_size
from statistics import fmean

from composable_memory.cli.learning_charts import DAY, Chart, Point, Series, colour_numbers
from composable_memory.cli.screen import can_draw, say

__all__ = ["chart_lines", "draw_charts", "sampled"]

ROWS = 3
"""How high a line is drawn."""
WIDEST = 96
"""More columns make no chart clearer."""
EIGHTHS = " ▁▂▃▄▅▆▇█"
STROKES = " ...::::#"
"""What stands for the eighths where the terminal has no blocks."""
COLOURS = ("cyan", "green", "magenta", "yellow", "blue")


def draw_charts(charts: Sequence[Chart]) -> None:
    """Write charts to stdout, as wide as the terminal."""
    numbers = colour_numbers(charts)
    for chart in charts:
        if chart is not charts[0]:
            say()
        unit = f"  ({chart.unit})" if chart.series else ""
        say(f"{chart.title}{unit}", bold=True)
        for text, name in chart_lines(chart, get_terminal_size().columns, blocks=can_draw()):
            say(text, colour=COLOURS[numbers[name] % len(COLOURS)] if name else None)
        if chart.note:
            say(f"  {chart.note}", dim=True)


def chart_lines(chart: Chart, width: int, *, blocks: bool) -> Iterator[tuple[str, str | None]]:
    """Yield the lines of a chart, and whose each is; all are at most `width` wide, if that is 40 or more."""
    if not chart.series:
        return
    names = max(len(one.name) for one in chart.series)
    cells = max(10, min(width, WIDEST) - names - len("  1.00 ||  0.00"))
    low, high = _bounds(chart)
    for series in chart.series:
        rows = _field(sampled(series, chart, cells), low, high, blocks=blocks)
        digits = 2 if chart.bounds else 3
        axis = [f"{high:.{digits}f}", *[""] * (ROWS - 2), f"{low:.{digits}f}"]
        heads = [series.name, *[""] * (ROWS - 1)]
        ends = [*[""] * (ROWS - 1), f"{series.points[-1].value:.{digits}f}"]
        for head, label, row, end in zip(heads, axis, rows, ends, strict=True):
            line = f"{head.ljust(names)} {label.rjust(5)} |{row}| {end.rjust(5)}"
            yield line.rstrip(), series.name
    margin = " " * (names + len(" 1.00  |"))
    if marked := _marks(chart, cells):
        yield f"{margin}{marked}", None
    first, last = (at.astimezone(UTC).date().isoformat() for at in (chart.start, chart.end))
    yield f"{margin}{first}{last.rjust(cells - len(first)) if cells > 21 else ''}", None


def sampled(series: Series, chart: Chart, cells: int) -> list[float | None]:
    """Return the value in each of so many equal parts of the chart's time; None where there is none.

    Where steps are drawn it is the value at the end of the part, else the mean of the days in it.
    """
    part = (chart.end - chart.start) / cells
    values: list[float | None] = []
    for number in range(cells):
        begin, end = chart.start + part * number, chart.start + part * (number + 1)
        is_last = number == cells - 1
        found: Sequence[Point] = [one for one in series.points if one.at < end or is_last]
        found = found[-1:] if chart.course == "steps" else [one for one in found if one.at + DAY > begin]
        values.append(fmean(one.value for one in found) if found else None)
    return values


def _bounds(chart: Chart) -> tuple[float, float]:
    if chart.bounds:
        return chart.bounds
    values = [value for one in chart.series for point in one.points for value in _values(point)]
    low, high = min(0.0, *values), max(0.0, *values)
    return low, high if high > low else low + 1.0


def _values(point: Point) -> Iterator[float]:
    yield point.value
    yield from (end for end in (point.low, point.high) if end is not None)


def _field(values: Sequence[float | None], low: float, high: float, *, blocks: bool) -> list[str]:
    """Return the rows of a field, the highest first; a value that is known fills an eighth at least."""
    strokes = EIGHTHS if blocks else STROKES
    levels = [
        0 if value is None else max(1, round((min(max(value, low), high) - low) / (high - low) * ROWS * 8))
        for value in values
    ]
    return [
        "".join(strokes[min(8, max(0, level - 8 * below))] for level in levels)
        for below in reversed(range(ROWS))
    ]


def _marks(chart: Chart, cells: int) -> str:
    """Return a line with the names of the moments under their columns.

    Of names that would overlap, the latest stays: it is in force.
    """
    shown: list[tuple[int, str]] = []
    free = cells
    span = (chart.end - chart.start).total_seconds() or 1.0
    for mark in reversed(chart.marks):
        column = int((mark.at - chart.start).total_seconds() / span * cells)
        column = max(0, min(column, cells - len(mark.text)))
        if column + len(mark.text) <= free:
            shown.insert(0, (column, mark.text))
            free = column - 1
    line = ""
    for column, text in shown:
        line = f"{line.ljust(column)}{text}"
    return line
