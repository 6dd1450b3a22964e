"""The charts of what was learnt, their lines in the terminal, and the pictures in files."""

import re
import sys
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path

import pytest

from composable_memory.cli.charts import (
    Chart,
    Mark,
    Point,
    Series,
    charts_of,
    colour_numbers,
    print_charts,
    quality_chart,
    sampled,
)
from composable_memory.cli.pictures import write_picture
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.judgements import BackendDay
from composable_memory_feedback.weights import IntentKind, WeightAction, WeightChange, WeightTable

NOW = datetime(2026, 5, 11, tzinfo=UTC)
START = NOW - timedelta(days=10)
BASE = WeightTable.fixed({"notes": 0.5, "graph": 0.25})
BACKENDS = ("notes", "graph")


def at(day: int) -> datetime:
    return datetime(2026, 5, day, tzinfo=UTC)


def change(
    version: str | None,
    day: int,
    *,
    action: WeightAction = "adopt",
    by_intent: dict[IntentKind, dict[str, float]] | None = None,
    **weights: float,
) -> WeightChange:
    table = WeightTable(
        weights=weights, by_intent=by_intent or {}, version=version or "", made_at=at(day), reason=""
    )
    return WeightChange(
        table=table if version else None, at=at(day), actor="cli", action=action, reason="", base={}
    )


def day(
    number: int,
    relevance: float,
    *,
    queries: int = 1,
    intent: IntentKind = IntentKind.GENERAL,
) -> BackendDay:
    return BackendDay(
        day=date(2026, 5, number),
        backend="notes",
        intent=intent,
        queries=queries,
        precision=0.0,
        mean_relevance=relevance,
        used=0,
        results=1,
    )


def charts(*changes: WeightChange, days: tuple[BackendDay, ...] = ()) -> tuple[Chart, ...]:
    return charts_of(days, changes, base=BASE, backends=BACKENDS, start=START, now=NOW)


def values(chart: Chart, name: str) -> list[tuple[int, float]]:
    """Return the days and values of a line."""
    (series,) = (one for one in chart.series if one.name == name)
    return [(point.at.day, point.value) for point in series.points]


# --- charts -------------------------------------------------------------------------------------------------


def test_weights_are_drawn_with_the_heaviest_as_one_from_those_of_the_settings_on() -> None:
    weights = charts(change("v1", 4, notes=0.2, graph=0.8))[0]

    assert values(weights, "notes") == [(1, 1.0), (4, 0.25)]
    assert values(weights, "graph") == [(1, 0.5), (4, 1.0)]
    assert [(mark.at.day, mark.text) for mark in weights.marks] == [(4, "v1")]


def test_what_held_before_the_time_of_a_chart_holds_at_its_start() -> None:
    weights = charts(replace(change("v1", 4, notes=0.5), at=START - timedelta(days=3)))[0]

    assert values(weights, "notes") == [(1, 0.5)]
    assert weights.marks == ()


def test_a_kind_that_ever_had_weights_of_its_own_has_a_chart() -> None:
    own = {IntentKind.TIME: {"notes": 0.1}}

    found = charts(change("v1", 4, by_intent=own, notes=1.0, graph=1.0), change(None, 6, action="reset"))

    assert [one.title for one in found[:2]] == ["Weights for all questions", "Weights for time questions"]
    assert values(found[1], "notes") == [(1, 1.0), (4, 0.1), (6, 1.0)]


def test_quality_is_the_mean_over_the_queries_of_a_day() -> None:
    days = (day(3, 0.2, queries=3), day(3, 1.0, intent=IntentKind.TIME), day(5, 0.5))

    assert values(quality_chart(days, start=START, now=NOW), "notes") == [(3, pytest.approx(0.4)), (5, 0.5)]


def test_a_backend_has_one_colour_in_all_charts() -> None:
    found = charts(change("v1", 4), days=(day(3, 0.5),))

    assert colour_numbers(found) == {"notes": 0, "graph": 1}


def test_a_memory_of_which_nothing_is_known_has_charts_that_say_what_brings_some() -> None:
    weights, quality = charts_of((), (), base=BASE, backends=BACKENDS, start=None, now=NOW)

    assert (len(weights.series), quality.series) == (2, ())
    assert "never been changed" in weights.note
    assert "`cmem feedback evaluate`" in quality.note


def test_a_time_that_is_still_to_come_begins_now(capsys: pytest.CaptureFixture[str]) -> None:
    found = charts_of((), (), base=BASE, backends=BACKENDS, start=NOW + timedelta(days=1), now=NOW)

    assert {(one.start, one.end) for one in found} == {(NOW, NOW)}
    print_charts(found)
    assert "Weights for all questions" in capsys.readouterr().out


# --- in the terminal ----------------------------------------------------------------------------------------


def chart(*points: Point, course: str = "steps", **more: object) -> Chart:
    series = (Series(name="notes", points=points),)
    return Chart(title="T", unit="u", course=course, start=START, end=NOW, series=series, **more)  # type: ignore[arg-type]


def test_steps_hold_until_the_next_one() -> None:
    one = chart(Point(at=START, value=0.25), Point(at=at(6), value=1.0))

    assert sampled(one.series[0], one, 4) == [0.25, 0.25, 1.0, 1.0]


def test_days_without_a_value_stay_empty() -> None:
    one = chart(Point(at=at(2), value=0.5), Point(at=at(4), value=1.0), course="days")

    assert sampled(one.series[0], one, 5) == [0.5, 1.0, None, None, None]


def test_a_series_is_shown_with_its_course_its_range_and_its_last_value(
    capsys: pytest.CaptureFixture[str],
) -> None:
    marks = (Mark(at=at(6), text="v1"),)

    print_charts([chart(Point(at=START, value=0.0), Point(at=at(6), value=0.5), marks=marks)])

    title, head, line, changes = capsys.readouterr().out.splitlines()
    assert "T" in title
    assert head.split() == ["2026-05-01", "..", "2026-05-11", "low", "high", "last"]
    assert line.split() == ["notes", "▁" * 24 + "▅" * 24, "0.00", "0.50", "0.50"]
    assert "v1 2026-05-06" in changes


# --- pictures -----------------------------------------------------------------------------------------------

needs_matplotlib = pytest.mark.skipif(not find_spec("matplotlib"), reason="needs the extra plots")


@pytest.mark.thorough
@needs_matplotlib
def test_the_same_charts_make_the_same_svg(tmp_path: Path) -> None:
    drawn = charts(change("v1", 4, notes=0.2, graph=0.8), days=(day(3, 0.5),))
    for name in ("a.svg", "b.svg"):
        write_picture(drawn, tmp_path / name)

    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert text == (tmp_path / "b.svg").read_text(encoding="utf-8")
    assert "2026-05" in text
    assert re.findall(r">(Weights for all questions|Quality of results by day|v1)<", text)
    assert "<dc:date>" not in text


@needs_matplotlib
def test_a_name_in_a_picture_is_text_and_never_markup_or_a_formula(tmp_path: Path) -> None:
    evil = Series(name="$x$ <script>", points=(Point(at=START, value=0.5),))
    one = Chart(title="$\\frac$", unit="", course="steps", start=START, end=NOW, series=(evil,))

    write_picture([one], tmp_path / "a.svg")

    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert "$x$ &lt;script&gt;" in text
    assert "<script>" not in text


def test_without_matplotlib_a_picture_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    with pytest.raises(FeedbackError, match=r"pip install 'composable-memory\[plots\]'"):
        write_picture(charts(), tmp_path / "a.png")

    assert list(tmp_path.iterdir()) == [tmp_path / "home"]
