"""The builtin memory at its public door: what an answer lacks, what the status says, and how it ends."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from composable_memory.content import EmbedderInput
from composable_memory.errors import BackendError, BackendUnavailable, IndexTooNew
from composable_memory.interfaces import (
    CAPABILITY_PROTOCOLS,
    BackendServices,
    MemorySearchManager,
)
from composable_memory.testing import FIXED_NOW, FailingEmbedder, HashEmbedder
from composable_memory.types import (
    BatchStatus,
    CacheStatus,
    FtsStatus,
    MemoryEmbeddingProbeResult,
    SearchAnswer,
    SearchOptions,
    SourceCount,
    VectorStatus,
)
from composable_memory_adapters.builtin import spec
from composable_memory_adapters.builtin.backend import BuiltinMemory, open_builtin
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.store.schema import SCHEMA_VERSION
from composable_memory_adapters.sqlite_file import SqliteFile

OFF = {"enabled": False}


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = FIXED_NOW

    def __call__(self) -> object:
        return self.now


class Gate(HashEmbedder):
    """An embedder that waits until it is let through."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.open = asyncio.Event(), asyncio.Event()

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        self.asked.set()
        await self.open.wait()
        return await super().embed_batch(inputs)


def settings(**options: object) -> BuiltinSettings:
    return BuiltinSettings.model_validate(options)


def codes(answer: SearchAnswer) -> list[str]:
    return [shortcoming.code for shortcoming in answer.degraded]


NO_SYNC = {"sync": {"onSearch": False}}


# --- what an answer lacks ---


async def test_nothing_is_missing_from_a_synced_hybrid(services: BackendServices) -> None:
    async with open_builtin(settings(), replace(services, embedder=HashEmbedder())) as memory:
        await memory.sync()
        answer = await memory.answer("pump relay")

    assert answer.degraded == ()
    assert answer.results[0].path == "memory/2026-03-05.md"
    assert answer.engines == {"keyword": "fts5", "vector": "exact"}


@pytest.mark.parametrize(
    ("options", "embeds", "mode"),
    [
        ({}, True, "hybrid"),
        ({}, False, "keyword-only"),
        ({"store": {"vector": OFF}}, True, "keyword-only"),
        ({"store": {"fts": OFF}}, True, "vector-only"),
        ({"query": {"hybrid": OFF}}, True, "vector-only"),
        ({"query": {"hybrid": OFF}}, False, "keyword-only"),
        ({"store": {"fts": OFF}}, False, "disabled"),
        ({"store": {"fts": OFF, "vector": OFF}}, True, "disabled"),
    ],
)
async def test_status_and_answer_name_the_same_level(
    services: BackendServices, options: dict[str, object], embeds: bool, mode: str
) -> None:
    handed = replace(services, embedder=HashEmbedder()) if embeds else services
    async with open_builtin(settings(**options), handed) as memory:
        await memory.sync()
        answer = await memory.answer("pump relay")

        assert memory.status().custom["searchMode"] == mode
        assert codes(answer) == ([] if mode == "hybrid" else [mode])
        assert bool(answer.results) is (mode != "disabled")


async def test_the_reason_why_there_is_no_embedder_is_passed_on(services: BackendServices) -> None:
    handed = replace(services, embedder_problem="the model is not installed")
    async with open_builtin(settings(), handed) as memory:
        await memory.sync()
        (shortcoming,) = (await memory.answer("pump")).degraded

        assert shortcoming.reason == "the model is not installed"
        assert memory.status().custom["providerUnavailableReason"] == "the model is not installed"


async def test_a_search_before_any_sync_says_so(services: BackendServices) -> None:
    async with open_builtin(settings(**NO_SYNC), services) as memory:
        answer = await memory.answer("pump")

    assert answer.results == ()
    assert codes(answer) == ["keyword-only", "never-indexed"]
    assert "cmem index" in answer.degraded[1].reason


async def test_the_first_search_looks_for_notes_by_itself(services: BackendServices) -> None:
    patient = settings(sync={"onSearchWaitMs": 60_000})
    async with open_builtin(patient, services) as memory:
        answer = await memory.answer("pump relay")

    assert answer.results[0].path == "memory/2026-03-05.md"
    assert codes(answer) == ["keyword-only"]


async def test_a_search_waits_for_the_first_sync_that_runs(services: BackendServices) -> None:
    patient = settings(sync={"onSearchWaitMs": 60_000})
    for session_key in (None, "agent:main:main"):
        embedder = Gate()
        handed = replace(services, embedder=embedder, agent_id=f"for-{session_key is None}")
        async with open_builtin(patient, handed) as memory, asyncio.TaskGroup() as tasks:
            syncing = tasks.create_task(memory.sync(reason="boot"))
            await asyncio.sleep(0)  # so that the sync is running
            answer = await memory.answer("pump relay", SearchOptions(session_key=session_key))

            assert answer.results[0].path == "memory/2026-03-05.md", session_key
            assert not syncing.done(), "a search must not wait for vectors"
            embedder.open.set()


async def test_a_search_does_not_wait_for_vectors(services: BackendServices) -> None:
    embedder = Gate()
    patient = settings(sync={"onSearchWaitMs": 60_000})
    async with open_builtin(patient, replace(services, embedder=embedder)) as memory:
        answer = await memory.answer("pump relay")

        assert answer.results[0].path == "memory/2026-03-05.md"
        assert codes(answer) == ["vectors-pending"]
        await embedder.asked.wait()  # the answer is there as soon as all text is
        assert memory.status().custom["sync"]["label"] == "Embedding"  # type: ignore[index,call-overload]
        embedder.open.set()
        await memory.sync()
        assert codes(await memory.answer("pump relay")) == []


async def test_an_answer_from_an_index_that_is_behind_says_how_far_it_is(services: BackendServices) -> None:
    hasty = settings(sync={"onSearchWaitMs": 0})
    async with open_builtin(hasty, services) as memory:
        answer = await memory.answer("pump relay")

        assert codes(answer) == ["keyword-only", "stale"]
        assert "the notes" in answer.degraded[1].reason
        await memory.sync()
        assert codes(await memory.answer("pump relay")) == ["keyword-only"]


async def test_notes_are_looked_at_again_when_it_is_time(services: BackendServices, workspace: Path) -> None:
    clock = Hand()
    patient = settings(sync={"onSearchWaitMs": 60_000, "recheckS": 5})
    async with open_builtin(patient, replace(services, clock=clock)) as memory:  # type: ignore[arg-type]
        await memory.sync()  # a search would not wait for its end, from which the time counts
        (workspace / "memory" / "new.md").write_text("a lighthouse", encoding="utf-8")
        clock.now += timedelta(seconds=4)
        assert await memory.search("lighthouse") == ()
        clock.now += timedelta(seconds=2)

        assert [hit.path for hit in await memory.search("lighthouse")] == ["memory/new.md"]


async def test_what_another_process_indexed_is_found_without_a_sync_of_our_own(
    services: BackendServices,
) -> None:
    async with open_builtin(settings(**NO_SYNC), services) as memory:
        assert codes(await memory.answer("pump")) == ["keyword-only", "never-indexed"]
        async with open_builtin(settings(), services) as other:
            await other.sync()

        answer = await memory.answer("pump relay")
        assert answer.results[0].path == "memory/2026-03-05.md"
        assert codes(answer) == ["keyword-only"]


async def test_a_blank_query_has_no_results_and_starts_nothing(services: BackendServices) -> None:
    async with open_builtin(settings(), services) as memory:
        assert await memory.answer(" \n\t ") == SearchAnswer(results=())
        assert memory.status().files == 0


async def test_an_embedder_that_fails_at_the_query_leaves_the_keywords(services: BackendServices) -> None:
    async with open_builtin(settings(**NO_SYNC), replace(services, embedder=FailingEmbedder())) as memory:
        await memory.sync()
        answer = await memory.answer("pump relay")

    assert answer.results[0].path == "memory/2026-03-05.md"
    assert "keyword-only" in codes(answer)


# --- what the status says ---


async def test_the_status_tells_everything_without_reading_anything(
    services: BackendServices, workspace: Path, state_dir: Path
) -> None:
    handed = replace(services, embedder=HashEmbedder(), requested_embedder="hash")
    options = {"extraPaths": ["../team"], "cache": {"maxEntries": 1000}}
    async with open_builtin(settings(**options), handed) as memory:
        await memory.sync()
        await memory.search("pump")
        status = memory.status()

    assert status.db_path is not None
    assert Path(status.db_path).parent == state_dir / "memory"
    assert status == replace(
        status,
        backend="builtin",
        provider="hash",
        model="hash-64",
        requested_provider="hash",
        files=9,
        chunks=status.chunks,
        dirty=False,
        workspace_dir=str(workspace),
        extra_paths=("../team",),
        sources=("memory",),
        source_counts=(SourceCount(source="memory", files=9, chunks=status.chunks or 0),),
        cache=CacheStatus(enabled=True, entries=status.chunks, max_entries=1000),
        fts=FtsStatus(enabled=True, available=True),
        fallback=None,
        vector=VectorStatus(enabled=True, available=True, engine="exact", dims=64),
        batch=BatchStatus(enabled=False),
        custom={
            "searchMode": "hybrid",
            "embedding": {"embedded": status.chunks, "total": status.chunks},
            "embeddingCache": {"hits": 0, "misses": status.chunks, "hitRate": 0.0},
            "scope": {"notes": "memory", "chosenBy": "setting"},
            "revision": status.custom["revision"],
            "lastSync": FIXED_NOW.isoformat(timespec="seconds"),
            "problems": ["extra path ../team does not exist"],
            "passedOver": status.custom["passedOver"],
            "languages": status.custom["languages"],
        },
    )


async def test_a_memory_that_was_never_synced_is_dirty_and_one_that_was_is_not(
    services: BackendServices,
) -> None:
    async with open_builtin(settings(**NO_SYNC), services) as memory:
        assert memory.status().dirty is True
        await memory.sync()
        assert memory.status().dirty is False
    async with open_builtin(settings(**NO_SYNC), services) as memory:
        assert (memory.status().dirty, memory.status().files) == (False, 9)


# --- probes ---


async def test_the_embedder_is_probed_as_a_search_would_use_it(services: BackendServices) -> None:
    async def probe(embedder: HashEmbedder | None) -> MemoryEmbeddingProbeResult:
        async with open_builtin(settings(), replace(services, embedder=embedder)) as memory:
            return await memory.probe_embedding_availability()

    working = HashEmbedder()
    assert await probe(working) == MemoryEmbeddingProbeResult(ok=True)
    assert working.texts == ["ping"]
    assert await probe(None) == MemoryEmbeddingProbeResult(ok=False, error="no embedder is configured")
    failed = await probe(FailingEmbedder(error=RuntimeError("broken")))
    assert (failed.ok, failed.error) == (False, "embedding with hash (hash-64) failed: RuntimeError: broken")


async def test_vector_search_is_probed(services: BackendServices) -> None:
    async with open_builtin(settings(), replace(services, embedder=HashEmbedder())) as memory:
        assert await memory.probe_vector_availability() is True
    async with open_builtin(settings(), services) as memory:
        assert await memory.probe_vector_availability() is False


# --- opening and closing ---


def test_the_spec_keeps_what_it_declares() -> None:
    promised = [CAPABILITY_PROTOCOLS[one] for one in spec.capabilities if one in CAPABILITY_PROTOCOLS]

    assert spec.id == "builtin"
    assert all(issubclass(BuiltinMemory, protocol) for protocol in [MemorySearchManager, *promised])


async def test_listing_the_spec_loads_no_database() -> None:
    heavy = "{'apsw', 'numpy', 'sqlite_vec'}"
    code = f"import sys, composable_memory_adapters.builtin; print({heavy} & set(sys.modules))"
    folders = [path for path in sys.path if path]
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(folders)},
        stdout=asyncio.subprocess.PIPE,
    )
    output, _ = await child.communicate()

    assert output.decode().strip() == "set()"


CALLS: list[Callable[[BuiltinMemory], Awaitable[object]]] = [
    lambda memory: memory.search("pump"),
    lambda memory: memory.answer("pump"),
    lambda memory: memory.sync(),
    lambda memory: memory.read_file("MEMORY.md"),
    lambda memory: memory.probe_embedding_availability(),
    lambda memory: memory.probe_vector_availability(),
]


async def test_after_closing_every_call_says_so(services: BackendServices) -> None:
    async with open_builtin(settings(), services) as memory:
        await asyncio.gather(memory.close(), memory.close())
        await memory.close()

        for call in CALLS:
            with pytest.raises(BackendUnavailable, match="it is closed; open it again"):
                await call(memory)
        with pytest.raises(BackendUnavailable, match="it is closed; open it again"):
            memory.status()


async def test_closing_stops_a_sync_under_way(services: BackendServices) -> None:
    embedder = Gate()
    async with open_builtin(settings(), replace(services, embedder=embedder)) as memory:
        syncing = asyncio.create_task(memory.sync())
        told = asyncio.Event()
        joined = asyncio.create_task(memory.sync(progress=lambda _: told.set()))
        await asyncio.sleep(0)
        await memory.close()

    for task in (syncing, joined):
        with pytest.raises(BackendUnavailable, match="it is closed"):
            await task
    async with open_builtin(settings(), replace(services, embedder=HashEmbedder())) as memory:
        assert (await memory.sync()).problems == ()


async def test_a_cancelled_search_leaves_the_memory_usable(services: BackendServices) -> None:
    async with open_builtin(settings(), replace(services, embedder=HashEmbedder())) as memory:
        await memory.sync()
        for turns in range(8):
            searching = asyncio.create_task(memory.search("pump relay"))
            for _ in range(turns):
                await asyncio.sleep(0)
            searching.cancel()
            await asyncio.wait([searching])

        assert (await memory.search("pump relay"))[0].path == "memory/2026-03-05.md"


async def test_an_index_of_a_later_version_is_left_alone(services: BackendServices) -> None:
    async with open_builtin(settings(), services) as memory:
        await memory.sync()
        path = Path(memory.status().db_path or "")
    async with SqliteFile.open(path) as file:
        await file.write(lambda connection: connection.execute("PRAGMA user_version = 99").fetchall())

    with pytest.raises(BackendError, match=f"format is 99, .* {SCHEMA_VERSION}; upgrade") as refused:
        async with open_builtin(settings(), services):
            pass
    assert isinstance(refused.value.__cause__, IndexTooNew)


async def test_a_database_of_another_program_is_left_alone(services: BackendServices, tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    async with SqliteFile.open(path) as file:
        await file.write(lambda connection: connection.execute("CREATE TABLE chunks (mine)").fetchall())

    with pytest.raises(BackendError, match="tables of another program; choose another"):
        async with open_builtin(settings(store={"path": str(path)}), services):
            pass


# --- a folder that was only looked at ---


def indexes_in(services: BackendServices) -> list[str]:
    return [path.name for path in services.state_dir.rglob("*.sqlite*")]


@pytest.fixture
def without_notes(services: BackendServices, tmp_path: Path) -> BackendServices:
    folder = tmp_path / "empty"
    folder.mkdir()
    return replace(services, workspace_dir=folder)


async def test_looking_at_a_folder_without_notes_leaves_no_index(without_notes: BackendServices) -> None:
    async with open_builtin(BuiltinSettings(), without_notes) as memory:
        before = memory.status()
        answer = await memory.answer("tides")
        again = await memory.answer("tides")

        assert answer == again
        assert (answer.results, codes(answer)) == ((), ["keyword-only"])
        assert (before.files, before.chunks, memory.status().dirty) == (0, 0, False)
        assert await memory.check() == ()

    assert indexes_in(without_notes) == []


async def test_the_first_note_makes_the_index_also_where_two_begin_at_once(
    without_notes: BackendServices,
) -> None:
    note = without_notes.workspace_dir / "MEMORY.md"
    async with (
        open_builtin(BuiltinSettings(), without_notes) as one,
        open_builtin(BuiltinSettings(), without_notes) as other,
    ):
        await one.answer("tides")
        await asyncio.to_thread(note.write_text, "The tides turn at noon.", "utf-8")
        await asyncio.gather(one.sync(), other.sync())
        answers = [await memory.answer("tides") for memory in (one, other)]

    assert [[result.path for result in answer.results] for answer in answers] == [["MEMORY.md"]] * 2


async def test_asking_for_a_sync_makes_an_index_of_no_notes(without_notes: BackendServices) -> None:
    async with open_builtin(BuiltinSettings(), without_notes) as memory:
        await memory.sync()

    assert indexes_in(without_notes) != []
