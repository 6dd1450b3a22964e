"""Bits that change in an index: no search serves them, a check names them, the next sync mends them."""

import asyncio
import zlib
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from benchmarks import corruption
from composable_memory.content import EmbedderInput
from composable_memory.interfaces import BackendServices
from composable_memory.testing import HashEmbedder
from composable_memory.types import SearchAnswer
from composable_memory_adapters.builtin.backend import open_builtin
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.store import integrity, schema
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from tests.rounds import rounds
from tests.variants import variants

ROUNDS = rounds(1, explore=20)
NO_SYNC = BuiltinSettings.model_validate({"sync": {"onSearch": False}})
CODE = "The code of the harbour gate is 487."
HARBOUR = "SELECT count(*) FROM chunks_fts WHERE chunks_fts MATCH 'harbour'"
TO_VERSION_5 = """
ALTER TABLE files DROP COLUMN ctime;
PRAGMA user_version = 5;
"""
TO_VERSION_4 = f"""
{TO_VERSION_5}
DROP TRIGGER passage_came;
DROP TRIGGER passage_went;
DROP TRIGGER passage_changed;
DROP TABLE vector_changes;
PRAGMA user_version = 4;
"""
TO_VERSION_3 = f"""
{TO_VERSION_4}
DROP TABLE long_words;
PRAGMA user_version = 3;
"""
TO_VERSION_2 = f"""
{TO_VERSION_4}
DROP TABLE long_words;
ALTER TABLE files DROP COLUMN title;
ALTER TABLE files DROP COLUMN aliases;
ALTER TABLE files DROP COLUMN tags;
ALTER TABLE files DROP COLUMN type;
ALTER TABLE files DROP COLUMN day;
ALTER TABLE chunks DROP COLUMN headings;
DROP TABLE chunks_fts;
CREATE VIRTUAL TABLE chunks_fts USING fts5(
  text, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2'
);
INSERT INTO chunks_fts (rowid, text) SELECT id, text FROM chunks;
UPDATE chunks SET checksum = crc32(
  path || char(0) || source || char(0) || start_line || char(0) || end_line || char(0) || start_char
  || char(0) || hash
);
UPDATE files SET chunker = replace(replace(chunker, 'markdown-3', 'markdown-2'), 'keywords-4', 'keywords-3');
UPDATE meta SET value = replace(replace(value, 'markdown-3', 'markdown-2'), 'keywords-4', 'keywords-3')
WHERE key = 'recipe';
PRAGMA user_version = 2;
"""
TO_VERSION_1 = """
ALTER TABLE files DROP COLUMN is_utf8;
ALTER TABLE chunks DROP COLUMN start_char;
ALTER TABLE chunks DROP COLUMN checksum;
ALTER TABLE embedding_cache DROP COLUMN checksum;
PRAGMA user_version = 1;
"""
OLDER = {1: TO_VERSION_2 + TO_VERSION_1, 2: TO_VERSION_2, 3: TO_VERSION_3, 4: TO_VERSION_4, 5: TO_VERSION_5}
TRIP = """---
title: Four days by the river
aliases: [escapade]
tags: [travel/portugal]
date: 2026-03-04
---
# Lisbon

A room above the harbour, and a #sketchbook.
"""


class Remote(HashEmbedder):
    """Every text costs something."""

    def __init__(self) -> None:
        super().__init__()
        self.paid: list[str] = []

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        self.paid += [one.text for one in inputs]
        return await super().embed_batch(inputs)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "memory").mkdir(parents=True)
    (folder / "memory" / "gate.md").write_text(f"# Gate\n\n{CODE}\n", encoding="utf-8")
    for number in range(6):
        text = f"# Boat {number}\n\nThe harbour boat {number} is painted green.\n"
        (folder / "memory" / f"boat-{number}.md").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def handed(services: BackendServices) -> BackendServices:
    return replace(services, embedder=HashEmbedder())


async def index_of(services: BackendServices) -> Path:
    async with open_builtin(NO_SYNC, services) as memory:
        await memory.sync()
        return Path(memory.status().db_path or "")


def _crc32(*values: object) -> int:
    return zlib.crc32(str(values[0]).encode())


def damage(path: Path, statement: str) -> None:
    with closing(apsw.Connection(str(path))) as connection:
        connection.create_scalar_function("crc32", _crc32, 1)
        connection.execute(statement)


def codes(answer: SearchAnswer) -> list[str]:
    return [one.code for one in answer.degraded]


CHANGES = {
    "a digit": "text = replace(text, '487', '987')",
    "no longer UTF-8": "text = CAST(replace(text, '487', CAST(x'ff' AS TEXT)) AS TEXT)",
    "its hash": "hash = replace(hash, 'a', 'b')",
    "its lines": "start_line = 2",
}
OF_THE_GATE = " WHERE path = 'memory/gate.md'"


@pytest.mark.parametrize("change", CHANGES)
async def test_a_passage_that_changed_in_the_index_is_not_served_but_named_and_mended(
    handed: BackendServices, change: str
) -> None:
    path = await index_of(handed)
    damage(path, f"UPDATE chunks SET {CHANGES[change]} {OF_THE_GATE}")

    async with open_builtin(NO_SYNC, handed) as memory:
        answer = await memory.answer("code of the harbour gate")
        assert "memory/gate.md" not in [hit.path for hit in answer.results]
        assert len(answer.results) == 6
        (named,) = [one for one in answer.degraded if one.code == "damaged"]
        assert "memory/gate.md" in named.reason
        assert "`cmem index`" in named.reason
    async with open_builtin(NO_SYNC, handed) as memory:  # another process knows
        assert memory.status().custom["damage"]
        assert memory.status().dirty is True
        report = await memory.sync()
        answer = await memory.answer("code of the harbour gate")

        assert report.files_indexed == 1
        assert "memory/gate.md" in report.problems[0]
        assert (codes(answer), answer.results[0].path) == ([], "memory/gate.md")
        assert CODE in answer.results[0].snippet
        assert (await memory.check(), memory.status().custom.get("damage")) == ((), None)
        assert (await memory.sync()).problems == ()


async def test_passages_whose_rows_an_index_lost_are_missed_and_come_back(handed: BackendServices) -> None:
    path = await index_of(handed)
    damage(path, f"DELETE FROM chunks {OF_THE_GATE}")

    async with open_builtin(NO_SYNC, handed) as memory:
        assert "damaged" in codes(await memory.answer("code of the harbour gate"))
        assert await memory.check() != ()
        await memory.sync()
        answer = await memory.answer("code of the harbour gate")

        assert (codes(answer), answer.results[0].path) == ([], "memory/gate.md")
        assert await memory.check() == ()


async def test_a_process_that_lives_on_mends_what_its_search_came_upon(handed: BackendServices) -> None:
    path = await index_of(handed)
    damage(path, f"UPDATE chunks SET {CHANGES['a digit']} {OF_THE_GATE}")

    patient = BuiltinSettings.model_validate({"sync": {"onSearchWaitMs": 60_000, "watch": False}})
    async with open_builtin(patient, replace(handed, is_long_lived=True)) as memory:
        await memory.sync()
        assert "damaged" in codes(await memory.answer("code of the harbour gate"))
        await memory.sync()  # waits for the one that the search has begun
        answer = await memory.answer("code of the harbour gate")

    assert (codes(answer), answer.results[0].path) == ([], "memory/gate.md")


async def test_a_vector_that_changed_is_named_and_made_anew(handed: BackendServices) -> None:
    path = await index_of(handed)
    damage(
        path,
        "UPDATE embedding_cache SET embedding = CAST(x'0000803f' || substr(embedding, 5) AS BLOB)"
        " WHERE id = (SELECT embedding_id FROM chunks WHERE path = 'memory/gate.md')",
    )

    async with open_builtin(NO_SYNC, handed) as memory:
        assert "1 vector" in (await memory.check())[0]
        report = await memory.sync()

        assert (report.files_indexed, report.embedded, report.embeddings_pending) == (0, 1, 0)
        assert await memory.check() == ()


async def test_words_that_changed_in_the_keyword_index_are_named_and_made_anew(
    handed: BackendServices,
) -> None:
    path = await index_of(handed)
    damage(path, "INSERT INTO chunks_fts (rowid, text) VALUES (4711, 'gasometer')")

    async with open_builtin(NO_SYNC, handed) as memory:
        assert "keyword index" in (await memory.check())[0]
        await memory.sync()
        assert await memory.check() == ()


async def test_vectors_that_are_whole_outlast_a_file_that_is_set_aside(services: BackendServices) -> None:
    remote = Remote()
    path = await index_of(replace(services, embedder=remote, embedder_is_local=False))
    paid = len(remote.paid)
    damage(path, "DROP TABLE chunks_fts")

    async with open_builtin(NO_SYNC, replace(services, embedder=remote, embedder_is_local=False)) as memory:
        report = await memory.sync()

        assert (report.files_indexed, report.embedded, report.embeddings_pending) == (7, 0, 0)
        assert len(remote.paid) == paid
        assert await memory.check() == ()


async def test_only_the_latest_damaged_file_is_kept(services: BackendServices) -> None:
    path = await index_of(services)
    for garbage in (b"one" * 1000, b"two" * 1000):
        path.write_bytes(garbage)
        async with open_builtin(NO_SYNC, services) as memory:
            await memory.sync()

    (aside,) = path.parent.glob("*.damaged-*")
    assert aside.read_bytes() == b"two" * 1000


@pytest.mark.parametrize("version", OLDER)
async def test_an_index_of_an_older_version_is_taken_over_with_its_vectors(
    handed: BackendServices, version: int
) -> None:
    path = await index_of(handed)
    damage(path, OLDER[version])

    async with open_builtin(NO_SYNC, handed) as memory:
        report = await memory.sync()
        answer = await memory.answer("code of the harbour gate")

        assert (report.embedded, report.problems) == (7 if version == 1 else 0, ())
        assert (answer.results[0].path, answer.results[0].title) == ("memory/gate.md", "Gate")
        assert await memory.check() == ()
    with closing(apsw.Connection(str(path))) as connection:
        assert connection.pragma("user_version") == schema.SCHEMA_VERSION
        assert not connection.execute("SELECT count(*) FROM embedding_cache WHERE checksum IS NULL").get


async def test_an_upgrade_that_was_interrupted_begins_anew(handed: BackendServices) -> None:
    path = await index_of(handed)
    damage(path, TO_VERSION_2)

    def upgrade_without_commit() -> None:
        with closing(Connection(str(path))) as connection:
            connection.execute("BEGIN IMMEDIATE")
            schema.create(connection, path)
            assert connection.pragma("user_version") == schema.SCHEMA_VERSION

    await asyncio.to_thread(upgrade_without_commit)

    async with open_builtin(NO_SYNC, handed) as memory:
        assert (await memory.sync()).embedded == 0
        assert (await memory.answer("code of the harbour gate")).results[0].path == "memory/gate.md"
        assert await memory.check() == ()


@pytest.mark.parametrize(
    "kind", variants(corruption.KINDS, "a bit of the file", "a bit of a text", "cut short", "log: garbage")
)
async def test_whatever_is_damaged_is_never_served_and_mended_by_a_sync(tmp_path: Path, kind: str) -> None:
    tally = await corruption.run(tmp_path, kind=kind, rounds=ROUNDS, notes=30, seed=7)

    assert (tally.rounds, tally.faults) == (ROUNDS, [])


async def test_a_keyword_index_that_others_have_written_since_is_not_taken_for_damaged(
    handed: BackendServices,
) -> None:
    """SQLite's own check goes by what its connection read of the keyword index last."""
    path = await index_of(handed)
    async with SqliteFile.open(path, readers=1) as file:
        assert await file.read(lambda connection: connection.execute(HARBOUR).get)
        async with open_builtin(NO_SYNC, handed) as other:
            for number in range(3):
                text = f"# Tide\n\nHigh water {number} at the harbour.\n"
                (handed.workspace_dir / "memory" / "tide.md").write_text(text, encoding="utf-8")
                await other.sync()
        damage(path, "INSERT INTO chunks_fts(chunks_fts) VALUES ('optimize')")

        assert (await file.read(integrity.examine)).describe() is None
