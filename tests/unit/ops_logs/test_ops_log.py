"""Emitting tells listeners at once, takes its trace from the context, and never fails."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from composable_memory_ops_logs import MemorySink, OpsEvent, OpsLog, OpsLogStats, QueryDelivered, trace

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DELIVERED = QueryDelivered(result_count=1, paths=("MEMORY.md",))


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


@pytest.fixture
def log(sink: MemorySink) -> OpsLog:
    log = OpsLog(None, clock=lambda: NOON)
    log.subscribe(sink)
    return log


def test_an_event_carries_its_context_and_what_the_caller_says(log: OpsLog, sink: MemorySink) -> None:
    with trace("t1", session_key="agent:main", run_id="r1"):
        log.emit(DELIVERED, status="partial", backend="builtin", duration_ms=2.5)

    [event] = sink.events
    assert event == OpsEvent(
        id=event.id,
        ts=NOON,
        action="query.delivered",
        status="partial",
        trace_id="t1",
        session_key="agent:main",
        run_id="r1",
        backend="builtin",
        duration_ms=2.5,
        schema_version=1,
        detail=DELIVERED,
    )
    assert UUID(event.id).version == 4


def test_a_given_session_key_wins_over_the_context(log: OpsLog, sink: MemorySink) -> None:
    with trace(session_key="outer"):
        log.emit(DELIVERED, session_key="given")

    assert [event.session_key for event in sink.events] == ["given"]


def test_events_outside_a_trace_get_an_id_each(log: OpsLog, sink: MemorySink) -> None:
    log.emit(DELIVERED)
    log.emit(DELIVERED)

    first, second = (UUID(event.trace_id) for event in sink.events)
    assert first != second


def test_listeners_hear_an_event_before_emit_returns_until_they_unsubscribe(log: OpsLog) -> None:
    heard: list[str] = []
    unsubscribe = log.subscribe(lambda event: heard.append(event.action))

    log.emit(DELIVERED)
    unsubscribe()
    unsubscribe()
    log.emit(DELIVERED)

    assert heard == ["query.delivered"]


def test_a_listener_may_subscribe_twice(log: OpsLog) -> None:
    heard: list[OpsEvent] = []
    log.subscribe(heard.append)
    log.subscribe(heard.append)()

    log.emit(DELIVERED)

    assert len(heard) == 1


def test_a_listener_may_unsubscribe_while_it_listens(log: OpsLog, sink: MemorySink) -> None:
    heard: list[OpsEvent] = []

    def once(event: OpsEvent) -> None:
        heard.append(event)
        unsubscribe()

    unsubscribe = log.subscribe(once)

    log.emit(DELIVERED)
    log.emit(DELIVERED)

    assert (len(heard), len(sink.events)) == (1, 2)


def test_a_failing_listener_is_counted_and_does_not_hide_the_event_from_others(log: OpsLog) -> None:
    def fail(event: OpsEvent) -> None:
        raise RuntimeError("out of order")

    heard: list[OpsEvent] = []
    log.subscribe(fail)
    log.subscribe(heard.append)

    log.emit(DELIVERED)

    assert len(heard) == 1
    assert log.stats.listener_errors == 1


async def test_without_a_directory_flush_and_close_have_nothing_to_do(log: OpsLog) -> None:
    log.emit(DELIVERED)

    assert await log.flush() is True
    await log.close()

    assert log.stats == OpsLogStats(emitted=1, written=0, dropped=0, last_error=None, listener_errors=0)


@pytest.mark.parametrize("capacity", [0, -1])
def test_a_queue_has_room_for_one_event_at_least(capacity: int) -> None:
    with pytest.raises(ValueError, match=r"capacity is .*; give 1 or more"):
        OpsLog(None, capacity=capacity)


@pytest.mark.parametrize("days", [-1, 36_501])
def test_retention_is_between_none_and_a_hundred_years(days: int) -> None:
    with pytest.raises(ValueError, match=r"retention_days is .*; give 0 to 36500"):
        OpsLog(None, retention_days=days)
