"""Scores of rankings by partial knowledge: duplicates, unseen results, uses far down."""

from collections.abc import Mapping, Sequence
from math import log2

import pytest

from composable_memory_feedback.advice.evidence import CaseScores, Evidence, case_weight, score
from composable_memory_feedback.judgements import JudgementKind
from composable_memory_feedback.logged.logged_query import RankedHit
from tests.unit.feedback.worlds import key_of


def hit(path: str, *others: str, backend: str = "builtin", calibrated: float = 0.5) -> RankedHit:
    return RankedHit(
        path=path,
        start_line=1,
        end_line=9,
        backend=backend,
        score=calibrated,
        calibrated=calibrated,
        others=tuple(key_of(other) for other in others),
    )


def known(**relevances: float) -> dict[str, Evidence]:
    model = JudgementKind.MODEL
    return {key_of(path): Evidence(relevance=value, kind=model) for path, value in relevances.items()}


def used(relevance: float, boost: float) -> Evidence:
    return Evidence(relevance=relevance, kind=JudgementKind.OPENED, boost=boost)


def half(_: RankedHit) -> float:
    return 0.5


def imputed_score(hits: Sequence[RankedHit], evidence: Mapping[str, Evidence]) -> float:
    scores = CaseScores(evidence=evidence, k=10, imputed=half)
    return scores.shares([scores.add(hits)])[0]


def test_the_best_order_scores_one_and_a_worse_one_less() -> None:
    evidence = known(a=1.0, b=0.5)
    assert score([hit("a"), hit("b")], evidence, k=10) == pytest.approx(1.0)
    expected = (0.5 + 1.0 / log2(3)) / (1.0 + 0.5 / log2(3))
    assert score([hit("b"), hit("a")], evidence, k=10) == pytest.approx(expected)


def test_a_result_is_as_relevant_as_the_best_of_its_duplicates() -> None:
    assert score([hit("a", "b")], known(a=0.1, b=1.0), k=10) == pytest.approx(1.0)


def test_what_stands_twice_is_paid_once() -> None:
    evidence = known(a=1.0, c=1.0)
    twice = score([hit("a", "b"), hit("b"), hit("c")], evidence, k=10)
    assert twice == pytest.approx(score([hit("a"), hit("x"), hit("c")], evidence, k=10))


def test_what_nobody_judged_counts_nothing_unless_it_is_given_an_average() -> None:
    evidence = known(a=1.0)
    assert score([hit("x"), hit("a")], evidence, k=10) == pytest.approx(1.0 / log2(3))
    given = (0.5 + 1.0 / log2(3)) / (1.0 + 0.5 / log2(3))
    assert imputed_score([hit("x"), hit("a")], evidence) == pytest.approx(given)


def test_no_knowledge_no_results_and_no_depth_score_zero() -> None:
    assert score([hit("a")], {}, k=10) == 0.0
    assert score([], known(a=1.0), k=10) == 0.0
    assert score([hit("a")], known(a=1.0), k=0) == 0.0


def test_rankings_of_one_case_are_measured_against_all_that_any_of_them_brought_up() -> None:
    scores = CaseScores(evidence=known(a=1.0), k=10, imputed=half)
    alone = scores.add([hit("a")])
    assert alone / scores.ideal == 1.0
    scores.add([hit("a"), hit("new")])
    assert alone / scores.ideal == pytest.approx(1.0 / (1.0 + 0.5 / log2(3)))


def test_a_single_use_far_down_stands_for_several_queries_and_is_no_more_relevant_for_that() -> None:
    evidence = {key_of("a"): used(1.0, 4.0)}
    assert case_weight(evidence, 10) == 4.0
    assert score([hit("x"), hit("a")], evidence, k=10) == pytest.approx(1.0 / log2(3))


def test_of_two_uses_the_one_that_stood_lower_counts_more() -> None:
    evidence = {key_of("top"): used(1.0, 1.0), key_of("low"): used(1.0, 4.0)}
    assert score([hit("low"), hit("top")], evidence, k=10) > score([hit("top"), hit("low")], evidence, k=10)


def test_cases_that_are_judged_directly_count_once() -> None:
    assert case_weight(known(a=1.0, b=0.3), 10) == 1.0
    assert case_weight({}, 10) == 1.0
