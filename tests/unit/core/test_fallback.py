"""A memory with a fallback: falling back, saying so, and coming back without anybody waiting for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import pytest

from composable_memory.errors import (
    BackendError,
    BackendUnavailable,
    ConfigError,
    MemoryPathError,
    UnsupportedOperation,
)
from composable_memory.interfaces import Capability, MemorySearchManager
from composable_memory.runtime.failover import FailoverMember, FallbackMemoryManager, OpenMemory
from composable_memory.supervision.breaker import Breaker
from composable_memory.testing import (
    FIXED_NOW,
    FakeBackend,
    FlakyBackend,
    HangingBackend,
    InMemoryBackend,
    RaisingBackend,
    RubbishBackend,
)
from composable_memory.types import (
    Degradation,
    FallbackStatus,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    SearchAnswer,
    SearchOptions,
    SyncReport,
)
from composable_memory_ops_logs import (
    BackendDegraded,
    BackendRecovered,
    MemorySink,
    OpsLog,
    current_trace_id,
    trace,
)

ABLE = frozenset({Capability.ANSWER, Capability.CALIBRATED, Capability.READ_FILE})
KEYWORDS = Degradation(backend_id="builtin", code="keyword-only", reason="there is no embedder")
NOTES = {"MEMORY.md": "The ferry leaves at 06:40.\n"}


@dataclass
class Time:
    """A clock that goes on when it is told to."""

    passed_s: float = 0.0

    def now(self) -> datetime:
        return FIXED_NOW + timedelta(seconds=self.passed_s)

    def monotonic(self) -> float:
        return self.passed_s


class Shelf:
    """Opens its memories one after another, and the last one again and again; an exception is raised."""

    def __init__(self, *memories: MemorySearchManager | Exception) -> None:
        self.memories = list(memories)
        self.opened: list[MemorySearchManager] = []
        self.attempts = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[MemorySearchManager]:
        memory = self.memories[min(self.attempts, len(self.memories) - 1)]
        self.attempts += 1
        if isinstance(memory, Exception):
            raise memory
        self.opened.append(memory)
        try:
            yield memory
        finally:
            await memory.close()


class Stand:
    """A fallback manager on a clock and a log of its own, over two shelves."""

    def __init__(self, ops_log: OpsLog, primary: Shelf, fallback: Shelf, **options: float) -> None:
        self.time = Time()
        self.primary = primary
        self.fallback = fallback
        self.manager = FallbackMemoryManager(
            FailoverMember(
                id="qmd",
                open=primary.open,
                timeout_s=options.get("primary_timeout_s", 5.0),
                capabilities=ABLE | {Capability.SYNC},
            ),
            FailoverMember(
                id="builtin",
                open=fallback.open,
                timeout_s=options.get("fallback_timeout_s", 5.0),
                capabilities=ABLE,
            ),
            open_timeout_s=options.get("open_timeout_s", 5.0),
            ops_log=ops_log,
            clock=self.time.now,
            breaker=Breaker(threshold=1, cooldown_s=5.0, max_cooldown_s=300.0, clock=self.time.monotonic),
        )

    def told(self) -> dict[str, object]:
        """Return what the status says of the fallback."""
        told = self.manager.status().custom["fallback"]
        assert isinstance(told, dict)
        return dict(told)

    async def trial(self) -> None:
        """Let the rest pass, begin the trial by a call, and wait until it is over."""
        failed = self.told()["failures"]
        assert isinstance(failed, int)
        self.time.passed_s += min(300.0, 5.0 * 2 ** (failed - 1))
        await asyncio.gather(self.manager.search("ferry"), return_exceptions=True)
        async with asyncio.timeout(5):
            while self.told()["state"] == "half-open":  # noqa: ASYNC110 - a trial tells nobody
                await asyncio.sleep(0)


def in_memory(name: str) -> InMemoryBackend:
    return InMemoryBackend(NOTES, backend_id=name)


@asynccontextmanager
async def standing(
    ops_log: OpsLog, primary: Shelf, fallback: Shelf, **options: float
) -> AsyncIterator[Stand]:
    stand = Stand(ops_log, primary, fallback, **options)
    async with stand.manager:
        yield stand


def codes(answer: SearchAnswer) -> list[tuple[str, str]]:
    return [(one.backend_id, one.code) for one in answer.degraded]


async def test_the_primary_answers_and_the_stand_in_is_not_even_opened(ops_log: OpsLog) -> None:
    async with standing(ops_log, Shelf(in_memory("qmd")), Shelf(in_memory("builtin"))) as stand:
        answer = await stand.manager.answer("ferry")

        assert answer.results[0].path == "MEMORY.md"
        assert answer.degraded == ()
        assert stand.manager.status().backend == "qmd"
        assert stand.told()["state"] == "closed"
        assert stand.fallback is not None
        assert stand.fallback.attempts == 0


async def test_the_first_failure_is_answered_by_the_stand_in_which_says_why(ops_log: OpsLog) -> None:
    async with standing(ops_log, Shelf(RaisingBackend()), Shelf(in_memory("builtin"))) as stand:
        answer = await stand.manager.answer("ferry")

        assert answer.results[0].path == "MEMORY.md"
        assert codes(answer) == [("qmd", "fallback")]
        assert answer.engines == {"builtin keyword": "words"}
        facts = (
            "'raising'",
            "it always fails",
            "builtin",
            "qmd",
            "2026-06-01T12:00:00Z",
            "2026-06-01T12:00:05Z",
        )
        assert [fact for fact in facts if fact not in answer.degraded[0].reason] == []


async def test_while_the_primary_rests_it_is_not_asked(ops_log: OpsLog) -> None:
    raising = RaisingBackend()
    async with standing(ops_log, Shelf(raising), Shelf(in_memory("builtin"))) as stand:
        for moment in (0.0, 1.0, 4.9):
            stand.time.passed_s = moment
            await stand.manager.search("ferry")

        assert len(raising.asked) == 1


async def test_a_status_tells_from_what_to_what_why_since_when_and_when_next(ops_log: OpsLog) -> None:
    async with standing(ops_log, Shelf(RaisingBackend()), Shelf(in_memory("builtin"))) as stand:
        await stand.manager.search("ferry")
        status = stand.manager.status()

        reason = "backend 'raising' failed to search: it always fails"
        assert status.backend == "builtin"
        assert status.fallback == FallbackStatus(from_="qmd", reason=reason)
        assert stand.told() == {
            "from": "qmd",
            "to": "builtin",
            "reason": reason,
            "since": "2026-06-01T12:00:00Z",
            "next_try": "2026-06-01T12:00:05Z",
            "failures": 1,
            "state": "open",
        }


async def test_a_good_trial_brings_the_primary_back(ops_log: OpsLog, events: MemorySink) -> None:
    async with standing(ops_log, Shelf(FlakyBackend(1, NOTES)), Shelf(in_memory("builtin"))) as stand:
        await stand.manager.search("ferry")
        await stand.trial()
        answer = await stand.manager.answer("ferry")

        assert answer.results[0].path == "MEMORY.md"
        assert answer.degraded == ()
        assert stand.manager.status().fallback is None
        assert events.details(BackendRecovered) == [BackendRecovered(what="builtin", failures=1, after_s=5.0)]


async def test_nobody_waits_for_a_trial(ops_log: OpsLog) -> None:
    class SlowToHeal(FlakyBackend):
        may_heal = asyncio.Event()

        async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
            if not self.failures:
                await self.may_heal.wait()
            return await super().answer(query, options)

    primary = SlowToHeal(1, NOTES)
    async with standing(ops_log, Shelf(primary), Shelf(in_memory("builtin"))) as stand:
        await stand.manager.search("ferry")
        stand.time.passed_s = 5.0
        during = [await stand.manager.answer("ferry") for _ in range(3)]
        state = stand.told()["state"]
        primary.may_heal.set()
        await stand.trial()

        assert [codes(one) for one in during] == [[("qmd", "fallback")]] * 3
        assert state == "half-open"
        assert stand.told()["state"] == "closed"


async def test_failed_trials_double_the_rest_up_to_five_minutes(ops_log: OpsLog, events: MemorySink) -> None:
    async with standing(ops_log, Shelf(RaisingBackend()), Shelf(in_memory("builtin"))) as stand:
        await stand.manager.search("ferry")
        rests = []
        for _ in range(8):
            await stand.trial()
            next_try = datetime.fromisoformat(str(stand.told()["next_try"]))
            rests.append((next_try - stand.time.now()).total_seconds())

        assert rests == [10, 20, 40, 80, 160, 300, 300, 300]
        assert stand.told()["failures"] == 9
        assert stand.told()["since"] == "2026-06-01T12:00:00Z"
        assert len(events.details(BackendDegraded)) == 9


async def test_a_recovery_starts_the_rests_anew(ops_log: OpsLog) -> None:
    mended = FlakyBackend(0, NOTES)
    async with standing(ops_log, Shelf(RaisingBackend(), mended), Shelf(in_memory("builtin"))) as stand:
        await stand.manager.search("ferry")
        await stand.trial()
        await stand.trial()
        mended.failures = 1
        await stand.manager.search("ferry")

        next_try = datetime.fromisoformat(str(stand.told()["next_try"]))
        assert (next_try - stand.time.now()).total_seconds() == 5
        assert stand.told()["failures"] == 1


async def test_a_primary_that_keeps_failing_is_closed_and_opened_anew(ops_log: OpsLog) -> None:
    broken = RaisingBackend()
    shelf = Shelf(broken, in_memory("qmd"))
    async with standing(ops_log, shelf, Shelf(in_memory("builtin"))) as stand:
        await stand.manager.search("ferry")
        await stand.trial()
        after_first = (shelf.attempts, broken.closed)
        await stand.trial()

        assert after_first == (1, 0)
        assert (shelf.attempts, broken.closed) == (2, 1)
        assert (await stand.manager.answer("ferry")).degraded == ()


async def test_a_primary_that_was_not_installed_is_found_once_it_is(ops_log: OpsLog) -> None:
    missing = BackendUnavailable("qmd", "command not found: qmd", fix="npm install -g @tobilu/qmd")
    async with standing(ops_log, Shelf(missing, in_memory("qmd")), Shelf(in_memory("builtin"))) as stand:
        before = await stand.manager.answer("ferry")
        status = stand.manager.status()
        await stand.trial()
        after = await stand.manager.answer("ferry")

        assert codes(before) == [("qmd", "fallback")]
        assert "npm install -g @tobilu/qmd" in before.degraded[0].reason
        assert (status.backend, status.files) == ("builtin", 1)
        assert after.degraded == ()


async def test_an_overdue_primary_is_given_up_for_the_stand_in(ops_log: OpsLog) -> None:
    hanging = HangingBackend()
    shelves = Shelf(hanging), Shelf(in_memory("builtin"))
    async with standing(ops_log, *shelves, primary_timeout_s=0.01) as stand:
        answer = await stand.manager.answer("ferry")

        assert answer.results
        assert "limit 0.01 s" in answer.degraded[0].reason
        assert hanging.cancelled == 1


async def test_a_primary_that_ignores_its_cancellation_is_left_behind(ops_log: OpsLog) -> None:
    class Stubborn(FakeBackend):
        may_end = asyncio.Event()

        async def search(
            self, query: str, options: SearchOptions | None = None
        ) -> tuple[MemorySearchResult, ...]:
            while not self.may_end.is_set():
                try:
                    await self.may_end.wait()
                except asyncio.CancelledError:
                    continue
            return ()

    stubborn = Stubborn("stubborn")
    shelves = Shelf(stubborn), Shelf(in_memory("builtin"))
    async with standing(ops_log, *shelves, primary_timeout_s=0.01) as stand:
        answer = await stand.manager.answer("ferry")
        stubborn.may_end.set()

        assert codes(answer) == [("qmd", "fallback")]


@pytest.mark.parametrize(
    "primary",
    [
        RaisingBackend(ZeroDivisionError("a stranger's fault")),
        RaisingBackend(asyncio.CancelledError()),
        RubbishBackend(None),
    ],
    ids=["foreign error", "cancelled from within", "no list"],
)
async def test_whatever_goes_wrong_the_stand_in_answers(
    ops_log: OpsLog, primary: MemorySearchManager
) -> None:
    async with standing(ops_log, Shelf(primary), Shelf(in_memory("builtin"))) as stand:
        answer = await stand.manager.answer("ferry")

        assert answer.results
        assert codes(answer) == [("qmd", "fallback")]


async def test_a_path_that_is_refused_is_an_answer_and_no_failure(ops_log: OpsLog) -> None:
    async with standing(ops_log, Shelf(in_memory("qmd")), Shelf(in_memory("builtin"))) as stand:
        with pytest.raises(MemoryPathError):
            await stand.manager.read_file("../outside.md")

        assert stand.told()["failures"] == 0
        assert stand.manager.fallback is None


async def test_an_operation_that_is_not_offered_is_no_failure(ops_log: OpsLog) -> None:
    async with standing(ops_log, Shelf(HangingBackend()), Shelf(in_memory("builtin"))) as stand:
        with pytest.raises(UnsupportedOperation):
            await stand.manager.read_file("MEMORY.md")

        assert stand.told()["failures"] == 0


class Broken(FakeBackend):
    """A memory of which nothing works."""

    def fault(self, operation: str) -> BackendError:
        return BackendError(self.id, operation, "the disk is gone")

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemorySearchResult]:
        raise self.fault("search")

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        raise self.fault("read a file")

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: object = None
    ) -> SyncReport:
        raise self.fault("sync")

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        raise self.fault("probe")

    async def probe_vector_availability(self) -> bool:
        raise self.fault("probe")

    def status(self) -> MemoryProviderStatus:
        raise self.fault("tell its status")


class Syncing(InMemoryBackend):
    """A memory that notes what it was told to sync."""

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: object = None
    ) -> SyncReport:
        self.synced = (reason, force)
        return SyncReport(reason=reason, files_indexed=1, problems=("one file was skipped",))

    async def probe_vector_availability(self) -> bool:
        return True

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        return MemoryEmbeddingProbeResult(ok=True)


async def test_reading_falls_back(ops_log: OpsLog) -> None:
    async with standing(ops_log, Shelf(Broken("qmd")), Shelf(in_memory("builtin"))) as stand:
        read = await stand.manager.read_file("MEMORY.md", from_line=1, lines=1)

        assert read.text == "The ferry leaves at 06:40."
        assert stand.told()["reason"] == "backend 'qmd' failed to read a file: the disk is gone"


async def test_probes_fall_back(ops_log: OpsLog) -> None:
    async with standing(ops_log, Shelf(Broken("qmd")), Shelf(Syncing(NOTES))) as stand:
        assert (await stand.manager.probe_embedding_availability()).ok
        assert await stand.manager.probe_vector_availability()


async def test_a_sync_of_a_primary_that_is_down_syncs_the_stand_in_and_says_so(ops_log: OpsLog) -> None:
    syncing = Syncing(NOTES)
    async with standing(ops_log, Shelf(Broken("qmd")), Shelf(syncing)) as stand:
        report = await stand.manager.sync(reason="cli", force=True)

        assert syncing.synced == ("cli", True)
        assert report.files_indexed == 1
        assert [problem.split(";")[0] for problem in report.problems] == [
            "backend 'qmd' failed to sync: the disk is gone",
            "one file was skipped",
        ]


async def test_a_status_that_cannot_be_told_is_a_bare_one(ops_log: OpsLog) -> None:
    async with standing(ops_log, Shelf(Broken("qmd")), Shelf(in_memory("builtin"))) as stand:
        status = stand.manager.status()

        assert (status.backend, status.provider) == ("qmd", "none")


async def test_when_both_fail_one_error_names_both(ops_log: OpsLog) -> None:
    async with standing(ops_log, Shelf(Broken("qmd")), Shelf(Broken("builtin"))) as stand:
        with pytest.raises(BackendUnavailable) as raised:
            await stand.manager.search("ferry")

        told = str(raised.value)
        assert told.count("the disk is gone") == 2
        assert [fact for fact in ("'qmd'", "'builtin'", "2026-06-01T12:00:05Z") if fact not in told] == []


async def test_a_path_that_only_the_primary_knows_is_not_called_wrong_while_it_is_down(
    ops_log: OpsLog,
) -> None:
    async with standing(ops_log, Shelf(Broken("qmd")), Shelf(in_memory("builtin"))) as stand:
        with pytest.raises(BackendUnavailable, match="the disk is gone"):
            await stand.manager.read_file("qmd/papers/one.md")
        with pytest.raises(MemoryPathError):
            await stand.manager.read_file("../outside.md")


async def test_both_may_be_missing_at_the_start(ops_log: OpsLog) -> None:
    missing = BackendUnavailable("qmd", "it is not installed", fix="install it")
    shelves = Shelf(missing, in_memory("qmd")), Shelf(missing)
    async with standing(ops_log, *shelves) as stand:
        with pytest.raises(BackendUnavailable, match="it is not installed"):
            await stand.manager.search("ferry")
        await stand.trial()

        assert (await stand.manager.answer("ferry")).results


async def test_a_setting_that_cannot_be_used_is_told_at_once_and_leaves_nothing(ops_log: OpsLog) -> None:
    wrong = ConfigError("memory.qmd.command", "it is empty")
    stand = Stand(ops_log, Shelf(wrong), Shelf(in_memory("builtin")))

    with pytest.raises(ConfigError, match=r"memory\.qmd\.command"):
        await stand.manager.__aenter__()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_failures_at_the_same_time_count_once(ops_log: OpsLog) -> None:
    async with standing(ops_log, Shelf(RaisingBackend()), Shelf(in_memory("builtin"))) as stand:
        answers = await asyncio.gather(*(stand.manager.answer("ferry") for _ in range(5)))

        assert [codes(one) for one in answers] == [[("qmd", "fallback")]] * 5
        assert stand.told()["failures"] == 1


class SlowThenBroken(InMemoryBackend):
    """Answers its first question when it is told to, and fails at all others."""

    def __init__(self) -> None:
        super().__init__(NOTES, backend_id="qmd")
        self.may_answer = asyncio.Event()
        self.calls = 0

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        self.calls += 1
        if self.calls > 1:
            raise BackendUnavailable(self.id, "it broke", fix="wait", operation="search")
        await self.may_answer.wait()
        return await super().answer(query, options)


async def test_an_answer_to_an_older_question_does_not_end_a_failover(ops_log: OpsLog) -> None:
    primary = SlowThenBroken()
    async with standing(ops_log, Shelf(primary), Shelf(in_memory("builtin"))) as stand:
        older = asyncio.create_task(stand.manager.answer("ferry"))
        while not primary.calls:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)
        assert codes(await stand.manager.answer("ferry")) == [("qmd", "fallback")]
        primary.may_answer.set()

        assert (await older).degraded == ()
        assert stand.told()["state"] == "open"
        assert stand.told()["failures"] == 1


async def test_a_failure_and_a_recovery_are_logged(ops_log: OpsLog, events: MemorySink) -> None:
    async with standing(ops_log, Shelf(FlakyBackend(1, NOTES)), Shelf(in_memory("builtin"))) as stand:
        await stand.manager.search("ferry")
        await stand.trial()

    assert [(one.action, one.status, one.backend) for one in events.events] == [
        ("backend.degraded", "partial", "qmd"),
        ("backend.recovered", "success", "qmd"),
    ]


async def test_a_trial_has_a_trace_of_its_own(ops_log: OpsLog, events: MemorySink) -> None:
    async with standing(ops_log, Shelf(FlakyBackend(1, NOTES)), Shelf(in_memory("builtin"))) as stand:
        with trace() as asked:
            await stand.manager.search("ferry")
            await stand.trial()

        assert current_trace_id() is None
    degraded, recovered = events.events
    assert degraded.trace_id == asked != recovered.trace_id


async def test_what_both_calibrate_is_calibrated() -> None:
    def able(primary: frozenset[Capability], fallback: frozenset[Capability]) -> frozenset[Capability]:
        opener: OpenMemory = Shelf(in_memory("any")).open
        return FallbackMemoryManager(
            FailoverMember(id="qmd", open=opener, timeout_s=1, capabilities=primary),
            FailoverMember(id="builtin", open=opener, timeout_s=1, capabilities=fallback),
        ).capabilities

    everything = ABLE | {Capability.SYNC}
    assert able(everything, everything) == everything
    assert able(everything, everything - {Capability.CALIBRATED}) == everything - {Capability.CALIBRATED}
    assert able(frozenset(), frozenset({Capability.SYNC, Capability.FACTS})) == {
        Capability.ANSWER,
        Capability.SYNC,
    }


@pytest.mark.parametrize("turns", range(12))
async def test_cancelled_at_any_moment_it_stays_usable(ops_log: OpsLog, turns: int) -> None:
    shelves = Shelf(FlakyBackend(1, NOTES)), Shelf(in_memory("builtin"))
    stand = Stand(ops_log, *shelves)
    asking = asyncio.create_task(stand.manager.search("ferry"))
    for _ in range(turns):
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])

    assert (await stand.manager.answer("ferry")).results
    await stand.manager.close()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_closing_ends_a_trial_and_an_opening(ops_log: OpsLog) -> None:
    class NeverOpens(Shelf):
        is_opening = asyncio.Event()

        @asynccontextmanager
        async def open(self) -> AsyncIterator[MemorySearchManager]:
            if self.attempts:
                self.is_opening.set()
                await asyncio.get_running_loop().create_future()
            async with super().open() as memory:
                yield memory

    shelf = NeverOpens(BackendUnavailable("qmd", "it is not installed", fix="install it"))
    async with standing(ops_log, shelf, Shelf(in_memory("builtin"))) as stand:
        stand.time.passed_s = 5.0
        await stand.manager.search("ferry")
        await shelf.is_opening.wait()

    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_close_that_is_cancelled_closes_both_all_the_same(ops_log: OpsLog) -> None:
    primary, fallback = RaisingBackend(), in_memory("builtin")
    stand = Stand(ops_log, Shelf(primary), Shelf(fallback))
    await stand.manager.search("ferry")
    closing = asyncio.create_task(stand.manager.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    await stand.manager.close()

    assert (primary.closed, fallback.closed) == (1, 1)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_cannot_be_closed_is_told_and_the_other_is_closed(ops_log: OpsLog) -> None:
    class Stuck(RaisingBackend):
        async def close(self) -> None:
            raise BackendError("qmd", "close", "its door is stuck")

    fallback = in_memory("builtin")
    stand = Stand(ops_log, Shelf(Stuck()), Shelf(fallback))
    await stand.manager.search("ferry")

    with pytest.raises(BackendError, match="its door is stuck"):
        await stand.manager.close()
    assert fallback.closed == 1


async def test_what_a_stand_in_lacks_is_told_beside_what_it_stands_in_for(ops_log: OpsLog) -> None:
    class Less(InMemoryBackend):
        async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
            answer = await super().answer(query, options)
            return replace(answer, degraded=(*answer.degraded, KEYWORDS))

    async with standing(ops_log, Shelf(RaisingBackend()), Shelf(Less(NOTES))) as stand:
        answer = await stand.manager.answer("ferry")

        assert [one.code for one in answer.degraded] == ["fallback", "keyword-only"]
