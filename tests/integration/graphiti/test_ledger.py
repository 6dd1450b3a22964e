"""The ledger keeps what was handed in, says what is due, and forgets nothing that it took."""

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
from composable_memory_adapters.graphiti.writing import schema
from composable_memory_adapters.graphiti.writing.entries import EntryState
from composable_memory_adapters.graphiti.writing.ledger import FILE_NAME, Ledger
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from composable_memory_ops_logs.trace import trace
from tests.integration.graphiti.fact_shelf import draft

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
async def ledger(tmp_path: Path, clock: Clock) -> AsyncIterator[Ledger]:
    async with Ledger.open(tmp_path / "graphiti", clock=clock) as opened:
        yield opened


async def states(ledger: Ledger) -> Mapping[EntryState, int]:
    return (await ledger.counts()).by_state


async def due(ledger: Ledger, group: str = "main", limit: int = 50) -> list[str]:
    return [entry.draft.content.id for entry in await ledger.due(group, limit=limit)]


async def finish(ledger: Ledger, group: str = "main") -> None:
    await ledger.complete(await ledger.due(group, limit=50))


# --- taking in ---


async def test_what_is_new_is_due_in_the_order_in_which_it_came(ledger: Ledger) -> None:
    taken = await ledger.enqueue([draft(2), draft(1), draft(3)])

    assert taken.new == tuple(draft(number).id for number in (2, 1, 3))
    assert await due(ledger) == ["2", "1", "3"]
    assert await due(ledger, limit=2) == ["2", "1"]


async def test_the_same_text_again_is_known_whatever_became_of_it(ledger: Ledger) -> None:
    await ledger.enqueue([draft(1)])
    assert (await ledger.enqueue([draft(1)])).known == (draft(1).id,)
    await finish(ledger)
    assert (await ledger.enqueue([draft(1)])).known == (draft(1).id,)
    assert await states(ledger) == {"done": 1}


async def test_another_text_is_another_episode_and_the_earlier_one_is_retired_after_it(
    ledger: Ledger,
) -> None:
    await ledger.enqueue([draft(1)])
    await finish(ledger)

    taken = await ledger.enqueue([draft(1, "Something else.")])

    assert taken.changed == (draft(1).id,)
    (new,) = await ledger.due("main", limit=50)
    assert (new.draft_id, new.draft.text) == (draft(1).id, "Something else.")
    assert new.id != draft(1).id
    await finish(ledger)
    (old,) = await ledger.due("main", limit=50)
    assert (old.state, old.draft) == ("retiring", draft(1))


async def test_the_present_text_is_found_by_the_id_that_was_handed_in(ledger: Ledger) -> None:
    for text in ("One.", "Two.", "Three."):
        await ledger.enqueue([draft(1, text)])

    assert [entry.draft.text for entry in await ledger.entries([draft(1).id])] == ["Three."]
    assert [entry.draft.text for entry in await ledger.named("main", "1")] == ["One.", "Two.", "Three."]


async def test_a_text_that_comes_back_is_the_same_episode_as_before(ledger: Ledger) -> None:
    await ledger.enqueue([draft(1)])
    await finish(ledger)
    await ledger.enqueue([draft(1, "Something else.")])
    await finish(ledger)
    await ledger.complete(await ledger.due("main", limit=1), "retired")

    assert (await ledger.enqueue([draft(1)])).changed == (draft(1).id,)

    assert [entry.draft for entry in await ledger.due("main", limit=50)] == [draft(1)]
    assert await states(ledger) == {"queued": 1, "retiring": 1}


async def test_what_a_source_says_no_more_is_to_be_retired(ledger: Ledger) -> None:
    await ledger.replace_source("x.md", [draft(1), draft(2)], group_id="main")
    await ledger.enqueue([draft(3)])
    await finish(ledger)

    taken = await ledger.replace_source("x.md", [draft(2), draft(4)], group_id="main")

    assert (taken.new, taken.known, taken.vanished) == ((draft(4).id,), (draft(2).id,), (draft(1).id,))
    assert await due(ledger) == ["4"], "what is restated is stored before what vanished is retired"
    await finish(ledger)
    assert await due(ledger) == ["1"]


async def test_a_source_that_is_gone_leaves_all_it_said_to_be_retired(ledger: Ledger) -> None:
    await ledger.replace_source("x.md", [draft(1)], group_id="main")
    await finish(ledger)

    assert (await ledger.replace_source("x.md", [], group_id="main")).vanished == (draft(1).id,)


async def test_what_moved_to_another_source_is_not_retired_with_the_first(ledger: Ledger) -> None:
    await ledger.replace_source("x.md", [draft(1)], group_id="main")
    await finish(ledger)
    await ledger.replace_source("y.md", [draft(1)], group_id="main")

    assert (await ledger.replace_source("x.md", [], group_id="main")).vanished == ()


async def test_what_was_retired_and_is_said_again_is_stored_again(ledger: Ledger) -> None:
    await ledger.replace_source("x.md", [draft(1)], group_id="main")
    await finish(ledger)
    await ledger.replace_source("x.md", [], group_id="main")
    await ledger.complete(await ledger.due("main", limit=1), "retired")

    assert (await ledger.replace_source("x.md", [draft(1)], group_id="main")).new == (draft(1).id,)
    assert await due(ledger) == ["1"]


async def test_a_text_that_was_cut_into_more_parts_before_leaves_none_behind(ledger: Ledger) -> None:
    content = draft(1).content
    cut = {
        words: drafts_of(replace(content, text="word " * words), group_id="main", now=START, max_chars=200)
        for words in (100, 50)
    }
    await ledger.enqueue(cut[100])
    await finish(ledger)

    taken = await ledger.enqueue(cut[50])

    assert [len(cut[100]), len(cut[50])] == [3, 2]
    assert taken.vanished == (cut[100][2].id,)


async def test_the_trace_of_who_handed_it_in_is_kept(ledger: Ledger) -> None:
    with trace("t-1"):
        await ledger.enqueue([draft(1)])

    assert (await ledger.due("main", limit=1))[0].trace_id == "t-1"


async def test_on_a_full_disk_nothing_is_taken_and_that_is_said(tmp_path: Path, clock: Clock) -> None:
    def small(connection: Connection) -> None:
        connection.execute("PRAGMA max_page_count = 14")

    async with SqliteFile.open(tmp_path / FILE_NAME, on_connect=small) as file:
        ledger = Ledger(file, clock=clock)
        await ledger.prepare()
        await ledger.enqueue([draft(1)])

        with pytest.raises(BackendUnavailable, match=r"none of them was taken \(.*full.*\); free some space"):
            await ledger.enqueue([draft(2), draft(3, "x" * 1_000_000)])

        assert await states(ledger) == {"queued": 1}
        await ledger.enqueue([draft(4)])
        assert await due(ledger) == ["1", "4"]


# --- what was done ---


async def test_what_was_changed_while_it_was_stored_is_retired_then(ledger: Ledger) -> None:
    await ledger.enqueue([draft(1)])
    under_way = await ledger.due("main", limit=1)
    await ledger.enqueue([draft(1, "Something else.")])

    await ledger.complete(under_way)

    assert await states(ledger) == {"queued": 1, "retiring": 1}


async def test_what_vanished_while_it_was_stored_is_retired_then(ledger: Ledger) -> None:
    await ledger.replace_source("x.md", [draft(1)], group_id="main")
    under_way = await ledger.due("main", limit=1)
    await ledger.replace_source("x.md", [], group_id="main")

    await ledger.complete(under_way)

    assert await states(ledger) == {"retiring": 1}


async def test_a_group_in_trouble_is_left_alone_twice_as_long_each_time(ledger: Ledger, clock: Clock) -> None:
    await ledger.enqueue([draft(1), draft(2), draft(3, group="other")])
    pauses = []
    for _ in range(9):
        await ledger.postpone(await ledger.due("main", limit=1), "down", pause_s=30, max_attempts=None)
        assert await ledger.groups_due() == ("other",)
        (entry,) = await ledger.entries([draft(1).id])
        assert entry.next_try_at is not None
        pauses.append((entry.next_try_at - clock()).total_seconds())
        clock.now = entry.next_try_at

    assert pauses == [30, 60, 120, 240, 480, 960, 1920, 3600, 3600]
    assert (await ledger.counts()).last_error == "down"


async def test_one_that_went_wrong_before_comes_alone(ledger: Ledger, clock: Clock) -> None:
    await ledger.enqueue([draft(number) for number in range(4)])
    await ledger.postpone(await ledger.due("main", limit=2), "slow", pause_s=1, max_attempts=3)
    clock.advance(60)

    assert await due(ledger) == ["0"]
    await finish(ledger)
    assert await due(ledger) == ["1"]
    await finish(ledger)
    assert await due(ledger) == ["2", "3"]


async def test_after_too_many_tries_it_waits_for_somebody_to_ask(ledger: Ledger, clock: Clock) -> None:
    await ledger.enqueue([draft(1)])
    for _ in range(2):
        await ledger.postpone(await ledger.due("main", limit=1), "slow", pause_s=1, max_attempts=2)
        clock.advance(60)
    assert await states(ledger) == {"failed": 1}
    assert await ledger.next_due() is None

    assert await ledger.revive() == 1

    assert await due(ledger) == ["1"]


async def test_what_is_to_be_retired_is_never_given_up(ledger: Ledger, clock: Clock) -> None:
    await ledger.replace_source("x.md", [draft(1)], group_id="main")
    await ledger.replace_source("x.md", [], group_id="main")
    for _ in range(3):
        await ledger.postpone(await ledger.due("main", limit=1), "slow", pause_s=1, max_attempts=1)
        clock.advance(3600)

    assert await states(ledger) == {"retiring": 1}


async def test_what_is_forgotten_does_not_come_back(ledger: Ledger) -> None:
    await ledger.enqueue([draft(1, "The zeppelin is grey.")])
    await finish(ledger)

    await ledger.forget([draft(1).id])

    assert await ledger.entries([draft(1).id]) == ()
    assert (await ledger.enqueue([draft(1, "The zeppelin is grey.")])).known == (draft(1).id,)
    assert await due(ledger) == []
    assert (await ledger.enqueue([draft(1, "The zeppelin is red.")])).new == (draft(1).id,)


async def test_what_is_forgotten_is_not_in_the_file_any_more(tmp_path: Path, clock: Clock) -> None:
    async with Ledger.open(tmp_path, clock=clock) as ledger:
        await ledger.enqueue([draft(1, "The zeppelin is grey."), draft(2, "The ferry is late.")])
        await ledger.forget([draft(1).id])

    stored = (tmp_path / FILE_NAME).read_bytes()
    assert b"ferry" in stored
    assert b"zeppelin" not in stored


async def test_an_episode_is_found_by_either_id(ledger: Ledger) -> None:
    await ledger.enqueue([draft("a"), draft("a", group="other")])

    for name in ("a", draft("a").id):
        assert [entry.id for entry in await ledger.named("main", name)] == [draft("a").id]


# --- the file ---


async def test_everything_is_there_after_opening_again(tmp_path: Path, clock: Clock) -> None:
    async with Ledger.open(tmp_path, clock=clock) as ledger:
        await ledger.enqueue([draft(1), draft(2)])
        await ledger.complete(await ledger.due("main", limit=1))

    async with Ledger.open(tmp_path, clock=clock) as ledger:
        assert await due(ledger) == ["2"]
        assert await states(ledger) == {"done": 1, "queued": 1}


async def test_a_lease_is_held_by_one_at_a_time_for_each_group(tmp_path: Path, clock: Clock) -> None:
    async with Ledger.open(tmp_path, clock=clock) as one, Ledger.open(tmp_path, clock=clock) as two:
        async with one.lease("main") as first, two.lease("main") as second, two.lease("other") as third:
            assert (first, second, third) == (True, False, True)
        async with two.lease("main") as fourth:
            assert fourth


async def test_a_file_of_a_later_version_is_not_touched(tmp_path: Path, clock: Clock) -> None:
    async with Ledger.open(tmp_path, clock=clock) as ledger:
        await ledger.enqueue([draft(1)])
    await asyncio.to_thread(run, tmp_path / FILE_NAME, f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")

    with pytest.raises(BackendUnavailable, match="upgrade composable-memory"):
        async with Ledger.open(tmp_path, clock=clock):
            pass


async def test_what_is_no_ledger_is_set_aside_and_named(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"something else entirely" * 100)

    async with Ledger.open(tmp_path, clock=clock) as ledger:
        problem = str(ledger.problem)
        await ledger.enqueue([draft(1)])
    async with Ledger.open(tmp_path, clock=clock) as ledger:
        assert ledger.problem is None

    (aside,) = await asyncio.to_thread(lambda: [*tmp_path.glob("*.damaged-*")])
    assert str(aside) in problem
    assert aside.read_bytes() == b"something else entirely" * 100


async def test_a_ledger_that_was_emptied_is_named_and_a_first_use_is_not(
    tmp_path: Path, clock: Clock
) -> None:
    async with Ledger.open(tmp_path, clock=clock) as ledger:
        assert ledger.problem is None
        await ledger.enqueue([draft(1)])
    (tmp_path / FILE_NAME).write_bytes(b"")

    async with Ledger.open(tmp_path, clock=clock) as ledger:
        assert "emptied" in str(ledger.problem)
        assert (await ledger.enqueue([draft(1)])).new
    async with Ledger.open(tmp_path, clock=clock) as ledger:
        assert ledger.problem is None
        assert await asyncio.to_thread(lambda: [*tmp_path.glob(".*")]) == []


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
@pytest.mark.parametrize("round_", range(3))
async def test_what_can_be_read_of_a_damaged_ledger_is_saved_and_that_is_said(
    tmp_path: Path, clock: Clock, damage: Callable[[bytearray], None], round_: int
) -> None:
    drafts = [draft(number, text="x" * 700 * (round_ + 1)) for number in range(60)]
    async with Ledger.open(tmp_path, clock=clock) as ledger:
        await ledger.enqueue(drafts)
    file = tmp_path / FILE_NAME
    data = bytearray(file.read_bytes())
    damage(data)
    file.write_bytes(data)

    async with Ledger.open(tmp_path, clock=clock) as ledger:
        assert "set aside" in str(ledger.problem)
        saved = await ledger.entries([one.id for one in drafts])
        taken = await ledger.enqueue(drafts)
    if damage is not flip:
        assert saved
    assert all(entry.draft in drafts for entry in saved)
    assert len(taken.known) == len(saved)
    assert len(taken.new) == len(drafts) - len(saved)
    async with Ledger.open(tmp_path, clock=clock) as ledger:
        assert ledger.problem is None


async def test_what_is_saved_of_a_damaged_ledger_stays_with_its_workspace(
    tmp_path: Path, clock: Clock
) -> None:
    async with Ledger.open(tmp_path, clock=clock, workspace="one") as ledger:
        await ledger.enqueue([draft(1)])
        await finish(ledger)
    async with Ledger.open(tmp_path, clock=clock, workspace="two") as ledger:
        await ledger.enqueue([draft(2), draft(3)])
    wrong = "UPDATE episodes SET draft = '{' WHERE sequence = 3; INSERT INTO claims VALUES ('main', 'one')"
    await asyncio.to_thread(run, tmp_path / FILE_NAME, wrong)

    async with Ledger.open(tmp_path, clock=clock, workspace="one") as ledger:
        assert "set aside" in str(ledger.problem)
        assert await states(ledger) == {"done": 1}
        assert await ledger.claimed() == {"main"}
        (stored,) = await ledger.stored("main")
        assert stored.is_marked
    async with Ledger.open(tmp_path, clock=clock, workspace="two") as ledger:
        assert await due(ledger) == ["2"]


async def test_what_an_earlier_version_wrote_is_saved_of_its_damaged_ledger(
    tmp_path: Path, clock: Clock
) -> None:
    async with Ledger.open(tmp_path, clock=clock) as ledger:
        await ledger.enqueue([draft(1), draft(2)])
    earlier = """
    DROP INDEX episodes_of_nobody; DROP TABLE claims; DROP TABLE restored;
    ALTER TABLE episodes DROP COLUMN workspace; ALTER TABLE episodes DROP COLUMN is_marked;
    UPDATE episodes SET draft = '{' WHERE sequence = 2; PRAGMA user_version = 1
    """
    await asyncio.to_thread(run, tmp_path / FILE_NAME, earlier)

    async with Ledger.open(tmp_path, clock=clock) as ledger:
        assert "set aside" in str(ledger.problem)
        assert await ledger.of_nobody() == {"main": 1}


async def test_a_damaged_episode_that_waits_is_seen_when_the_ledger_is_opened(
    tmp_path: Path, clock: Clock
) -> None:
    async with Ledger.open(tmp_path, clock=clock) as ledger:
        await ledger.enqueue([draft(1), draft(2)])
    wrong = "UPDATE episodes SET draft = replace(draft, 'text', 'tex') WHERE sequence = 1"
    await asyncio.to_thread(run, tmp_path / FILE_NAME, wrong)

    async with Ledger.open(tmp_path, clock=clock) as ledger:
        assert "set aside" in str(ledger.problem)
        assert [entry.draft.id for entry in await ledger.due("main", limit=9)] == [draft(2).id]


async def test_a_damaged_episode_is_named(ledger: Ledger, tmp_path: Path) -> None:
    await ledger.enqueue([draft(1)])
    await asyncio.to_thread(run, tmp_path / "graphiti" / FILE_NAME, "UPDATE episodes SET draft = '{'")

    with pytest.raises(BackendUnavailable, match="could not be read"):
        await ledger.due("main", limit=1)


# --- against the graph ---


async def test_the_graph_is_asked_only_for_what_this_workspace_told_it(tmp_path: Path, clock: Clock) -> None:
    async with Ledger.open(tmp_path, clock=clock, workspace="one") as ledger:
        await ledger.enqueue([draft(1)])
        await finish(ledger)
    async with Ledger.open(tmp_path, clock=clock, workspace="two") as ledger:
        await ledger.enqueue([draft(2)])
        await finish(ledger)

        assert [one.id for one in await ledger.stored("main")] == [draft(2).id]
        assert await ledger.groups() == ("main",)
    async with Ledger.open(tmp_path, clock=clock, workspace="three") as ledger:
        assert await ledger.groups() == ()


async def test_what_was_moved_is_no_loss_of_the_group_that_it_was_in(tmp_path: Path, clock: Clock) -> None:
    async with Ledger.open(tmp_path, clock=clock) as ledger:
        await ledger.enqueue([draft(1)])
        await finish(ledger)
    await asyncio.to_thread(run, tmp_path / FILE_NAME, "UPDATE episodes SET workspace = NULL")

    async with Ledger.open(tmp_path, clock=clock, workspace="one") as ledger:
        (entry,) = await ledger.entries_of_nobody()
        await ledger.move([(entry, draft(1, group="ours"))], [])
        await finish(ledger, "ours")

        assert await ledger.stored("main") == ()
        (stored,) = await ledger.stored("ours")
        assert (stored.state, stored.is_marked) == ("done", 1)


def run(path: Path, statement: str) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(statement)
