"""Credit by use: which results count, for whom, and whose word goes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from composable_memory_feedback.experiments import credit
from composable_memory_feedback.judgements import Judgement, JudgementKind
from composable_memory_feedback.logged.logged_query import (
    LoggedList,
    LoggedQuery,
    RankedHit,
    RankingPolicy,
)
from composable_memory_feedback.weights import IntentKind
from composable_memory_ops_logs import Interleaved

AT = datetime(2026, 3, 2, 9, tzinfo=UTC)


def hit(path: str, backend: str = "builtin", others: tuple[str, ...] = ()) -> RankedHit:
    return RankedHit(
        path=path, start_line=1, end_line=9, backend=backend, score=0.5, calibrated=0.5, others=others
    )


def query(teams: str = "ab-a", answered_by: str | None = None) -> LoggedQuery:
    """Return a query whose four results `0.md` to `3.md` were put up by these teams; the last is QMD's."""
    return LoggedQuery(
        trace_id="t1",
        query_id="q1",
        at=AT,
        query="where are the seedlings",
        intent=IntentKind.GENERAL,
        policy=RankingPolicy(
            fusion="weighted",
            dedup="near",
            rrf_k=60,
            weights={"builtin": 1.0},
            max_results=10,
            min_score=0.0,
            depth=24,
        ),
        lists=(
            LoggedList(backend="builtin", depth=24),
            LoggedList(backend="qmd", depth=24, answered_by=answered_by),
        ),
        near=frozenset(),
        shown=(hit("0.md", others=("facts.md:3:4",)), hit("1.md"), hit("2.md"), hit("3.md", "qmd")),
        experiment=Interleaved(id="exp-1", weights_a={}, weights_b={"qmd": 2.0}, seed=7, teams=tuple(teams)),
    )


def said(
    number: int,
    kind: JudgementKind = JudgementKind.OPENED,
    *,
    relevance: float = 1.0,
    was_used: bool = False,
    later: int = 0,
) -> Judgement:
    return Judgement(
        trace_id="t1",
        query_id="q1",
        at=AT + timedelta(minutes=later),
        path=f"{number}.md",
        start_line=1,
        end_line=9,
        rank=number + 1,
        backend="builtin",
        intent=IntentKind.GENERAL,
        kind=kind,
        relevance=relevance,
        was_used=was_used,
    )


@pytest.mark.parametrize("kind", [JudgementKind.OPENED, JudgementKind.QUOTED])
def test_what_was_opened_or_quoted_counts_for_who_put_it_up(kind: JudgementKind) -> None:
    assert credit(query(), [said(0, kind), said(3, kind), said(1, kind)]) == (2.0, 1.0)


def test_a_result_that_both_sides_wanted_counts_for_neither() -> None:
    assert credit(query(), [said(2)]) == (0.0, 0.0)


def test_a_result_counts_once_however_often_it_was_used() -> None:
    duplicate = replace(said(0), path="facts.md", start_line=3, end_line=4)
    assert credit(query(), [said(0), said(0, JudgementKind.QUOTED), duplicate]) == (1.0, 0.0)


def test_the_use_of_a_duplicate_counts_for_what_stood_for_it() -> None:
    duplicate = replace(said(0), path="facts.md", start_line=3, end_line=4)
    assert credit(query(), [duplicate]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("relevance", "was_used", "of_use"), [(0.5, False, 0.0), (0.51, False, 1.0), (0.0, True, 1.0)]
)
def test_a_person_says_so_by_use_or_by_relevance(relevance: float, was_used: bool, of_use: float) -> None:
    judged = said(1, JudgementKind.EXPLICIT, relevance=relevance, was_used=was_used)
    assert credit(query(), [judged]) == (0.0, of_use)


def test_the_word_of_a_person_stands_above_what_happened() -> None:
    judged = said(0, JudgementKind.EXPLICIT, relevance=0.0)
    assert credit(query(), [judged, said(0, later=5)]) == (0.0, 0.0)


def test_the_last_word_of_a_person_goes() -> None:
    first, last = (said(0, JudgementKind.EXPLICIT, relevance=one, later=int(one)) for one in (0.0, 1.0))
    assert credit(query(), [first, last]) == (1.0, 0.0)
    assert credit(query(), [last, first]) == (0.0, 0.0), "stored later, whatever the clock said"


@pytest.mark.parametrize("kind", [JudgementKind.MODEL, JudgementKind.REQUERIED])
def test_what_is_no_use_gives_no_credit(kind: JudgementKind) -> None:
    assert credit(query(), [said(0, kind)]) == (0.0, 0.0)


def test_judgements_of_other_queries_do_not_count() -> None:
    assert credit(query(), [replace(said(0), query_id="q2"), replace(said(0), trace_id="t2")]) == (0.0, 0.0)


def test_what_a_stand_in_brought_tells_nothing() -> None:
    assert credit(query(answered_by="builtin"), [said(3)]) == (0.0, 0.0)


def test_a_query_outside_of_experiments_has_no_credit() -> None:
    assert credit(replace(query(), experiment=None), [said(0)]) == (0.0, 0.0)


@pytest.mark.parametrize("teams", ["", "xyz?", "b"])
def test_marks_that_are_missing_or_unknown_give_no_credit_to_a(teams: str) -> None:
    assert credit(query(teams), [said(3)]) == (0.0, 0.0)
