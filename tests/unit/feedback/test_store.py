"""Judgements, days, evaluations, audits and marks in the feedback store."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from threading import Barrier, Thread

import pytest

from composable_memory_feedback.golden import GoldenPlace, GoldenQuestion, GoldenRecord
from composable_memory_feedback.judgements import BackendDay, Evaluation, JudgementKind, backend_days
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_feedback.weights import IntentKind
from tests.unit.feedback.store_makers import DAY, HOUR, NOON, evaluation, judgement, logged_query, table


def test_a_judgement_comes_back_equal(store: FeedbackStore) -> None:
    made = judgement(
        "notes/ä b.md",
        backend=None,
        kind=JudgementKind.EXPLICIT,
        relevance=1 / 3,
        by="Ada",
        was_used=True,
        rationale='it says "no"\n',
        intent=IntentKind.TIME,
    )

    assert store.add([made]) == 1
    assert store.judgements() == [made]


def test_a_later_judgement_of_the_same_judge_replaces(store: FeedbackStore) -> None:
    store.add([judgement(relevance=0.2)])
    later = judgement(relevance=0.9, at=NOON + HOUR)

    assert store.add([later]) == 0
    assert store.judgements() == [later]


def test_a_file_keeps_every_character(tmp_path: Path) -> None:
    made = judgement(rationale="\0")
    with FeedbackStore.open(tmp_path / "feedback.db") as file:
        file.add([made])

        assert file.judgements() == [made]


def test_the_word_that_is_stored_later_counts_though_the_clock_was_ahead_before(store: FeedbackStore) -> None:
    store.add([judgement(relevance=0.9), judgement("b.md")])
    mark, said_later = store.judgements_mark(), judgement(relevance=0.2, at=NOON - HOUR)

    assert store.add([said_later]) == 0
    assert store.judgements() == [judgement("b.md"), said_later]
    assert store.judgements_mark() != mark
    assert backend_days(store.judgements())[0].mean_relevance == pytest.approx(0.6)


def test_what_was_judged_so_before_is_not_written_again(store: FeedbackStore) -> None:
    store.add([judgement()])
    mark = store.change_mark()

    assert store.add([judgement(), judgement()]) == 0
    assert store.change_mark() == mark


def test_judges_kinds_results_and_queries_stand_side_by_side(store: FeedbackStore) -> None:
    several = [
        judgement(by="small"),
        judgement(by="large"),
        judgement(kind=JudgementKind.OPENED),
        judgement("b.md"),
        judgement(query="q2"),
    ]

    assert store.add(several) == 5


def test_judgements_are_found_by_time_and_kind(store: FeedbackStore) -> None:
    first, second, third = (judgement(query=f"q{n}", at=NOON + n * HOUR) for n in range(3))
    opened = judgement(kind=JudgementKind.OPENED, at=NOON + HOUR)
    store.add([third, second, first, opened])

    assert store.judgements(since=NOON + HOUR) == [third, second, opened]
    assert store.judgements(kinds=[JudgementKind.OPENED]) == [opened]
    assert store.judgements(kinds=[]) == []


def test_all_judgements_of_queries_that_something_relevant_is_known_for_are_found(
    store: FeedbackStore,
) -> None:
    useless = judgement(query="q0", relevance=0.5)
    useful, other = judgement(query="q1", relevance=0.6), judgement(query="q1", path="b.md", relevance=0.0)
    store.add([useless, useful, other])

    assert store.judgements(of_relevant=True) == [useful, other]


def test_times_of_other_zones_are_compared_as_moments(store: FeedbackStore) -> None:
    in_tokyo = judgement(at=NOON.astimezone(timezone(timedelta(hours=9))))
    store.add([in_tokyo])

    assert store.judgements(since=NOON) == [in_tokyo]
    assert store.judgements(since=NOON + timedelta(microseconds=1)) == []


def test_a_time_without_a_zone_is_refused_and_nothing_is_kept(store: FeedbackStore) -> None:
    with pytest.raises(ValueError, match="needs its zone"):
        store.add([judgement(), judgement("b.md", at=datetime(2026, 1, 1))])  # noqa: DTZ001 - that is the test

    assert store.judgements() == []


def test_halves_of_characters_do_not_stop_the_rest(store: FeedbackStore) -> None:
    assert store.add([judgement(rationale="broken \ud83d here")]) == 1
    assert store.judgements()[0].rationale == "broken ? here"


def test_only_what_a_model_judged_counts_as_judged(store: FeedbackStore) -> None:
    store.add([judgement(query="q1"), judgement(query="q2", kind=JudgementKind.EXPLICIT)])

    assert store.judged_queries() == {("t1", "q1")}
    assert store.judged_queries(since=NOON + HOUR) == set()


def test_days_are_means_over_queries(store: FeedbackStore) -> None:
    store.add(
        [
            judgement("a.md", relevance=1.0, was_used=True),
            judgement("b.md", relevance=0.5),  # not relevant: it has to be more
            judgement("c.md", query="q2", relevance=1.0),
        ]
    )

    expected = BackendDay(
        day=NOON.date(),
        backend="builtin",
        intent=IntentKind.GENERAL,
        queries=2,
        precision=0.75,
        mean_relevance=0.875,
        used=1,
        results=3,
    )
    assert backend_days(store.judgements()) == [expected]


def test_days_tell_backends_and_intents_apart_and_leave_use_out(store: FeedbackStore) -> None:
    store.add(
        [
            judgement("a.md"),
            judgement("b.md", backend="graphiti"),
            judgement("a.md", query="q2", intent=IntentKind.TIME),
            judgement("d.md", kind=JudgementKind.OPENED),
            judgement("c.md", backend=None),
        ]
    )

    told = [(day.backend, day.intent, day.results) for day in backend_days(store.judgements())]
    assert told == [("builtin", "general", 1), ("builtin", "time", 1), ("graphiti", "general", 1)]


def test_replacing_a_judgement_replaces_its_part_of_the_day(store: FeedbackStore) -> None:
    store.add([judgement(relevance=1.0)])
    store.add([judgement(relevance=0.0, at=NOON + DAY)])

    days = backend_days(store.judgements())
    assert [(day.day, day.queries, day.precision) for day in days] == [((NOON + DAY).date(), 1, 0.0)]


@pytest.mark.parametrize("order", [1, -1])
def test_what_a_person_says_goes_before_what_a_model_says(store: FeedbackStore, order: int) -> None:
    said = [judgement(relevance=1.0), judgement(relevance=0.0, kind=JudgementKind.EXPLICIT, at=NOON - HOUR)]
    store.add(said[::order])

    (day,) = backend_days(store.judgements())
    assert (day.results, day.mean_relevance) == (1, 0.0)


def test_a_day_ends_at_midnight_in_utc(store: FeedbackStore) -> None:
    late = datetime(2026, 3, 10, 23, 30, tzinfo=timezone(timedelta(hours=-2)))
    store.add([judgement(at=late)])

    assert [one.day for one in backend_days(store.judgements())] == [(NOON + DAY).date()]


def test_the_quota_of_the_hour_is_kept(store: FeedbackStore) -> None:
    numbers = [store.begin_evaluation(per_hour=2, now=NOON) for _ in range(3)]

    assert numbers == [True, True, False]
    assert store.begin_evaluation(per_hour=2, now=NOON + HOUR), "the hour rolls on"
    assert not store.begin_evaluation(per_hour=0, now=NOON + DAY)


def test_a_clock_that_ran_ahead_by_days_does_not_use_up_the_quota(store: FeedbackStore) -> None:
    store.begin_evaluation(per_hour=1, now=NOON + 3 * DAY)

    assert store.begin_evaluation(per_hour=1, now=NOON)


def test_an_evaluation_comes_back_equal_and_a_broken_off_one_only_counts(store: FeedbackStore) -> None:
    assert store.begin_evaluation(per_hour=2, now=NOON)
    assert store.begin_evaluation(per_hour=2, now=NOON)
    store.add_evaluation(evaluation())

    assert store.evaluations() == [evaluation()]
    assert store.evaluations(since=NOON + HOUR) == []
    assert not store.begin_evaluation(per_hour=2, now=NOON)


def test_what_is_old_is_forgotten_by_whole_queries(store: FeedbackStore) -> None:
    old, half, new = (
        judgement(query="q1"),
        judgement(query="q2"),
        judgement("b.md", query="q2", at=NOON + DAY),
    )
    store.add([old, half, new])

    assert store.forget_before(NOON + HOUR) == 1
    assert store.judgements() == [half, new]


def test_forgetting_gives_no_quota_back(store: FeedbackStore) -> None:
    assert store.begin_evaluation(per_hour=1, now=NOON - timedelta(minutes=5))
    store.add_evaluation(evaluation(at=NOON - timedelta(minutes=4)))

    assert store.forget_before(NOON) == 1
    assert not store.begin_evaluation(per_hour=1, now=NOON)


def test_forgetting_takes_old_evaluations_and_leaves_the_history(store: FeedbackStore) -> None:
    assert store.begin_evaluation(per_hour=1, now=NOON - DAY)
    store.add_evaluation(evaluation(at=NOON - DAY))
    store.adopt(table(), base={}, actor="cli", at=NOON - DAY)

    assert store.forget_before(NOON) == 1
    assert (store.evaluations(), len(store.history())) == ([], 1)


def test_a_mark_is_what_it_was_set_to_last(store: FeedbackStore) -> None:
    assert store.mark("read-until") is None

    store.set_mark("read-until", "12")
    store.set_mark("read-until", "13")

    assert store.mark("read-until") == "13"


def test_golden_records_come_back_equal_and_in_order_and_replace_what_was_there(store: FeedbackStore) -> None:
    records = [
        GoldenRecord(
            question=GoldenQuestion(id=name, question="where?", expected=(GoldenPlace(path="a.md", line=3),)),
            query=logged_query(name),
        )
        for name in ("z", "a")
    ]
    store.put_golden(records[:1])
    store.put_golden(records)

    assert store.golden() == records
    store.put_golden([])
    assert store.golden() == []


def test_threads_share_one_store_and_one_quota(store: FeedbackStore) -> None:
    start, taken = Barrier(4), list[bool]()

    def take() -> None:
        start.wait(timeout=10)
        for _ in range(5):
            taken.append(store.begin_evaluation(per_hour=7, now=NOON))

    threads = [Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)

    assert (len(taken), sum(taken)) == (20, 7)


def test_an_evaluation_needs_only_what_a_failed_call_knows() -> None:
    failed = Evaluation(trace_id="t", query_id="q", query="", at=NOON, model="m", error="no answer")

    assert failed.judged_count == 0
