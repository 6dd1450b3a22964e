"""Forgetting with notes, judgements and log lines on a PostgreSQL server: no table holds it afterwards."""

import asyncio
import json
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory import open_memory
from composable_memory.interfaces import LogServices
from composable_memory.runtime.memory import Memory
from composable_memory.state.log_shipping import ship
from composable_memory_adapters.postgres.settings import PostgresSettings
from tests.postgres_server import PostgresServer, missing
from tests.unit.feedback.store_makers import judgement

if (reason := missing()) is not None:
    pytest.skip(reason, allow_module_level=True)

from composable_memory_adapters.postgres.log_lines import open_log_store

SECRET = "The spare key lies under the turquoise flowerpot, code zebra-99117."
WORDS = ("turquoise", "flowerpot", "turquois", "zebra", "zebra-99117")
"""Of the secret, one of them as a stem."""
WITH_TEXTS = {
    "notes",
    "passages",
    "passage_words",
    "recent_postings",
    "entries",
    "log_lines",
}
NOTE = f"""# Day

The ferry leaves at nine.

## Retain
- W @Peter: {SECRET} ^k1abc
"""


class Team:
    """A workspace on a server to which folders bring notes and transcripts, and in which they learn."""

    def __init__(self, tmp_path: Path, settings: PostgresSettings, server: PostgresServer) -> None:
        self._tmp_path, self._settings, self._server = tmp_path, settings, server

    def folder(self, name: str, note: str, said: str = "Hello.") -> Path:
        folder = self._tmp_path / name
        sessions = folder / ".state" / "agents" / "main" / "sessions"
        sessions.mkdir(parents=True)
        (folder / "memory").mkdir()
        (folder / "memory" / f"{name}.md").write_text(note, encoding="utf-8")
        line = json.dumps({"message": {"role": "user", "content": said}})
        (sessions / f"{name}.jsonl").write_text(f"{line}\n", encoding="utf-8")
        return folder

    def open(self, folder: Path, **more: object) -> AbstractAsyncContextManager[Memory]:
        assert self._settings.url is not None
        team = {
            "kind": "postgres",
            "workspace": "team",
            "schema": self._settings.schema_,
            "url": self._settings.url.get_secret_value(),
            "sources": ["memory", "sessions"],
        }
        feedback = {"backend": "team"}
        config = {"backends": {"team": team}, "feedback": feedback, "embedding": {"provider": "wordllama"}}
        given = {"memory": {**config, **more}}
        return open_memory(folder, folder / ".state", given, long_lived=False, environ={})

    async def ship(self, memory: Memory, folder: Path) -> None:
        await memory.ops_log.flush()
        services = LogServices(backend_id="team", workspace_id=memory.forgotten.folder.name, environ={})
        async with open_log_store(self._settings.model_copy(update={"workspace": "team"}), services) as store:
            await ship(folder / ".state", memory.forgotten.folder.name, store)

    def tables_with(self, *words: str) -> set[str]:
        """Return the tables that have one of some words in a row."""
        schema = self._settings.schema_
        names = self._server.run(f"SELECT tablename FROM pg_tables WHERE schemaname = '{schema}'").split()
        rows = {name: self._server.run(f"SELECT t::text FROM {schema}.{name} t").lower() for name in names}
        forms = [form for word in words for form in (word, word.encode().hex())]  # a note's text is bytes
        return {name for name in names if any(form in rows[name] for form in forms)}

    def all_of(self, column: str, table: str) -> set[str]:
        return {*self._server.run(f"SELECT {column} FROM {self._settings.schema_}.{table}").split()}


@pytest.fixture
def team(tmp_path: Path, team_settings: PostgresSettings, postgres_server: PostgresServer) -> Team:
    return Team(tmp_path, team_settings, postgres_server)


async def test_no_table_holds_what_was_forgotten(team: Team) -> None:
    ada = await asyncio.to_thread(team.folder, "ada", NOTE, f"As I said: {SECRET}")
    async with team.open(ada) as memory:
        await memory.sync()
        await memory.query("is it that the spare key lies under the turquoise flowerpot?")
        judged = replace(judgement(), rationale=f"It says: {SECRET}")
        await memory.context.stored(lambda store: store.add([judged]))
        await team.ship(memory, ada)
        before = await asyncio.to_thread(team.tables_with, *WORDS)
        vectors = await asyncio.to_thread(team.all_of, "hash", "vectors")
        plan = await memory.plan_forgetting("^k1abc")
        report = await memory.forget(plan)
        await memory.sync(force=True)
        await team.ship(memory, ada)
        after = await asyncio.to_thread(team.tables_with, *WORDS)
        found = await memory.query("turquoise flowerpot")
        ferry = await memory.query("when does the ferry leave?")

    assert before == WITH_TEXTS
    assert after == set()
    assert vectors.isdisjoint(await asyncio.to_thread(team.all_of, "hash", "vectors"))
    assert await asyncio.to_thread(team.all_of, "id", "log_lines")
    assert report.is_done
    assert not any("turquoise" in one.snippet for one in found.results)
    assert any("ferry" in one.snippet for one in ferry.results)
    told = {(one.store, one.what): one.count for one in report.stores if not one.stays}
    assert {("team", "passages of notes"), ("team", "passages of transcripts")} <= told.keys()
    assert {("team", "vectors"), ("team", "log lines that quote it")} <= told.keys()
    assert {("team", what) for what in told.values() if not what} == set()
    assert [(one.store, one.what) for one in plan.stores if one.store == "team"] == [
        (one.store, one.what) for one in report.stores if one.store == "team"
    ]


async def test_what_was_said_is_forgotten_where_the_server_is_the_only_memory(team: Team) -> None:
    ada = await asyncio.to_thread(team.folder, "ada", "The ferry leaves at noon.\n", f"As I said: {SECRET}")
    said = ada / ".state" / "agents" / "main" / "sessions" / "ada.jsonl"
    async with team.open(ada, builtin={"enabled": False}) as memory:
        await memory.sync()
        (found, *_) = (await memory.query("turquoise flowerpot")).results
        report = await memory.forget(await memory.plan_forgetting(f"{found.path}:1"))
        left = await memory.query("turquoise flowerpot")

    assert found.path == "sessions/ada.jsonl"
    assert report.is_done
    assert "turquoise" not in await asyncio.to_thread(said.read_text, encoding="utf-8")
    assert not any("turquoise" in one.snippet for one in left.results)


@pytest.mark.thorough
async def test_what_others_have_brought_is_named_and_goes_with_them(team: Team) -> None:
    ada, bob = [await asyncio.to_thread(team.folder, name, NOTE) for name in ("ada", "bob")]
    async with team.open(bob) as his:
        await his.sync()
        async with team.open(ada) as memory:
            await memory.sync()
            report = await memory.forget(await memory.plan_forgetting("^k1abc"))
        left = await asyncio.to_thread(team.tables_with, "turquoise")
        last = await his.forget(await his.plan_forgetting("^k1abc"))

    (theirs,) = [one for one in report.stores if one.what == "files of others"]
    assert theirs.examples == ("memory/bob.md",)
    assert "passages" in left
    assert await asyncio.to_thread(team.tables_with, *WORDS) == set()
    assert not [one for one in last.stores if one.what == "files of others"]
