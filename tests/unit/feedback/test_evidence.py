"""Whose word counts, what use tells by where it stood, which queries can be learnt from."""

from dataclasses import replace
from datetime import timedelta

import pytest

from composable_memory_feedback.advice.evidence import MOST_BOOST, Evidence, cases_of, evidence_of
from composable_memory_feedback.judgements import Judgement, JudgementKind
from tests.unit.feedback.worlds import judgement, key_of, logged

QUERY = logged({"builtin": {f"p{rank}.md": 1.0 - rank / 20 for rank in range(1, 11)}})
EXPLICIT, MODEL = JudgementKind.EXPLICIT, JudgementKind.MODEL
OPENED, QUOTED, REQUERIED = JudgementKind.OPENED, JudgementKind.QUOTED, JudgementKind.REQUERIED


def heard(*judgements: Judgement) -> Evidence:
    """What several judgements of one result come to."""
    [of_query] = evidence_of(judgements).values()
    [found] = of_query.values()
    return found


@pytest.mark.parametrize("rank", range(3))
def test_a_person_goes_before_a_model_before_use(rank: int) -> None:
    kinds = (EXPLICIT, MODEL, OPENED)[rank:]
    said = [judgement(QUERY, 1, kind, 0.25 * at) for at, kind in enumerate(kinds, 1)]
    assert heard(*reversed(said)).kind is kinds[0]
    assert heard(*said).relevance == 0.25


def test_of_one_judge_the_latest_word_counts() -> None:
    first = judgement(QUERY, 1, EXPLICIT, 0.2)
    later = replace(first, relevance=0.9, at=first.at + timedelta(days=1))
    assert heard(later, first).relevance == 0.9


def test_several_judges_are_averaged() -> None:
    one = replace(judgement(QUERY, 1, MODEL, 0.2), by="small")
    other = replace(judgement(QUERY, 1, MODEL, 0.8), by="large")
    assert heard(one, other).relevance == pytest.approx(0.5)


def test_use_outweighs_a_renewed_question() -> None:
    used = judgement(QUERY, 1, QUOTED, 1.0)
    assert heard(used, judgement(QUERY, 1, REQUERIED, 0.0)).kind is QUOTED


@pytest.mark.parametrize(("rank", "boost"), [(1, 1.0), (3, 3.0), (8, 4.0)])
def test_a_use_counts_more_the_lower_it_stood_up_to_a_cap(rank: int, boost: float) -> None:
    assert heard(judgement(QUERY, rank, OPENED, 1.0)).boost == boost


def test_a_rank_that_lies_is_read_as_the_first() -> None:
    assert heard(replace(judgement(QUERY, 1, OPENED, 1.0), rank=-5)).boost == 1.0
    assert heard(replace(judgement(QUERY, 1, OPENED, 1.0), rank=10**9)).boost == MOST_BOOST


def test_direct_judgements_are_not_boosted() -> None:
    assert heard(judgement(QUERY, 9, MODEL, 1.0)) == Evidence(relevance=1.0, kind=MODEL)


def test_what_was_shown_beside_a_use_and_not_used_counts_nothing() -> None:
    [case] = cases_of([QUERY], [judgement(QUERY, 2, OPENED, 1.0)])
    assert len(case.evidence) == 10
    assert case.evidence[key_of("p1.md")] == Evidence(relevance=0.0, kind=OPENED)


def test_what_a_model_did_not_judge_stays_unknown() -> None:
    [case] = cases_of([QUERY], [judgement(QUERY, 2, MODEL, 1.0)])
    assert list(case.evidence) == [key_of("p2.md")]


def test_only_queries_that_something_relevant_is_known_for_are_cases() -> None:
    other = logged({"builtin": {"a.md": 0.5}}, at=1)
    said = [judgement(QUERY, 1, MODEL, 0.5), judgement(other, 1, MODEL, 0.6)]
    assert [case.query.trace_id for case in cases_of([QUERY, other], said)] == ["trace-1"]


def test_judgements_of_queries_that_are_not_in_the_log_are_no_cases() -> None:
    assert cases_of([], [judgement(QUERY, 1, MODEL, 1.0)]) == []
