"""What results that nobody judged are worth, learnt from the scores and judgements of others."""

import pytest

from composable_memory_feedback.advice.estimating import worths_of
from composable_memory_feedback.advice.evidence import Case, Evidence
from composable_memory_feedback.judgements import JudgementKind
from composable_memory_feedback.logged.logged_query import RankedHit
from composable_memory_feedback.weights import IntentKind
from tests.unit.feedback.worlds import key_of, logged, plain_ranker


def known(**relevances: float) -> dict[str, Evidence]:
    model = JudgementKind.MODEL
    return {key_of(path): Evidence(relevance=value, kind=model) for path, value in relevances.items()}


def hit(path: str, *others: str) -> RankedHit:
    return RankedHit(
        path=path,
        start_line=1,
        end_line=9,
        backend="builtin",
        score=0.5,
        calibrated=0.5,
        others=tuple(key_of(other) for other in others),
    )


def case(kind: IntentKind = IntentKind.GENERAL, good: float = 1.0) -> Case:
    """The higher a result scores the more relevant it is; two more were not judged."""
    query = logged({"builtin": {"top": 0.9, "high": 0.8, "low": 0.3, "worst": 0.1}}, intent=kind)
    return Case(query=query, evidence=known(top=good, low=0.0))


def test_what_scored_lower_than_all_that_was_judged_is_worth_no_more_than_that() -> None:
    worth = worths_of([case()] * 30, plain_ranker)[0]
    assert worth(hit("high")) > worth(hit("low")) > worth(hit("worst"))
    assert worth(hit("worst")) < 0.1


def test_little_evidence_is_held_near_what_is_usual() -> None:
    one = Case(query=case().query, evidence=known(top=1.0))
    few, many = (worths_of([one] * count, plain_ranker)[0](hit("low")) for count in (1, 60))
    assert 0.0 < few < many


def test_what_else_is_known_of_a_question_counts() -> None:
    lists = {"builtin": {"a": 0.5, "b": 0.5, "c": 0.5}}
    found = Case(query=logged(lists), evidence=known(a=1.0, b=0.0))
    empty = Case(query=logged(lists), evidence=known(a=0.0, b=0.0))
    sated = Case(query=logged(lists), evidence=known(a=1.0, b=1.0))
    worths = worths_of([found, empty, sated, *[sated, empty] * 30], plain_ranker)
    assert worths[2](hit("c")) > worths[0](hit("c")) > worths[1](hit("c"))


def test_questions_of_a_kind_are_learnt_of_their_own() -> None:
    cases = [case(IntentKind.TIME), case(IntentKind.TOPIC, good=0.0)] * 40
    time, topic, *_ = worths_of(cases, plain_ranker)
    assert time(hit("high")) > 2 * topic(hit("high"))


def test_a_duplicate_is_worth_what_the_best_of_its_passages_is() -> None:
    worth = worths_of([case()] * 30, plain_ranker)[0]
    assert worth(hit("worst", "high")) == worth(hit("high"))


def test_where_nothing_is_known_nothing_is_claimed() -> None:
    assert worths_of([], plain_ranker) == []
    unknown = worths_of([Case(query=logged({"builtin": {"a": 0.5}}))], plain_ranker)
    assert unknown[0](hit("a")) == 0.0
    assert worths_of([case()], plain_ranker)[0](hit("stranger")) == 0.0


def test_what_a_stand_in_brought_tells_nothing_of_the_backend() -> None:
    query = logged({"builtin": {"a": 0.9, "b": 0.8}}, fallbacks=["builtin"])
    found = worths_of([Case(query=query, evidence=known(a=1.0))], plain_ranker)
    assert found[0](hit("b")) == 0.0


@pytest.mark.parametrize("score", [float("nan"), float("inf"), -3.0, 1.7])
def test_scores_that_are_beyond_the_scale_do_no_harm(score: float) -> None:
    query = logged({"builtin": {"a": score, "b": 0.5}})
    worth = worths_of([Case(query=query, evidence=known(b=1.0))], plain_ranker)[0]
    assert 0.0 <= worth(hit("a")) <= 1.0
