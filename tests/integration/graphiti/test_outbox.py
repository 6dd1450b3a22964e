"""The outbox keeps what was handed in, says what is due, and forgets nothing that it took."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw
import pytest

from composable_memory.errors import BackendUnavailable
from composable_memory_adapters.graphiti.episodes import drafts_of
from composable_memory_adapters.graphiti.outbox import storage
from composable_memory_adapters.graphiti.outbox.adoption import (
    assign,
    claimed_groups,
    count_unassigned,
    unassigned_entries,
)
from composable_memory_adapters.graphiti.outbox.comparison import stored_entries
from composable_memory_adapters.graphiti.outbox.entries import EntryState
from composable_memory_adapters.graphiti.outbox.queue import Outbox
from composable_memory_adapters.graphiti.outbox.storage import FILE_NAME, OutboxFile
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from composable_memory_ops_logs.tracing import trace
from tests.integration.graphiti.fact_shelf import draft
from tests.variants import variants

START = datetime(2026, 3, 9, 12, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def outbox(tmp_path: Path, clock: Clock) -> AsyncIterator[Outbox]:
    async with Outbox.of(tmp_path / "graphiti", clock=clock) as opened:
        yield opened


async def states(outbox: Outbox) -> Mapping[EntryState, int]:
    return (await outbox.counts()).by_state


async def due(outbox: Outbox, group: str = "main", limit: int = 50) -> list[str]:
    return [entry.draft.content.id for entry in await outbox.due(group, limit=limit)]


async def finish(outbox: Outbox, group: str = "main") -> None:
    await outbox.complete(await outbox.due(group, limit=50))


# --- taking in ---


async def test_what_is_new_is_due_in_the_order_in_which_it_came(outbox: Outbox) -> None:
    taken = await outbox.enqueue([draft(2), draft(1), draft(3)])

    assert taken == frozenset()
    assert await due(outbox) == ["2", "1", "3"]
    assert await due(outbox, limit=2) == ["2", "1"]


async def test_the_same_text_again_is_known_whatever_became_of_it(outbox: Outbox) -> None:
    await outbox.enqueue([draft(1)])
    assert await outbox.enqueue([draft(1)]) == {draft(1).id}
    await finish(outbox)
    assert await outbox.enqueue([draft(1)]) == {draft(1).id}
    assert await states(outbox) == {"done": 1}


async def test_another_text_is_another_episode_and_the_earlier_one_is_retired_after_it(
    outbox: Outbox,
) -> None:
    await outbox.enqueue([draft(1)])
    await finish(outbox)

    taken = await outbox.enqueue([draft(1, "Something else.")])

    assert taken == frozenset()
    (new,) = await outbox.due("main", limit=50)
    assert (new.draft_id, new.draft.text) == (draft(1).id, "Something else.")
    assert new.id != draft(1).id
    await finish(outbox)
    (old,) = await outbox.due("main", limit=50)
    assert (old.state, old.draft) == ("retiring", draft(1))


async def test_the_present_text_is_found_by_the_id_that_was_handed_in(outbox: Outbox) -> None:
    for text in ("One.", "Two.", "Three."):
        await outbox.enqueue([draft(1, text)])

    assert [entry.draft.text for entry in await outbox.entries([draft(1).id])] == ["Three."]
    assert [entry.draft.text for entry in await outbox.named("main", "1")] == ["One.", "Two.", "Three."]


async def test_a_text_that_comes_back_is_the_same_episode_as_before(outbox: Outbox) -> None:
    await outbox.enqueue([draft(1)])
    await finish(outbox)
    await outbox.enqueue([draft(1, "Something else.")])
    await finish(outbox)
    await outbox.complete(await outbox.due("main", limit=1), "retired")

    assert await outbox.enqueue([draft(1)]) == frozenset()

    assert [entry.draft for entry in await outbox.due("main", limit=50)] == [draft(1)]
    assert await states(outbox) == {"queued": 1, "retiring": 1}


async def test_what_a_source_says_no_more_is_to_be_retired(outbox: Outbox) -> None:
    await outbox.replace_source("x.md", [draft(1), draft(2)], group_id="main")
    await outbox.enqueue([draft(3)])
    await finish(outbox)

    taken = await outbox.replace_source("x.md", [draft(2), draft(4)], group_id="main")

    assert taken == {draft(2).id}
    assert await due(outbox) == ["4"], "what is restated is stored before what vanished is retired"
    await finish(outbox)
    assert await due(outbox) == ["1"]


async def test_a_source_that_is_gone_leaves_all_it_said_to_be_retired(outbox: Outbox) -> None:
    await outbox.replace_source("x.md", [draft(1)], group_id="main")
    await finish(outbox)

    await outbox.replace_source("x.md", [], group_id="main")

    assert await due(outbox) == ["1"]


async def test_what_moved_to_another_source_is_not_retired_with_the_first(outbox: Outbox) -> None:
    await outbox.replace_source("x.md", [draft(1)], group_id="main")
    await finish(outbox)
    await outbox.replace_source("y.md", [draft(1)], group_id="main")

    await outbox.replace_source("x.md", [], group_id="main")

    assert await due(outbox) == []


async def test_what_was_retired_and_is_said_again_is_stored_again(outbox: Outbox) -> None:
    await outbox.replace_source("x.md", [draft(1)], group_id="main")
    await finish(outbox)
    await outbox.replace_source("x.md", [], group_id="main")
    await outbox.complete(await outbox.due("main", limit=1), "retired")

    assert await outbox.replace_source("x.md", [draft(1)], group_id="main") == frozenset()
    assert await due(outbox) == ["1"]


async def test_a_text_that_was_cut_into_more_parts_before_leaves_none_behind(outbox: Outbox) -> None:
    content = draft(1).content
    cut = {
        words: drafts_of(replace(content, text="word " * words), group_id="main", now=START, max_chars=200)
        for words in (100, 50)
    }
    await outbox.enqueue(cut[100])
    await finish(outbox)

    await outbox.enqueue(cut[50])

    assert [len(cut[100]), len(cut[50])] == [3, 2]
    assert (await outbox.entries([cut[100][2].id]))[0].state == "retiring"


async def test_the_trace_of_who_handed_it_in_is_kept(outbox: Outbox) -> None:
    with trace("t-1"):
        await outbox.enqueue([draft(1)])

    assert (await outbox.due("main", limit=1))[0].trace_id == "t-1"


async def test_on_a_full_disk_nothing_is_taken_and_that_is_said(tmp_path: Path, clock: Clock) -> None:
    def small(connection: Connection) -> None:
        connection.execute("PRAGMA max_page_count = 14")

    async with SqliteFile.open(tmp_path / FILE_NAME, on_connect=small) as file:
        outbox = Outbox(OutboxFile(file), clock=clock)
        await file.write(lambda connection: storage.ensure(connection, file.path))
        await outbox.enqueue([draft(1)])

        with pytest.raises(BackendUnavailable, match=r"none of them was accepted \(.*full.*\); free some"):
            await outbox.enqueue([draft(2), draft(3, "x" * 1_000_000)])

        assert await states(outbox) == {"queued": 1}
        await outbox.enqueue([draft(4)])
        assert await due(outbox) == ["1", "4"]


# --- what was done ---


async def test_what_was_changed_while_it_was_stored_is_retired_then(outbox: Outbox) -> None:
    await outbox.enqueue([draft(1)])
    under_way = await outbox.due("main", limit=1)
    await outbox.enqueue([draft(1, "Something else.")])

    await outbox.complete(under_way)

    assert await states(outbox) == {"queued": 1, "retiring": 1}


async def test_what_vanished_while_it_was_stored_is_retired_then(outbox: Outbox) -> None:
    await outbox.replace_source("x.md", [draft(1)], group_id="main")
    under_way = await outbox.due("main", limit=1)
    await outbox.replace_source("x.md", [], group_id="main")

    await outbox.complete(under_way)

    assert await states(outbox) == {"retiring": 1}


async def test_a_group_in_trouble_is_left_alone_twice_as_long_each_time(outbox: Outbox, clock: Clock) -> None:
    await outbox.enqueue([draft(1), draft(2), draft(3, group="other")])
    pauses = []
    for _ in range(9):
        await outbox.postpone(await outbox.due("main", limit=1), "down", pause_s=30, max_attempts=None)
        assert await outbox.groups_due() == ("other",)
        (entry,) = await outbox.entries([draft(1).id])
        assert entry.next_try_at is not None
        pauses.append((entry.next_try_at - clock()).total_seconds())
        clock.now = entry.next_try_at

    assert pauses == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert (await outbox.counts()).last_error == "down"


async def test_others_of_a_group_in_trouble_wait_too_unless_the_clock_was_set_back(
    outbox: Outbox, clock: Clock
) -> None:
    await outbox.enqueue([draft(1), draft(2)])
    await outbox.postpone(await outbox.due("main", limit=1), "down", pause_s=30, max_attempts=None)

    assert await due(outbox) == []
    clock.advance(-24 * 3600)
    assert await due(outbox) == ["1"]


async def test_the_pause_of_a_group_ends_when_something_of_it_is_stored(outbox: Outbox) -> None:
    await outbox.enqueue([draft(1), draft(2), draft(3)])
    first, second, _ = await outbox.due("main", limit=3)
    await outbox.postpone([first], "down", pause_s=30, max_attempts=None)
    assert await due(outbox) == []

    await outbox.complete([second])

    assert await due(outbox) == ["3"]


async def test_one_that_went_wrong_before_comes_alone(outbox: Outbox, clock: Clock) -> None:
    await outbox.enqueue([draft(number) for number in range(4)])
    await outbox.postpone(await outbox.due("main", limit=2), "slow", pause_s=1, max_attempts=3)
    clock.advance(60)

    assert await due(outbox) == ["0"]
    await finish(outbox)
    assert await due(outbox) == ["1"]
    await finish(outbox)
    assert await due(outbox) == ["2", "3"]


async def test_after_too_many_tries_it_waits_for_somebody_to_ask(outbox: Outbox, clock: Clock) -> None:
    await outbox.enqueue([draft(1)])
    for _ in range(2):
        await outbox.postpone(await outbox.due("main", limit=1), "slow", pause_s=1, max_attempts=2)
        clock.advance(60)
    assert await states(outbox) == {"failed": 1}
    assert await outbox.next_due() is None

    await outbox.retry_now(failed=True)

    assert await due(outbox) == ["1"]


async def test_what_is_to_be_retired_is_never_given_up(outbox: Outbox, clock: Clock) -> None:
    await outbox.replace_source("x.md", [draft(1)], group_id="main")
    await outbox.replace_source("x.md", [], group_id="main")
    for _ in range(3):
        await outbox.postpone(await outbox.due("main", limit=1), "slow", pause_s=1, max_attempts=1)
        clock.advance(3600)

    assert await states(outbox) == {"retiring": 1}


async def test_what_is_forgotten_does_not_come_back(outbox: Outbox) -> None:
    await outbox.enqueue([draft(1, "The zeppelin is grey.")])
    await finish(outbox)

    await outbox.forget([draft(1).id])

    assert await outbox.entries([draft(1).id]) == ()
    assert await outbox.enqueue([draft(1, "The zeppelin is grey.")]) == {draft(1).id}
    assert await due(outbox) == []
    assert await outbox.enqueue([draft(1, "The zeppelin is red.")]) == frozenset()


async def test_what_is_forgotten_is_not_in_the_file_any_more(tmp_path: Path, clock: Clock) -> None:
    async with Outbox.of(tmp_path, clock=clock) as outbox:
        await outbox.enqueue([draft(1, "The zeppelin is grey."), draft(2, "The ferry is late.")])
        await outbox.forget([draft(1).id])

    stored = (tmp_path / FILE_NAME).read_bytes()
    assert b"ferry" in stored
    assert b"zeppelin" not in stored


async def test_an_episode_is_found_by_either_id(outbox: Outbox) -> None:
    await outbox.enqueue([draft("a"), draft("a", group="other")])

    for name in ("a", draft("a").id):
        assert [entry.id for entry in await outbox.named("main", name)] == [draft("a").id]


# --- the file ---


async def test_everything_is_there_after_opening_again(tmp_path: Path, clock: Clock) -> None:
    async with Outbox.of(tmp_path, clock=clock) as outbox:
        await outbox.enqueue([draft(1), draft(2)])
        await outbox.complete(await outbox.due("main", limit=1))

    async with Outbox.of(tmp_path, clock=clock) as outbox:
        assert await due(outbox) == ["2"]
        assert await states(outbox) == {"done": 1, "queued": 1}


async def test_a_lease_is_held_by_one_at_a_time_for_each_group(tmp_path: Path, clock: Clock) -> None:
    async with Outbox.of(tmp_path, clock=clock) as one, Outbox.of(tmp_path, clock=clock) as two:
        async with one.lease("main") as first, two.lease("main") as second, two.lease("other") as third:
            assert (first, second, third) == (True, False, True)
        async with two.lease("main") as fourth:
            assert fourth


async def test_a_file_of_a_later_version_is_not_touched(tmp_path: Path, clock: Clock) -> None:
    async with Outbox.of(tmp_path, clock=clock) as outbox:
        await outbox.enqueue([draft(1)])
    await asyncio.to_thread(run, tmp_path / FILE_NAME, f"PRAGMA user_version = {storage.SCHEMA_VERSION + 1}")

    with pytest.raises(BackendUnavailable, match="upgrade composable-memory"):
        async with Outbox.of(tmp_path, clock=clock):
            pass


async def test_what_is_no_outbox_is_set_aside_and_named(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"something else entirely" * 100)

    async with Outbox.of(tmp_path, clock=clock) as outbox:
        problem = str(outbox.problem)
        await outbox.enqueue([draft(1)])
    async with Outbox.of(tmp_path, clock=clock) as outbox:
        assert outbox.problem is None

    (aside,) = await asyncio.to_thread(lambda: [*tmp_path.glob("*.damaged-*")])
    assert str(aside) in problem
    assert aside.read_bytes() == b"something else entirely" * 100


def flip(data: bytearray) -> None:
    for at in range(0, len(data), 64):
        data[at] ^= 1 << at % 8


def zero_a_page(data: bytearray) -> None:
    data[16384 * 5 : 16384 * 6] = bytes(16384)


def garble(data: bytearray) -> None:
    data[16384 * 6 - 4000 : 16384 * 6] = random.Random(1).randbytes(4000)  # what is in a page is at its end


def truncate(data: bytearray) -> None:
    del data[len(data) * 9 // 10 :]


@pytest.mark.parametrize("damage", [flip, zero_a_page, garble, truncate])
@pytest.mark.parametrize("round_", variants(range(3), 0))
async def test_what_can_be_read_of_a_damaged_outbox_is_saved_and_that_is_said(
    tmp_path: Path, clock: Clock, damage: Callable[[bytearray], None], round_: int
) -> None:
    drafts = [draft(number, text="x" * 700 * (round_ + 1)) for number in range(60)]
    async with Outbox.of(tmp_path, clock=clock) as outbox:
        await outbox.enqueue(drafts)
    file = tmp_path / FILE_NAME
    data = bytearray(file.read_bytes())
    damage(data)
    file.write_bytes(data)

    async with Outbox.of(tmp_path, clock=clock) as outbox:
        assert "set aside" in str(outbox.problem)
        saved = await outbox.entries([one.id for one in drafts])
        taken = await outbox.enqueue(drafts)
    if damage is not flip:
        assert saved
    assert all(entry.draft in drafts for entry in saved)
    assert len(taken) == len(saved)
    async with Outbox.of(tmp_path, clock=clock) as outbox:
        assert outbox.problem is None


async def test_what_is_saved_of_a_damaged_outbox_stays_with_its_workspace(
    tmp_path: Path, clock: Clock
) -> None:
    async with Outbox.of(tmp_path, clock=clock, workspace="one") as outbox:
        await outbox.enqueue([draft(1)])
        await finish(outbox)
    async with Outbox.of(tmp_path, clock=clock, workspace="two") as outbox:
        await outbox.enqueue([draft(2), draft(3)])
    wrong = "UPDATE episodes SET draft = '{' WHERE sequence = 3; INSERT INTO claims VALUES ('main', 'one')"
    await asyncio.to_thread(run, tmp_path / FILE_NAME, wrong)

    async with Outbox.of(tmp_path, clock=clock, workspace="one") as outbox:
        assert "set aside" in str(outbox.problem)
        assert await states(outbox) == {"done": 1}
        assert await claimed_groups(outbox) == {"main"}
        (stored,) = await stored_entries(outbox, "main")
        assert stored.is_marked
    async with Outbox.of(tmp_path, clock=clock, workspace="two") as outbox:
        assert await due(outbox) == ["2"]


async def test_what_an_earlier_version_wrote_is_saved_of_its_damaged_outbox(
    tmp_path: Path, clock: Clock
) -> None:
    async with Outbox.of(tmp_path, clock=clock) as outbox:
        await outbox.enqueue([draft(1), draft(2)])
    earlier = """
    DROP INDEX episodes_of_nobody; DROP TABLE claims; DROP TABLE restored;
    ALTER TABLE episodes DROP COLUMN workspace; ALTER TABLE episodes DROP COLUMN is_marked;
    UPDATE episodes SET draft = '{' WHERE sequence = 2; PRAGMA user_version = 1
    """
    await asyncio.to_thread(run, tmp_path / FILE_NAME, earlier)

    async with Outbox.of(tmp_path, clock=clock) as outbox:
        assert "set aside" in str(outbox.problem)
        assert await count_unassigned(outbox) == {"main": 1}


async def test_a_damaged_episode_that_waits_is_seen_when_the_outbox_is_opened(
    tmp_path: Path, clock: Clock
) -> None:
    async with Outbox.of(tmp_path, clock=clock) as outbox:
        await outbox.enqueue([draft(1), draft(2)])
    wrong = "UPDATE episodes SET draft = replace(draft, 'text', 'tex') WHERE sequence = 1"
    await asyncio.to_thread(run, tmp_path / FILE_NAME, wrong)

    async with Outbox.of(tmp_path, clock=clock) as outbox:
        assert "set aside" in str(outbox.problem)
        assert [entry.draft.id for entry in await outbox.due("main", limit=9)] == [draft(2).id]


async def test_a_damaged_episode_is_named(outbox: Outbox, tmp_path: Path) -> None:
    await outbox.enqueue([draft(1)])
    await asyncio.to_thread(run, tmp_path / "graphiti" / FILE_NAME, "UPDATE episodes SET draft = '{'")

    with pytest.raises(BackendUnavailable, match="could not be read"):
        await outbox.due("main", limit=1)


# --- against the graph ---


async def test_the_graph_is_asked_only_for_what_this_workspace_told_it(tmp_path: Path, clock: Clock) -> None:
    async with Outbox.of(tmp_path, clock=clock, workspace="one") as outbox:
        await outbox.enqueue([draft(1)])
        await finish(outbox)
    async with Outbox.of(tmp_path, clock=clock, workspace="two") as outbox:
        await outbox.enqueue([draft(2)])
        await finish(outbox)

        assert [one.id for one in await stored_entries(outbox, "main")] == [draft(2).id]
        assert await outbox.groups() == ("main",)
    async with Outbox.of(tmp_path, clock=clock, workspace="three") as outbox:
        assert await outbox.groups() == ()


async def test_what_was_moved_is_no_loss_of_the_group_that_it_was_in(tmp_path: Path, clock: Clock) -> None:
    async with Outbox.of(tmp_path, clock=clock) as outbox:
        await outbox.enqueue([draft(1)])
        await finish(outbox)
    await asyncio.to_thread(run, tmp_path / FILE_NAME, "UPDATE episodes SET workspace = NULL")

    async with Outbox.of(tmp_path, clock=clock, workspace="one") as outbox:
        (entry,) = await unassigned_entries(outbox)
        await assign(outbox, moving=[(entry, draft(1, group="ours"))])
        await finish(outbox, "ours")

        assert await stored_entries(outbox, "main") == ()
        (stored,) = await stored_entries(outbox, "ours")
        assert (stored.state, stored.is_marked) == ("done", 1)


def run(path: Path, statement: str) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(statement)
