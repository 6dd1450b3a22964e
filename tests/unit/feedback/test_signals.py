"""What happened after a search, as judgements: opened, quoted, asked again; and what is no signal."""

from datetime import UTC, datetime, timedelta

import pytest

from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.judgements import Judgement, JudgementKind
from composable_memory_feedback.logged import (
    LoggedAnswer,
    LoggedList,
    LoggedQuery,
    LoggedRead,
    RankedHit,
    RankingPolicy,
    Traffic,
)
from composable_memory_feedback.signals import gather
from composable_memory_feedback.signals.quoting import is_rephrased
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


def signs(traffic: Traffic) -> list[tuple[str, str, JudgementKind]]:
    return [(one.trace_id, one.key, one.kind) for one in gather(traffic)]


OPENED, QUOTED, REQUERIED = JudgementKind.OPENED, JudgementKind.QUOTED, JudgementKind.REQUERIED


def test_nothing_says_nothing() -> None:
    assert gather(Traffic()) == []


def test_a_read_after_a_search_opens_the_result_that_it_showed() -> None:
    asked = query(hit("a.md:1:5"), hit("b.md:10:20", "graph"))

    judgements = gather(Traffic(queries=(asked,), reads=(read("b.md", at=later(2)),)))

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
    traffic = Traffic(
        queries=(query(hit("b.md:10:20")),),
        reads=(read("b.md", at=later(1), from_line=from_line, lines=lines),),
    )

    assert bool(gather(traffic)) is opened


def test_a_read_of_the_note_behind_a_fact_opens_the_fact() -> None:
    fact = Candidate("graphiti/f1", 0, 0, 1.0, 1, "memory", "", "", False, TakenFrom("notes.md", 4, 6))
    lists = (LoggedList(backend="graph", depth=24, candidates=(fact,)),)
    traffic = Traffic(
        queries=(query(hit("graphiti/f1:0:0", "graph"), lists=lists),),
        reads=(
            read("notes.md", at=later(1), from_line=7),
            read("notes.md", at=later(2), from_line=6),
        ),
    )

    assert [(one.key, one.at) for one in gather(traffic)] == [("graphiti/f1:0:0", later(2))]


@pytest.mark.parametrize("minutes", [-0.1, 30.1])
def test_a_read_before_the_search_or_long_after_it_opens_nothing(minutes: float) -> None:
    asked = query(hit("a.md:1:5"))

    assert gather(Traffic(queries=(asked,), reads=(read("a.md", at=later(minutes)),))) == []


def test_the_window_can_be_set() -> None:
    traffic = Traffic(queries=(query(hit("a.md:1:5")),), reads=(read("a.md", at=later(40)),))

    assert len(gather(traffic, window=timedelta(hours=1))) == 1


@pytest.mark.parametrize(
    ("asker", "reader", "same"), [("s", "x", False), (None, None, True), (None, "s", False)]
)
def test_a_read_belongs_to_the_searches_of_its_session(
    asker: str | None, reader: str | None, same: bool
) -> None:
    traffic = Traffic(
        queries=(query(hit("a.md:1:5"), session_key=asker),),
        reads=(read("a.md", at=later(1), session_key=reader),),
    )

    assert bool(gather(traffic)) is same


def test_a_read_belongs_to_the_latest_search_that_showed_the_place() -> None:
    queries = (
        query(hit("a.md:1:5"), trace_id="first"),
        query(hit("a.md:1:5"), trace_id="second", at=later(5), query="winter supplies"),
        query(hit("b.md:1:5"), trace_id="third", at=later(10), query="roof repair"),
    )

    assert signs(Traffic(queries=queries, reads=(read("a.md", at=later(12)),))) == [
        ("second", "a.md:1:5", OPENED)
    ]


def test_a_read_that_names_its_search_is_believed_whatever_session_and_time_say() -> None:
    queries = (query(hit("a.md:1:5"), trace_id="first"), query(hit("a.md:1:5"), trace_id="second"))
    named = read("a.md", at=later(90), session_key="other", query_trace_id="first")

    assert signs(Traffic(queries=queries, reads=(named,))) == [("first", "a.md:1:5", OPENED)]


def test_a_read_that_names_an_unknown_search_opens_nothing() -> None:
    traffic = Traffic(
        queries=(query(hit("a.md:1:5")),), reads=(read("a.md", at=later(1), query_trace_id="gone"),)
    )

    assert gather(traffic) == []


def test_a_read_of_another_memory_opens_nothing() -> None:
    asked = query(hit("a.md:1:5"), memory="m1")

    assert gather(Traffic(queries=(asked,), reads=(read("a.md", at=later(1), memory="m2"),))) == []
    assert len(gather(Traffic(queries=(asked,), reads=(read("a.md", at=later(1), memory="m1"),)))) == 1


def test_a_composite_inside_another_gets_its_share() -> None:
    outer = query(hit("a.md:1:5"), query_id="outer")
    inner = query(hit("z.md:1:5"), hit("a.md:1:5"), query_id="inner", manager="inner")

    judgements = gather(Traffic(queries=(outer, inner), reads=(read("a.md", at=later(1)),)))

    assert {(one.query_id, one.rank) for one in judgements} == {("outer", 1), ("inner", 2)}


def test_a_result_that_is_opened_twice_is_judged_once() -> None:
    reads = (read("a.md", at=later(1)), read("a.md", at=later(2)))

    (judgement,) = gather(Traffic(queries=(query(hit("a.md:1:5")),), reads=reads))

    assert judgement.at == later(1)


def test_an_answer_quotes_results_of_the_search_that_it_names() -> None:
    queries = (
        query(hit("a.md:1:5"), hit("a.md:4:9"), trace_id="first"),
        query(hit("a.md:1:5"), trace_id="x"),
    )
    answer = LoggedAnswer(
        at=later(1), query_trace_id="first", quoted=(TakenFrom("a.md", 1, 5), TakenFrom("c.md", 1, 1))
    )

    (judgement,) = gather(Traffic(queries=queries, answers=(answer,)))

    assert (judgement.trace_id, judgement.key, judgement.kind) == ("first", "a.md:1:5", QUOTED)
    assert (judgement.relevance, judgement.was_used) == (1.0, True)


def test_what_a_stand_in_brought_says_nothing_about_the_backend() -> None:
    lists = (LoggedList(backend="qmd", depth=24, answered_by="builtin"),)
    asked = query(hit("a.md:1:5", "qmd"), lists=lists)

    (judgement,) = gather(Traffic(queries=(asked,), reads=(read("a.md", at=later(1)),)))

    assert judgement.backend is None


AGAIN = "what does heating of the greenhouse cost"


def asked_twice(again: str = AGAIN, *, minutes: float = 1, **changes: object) -> tuple[LoggedQuery, ...]:
    """Return a query that showed four results, and another question after it."""
    hits = [hit(f"{name}.md:1:5") for name in "abcd"]
    return (
        query(*hits, trace_id="first"),
        query(hit("e.md:1:5"), trace_id="second", at=later(minutes), **{"query": again, **changes}),
    )


def test_a_question_that_is_put_again_speaks_against_the_first_three_results() -> None:
    judgements = gather(Traffic(queries=asked_twice()))

    assert [(one.trace_id, one.path, one.kind, one.relevance) for one in judgements] == [
        ("first", "a.md", REQUERIED, 0.0),
        ("first", "b.md", REQUERIED, 0.0),
        ("first", "c.md", REQUERIED, 0.0),
    ]
    assert not any(one.was_used for one in judgements)


@pytest.mark.parametrize(
    "queries",
    [
        asked_twice(minutes=3.1),
        asked_twice("Greenhouse heating: costs?"),
        asked_twice("where are the spare keys of the car"),
        asked_twice(session_key="other"),
        asked_twice(memory="other"),
        asked_twice(manager="inner"),
    ],
    ids=["too late", "the same words", "another question", "session", "memory", "composite"],
)
def test_what_is_not_the_same_question_in_other_words_is_no_signal(queries: tuple[LoggedQuery, ...]) -> None:
    assert gather(Traffic(queries=queries)) == []


def test_a_question_that_is_put_again_after_a_result_was_of_use_is_no_signal() -> None:
    reads = (read("d.md", at=later(0.5)),)

    assert signs(Traffic(queries=asked_twice(), reads=reads)) == [("first", "d.md:1:5", OPENED)]


def test_a_result_that_turned_out_to_be_of_use_is_not_spoken_against() -> None:
    first, second = asked_twice()
    second = query(hit("z.md:1:9", others=("b.md:1:5",)), trace_id="second", at=second.at, query=second.query)

    assert signs(Traffic(queries=(first, second), reads=(read("z.md", at=later(2)),))) == [
        ("first", "a.md:1:5", REQUERIED),
        ("first", "c.md:1:5", REQUERIED),
        ("second", "z.md:1:9", OPENED),
    ]


@pytest.mark.parametrize(
    ("earlier", "later_one"),
    [
        ("greenhouse heating costs", "what does heating the greenhouse cost"),
        ("Rechnung Heizung Gewächshaus", "wie hoch war die Rechnung für Heizung"),
        ("error 4711 backup", "backup fails with 4711"),
        ("温室暖房费用", "温室暖房账单"),
    ],
)
def test_the_same_thing_can_be_asked_in_other_words(earlier: str, later_one: str) -> None:
    assert is_rephrased(earlier, later_one)


@pytest.mark.parametrize(
    ("earlier", "later_one"),
    [
        ("", ""),
        ("greenhouse", "greenhouse heating"),
        ("Anna birthday", "Anna phone"),
        ("what is that about", "what was this about"),
        ("where is the greenhouse key", "the greenhouse key, where is it?"),
        ("greenhouse heating", "heating of the greenhouse and invoices of plumbers, painters, roofers"),
    ],
)
def test_a_common_word_or_the_same_words_do_not_make_it_the_same_question(
    earlier: str, later_one: str
) -> None:
    assert not is_rephrased(earlier, later_one)
