"""The formula over days of judged results: its known values, its window, what it leaves alone."""

from datetime import timedelta

import pytest

from composable_memory_feedback.advice.formula import advise, confidence_of, suggested_weight
from composable_memory_feedback.advice.values import Proposal
from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.store.values import BackendDay, KindGroup
from composable_memory_feedback.weights import WeightTable
from tests.unit.feedback.worlds import BEGINNING

NOW = BEGINNING + timedelta(days=30)


def day(
    backend: str,
    queries: int,
    precision: float,
    *,
    ago: int = 1,
    intent: IntentKind = IntentKind.GENERAL,
    group: KindGroup = "judged",
) -> BackendDay:
    return BackendDay(
        day=(NOW - timedelta(days=ago)).date(),
        backend=backend,
        intent=intent,
        queries=queries,
        precision=precision,
        mean_relevance=precision,
        used=0,
        results=queries * 10,
        group=group,
    )


def proposed(*days: BackendDay, **weights: float) -> Proposal:
    current = WeightTable.fixed(weights, by_intent={IntentKind.TIME: {"builtin": 0.9}}, made_at=BEGINNING)
    return advise(days, current=current, now=NOW)


@pytest.mark.parametrize(
    ("current", "precision", "count", "expected"),
    [
        (0.5, 1.0, 50, 0.7),
        (0.5, 0.2, 30, 0.4),
        (0.15, 0.0, 60, 0.1),
        (0.95, 1.0, 100, 1.0),
        (0.5, 0.61, 50, None),
        (0.5, 1.0, 9, None),
        (0.5, 1.0, 10, None),
        (0.5, 0.62, 50, 0.51),
        (0.9, 0.0, 1000, 0.7),
    ],
)
def test_the_formula_gives_its_known_values(
    current: float, precision: float, count: int, expected: float | None
) -> None:
    found = suggested_weight(current, precision, count)
    assert found == (pytest.approx(expected) if expected is not None else None)


@pytest.mark.parametrize(("count", "expected"), [(0, 0.0), (10, 0.0), (20, 0.25), (50, 1.0), (900, 1.0)])
def test_a_sample_is_trusted_more_the_larger_it_is(count: int, expected: float) -> None:
    assert confidence_of(count) == expected


def test_days_and_kinds_of_questions_are_weighed_by_their_queries() -> None:
    days = (day("builtin", 30, 1.0), day("builtin", 20, 0.5, ago=6, intent=IntentKind.TIME))
    [change] = proposed(*days, builtin=0.5).changes
    assert change.mean_precision == pytest.approx(0.8)
    assert change.sample_size == 50
    assert change.suggested == pytest.approx(0.6)


def test_days_out_of_the_window_and_days_to_come_do_not_count() -> None:
    found = proposed(day("builtin", 90, 1.0, ago=8), day("builtin", 90, 1.0, ago=-1), builtin=0.5)
    assert found.changes == ()


def test_what_was_inferred_from_use_is_no_precision() -> None:
    assert proposed(day("builtin", 90, 1.0, group="implicit"), builtin=0.5).changes == ()


def test_only_backends_with_a_weight_are_advised_on() -> None:
    found = proposed(day("stranger", 90, 0.0), day("qmd", 90, 0.0), builtin=0.5, qmd=0.5)
    assert dict(found.table.weights) == {"builtin": 0.5, "qmd": pytest.approx(0.3)}


def test_what_the_table_says_of_kinds_of_questions_is_kept() -> None:
    found = proposed(day("builtin", 90, 1.0), builtin=0.5)
    assert found.table.by_intent == found.current.by_intent


def test_without_a_change_the_current_table_is_proposed_and_the_gain_is_unknown() -> None:
    found = proposed(builtin=0.5)
    assert found.table is found.current
    assert found.notes
    assert found.gain is None
    assert found.sample_size == 0


def test_the_reason_names_precision_sample_and_both_weights() -> None:
    [change] = proposed(day("builtin", 50, 0.2), builtin=0.5).changes
    assert "20% of its results were relevant in 50 judged queries" in change.rationale
    assert "lower it from 0.50 to 0.30" in change.rationale
