"""A waterfall is laid out from the events of one trace, in the order of their times."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from composable_memory.query.waterfall import Step, bar, waterfall
from composable_memory_ops_logs import OpsEvent

BEGIN = datetime(2026, 5, 3, 12, 0, tzinfo=UTC)


def an_event(action: str, *, at_ms: float, took_ms: float | None = None, **fields: object) -> OpsEvent:
    return OpsEvent(
        id=f"{action}@{at_ms}",
        ts=BEGIN + timedelta(milliseconds=at_ms),
        action=action,
        status=fields.get("status", "success"),  # type: ignore[arg-type]
        trace_id=str(fields.get("trace_id", "trace-1")),
        backend=fields.get("backend"),  # type: ignore[arg-type]
        duration_ms=took_ms,
        detail=fields.get("detail", {}),  # type: ignore[arg-type]
    )


START = an_event("query.start", at_ms=0, detail={
    "query": "who has the key?",
    "activeBackends": ["notes", "graph"], "skippedBackends": {"qmd": "condition"},
})  # fmt: skip
NOTES = an_event("query.backend_result", at_ms=30, took_ms=29, backend="notes", detail={
    "resultCount": 4, "weight": 1.0,
})  # fmt: skip
GRAPH = an_event("query.backend_result", at_ms=41, took_ms=40, backend="graph", status="failure", detail={
    "resultCount": 0, "weight": 0.5, "error": {"type": "BackendTimeout", "message": "no answer"},
})  # fmt: skip
MERGED = an_event("query.merged", at_ms=42, took_ms=42, status="partial", detail={
    "totalBeforeDedup": 4, "totalAfterDedup": 3, "fusion": "weighted",
    "finalResults": [{"path": "a.md", "score": 0.9}],
    "dropped": [{"path": "b.md", "reason": "overlap"}],
    "degraded": [{"backend": "graph", "reason": "timeout"}],
})  # fmt: skip
TRACE = [START, NOTES, GRAPH, MERGED]


def test_the_legs_of_a_backend_stand_below_it_when_they_ran() -> None:
    legs = {"vector": [12.5, 3.25], "keyword": [10.0, 19.0]}
    told = an_event("query.backend_result", at_ms=30, took_ms=29, backend="notes", detail={"legs": legs})

    steps = waterfall([START, told, MERGED]).steps

    assert [(step.action, step.start_ms, step.duration_ms) for step in steps[1:4]] == [
        ("query.backend_result", 1.0, 29.0),
        ("query.keyword", 11.0, 19.0),
        ("query.vector", 13.5, 3.25),
    ]
    assert {step.backend for step in steps[1:4]} == {"notes"}


def a_step(start_ms: float, duration_ms: float) -> Step:
    return Step(action="x", status="success", start_ms=start_ms, duration_ms=duration_ms, note="")


def test_steps_stand_in_the_order_in_which_they_were_logged() -> None:
    steps = waterfall([MERGED, GRAPH, NOTES, START]).steps

    assert [(step.action, step.backend) for step in steps] == [
        ("query.start", None),
        ("query.backend_result", "notes"),
        ("query.backend_result", "graph"),
        ("query.merged", None),
    ]


def test_a_step_that_took_longer_than_the_start_is_ago_comes_after_it_all_the_same() -> None:
    """A query is timed from before its start is logged, and several events have one millisecond."""
    notes = an_event("query.backend_result", at_ms=0, took_ms=0.2, backend="notes")
    merged = an_event("query.merged", at_ms=0, took_ms=7.1)

    drawn = waterfall([START, notes, merged])

    assert [step.action for step in drawn.steps] == ["query.start", "query.backend_result", "query.merged"]
    assert drawn.total_ms == pytest.approx(7.1)


def test_a_step_begins_its_duration_before_it_was_logged() -> None:
    notes = waterfall(TRACE).steps[1]

    assert notes.start_ms == pytest.approx(1)
    assert notes.duration_ms == 29


def test_the_whole_lasts_from_the_first_beginning_to_the_last_end() -> None:
    assert waterfall(TRACE).total_ms == pytest.approx(42)


def test_the_order_of_the_events_does_not_matter() -> None:
    assert waterfall(TRACE) == waterfall(TRACE[::-1])


def test_the_question_and_the_outcome_come_along() -> None:
    drawn = waterfall(TRACE)

    assert drawn.query == "who has the key?"
    assert [row["path"] for row in drawn.results] == ["a.md"]
    assert [row["path"] for row in drawn.dropped] == ["b.md"]
    assert [row["backend"] for row in drawn.degraded] == ["graph"]


def test_a_note_says_what_came_of_a_step() -> None:
    notes = {(step.action, step.backend): step.note for step in waterfall(TRACE).steps}

    assert notes == {
        ("query.start", None): "asked notes, graph; not qmd (condition)",
        ("query.backend_result", "notes"): "candidates: 4, weight 1.0",
        ("query.backend_result", "graph"): "candidates: 0, weight 0.5",
        ("query.merged", None): "candidates: 4, distinct: 3, results: 1 (weighted)",
    }


def test_a_failure_is_shown_with_its_error() -> None:
    (failed,) = [step for step in waterfall(TRACE).steps if step.status == "failure"]

    assert failed.error == "BackendTimeout: no answer"


def test_an_action_of_another_version_is_shown_by_its_short_fields() -> None:
    event = an_event(
        "moon.phase", at_ms=0, detail={"filesIndexed": 3, "what": "full", "long": "x" * 99, "list": []}
    )

    assert waterfall([event]).steps[0].note == "files indexed 3, what full"


def test_a_detail_of_another_shape_does_not_break_the_drawing() -> None:
    broken = an_event("query.merged", at_ms=1, detail={"finalResults": "none", "dropped": [1, None]})

    assert waterfall([START, broken]).results == ()


def test_events_of_several_traces_are_refused() -> None:
    with pytest.raises(ValueError, match="one trace, not of 2"):
        waterfall([START, an_event("query.start", at_ms=0, trace_id="trace-2")])


def test_no_events_are_refused() -> None:
    with pytest.raises(ValueError, match="not of 0"):
        waterfall([])


@pytest.mark.parametrize(
    ("start_ms", "duration_ms", "expected"),
    [
        (0, 100, "██████████"),
        (0, 50, "█████     "),
        (50, 50, "     █████"),
        (0, 55, "█████▌    "),
        (20, 0, "  ▏       "),
        (100, 0, "         ▏"),
        (99, 1, "         █"),
    ],
)
def test_a_bar_is_drawn_to_scale(start_ms: float, duration_ms: float, expected: str) -> None:
    assert bar(a_step(start_ms, duration_ms), 100, 10) == expected


def test_a_bar_of_a_moment_without_length_is_a_stroke() -> None:
    assert bar(a_step(0, 0), 0, 10) == "▏         "


def test_a_bar_has_the_width_it_was_given() -> None:
    for start_ms, duration_ms in product(range(0, 101, 7), range(0, 101, 9)):
        assert len(bar(a_step(start_ms, duration_ms), 100, 23)) == 23, (start_ms, duration_ms)
