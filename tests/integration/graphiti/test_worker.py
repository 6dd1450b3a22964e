"""The worker brings what the outbox holds into the graph: once, in order, whatever goes wrong on the way."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from textwrap import dedent
from typing import cast

import pytest

from composable_memory_adapters.graphiti.episodes import EpisodeDraft
from composable_memory_adapters.graphiti.fact_stores import Added, FactStore
from composable_memory_adapters.graphiti.outbox.delivery import Delivery
from composable_memory_adapters.graphiti.outbox.entries import EntryState
from composable_memory_adapters.graphiti.outbox.merging import plan_merges
from composable_memory_adapters.graphiti.outbox.queue import Outbox
from composable_memory_adapters.graphiti.outbox.worker import Worker
from composable_memory_adapters.graphiti.settings import IngestSettings
from composable_memory_ops_logs import GraphitiIngest, MemorySink, OpsLog
from composable_memory_ops_logs.tracing import trace
from tests.integration.graphiti.fact_shelf import FactShelf, draft, message

START = datetime(2026, 3, 9, 12, tzinfo=UTC)
SETTINGS = IngestSettings(retry_after_ms=30_000, max_attempts=3)
ROOT = Path(__file__).parents[3]
WAIT_S = 30


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Bench:
    """A outbox, a shelf and a worker between them."""

    def __init__(self, outbox: Outbox, shelf: FactShelf, clock: Clock, ops_log: OpsLog) -> None:
        self.outbox = outbox
        self.shelf = shelf
        self.clock = clock
        self.ops_log = ops_log
        self.worker = self.worker_with()

    def worker_with(self, settings: IngestSettings = SETTINGS, batch_size: int = 50) -> Worker:
        delivery = Delivery(
            outbox=self.outbox,
            store=cast("FactStore", self.shelf),
            settings=settings,
            ops_log=self.ops_log,
            clock=self.clock,
            batch_size=batch_size,
        )
        return Worker(delivery)

    async def states(self) -> Mapping[EntryState, int]:
        return (await self.outbox.counts()).by_state


@pytest.fixture
async def bench(tmp_path: Path, ops_log: OpsLog) -> AsyncIterator[Bench]:
    clock = Clock()
    async with Outbox.of(tmp_path, clock=clock) as outbox:
        yield Bench(outbox, FactShelf(tmp_path / "shelf.sqlite"), clock, ops_log)


def told(events: MemorySink) -> list[GraphitiIngest]:
    return [event.detail for event in events.events if isinstance(event.detail, GraphitiIngest)]


# --- storing ---


async def test_what_is_due_is_stored_in_batches_and_in_order(bench: Bench) -> None:
    await bench.outbox.enqueue([draft(number) for number in range(5)])

    outcome = await bench.worker_with(batch_size=2).work()

    assert (outcome.stored, outcome.entities, outcome.facts, outcome.problems) == (5, 5, 10, [])
    assert await bench.shelf.calls() == ["add 0 1", "add 2 3", "add 4"]
    assert await bench.states() == {"done": 5}


async def test_there_is_nothing_to_do_twice(bench: Bench) -> None:
    await bench.outbox.enqueue([draft(1)])
    await bench.worker.work()

    assert (await bench.worker.work()).stored == 0
    assert await bench.shelf.calls() == ["add 1"]


async def test_only_the_groups_that_are_asked_for_are_worked_on(bench: Bench) -> None:
    await bench.outbox.enqueue([draft(1), draft(2, group="other")])

    await bench.worker.work(["other"])

    assert await bench.shelf.calls() == ["add 2"]


async def test_groups_are_worked_on_side_by_side(bench: Bench) -> None:
    await bench.outbox.enqueue([draft(1), draft(2, group="other")])
    bench.shelf.gate = asyncio.Event()
    working = asyncio.create_task(bench.worker.work())

    async with asyncio.timeout(WAIT_S):
        while len(await bench.shelf.calls()) < 2:
            await bench.shelf.entered.wait()
    bench.shelf.gate.set()

    assert (await working).stored == 2


async def test_two_calls_at_once_do_the_work_of_a_group_once(bench: Bench) -> None:
    await bench.outbox.enqueue([draft(number) for number in range(20)])

    await asyncio.gather(*(bench.worker_with(batch_size=1).work() for _ in range(3)))

    assert await bench.shelf.calls() == [f"add {number}" for number in range(20)]


async def test_each_batch_is_told_under_the_trace_of_who_handed_it_in(
    bench: Bench, events: MemorySink
) -> None:
    with trace("t-1"):
        await bench.outbox.enqueue([draft(1), draft(2)])

    await bench.worker.work()

    (event,) = events.events
    assert event.trace_id == "t-1"
    assert event.duration_ms is not None
    assert told(events) == [
        GraphitiIngest(
            episode_count=2, node_count=2, edge_count=4, episode_ids=[draft(1).id, draft(2).id], warnings=[]
        )
    ]


# --- what goes wrong ---


async def test_one_that_is_refused_does_not_keep_the_others_out(bench: Bench, events: MemorySink) -> None:
    await bench.outbox.enqueue([draft(number) for number in range(8)])
    bench.shelf.refused = {"5"}

    outcome = await bench.worker.work()

    assert (outcome.stored, outcome.failed) == (7, 1)
    assert "the model refuses" in outcome.problems[0]
    (refused,) = await bench.outbox.entries([draft(5).id])
    assert refused.state == "failed"
    assert refused.last_error is not None
    assert "the model refuses" in refused.last_error
    assert list(await bench.shelf.texts()) == [draft(number).id for number in (0, 1, 2, 3, 4, 6, 7)]
    assert [event.status for event in events.events].count("failure") == 4


async def test_what_is_down_is_asked_once_and_then_left_alone(bench: Bench) -> None:
    await bench.outbox.enqueue([draft(number) for number in range(6)])
    bench.shelf.is_down = True

    outcome = await bench.worker_with(batch_size=2).work()
    again = await bench.worker.work()

    assert again.problems == []
    assert await bench.shelf.calls() == ["add 0 1"]
    assert "nobody answers; start it" in outcome.problems[0]
    assert await bench.outbox.next_due() == START + timedelta(seconds=30)


async def test_however_long_it_is_down_everything_is_stored_in_order_when_it_is_up(bench: Bench) -> None:
    await bench.outbox.enqueue([draft(number) for number in range(6)])
    bench.shelf.is_down = True
    for _ in range(10):
        await bench.worker.work()
        bench.clock.advance(3600)
    assert await bench.states() == {"queued": 6}
    bench.shelf.is_down = False

    await bench.worker.work()

    assert list(await bench.shelf.texts()) == [draft(number).id for number in range(6)]


async def test_one_that_hangs_is_given_up_and_the_others_are_stored(bench: Bench) -> None:
    await bench.outbox.enqueue([draft(number) for number in range(3)])
    bench.shelf.hanging = {"1"}
    # The setting allows no time as short as a test wants to wait.
    worker = bench.worker_with(SETTINGS.model_copy(update={"timeout_ms": 50}))

    for _ in range(8):
        outcome = await worker.work()
        bench.clock.advance(3600)

    assert outcome.problems == []
    (hung,) = await bench.outbox.entries([draft(1).id])
    assert (hung.state, hung.attempts) == ("failed", SETTINGS.max_attempts)
    assert hung.last_error is not None
    assert "no answer after" in hung.last_error
    assert list(await bench.shelf.texts()) == [draft(0).id, draft(2).id]


async def test_cancelled_work_is_done_the_next_time(bench: Bench) -> None:
    await bench.outbox.enqueue([draft(1)])
    bench.shelf.gate = asyncio.Event()
    working = asyncio.create_task(bench.worker.work())
    await bench.shelf.entered.wait()

    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    bench.shelf.gate.set()

    assert (await bench.worker.work()).stored == 1


# --- changed and vanished ---


async def test_the_earlier_text_is_retired_after_a_changed_one_is_stored(bench: Bench) -> None:
    await bench.outbox.enqueue([draft(1)])
    await bench.worker.work()
    await bench.outbox.enqueue([draft(1, "Something else.")])

    await bench.worker.work()

    first, second, third = await bench.shelf.calls()
    assert (first, third) == ("add 1", "retire 1")
    assert second.startswith("add 1@")
    assert list((await bench.shelf.texts()).values()) == ["Fact number 1.", "Something else."]


async def test_what_vanished_is_retired_after_what_came_in_its_place(bench: Bench) -> None:
    await bench.outbox.replace_source("x.md", [draft(1)], group_id="main")
    await bench.worker.work()
    await bench.outbox.replace_source("x.md", [draft(2)], group_id="main")

    outcome = await bench.worker.work()

    assert (outcome.stored, outcome.retired) == (1, 1)
    assert await bench.shelf.calls() == ["add 1", "add 2", "retire 1"]
    assert await bench.states() == {"done": 1, "retired": 1}


# --- services that say "later" ---


async def test_what_a_service_took_is_done_when_it_shows_it(bench: Bench) -> None:
    bench.shelf.certain = False
    bench.shelf.hidden = {draft(2).id}
    await bench.outbox.enqueue([draft(1), draft(2)])
    assert (await bench.worker.work()).sent == 2
    bench.clock.advance(5)

    assert (await bench.worker.work()).stored == 1

    assert await bench.states() == {"done": 1, "sent": 1}


async def test_what_a_service_never_shows_is_sent_again(bench: Bench) -> None:
    bench.shelf.certain = False
    bench.shelf.hidden = {draft(1).id}
    await bench.outbox.enqueue([draft(1)])
    await bench.worker.work()
    bench.clock.advance(3600)
    outcome = await bench.worker.work()
    bench.clock.advance(3600)

    await bench.worker.work()

    assert "did not show them within 15 minutes" in outcome.problems[0]
    assert await bench.shelf.calls() == ["add 1", "episodes", "add 1"]


async def test_a_slow_service_is_not_sent_again_what_it_took(bench: Bench) -> None:
    bench.shelf.certain = False
    drafts = [draft(number) for number in range(4)]
    bench.shelf.hidden = {one.id for one in drafts}
    await bench.outbox.enqueue(drafts)
    await bench.worker.work()

    for one in drafts:
        bench.clock.advance(14 * 60)
        bench.shelf.hidden.remove(one.id)
        assert (await bench.worker.work()).problems == []

    assert await bench.states() == {"done": 4}
    assert [call for call in await bench.shelf.calls() if call != "episodes"] == ["add 0 1 2 3"]


async def test_what_was_sent_is_not_sent_again_because_the_service_is_down(bench: Bench) -> None:
    bench.shelf.certain = False
    await bench.outbox.enqueue([draft(1)])
    await bench.worker.work()
    bench.shelf.is_down = True
    bench.clock.advance(60)
    assert (await bench.worker.work()).problems != []
    bench.shelf.is_down = False
    bench.clock.advance(60)

    assert (await bench.worker.work()).stored == 1
    assert await bench.shelf.calls() == ["add 1", "episodes", "episodes"]


# --- merging ---


async def talk(bench: Bench, *days: int, count: int = 3, session: str = "s1") -> None:
    """Store messages of some days ago."""
    for day in days:
        at = START - timedelta(days=day)
        number = day * 1000 + len(session) * 100_000
        await bench.outbox.enqueue(
            [
                message(number + minute, at + timedelta(minutes=minute), session=session)
                for minute in range(count)
            ]
        )
    await bench.worker.work()


async def merge(bench: Bench, settings: IngestSettings = SETTINGS) -> int:
    planned = await plan_merges(bench.outbox, settings, now=bench.clock())
    await bench.worker.work()
    return planned


async def test_old_messages_of_a_session_and_day_become_one_episode(bench: Bench) -> None:
    await talk(bench, 1, 8, 9)
    await talk(bench, 8, session="another")

    assert await merge(bench) == 3

    assert await bench.states() == {"done": 6, "merged": 9}
    texts = (await bench.shelf.texts()).values()
    assert "12:00 anna: Fact number m108000." not in texts
    assert any(text.startswith("12:00 anna: ") and text.count("\n") == 2 for text in texts)


async def test_the_originals_are_kept_word_for_word(bench: Bench) -> None:
    await talk(bench, 8)
    before = [
        message(208_000 + minute, START - timedelta(days=8) + timedelta(minutes=minute))
        for minute in range(3)
    ]

    await merge(bench)

    (entry,) = await bench.outbox.entries([before[0].id])
    assert entry.merged_into is not None
    assert await bench.outbox.originals(entry.merged_into) == tuple(before)


async def test_there_is_nothing_to_merge_twice(bench: Bench) -> None:
    await talk(bench, 8)
    await merge(bench)

    assert await merge(bench) == 0
    assert (await bench.shelf.calls()).count("merge 3") == 1


async def test_at_most_twenty_messages_become_one(bench: Bench) -> None:
    await talk(bench, 8, count=41)

    await merge(bench)

    assert [call for call in await bench.shelf.calls() if call.startswith("merge")] == [
        "merge 20",
        "merge 20",
    ]
    assert await bench.states() == {"done": 3, "merged": 40}


async def test_no_merged_episode_is_longer_than_an_episode_may_be(bench: Bench) -> None:
    await talk(bench, 8, count=20)

    await merge(bench, SETTINGS.model_copy(update={"max_episode_chars": 200}))

    assert all(len(text) <= 200 for text in (await bench.shelf.texts()).values())
    assert (await bench.states())["merged"] == 20


async def test_nothing_is_merged_where_that_is_off(bench: Bench) -> None:
    await talk(bench, 8)

    assert await merge(bench, SETTINGS.model_copy(update={"merge_after_days": 0})) == 0


async def test_a_merge_that_was_interrupted_is_done_with_the_same_messages(bench: Bench) -> None:
    await talk(bench, 8)
    bench.shelf.is_down = True
    assert await merge(bench) == 1
    await bench.outbox.enqueue([message(1, START - timedelta(days=8, minutes=-30))])
    bench.shelf.is_down = False
    bench.clock.advance(3600)
    await bench.worker.work()

    assert [call for call in await bench.shelf.calls() if call.startswith("merge")] == ["merge 3"] * 2
    assert await bench.states() == {"done": 2, "merged": 3}


async def test_a_merge_that_failed_is_reported_and_waits_before_it_is_tried_again(bench: Bench) -> None:
    await talk(bench, 8)
    await plan_merges(bench.outbox, SETTINGS, now=bench.clock())
    bench.shelf.is_down = True

    outcome = await bench.worker.work()
    bench.shelf.is_down = False
    await bench.worker.work()
    too_early = await bench.states()
    bench.clock.advance(3600)
    await bench.worker.work()

    assert len(outcome.problems) == 1
    assert too_early == {"done": 3, "merging": 1}
    assert await bench.states() == {"done": 1, "merged": 3}


async def test_what_was_merged_is_forgotten_with_its_originals(bench: Bench) -> None:
    await talk(bench, 8)
    await merge(bench)
    (entry,) = await bench.outbox.named("main", "m208000")
    assert entry.merged_into is not None

    await bench.outbox.forget([entry.merged_into])

    assert await bench.states() == {"forgotten": 4}


# --- in the background ---


async def until_done(bench: Bench, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while (await bench.states()).get("done", 0) < count:
            pass


async def until_tried(bench: Bench, own_id: str) -> None:
    async with asyncio.timeout(WAIT_S):
        while not (await bench.outbox.entries([own_id]))[0].attempts:
            pass


async def test_what_was_left_from_the_last_time_is_done_when_it_starts(bench: Bench) -> None:
    await bench.outbox.enqueue([draft(1)])

    bench.worker.start()
    await until_done(bench, 1)
    await bench.worker.stop()


async def test_it_sleeps_until_it_is_woken(bench: Bench) -> None:
    bench.worker.start()
    for number in range(3):
        await bench.outbox.enqueue([draft(number)])
        bench.worker.wake()
        await until_done(bench, number + 1)
    await bench.worker.stop()

    assert await bench.shelf.calls() == ["add 0", "add 1", "add 2"]


async def test_it_leaves_a_group_alone_that_somebody_else_is_about_to_work_on(bench: Bench) -> None:
    with bench.worker.reserve(["main"]):
        await bench.outbox.enqueue([draft(1), draft(2, group="other")])
        bench.worker.start()
        await until_done(bench, 1)
        assert await bench.shelf.calls() == ["add 2"]
    bench.worker.wake()

    await until_done(bench, 2)
    await bench.worker.stop()


async def test_it_tries_again_by_itself_when_that_is_due(bench: Bench) -> None:
    worker = bench.worker_with(SETTINGS.model_copy(update={"retry_after_ms": 10}))
    bench.shelf.is_down = True
    await bench.outbox.enqueue([draft(1)])
    worker.start()
    await until_tried(bench, draft(1).id)
    bench.clock.advance(60)
    bench.shelf.is_down = False

    await until_done(bench, 1)
    await worker.stop()


async def test_it_ends_at_once_and_leaves_the_rest_for_the_next_time(bench: Bench) -> None:
    await bench.outbox.enqueue([draft(1)])
    bench.shelf.gate = asyncio.Event()
    bench.worker.start()
    await bench.shelf.entered.wait()

    async with asyncio.timeout(WAIT_S):
        await bench.worker.stop()
        await bench.worker.stop()
    bench.shelf.gate = None

    assert (await bench.worker.work()).stored == 1


async def test_a_defect_of_the_store_is_told(bench: Bench) -> None:
    class Defective(FactShelf):
        async def add(self, group_id: str, drafts: Sequence[EpisodeDraft]) -> Added:
            raise KeyError("uuid")

    bench.shelf = Defective(bench.shelf.path)
    worker = bench.worker_with()
    await bench.outbox.enqueue([draft(1)])
    worker.start()
    async with asyncio.timeout(WAIT_S):
        while worker.problem is None:
            await bench.states()
    await worker.stop()

    assert "KeyError" in worker.problem


# --- other processes, and the end of ours ---

PRELUDE = """
import asyncio, os, random, signal, sys, time
from pathlib import Path
from composable_memory_adapters.graphiti.settings import IngestSettings
from composable_memory_adapters.graphiti.outbox.delivery import Delivery
from composable_memory_adapters.graphiti.outbox.queue import Outbox
from composable_memory_adapters.graphiti.outbox.worker import Worker
from composable_memory_ops_logs import OpsLog
from composable_memory_ops_logs.log import utc_now
from tests.integration.graphiti.fact_shelf import FactShelf, draft

root = Path(sys.argv[1])

def worker(outbox, batch_size):
    shelf = FactShelf(root / "shelf.sqlite")
    return Worker(Delivery(
        outbox=outbox, store=shelf, settings=IngestSettings(), ops_log=OpsLog(None), clock=utc_now,
        batch_size=batch_size,
    ))
"""
KILLED = """
async def go(number):
    async with Outbox.of(root, clock=utc_now) as outbox:
        while True:
            drafts = [draft(number + offset, group=f"g{offset % 2}") for offset in range(6)]
            await outbox.enqueue(drafts)
            with open(root / "accepted", "a", encoding="utf-8") as accepted:
                accepted.write("".join(f"{draft.id}\\n" for draft in drafts))
            await worker(outbox, 2).work()
            number += 6

def accepted():
    path = root / "accepted"
    return len(path.read_text(encoding="utf-8").split()) if path.exists() else 0

chance = random.Random(7)
round = 0
while round < 30 or accepted() <= 100:  # a busy machine gets little done before each kill
    round += 1
    child = os.fork()
    if not child:
        asyncio.run(go(round * 100_000))
    time.sleep(chance.uniform(0.02, 0.25))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""
TOGETHER = """
async def go():
    async with Outbox.of(root, clock=utc_now) as outbox:
        first = int(sys.argv[2])
        for number in range(first, first + 40):
            await outbox.enqueue([draft(number)])
            if not number % 4:
                await worker(outbox, 2).work()
        await worker(outbox, 2).work()

asyncio.run(go())
"""


async def start(script: str, *arguments: str) -> asyncio.subprocess.Process:
    folders = [str(ROOT), *(str(ROOT / name) for name in ("adapters", "feedback", "ops_logs"))]
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-c",
        dedent(PRELUDE) + dedent(script),
        *arguments,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
    )


@pytest.mark.thorough
async def test_two_processes_share_the_work_and_never_write_to_a_group_at_once(bench: Bench) -> None:
    root = str(bench.shelf.path.parent)

    processes = [await start(TOGETHER, root, first) for first in ("0", "1000")]
    assert [await process.wait() for process in processes] == [0, 0]

    numbers = [*range(40), *range(1000, 1040)]
    assert set(await bench.shelf.texts()) == {draft(number).id for number in numbers}
    assert await bench.shelf.clashes() == 0
    assert await bench.states() == {"done": 80}
    assert sum(len(call.split()) - 1 for call in await bench.shelf.calls()) == 80, "none was stored twice"


@pytest.mark.thorough
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="elsewhere nobody is killed like this")
async def test_whenever_a_process_is_killed_everything_that_was_taken_is_stored_once(bench: Bench) -> None:
    root = bench.shelf.path.parent
    process = await start(KILLED, str(root))
    assert await process.wait() == 0
    bench.clock.now = datetime.now(UTC)

    await bench.worker.work()

    accepted = (root / "accepted").read_text(encoding="utf-8").split()
    stored = await bench.shelf.texts()
    assert len(accepted) > 100
    assert set(accepted) <= stored.keys()
    counts = await bench.states()
    assert counts == {"done": len(stored)}, "nothing is left over, nothing was stored that nobody handed in"
