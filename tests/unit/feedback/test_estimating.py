"""How sure a difference between rankings is."""

from composable_memory_feedback.advice.estimating import Comparison, compare, counts_of, worths_of
from composable_memory_feedback.advice.evidence import Case, Evidence, cases_of
from composable_memory_feedback.judgements import JudgementKind
from composable_memory_feedback.replay import PolicyChange, changed
from composable_memory_feedback.weights import WeightTable
from tests.unit.feedback.worlds import BACKENDS, World, key_of, logged, plain_ranker

LARGE = PolicyChange(table=WeightTable.fixed(dict(zip(BACKENDS, (1.0, 0.3, 0.6), strict=True))))
SAME = PolicyChange()


def compared(cases: list[Case], change: PolicyChange = LARGE) -> Comparison:
    pairs = [
        (plain_ranker(one.query, one.query.policy), plain_ranker(one.query, changed(one.query, change)))
        for one in cases
    ]
    return compare(cases, pairs, worths=worths_of(cases, plain_ranker), k=10)


def served(count: int, **options: float) -> list[Case]:
    return cases_of(*World(81, **options).serve(count))  # type: ignore[arg-type]


def test_a_change_that_ranks_the_same_differs_by_exactly_nothing() -> None:
    found = compared(served(40), SAME).interval()
    assert (found.mean, found.low, found.high) == (0.0, 0.0, 0.0)


def test_a_large_change_that_brings_up_unjudged_results_holds_its_true_loss() -> None:
    """The truth is -0.042; benchmarks/learning_world.py measures the coverage."""
    found = compared(served(150, judged_by_model=0.5, used=0.0, explicit=0.0)).interval()
    assert found.low <= -0.042 <= found.high
    assert found.mean < 0.0


def test_a_case_that_is_known_by_use_counts_less_than_one_that_was_judged() -> None:
    query = logged({"builtin": {"a": 0.5}})
    used, judged = (
        Case(query=query, evidence={key_of("a"): Evidence(relevance=1.0, kind=kind)})
        for kind in (JudgementKind.OPENED, JudgementKind.MODEL)
    )
    assert 0.0 < counts_of(used, 10) < counts_of(judged, 10) == 1.0


def test_a_part_of_the_cases_has_an_interval_of_its_own_and_a_single_one_is_no_trouble() -> None:
    found = compared(served(60, judged_by_model=1.0))
    whole, part, single = (found.interval(at) for at in (range(60), range(10), [0]))
    assert whole == found.interval()
    assert part != whole
    assert single.low <= single.mean <= single.high
