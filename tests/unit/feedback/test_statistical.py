"""The advisor that replays, in a world whose truth is known and on small cases by hand."""

from dataclasses import replace
from functools import cache

import pytest

from composable_memory_feedback.advice.evidence import Case, cases_of
from composable_memory_feedback.advice.proposal import AdviceLimits, Proposal, check
from composable_memory_feedback.advice.statistical import (
    SMALLEST,
    advise,
    coarse,
    positive,
    vector_of,
)
from composable_memory_feedback.weights import IntentKind, WeightTable
from tests.unit.feedback.worlds import (
    BACKENDS,
    BEGINNING,
    EQUAL,
    World,
    key_of,
    logged,
    plain_ranker,
    true_cases,
)

LIMITS = AdviceLimits()
AT_ONCE = AdviceLimits(max_step=1.0)
SAME_FOR_ALL = dict.fromkeys(IntentKind, (0.7, 0.2, 0.2))


def advised(cases: list[Case], current: WeightTable = EQUAL, **others: object) -> Proposal:
    options: dict[str, object] = {
        "current": current,
        "backends": BACKENDS,
        "ranker": plain_ranker,
        "limits": AT_ONCE,
        "now": BEGINNING,
    }
    return advise(cases, **(options | others))  # type: ignore[arg-type]


@cache
def learnt(seed: int = 1, count: int = 60) -> tuple[list[Case], Proposal]:
    queries, judgements = World(seed, SAME_FOR_ALL, judged_by_model=1.0).serve(count)
    cases = cases_of(queries, judgements)
    return cases, advised(cases)


def test_a_world_is_learnt_and_the_learnt_weights_are_truly_better() -> None:
    _, proposal = learnt()
    assert World(2, SAME_FOR_ALL).gain(proposal.table, EQUAL, count=300) > 0.05


def test_a_step_tells_where_it_leads_and_what_all_of_the_way_gains() -> None:
    cases, whole = learnt()

    step = advised(cases, limits=LIMITS)

    assert (whole.destination, whole.destination_gain) == (None, None)
    assert step.destination is not None
    assert step.destination.weights == whole.table.weights
    assert step.destination_gain == whole.gain


def test_steps_that_change_no_ranking_are_taken_where_all_of_the_way_surely_gains() -> None:
    """Decoys score 0.8 or more, so the best note comes before them from a weight of 0.8 on."""
    lists = {"builtin": {"answer": 1.0, "other": 0.4}, "qmd": {"decoy": 0.85, "another": 0.8}}
    current = WeightTable.fixed({"builtin": 0.3, "qmd": 1.0}, made_at=BEGINNING)
    backends = ("builtin", "qmd")
    weights = []
    for _ in range(3):
        queries = [logged(lists, at=at, weights=current.weights) for at in range(50)]
        cases = true_cases([(query, {key_of("answer"): 1.0}) for query in queries])
        proposal = advised(cases, current, backends=backends, limits=LIMITS)
        objections = check(
            proposal,
            limits=LIMITS,
            golden=None,
        )
        assert not objections
        current = proposal.table
        weights.append(current.weights["builtin"])
    assert weights[:2] == [0.5, 0.7]
    assert weights[2] > 0.85


@pytest.mark.thorough
def test_the_interval_of_the_gain_holds_the_truth_in_worlds_of_its_own() -> None:
    """A small sample; benchmarks/learning_world.py measures the coverage."""
    held = 0
    for seed in range(5):
        world = World(seed + 40, judged_by_model=1.0)
        proposal = advised(cases_of(*world.serve(40)), limits=LIMITS)
        assert proposal.gain is not None
        held += proposal.gain.low <= world.gain(proposal.table, EQUAL, count=300) <= proposal.gain.high
    assert held >= 4


def test_the_same_arguments_give_the_same_proposal() -> None:
    cases = learnt()[0][:20]
    assert advised(cases) == advised(cases)


def test_what_is_proposed_has_passed_the_guardrail() -> None:
    cases, _ = learnt()
    proposal = advised(cases[:30], limits=LIMITS)
    assert proposal.table.weights == {"builtin": 1.0, "graphiti": 0.8, "qmd": 0.8}


def test_where_all_backends_are_alike_no_gain_is_claimed() -> None:
    alike = dict.fromkeys(IntentKind, (0.5, 0.5, 0.5))
    found = advised(true_cases([World(3, alike).ask() for _ in range(40)]))
    assert found.gain is not None
    assert found.gain.low <= 0.0


def test_with_perfect_knowledge_the_best_weights_lie_where_the_truth_is() -> None:
    world = World(4, SAME_FOR_ALL)
    found = advised(true_cases([world.ask() for _ in range(60)]))
    assert max(found.table.weights[one] for one in ("graphiti", "qmd")) < 0.7


def test_kinds_of_questions_with_opposite_truths_get_weights_of_their_own() -> None:
    opposite = {**dict.fromkeys(IntentKind, (0.8, 0.2, 0.2)), IntentKind.TOPIC: (0.2, 0.8, 0.2)}
    world = World(5, opposite)
    found = advised(true_cases([world.ask() for _ in range(140)])).table
    general, topic = (vector_of(found, BACKENDS, kind) for kind in (IntentKind.GENERAL, IntentKind.TOPIC))
    assert general[0] == 1.0
    assert topic[1] / topic[0] > 1.2 * general[1] / general[0]


def test_a_kind_with_too_few_questions_gets_no_weights_of_its_own() -> None:
    cases, proposal = learnt()
    assert max(sum(case.query.intent is kind for case in cases) for kind in IntentKind) < 40
    assert proposal.table.by_intent == {}


def test_what_the_current_table_says_of_a_kind_that_is_not_learnt_is_kept() -> None:
    cases, _ = learnt()
    own = {IntentKind.TIME: {"builtin": 0.2, "graphiti": 1.0, "qmd": 0.4}}
    current = WeightTable.fixed(EQUAL.weights, by_intent=own, made_at=BEGINNING)
    assert advised(cases[:20], current).table.by_intent[IntentKind.TIME] == own[IntentKind.TIME]


def test_a_row_of_a_kind_that_names_only_some_backends_is_kept_in_its_proportions() -> None:
    own = {IntentKind.TIME: {"builtin": 1.0}}
    current = WeightTable.fixed(dict.fromkeys(BACKENDS, 2.0), by_intent=own, made_at=BEGINNING)
    found = advised(learnt()[0][:30], current).table
    assert vector_of(found, BACKENDS, IntentKind.TIME) == (0.5, 1.0, 1.0)


def test_little_evidence_moves_little() -> None:
    cases, many = learnt()
    few = advised(cases[:4])
    assert few.table.weights["graphiti"] > many.table.weights["graphiti"]


@pytest.mark.parametrize("count", [0, 1])
def test_too_few_cases_leave_the_weights_as_they_are(count: int) -> None:
    found = advised(learnt()[0][:count])
    assert found.table is found.current
    assert found.gain is None
    assert "two judged queries" in found.notes[0]


def test_one_backend_alone_has_nothing_to_learn() -> None:
    assert advised(learnt()[0], backends=["builtin"]).table is EQUAL


def test_queries_that_a_stand_in_answered_are_left_out() -> None:
    query = logged({"builtin": {"a": 0.5}, "qmd": {"b": 0.4}}, fallbacks=["qmd"])
    found = advised([Case(query=query)] * 3)
    assert found.sample_size == 0
    assert "3 queries left out" in found.notes[0]


def test_proportions_of_the_current_weights_are_what_counts() -> None:
    cases, few = learnt()[0][:20], advised(learnt()[0][:20])
    tenfold = WeightTable.fixed(dict.fromkeys(BACKENDS, 10.0), made_at=BEGINNING)
    assert advised(cases, tenfold).table.weights == few.table.weights


def test_current_weights_of_zero_everywhere_are_no_trouble() -> None:
    current = WeightTable.fixed({"builtin": 0.0, "graphiti": 0.0, "qmd": 0.0}, made_at=BEGINNING)
    assert advised(learnt()[0][:20], current).sample_size == 20


def test_cases_about_which_nothing_is_known_change_nothing() -> None:
    cases = [replace(case, evidence={}) for case in learnt()[0][:20]]
    found = advised(cases)
    assert found.table is EQUAL
    assert found.gain is not None
    assert found.gain.mean == 0.0


def test_the_work_is_ended_where_the_pace_says_so() -> None:
    def stop() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        advised(learnt()[0], pace=stop)


def test_the_grid_holds_the_current_and_the_equal_table_and_keeps_the_heaviest_at_one() -> None:
    found = coarse((0.3, 1.0, 0.5), floor=0.1, seed=0)
    assert found[:2] == [(0.3, 1.0, 0.5), (1.0, 1.0, 1.0)]
    assert all(max(one) == 1.0 and min(one) >= 0.1 for one in found)
    assert 80 <= len(found) == len(set(found)) <= 100


@pytest.mark.parametrize("count", [1, 2, 4, 7])
def test_the_grid_of_any_number_of_backends_stays_small(count: int) -> None:
    found = coarse((1.0,) * count, floor=0.1, seed=0)
    assert len(found) <= 150
    assert {max(one) for one in found} == {1.0}


def test_proportions_have_logarithms() -> None:
    assert positive((0.0, 0.0)) == (1.0, 1.0)
    assert positive((1.0, 0.0)) == (1.0, SMALLEST)


def test_a_backend_that_was_set_to_nothing_and_deserves_it_stays_so() -> None:
    current = WeightTable.fixed({"builtin": 1.0, "graphiti": 0.0, "qmd": 0.0}, made_at=BEGINNING)
    useless = World(6, dict.fromkeys(IntentKind, (0.8, 0.0, 0.0)))
    found = advised(true_cases([useless.ask() for _ in range(30)]), current)
    assert found.table is current
    assert found.gain is not None
    assert found.gain.mean <= 0.0
