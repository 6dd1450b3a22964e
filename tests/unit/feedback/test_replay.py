"""Logged queries under another policy: what moves, what the judgements say, what the gate lets through."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from composable_memory_feedback.advice.evidence import Case, Evidence
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.judgements import JudgementKind
from composable_memory_feedback.logged.logged_query import LoggedQuery, RankedHit
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.replay import (
    Move,
    PolicyChange,
    by_importance,
    changed,
    compared,
    gate,
    replay,
)
from composable_memory_feedback.weights import IntentKind, WeightTable
from tests.unit.feedback.worlds import key_of, logged, plain_ranker

LISTS = {"good": {"a.md": 0.8, "b.md": 0.5}, "bad": {"x.md": 0.9, "y.md": 0.7}}
LESS_BAD = PolicyChange(table=WeightTable.fixed({"bad": 0.5}))
NOTHING = PolicyChange()


def hit(path: str, *others: str) -> RankedHit:
    return RankedHit(
        path=path,
        start_line=1,
        end_line=9,
        backend="good",
        score=0.5,
        calibrated=0.5,
        others=tuple(key_of(other) for other in others),
    )


def hits(names: str) -> list[RankedHit]:
    return [hit(name) for name in names]


def case(
    at: int, relevant: Mapping[str, float] | None = None, intent: IntentKind = IntentKind.GENERAL
) -> Case:
    """A query whose relevant passage `good` has first and `bad` does not have, everything being judged."""
    worth = relevant or {"a.md": 1.0, "b.md": 0.0, "x.md": 0.0, "y.md": 0.0}
    return Case(
        query=logged(LISTS, at=at, intent=intent),
        evidence={
            key_of(path): Evidence(relevance=value, kind=JudgementKind.EXPLICIT)
            for path, value in worth.items()
        },
    )


def cases(count: int) -> list[Case]:
    return [case(at) for at in range(count)]


def queries_of(known: Sequence[Case]) -> list[LoggedQuery]:
    return [one.query for one in known]


def moves(before: Sequence[RankedHit], after: Sequence[RankedHit]) -> list[tuple[str, str]]:
    return [(move.hit.path, move.kind) for move in compared(logged(LISTS), before, after).moves]


def test_a_change_replaces_only_what_it_names() -> None:
    query = logged(LISTS, weights={"good": 1.0, "bad": 0.8})
    change = PolicyChange(
        table=WeightTable.fixed({"bad": 0.5}),
        fusion="rrf",
        dropped=frozenset({"good"}),
        min_score=0.3,
        calibration="max",
    )

    assert changed(query, change) == replace(
        query.policy,
        weights={"good": 1.0, "bad": 0.5},
        fusion="rrf",
        dropped=frozenset({"good"}),
        min_score=0.3,
        calibration="max",
    )


def test_no_change_is_the_logged_policy() -> None:
    query = logged(LISTS)

    assert query.policy == changed(query, NOTHING)


def test_a_table_gives_the_weights_for_the_kind_of_the_question() -> None:
    table = WeightTable.fixed({"good": 0.4}, by_intent={IntentKind.TIME: {"bad": 0.1}})

    assert (changed(logged(LISTS, intent=IntentKind.TIME), PolicyChange(table=table)).weights) == {
        "good": 0.4,
        "bad": 0.1,
    }


def test_equal_rankings_have_no_moves() -> None:
    assert moves(hits("abc"), hits("abc")) == []


def test_every_result_that_stands_elsewhere_is_a_move() -> None:
    assert moves(hits("abc"), hits("bad")) == [("b", "up"), ("a", "down"), ("d", "in"), ("c", "out")]


def test_rankings_without_a_common_result_share_nothing() -> None:
    assert {way for _, way in moves(hits("ab"), hits("cd"))} == {"in", "out"}


def test_a_place_that_another_duplicate_stands_for_has_not_moved() -> None:
    assert moves([hit("a", "b"), hit("c")], [hit("b", "a"), hit("c")]) == []


def test_the_own_key_is_paired_before_a_shared_one() -> None:
    assert moves([hit("a", "b")], [hit("b"), hit("a")]) == [("b", "in"), ("a", "down")]


def test_empty_rankings_are_equal() -> None:
    assert moves([], []) == []


def test_a_replay_tells_which_queries_change_and_how() -> None:
    queries = [logged(LISTS), logged({"good": {"a.md": 0.8}, "bad": {}}, at=1)]

    report = replay(queries, LESS_BAD, ranker=plain_ranker, k=3, keep=100)

    (first,) = report.queries
    assert (report.total, report.changed) == (2, 1)
    assert [one.path for one in first.after] == ["a.md", "b.md", "x.md"]
    assert Move(hit=first.after[0], before=2, after=1) == first.moves[0]
    assert report.judged is None


def test_the_judgements_say_what_a_change_is_worth() -> None:
    known = [case(0), case(1, intent=IntentKind.TIME)]

    report = replay([*known, logged(LISTS, at=2)], LESS_BAD, ranker=plain_ranker, keep=100)

    assert report.judged is not None
    judged = report.judged
    assert (judged.queries, judged.coverage) == (2, 1.0)
    assert [judged.ndcg_before, judged.ndcg_after] == pytest.approx([0.6309, 1.0], abs=1e-4)
    assert pytest.approx(0.3691, abs=1e-4) == judged.difference.mean
    assert {IntentKind.GENERAL, IntentKind.TIME} == set(judged.by_intent)
    assert [one.ndcg_after is not None for one in report.queries] == [True, True, False]


def test_what_was_not_judged_is_told_as_coverage() -> None:
    known = [case(at, {"a.md": 1.0}) for at in range(2)]

    report = replay(known, LESS_BAD, ranker=plain_ranker, keep=100)

    assert report.judged is not None
    assert report.judged.coverage == 0.25


def test_a_backend_that_no_query_asked_is_refused() -> None:
    with pytest.raises(FeedbackError, match="qdm; the log knows bad, good"):
        replay([logged(LISTS)], PolicyChange(dropped=frozenset({"qdm"})), ranker=plain_ranker, keep=100)


def test_an_empty_log_replays_to_nothing() -> None:
    report = replay([], LESS_BAD, ranker=plain_ranker, keep=100)

    assert (report.queries, report.changed, report.judged) == ((), 0, None)


def test_queries_are_taken_one_by_one_and_of_those_that_change_the_most_important_are_kept() -> None:
    known = case(0)
    asked: list[LoggedQuery | Case] = []

    def queries() -> Iterator[LoggedQuery | Case]:
        for at in range(500):
            asked.append(known if at == 0 else logged(LISTS, at=at))
            yield asked[-1]

    report = replay(queries(), LESS_BAD, ranker=plain_ranker, k=3, keep=2)
    everything = replay(asked, LESS_BAD, ranker=plain_ranker, k=3, keep=100)

    assert (report.total, report.changed) == (everything.total, everything.changed) == (500, 500)
    assert list(report.queries) == by_importance(everything.queries)[:2]
    assert (report.queries[0].query, report.judged) == (known.query, everything.judged)


def test_the_gate_is_open_for_what_is_better() -> None:
    verdict = gate(cases(10), NOTHING, LESS_BAD, ranker=plain_ranker)

    assert (verdict.passed, verdict.judged.queries) == (True, 10)
    assert verdict.reason.startswith("nDCG changes by +0.3691 [+0.3691, +0.3691] over 10 judged queries;")


def test_the_gate_is_open_for_what_ranks_alike() -> None:
    verdict = gate(
        cases(10), NOTHING, PolicyChange(table=WeightTable.fixed({"good": 0.99})), ranker=plain_ranker
    )

    assert (True, Interval(mean=0.0, low=0.0, high=0.0)) == (verdict.passed, verdict.judged.difference)


def test_the_gate_is_closed_for_what_is_worse() -> None:
    verdict = gate(cases(10), LESS_BAD, NOTHING, ranker=plain_ranker)

    assert not verdict.passed
    assert verdict.reason.endswith("it is worse, so keep the baseline")


def test_a_loss_that_cannot_be_ruled_out_closes_the_gate() -> None:
    mixed = [case(at, {"x.md": 1.0, "a.md": 0.0} if at % 2 else None) for at in range(20)]

    verdict = gate(mixed, NOTHING, LESS_BAD, ranker=plain_ranker)

    assert verdict.judged.difference.low < 0.0 < verdict.judged.difference.high
    assert not verdict.passed
    assert "cannot be ruled out" in verdict.reason


def test_a_tolerance_lets_a_small_loss_through() -> None:
    strict = gate(cases(10), LESS_BAD, NOTHING, ranker=plain_ranker, tolerance=0.36)
    lenient = gate(cases(10), LESS_BAD, NOTHING, ranker=plain_ranker, tolerance=0.37)

    assert (strict.passed, lenient.passed) == (False, True)


def test_the_gate_tells_how_much_it_estimates() -> None:
    known = [case(at, {"a.md": 1.0, "x.md": 0.0, "y.md": 0.0}) for at in range(10)]

    verdict = gate(known, NOTHING, LESS_BAD, ranker=plain_ranker)

    assert verdict.judged.coverage == 0.75
    assert verdict.reason.endswith("(25% of its results are not judged, but estimated)")


def test_too_few_judged_queries_are_no_gate() -> None:
    with pytest.raises(FeedbackError, match="9 of at least 10"):
        gate(cases(9), NOTHING, LESS_BAD, ranker=plain_ranker)


def test_the_gate_refuses_a_backend_that_no_query_asked() -> None:
    with pytest.raises(FeedbackError, match="qdm"):
        gate(cases(10), NOTHING, PolicyChange(dropped=frozenset({"qdm"})), ranker=plain_ranker)


def test_dropping_the_backend_that_knows_closes_the_gate() -> None:
    dropped = PolicyChange(dropped=frozenset({"good"}))

    assert pytest.approx(-0.6309, abs=1e-4) == (
        gate(cases(10), NOTHING, dropped, ranker=plain_ranker).judged.difference.mean
    )
