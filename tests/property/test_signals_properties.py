"""Signals for any traffic: sound judgements of what was shown, whatever the order; quotations of any text."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from composable_memory_feedback.implicit_feedback import Uses
from composable_memory_feedback.judgements import Judgement
from composable_memory_feedback.logged.logged_query import (
    LoggedAnswer,
    LoggedList,
    LoggedQuery,
    LoggedRead,
    RankedHit,
    RankingPolicy,
)
from composable_memory_feedback.logged.reading import TrafficItem
from composable_memory_feedback.quoting import ShownText, quoted_places
from composable_memory_feedback.weights import IntentKind
from composable_memory_ops_logs import OpsEvent, TakenFrom

NOON = datetime(2026, 3, 31, 12, tzinfo=UTC)
POLICY = RankingPolicy(
    fusion="weighted", dedup="near", rrf_k=60, weights={}, max_results=5, min_score=0.0, depth=24
)
TIMES = st.integers(0, 3600).map(lambda seconds: NOON + timedelta(seconds=seconds))
PATHS = st.sampled_from(["a.md", "b.md", "c.md"])
SESSIONS = st.sampled_from([None, "s"])
PLACES = st.builds(TakenFrom, PATHS, st.integers(0, 9), st.integers(9, 20), st.none())
HITS = st.lists(PLACES, unique=True, max_size=5).map(
    lambda places: tuple(
        RankedHit(path=one.path, start_line=one.start_line, end_line=one.end_line, backend=backend,
                  score=0.5, calibrated=0.5)
        for one, backend in zip(places, ["x", "y", "x", "y", "x"], strict=False)
    )
)  # fmt: skip
LETTERS = st.text("abcdefgh", min_size=1, max_size=4)
WORDS = st.lists(st.sampled_from(["greenhouse", "heating", "costs", "invoice", "roof"]), max_size=4)

few = settings(max_examples=30)
"""For what takes a while to draw."""


@st.composite
def traffics(draw: st.DrawFn) -> list[TrafficItem]:
    """Draw a few queries and what may have come after them, newest first."""
    queries = tuple(
        LoggedQuery(
            trace_id=f"t{number // 2}", query_id=f"q{number}", at=draw(TIMES), query=" ".join(draw(WORDS)),
            intent=IntentKind.GENERAL, policy=POLICY, near=frozenset(), shown=draw(HITS),
            lists=(LoggedList(backend="x", depth=24), LoggedList(backend="y", depth=24, answered_by="x")),
            session_key=draw(SESSIONS),
        )
        for number in range(draw(st.integers(0, 5)))
    )  # fmt: skip
    reads = st.builds(
        LoggedRead, at=TIMES, path=PATHS, session_key=SESSIONS, from_line=st.none() | st.integers(-2, 30),
        lines=st.none() | st.integers(-2, 30), query_trace_id=st.sampled_from([None, None, "t0", "gone"]),
    )  # fmt: skip
    answers = st.builds(
        LoggedAnswer, at=TIMES, query_trace_id=st.sampled_from(["t0", "gone"]),
        quoted=st.lists(PLACES, max_size=3).map(tuple),
    )  # fmt: skip
    traffic: list[TrafficItem] = [*draw(st.lists(reads, max_size=5)), *draw(st.lists(answers, max_size=3))]
    return sorted([*traffic, *queries], key=lambda one: one.at, reverse=True)


def gather(traffic: list[TrafficItem], window: timedelta = timedelta(minutes=30)) -> list[Judgement]:
    return [*Uses(window=window).judgements(traffic)]


@given(traffics())
def test_every_result_that_was_shown_is_judged_once_by_each_kind(traffic: list[TrafficItem]) -> None:
    judgements = gather(traffic)
    queries = {(one.trace_id, one.query_id): one for one in traffic if isinstance(one, LoggedQuery)}
    for one in judgements:
        query = queries[one.trace_id, one.query_id]
        hit = query.shown[one.rank - 1]
        assert (one.key, one.backend) == (hit.key, None if hit.backend == "y" else "x")
        assert one.kind.is_implicit
        assert one.at >= query.at

    names = [(one.trace_id, one.query_id, one.key, one.kind) for one in judgements]
    assert len(names) == len(set(names))


@given(traffics())
def test_of_queries_that_need_not_be_read_nothing_is_said(traffic: list[TrafficItem]) -> None:
    uses = Uses()

    def wanted() -> Iterator[TrafficItem]:
        for one in traffic:
            if not isinstance(one, LoggedQuery) or uses.may_have_followers(start_of(one), ()):
                yield one

    assert [*uses.judgements(wanted())] == gather(traffic)


def start_of(query: LoggedQuery) -> OpsEvent:
    return OpsEvent(
        id="e", ts=query.at, action="query.start", status="success", trace_id=query.trace_id,
        session_key=query.session_key, detail={},
    )  # fmt: skip


@few
@given(traffics())
def test_a_longer_window_loses_no_use(traffic: list[TrafficItem]) -> None:
    def uses(window: timedelta) -> set[tuple[str, ...]]:
        return {(one.trace_id, one.query_id, one.key, one.kind) for one in gather(traffic, window)}

    assert uses(timedelta(minutes=5)) <= uses(timedelta(minutes=40))


@few
@given(st.lists(LETTERS, min_size=8, max_size=20), st.data())
def test_eight_words_of_any_text_are_recognised_in_any_dress(words: list[str], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(words) - 8))
    gap = data.draw(st.sampled_from([" ", ", ", "\n> ", " **", " -- "]))
    answer = "So: " + gap.join(word.upper() for word in words[begin : begin + 8])
    result = ShownText(TakenFrom("a.md", 1, 2), " ".join(words))

    assert quoted_places(answer, [result]) == [TakenFrom("a.md", 1, 2)]


@given(st.text(max_size=200), st.lists(st.text(max_size=80), max_size=4), st.text(max_size=20))
def test_any_texts_can_be_compared(answer: str, texts: list[str], path: str) -> None:
    results = [
        ShownText(TakenFrom(f"{path}{number}", number, number), text) for number, text in enumerate(texts)
    ]

    assert set(quoted_places(answer, results)) <= {one.place for one in results}
