"""laws of clamping that hold for any two tables."""

from datetime import UTC, datetime
from math import isfinite

from hypothesis import given
from hypothesis import strategies as st

from composable_memory_feedback.advice.proposal import AdviceLimits, clamp_steps
from composable_memory_feedback.weights import IntentKind, WeightTable, same_proportions

BACKENDS = ("builtin", "graphiti", "qmd")
WEIGHTS = st.one_of(st.floats(0.0, 2.0), st.sampled_from([0.0, 5e-324, 1e-9, 1.0, 10_000.0, 1.7e308]))
ROWS = st.dictionaries(st.sampled_from([*BACKENDS, "absent"]), WEIGHTS)
TABLES = st.builds(
    lambda row, rows: WeightTable.fixed(row, by_intent=rows, made_at=datetime(2026, 3, 2, tzinfo=UTC)),
    ROWS,
    st.dictionaries(st.sampled_from(IntentKind), ROWS, max_size=2),
)
LIMITS = st.builds(
    lambda step, least: AdviceLimits(max_step=step, min_weight=least),
    st.floats(0.0, 1.0),
    st.floats(0.0, 1.0),
)
KINDS = (None, *IntentKind)
LOST = 1e-6
ROUNDED = 1e-4


def proportion(table: WeightTable, backend: str, kind: IntentKind | None) -> float:
    heaviest = max(table.of(one, kind) for one in BACKENDS)
    return table.of(backend, kind) / heaviest if heaviest else 1.0


@given(proposed=TABLES, current=TABLES, limits=LIMITS)
def test_no_weight_moves_farther_than_a_step(
    proposed: WeightTable, current: WeightTable, limits: AdviceLimits
) -> None:
    table = clamp_steps(proposed, current=current, limits=limits, backends=BACKENDS)

    for kind in KINDS:
        for one in BACKENDS:
            moved = abs(proportion(table, one, kind) - proportion(current, one, kind))
            assert moved <= limits.max_step + LOST


@given(proposed=TABLES, current=TABLES, limits=LIMITS)
def test_no_backend_disappears(proposed: WeightTable, current: WeightTable, limits: AdviceLimits) -> None:
    table = clamp_steps(proposed, current=current, limits=limits, backends=BACKENDS)

    for kind in KINDS:
        for one in BACKENDS:
            least = min(limits.min_weight, proportion(current, one, kind))
            assert proportion(table, one, kind) >= least - LOST


@given(proposed=TABLES, current=TABLES, limits=LIMITS)
def test_clamping_twice_is_clamping_once_but_for_rounding(
    proposed: WeightTable, current: WeightTable, limits: AdviceLimits
) -> None:
    once = clamp_steps(proposed, current=current, limits=limits, backends=BACKENDS)
    twice = clamp_steps(once, current=current, limits=limits, backends=BACKENDS)

    assert same_proportions(once, twice, backends=BACKENDS, tolerance=ROUNDED)


@given(current=TABLES, limits=LIMITS)
def test_proposing_the_current_table_changes_nothing(current: WeightTable, limits: AdviceLimits) -> None:
    assert current is clamp_steps(current, current=current, limits=limits, backends=BACKENDS)


@given(proposed=TABLES, current=TABLES, limits=LIMITS)
def test_every_weight_is_a_number(proposed: WeightTable, current: WeightTable, limits: AdviceLimits) -> None:
    table = clamp_steps(proposed, current=current, limits=limits, backends=BACKENDS)

    assert all(
        isfinite(weight) for row in (table.weights, *table.by_intent.values()) for weight in row.values()
    )
