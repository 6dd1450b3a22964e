"""The background of an open memory: it learns while nobody looks, changes only what it may, and ends."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from composable_memory import Memory
from composable_memory.learning.loop import LearningLoop, learn_in_background
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.judgements import JudgementKind
from composable_memory_ops_logs import OpsLogReader
from tests.integration.embedders.loopback import Answerer, listening
from tests.integration.feedback.learners import Place, Rest, ask, judge, saying
from tests.integration.test_leaks import DESCRIPTORS, open_descriptors, threads_besides
from tests.rounds import rounds
from tests.unit.feedback.judged_queries import judgments

SETTINGS = {"sure": 0.75, "vague": 1.0}
AUTOMATIC = {"enabled": True, "auto_apply": True}


@asynccontextmanager
async def learning(place: Place) -> AsyncIterator[tuple[Memory, Rest]]:
    """Open a memory that learns a round whenever the rest ends; the first is over."""
    rest = Rest(2)
    async with (
        place.memory() as memory,
        learn_in_background(memory.learning, memory.text_of, sleep=rest),
    ):
        await rest.all_rest()
        yield memory, rest


async def logged(memory: Memory, action: str) -> list[Mapping[str, object]]:
    """Return what the events of a kind say, oldest first."""
    await memory.ops_log.flush()
    told = await asyncio.to_thread(lambda: OpsLogReader(memory.ops_log_dir).tail(50))
    return [one.detail for one in told if one.action == action and isinstance(one.detail, Mapping)]


def version(memory: Memory) -> str:
    return memory.weights.now.version


# --- what it changes, and when ------------------------------------------------------------------------------


async def test_what_passes_every_check_is_adopted_once_there_is_news(judged: Place) -> None:
    async with learning(judged.set(**AUTOMATIC)) as (memory, rest):
        await rest.wake()

        assert version(memory) == "v1"
        (change,) = await memory.learning.weights.history()
        (advice,) = await logged(memory, "weights.advised")
        assert memory.weights.now.table.weights == advice["suggested"]
    assert (change.actor, change.action) == ("loop", "adopt")


async def test_the_next_change_waits_for_the_cool_down(judged: Place) -> None:
    async with judged.memory() as memory:  # a person need not wait
        await memory.learning.weights.set({"sure": SETTINGS["sure"]})
        await memory.learning.advising.apply(await memory.learning.advising.advise())
    judged.clock.forward(hours=1)

    async with learning(judged.set(**AUTOMATIC)) as (memory, rest):
        early = version(memory)
        judged.clock.forward(hours=24)
        await rest.wake()

        assert (early, version(memory)) == ("v2", "v3")


async def test_a_change_in_the_future_is_waited_for_as_well(judged: Place) -> None:
    async with judged.memory() as memory:
        await memory.learning.weights.set({"sure": SETTINGS["sure"]})
    judged.clock.forward(hours=-1)

    async with learning(judged.set(**AUTOMATIC)) as (memory, rest):
        await rest.wake()

        assert version(memory) == "v1"


async def test_what_somebody_took_back_is_not_adopted_again_by_itself(judged: Place) -> None:
    async with judged.memory() as memory:
        adopted = await memory.learning.advising.apply(await memory.learning.advising.advise())
        await memory.learning.weights.rollback()
        again = await memory.learning.advising.advise("statistical", automatic=True)
        wanted = await memory.learning.advising.advise()

    assert again.proposal.table.weights == adopted.weights
    assert "taken-back" in [one.code for one in again.objections]
    assert wanted.is_allowed


async def test_without_leave_nothing_is_adopted_however_good_it_is(judged: Place) -> None:
    async with learning(judged.set(enabled=True)) as (memory, rest):
        await rest.wake()
        (advice,) = await logged(memory, "weights.advised")

        assert advice["objections"] == []
        assert memory.weights.now.table.weights == SETTINGS
        assert await memory.learning.weights.history() == []


async def test_too_few_judgements_bring_no_proposal(place: Place) -> None:
    async with learning(place.set(**AUTOMATIC, min_samples=10)) as (memory, rest):
        await judge(memory, range(9))
        await rest.wake()

        assert [one["sampleSize"] for one in await logged(memory, "weights.advised")] == [9]
        assert memory.weights.now.table.weights == SETTINGS


# --- the language model as its advisor ----------------------------------------------------------------------

BETTER = saying('{"weights": {"sure": 1, "vague": 0.3}}')
WORSE = saying('{"weights": {"sure": 0.1, "vague": 1}}')
RUBBISH = saying("Set sure to 0, it is the best that you can do.")


@asynccontextmanager
async def advised(answer: Answerer, place: Place, advisor: str) -> AsyncIterator[tuple[Memory, Rest]]:
    """Open a memory whose background asks a language model, which answers so, for weights alone."""
    async with listening(answer) as server:
        llm = {"base_url": f"{server.url}/v1"}
        place = place.set(**AUTOMATIC, advisor=advisor, llm=llm, evaluations_per_hour=0)
        async with learning(place) as opened:
            yield opened


async def test_a_language_model_can_be_the_advisor_held_by_the_same_checks(judged: Place) -> None:
    async with advised(BETTER, judged, "llm") as (memory, _):
        (advice,) = await logged(memory, "weights.advised")

        assert (advice["advisor"], version(memory)) == ("llm", "v1")
        assert abs(memory.weights.now.table["vague"] - 1.0) < 0.21  # it wished for more than one step


async def test_a_language_model_in_the_loop_that_would_make_things_worse_changes_nothing(
    judged: Place,
) -> None:
    for answer in (WORSE, RUBBISH):
        async with advised(answer, judged, "llm") as (memory, rest):
            await judge(memory, [30])
            await rest.wake()

            assert memory.weights.now.table.weights == SETTINGS
            assert await logged(memory, "weights.advised")


# --- what it gathers ----------------------------------------------------------------------------------------


async def test_use_is_gathered_and_queries_are_judged_in_the_background(place: Place) -> None:
    async with listening(saying(judgments(0.9, 0.1))) as server:
        place = place.set(enabled=True, llm={"base_url": f"{server.url}/v1"})
        async with learning(place) as (memory, rest):
            await ask(memory, 7)
            await memory.read_file("memory/item-7.md")
            await rest.wake()
            stats = await memory.learning.judging.stats()

    assert stats.kinds == {JudgementKind.OPENED: 1, JudgementKind.MODEL: 2}
    assert len(server.received) == 1


async def test_a_model_that_fails_does_not_keep_the_rest_from_being_learnt(place: Place) -> None:
    async with listening(saying("no")) as server:
        place = place.set(enabled=True, llm={"base_url": f"{server.url}/v1"})
        async with learning(place) as (memory, rest):
            await ask(memory, 7)
            await memory.read_file("memory/item-7.md")
            await rest.wake()

            assert (await memory.learning.judging.stats()).kinds == {JudgementKind.OPENED: 1}


async def test_judgements_are_forgotten_in_time(judged: Place) -> None:
    async with learning(judged.set(enabled=True, retention_days=2)) as (memory, rest):
        before = (await memory.learning.judging.stats()).judged_queries
        judged.clock.forward(days=3)
        await rest.wake()

        assert (before, (await memory.learning.judging.stats()).judged_queries) == (24, 0)


async def failures_of(memory: Memory) -> set[object]:
    """Return the steps that the log says have failed."""
    return {one["step"] for one in await logged(memory, "learning.failed")}


async def test_a_step_that_fails_is_logged_and_done_in_a_later_round(place: Place) -> None:
    async with learning(place.set(enabled=True)) as (memory, rest):
        await ask(memory, 7)
        await memory.read_file("memory/item-7.md")
        in_the_way = memory.ops_log_dir / "ops-2026-02.jsonl"
        in_the_way.mkdir()
        await rest.wake()
        before = (await memory.learning.judging.stats()).kinds
        in_the_way.rmdir()
        await rest.wake()

        assert (before, (await memory.learning.judging.stats()).kinds) == ({}, {JudgementKind.OPENED: 1})
        assert "signals" in await failures_of(memory)


async def test_what_ends_the_background_is_logged(place: Place) -> None:
    async def break_down(_seconds: float) -> None:
        raise ZeroDivisionError("of all things")

    async with place.set(enabled=True).memory() as memory:
        async with learn_in_background(memory.learning, memory.text_of, sleep=break_down):
            await asyncio.wait([one for one in asyncio.all_tasks() if one.get_name() == "learn"])

        assert await failures_of(memory) == {"learn", "follow weights"}


# --- idle, and the end --------------------------------------------------------------------------------------

_opened: list[str] | None = None


def _note_open(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _opened is not None:
        _opened.append(str(arguments[0]))


def snapshot(folder: Path) -> dict[Path, tuple[int, int]]:
    return {one: (one.stat().st_size, one.stat().st_mtime_ns) for one in folder.rglob("*")}


async def test_rounds_without_news_read_no_log_and_write_nothing(
    judged: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    global _opened
    sys.addaudithook(_note_open)
    async with listening(saying(judgments(1.0))) as server:
        place = judged.set(enabled=True, llm={"base_url": f"{server.url}/v1"}, evaluations_per_hour=100)
        async with learning(place) as (memory, rest):
            for _ in range(3):  # what the first rounds wrote themselves is news once more
                await rest.wake()
            await memory.ops_log.flush()
            before, asked = snapshot(place.state), len(server.received)
            _opened = []
            for _ in range(3):
                await rest.wake()
            read, _opened = _opened, None

            assert [one for one in read if one.startswith(str(place.state))] == []
            assert (snapshot(place.state), len(server.received)) == (before, asked)


async def test_idle_rounds_of_a_memory_that_learnt_nothing_leave_no_file(place: Place) -> None:
    async with learning(place.set(**AUTOMATIC)) as (memory, rest):
        await ask(memory, 7)
        for _ in range(3):
            await rest.wake()

    assert place.store is None


async def test_an_advice_is_given_up_when_the_memory_closes(judged: Place) -> None:
    async with judged.memory() as memory:
        loop = LearningLoop(memory.learning, memory.text_of)
        loop.end()

        with pytest.raises(FeedbackError, match="the advice was abandoned"):
            await loop.advise()


@pytest.mark.parametrize("turns", [0, 3, 27, 81])
async def test_closing_at_any_moment_leaves_nothing_running(judged: Place, turns: int) -> None:
    before = set(threading.enumerate())
    async with (
        judged.set(**AUTOMATIC).memory() as memory,
        learn_in_background(memory.learning, memory.text_of, sleep=Rest(2)),
    ):
        for _ in range(turns):
            await asyncio.sleep(0)

    assert asyncio.all_tasks() == {asyncio.current_task()}
    async with asyncio.timeout(30):
        await asyncio.get_running_loop().shutdown_default_executor()  # until the last thread has ended
    assert threads_besides(before) == []


async def test_closing_while_the_model_is_asked_does_not_wait_for_it(place: Place) -> None:
    never = asyncio.Event()

    async def silent(received: object) -> None:
        await never.wait()

    async with listening(silent) as server:  # type: ignore[arg-type]
        place = place.set(enabled=True, llm={"base_url": f"{server.url}/v1"})
        async with place.memory() as memory:
            await ask(memory, 7)
            async with asyncio.timeout(20), learn_in_background(memory.learning, memory.text_of):
                await server.arrived.wait()

        assert asyncio.current_task() is not None
        async with asyncio.timeout(20):
            await server.deserted.wait()


@pytest.mark.skipif(not DESCRIPTORS.is_dir(), reason="the system does not list its descriptors")
async def test_many_memories_that_learn_leave_no_thread_no_task_and_no_descriptor(judged: Place) -> None:
    place = judged.set(**AUTOMATIC)

    async def use_once() -> None:
        async with place.memory(long_lived=True) as memory:
            await ask(memory, 7)
            await memory.learning.weights.report()

    for _ in range(3):
        await use_once()
    threads, descriptors = set(threading.enumerate()), open_descriptors()
    for _ in range(rounds(4, explore=50)):
        await use_once()

    assert threads_besides(threads) == []
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert open_descriptors() <= descriptors
