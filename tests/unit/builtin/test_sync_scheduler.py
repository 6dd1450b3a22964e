"""When the index looks at the notes: after changes, at an interval, when a conversation begins."""

import asyncio
import math
import selectors
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import pairwise
from typing import ParamSpec, TypeVar

import pytest

from composable_memory_adapters.builtin.settings import SyncSettings
from composable_memory_adapters.builtin.sync.sync_scheduler import (
    FOLDERS_S,
    MAX_RETRY_S,
    MAX_SESSIONS,
    MOST_PATHS,
    Debounce,
    SyncScheduler,
    WatchStatus,
)
from composable_memory_adapters.builtin.sync.watch_scope import WatchReport
from composable_memory_ops_logs import MemorySink, OpsLog
from composable_memory_ops_logs.events import BackendDegraded

P = ParamSpec("P")
T = TypeVar("T")

DEBOUNCE_S = 1.5
HOUR_S = 3600.0
STANDS = WatchReport(folders=("/notes",))


class HastySelector(selectors.DefaultSelector):
    """Waits for nothing: where a loop would sleep, its time jumps to the next timer."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        found = super().select(0)
        if not found:
            assert timeout is not None, "nobody will ever go on"
            self.now += max(0.0, timeout)
        return found


class HastyLoop(asyncio.SelectorEventLoop):
    """A loop with a time of its own; it counts what other threads ask of it."""

    def __init__(self) -> None:
        self.clock = HastySelector()
        self.calls_from_threads = 0
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now

    def call_soon_threadsafe(self, *args: object, **options: object) -> asyncio.Handle:
        self.calls_from_threads += 1
        return super().call_soon_threadsafe(*args, **options)  # type: ignore[arg-type]


class AtOnce(ThreadPoolExecutor):
    """Does in place what is meant for a thread."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        try:
            done.set_result(fn(*args, **options))
        except ValueError as error:
            done.set_exception(error)
        return done


@pytest.fixture
def hasty() -> Iterator[Callable[[Awaitable[None]], HastyLoop]]:
    """Return what runs a test in its own time."""
    loop = HastyLoop()
    loop.set_default_executor(AtOnce())

    def run(test: Awaitable[None]) -> HastyLoop:
        loop.run_until_complete(test)
        return loop

    yield run
    loop.close()


class Notes:
    """Stands for the notes and their index: tells of changes, and when they were looked at."""

    def __init__(self) -> None:
        self.found = STANDS
        self.looks: list[tuple[float, str]] = []
        self.takes_s = 0.0
        self.is_fine = True
        self.is_watched = self.is_outdated = False
        self.misses_nothing = self.is_all_heard = True
        self.updates = 0
        self.tell: Callable[[str | None], None] = lambda _: None
        self.debounce: Debounce

    def update(self) -> WatchReport:
        self.updates += 1
        self.is_outdated = False
        return self.found

    def has_heard_all(self) -> bool:
        return self.is_all_heard and not self.is_outdated

    def stop(self) -> None:
        self.is_watched = False

    def watch(self, tell: Callable[[str | None], None]) -> "Notes":
        self.tell, self.is_watched = tell, True
        return self

    async def look(self, reason: str) -> bool:
        began = asyncio.get_running_loop().time()
        self.looks.append((began, reason))
        await asyncio.sleep(self.takes_s)
        if self.is_fine:
            self.debounce.forget_before(began)
        return self.is_fine

    async def change(self, *after_s: float) -> None:
        """Change a note after each of these times."""
        for pause_s in after_s:
            await asyncio.sleep(pause_s)
            self.tell("/notes/one.md")


@asynccontextmanager
async def scheduled(notes: Notes, ops_log: OpsLog, **options: object) -> AsyncIterator[SyncScheduler]:
    settings = SyncSettings.model_validate({"watchDebounceMs": DEBOUNCE_S * 1000, **options})
    notes.debounce = Debounce(DEBOUNCE_S)
    scheduler = SyncScheduler(
        settings,
        notes.debounce,
        open_watch=notes.watch,
        sync=notes.look,
        ops_log=ops_log,
        backend_id="builtin",
    )
    scheduler.start()
    try:
        await notes.debounce.is_watch_ready.wait()
        yield scheduler
    finally:
        await scheduler.stop()


Hasty = Callable[[Awaitable[None]], HastyLoop]

# --- changes ---


def test_a_sync_starts_when_the_notes_have_been_quiet_for_the_debounce_time(
    hasty: Hasty, ops_log: OpsLog
) -> None:
    notes = Notes()

    async def test() -> None:
        async with scheduled(notes, ops_log):
            await notes.change(10, 1)
            await asyncio.sleep(HOUR_S)

    hasty(test())

    ((time, reason),) = notes.looks
    assert (time, reason) == (11 + DEBOUNCE_S, "watch")


def test_notes_that_never_rest_are_looked_at_after_two_debounce_times(hasty: Hasty, ops_log: OpsLog) -> None:
    notes = Notes()

    async def test() -> None:
        async with scheduled(notes, ops_log):
            await notes.change(10, *[0.1] * 100)

    hasty(test())

    times = [time for time, _ in notes.looks]
    assert times[:3] == pytest.approx([10 + 2 * DEBOUNCE_S * round_ for round_ in (1, 2, 3)], abs=0.2)


def test_ten_thousand_changes_cost_the_loop_one_call_and_one_sync(hasty: Hasty, ops_log: OpsLog) -> None:
    notes = Notes()

    async def test() -> None:
        async with scheduled(notes, ops_log):
            storm = threading.Thread(target=lambda: [notes.tell("/notes/one.md") for _ in range(10_000)])
            before = loop.calls_from_threads
            storm.start()
            storm.join()
            assert loop.calls_from_threads - before == 1
            await asyncio.sleep(HOUR_S)

    loop = hasty(asyncio.sleep(0))
    hasty(test())

    assert len(notes.looks) == 1


def test_what_changes_while_a_sync_runs_is_seen_by_another(hasty: Hasty, ops_log: OpsLog) -> None:
    notes = Notes()
    notes.takes_s = 20

    async def test() -> None:
        async with scheduled(notes, ops_log):
            await notes.change(0, DEBOUNCE_S + 10)
            await asyncio.sleep(HOUR_S)

    hasty(test())

    assert [time for time, _ in notes.looks] == pytest.approx([DEBOUNCE_S, DEBOUNCE_S + 20])


def test_a_change_that_a_search_has_seen_to_is_not_looked_for_again(hasty: Hasty, ops_log: OpsLog) -> None:
    notes = Notes()

    async def test() -> None:
        async with scheduled(notes, ops_log):
            await notes.change(10)
            await asyncio.sleep(0.5)
            await notes.look("search")
            await asyncio.sleep(HOUR_S)

    hasty(test())

    assert [reason for _, reason in notes.looks] == ["search"]


def test_a_change_makes_a_search_look_after_the_debounce_time_already(hasty: Hasty, ops_log: OpsLog) -> None:
    notes = Notes()

    async def test() -> None:
        async with scheduled(notes, ops_log, recheckS=60.0) as scheduler:
            assert scheduler.recheck_s == 60
            await notes.change(0)
            assert scheduler.recheck_s == DEBOUNCE_S
            await asyncio.sleep(HOUR_S)
            assert scheduler.recheck_s == 60

    hasty(test())


def test_a_folder_that_is_newly_watched_is_looked_through(hasty: Hasty, ops_log: OpsLog) -> None:
    notes = Notes()

    async def test() -> None:
        async with scheduled(notes, ops_log) as scheduler:
            notes.found = WatchReport(folders=("/notes", "/notes/memory"), is_new=True)
            await asyncio.sleep(FOLDERS_S * 1.5)
            notes.found = WatchReport(folders=("/notes", "/notes/memory"))
            await asyncio.sleep(HOUR_S)
            assert scheduler.status.folders == ("/notes", "/notes/memory")

    hasty(test())

    assert notes.looks == [(FOLDERS_S, "watch")]


def test_folders_are_looked_at_for_a_change_of_folders_or_after_a_while_and_not_for_each_note(
    hasty: Hasty, ops_log: OpsLog
) -> None:
    notes = Notes()

    async def test() -> None:
        async with scheduled(notes, ops_log):
            await notes.change(0.5)
            await asyncio.sleep(FOLDERS_S / 2)
            assert (len(notes.looks), notes.updates) == (1, 1)
            notes.is_outdated = True
            await notes.change(0)
            await asyncio.sleep(1.1 * DEBOUNCE_S)
            assert (len(notes.looks), notes.updates) == (2, 2)
            await notes.change(*[FOLDERS_S * 0.4] * 10)
            assert notes.updates >= 4

    hasty(test())


async def test_what_changed_is_named_until_a_sync_has_seen_it() -> None:
    debounce, now = Debounce(0.0), asyncio.get_running_loop().time
    debounce.note_change("a")
    began = now()
    debounce.note_change("b")
    assert debounce.paths == {"a", "b"}
    debounce.forget_before(began)
    assert debounce.paths == {"b"}


@pytest.mark.parametrize("changed", [["a", None], [*map(str, range(MOST_PATHS + 1))]])
async def test_anything_may_have_changed_where_events_were_lost_or_are_many(
    changed: list[str | None],
) -> None:
    debounce = Debounce(0.0)
    for one in changed:
        debounce.note_change(one)
    assert debounce.paths is None
    debounce.forget_before(math.inf)
    assert debounce.paths == set()


def test_what_changed_is_told_where_all_was_heard_in_all_folders(hasty: Hasty, ops_log: OpsLog) -> None:
    notes = Notes()

    async def test() -> None:
        async with scheduled(notes, ops_log) as scheduler:
            assert await scheduler.changed() == set()
            await notes.change(0)
            assert await scheduler.changed() == {"/notes/one.md"}
            notes.is_all_heard = False
            assert await scheduler.changed() is None
            notes.is_all_heard, notes.misses_nothing = True, False
            assert await scheduler.changed() is None
            notes.misses_nothing = notes.is_outdated = True
            assert await scheduler.changed() == {"/notes/one.md"}
            notes.is_outdated, notes.found = True, replace(STANDS, is_new=True)
            assert await scheduler.changed() is None

    hasty(test())


async def test_a_change_that_is_heard_when_the_loop_has_ended_disturbs_nobody() -> None:
    def hear_late() -> None:
        loop = asyncio.new_event_loop()
        changes = loop.run_until_complete(made())
        loop.close()
        changes.note_change()

    async def made() -> Debounce:
        return Debounce(0.0)

    await asyncio.to_thread(hear_late)


# --- failures ---


def test_a_sync_that_fails_is_tried_again_without_another_change(hasty: Hasty, ops_log: OpsLog) -> None:
    notes = Notes()
    notes.is_fine = False

    async def test() -> None:
        async with scheduled(notes, ops_log):
            await notes.change(0)
            await asyncio.sleep(DEBOUNCE_S + 0.5)
            notes.is_fine = True
            await asyncio.sleep(HOUR_S)

    hasty(test())

    assert [time for time, _ in notes.looks] == pytest.approx([DEBOUNCE_S, DEBOUNCE_S + 1])


def test_syncs_that_keep_failing_are_tried_less_and_less_often(hasty: Hasty, ops_log: OpsLog) -> None:
    notes = Notes()
    notes.is_fine = False

    async def test() -> None:
        async with scheduled(notes, ops_log):
            await notes.change(0, *[0.05] * 1000)
            await asyncio.sleep(HOUR_S)

    hasty(test())

    times = [time for time, _ in notes.looks]
    pauses = [later - time for time, later in pairwise(times)]
    assert pauses[:4] == pytest.approx([1, 2, 4, 8])
    assert pauses[6:] == pytest.approx([MAX_RETRY_S] * len(pauses[6:]))
    assert len(pauses) > 50


def test_a_watch_that_fails_is_logged_once_and_taken_up_when_it_works(
    hasty: Hasty, ops_log: OpsLog, events: MemorySink
) -> None:
    notes = Notes()
    notes.found = WatchReport(problem="no more watches")

    async def test() -> None:
        async with scheduled(notes, ops_log) as scheduler:
            await asyncio.sleep(HOUR_S)
            assert scheduler.status == WatchStatus(state="failed", reason="no more watches")
            notes.found = STANDS
            await asyncio.sleep(FOLDERS_S)
            assert scheduler.status == WatchStatus(state="active", folders=("/notes",))

    hasty(test())

    assert events.details(BackendDegraded) == [
        BackendDegraded(what="watch", level="failed", reason="no more watches")
    ]


@pytest.mark.parametrize(
    ("options", "is_blind"),
    [({}, False), ({"onSearch": False}, True), ({"onSearch": False, "intervalMinutes": 1}, False)],
)
def test_only_who_has_no_other_means_is_blind_without_a_watch(
    hasty: Hasty, ops_log: OpsLog, options: dict[str, object], is_blind: bool
) -> None:
    notes = Notes()
    notes.found = WatchReport(folders=("/notes",), problem="no more watches")

    async def test() -> None:
        async with scheduled(notes, ops_log, **options) as scheduler:
            assert scheduler.status.state == "partial"
            assert scheduler.unwatched_reason == ("no more watches" if is_blind else None)

    hasty(test())


def test_nobody_waits_for_a_watch_that_ends_by_a_defect(hasty: Hasty, ops_log: OpsLog) -> None:
    def fail(tell: Callable[[str | None], None]) -> Notes:
        raise ValueError("a defect")

    async def test() -> None:
        debounce = Debounce(DEBOUNCE_S)
        scheduler = SyncScheduler(
            SyncSettings(),
            debounce,
            open_watch=fail,
            sync=Notes().look,
            ops_log=ops_log,
            backend_id="builtin",
        )
        scheduler.start()
        await debounce.is_watch_ready.wait()
        assert scheduler.status.state == "failed"
        assert "a defect" in (scheduler.status.reason or "")
        await scheduler.stop()

    hasty(test())


# --- other occasions ---


def test_the_interval_is_kept_with_and_without_a_watch(hasty: Hasty, ops_log: OpsLog) -> None:
    for watch in (True, False):
        notes = Notes()

        async def test(notes: Notes = notes, watch: bool = watch) -> None:
            async with scheduled(notes, ops_log, watch=watch, intervalMinutes=10):
                await asyncio.sleep(HOUR_S - 1)

        hasty(test())

        assert [reason for _, reason in notes.looks] == ["interval"] * 5


def test_without_a_watch_nothing_is_opened(hasty: Hasty, ops_log: OpsLog) -> None:
    notes = Notes()

    async def test() -> None:
        async with scheduled(notes, ops_log, watch=False) as scheduler:
            await asyncio.sleep(HOUR_S)
            assert (scheduler.status, notes.is_watched) == (WatchStatus(), False)

    hasty(test())


def test_a_conversation_is_new_once(hasty: Hasty, ops_log: OpsLog) -> None:
    async def test() -> None:
        async with scheduled(Notes(), ops_log) as scheduler:
            keys = ["a", "b", "a", "", None]
            assert [scheduler.is_new_session(key) for key in keys] == [True, True, False, False, False]

    hasty(test())


def test_a_conversation_is_forgotten_after_a_thousand_others(hasty: Hasty, ops_log: OpsLog) -> None:
    async def test() -> None:
        async with scheduled(Notes(), ops_log) as scheduler:
            for key in ["old", "older", *map(str, range(MAX_SESSIONS - 2)), "old", "one more"]:
                scheduler.is_new_session(key)
            assert [scheduler.is_new_session(key) for key in ("old", "older")] == [False, True]

    hasty(test())


def test_a_conversation_is_never_new_where_that_is_no_reason_to_look(hasty: Hasty, ops_log: OpsLog) -> None:
    async def test() -> None:
        async with scheduled(Notes(), ops_log, onSessionStart=False) as scheduler:
            assert not scheduler.is_new_session("a")

    hasty(test())


def test_stopping_ends_the_watch_and_leaves_no_task(hasty: Hasty, ops_log: OpsLog) -> None:
    notes = Notes()
    notes.takes_s = HOUR_S

    async def test() -> None:
        async with scheduled(notes, ops_log, intervalMinutes=1):
            await notes.change(0)
            await asyncio.sleep(100)
            assert notes.is_watched
        assert not notes.is_watched
        assert asyncio.all_tasks() == {asyncio.current_task()}

    hasty(test())
