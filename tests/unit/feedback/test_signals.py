"""What happened after a search, as judgements: opened, quoted; and what is no signal."""

from datetime import UTC, datetime, timedelta

import pytest

from composable_memory_feedback.implicit_feedback import Uses
from composable_memory_feedback.judgements import Judgement, JudgementKind
from composable_memory_feedback.logged.logged_query import (
    LoggedAnswer,
    LoggedList,
    LoggedQuery,
    LoggedRead,
    RankedHit,
    RankingPolicy,
)
from composable_memory_feedback.weights import IntentKind
from composable_memory_ops_logs import Candidate, TakenFrom

NOON = datetime(2026, 3, 31, 12, tzinfo=UTC)
POLICY = RankingPolicy(
    fusion="weighted", dedup="near", rrf_k=60, weights={}, max_results=5, min_score=0.0, depth=24
)


def later(minutes: float) -> datetime:
    return NOON + timedelta(minutes=minutes)


def hit(place: str, backend: str = "builtin", others: tuple[str, ...] = ()) -> RankedHit:
    """Return a result at a place such as `a.md:3:9`."""
    path, first, last = place.rsplit(":", 2)
    return RankedHit(
        path=path,
        start_line=int(first),
        end_line=int(last),
        backend=backend,
        score=0.5,
        calibrated=0.5,
        others=others,
    )


def query(*hits: RankedHit, at: datetime = NOON, trace_id: str = "t1", **changes: object) -> LoggedQuery:
    known = {
        "query_id": f"q-{trace_id}",
        "query": "greenhouse heating costs",
        "intent": IntentKind.TOPIC,
        "policy": POLICY,
        "lists": (LoggedList(backend="builtin", depth=24), LoggedList(backend="graph", depth=24)),
        "near": frozenset(),
        "shown": hits,
        "session_key": "s",
    }
    return LoggedQuery(**{"at": at, "trace_id": trace_id, **known, **changes})  # type: ignore[arg-type]


def read(path: str, *, at: datetime, session_key: str | None = "s", **changes: object) -> LoggedRead:
    return LoggedRead(path=path, at=at, session_key=session_key, **changes)  # type: ignore[arg-type]


def gather(
    queries: tuple[LoggedQuery, ...] = (),
    *,
    reads: tuple[LoggedRead, ...] = (),
    answers: tuple[LoggedAnswer, ...] = (),
    window: timedelta = timedelta(minutes=30),
) -> list[Judgement]:
    """Return what this traffic says, as the log tells it, newest first."""
    traffic: list[LoggedQuery | LoggedRead | LoggedAnswer] = [*queries, *reads, *answers]
    newest_first = sorted(traffic, key=lambda one: one.at)[::-1]
    return [*Uses(window=window).judgements(newest_first)]


def signs(*queries: LoggedQuery, reads: tuple[LoggedRead, ...]) -> list[tuple[str, str, JudgementKind]]:
    return [(one.trace_id, one.key, one.kind) for one in gather(queries, reads=reads)]


OPENED, QUOTED = JudgementKind.OPENED, JudgementKind.QUOTED


def test_nothing_says_nothing() -> None:
    assert gather() == []


def test_a_read_after_a_search_opens_the_result_that_it_showed() -> None:
    asked = query(hit("a.md:1:5"), hit("b.md:10:20", "graph"))

    judgements = gather((asked,), reads=(read("b.md", at=later(2)),))

    assert judgements == [
        Judgement(
            trace_id="t1",
            query_id="q-t1",
            at=later(2),
            path="b.md",
            start_line=10,
            end_line=20,
            rank=2,
            backend="graph",
            intent=IntentKind.TOPIC,
            kind=OPENED,
            relevance=1.0,
            was_used=True,
        )
    ]


@pytest.mark.parametrize(
    ("from_line", "lines", "opened"),
    [
        (None, None, True),
        (1, 9, False),
        (1, 10, True),
        (20, 1, True),
        (21, None, False),
        (15, None, True),
        (None, 9, False),
        (0, 12, True),
        (15, 0, False),
        (1, -5, False),
    ],
)
def test_the_lines_that_are_read_have_to_meet_those_of_the_result(
    from_line: int | None, lines: int | None, opened: bool
) -> None:
    reads = (read("b.md", at=later(1), from_line=from_line, lines=lines),)

    assert bool(gather((query(hit("b.md:10:20")),), reads=reads)) is opened


def test_a_read_of_the_note_behind_a_fact_opens_the_fact() -> None:
    fact = Candidate("graphiti/f1", 0, 0, 1.0, 1, "memory", "", "", False, TakenFrom("notes.md", 4, 6))
    lists = (LoggedList(backend="graph", depth=24, candidates=(fact,)),)
    asked = query(hit("graphiti/f1:0:0", "graph"), lists=lists)
    reads = (read("notes.md", at=later(1), from_line=7), read("notes.md", at=later(2), from_line=6))

    assert [(one.key, one.at) for one in gather((asked,), reads=reads)] == [("graphiti/f1:0:0", later(2))]


@pytest.mark.parametrize("minutes", [-0.1, 30.1])
def test_a_read_before_the_search_or_long_after_it_opens_nothing(minutes: float) -> None:
    asked = query(hit("a.md:1:5"))

    assert gather((asked,), reads=(read("a.md", at=later(minutes)),)) == []


def test_the_window_can_be_set() -> None:
    reads = (read("a.md", at=later(40)),)

    assert len(gather((query(hit("a.md:1:5")),), reads=reads, window=timedelta(hours=1))) == 1


@pytest.mark.parametrize(
    ("asker", "reader", "same"), [("s", "x", False), (None, None, True), (None, "s", False)]
)
def test_a_read_belongs_to_the_searches_of_its_session(
    asker: str | None, reader: str | None, same: bool
) -> None:
    asked = query(hit("a.md:1:5"), session_key=asker)

    assert bool(gather((asked,), reads=(read("a.md", at=later(1), session_key=reader),))) is same


def test_a_read_belongs_to_the_latest_search_that_showed_the_place() -> None:
    queries = (
        query(hit("a.md:1:5"), trace_id="first"),
        query(hit("a.md:1:5"), trace_id="second", at=later(5), query="winter supplies"),
        query(hit("b.md:1:5"), trace_id="third", at=later(10), query="roof repair"),
    )

    assert signs(*queries, reads=(read("a.md", at=later(12)),)) == [("second", "a.md:1:5", OPENED)]


def test_a_read_that_names_its_search_is_believed_whatever_session_and_time_say() -> None:
    queries = (query(hit("a.md:1:5"), trace_id="first"), query(hit("a.md:1:5"), trace_id="second"))
    named = read("a.md", at=later(90), session_key="other", query_trace_id="first")

    assert signs(*queries, reads=(named,)) == [("first", "a.md:1:5", OPENED)]


def test_a_read_that_names_an_unknown_search_opens_nothing() -> None:
    reads = (read("a.md", at=later(1), query_trace_id="gone"),)

    assert gather((query(hit("a.md:1:5")),), reads=reads) == []


def test_a_read_of_another_memory_opens_nothing() -> None:
    asked = query(hit("a.md:1:5"), memory="m1")

    assert gather((asked,), reads=(read("a.md", at=later(1), memory="m2"),)) == []
    assert len(gather((asked,), reads=(read("a.md", at=later(1), memory="m1"),))) == 1


def test_a_composite_inside_another_gets_its_share() -> None:
    outer = query(hit("a.md:1:5"), query_id="outer")
    inner = query(hit("z.md:1:5"), hit("a.md:1:5"), query_id="inner", manager="inner")

    judgements = gather((outer, inner), reads=(read("a.md", at=later(1)),))

    assert {(one.query_id, one.rank) for one in judgements} == {("outer", 1), ("inner", 2)}


def test_a_result_that_is_opened_twice_is_judged_once() -> None:
    reads = (read("a.md", at=later(1)), read("a.md", at=later(2)))

    (judgement,) = gather((query(hit("a.md:1:5")),), reads=reads)

    assert judgement.at == later(1)


def test_an_answer_quotes_results_of_the_search_that_it_names() -> None:
    queries = (
        query(hit("a.md:1:5"), hit("a.md:4:9"), trace_id="first"),
        query(hit("a.md:1:5"), trace_id="x"),
    )
    answer = LoggedAnswer(
        at=later(1), query_trace_id="first", quoted=(TakenFrom("a.md", 1, 5), TakenFrom("c.md", 1, 1))
    )

    (judgement,) = gather(queries, answers=(answer,))

    assert (judgement.trace_id, judgement.key, judgement.kind) == ("first", "a.md:1:5", QUOTED)
    assert (judgement.relevance, judgement.was_used) == (1.0, True)


def test_what_a_stand_in_brought_says_nothing_about_the_backend() -> None:
    lists = (LoggedList(backend="qmd", depth=24, answered_by="builtin"),)
    asked = query(hit("a.md:1:5", "qmd"), lists=lists)

    (judgement,) = gather((asked,), reads=(read("a.md", at=later(1)),))

    assert judgement.backend is None
