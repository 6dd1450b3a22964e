"""QMD's index follows the files: one update and one embedding at a time, through failures and restarts."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import apsw
import pytest

from composable_memory.errors import BackendRejected, BackendUnavailable
from composable_memory.interfaces import BackendServices
from composable_memory.supervision.backoff import Pace
from composable_memory.testing import FIXED_NOW
from composable_memory_adapters.qmd.installation import find_command
from composable_memory_adapters.qmd.maintenance.index_commands import IndexCommands
from composable_memory_adapters.qmd.maintenance.scheduler import MaintenanceScheduler
from composable_memory_adapters.qmd.settings import QmdSettings
from composable_memory_adapters.qmd.types import Home, Installation
from composable_memory_ops_logs import BackendDegraded, MemorySink, SyncComplete, SyncFailed, SyncStart
from tests.integration.graphiti.processes import is_running
from tests.integration.qmd.homes import furnish

PATIENCE_S = 20.0
UPDATED = "[1/1] notes (**/*.md)\n\nIndexed: 1 new, 0 updated, 2 unchanged, 0 removed\n"
EMBEDDED = "\x1b[32m✓ Done!\x1b[0m Embedded \x1b[1m1,234\x1b[0m chunks from 3 documents in 2s\n"

FAKE = """#!{python} -IS
import json, os, sys, time
verb, options = sys.argv[3], sys.argv[4:]
with open("called", "a") as log:
    log.write(" ".join([verb, *options, str(os.getpid())]) + "\\n")
with open("plan.json") as file:
    plan = json.load(file).get(verb, {{}})
open(os.environ["INDEX_PATH"], "a").close()
while plan.get("hangs"):
    time.sleep(0.05)
    with open("plan.json") as file:
        plan = json.load(file).get(verb, {{}})
sys.stdout.write(plan.get("says", ""))
sys.stderr.write(plan.get("complains", ""))
sys.exit(plan.get("code", 0))
"""


class Clock:
    """A clock that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = FIXED_NOW

    def __call__(self) -> datetime:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = furnish(tmp_path / "home-of-qmd")
    environ = {name: value for name, value in home.environ.items() if name != "CI"}
    return replace(home, environ=environ | {"QMD_SQLITE_BUSY_TIMEOUT": "50"})


@pytest.fixture
def clock() -> Clock:
    return Clock()


Opened = Callable[..., AbstractAsyncContextManager[MaintenanceScheduler]]


@pytest.fixture
def opened(home: Home, services: BackendServices, clock: Clock) -> Opened:
    """Return what opens the scheduler of the home with a command, and closes it."""

    @asynccontextmanager
    async def opened(command: Sequence[str], **options: object) -> AsyncIterator[MaintenanceScheduler]:
        settings = QmdSettings.model_validate({"command": "not looked at", **options})
        commands = IndexCommands(installation(command), home, settings.update)
        handed = replace(services, clock=clock)
        scheduler = MaintenanceScheduler(settings, commands=commands, home=home, services=handed)
        await scheduler.open()
        try:
            yield scheduler
        finally:
            await scheduler.close()

    return opened


def installation(command: Sequence[str]) -> Installation:
    return Installation(command=tuple(command), version="2.8.3")


@pytest.fixture
def real(qmd_command: str) -> Sequence[str]:
    return find_command(qmd_command, os.environ)


@dataclass
class Fake:
    """A command in the place of QMD that does what it is told, and writes down that it was called."""

    folder: Path
    command: Sequence[str]

    def plans(self, **plan: object) -> None:
        written = self.folder / "plan.json.new"
        written.write_text(json.dumps({"update": {"says": UPDATED}, **plan}))
        written.replace(self.folder / "plan.json")

    def called(self) -> list[str]:
        """Return the calls without the numbers of the processes."""
        return [line.rpartition(" ")[0] for line in self._lines()]

    def pids(self) -> list[int]:
        return [int(line.rpartition(" ")[2]) for line in self._lines()]

    async def until_called(self, *verbs: str) -> None:
        await until(lambda: [call.split()[0] for call in self.called()] == list(verbs))

    def _lines(self) -> list[str]:
        called = self.folder / "called"
        return called.read_text().splitlines() if called.exists() else []


@pytest.fixture
def fake(home: Home) -> Fake:
    script = home.root / "fake-qmd"
    script.write_text(FAKE.format(python=sys.executable))
    script.chmod(0o700)
    fake = Fake(folder=home.root, command=(str(script),))
    fake.plans(embed={"says": EMBEDDED})
    return fake


@pytest.fixture
def vectors(home: Home) -> dict[str, object]:
    """Return the options of a search mode that needs vectors, and whose model is there."""
    model = home.root / "tiny.gguf"
    model.write_bytes(b"GGUF")
    return {"search_mode": "query", "models": {"embed": str(model)}}


def notes(home: Home) -> Path:
    return home.root / "notes"


# --- updates by the real QMD ---


async def test_an_update_takes_in_what_is_new_changed_and_gone(
    real: Sequence[str], opened: Opened, home: Home
) -> None:
    async with opened(real) as scheduler:
        first = await scheduler.run("manual")
        (notes(home) / "tea.md").write_text("# Tea\n\nGreen.\n")
        second = await scheduler.run("manual")
        (notes(home) / "tea.md").write_text("# Tea\n\nBlack.\n")
        (notes(home) / "gateway.md").unlink()
        third = await scheduler.run("manual")

        reports = [
            (one.files_indexed, one.files_unchanged, one.files_removed) for one in (first, second, third)
        ]
        assert reports == [(1, 0, 0), (1, 1, 0), (1, 0, 1)]
        assert scheduler.state.counts == {"notes": 1}


async def test_exported_sessions_are_indexed_with_the_update(
    real: Sequence[str], opened: Opened, home: Home, services: BackendServices
) -> None:
    transcripts = services.state_dir / "agents" / "main" / "sessions"
    transcripts.mkdir(parents=True)
    line = json.dumps({"role": "user", "content": "The parrot is called Bosun."})
    (transcripts / "with space.jsonl").write_text(line + "\n")
    folder = home.root / "sessions"
    with home.config_file.open("a") as config:
        config.write(f"  sessions: {{path: {folder}, pattern: '**/*.md'}}\n")
    async with opened(real, sessions={"enabled": True}) as scheduler:
        report = await scheduler.run("manual")

        assert scheduler.exporter.folder == folder
        assert (report.files_indexed, report.problems) == (2, ())
        assert scheduler.state.counts == {"notes": 1, "sessions": 1}


async def test_a_later_process_knows_what_was_done(real: Sequence[str], opened: Opened, clock: Clock) -> None:
    async with opened(real) as scheduler:
        await scheduler.run("manual")
        before = scheduler.state
    clock.pass_(60)
    async with opened(real) as scheduler:
        assert scheduler.state == before
        assert before.last_update == FIXED_NOW


async def test_without_its_database_nothing_was_done(real: Sequence[str], opened: Opened, home: Home) -> None:
    async with opened(real) as scheduler:
        await scheduler.run("manual")
    home.index_file.unlink()
    async with opened(real) as scheduler:
        assert (scheduler.state.last_update, scheduler.state.counts) == (None, {})


@pytest.mark.thorough
async def test_a_busy_database_is_tried_again_by_who_is_patient(
    real: Sequence[str], opened: Opened, home: Home
) -> None:
    async with opened(real) as scheduler:
        await scheduler.run("manual")
    other = await asyncio.to_thread(apsw.Connection, str(home.index_file))
    waits = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            await asyncio.to_thread(other.execute, "ROLLBACK")

    other.execute("BEGIN IMMEDIATE")
    patient = IndexCommands(installation(real), home, QmdSettings().update, pace=Pace(sleep=wait))
    try:
        with pytest.raises(BackendUnavailable, match="busy"):
            await patient.update()
        outcome = await patient.update(is_patient=True)
    finally:
        other.close()

    assert waits == [0.5, 1.0]
    assert outcome.counts["notes"].unchanged == 1


@pytest.mark.thorough
async def test_a_forced_update_mends_a_damaged_database(
    real: Sequence[str], opened: Opened, home: Home
) -> None:
    home.index_file.write_bytes(b"This is no database. " * 500)
    async with opened(real) as scheduler:
        with pytest.raises(BackendUnavailable, match="damaged"):
            await scheduler.run("manual")
        report = await scheduler.run("cli", force=True)

        assert report.files_indexed == 1
        (aside,) = await asyncio.to_thread(lambda: [*home.root.rglob("index.sqlite.damaged-*")])
        assert str(aside) in report.problems[0]


async def test_a_forced_update_counts_every_file(real: Sequence[str], opened: Opened) -> None:
    async with opened(real) as scheduler:
        await scheduler.run("manual")
        report = await scheduler.run("cli", force=True)

        assert (report.files_indexed, report.files_unchanged) == (1, 0)


# --- who asks, and when ---


async def test_those_who_ask_while_an_update_runs_share_the_next(fake: Fake, opened: Opened) -> None:
    async with opened(fake.command) as scheduler:
        first = asyncio.create_task(scheduler.run("manual"))
        await fake.until_called("update")
        later = [asyncio.create_task(scheduler.run(reason)) for reason in ("search", "cli", "search")]
        reports = await asyncio.gather(first, *later)

        assert [report.reason for report in reports] == ["manual", *["search+cli"] * 3]
        assert fake.called() == ["update", "update"]


async def test_what_happens_is_logged(fake: Fake, opened: Opened, events: MemorySink) -> None:
    async with opened(fake.command) as scheduler:
        await scheduler.run("manual")
        fake.plans(update={"code": 1, "complains": "Error: the moon is full"})
        with pytest.raises(BackendRejected, match="the moon is full"):
            await scheduler.run("cli")

    assert [detail.reason for detail in events.details(SyncStart)] == ["manual", "cli"]
    assert [detail.files_indexed for detail in events.details(SyncComplete)] == [1]
    assert [detail.reason for detail in events.details(SyncFailed)] == ["cli"]


async def test_a_failure_is_told_until_an_update_goes_well(fake: Fake, opened: Opened) -> None:
    fake.plans(update={"code": 1, "complains": "Error: the moon is full"})
    async with opened(fake.command) as scheduler:
        for _ in range(2):
            with pytest.raises(BackendRejected):
                await scheduler.run("manual")
        failed = scheduler.state
        fake.plans()
        await scheduler.run("manual")

        assert failed.failures == 2
        assert "the moon is full" in (failed.problem or "")
        assert (scheduler.state.failures, scheduler.state.problem) == (0, None)


async def test_a_memory_that_opens_updates_in_the_background(fake: Fake, opened: Opened) -> None:
    async with opened(fake.command, update={"on_boot": True, "interval": 0}) as scheduler:
        await scheduler.start()
        before = scheduler.state.last_update
        await settled(scheduler)

        assert (before, scheduler.state.last_update) == (None, FIXED_NOW)


async def test_a_memory_may_wait_for_its_first_update(fake: Fake, opened: Opened) -> None:
    options = {"on_boot": True, "wait_for_boot_sync": True, "interval": 0}
    async with opened(fake.command, update=options) as scheduler:
        await scheduler.start()

        assert scheduler.state.last_update == FIXED_NOW


async def test_the_clock_asks_again_and_again_though_updates_fail(fake: Fake, opened: Opened) -> None:
    fake.plans(update={"code": 1})
    options = {"on_boot": False, "interval": "20ms", "debounce_ms": 0}
    async with opened(fake.command, update=options) as scheduler:
        await scheduler.start()
        await until(lambda: scheduler.state.failures >= 3)

        assert scheduler.next_update == FIXED_NOW + timedelta(milliseconds=20)


async def test_a_nudge_updates_behind_the_back_and_not_twice_in_a_row(
    fake: Fake, opened: Opened, clock: Clock
) -> None:
    async with opened(fake.command) as scheduler:
        scheduler.nudge("search")
        scheduler.nudge("search")
        await settled(scheduler)
        scheduler.nudge("search")
        clock.pass_(60)
        scheduler.nudge("search")
        await settled(scheduler)

        assert fake.called() == ["update", "update"]


async def settled(scheduler: MaintenanceScheduler) -> None:
    """Return when what runs in the background has ended."""
    await asyncio.sleep(0)
    await until(lambda: scheduler._updates.current is None and scheduler._nudged is None)


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not is_so():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0.005)


# --- embeddings ---


async def test_an_embedding_follows_the_update_where_the_mode_needs_it(
    fake: Fake, opened: Opened, vectors: dict[str, object]
) -> None:
    told: list[tuple[int, int]] = []
    async with opened(fake.command, **vectors) as scheduler:
        first = await scheduler.run("manual", progress=lambda step: told.append((step.completed, step.total)))
        second = await scheduler.run("manual")

        assert (first.embedded, second.embedded, second.embeddings_pending) == (1234, 0, 1)
        assert fake.called() == ["update", "embed --timeout 30", "update"]
        assert told == [(0, 2), (1, 2), (2, 2)]


async def test_a_search_by_words_embeds_nothing(fake: Fake, opened: Opened) -> None:
    async with opened(fake.command) as scheduler:
        await scheduler.run("manual", force=True)

        assert fake.called() == ["update"]


async def test_force_embeds_all_anew(fake: Fake, opened: Opened, vectors: dict[str, object]) -> None:
    async with opened(fake.command, **vectors) as scheduler:
        await scheduler.run("manual")
        await scheduler.run("cli", force=True)

        assert fake.called()[-1] == "embed --timeout 30 --force"


async def test_an_embedding_that_fails_is_a_problem_and_rests(
    fake: Fake, opened: Opened, clock: Clock, vectors: dict[str, object], events: MemorySink
) -> None:
    fake.plans(embed={"code": 1, "complains": "Error: out of memory"})
    async with opened(fake.command, **vectors) as scheduler:
        report = await scheduler.run("manual")
        await scheduler.run("manual")
        clock.pass_(60)
        await scheduler.run("manual")

        assert "out of memory" in report.problems[0]
        assert "out of memory" in (scheduler.state.embed_problem or "")
        assert [call.split()[0] for call in fake.called()] == ["update", "embed", "update", "update", "embed"]
        assert [detail.what for detail in events.details(BackendDegraded)] == ["vectors"]
        assert scheduler.state.problem is None


async def test_chunks_that_could_not_be_embedded_are_a_problem(
    fake: Fake, opened: Opened, vectors: dict[str, object]
) -> None:
    failed = "⚠ 2 chunks still failed after retries\n  notes/a.md#0 (3 attempts): too long\n"
    progress = "." * 100_000 + "\n"  # a search that tried each of them again would take minutes
    fake.plans(embed={"says": EMBEDDED + progress + failed})
    async with opened(fake.command, **vectors) as scheduler:
        report = await scheduler.run("manual")

        (problem,) = report.problems
        assert " 2 chunks" in problem
        assert problem.endswith("notes/a.md#0 (3 attempts): too long")
        assert scheduler.state.last_embed == FIXED_NOW


async def test_without_its_model_qmd_is_not_even_asked_to_embed(
    fake: Fake, opened: Opened, home: Home
) -> None:
    options = {"search_mode": "query", "models": {"embed": str(home.root / "missing.gguf")}}
    async with opened(fake.command, **options) as scheduler:
        report = await scheduler.run("manual")

        assert "`qmd pull`" in report.problems[0]
        assert fake.called() == ["update"]


async def test_of_two_processes_only_one_embeds(
    fake: Fake, opened: Opened, vectors: dict[str, object]
) -> None:
    fake.plans(embed={"hangs": True})
    async with opened(fake.command, **vectors) as one, opened(fake.command, **vectors) as other:
        running = asyncio.create_task(one.run("manual"))
        await fake.until_called("update", "embed")
        report = await other.run("manual")

        assert (report.embedded, report.problems) == (0, ())
        assert not running.done()
        assert [call.split()[0] for call in fake.called()] == ["update", "embed", "update"]
        running.cancel()


async def test_updates_go_on_while_an_embedding_runs(
    fake: Fake, opened: Opened, vectors: dict[str, object]
) -> None:
    fake.plans(embed={"hangs": True})
    async with opened(fake.command, update={"on_boot": True, "interval": 0}, **vectors) as scheduler:
        await scheduler.start()
        await fake.until_called("update", "embed")
        other = asyncio.create_task(scheduler.run("manual"))
        await fake.until_called("update", "embed", "update")

        assert scheduler.state.last_update == FIXED_NOW
        other.cancel()


# --- cancelling and closing ---


async def test_who_leaves_does_not_stop_the_update(fake: Fake, opened: Opened) -> None:
    fake.plans(update={"hangs": True})
    async with opened(fake.command) as scheduler:
        leaving = asyncio.create_task(scheduler.run("manual"))
        await fake.until_called("update")
        leaving.cancel()
        await asyncio.wait([leaving])
        fake.plans()
        await scheduler.run("cli")

        assert leaving.cancelled()
        assert fake.called() == ["update", "update"]


@pytest.mark.parametrize("verbs", [["update"], ["update", "embed"]], ids=lambda verbs: verbs[-1])
async def test_closing_in_the_middle_leaves_nothing_running(
    fake: Fake, opened: Opened, vectors: dict[str, object], verbs: list[str]
) -> None:
    fake.plans(**{verbs[-1]: {"hangs": True}})
    tasks = asyncio.all_tasks()
    async with opened(fake.command, **vectors) as scheduler:
        await scheduler.start()
        asked = asyncio.create_task(scheduler.run("manual"))
        await until(lambda: verbs[-1] in [call.split()[0] for call in fake.called()])
        await scheduler.close()

        with pytest.raises(BackendUnavailable, match="it is closed"):
            await asked
        with pytest.raises(BackendUnavailable, match="it is closed"):
            await scheduler.run("manual")
    assert asyncio.all_tasks() == tasks
    await until(lambda: not any(is_running(pid) for pid in fake.pids()))


async def test_closing_stops_an_export(fake: Fake, opened: Opened, services: BackendServices) -> None:
    transcripts = services.state_dir / "agents" / "main" / "sessions"
    transcripts.mkdir(parents=True)
    line = json.dumps({"role": "user", "content": "Hello. " * 100}) + "\n"
    for number in range(200):
        (transcripts / f"{number:03}.jsonl").write_text(line * 20)
    async with opened(fake.command, sessions={"enabled": True}) as scheduler:
        asked = asyncio.create_task(scheduler.run("manual"))
        await until(lambda: any(written(scheduler)))
        await scheduler.close()
        with pytest.raises(BackendUnavailable):
            await asked

        assert 0 < len(written(scheduler)) < 200
        assert fake.called() == []


def written(scheduler: MaintenanceScheduler) -> list[Path]:
    assert scheduler.exporter.folder is not None
    return list(scheduler.exporter.folder.glob("*.md"))
