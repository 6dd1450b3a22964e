"""The index follows the notes: what is written, what is left alone, and who gets to know."""

import os
import shutil
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from composable_memory.content import EmbedderInput
from composable_memory.interfaces import BackendServices
from composable_memory.testing import FIXED_NOW, FailingEmbedder, HashEmbedder
from composable_memory.types import MemorySyncProgressUpdate, SyncReport
from composable_memory_adapters.builtin.backend import BuiltinMemory, open_builtin
from composable_memory_adapters.builtin.notes.note_files import ScanReport, scan
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.sync import indexer
from composable_memory_ops_logs import MemorySink, SyncComplete, SyncFileSkipped, SyncStart

LONG_AGO = 1_600_000_000


def settings(**options: object) -> BuiltinSettings:
    return BuiltinSettings.model_validate({"sync": {"onSearch": False}, **options})


@asynccontextmanager
async def opened(
    services: BackendServices, embedder: HashEmbedder | None = None, **options: object
) -> AsyncIterator[BuiltinMemory]:
    handed = replace(services, embedder=embedder) if embedder else services
    async with open_builtin(settings(**options), handed) as memory:
        yield memory


def rows(memory: BuiltinMemory, sql: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(memory.status().db_path or "", flags=apsw.SQLITE_OPEN_READONLY)
    found = connection.execute(sql).fetchall()
    connection.close()
    return found


def write(workspace: Path, path: str, text: str, *, at: int = LONG_AGO) -> Path:
    target = workspace / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    os.utime(target, (at, at))
    return target


def paragraphs(count: int, changed: int | None = None) -> str:
    """Return a note of `count` chunks, if a chunk is about twenty tokens, one of them in other words."""
    return "\n".join(
        f"{'other' if number == changed else 'plain'} words {number:03} " + "x" * 62
        for number in range(count)
    )


SMALL: dict[str, Any] = {"chunking": {"tokens": 20, "overlap": 0}}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    write(folder, "MEMORY.md", "# Lasting notes\n\nThe harbour office answers on extension 4417.\n")
    write(folder, "memory/boat.md", "# Boat\n\nThe hull is painted green.\n")
    write(folder, "memory/house.md", "# House\n\nThe roof leaks over the stairs.\n")
    return folder


# --- notes to rows ---


async def test_the_first_sync_indexes_every_note(services: BackendServices) -> None:
    async with opened(services) as memory:
        report = await memory.sync()

        assert report == SyncReport(reason="manual", files_indexed=3, chunks_written=3)
        assert rows(memory, "SELECT path FROM files") == [
            ("MEMORY.md",),
            ("memory/boat.md",),
            ("memory/house.md",),
        ]
        assert rows(memory, "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH 'painted'") == [(2,)]


async def test_a_sync_that_finds_nothing_writes_nothing(services: BackendServices) -> None:
    async with opened(services) as memory:
        await memory.sync()
        before = rows(memory, "SELECT * FROM meta")

        assert await memory.sync() == SyncReport(reason="manual", files_unchanged=3)
        assert rows(memory, "SELECT * FROM meta") == before


@pytest.mark.skipif(
    sys.platform == "win32", reason="Windows does not tell when a file was changed in any way"
)
@pytest.mark.parametrize("is_replaced", [True, False])
async def test_a_note_with_other_text_of_the_same_size_and_time_is_read_again_once(
    services: BackendServices, workspace: Path, *, is_replaced: bool
) -> None:
    """As after `rsync -t` or unzipping, which replace a note, and after `cp -p`, which overwrites it."""
    async with opened(services) as memory:
        await memory.sync()
        other = write(workspace.with_name("other"), "boat.md", "# Boat\n\nThe hull is painted amber.\n")
        note = workspace / "memory" / "boat.md"
        assert other.stat().st_size == note.stat().st_size
        if is_replaced:
            other.replace(note)
        else:
            shutil.copy2(other, note)

        assert (await memory.sync()).files_indexed == 1
        assert [hit.path for hit in await memory.search("amber")] == ["memory/boat.md"]
        before = rows(memory, "SELECT * FROM files")
        assert await memory.sync() == SyncReport(reason="manual", files_unchanged=3)
        assert rows(memory, "SELECT * FROM files") == before


async def test_notes_that_were_moved_to_another_disk_are_read_again_but_not_cut(
    services: BackendServices, workspace: Path
) -> None:
    async with opened(services) as memory:
        await memory.sync()
        before = rows(memory, "SELECT * FROM chunks")
    shutil.copytree(workspace, workspace.with_name("copy"))
    for note in workspace.with_name("copy").rglob("*.md"):
        note.replace(workspace / note.relative_to(workspace.with_name("copy")))
    async with opened(services) as memory:
        assert await memory.sync() == SyncReport(reason="manual", files_unchanged=3)
        assert rows(memory, "SELECT * FROM chunks") == before


async def test_a_note_that_was_only_touched_is_not_cut_again(
    services: BackendServices, workspace: Path
) -> None:
    async with opened(services) as memory:
        await memory.sync()
        before = rows(memory, "SELECT * FROM chunks")
        os.utime(workspace / "memory" / "boat.md", (LONG_AGO + 9, LONG_AGO + 9))

        assert await memory.sync() == SyncReport(reason="manual", files_unchanged=3)
        assert rows(memory, "SELECT * FROM chunks") == before
        assert (LONG_AGO + 9) * 10**9 in rows(
            memory, "SELECT mtime FROM files WHERE path = 'memory/boat.md'"
        )[0]


async def test_a_changed_note_is_found_by_its_new_words_only(
    services: BackendServices, workspace: Path
) -> None:
    async with opened(services) as memory:
        await memory.sync()
        write(workspace, "memory/boat.md", "The hull is painted yellow.", at=LONG_AGO + 1)
        report = await memory.sync()

        assert (report.files_indexed, report.files_unchanged) == (1, 2)
        assert [hit.path for hit in await memory.search("yellow")] == ["memory/boat.md"]
        assert await memory.search("green") == ()


async def test_a_note_that_is_gone_is_removed(services: BackendServices, workspace: Path) -> None:
    async with opened(services) as memory:
        await memory.sync()
        (workspace / "memory" / "boat.md").unlink()
        report = await memory.sync()

        assert (report.files_removed, report.files_unchanged) == (1, 2)
        assert await memory.search("hull") == ()
        assert rows(memory, "SELECT count(*) FROM chunks") == [(2,)]


async def test_of_hundreds_of_notes_that_are_gone_none_stays(
    services: BackendServices, workspace: Path
) -> None:
    many = [write(workspace, f"memory/many/{number}.md", f"note {number}") for number in range(401)]
    async with opened(services, store={"vector": {"enabled": False}}) as memory:
        await memory.sync()
        for note in many:
            note.unlink()
        report = await memory.sync()

        assert report.files_removed == 401
        assert rows(memory, "SELECT count(*) FROM files") == [(3,)]


async def test_a_note_that_another_process_has_written_meanwhile_is_compared_anew(
    services: BackendServices, workspace: Path
) -> None:
    async with opened(services) as memory:
        await memory.sync()
        write(workspace, "memory/boat.md", "# Boat\n\nThe hull is painted blue.\n", at=LONG_AGO + 60)

        def write_too(update: MemorySyncProgressUpdate) -> None:
            if (update.completed, update.total) == (0, 1):  # the note was compared, and is not written yet
                with apsw.Connection(memory.status().db_path or "") as other:
                    other.execute("UPDATE files SET size = 1 WHERE path = 'memory/boat.md' AND size > 1")

        await memory.sync(progress=write_too)

        assert [one.path for one in await memory.search("blue")] == ["memory/boat.md"]


async def test_a_note_that_another_process_has_added_meanwhile_is_not_taken_for_gone(
    services: BackendServices, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def scan_and_add(*args: Any, **options: Any) -> ScanReport:
        found = scan(*args, **options)
        looks.append(len(found.files))
        if len(looks) == 1:  # the disk was looked at, and the index is not read yet
            write(workspace, "memory/new.md", "# New\n\nThe anchor is new.\n")
            with apsw.Connection(memory.status().db_path or "") as other:
                names = [row[1] for row in other.execute("PRAGMA table_info(files)")]
                taken = ", ".join("'memory/new.md'" if name == "path" else name for name in names)
                other.execute(f"INSERT INTO files SELECT {taken} FROM files WHERE path = 'memory/boat.md'")
        return found

    async with opened(services) as memory:
        await memory.sync()
        await memory.sync()
        write(workspace, "memory/house.md", "# House\n\nThe roof is mended.\n", at=LONG_AGO + 60)
        monkeypatch.setattr(indexer, "scan", scan_and_add)

        report = await memory.sync()

        assert (report.files_removed, looks) == (0, [3, 4])
        assert [one.path for one in await memory.search("anchor")] == ["memory/new.md"]


async def test_one_changed_chunk_leaves_the_others_alone(services: BackendServices, workspace: Path) -> None:
    embedder = HashEmbedder()
    write(workspace, "memory/long.md", paragraphs(20))
    async with opened(services, embedder, **SMALL) as memory:
        await memory.sync()
        before = set(rows(memory, "SELECT id, hash, embedding_id FROM chunks WHERE path = 'memory/long.md'"))
        embedder.texts.clear()
        write(workspace, "memory/long.md", paragraphs(20, changed=7), at=LONG_AGO + 1)
        report = await memory.sync()

        after = set(rows(memory, "SELECT id, hash, embedding_id FROM chunks WHERE path = 'memory/long.md'"))
        assert (report.chunks_written, report.embedded, len(embedder.texts)) == (1, 1, 1)
        assert (len(before), len(after), len(before & after)) == (20, 20, 19)


async def test_a_line_at_the_top_moves_the_others_and_embeds_one(
    services: BackendServices, workspace: Path
) -> None:
    embedder = HashEmbedder()
    write(workspace, "memory/long.md", paragraphs(5))
    async with opened(services, embedder, **SMALL) as memory:
        await memory.sync()
        write(
            workspace,
            "memory/long.md",
            "a new first line " + "y" * 60 + "\n" + paragraphs(5),
            at=LONG_AGO + 1,
        )
        report = await memory.sync()

        query = "SELECT start_line FROM chunks WHERE path = 'memory/long.md' ORDER BY start_line"
        assert rows(memory, query) == [(line,) for line in range(1, 7)]
        assert (report.chunks_written, report.embedded) == (1, 1)


async def test_equal_passages_of_one_note_stay_as_many_as_they_are(
    services: BackendServices, workspace: Path
) -> None:
    embedder = HashEmbedder()
    line = "the same words " + "x" * 64
    write(workspace, "memory/same.md", "\n".join([line] * 4))
    async with opened(services, embedder, **SMALL) as memory:
        await memory.sync()
        write(workspace, "memory/same.md", "\n".join([line] * 3), at=LONG_AGO + 1)
        await memory.sync()

        query = "SELECT start_line, end_line FROM chunks WHERE path = 'memory/same.md' ORDER BY start_line"
        assert rows(memory, query) == [(1, 1), (2, 2), (3, 3)]
        assert sum("the same words" in text for text in embedder.texts) == 1


async def test_a_note_that_may_change_under_the_same_time_is_looked_at_again(
    services: BackendServices, workspace: Path
) -> None:
    """Two writes can bear the same time and size; the second must not be missed."""
    never_past = 4_000_000_000
    write(workspace, "memory/boat.md", "The hull is red.", at=never_past)
    async with opened(services) as memory:
        await memory.sync()
        write(workspace, "memory/boat.md", "The hull is sky.", at=never_past)
        await memory.sync()

        assert [hit.path for hit in await memory.search("sky")] == ["memory/boat.md"]


async def test_after_a_refresh_the_next_search_looks_at_the_notes_however_lately_one_did(
    services: BackendServices, workspace: Path
) -> None:
    patient: dict[str, Any] = {"sync": {"onSearchWaitMs": 60_000, "recheckS": 3600}}
    for_a_command = replace(services, is_long_lived=False)
    async with opened(for_a_command, **patient) as memory:
        await memory.sync()
        assert not await memory.refresh()  # one that is opened now finds the choice of notes made
    async with opened(for_a_command, **patient) as memory:
        write(workspace, "memory/boat.md", "The hull is red.")
        seen = [len(await memory.search("hull"))]
        write(workspace, "memory/boat.md", "The keel is red, and long.", at=LONG_AGO + 1)
        seen.append(len(await memory.search("keel")))
        assert await memory.refresh()
        seen += [len(await memory.search("keel")), len(await memory.search("hull"))]

    assert seen == [1, 0, 1, 0]


async def test_a_memory_whose_embedder_failed_is_not_as_one_that_is_opened_now(
    services: BackendServices,
) -> None:
    async with opened(services, HashEmbedder()) as memory:
        await memory.sync()
    async with opened(services, FailingEmbedder()) as memory:
        assert await memory.refresh()
        await memory.search("anything")
        assert not await memory.refresh()


async def test_other_chunk_sizes_cut_every_note_again(services: BackendServices, workspace: Path) -> None:
    write(workspace, "memory/long.md", paragraphs(20))
    async with opened(services) as memory:
        await memory.sync()
    async with opened(services, **SMALL) as memory:
        report = await memory.sync()

        assert report.files_indexed == 4
        assert rows(memory, "SELECT count(*) FROM chunks WHERE path = 'memory/long.md'") == [(20,)]


async def test_switching_keywords_off_and_on_again_leaves_them_whole(services: BackendServices) -> None:
    async with opened(services) as memory:
        await memory.sync()
    async with opened(services, store={"fts": {"enabled": False}}) as memory:
        await memory.sync()
        assert rows(memory, "SELECT count(*) FROM chunks_fts") == [(0,)]
    async with opened(services) as memory:
        await memory.sync()

        assert [hit.path for hit in await memory.search("roof")] == ["memory/house.md"]


async def test_force_writes_everything_anew_and_embeds_nothing_twice(services: BackendServices) -> None:
    embedder = HashEmbedder()
    async with opened(services, embedder) as memory:
        await memory.sync()
        before = rows(memory, "SELECT text, embedding_id FROM chunks")
        report = await memory.sync(force=True)

        assert (report.files_indexed, report.chunks_written, report.embedded) == (3, 3, 0)
        assert len(embedder.texts) == 3
        assert rows(memory, "SELECT text, embedding_id FROM chunks") == before
        assert len(await memory.search("roof")) > 0


async def test_notes_of_extra_folders_are_indexed(services: BackendServices, workspace: Path) -> None:
    write(workspace.parent, "team/plan.md", "Meet at the lighthouse.")

    async with opened(services, extraPaths=["../team"]) as memory:
        await memory.sync()

        assert [hit.path for hit in await memory.search("lighthouse")] == ["../team/plan.md"]


@pytest.mark.thorough
async def test_no_note_is_lost_between_transactions(services: BackendServices, workspace: Path) -> None:
    """2,500 notes make three transactions."""
    for number in range(2500):
        write(workspace, f"memory/many/{number}.md", f"note number {number}")
    async with opened(services) as memory:
        report = await memory.sync()

        assert report.files_indexed == 2503
        assert rows(memory, "SELECT count(*), count(DISTINCT path) FROM chunks") == [(2503, 2503)]


# --- vectors ---


async def test_a_moved_note_is_not_embedded_again(services: BackendServices, workspace: Path) -> None:
    embedder = HashEmbedder()
    async with opened(services, embedder) as memory:
        await memory.sync()
        (workspace / "memory" / "boat.md").rename(workspace / "memory" / "ship.md")
        report = await memory.sync()

        assert (report.files_indexed, report.files_removed, report.embedded) == (1, 1, 0)
        assert memory.status().custom["embeddingCache"] == {"hits": 1, "misses": 3, "hitRate": 0.25}


async def test_notes_indexed_without_an_embedder_get_their_vectors_later(services: BackendServices) -> None:
    async with opened(services) as memory:
        await memory.sync()
    async with opened(services, HashEmbedder()) as memory:
        report = await memory.sync()

        assert (report.files_indexed, report.embedded, report.embeddings_pending) == (0, 3, 0)


async def test_another_embedder_moves_the_chunks_and_coming_back_costs_nothing(
    services: BackendServices,
) -> None:
    first, second = HashEmbedder(32), HashEmbedder(48)
    async with opened(services, first) as memory:
        await memory.sync()
    async with opened(services, second) as memory:
        report = await memory.sync()
        assert (report.files_indexed, report.embedded) == (3, 3)
        assert rows(
            memory, "SELECT DISTINCT dims FROM chunks JOIN embedding_cache e ON e.id = embedding_id"
        ) == [(48,)]
    async with opened(services, first) as memory:
        report = await memory.sync()

        assert (report.embedded, len(first.texts)) == (0, 3)
        assert rows(
            memory, "SELECT DISTINCT dims FROM chunks JOIN embedding_cache e ON e.id = embedding_id"
        ) == [(32,)]


async def test_a_sync_without_an_embedder_leaves_the_vectors_where_they_are(
    services: BackendServices, workspace: Path
) -> None:
    async with opened(services, HashEmbedder()) as memory:
        await memory.sync()
    async with opened(services) as memory:
        (workspace / "memory" / "boat.md").rename(workspace / "memory" / "ship.md")
        await memory.sync()

        assert rows(memory, "SELECT count(*), count(embedding_id) FROM chunks") == [(3, 3)]


async def test_the_newest_notes_are_embedded_first(services: BackendServices, workspace: Path) -> None:
    embedder = HashEmbedder()
    write(workspace, "memory/today.md", "the newest", at=LONG_AGO + 100)
    async with opened(services, embedder) as memory:
        await memory.sync()

    assert embedder.texts[0] == "the newest"


async def test_vectors_have_length_one_and_are_float32(services: BackendServices) -> None:
    class Loud(HashEmbedder):
        async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002
            return [40.0] * self.dimensions

    async with opened(services, Loud(4)) as memory:
        await memory.sync()

        assert rows(memory, "SELECT DISTINCT hex(embedding) FROM embedding_cache") == [("0000003F" * 4,)]


@pytest.mark.parametrize(
    ("vector", "problem"),
    [([1.0] * 63, "expected vectors of 64 numbers, got 63"), ([float("nan")] * 64, "not finite")],
)
async def test_a_vector_that_cannot_be_used_is_refused(
    services: BackendServices, vector: list[float], problem: str
) -> None:
    class Odd(HashEmbedder):
        async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002
            return vector

    async with opened(services, Odd()) as memory:
        report = await memory.sync()

        assert problem in report.problems[0]
        assert (report.files_indexed, report.embeddings_pending) == (3, 3)
        assert rows(memory, "SELECT count(*) FROM embedding_cache") == [(0,)]


@pytest.mark.parametrize(
    ("error", "failures"), [(None, 1), (RuntimeError("out of memory"), 4), (TimeoutError(), 4)]
)
async def test_an_embedder_that_fails_leaves_the_text_searchable(
    services: BackendServices, error: Exception | None, failures: int
) -> None:
    """A batch that fails is tried in parts, unless the whole provider cannot be used."""
    embedder = FailingEmbedder(failures, error=error)
    async with opened(services, embedder) as memory:
        report = await memory.sync()
        assert (report.files_indexed, report.embedded, report.embeddings_pending) == (3, 0, 3)
        assert report.problems[0].startswith("embedding with hash (hash-64) failed: ")
        assert (await memory.search("roof"))[0].path == "memory/house.md"

        again = await memory.sync()
        assert (again.embedded, again.embeddings_pending, again.problems) == (3, 0, ())


async def test_a_batch_that_goes_better_in_parts_leaves_no_problem(services: BackendServices) -> None:
    async with opened(services, FailingEmbedder(1, error=TimeoutError())) as memory:
        report = await memory.sync()

        assert (report.embedded, report.embeddings_pending, report.problems) == (3, 0, ())


async def test_an_embedder_that_fails_in_the_middle_keeps_what_it_did(
    services: BackendServices, workspace: Path
) -> None:
    class Tiring(HashEmbedder):
        async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
            if self.texts:
                raise RuntimeError("tired")
            return await super().embed_batch(inputs)

    write(workspace, "memory/long.md", paragraphs(100))
    async with opened(services, Tiring(), **SMALL) as memory:
        report = await memory.sync()

        assert (report.embedded, report.embeddings_pending) == (64, 39)
        assert report.problems == ("embedding with hash (hash-64) failed: RuntimeError: tired",)


async def test_too_few_vectors_are_refused(services: BackendServices) -> None:
    class Short(HashEmbedder):
        async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
            return (await super().embed_batch(inputs))[:-1]

    async with opened(services, Short()) as memory:
        report = await memory.sync()

        assert "returned 2 vectors for 3 texts" in report.problems[0]


async def test_the_cache_is_pruned_but_never_of_vectors_in_use(
    services: BackendServices, workspace: Path
) -> None:
    embedder = HashEmbedder()
    async with opened(services, embedder, cache={"maxEntries": 4}) as memory:
        for number in range(5):
            write(workspace, "memory/boat.md", f"version {number}", at=LONG_AGO + number + 1)
            await memory.sync()
        assert rows(memory, "SELECT count(*) FROM embedding_cache") == [(4,)]
    async with opened(services, embedder, cache={"maxEntries": 1}) as memory:
        write(workspace, "memory/boat.md", "the last version", at=LONG_AGO + 9)
        await memory.sync()

        assert rows(memory, "SELECT count(*) FROM embedding_cache") == [(3,)]
        assert rows(memory, "SELECT count(*), count(embedding_id) FROM chunks") == [(3, 3)]


async def test_of_unused_vectors_those_longest_unused_go_first(
    services: BackendServices, workspace: Path
) -> None:
    """The first version comes back and goes again, so the second is the one that was not used for longest."""
    embedder = HashEmbedder()
    ticks = iter(range(10_000))
    later = replace(services, clock=lambda: FIXED_NOW + timedelta(seconds=next(ticks)))
    async with opened(later, embedder, cache={"maxEntries": 5}) as memory:
        for at, text in enumerate(("first", "second", "first", "third", "fourth"), start=1):
            write(workspace, "memory/boat.md", f"{text} version", at=LONG_AGO + at)
            await memory.sync()
        asked = len(embedder.texts)
        write(workspace, "memory/boat.md", "first version", at=LONG_AGO + 7)
        await memory.sync()

        assert len(embedder.texts) == asked
        write(workspace, "memory/boat.md", "second version", at=LONG_AGO + 8)
        assert (await memory.sync()).embedded == 1


async def test_the_rate_of_hits_outlives_the_process(services: BackendServices, workspace: Path) -> None:
    async with opened(services, HashEmbedder()) as memory:
        await memory.sync()
        await memory.sync(force=True)
    async with opened(services, HashEmbedder()) as memory:
        assert memory.status().custom["embeddingCache"] == {"hits": 3, "misses": 3, "hitRate": 0.5}


async def test_without_a_cache_only_vectors_in_use_are_kept(
    services: BackendServices, workspace: Path
) -> None:
    async with opened(services, HashEmbedder(), cache={"enabled": False}) as memory:
        await memory.sync()
        write(workspace, "memory/boat.md", "another text", at=LONG_AGO + 1)
        await memory.sync()

        assert rows(memory, "SELECT count(*) FROM embedding_cache") == [(3,)]


# --- who gets to know ---


async def test_the_revision_grows_with_every_change_and_only_then(
    services: BackendServices, workspace: Path
) -> None:
    async with opened(services) as memory:
        await memory.sync()
        first = memory.status().custom["revision"]
        await memory.sync()
        assert memory.status().custom["revision"] == first
        write(workspace, "memory/boat.md", "another text", at=LONG_AGO + 1)
        await memory.sync()

        assert memory.status().custom["revision"] > first  # type: ignore[operator]


async def test_progress_is_told_from_beginning_to_end(services: BackendServices) -> None:
    told: list[MemorySyncProgressUpdate] = []
    async with opened(services, HashEmbedder()) as memory:
        await memory.sync(progress=told.append)

    assert [(update.label, update.completed, update.total) for update in told] == [
        ("Checking the notes", 0, 0),
        ("Indexing notes", 0, 3),
        ("Indexing notes", 3, 3),
        ("Embedding", 0, 3),
        ("Embedding", 3, 3),
    ]


async def test_what_a_sync_did_is_logged_under_one_trace(
    services: BackendServices, events: MemorySink
) -> None:
    async with opened(services) as memory:
        await memory.sync(reason="cli")

    assert events.actions == ["sync.start", "sync.file_indexed", "sync.complete"]
    assert events.details(SyncStart) == [SyncStart(reason="cli", force=False, needs_full_reindex=True)]
    assert events.details(SyncComplete) == [
        SyncComplete(
            reason="cli", full_reindex=True, files_indexed=3, chunks_written=3, embedded=0, removed=0
        )
    ]
    assert len({event.trace_id for event in events.events}) == 1


async def test_a_note_that_cannot_be_read_is_reported_and_logged_once(
    services: BackendServices, workspace: Path, events: MemorySink
) -> None:
    with (workspace / "memory" / "huge.md").open("wb") as file:
        file.truncate(300 * 1024 * 1024)
    async with opened(services) as memory:
        report = await memory.sync()
        await memory.sync()
        answer = await memory.answer("roof")

    assert report.problems == ("memory/huge.md: it is larger than 256 MB",)
    assert (report.files_indexed, report.files_unchanged) == (3, 0)
    assert [detail.path for detail in events.details(SyncFileSkipped)] == ["memory/huge.md"]
    assert [shortcoming.code for shortcoming in answer.degraded] == ["keyword-only", "unreadable-files"]


async def test_syncs_that_find_nothing_say_the_same_until_a_note_or_the_index_is_another(
    services: BackendServices,
) -> None:
    note = write(services.workspace_dir, "memory/a.md", "alpha")
    write(services.workspace_dir, "memory/b.md", "beta")
    (services.workspace_dir / "memory/c.md").write_bytes(b"caf\xe9")
    os.utime(services.workspace_dir / "memory/c.md", (LONG_AGO, LONG_AGO))
    async with opened(services) as memory:
        await memory.sync()
        reports = [await memory.sync() for _ in range(8)]  # more than connections read the index
        assert len({(one.files_unchanged, one.problems) for one in reports}) == 1
        assert any("memory/c.md" in one for one in reports[-1].problems)

        states = rows(memory, "SELECT path, mtime FROM files")
        connection = apsw.Connection(memory.status().db_path or "")
        connection.execute("UPDATE files SET mtime = 1 WHERE path = 'memory/b.md'")
        connection.close()
        await memory.sync()
        assert rows(memory, "SELECT path, mtime FROM files") == states

        write(services.workspace_dir, "memory/a.md", "gamma", at=LONG_AGO + 1)
        assert (await memory.sync()).files_indexed == 1
        note.unlink()
        assert (await memory.sync()).files_removed == 1
