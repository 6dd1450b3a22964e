"""Promises that indexes like this one are known to break: rows stay or go missing, work is done twice."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from composable_memory import open_memory
from composable_memory.content import EmbedderInput
from composable_memory.interfaces import BackendServices, EmbedderAdapter
from composable_memory.testing import HashEmbedder
from composable_memory.types import SearchOptions
from composable_memory_adapters.builtin.backend import BuiltinMemory, open_builtin
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_ops_logs import MemorySink, SyncComplete

NOTES = {
    "MEMORY.md": "The harbour office answers on extension 4417.\n",
    "memory/boat.md": "The hull is painted green.\n",
    "memory/house.md": "The roof leaks over the stairs.\n",
}
BOTH = {"sources": ["memory", "sessions"]}
SMALLER = {"chunking": {"tokens": 8, "overlap": 0}}
OFF = {"enabled": False}
DEMANDING = 0.35
"""A least score that an index like this one may ask for by default."""

LAST_ID = "SELECT max(id) FROM chunks"
"""Every index that is built anew counts on from a number far above those before."""


class Gate(HashEmbedder):
    """Embeds passages only when it is let through, and says when it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.open = asyncio.Event(), asyncio.Event()

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        self.asked.set()
        await self.open.wait()
        return await super().embed_batch(inputs)


class Askew(HashEmbedder):
    """The cosine between any question and any passage is 0.4."""

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        return [0.4, 0.84**0.5] if input.kind == "query" else [1.0, 0.0]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    for path, text in NOTES.items():
        write(folder / path, text)
    return folder


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@asynccontextmanager
async def opened(
    services: BackendServices, embedder: EmbedderAdapter | None = None, **options: object
) -> AsyncIterator[BuiltinMemory]:
    settings = BuiltinSettings.model_validate({"sync": {"onSearch": False}, **options})
    async with open_builtin(settings, replace(services, embedder=embedder)) as memory:
        yield memory


def rows(memory: BuiltinMemory, sql: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(memory.status().db_path or "", flags=apsw.SQLITE_OPEN_READONLY)
    found = connection.execute(sql).fetchall()
    connection.close()
    return found


async def paths(memory: BuiltinMemory, query: str, options: SearchOptions | None = None) -> list[str]:
    return [hit.path for hit in await memory.search(query, options)]


# --- what is found ---


async def test_words_alone_are_found_after_the_first_sync_and_by_the_next_process(
    services: BackendServices,
) -> None:
    async with opened(services) as memory:
        await memory.sync()
        assert await paths(memory, "painted hull") == ["memory/boat.md"]
    async with opened(services) as memory:
        assert await paths(memory, "painted hull") == ["memory/boat.md"]


async def test_an_index_that_loses_its_embedder_keeps_what_it_holds(services: BackendServices) -> None:
    async with opened(services, HashEmbedder()) as memory:
        await memory.sync()
    async with opened(services) as memory:
        report = await memory.sync()

        assert (report.files_indexed, report.files_removed, report.files_unchanged) == (0, 0, 3)
        assert await paths(memory, "painted hull") == ["memory/boat.md"]


@pytest.mark.parametrize("min_score", [None, DEMANDING])
@pytest.mark.parametrize("embeds", [False, True], ids=["words", "hybrid"])
@pytest.mark.parametrize("holders", [1, 2, 3])
async def test_an_exact_hit_is_found_in_three_notes_however_common_its_word(
    services: BackendServices,
    workspace: Path,
    embeds: bool,
    min_score: float | None,
    holders: int,
) -> None:
    """BM25 says next to nothing of a word that half of the passages hold."""
    expected = sorted(NOTES)[:holders]
    for path in expected:
        write(workspace / path, f"{NOTES[path]}QX-7781-B\n")
    async with opened(services, HashEmbedder() if embeds else None) as memory:
        await memory.sync()
        options = None if min_score is None else SearchOptions(min_score=min_score)
        found = await paths(memory, "QX-7781-B", options)

    assert sorted(found[:holders]) == expected


@pytest.mark.parametrize(
    ("options", "min_score", "is_found"),
    [
        ({"query": {"hybrid": OFF}}, DEMANDING, True),
        ({"query": {"hybrid": OFF}}, 0.45, False),
        ({"store": {"fts": OFF}}, DEMANDING, True),
        ({}, 0.1, True),
        ({}, DEMANDING, False),
    ],
    ids=["vectors", "vectors, too far", "no keywords", "hybrid", "hybrid, too far"],
)
async def test_a_cosine_is_weighed_only_where_words_could_have_spoken(
    services: BackendServices, options: dict[str, object], min_score: float, is_found: bool
) -> None:
    async with opened(services, Askew(2), **options) as memory:
        await memory.sync()
        found = await paths(memory, "zebra", SearchOptions(min_score=min_score))

    assert sorted(found) == (sorted(NOTES) if is_found else [])


async def test_pieces_of_one_line_are_all_indexed_and_answer_once(
    services: BackendServices, workspace: Path
) -> None:
    """They share their place, and some share their text as well."""
    write(workspace / "memory" / "log.md", "lamp " * 960 + "the needle")
    embedder = HashEmbedder()
    async with opened(services, embedder, chunking={"overlap": 0}) as memory:
        await memory.sync()
        pieces = "SELECT count(*), count(DISTINCT hash), count(DISTINCT embedding_id) FROM chunks"
        assert rows(memory, f"{pieces} WHERE path = 'memory/log.md'") == [(4, 2, 2)]
        assert rows(memory, "SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH 'lamp'") == [(3,)]
        write(workspace / "memory" / "log.md", "a door")
        await memory.sync()

        assert await paths(memory, "lamp", SearchOptions(min_score=0.2)) == []
        assert rows(memory, "SELECT count(*) FROM chunks_fts") == rows(memory, "SELECT count(*) FROM chunks")


async def test_the_pieces_of_one_line_are_results_of_their_own(
    services: BackendServices, workspace: Path
) -> None:
    line = "lamp " * 960 + "the needle" + " boat" * 400
    write(workspace / "memory" / "log.md", line)
    config = {"memory": {"embedding": {"provider": "none"}, "builtin": {"chunking": {"overlap": 0}}}}
    async with open_memory(workspace, services.state_dir, config) as memory:
        await memory.sync()
        response = await memory.query("needle lamp boat")
        found = [one for one in response.results if one.path == "memory/log.md"]
        read = await memory.read_file("memory/log.md", from_line=1, lines=1)

    assert {(one.start_line, one.end_line) for one in found} == {(1, 1)}
    assert len({one.key for one in found}) == len(found) > 1
    assert "the needle" in found[0].snippet
    assert all(line[one.start_char :].startswith(("lamp", "the needle", "boat")) for one in found)
    assert read.text == line


# --- what is written, and what goes ---


@pytest.mark.parametrize("notes", [{}, {"MEMORY.md": "", "memory/blank.md": "\n \n"}], ids=["none", "blank"])
async def test_an_index_without_a_vector_is_not_built_anew_by_every_sync(
    services: BackendServices, tmp_path: Path, events: MemorySink, notes: dict[str, str]
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for path, text in notes.items():
        write(bare / path, text)
    options = {"store": {"vector": {"engine": "sqlite-vec"}}}
    async with opened(replace(services, workspace_dir=bare), HashEmbedder(), **options) as memory:
        await memory.sync()
        await memory.search("anything")
        await memory.sync()
        report = await memory.sync()

        assert [done.full_reindex for done in events.details(SyncComplete)] == [True, False, False]
        assert (report.files_indexed, report.files_unchanged) == (0, len(notes))


async def test_extra_paths_come_and_go_and_each_text_is_embedded_once(
    services: BackendServices, workspace: Path
) -> None:
    write(workspace.parent / "team" / "plan.md", "Meet at the lighthouse.")
    embedder = HashEmbedder()
    reports = []
    for extra_paths in ([], ["../team"], [], ["../team"]):
        async with opened(services, embedder, extraPaths=extra_paths) as memory:
            reports.append(await memory.sync())
            expected = ["../team/plan.md"] if extra_paths else []
            assert [path for path in await paths(memory, "lighthouse") if "team" in path] == expected
            outside = "SELECT path FROM files WHERE path LIKE '../%'"
            assert rows(memory, outside) == [(path,) for path in expected]

    counts = [(one.files_indexed, one.files_removed, one.embedded) for one in reports]
    assert counts == [(3, 0, 3), (1, 0, 1), (0, 1, 0), (1, 0, 0)]
    assert embedder.texts.count("Meet at the lighthouse.") == 1


async def test_a_note_that_is_gone_leaves_nothing_of_it_under_any_model(
    services: BackendServices, workspace: Path
) -> None:
    hull = "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH 'hull'"
    async with opened(services, HashEmbedder(32)) as memory:
        await memory.sync()
    async with opened(services, HashEmbedder(48)) as memory:
        await memory.sync()
        assert rows(memory, "SELECT DISTINCT dims FROM embedding_cache ORDER BY dims") == [(32,), (48,)]
        assert len(rows(memory, hull)) == 1
    (workspace / "memory" / "boat.md").unlink()
    async with opened(services, HashEmbedder(48), cache={"enabled": False}) as memory:
        await memory.sync()

        assert rows(memory, "SELECT path FROM files") == [("MEMORY.md",), ("memory/house.md",)]
        assert rows(memory, "SELECT DISTINCT path FROM chunks") == [("MEMORY.md",), ("memory/house.md",)]
        assert rows(memory, hull) == []
        assert rows(memory, "SELECT dims, count(*) FROM embedding_cache GROUP BY dims") == [(48, 2)]
    async with opened(services, HashEmbedder(32)) as memory:
        assert "memory/boat.md" not in await paths(memory, "painted hull")


async def test_a_note_that_is_gone_leaves_an_index_of_the_former_model(
    services: BackendServices, workspace: Path
) -> None:
    """The new model costs something, so its index waits to be asked for; what is gone does not wait."""
    async with opened(services, HashEmbedder(32)) as memory:
        await memory.sync()
    (workspace / "memory" / "boat.md").unlink()
    paid = HashEmbedder(48)
    async with opened(replace(services, embedder_is_local=False), paid) as memory:
        report = await memory.sync(reason="watch")

        assert (report.files_removed, paid.texts) == (1, [])
        assert rows(memory, "SELECT count(*), count(embedding_id) FROM chunks") == [(2, 2)]
        assert rows(memory, "SELECT count(*) FROM chunks_fts") == [(2,)]
        assert await paths(memory, "painted hull") == []


@pytest.mark.parametrize("reason", ["watch", "session-start", "interval"])
@pytest.mark.parametrize(
    ("force", "options"), [(True, {}), (False, SMALLER)], ids=["forced", "cut otherwise"]
)
async def test_a_rebuild_keeps_the_transcripts_whatever_its_reason(
    services: BackendServices, reason: str, force: bool, options: dict[str, object]
) -> None:
    said = {"type": "message", "message": {"role": "user", "content": "The lighthouse is closed."}}
    talk = services.state_dir / "agents" / "main" / "sessions" / "talk.jsonl"
    await asyncio.to_thread(write, talk, json.dumps(said) + "\n")
    of_talks = "SELECT count(*) FROM chunks WHERE source = 'sessions'"
    async with opened(services, HashEmbedder(), **BOTH) as memory:
        await memory.sync()
        before = rows(memory, of_talks)
        built_by = rows(memory, LAST_ID)
    async with opened(services, HashEmbedder(), **BOTH, **options) as memory:
        await memory.sync(reason=reason, force=force)

        assert rows(memory, LAST_ID) > built_by
        assert rows(memory, of_talks) == before == [(1,)]
        assert (await paths(memory, "lighthouse closed"))[0] == "sessions/talk.jsonl"


# --- what changes while a sync runs ---


async def test_a_note_that_is_edited_while_a_sync_runs_is_seen_by_the_next_search(
    services: BackendServices, workspace: Path
) -> None:
    embedder = Gate()
    looking = {"onSearchWaitMs": 60_000, "recheckS": 0}
    async with opened(services, embedder, sync=looking) as memory:
        syncing = asyncio.create_task(memory.sync())
        async with asyncio.timeout(30):
            await embedder.asked.wait()
        await asyncio.to_thread(write, workspace / "memory" / "boat.md", "The hull is painted yellow now.")
        embedder.open.set()
        await syncing

        assert (await paths(memory, "yellow"))[0] == "memory/boat.md"
