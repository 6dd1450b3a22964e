"""The index is built anew beside the one that answers: nobody sees half of it, and nothing is paid twice."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from composable_memory.content import EmbedderInput
from composable_memory.errors import EmbeddingError
from composable_memory.interfaces import BackendServices, EmbedderAdapter
from composable_memory.testing import FailingEmbedder, HashEmbedder
from composable_memory.types import MemorySyncProgressUpdate, SyncReport
from composable_memory_adapters.builtin.backend import BuiltinMemory, open_builtin
from composable_memory_adapters.builtin.settings import BuiltinSettings

NOTES = {
    "memory/boat.md": "The hull is painted green.\n\nThe mast is made of spruce.\n",
    "memory/house.md": "The roof leaks over the stairs.\n",
    "MEMORY.md": "The harbour office answers on extension 4417.\n",
}
OTHER_VECTORS = (
    "the vectors are from hash (hash-32, 32 numbers), but the settings name hash (hash-48, 48 numbers)"
)
SMALLER: dict[str, Any] = {"chunking": {"tokens": 8, "overlap": 0}}


class GatedEmbedder(HashEmbedder):
    """Embeds documents only when it is let through, and says when it was asked."""

    def __init__(self, dimensions: int = 64) -> None:
        super().__init__(dimensions)
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> list[list[float]]:
        self.asked.set()
        await self.gate.wait()
        return [list(vector) for vector in await super().embed_batch(inputs)]


class SlowQuestions(HashEmbedder):
    """Embeds questions only when it is let through."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        if input.kind == "query":
            self.asked.set()
            await self.gate.wait()
        return await super().embed(input)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "memory").mkdir(parents=True)
    for name, text in NOTES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@asynccontextmanager
async def opened(
    services: BackendServices,
    embedder: EmbedderAdapter | None = None,
    *,
    is_local: bool = True,
    on_search: bool = False,
    **options: object,
) -> AsyncIterator[BuiltinMemory]:
    settings = BuiltinSettings.model_validate({"sync": {"onSearch": on_search, "watch": False}, **options})
    handed = replace(services, embedder=embedder, embedder_is_local=is_local)
    async with open_builtin(settings, handed) as memory:
        yield memory


def rows(memory: BuiltinMemory, sql: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(memory.status().db_path or "", flags=apsw.SQLITE_OPEN_READONLY)
    found = connection.execute(sql).fetchall()
    connection.close()
    return found


def move(folder: Path, target: Path) -> None:
    folder.rename(target)


def tables(memory: BuiltinMemory) -> set[object]:
    return {name for (name,) in rows(memory, "SELECT name FROM sqlite_schema WHERE type = 'table'")}


async def found(memory: BuiltinMemory, query: str) -> list[tuple[str, int, str]]:
    return [(hit.path, hit.start_line, hit.snippet) for hit in await memory.search(query)]


async def codes(memory: BuiltinMemory, query: str = "hull") -> list[str]:
    return [one.code for one in (await memory.answer(query)).degraded]


async def within(task: "asyncio.Task[SyncReport]") -> SyncReport:
    async with asyncio.timeout(30):
        return await task


# --- old until the swap, new after it ---


async def test_searches_see_the_old_index_until_the_new_one_is_whole(services: BackendServices) -> None:
    async with opened(services, HashEmbedder()) as memory:
        await memory.sync()
        before = await found(memory, "hull mast")
    embedder = GatedEmbedder()
    async with opened(services, embedder, **SMALLER) as memory:
        rebuilding = asyncio.create_task(memory.sync())
        async with asyncio.timeout(30):
            await embedder.asked.wait()
        during = await found(memory, "hull mast")
        embedder.gate.set()
        report = await within(rebuilding)

        assert during == before
        assert {line for _, line, _ in await found(memory, "hull mast")} == {1, 3}
        assert (report.files_indexed, report.problems) == (3, ())
        assert not any(str(name).startswith("next_") for name in tables(memory))


async def test_a_rebuilt_index_equals_a_fresh_one(services: BackendServices, tmp_path: Path) -> None:
    content = "SELECT path, source, start_line, end_line, hash, text FROM chunks ORDER BY path, id"
    async with opened(services, HashEmbedder()) as memory:
        await memory.sync()
    async with opened(services, HashEmbedder(), **SMALLER) as memory:
        await memory.sync()
        rebuilt = rows(memory, content)
        hits = await found(memory, "roof stairs harbour")
    async with opened(replace(services, state_dir=tmp_path / "new"), HashEmbedder(), **SMALLER) as memory:
        await memory.sync()

        assert rows(memory, content) == rebuilt
        assert await found(memory, "roof stairs harbour") == hits


async def test_the_keywords_of_a_rebuilt_index_are_in_one_segment(
    services: BackendServices, workspace: Path
) -> None:
    for number in range(3):
        lines = (f"Ship {line} of fleet {number} came in by the tide of that morning." for line in range(700))
        (workspace / "memory" / f"{number}.md").write_text("\n".join(lines), encoding="utf-8")
    segments = "SELECT count(DISTINCT segid) FROM chunks_fts_idx"
    async with opened(services, None, **SMALLER) as memory:
        await memory.sync()
        assert rows(memory, segments) > [(1,)]
        await memory.sync(force=True)

        assert rows(memory, segments) == [(1,)]
        assert len(await memory.search("tide fleet")) > 1


async def test_a_search_that_spans_the_swap_answers_from_the_new_index(services: BackendServices) -> None:
    """Its candidates are of the old one, whose passages are gone when their text is read."""
    embedder = SlowQuestions()
    async with opened(services, embedder) as memory:
        embedder.gate.set()
        await memory.sync()
        before = await memory.search("painted hull")
        embedder.asked.clear()
        embedder.gate.clear()
        asking = asyncio.create_task(memory.search("painted hull"))
        async with asyncio.timeout(30):
            await embedder.asked.wait()
        await memory.sync(force=True)
        embedder.gate.set()

        assert await asking == before


async def test_a_note_that_changes_during_a_rebuild_is_searchable_at_once_and_not_lost(
    services: BackendServices, workspace: Path
) -> None:
    for number in range(150):
        (workspace / "memory" / f"n{number}.md").write_text(f"number {number} is a note", encoding="utf-8")
    async with opened(services) as memory:
        await memory.sync()
    embedder = GatedEmbedder()
    async with opened(services, embedder) as memory:
        embedding = asyncio.create_task(memory.sync(force=True))
        async with asyncio.timeout(30):
            await embedder.asked.wait()
        (workspace / "memory" / "new.md").write_text("A lighthouse was seen.", encoding="utf-8")
        following = asyncio.create_task(memory.sync(reason="watch"))
        await asyncio.sleep(0)
        embedder.gate.set()
        await within(embedding)

        assert [path for path, _, _ in await found(memory, "lighthouse")][:1] == ["memory/new.md"]
        await within(following)
        assert (await found(memory, "lighthouse"))[0][0] == "memory/new.md"


# --- what it costs ---


async def test_nothing_is_embedded_twice(services: BackendServices) -> None:
    embedder = HashEmbedder()
    async with opened(services, embedder) as memory:
        await memory.sync()
    async with opened(services, embedder, **SMALLER) as memory:
        await memory.sync()
        cut_smaller = len(embedder.texts)
    async with opened(services, embedder) as memory:
        report = await memory.sync()
        await memory.sync(force=True)

    assert report.embedded == 0
    assert len(embedder.texts) == cut_smaller
    assert len(set(embedder.texts)) == len(embedder.texts)


async def test_what_a_rebuild_would_cost_is_told_before_it_is_paid(services: BackendServices) -> None:
    async with opened(services, HashEmbedder(32)) as memory:
        await memory.sync()
    paid = HashEmbedder(48)
    async with opened(services, paid, is_local=False) as memory:
        report = await memory.sync()

        assert paid.texts == []
        how = "`cmem index --force` rebuilds it: about 34 tokens in 3 passages to embed"
        assert report.problems == (f"{OTHER_VECTORS}; {how}",)
        assert await codes(memory) == ["rebuild-due"]
        assert memory.status().custom["rebuild"] == {
            "reasons": [OTHER_VECTORS],
            "passages": 3,
            "characters": 134,
            "tokens": 34,
        }
        await memory.sync(force=True)

        assert len(paid.texts) == 3
        assert await codes(memory) == []
        assert "rebuild" not in memory.status().custom


async def test_an_index_that_waits_for_its_rebuild_follows_the_notes_by_their_words(
    services: BackendServices, workspace: Path
) -> None:
    async with opened(services, HashEmbedder(32)) as memory:
        await memory.sync()
    paid = HashEmbedder(48)
    async with opened(services, paid, is_local=False, **SMALLER) as memory:
        (workspace / "memory" / "new.md").write_text("A lighthouse was seen.", encoding="utf-8")
        await memory.sync()

        assert (await found(memory, "lighthouse"))[0][0] == "memory/new.md"
        assert (await found(memory, "painted hull"))[0][1] == 1
        assert paid.texts == []


async def test_a_provider_that_fails_leaves_the_old_index_and_what_was_paid_for(
    services: BackendServices,
) -> None:
    async with opened(services, HashEmbedder(32)) as memory:
        await memory.sync()
        before = rows(memory, "SELECT * FROM chunks")
    async with opened(services, FailingEmbedder(48)) as memory:
        report = await memory.sync()

        assert rows(memory, "SELECT * FROM chunks") == before
        assert report.problems[0].startswith("the index was not rebuilt")
        assert not any(str(name).startswith("next_") for name in tables(memory))


@pytest.mark.parametrize(
    ("force", "options"), [(True, {}), (False, SMALLER)], ids=["forced", "cut otherwise"]
)
async def test_notes_that_are_out_of_reach_are_not_lost_by_a_rebuild(
    services: BackendServices, workspace: Path, force: bool, options: dict[str, Any]
) -> None:
    """A folder that is not mounted at the moment says nothing about its notes."""
    async with opened(services) as memory:
        await memory.sync()
    away = workspace.with_name("away")
    move(workspace, away)
    async with opened(services, **options) as memory:
        report = await memory.sync(force=force)

        assert "3 of its files cannot be read now, such as MEMORY.md" in report.problems[-1]
        assert (await found(memory, "painted hull"))[0][0] == "memory/boat.md"
        move(away, workspace)
        assert ((await memory.sync(force=force)).problems, memory.status().files) == ((), 3)


async def test_two_memories_with_different_embedders_do_not_fight(services: BackendServices) -> None:
    async with opened(services, HashEmbedder(32)) as first:
        await first.sync()
        async with opened(services, HashEmbedder(48)) as second:
            await second.sync()
            report = await first.sync()

            assert "another process uses this index with a different embedder" in report.problems[0]
            assert (await second.sync()).problems == ()


# --- several processes, and processes that die ---


async def test_only_one_of_two_memories_embeds_what_both_miss(
    services: BackendServices, workspace: Path
) -> None:
    for number in range(200):
        (workspace / "memory" / f"n{number}.md").write_text(f"number {number} is a note", encoding="utf-8")
    first, second = HashEmbedder(), HashEmbedder()
    async with opened(services, first) as one, opened(services, second) as other:
        async with asyncio.timeout(60):
            reports = await asyncio.gather(one.sync(), other.sync())

        assert len(first.texts) + len(second.texts) == 203
        assert [report.problems for report in reports] == [(), ()]
        assert rows(one, "SELECT count(*) FROM chunks WHERE embedding_id IS NULL") == [(0,)]


async def test_two_memories_that_rebuild_at_once_take_turns(services: BackendServices) -> None:
    async with opened(services, HashEmbedder()) as one, opened(services, HashEmbedder()) as other:
        await one.sync()
        async with asyncio.timeout(60):
            reports = await asyncio.gather(one.sync(force=True), other.sync(force=True))

        assert [(report.files_indexed, report.problems) for report in reports] == [(3, ()), (3, ())]
        assert rows(one, "SELECT count(*) FROM chunks") == [(3,)]
        assert await found(one, "painted hull") == await found(other, "painted hull")


KILLED = """
import asyncio, sys
from composable_memory.testing import HashEmbedder
from composable_memory.interfaces import BackendServices
from composable_memory_adapters.builtin.backend import open_builtin
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_ops_logs import OpsLog, utc_now
from pathlib import Path

class Stuck(HashEmbedder):
    async def embed_batch(self, inputs):
        print("embedding", flush=True)
        await asyncio.sleep(60)

async def main(workspace, state):
    services = BackendServices(
        workspace_dir=Path(workspace), state_dir=Path(state), agent_id="main", workspace_id="notes",
        ops_log=OpsLog(None), clock=utc_now, embedder=Stuck(48), is_long_lived=False,
    )
    async with open_builtin(BuiltinSettings(), services) as memory:
        await memory.sync()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.thorough
async def test_a_rebuild_that_is_killed_leaves_the_old_index_and_its_litter_is_cleaned_up(
    services: BackendServices, workspace: Path
) -> None:
    async with opened(services, HashEmbedder()) as memory:
        await memory.sync()
        before = await found(memory, "hull")

    def kill_in_the_middle() -> None:
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(workspace), str(services.state_dir)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "embedding\n"
        child.send_signal(signal.SIGKILL)
        child.communicate()

    await asyncio.to_thread(kill_in_the_middle)
    async with opened(services, HashEmbedder()) as memory:
        assert "next_chunks" in tables(memory)
        assert await found(memory, "hull") == before
        report = await memory.sync()

        assert (report.files_indexed, report.embedded, report.problems) == (0, 0, ())
        assert not any(str(name).startswith("next_") for name in tables(memory))


# --- what was paid for is kept ---


class PayingEmbedder(HashEmbedder):
    """Counts how often each text was embedded; refuses batches that hold a certain word, or too many."""

    def __init__(self, dimensions: int = 64, *, refuses: str = "no such word", batches: int = 1000) -> None:
        super().__init__(dimensions)
        self.paid: Counter[str] = Counter()
        self.refuses = refuses
        self.batches = batches
        self.refusals = 0

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> list[list[float]]:
        texts = [one.text for one in inputs]
        self.batches -= 1
        if self.batches < 0 or any(self.refuses in text for text in texts):
            self.refusals += 1
            raise EmbeddingError(self.id, self.model, "it refused")
        self.paid.update(texts)
        return [list(vector) for vector in await super().embed_batch(inputs)]


def write_many(workspace: Path, count: int) -> None:
    for number in range(count):
        (workspace / "memory" / f"n{number}.md").write_text(f"number {number} is a note", encoding="utf-8")


@pytest.mark.parametrize("cache", [{"enabled": False}, {"maxEntries": 300}], ids=["no cache", "small cache"])
async def test_no_limit_of_the_cache_throws_away_what_a_failed_rebuild_has_paid_for(
    services: BackendServices, workspace: Path, cache: dict[str, object]
) -> None:
    write_many(workspace, 300)
    async with opened(services, HashEmbedder(32), is_local=False, cache=cache) as memory:
        await memory.sync()
    embedder = PayingEmbedder(48, batches=1)
    async with opened(services, embedder, is_local=False, cache=cache) as memory:
        assert (await memory.sync(force=True)).problems
        (workspace / "memory" / "new.md").write_text("the lighthouse", encoding="utf-8")
        await memory.sync()
        embedder.batches = 1000

        assert (await memory.sync(force=True)).problems == ()
        assert max(embedder.paid.values()) == 1


async def test_a_text_that_the_provider_refuses_keeps_no_other_from_its_vector(
    services: BackendServices, workspace: Path
) -> None:
    write_many(workspace, 300)
    embedder = PayingEmbedder(refuses="number 150 ")
    async with opened(services, embedder, is_local=False) as memory:
        report = await memory.sync()

        assert (report.embedded, report.embeddings_pending) == (302, 1)
        assert "it refused" in report.problems[0]
        embedder.refusals = 0
        assert (await memory.sync()).embeddings_pending == 1
        assert (embedder.refusals, max(embedder.paid.values())) == (1, 1)


async def test_a_provider_that_refuses_everything_is_soon_left_in_peace(
    services: BackendServices, workspace: Path
) -> None:
    write_many(workspace, 300)
    embedder = PayingEmbedder(refuses="")
    async with opened(services, embedder, is_local=False) as memory:
        assert (await memory.sync()).embeddings_pending == 303
        assert embedder.refusals == 4


@pytest.mark.parametrize("is_local", [True, False])
async def test_force_rebuilds_an_index_that_was_never_whole(
    services: BackendServices, is_local: bool
) -> None:
    async with opened(services, HashEmbedder(32)) as memory:
        await memory.sync()
        database = memory.status().db_path or ""
    with closing(apsw.Connection(database)) as connection:  # as a first sync leaves it that was killed
        connection.execute("DELETE FROM meta WHERE key = 'last_sync'")
    async with opened(services, HashEmbedder(48), is_local=is_local) as memory:
        report = await memory.sync(force=True)

        assert (report.problems, report.embedded) == ((), 3)
        assert await codes(memory) == []


async def test_two_memories_that_cut_otherwise_are_told_so(services: BackendServices) -> None:
    async with opened(services, HashEmbedder()) as first:
        await first.sync()
        async with opened(services, HashEmbedder(), **SMALLER) as second:
            await second.sync()

            assert "another process splits the notes" in (await first.sync()).problems[0]


async def test_who_waits_for_the_rebuild_of_another_says_so(services: BackendServices) -> None:
    async with opened(services, HashEmbedder()) as memory:
        await memory.sync()
    waits = asyncio.Event()

    def tell(update: MemorySyncProgressUpdate) -> None:
        if "another process" in (update.label or ""):
            waits.set()

    embedder = GatedEmbedder()
    async with (
        opened(services, embedder, **SMALLER) as first,
        opened(services, HashEmbedder(), **SMALLER) as second,
    ):
        rebuilding = asyncio.create_task(first.sync())
        async with asyncio.timeout(30):
            await embedder.asked.wait()
            joining = asyncio.create_task(second.sync(progress=tell))
            await waits.wait()
        embedder.gate.set()

        assert (await within(rebuilding)).problems == (await within(joining)).problems == ()


# --- texts that a provider refuses ---


class Picky(HashEmbedder):
    """Refuses every batch with a certain word in it, as providers do with texts they cannot take."""

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        if any("leaks" in item.text for item in inputs):
            raise EmbeddingError(self.id, self.model, "the text is refused")
        return await super().embed_batch(inputs)


async def test_a_text_that_is_refused_is_named_and_keeps_no_index_from_its_rebuild(
    services: BackendServices,
) -> None:
    async with opened(services, HashEmbedder(32)) as memory:
        await memory.sync()
    async with opened(services, Picky(48)) as memory:
        report = await memory.sync()

        assert report.problems[0].startswith("memory/house.md:1: embedding with hash (hash-48) failed")
        assert (report.embedded, report.embeddings_pending) == (2, 1)
        assert await codes(memory) == ["vectors-pending"]
