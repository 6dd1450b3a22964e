"""Signals for any traffic: sound judgements of what was shown, whatever the order; quotations of any text."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.judgements import JudgementKind
from composable_memory_feedback.logged import (
    LoggedAnswer,
    LoggedList,
    LoggedQuery,
    LoggedRead,
    RankedHit,
    RankingPolicy,
    Traffic,
    TrafficItem,
)
from composable_memory_feedback.signals import ShownText, gather, gather_parts, quoted_places
from composable_memory_ops_logs import TakenFrom

NOON = datetime(2026, 3, 31, 12, tzinfo=UTC)
POLICY = RankingPolicy(
    fusion="weighted", dedup="near", rrf_k=60, weights={}, max_results=5, min_score=0.0, depth=24
)
TIMES = st.integers(0, 3600).map(lambda seconds: NOON + timedelta(seconds=seconds))
PATHS = st.sampled_from(["a.md", "b.md", "c.md"])
SESSIONS = st.sampled_from([None, "s"])
PLACES = st.builds(TakenFrom, PATHS, st.integers(0, 9), st.integers(9, 20))
HITS = st.lists(PLACES, unique=True, max_size=5).map(
    lambda places: tuple(
        RankedHit(path=one.path, start_line=one.start_line, end_line=one.end_line, backend=backend,
                  score=0.5, calibrated=0.5)
        for one, backend in zip(places, ["x", "y", "x", "y", "x"], strict=False)
    )
)  # fmt: skip
LETTERS = st.text("abcdefgh", min_size=1, max_size=4)
WORDS = st.lists(st.sampled_from(["greenhouse", "heating", "costs", "invoice", "roof"]), max_size=4)

HOUR = timedelta(hours=1)

few = settings(max_examples=30)
"""For what takes a while to draw."""


@st.composite
def traffics(draw: st.DrawFn) -> Traffic:
    """Draw a few queries and what may have come after them."""
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
    return Traffic(
        queries=queries,
        reads=tuple(draw(st.lists(reads, max_size=5))),
        answers=tuple(draw(st.lists(answers, max_size=3))),
    )


@given(traffics())
def test_every_result_that_was_shown_is_judged_once_by_each_kind_and_not_both_ways(traffic: Traffic) -> None:
    judgements = gather(traffic)
    queries = {(one.trace_id, one.query_id): one for one in traffic.queries}
    for one in judgements:
        query = queries[one.trace_id, one.query_id]
        hit = query.shown[one.rank - 1]
        assert (one.key, one.backend) == (hit.key, None if hit.backend == "y" else "x")
        assert one.kind.is_implicit
        assert one.at >= query.at or one.kind is not JudgementKind.REQUERIED

    names = [(one.trace_id, one.query_id, one.key, one.kind) for one in judgements]
    assert len(names) == len(set(names))

    used, failed = ({name[:2] for name, one in zip(names, judgements, strict=True) if one.was_used is way}
                    for way in (True, False))  # fmt: skip
    assert used.isdisjoint(failed)


@few
@given(traffics())
def test_reads_and_answers_may_come_in_any_order(traffic: Traffic) -> None:
    turned = Traffic(queries=traffic.queries, reads=traffic.reads[::-1], answers=traffic.answers[::-1])

    assert gather(turned) == gather(traffic)


@given(traffics(), st.integers(1, 40), st.integers(1, 40))
def test_part_by_part_the_same_is_inferred_as_at_once(
    traffic: Traffic, window_min: int, span_min: int
) -> None:
    window, span = timedelta(minutes=window_min), timedelta(minutes=span_min)
    traffic = replace(  # what names a trace comes after its query
        traffic,
        reads=tuple(replace(one, at=one.at + HOUR) if one.query_trace_id else one for one in traffic.reads),
        answers=tuple(replace(one, at=one.at + HOUR) for one in traffic.answers),
    )
    items: list[TrafficItem] = [*traffic.queries, *traffic.reads, *traffic.answers]
    newest_first = sorted(items, key=lambda one: one.at, reverse=True)

    parts = [one for part in gather_parts(newest_first, window=window, span=span) for one in part]
    whole = gather(traffic, window=window)

    assert len(parts) == len({(one.trace_id, one.query_id, one.key, one.kind) for one in parts})
    assert {one for one in parts if one.was_used} == {one for one in whole if one.was_used}
    # That an old query's result was of use, by its trace, is not known any more where others are judged.
    assert set(parts) >= set(whole)
    if not traffic.answers and not any(one.query_trace_id for one in traffic.reads):
        assert set(parts) == set(whole)


def test_of_much_traffic_little_is_held_at_a_time() -> None:
    met = 0

    def asked() -> Iterator[LoggedQuery]:
        nonlocal met
        for met in range(10_000):
            yield LoggedQuery(
                trace_id=f"t{met}", query_id="q", at=NOON - timedelta(seconds=10 * met),
                query=f"which port does the dock controller use? {met}", intent=IntentKind.GENERAL,
                policy=POLICY, near=frozenset(), lists=(LoggedList(backend="x", depth=24),),
                shown=(RankedHit(path="a.md", start_line=1, end_line=2, backend="x", score=1, calibrated=1),),
            )  # fmt: skip

    parts = gather_parts(asked())

    first = next(parts)
    assert len(first) == pytest.approx(360, abs=2)
    assert met == pytest.approx(540, abs=30)
    assert len(first) + sum(map(len, parts)) == 9_999


@few
@given(traffics())
def test_a_longer_window_loses_no_use(traffic: Traffic) -> None:
    def uses(window: timedelta) -> set[tuple[str, ...]]:
        found = gather(traffic, window=window)
        return {(one.trace_id, one.query_id, one.key, one.kind) for one in found if one.was_used}

    assert uses(timedelta(minutes=5)) <= uses(timedelta(minutes=40))


@few
@given(st.lists(LETTERS, min_size=8, max_size=20), st.data())
def test_eight_words_of_any_text_are_recognised_in_any_dress(words: list[str], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(words) - 8))
    gap = data.draw(st.sampled_from([" ", ", ", "\n> ", " **", " -- "]))
    answer = "So: " + gap.join(word.upper() for word in words[begin : begin + 8])
    result = ShownText(path="a.md", start_line=1, end_line=2, text=" ".join(words))

    assert quoted_places(answer, [result]) == [TakenFrom("a.md", 1, 2)]


@given(st.text(max_size=200), st.lists(st.text(max_size=80), max_size=4), st.text(max_size=20))
def test_any_texts_can_be_compared(answer: str, texts: list[str], path: str) -> None:
    results = [
        ShownText(path=f"{path}{number}", start_line=number, end_line=number, text=text)
        for number, text in enumerate(texts)
    ]

    assert set(quoted_places(answer, results)) <= {one.place for one in results}
