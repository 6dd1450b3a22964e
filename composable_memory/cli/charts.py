"""The charts of what was learnt: weights over time, and quality by day; all values are from 0 to 1.

A chart does not know how it is drawn: `print_charts` prints it, `pictures` draws it into a file.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from statistics import fmean
from typing import Literal

from composable_memory.cli.output import print_line
from composable_memory.cli.render import print_table, sparkline
from composable_memory.cli.weights import SETTINGS
from composable_memory_feedback.judgements import BackendDay, total_of
from composable_memory_feedback.weights import IntentKind, WeightChange, WeightTable
from composable_memory_ops_logs.quick_dataclass import dataclass

DAY = timedelta(days=1)
CELLS = 48
"""Into how many parts of equal length the terminal divides the time of a chart."""

Course = Literal["steps", "days"]
"""Whether a value holds until the next one, or only for its day (UTC)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A value, and when it was measured or began to hold."""

    at: datetime
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A line of a chart, in order of time."""

    name: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A labelled moment."""

    at: datetime
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Lines over a common time from `start` to `end`.

    `note` is what a reader has to know, or for a chart without lines, how to get some.
    """

    title: str
    unit: str
    course: Course
    start: datetime
    end: datetime
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    note: str = ""


def charts_of(
    days: Sequence[BackendDay],
    history: Sequence[WeightChange],
    *,
    base: WeightTable,
    backends: Sequence[str],
    start: datetime | None,
    now: datetime,
) -> tuple[Chart, ...]:
    """Return all charts over one time: from `start`, or from the first day with data, to `now`."""
    known = [_morning(one.day) for one in days] + [change.at for change in history]
    first = min(start or min(known, default=now) - DAY / 2, now)
    changes = sorted(history, key=lambda change: change.at)
    return (
        *weight_charts(changes, base=base, backends=backends, start=first, now=now),
        quality_chart(days, start=first, now=now),
    )


def colour_numbers(charts: Iterable[Chart]) -> dict[str, int]:
    """Return a number for the name of every line, so that a backend has the same colour in all charts."""
    names = dict.fromkeys(series.name for chart in charts for series in chart.series)
    return {name: number for number, name in enumerate(names)}


def weight_charts(
    changes: Sequence[WeightChange],
    *,
    base: WeightTable,
    backends: Sequence[str],
    start: datetime,
    now: datetime,
) -> Iterator[Chart]:
    """Yield the weights over time: for all questions, then for each kind that ever had weights of its own.

    `changes` are in order of time. Only proportions matter to a ranking, so the heaviest weight is drawn as
    1. Earlier settings are not known; the present ones are shown instead.
    """
    tables = [(start, base), *((change.at, change.table or base) for change in changes)]
    own = {kind for _, table in tables for kind in table.by_intent}
    marks = tuple(Mark(at=one.at, text=one.version or SETTINGS) for one in changes if one.at >= start)
    note = "" if changes else "The weights have never been changed: these come from the settings."
    for kind in (None, *(kind for kind in IntentKind if kind in own)):
        of_whom = "all questions" if kind is None else f"{kind} questions"
        yield Chart(
            title=f"Weights for {of_whom}",
            unit="heaviest = 1",
            course="steps",
            start=start,
            end=now,
            series=tuple(
                Series(name=name, points=_since(start, points))
                for name, points in _courses(tables, kind, backends).items()
            ),
            marks=marks,
            note=note,
        )


def quality_chart(days: Sequence[BackendDay], *, start: datetime, now: datetime) -> Chart:
    """Return the mean relevance of each backend's results by day, over all kinds of questions, as judged."""
    grouped: defaultdict[tuple[str, datetime], list[BackendDay]] = defaultdict(list)
    for one in days:
        grouped[one.backend, _morning(one.day)].append(one)
    points: defaultdict[str, list[Point]] = defaultdict(list)
    for (backend, at), rows in sorted(grouped.items()):
        total = total_of(rows)
        if total.queries and at >= start - DAY:
            points[backend].append(Point(at=at, value=total.mean_relevance))
    return Chart(
        title="Quality of results by day",
        unit="mean relevance, judged",
        course="days",
        start=start,
        end=now,
        series=tuple(Series(name=name, points=tuple(found)) for name, found in points.items()),
        note="" if points else "Nothing was judged in this period: run `cmem feedback evaluate`.",
    )


def _courses(
    tables: Sequence[tuple[datetime, WeightTable]], kind: IntentKind | None, backends: Sequence[str]
) -> dict[str, list[Point]]:
    named = [*backends, *sorted({one for _, table in tables for one in table.weights}.difference(backends))]
    points: dict[str, list[Point]] = {name: [] for name in named}
    for at, table in tables:
        for name, weight in table.proportions(named, kind).items():
            points[name].append(Point(at=at, value=weight))
    return points


def _since(start: datetime, points: Sequence[Point]) -> tuple[Point, ...]:
    """Return the points from `start` on, preceded by the one that held then, as if it had begun there."""
    earlier = [one for one in points if one.at <= start]
    held = [Point(at=start, value=earlier[-1].value)] if earlier else []
    return (*held, *(one for one in points if one.at > start))


def _morning(day: date) -> datetime:
    return datetime.combine(day, time(), tzinfo=UTC)


# --- in the terminal ----------------------------------------------------------------------------------------


def print_charts(charts: Sequence[Chart]) -> None:
    """Print each chart as a table: a line of blocks for each series, its range, and its last value."""
    for number, chart in enumerate(charts):
        if number:
            print_line()
        print_line(f"{chart.title}{f'  ({chart.unit})' if chart.series else ''}", bold=True)
        if chart.series:
            first, last = (at.astimezone(UTC).date().isoformat() for at in (chart.start, chart.end))
            head = ("", f"{first} .. {last}", "low", "high", "last")
            rows = [(one.name, *_row(one, chart)) for one in chart.series]
            print_table(rows, head=head, right=(2, 3, 4), indent=2)
        if chart.marks:
            marks = (f"{one.text} {one.at.astimezone(UTC).date().isoformat()}" for one in chart.marks)
            print_line(f"  changes: {', '.join(marks)}", dim=True)
        if chart.note:
            print_line(f"  {chart.note}", dim=True)


def _row(series: Series, chart: Chart) -> tuple[str, ...]:
    values = [one.value for one in series.points]
    line = sparkline(sampled(series, chart, CELLS), 0.0, 1.0)
    return line, *(f"{one:.2f}" for one in (min(values), max(values), values[-1]))


def sampled(series: Series, chart: Chart, cells: int) -> list[float | None]:
    """Return the value in each of `cells` equal parts of the chart's time; None where there is none.

    For steps it is the value at the end of the part, else the mean of its days.
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
