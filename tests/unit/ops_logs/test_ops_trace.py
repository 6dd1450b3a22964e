"""The trace id travels with the context and stays inside it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest

from composable_memory_ops_logs import current_run_id, current_session_key, current_trace_id, trace


def test_outside_a_trace_there_is_no_id() -> None:
    assert (current_trace_id(), current_session_key(), current_run_id()) == (None, None, None)


def test_a_new_trace_gets_a_random_uuid() -> None:
    with trace() as first:
        pass
    with trace() as second:
        pass

    assert UUID(first).version == 4
    assert first != second


def test_a_given_id_is_used() -> None:
    with trace("abc") as entered:
        assert entered == "abc" == current_trace_id()


def test_a_trace_inside_a_trace_joins_it() -> None:
    with trace() as outer, trace() as inner:
        assert inner == outer


def test_a_given_id_wins_over_the_active_trace_and_leaving_restores_it() -> None:
    with trace("outer"):
        with trace("inner"):
            assert current_trace_id() == "inner"
        assert current_trace_id() == "outer"
    assert current_trace_id() is None


def test_an_empty_id_counts_as_none() -> None:
    with trace("") as entered:
        assert entered != ""


def test_session_and_run_are_inherited_unless_given() -> None:
    with trace(session_key="agent:main", run_id="run-1"), trace(run_id="run-2"):
        assert (current_session_key(), current_run_id()) == ("agent:main", "run-2")
    assert (current_session_key(), current_run_id()) == (None, None)


def test_an_error_inside_restores_the_context() -> None:
    with pytest.raises(KeyError), trace("abc", session_key="s"):
        raise KeyError

    assert (current_trace_id(), current_session_key()) == (None, None)


async def test_tasks_and_threads_started_inside_inherit_the_trace() -> None:
    async def seen() -> str | None:
        return current_trace_id()

    with trace() as entered:
        in_task = await asyncio.create_task(seen())
        in_thread = await asyncio.to_thread(current_trace_id)

    assert in_task == in_thread == entered


async def test_concurrent_traces_do_not_mix() -> None:
    both_inside = asyncio.Barrier(2)

    async def ask(name: str) -> str | None:
        with trace(name):
            await both_inside.wait()
            return current_trace_id()

    assert list(await asyncio.gather(ask("a"), ask("b"))) == ["a", "b"]


def test_a_thread_started_by_hand_does_not_inherit_the_trace() -> None:
    with ThreadPoolExecutor(1) as pool, trace():
        assert pool.submit(current_trace_id).result(5) is None
