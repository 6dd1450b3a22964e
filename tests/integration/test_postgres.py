"""The PostgreSQL memory on a real server: ranking, several machines, borders, a server that goes away."""

import asyncio
import hashlib
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import certifi
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner, Result

from benchmarks.names_and_dates import NOW, make_notes, make_questions
from composable_memory import open_memory
from composable_memory.cli import app
from composable_memory.errors import BackendError, BackendUnavailable, ConfigError, MemoryPathError
from composable_memory.interfaces import BackendServices, FeedbackServices, SupportsAnswer
from composable_memory.supervision.process_identity import host, is_gone, start_of
from composable_memory.testing import FIXED_NOW, HashEmbedder
from composable_memory.types import MemorySource, SearchFilters, SearchOptions, SyncReport
from composable_memory.vector_values import EmbedderInput
from composable_memory_adapters import builtin, postgres
from composable_memory_adapters.builtin.settings import QuerySettings
from composable_memory_adapters.builtin.sync import sync_scheduler
from composable_memory_adapters.embedders.wordllama import WordLlamaEmbedder
from composable_memory_adapters.postgres.settings import PostgresSettings
from composable_memory_feedback.judgements import Judgement
from composable_memory_ops_logs import OpsEvent, SyncFailed, utc_now
from tests.documents import docx, paragraph, pdf
from tests.postgres_server import (
    CITUS,
    PostgresServer,
    distribute_earlier,
    make_tables,
    missing,
    pooler,
    running,
    server_folder,
)
from tests.rounds import rounds
from tests.unit.feedback.store_makers import judgement
from tests.variants import variants

if (reason := missing()) is not None:
    pytest.skip(reason, allow_module_level=True)

from composable_memory_adapters.postgres import postings, server, vector_index
from composable_memory_adapters.postgres.backend import PostgresMemory, open_postgres
from composable_memory_adapters.postgres.feedback import PostgresFeedbackStore
from composable_memory_adapters.postgres.schema import VERSION, migrate, migrations
from composable_memory_adapters.postgres.server import Address, address_of
from tests.notes import write_notes

TABLES = (
    "notes",
    "copies",
    "passages",
    "passage_words",
    "vectors",
    "long_words",
    "message_times",
    "postings",
    "recent_postings",
    "log_lines",
    "workspace_states",
)


async def vault(tmp_path: Path, *, every: int) -> tuple[Path, list[str]]:
    """Write one in `every` so many notes with names and dates; return their folder, and questions on all."""
    everything, folder = make_notes(), tmp_path / "vault"
    notes = {path: everything[path] for path in sorted(everything)[::every]}
    await asyncio.to_thread(write_notes, folder, notes)
    return folder, [one.text for one in make_questions(everything)]


def shared(settings: PostgresSettings, **more: object) -> PostgresSettings:
    return settings.model_copy(update={"workspace": "team", **more})


@asynccontextmanager
async def machine(
    settings: PostgresSettings, services: BackendServices, folder: Path
) -> AsyncIterator[PostgresMemory]:
    """Open a shared workspace from a folder of its own."""
    await asyncio.to_thread(folder.mkdir, exist_ok=True)
    own = replace(services, workspace_dir=folder, state_dir=folder / ".state", workspace_id=folder.name)
    async with open_postgres(shared(settings, owner=folder.name), own) as memory:
        yield memory


async def paths(memory: PostgresMemory, query: str) -> list[str]:
    return [hit.path for hit in await memory.search(query, SearchOptions(max_results=12))]


# --- the same ranking ---------------------------------------------------------------------------------------


async def test_results_and_scores_are_those_of_the_builtin_memory(
    services: BackendServices,
    team_settings: PostgresSettings,
    word_vectors: WordLlamaEmbedder,
    tmp_path: Path,
) -> None:
    """English, German, Spanish and Chinese notes and questions, with names, dates, headings and tags."""
    folder, questions = await vault(tmp_path, every=6)
    options = SearchOptions(max_results=24, now=NOW)
    here = replace(services, workspace_dir=folder, embedder=word_vectors, embedder_problem=None)
    off = builtin.BuiltinSettings.model_validate({"scope": "folder", "query": {"rerank": "off"}})
    there = team_settings.model_copy(update={"scope": "folder"})

    async with builtin.spec.open(off, here) as one, postgres.spec.open(there, here) as other:
        assert isinstance(other, PostgresMemory)
        await one.sync()  # type: ignore[attr-defined]
        await other.sync()
        expected = {question: list(await one.search(question, options)) for question in questions[::3]}
        found = {question: list(await other.search(question, options)) for question in expected}

    for question in expected:
        places = [(hit.path, hit.start_line, hit.start_char, hit.snippet) for hit in found[question]]
        wanted = [(hit.path, hit.start_line, hit.start_char, hit.snippet) for hit in expected[question]]
        assert places == wanted, question
        scores = [hit.score for hit in found[question]]
        assert scores == pytest.approx([hit.score for hit in expected[question]], abs=1e-5), question


@pytest.mark.thorough
@pytest.mark.usefixtures("rerank_extra")
async def test_reranked_results_are_those_of_the_builtin_memory(
    services: BackendServices,
    team_settings: PostgresSettings,
    word_vectors: WordLlamaEmbedder,
    tmp_path: Path,
) -> None:
    folder, questions = await vault(tmp_path, every=24)
    options = SearchOptions(max_results=12, now=NOW)
    here = replace(services, workspace_dir=folder, embedder=word_vectors, embedder_problem=None)
    here = replace(here, is_long_lived=False)
    scope = builtin.BuiltinSettings.model_validate({"scope": "folder"})
    there = team_settings.model_copy(update={"scope": "folder", "query": QuerySettings()})

    async with builtin.spec.open(scope, here) as one, open_postgres(there, here) as other:
        assert isinstance(one, SupportsAnswer)
        reports = [await one.sync(), await other.sync()]  # type: ignore[attr-defined]
        assert [report.problems for report in reports] == [(), ()]
        for question in questions[::20]:
            expected, found = await one.answer(question, options), await other.answer(question, options)
            assert found.engines["rerank"] == expected.engines["rerank"]
            places = [(hit.path, hit.start_line, hit.start_char) for hit in found.results]
            assert places == [(hit.path, hit.start_line, hit.start_char) for hit in expected.results]
            scores = [hit.score for hit in found.results]
            assert scores == pytest.approx([hit.score for hit in expected.results], abs=1e-4)
    assert len([*(services.state_dir / "rerank").glob("*.sqlite")]) == 2


async def test_words_lead_to_passages_by_an_index_that_row_level_security_lets_the_server_use(
    services: BackendServices, team_settings: PostgresSettings, postgres_server: PostgresServer
) -> None:
    """By a role that owns no table."""
    async with open_postgres(team_settings, services) as memory:
        await memory.sync()
    plans = await asyncio.to_thread(
        postgres_server.run,
        f"""SET ROLE team; SET cmem.tenant = '1'; SET search_path = {team_settings.schema_}, public;
        SET enable_seqscan = off;
        EXPLAIN SELECT places FROM unnest('{{ferry}}'::text[]) AS asked (one)
        JOIN postings ON tenant = 1 AND word = one""",
    )
    assert "Index Cond: ((tenant = 1) AND (word" in plans


FILTERS = (
    SearchFilters(since=NOW - timedelta(days=60), until=NOW),
    SearchFilters(paths=("*a*",)),
    SearchFilters(tags=("boats",)),
    SearchFilters(types=("world", "note")),
    SearchFilters(phrases=("Winter storage",)),
    SearchFilters(phrases=("Winter storage", "the"), paths=("*a*",)),
    SearchFilters(without=("the", "water")),
    SearchFilters(sources=("sessions",)),
)


async def test_filters_let_pass_what_those_of_the_builtin_memory_do(
    services: BackendServices,
    team_settings: PostgresSettings,
    word_vectors: WordLlamaEmbedder,
    tmp_path: Path,
) -> None:
    folder, questions = await vault(tmp_path, every=3)
    await asyncio.to_thread(write_notes, folder, {"memory/lines.md": "- W: The water is cold.\n"})
    here = replace(services, workspace_dir=folder, embedder=word_vectors, embedder_problem=None)
    off = builtin.BuiltinSettings.model_validate({"scope": "folder", "query": {"rerank": "off"}})
    there = team_settings.model_copy(update={"scope": "folder"})

    async with builtin.spec.open(off, here) as one, postgres.spec.open(there, here) as other:
        assert isinstance(one, SupportsAnswer)
        assert isinstance(other, SupportsAnswer)
        await one.sync()  # type: ignore[attr-defined]
        await other.sync()  # type: ignore[attr-defined]
        for filters in FILTERS:
            options = SearchOptions(max_results=24, now=NOW, filters=filters)
            for question in ("", *questions[::25]):
                expected, found = await one.answer(question, options), await other.answer(question, options)
                places = [(hit.path, hit.start_line, hit.snippet) for hit in found.results]
                assert places == [(hit.path, hit.start_line, hit.snippet) for hit in expected.results]
                assert found.is_filtered
            assert bool(places) is (filters.sources == ()), filters


def said(role: str, text: str, at: str) -> str:
    message = {"role": role, "content": [{"type": "text", "text": text}]}
    return json.dumps({"type": "message", "timestamp": at, "message": message})


TALKS = {
    "monday.jsonl": [
        said("user", "Which crane lifts the mast?", "2026-10-26T09:00:00Z"),
        said("assistant", "The green crane lifts the mast. The code word is heron.", "2026-10-26T09:01:00Z"),
        *(said("user", f"The tide was {one} cm high at noon.", "2026-10-27T12:00:00Z") for one in range(60)),
    ],
    "friday.jsonl": [said("user", "The crane has a new cable.", "2026-10-30T16:00:00Z")],
}
TALKED_OF = (
    "Which crane lifts the mast?",
    "crane 2026-10-30",
    "What happened on 27 October 2026?",
    "the cable in October 2026",
    "The engine of the boat",
    "winter storage",
)


async def test_transcripts_and_documents_are_found_and_read_as_in_the_builtin_memory(
    services: BackendServices,
    team_settings: PostgresSettings,
    word_vectors: WordLlamaEmbedder,
    tmp_path: Path,
    state_dir: Path,
) -> None:
    folder, _ = await vault(tmp_path, every=6)
    (folder / "plan.docx").write_bytes(
        docx(paragraph("The crane is steel.") + paragraph("The code is 7400."))
    )
    (folder / "report.pdf").write_bytes(pdf("The harbour has cranes.", "The mast is high."))
    (folder / "torn.pdf").write_bytes(b"%PDF-1.7 and no more")
    talks = {f"{name}": "".join(f"{line}\n" for line in lines) for name, lines in TALKS.items()}
    await asyncio.to_thread(write_notes, state_dir / "agents/main/sessions", talks)
    here = replace(services, workspace_dir=folder, embedder=word_vectors, embedder_problem=None)
    both = {"scope": "folder", "sources": ["memory", "sessions"], "documents": ["docx", "pdf"]}
    off = builtin.BuiltinSettings.model_validate({**both, "query": {"rerank": "off"}})
    own = {"url": team_settings.url, "schema": team_settings.schema_}
    there = PostgresSettings.model_validate({**both, **own})
    week = SearchFilters(since=NOW.replace(month=10, day=26), until=NOW.replace(month=10, day=27))
    asked = [SearchFilters(), week, SearchFilters(sources=("sessions",)), SearchFilters(paths=("*.docx",))]

    async with builtin.spec.open(off, here) as one, open_postgres(there, here) as other:
        expected, found = await one.sync(), await other.sync()  # type: ignore[attr-defined]
        assert (found.files_indexed, found.files_unchanged) == (expected.files_indexed, 0)
        assert "torn.pdf" in "".join(found.problems)
        for filters in asked:
            options = SearchOptions(max_results=24, now=NOW, filters=filters)
            for question in TALKED_OF:
                wanted, got = await one.search(question, options), await other.search(question, options)
                assert [(hit.path, hit.source, hit.start_line, hit.snippet) for hit in got] == [
                    (hit.path, hit.source, hit.start_line, hit.snippet) for hit in wanted
                ], question
                assert [hit.score for hit in got] == pytest.approx([hit.score for hit in wanted], abs=1e-5)
            assert got
        for path in ("sessions/monday.jsonl", "plan.docx", "report.pdf", "torn.pdf", "sessions/no.jsonl"):
            for place in ({}, {"from_line": 2, "lines": 1}):
                if path != "torn.pdf":
                    assert await other.read_file(path, **place) == await one.read_file(path, **place)
        again = await other.sync()
        assert (again.files_indexed, again.files_unchanged) == (0, found.files_indexed)
        assert {(one.source, one.files > 0) for one in other.status().source_counts} == {
            ("memory", True),
            ("sessions", True),
        }

    def hide(text: str, _: MemorySource) -> str:
        return text.replace("heron", "[forgotten]")

    forgetting = replace(here, hide=hide, forgotten=lambda: "heron")
    async with open_postgres(there, forgetting) as other:
        report = await other.sync()
        assert "heron" not in (await other.read_file("sessions/monday.jsonl")).text
        assert not [hit for hit in await other.search("heron") if "heron" in hit.snippet]
    assert report.files_indexed == len(TALKS) + 3
    only_notes = there.model_copy(update={"sources": ("memory",), "documents": ()})
    async with open_postgres(only_notes, here) as other:
        assert (await other.sync()).files_removed == len(TALKS) + 3
        assert "crane" not in "".join(hit.snippet for hit in await other.search("crane mast"))


# --- several machines ---------------------------------------------------------------------------------------


async def test_folders_of_one_workspace_see_each_others_notes(
    services: BackendServices, team_settings: PostgresSettings, tmp_path: Path
) -> None:
    async with (
        machine(team_settings, services, tmp_path / "ada") as ada,
        machine(team_settings, services, tmp_path / "bob") as bob,
    ):
        await asyncio.to_thread(
            write_notes, tmp_path / "ada", {"memory/harbour.md": "The harbour pilot is Una.\n"}
        )
        await asyncio.to_thread(
            write_notes, tmp_path / "bob", {"memory/boat.md": "The harbour boat is green.\n"}
        )
        await ada.sync()
        await bob.sync()

        assert {*await paths(ada, "harbour")} == {*await paths(bob, "harbour")}
        assert {*await paths(ada, "harbour")} == {"memory/harbour.md", "memory/boat.md"}
        assert (await bob.read_file("memory/harbour.md")).text == "The harbour pilot is Una.\n"


async def test_what_one_clone_removes_stays_as_long_as_another_has_it(
    services: BackendServices, team_settings: PostgresSettings, tmp_path: Path
) -> None:
    notes = {"memory/harbour.md": "The harbour pilot is Una.\n", "memory/boat.md": "The harbour boat.\n"}
    async with (
        machine(team_settings, services, tmp_path / "ada") as ada,
        machine(team_settings, services, tmp_path / "bob") as bob,
    ):
        for folder in ("ada", "bob"):
            await asyncio.to_thread(write_notes, tmp_path / folder, notes)
        first, second = await ada.sync(), await bob.sync()
        (tmp_path / "ada" / "memory/boat.md").unlink()
        await ada.sync()
        kept = await paths(ada, "harbour")
        (tmp_path / "bob" / "memory/boat.md").unlink()
        await bob.sync()

        assert (first.files_indexed, second.files_indexed) == (2, 0)
        assert {*kept} == {*notes}
        assert await paths(ada, "harbour") == ["memory/harbour.md"]


async def test_of_two_versions_of_a_note_the_later_one_counts_until_it_is_removed(
    services: BackendServices, team_settings: PostgresSettings, tmp_path: Path
) -> None:
    async with (
        machine(team_settings, services, tmp_path / "ada") as ada,
        machine(team_settings, services, tmp_path / "bob") as bob,
    ):
        await asyncio.to_thread(write_notes, tmp_path / "ada", {"MEMORY.md": "The pilot is Una.\n"})
        await asyncio.to_thread(write_notes, tmp_path / "bob", {"MEMORY.md": "The pilot is Finn.\n"})
        _made_at(tmp_path / "ada/MEMORY.md", 1)
        _made_at(tmp_path / "bob/MEMORY.md", 2)
        await bob.sync()
        await ada.sync()
        latest = (await ada.read_file("MEMORY.md")).text
        (tmp_path / "bob/MEMORY.md").unlink()
        await bob.sync()
        await ada.sync()

        assert latest == "The pilot is Finn.\n"
        assert (await bob.read_file("MEMORY.md")).text == "The pilot is Una.\n"


async def test_folders_that_cut_differently_leave_each_others_passages(
    services: BackendServices, team_settings: PostgresSettings, tmp_path: Path
) -> None:
    small = team_settings.model_copy(
        update={"chunking": team_settings.chunking.model_copy(update={"tokens": 20})}
    )
    notes = {"memory/log.md": "".join(f"Line {line} of the harbour log.\n\n" for line in range(20))}
    async with (
        machine(team_settings, services, tmp_path / "ada") as ada,
        machine(small, services, tmp_path / "bob") as bob,
    ):
        for folder in ("ada", "bob"):
            await asyncio.to_thread(write_notes, tmp_path / folder, notes)
        first, second = await ada.sync(), await bob.sync()
        assert 0 < first.chunks_written < second.chunks_written
        for memory in (ada, bob, ada):
            assert (await memory.sync()).files_indexed == 0

        await asyncio.to_thread(write_notes, tmp_path / "ada", {"memory/log.md": "The log is closed.\n"})
        assert (await ada.sync()).files_indexed == 1
        assert (await bob.sync()).files_indexed == 0
        assert (await bob.read_file("memory/log.md")).text == "The log is closed.\n"


OF_NOTES = ("workspaces", "notes", "copies", "passages", "passage_words", "vectors", "long_words")
COLUMNS = "SELECT column_name FROM information_schema.columns WHERE table_schema = '{}' AND table_name = '{}'"


def tables_of(version: int, running: PostgresServer, source: str) -> str:
    """Make tables as an earlier version had them, with the notes of a schema; return theirs."""
    schema = f"{source}_{version}"
    running.run(
        f"CREATE SCHEMA {schema}",
        f"CREATE TABLE {schema}.schema_version AS SELECT {version} AS version",
        f"SET search_path = {schema}, public",
        *chain.from_iterable(migrations()[:version]),
    )
    distribute_earlier(running, schema, version)
    tables = [*OF_NOTES, *["workspace_states"] * (version > 9), *["postings"] * (version > 11)]
    for table in tables:
        then, now = (running.run(COLUMNS.format(one, table)).split() for one in (schema, source))
        values = {one: one for one in then if one in now}
        if "weights" in then and table == "passage_words":  # by which nothing is found any more
            values["weights"] = "'{}/9'::public.sparsevec"
        if "space" in then and table == "workspaces":
            values["space"] = f"'{running.run(f'SELECT space FROM {source}.workspace_states').strip()}'"
        running.run(
            f"INSERT INTO {schema}.{table} ({', '.join(values)}) OVERRIDING SYSTEM VALUE"
            f" SELECT {', '.join(values.values())} FROM {source}.{table}"
        )
    return schema


@pytest.mark.parametrize("version", variants(range(1, VERSION), 1))
async def test_tables_of_every_earlier_version_are_brought_up_to_date(
    version: int,
    services: BackendServices,
    team_settings: PostgresSettings,
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> None:
    embedding = replace(services, embedder=HashEmbedder(dimensions=16), embedder_problem=None)
    await asyncio.to_thread(write_notes, tmp_path / "ada", {"memory/boat.md": "The harbour boat is green.\n"})
    async with machine(team_settings, embedding, tmp_path / "ada") as ada:
        await ada.sync()
    async with owner_of(postgres_server, team_settings) as owner:
        tenant = await owner.tenant("merge", "team")
        assert tenant is not None
        await owner.write("merge", partial(postings.merge, tenant=tenant), tenant=tenant)
    schema = await asyncio.to_thread(tables_of, version, postgres_server, team_settings.schema_)
    before = team_settings.model_copy(update={"schema_": schema})
    async with machine(before, embedding, tmp_path / "ada") as ada:
        with pytest.raises(BackendUnavailable, match=r"cmem postgres migrate|refuses"):
            await ada.sync()

    after = await make_tables(postgres_server, schema)
    told, true = await asyncio.to_thread(counted, postgres_server, schema)
    assert told == true
    async with machine(after, embedding, tmp_path / "ada") as ada:
        report = await ada.sync()
        answer = await ada.answer("harbour")
    assert (report.files_indexed, report.embedded, report.problems) == (0, 0, ())
    assert [one.path for one in answer.results] == ["memory/boat.md"]
    assert answer.degraded == ()


async def test_an_embedder_with_other_vectors_writes_words_and_says_so(
    services: BackendServices, team_settings: PostgresSettings, tmp_path: Path
) -> None:
    one = replace(services, embedder=HashEmbedder(dimensions=16), embedder_problem=None)
    other = replace(services, embedder=HashEmbedder(dimensions=24), embedder_problem=None)
    async with (
        machine(team_settings, one, tmp_path / "ada") as ada,
        machine(team_settings, other, tmp_path / "bob") as bob,
    ):
        await asyncio.to_thread(write_notes, tmp_path / "ada", {"memory/a.md": "The harbour pilot is Una.\n"})
        await asyncio.to_thread(
            write_notes, tmp_path / "bob", {"memory/b.md": "The harbour boat is green.\n"}
        )
        await ada.sync()
        refused = await bob.sync()
        answer = await bob.answer("harbour boat")
        anew = await bob.sync(force=True)

        assert refused.embeddings_pending == 1
        assert refused.problems
        assert answer.results[0].path == "memory/b.md"
        assert [one.code for one in answer.degraded] == ["keyword-only"]
        assert (anew.embedded, anew.embeddings_pending) == (2, 0)


async def test_a_folder_keeps_its_name_when_the_machine_gets_another(
    services: BackendServices,
    team_settings: PostgresSettings,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = []
    for name in ("before", "after"):
        monkeypatch.setattr("socket.gethostname", lambda name=name: name)
        async with open_postgres(team_settings, services) as memory:
            report = await memory.sync()
            names.append(memory.status().custom["owner"])
        (workspace / "MEMORY.md").unlink(missing_ok=True)

    assert names == [f"before:{services.workspace_id}"] * 2
    assert report.files_removed == 1


def _made_at(path: Path, hours: int) -> None:
    at = (FIXED_NOW + timedelta(hours=hours)).timestamp()
    os.utime(path, (at, at))


# --- borders ------------------------------------------------------------------------------------------------


async def test_workspaces_do_not_see_each_other_and_nothing_is_seen_without_one(
    services: BackendServices,
    team_settings: PostgresSettings,
    postgres_server: PostgresServer,
    workspace: Path,
) -> None:
    one = replace(services, workspace_id="one", embedder=HashEmbedder(), embedder_problem=None)
    other = replace(services, workspace_id="other")
    async with open_postgres(team_settings, one) as mine, open_postgres(team_settings, other) as theirs:
        await mine.sync()
        nothing = await theirs.answer("ferry pump coffee")
        (workspace / "memory").rename(workspace / "gone")
        (workspace / "MEMORY.md").write_text("The other workspace holds a lighthouse.\n")
        await theirs.sync()

        assert nothing.results == ()
        assert [one.code for one in nothing.degraded] == ["never-indexed"]
        assert {hit.path for hit in await theirs.search("ferry pump lighthouse")} == {"MEMORY.md"}
        assert all("lighthouse" not in hit.snippet for hit in await mine.search("lighthouse"))

    schema = team_settings.schema_
    tenant = postgres_server.run(f"SELECT tenant FROM {schema}.workspaces WHERE name = 'one'").strip()
    as_team = f"BEGIN; SET LOCAL ROLE team; SET LOCAL search_path = {schema}, public"
    for table in (*TABLES, "workspaces"):
        of_all = f"SELECT count(*), count(*) FILTER (WHERE tenant <> {tenant}) FROM {table}"
        unseen = postgres_server.run(as_team, of_all)
        seen = postgres_server.run(as_team, f"SET LOCAL cmem.tenant = '{tenant}'", of_all)
        assert unseen.strip() == "0|0", table
        is_empty = table in ("long_words", "message_times", "log_lines")
        assert is_empty or int(seen.split("|")[0]) > 0, table
        assert seen.strip().endswith("|0"), table
        copy = f"COPY {table} (tenant) TO STDOUT"
        assert postgres_server.run(as_team, copy) == "", table
        copied = postgres_server.run(as_team, f"SET LOCAL cmem.tenant = '{tenant}'", copy)
        assert {*copied.split()} <= {tenant}, table
    with pytest.raises(RuntimeError, match="row-level security"):
        postgres_server.run(
            as_team, f"SET LOCAL cmem.tenant = '{tenant}'", "INSERT INTO long_words VALUES (999, 'epmup')"
        )
    changed = postgres_server.run(
        as_team,
        f"SET LOCAL cmem.tenant = '{tenant}'",
        f"DELETE FROM notes WHERE tenant <> {tenant} RETURNING path",
    )
    assert changed.strip() == ""


def test_who_may_use_the_tables_cannot_change_their_version(
    team_settings: PostgresSettings, postgres_server: PostgresServer
) -> None:
    for change in ("UPDATE {} SET version = 99", "DELETE FROM {}", "INSERT INTO {} VALUES (99)"):
        with pytest.raises(RuntimeError, match="permission denied"):
            postgres_server.run("SET ROLE team", change.format(f"{team_settings.schema_}.schema_version"))


def test_every_table_keeps_its_rows_apart_and_begins_its_keys_with_the_tenant(
    team_settings: PostgresSettings, postgres_server: PostgresServer
) -> None:
    schema = team_settings.schema_
    open_ones = postgres_server.run(
        f"SELECT relname FROM pg_class WHERE relnamespace = '{schema}'::regnamespace"
        " AND relkind IN ('r', 'p') AND NOT (relrowsecurity AND relforcerowsecurity)"
    )
    other_keys = postgres_server.run(
        f"SELECT indexrelid::regclass FROM pg_index WHERE indrelid IN ("
        f"SELECT oid FROM pg_class WHERE relnamespace = '{schema}'::regnamespace)"
        " AND pg_get_indexdef(indexrelid, 1, true) <> 'tenant'"
    )
    assert open_ones.split() == ["schema_version"]
    assert other_keys.split() == [f"{schema}.workspaces_name_key"]


async def test_a_connection_that_is_used_again_has_forgotten_its_workspace(
    services: BackendServices, team_settings: PostgresSettings
) -> None:
    one_at_a_time = team_settings.model_copy(update={"connections": 1})
    async with open_postgres(one_at_a_time, services) as memory:
        await memory.sync()
        await memory.search("ferry")
        other = replace(services, workspace_id="another")
        async with open_postgres(one_at_a_time, other) as stranger:
            assert (await stranger.search("ferry")) == ()
            with pytest.raises(MemoryPathError):
                await stranger.read_file("memory/../../etc/passwd")


async def test_after_tables_were_made_anew_no_number_leads_into_another_workspace(
    services: BackendServices,
    team_settings: PostgresSettings,
    postgres_server: PostgresServer,
    workspace: Path,
) -> None:
    one, other = replace(services, workspace_id="one"), replace(services, workspace_id="other")
    async with open_postgres(team_settings, one) as mine, open_postgres(team_settings, other) as theirs:
        await mine.sync()
        assert await mine.search("ferry")
        postgres_server.run(f"DROP SCHEMA {team_settings.schema_} CASCADE")
        await make_tables(postgres_server, team_settings.schema_)
        empty = await mine.answer("ferry")
        await theirs.sync()
        others = await mine.answer("ferry")
        unread = postgres_server.run(f"SELECT name FROM {team_settings.schema_}.workspaces").strip()

        assert unread == "other"
        assert (empty.results, others.results) == ((), ())
        assert [one.code for one in others.degraded] == ["never-indexed"]
        await mine.sync()
        assert await mine.search("ferry")


def test_a_url_tells_how_the_server_is_trusted_and_no_error_tells_its_password() -> None:
    far = "postgresql://team:secret@db.example.org/memory"
    roots = "?sslmode=require&sslrootcert=" + certifi.where()

    assert Address.of(far).tls().verify_mode is ssl.CERT_NONE  # type: ignore[union-attr]
    assert Address.of(far + roots).tls().verify_mode is ssl.CERT_REQUIRED  # type: ignore[union-attr]
    assert Address.of("postgresql://team@localhost/memory").tls() is False
    assert "secret" not in repr(Address.of(far)) + str(Address.of(far))
    for wrong in (
        far + "?sslmode=verify_full",
        far + "?channel=1",
        far + "?port=sesame",
        "postgresql://team:sesame/rest@db/memory",
        "postgresql://team:sesame#rest@db/memory",
        "postgresql://team:sesame?rest@db/memory",
    ):
        with pytest.raises(ConfigError) as raised:
            address_of(PostgresSettings.model_validate({"url": wrong}), {}, "team")
        assert "sesame" not in str(raised.value)
        assert "secret" not in str(raised.value)


async def test_a_pgvector_that_cannot_be_used_is_named_with_what_to_do(
    services: BackendServices, postgres_server: PostgresServer
) -> None:
    run, url = postgres_server.run, postgres_server.url
    run("CREATE DATABASE elsewhere", "CREATE ROLE outsider LOGIN", "CREATE ROLE nobodys LOGIN")
    run(
        "GRANT CREATE ON DATABASE elsewhere TO nobodys", "ALTER ROLE nobodys SET extension_control_path = '/'"
    )
    try:
        settings = PostgresSettings.model_validate({"url": url("nobodys", "elsewhere")})
        lacking = server.Server(settings, Address.of(url("nobodys", "elsewhere")), "postgres")
        with pytest.raises(BackendUnavailable, match=r"has no pgvector.*install"):
            await lacking.migrate()
        await lacking.close()

        run("CREATE SCHEMA hidden", "CREATE EXTENSION vector SCHEMA hidden", database="elsewhere")
        owner = server.Server(settings, Address.of(url("postgres", "elsewhere")), "postgres")
        await owner.migrate()
        outside = settings.model_copy(update={"url": SecretStr(url("outsider", "elsewhere"))})
        async with open_postgres(outside, services) as memory:
            with pytest.raises(BackendUnavailable, match=r"pgvector 0\.\d.*hidden.*outsider.*GRANT USAGE"):
                await memory.sync()
        await owner.grant("outsider")
        async with open_postgres(outside, services) as memory:
            assert (await memory.sync()).problems == ()
            assert await memory.search("ferry")

        run("UPDATE pg_extension SET extversion = '0.6.2' WHERE extname = 'vector'", database="elsewhere")
        async with open_postgres(outside, services) as memory:
            with pytest.raises(BackendUnavailable, match=r"0\.6\.2, but 0\.7 is needed.*UPDATE"):
                await memory.search("ferry")
        await owner.close()
    finally:
        run("DROP DATABASE elsewhere WITH (FORCE)", "DROP ROLE outsider", "DROP ROLE nobodys")


@pytest.mark.thorough
def test_the_server_of_tests_that_are_killed_ends() -> None:
    program = (
        "from tests.postgres_server import running\n"
        "with running() as server:\n"
        "    pid = (server.folder / 'data/postmaster.pid').read_text().split()[0]\n"
        "    print(pid, server.folder, flush=True)\n"
        "    input()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        pid, _, folder = tests.stdout.readline().strip().partition(" ")
        started = start_of(int(pid))
        tests.kill()
    try:
        while not is_gone(int(pid), on_host=host(), started=started):
            time.sleep(0.05)
    finally:
        with server_folder():
            assert not Path(folder).exists()


async def test_tables_that_are_newer_are_left_alone(
    services: BackendServices, team_settings: PostgresSettings, postgres_server: PostgresServer
) -> None:
    postgres_server.run(f"UPDATE {team_settings.schema_}.schema_version SET version = 99")
    async with open_postgres(team_settings, services) as memory:
        with pytest.raises(BackendUnavailable, match="99"):
            await memory.search("ferry")
        with pytest.raises(BackendUnavailable, match="99"):
            await memory.sync()


async def test_tables_that_are_upgraded_while_a_memory_is_open_are_left_alone(
    services: BackendServices, team_settings: PostgresSettings, postgres_server: PostgresServer
) -> None:
    async with open_postgres(team_settings, services) as memory:
        await memory.sync()
        upgrade = f"UPDATE {team_settings.schema_}.schema_version SET version = 99"
        await asyncio.to_thread(postgres_server.run, upgrade)
        for told in ("upgrade", "99"):
            with pytest.raises(BackendUnavailable, match=told):
                await memory.search("ferry")
        with pytest.raises(BackendUnavailable, match="99"):
            await memory.sync()


async def test_who_waits_to_write_while_tables_are_upgraded_writes_nothing(
    services: BackendServices,
    team_settings: PostgresSettings,
    postgres_server: PostgresServer,
    workspace: Path,
) -> None:
    schema = team_settings.schema_
    later = [*await asyncio.to_thread(migrations), ["ALTER TABLE workspace_states ADD COLUMN later int;"]]
    owner = await asyncpg.connect(host=str(postgres_server.folder), user="postgres", database="postgres")
    try:
        async with open_postgres(team_settings, services) as memory, asyncio.timeout(60):
            await memory.sync()
            before = await asyncio.to_thread(postgres_server.run, f"SELECT * FROM {schema}.workspace_states")
            await owner.execute(f"BEGIN; SET LOCAL search_path = {schema}, public")
            await migrate(owner, schema, later)
            await asyncio.to_thread(write_notes, workspace, {"memory/later.md": "The ferry has left.\n"})
            writing = asyncio.create_task(memory.sync())
            while not await owner.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                assert not writing.done()
            await owner.execute("COMMIT")
            with pytest.raises(BackendUnavailable, match="upgrade"):
                await writing
    finally:
        await owner.close()

    after = await asyncio.to_thread(postgres_server.run, f"SELECT * FROM {schema}.workspace_states")
    assert after.strip() == before.strip() + "|"


async def test_a_migration_may_take_hours(postgres_server: PostgresServer) -> None:
    """One may write all that a server holds anew."""
    steps, limits_s = await asyncio.to_thread(migrations), dict[str, float]()
    folder = str(postgres_server.folder)
    connection = await asyncpg.connect(host=folder, user="postgres", database="postgres")
    connection.add_query_logger(lambda one: limits_s.update({one.query: one.timeout or 0.0}))
    try:
        await connection.execute("BEGIN; SET LOCAL search_path = of_hours, public")
        await migrate(connection, "of_hours", steps)
    finally:
        await connection.execute("ROLLBACK")
        await connection.close()

    assert min(limits_s[one] for one in chain.from_iterable(steps)) > 3600


async def test_a_removed_setting_is_named_with_what_to_do(workspace: Path, state_dir: Path) -> None:
    config = {"memory": {"backends": {"team": {"kind": "postgres", "exactLimit": 5}}}}
    with pytest.raises(ConfigError, match="delete") as raised:
        async with open_memory(workspace, state_dir, config=config, long_lived=False):
            pass
    assert raised.value.key == "memory.backends.team.exact_limit"


async def test_words_are_counted_exactly_however_notes_change(
    services: BackendServices,
    team_settings: PostgresSettings,
    postgres_server: PostgresServer,
    workspace: Path,
) -> None:
    async with open_postgres(team_settings, services) as memory:
        await memory.sync()
        for round_ in range(3):
            text = f"# Pumps\n\nPump number {round_} of the ferry, and the Wasserpumpe.\n"
            await asyncio.to_thread(write_notes, workspace, {"memory/pumps.md": text})
            await memory.sync()
        (workspace / "memory/pumps.md").unlink()
        await memory.sync()

    schema = team_settings.schema_
    both = (
        f"SELECT word, passages FROM {schema}.postings UNION ALL"
        f" SELECT word, sign(weight) FROM {schema}.recent_postings,"
        " unnest(words, weights) AS one (word, weight)"
    )
    counted = postgres_server.run(
        f"SELECT word, sum(passages) FROM ({both}) AS found"
        " GROUP BY word HAVING sum(passages) <> 0 ORDER BY word",
        f"SELECT word FROM {schema}.postings WHERE passages <> cardinality(places)"
        " OR passages <> cardinality(weights) OR passages = 0",
    )
    true = postgres_server.run(
        f"SELECT word, count(DISTINCT id) FROM {schema}.passage_words,"
        " regexp_split_to_table(trim(words, E' \\n'), '\\s+') AS word WHERE word <> ''"
        ' GROUP BY word ORDER BY word COLLATE "C"'
    )
    assert counted == true


def counted(server: PostgresServer, schema: str) -> tuple[list[int], list[int]]:
    """Return what the state of the only workspace counts, and what there is."""
    names = "notes, transcripts, passages, said, length, tokens, pending"
    of_sessions = "count(*) FILTER (WHERE source = 'sessions')"
    told = server.run(f"SELECT {names} FROM {schema}.workspace_states")
    true = server.run(
        f"SELECT * FROM (SELECT count(*), {of_sessions} FROM {schema}.notes),"
        f" (SELECT count(*), {of_sessions}, coalesce(sum(length), 0), coalesce(sum(tokens), 0)"
        f" FROM {schema}.passage_words), (SELECT count(*) FROM {schema}.passages"
        f" WHERE hash NOT IN (SELECT hash FROM {schema}.vectors))"
    )
    return [*map(int, told.split("|"))], [*map(int, true.split("|"))]


async def test_a_workspace_has_what_its_state_counts_however_notes_change(
    services: BackendServices,
    team_settings: PostgresSettings,
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> None:
    pending, transcripts = list[int](), list[int]()

    async def see() -> None:
        told, true = await asyncio.to_thread(counted, postgres_server, team_settings.schema_)
        assert told == true
        transcripts.append(true[1])
        pending.append(true[-1])

    settings = team_settings.model_copy(update={"sources": ("memory", "sessions")})
    embedding = replace(services, embedder=HashEmbedder(dimensions=16), embedder_problem=None)
    folder = tmp_path / "ada"
    same = "# Lamp\n\nThe lamp is lit.\n"
    notes = {"memory/a.md": same, "memory/b.md": same, "memory/c.md": "The harbour pilot is Una.\n" * 90}
    talk = {
        ".state/agents/main/sessions/talk.jsonl": said("user", "Hello, the lamp.", "2026-11-03T09:00:00Z")
    }
    await asyncio.to_thread(write_notes, folder, {**notes, **talk})
    async with machine(settings, replace(services, embedder=None), folder) as lacking:
        await lacking.sync()
        await see()
    async with machine(settings, embedding, folder) as ada:
        await ada.sync()
        await see()
        await asyncio.to_thread(
            write_notes, tmp_path / "bob", {"memory/c.md": "Bob's harbour.\n", "b.md": same}
        )
        async with machine(settings, replace(services, embedder=None), tmp_path / "bob") as bob:
            await bob.sync()
            await see()
        (folder / "memory/a.md").unlink()
        (folder / next(iter(talk))).unlink()
        await ada.sync()
        await see()
        await ada.sync(force=True)
        await see()
    other = replace(services, embedder=HashEmbedder(dimensions=24), embedder_problem=None)
    async with machine(settings, other, folder) as anew:
        await anew.sync(force=True)
        await see()
        for path in (*folder.rglob("*.md"),):
            path.unlink()
        await anew.sync()
        await see()
    assert transcripts == [1, 1, 1, 0, 0, 0, 0]
    assert pending == [5, 0, 1, 0, 0, 0, 0]


async def test_of_a_note_that_changes_only_passages_that_change_are_written(
    services: BackendServices,
    team_settings: PostgresSettings,
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> None:
    rows = f"SELECT id, start_line FROM {team_settings.schema_}.passages ORDER BY start_line"
    listed = partial(postgres_server.run, rows)
    chunking = team_settings.chunking.model_copy(update={"tokens": 20, "overlap": 0})
    small = team_settings.model_copy(update={"chunking": chunking})
    parts = [f"# Part {number}\n\nThe crane {number} lifts masts, and nothing else.\n" for number in range(6)]
    folder = tmp_path / "ada"

    async def brought(memory: PostgresMemory, *texts: str) -> int:
        await asyncio.to_thread(write_notes, folder, {"memory/log.md": "\n".join(texts)})
        report = await memory.sync()
        told, true = await asyncio.to_thread(counted, postgres_server, team_settings.schema_)
        assert told == true
        return report.chunks_written

    async with machine(small, services, folder) as ada:
        first = await brought(ada, *parts)
        before = dict(line.split("|") for line in (await asyncio.to_thread(listed)).split())
        edited = await brought(ada, parts[0], "# New\n\nThe slipway is wet.\n\nIt was dry.\n", *parts[2:])
        after = dict(line.split("|") for line in (await asyncio.to_thread(listed)).split())
        hits = await ada.search("crane 5 lifts masts")
        lines = (await ada.read_file("memory/log.md")).text.splitlines()
        tagged = await brought(ada, "---\ntags: [boats]\n---\n", *parts)

    assert first == len(before) == 6
    assert edited == len(after.keys() - before.keys()) < 3
    assert len(before.keys() & after.keys()) == 5
    assert lines[hits[0].start_line - 1] == "# Part 5"
    assert tagged >= first


async def test_a_word_of_thousands_of_letters_keeps_no_note_away(
    services: BackendServices, team_settings: PostgresSettings, workspace: Path
) -> None:
    """An index of PostgreSQL takes 2,704 bytes."""
    word = "".join(hashlib.sha512(b"%d" % number).hexdigest() for number in range(40))
    await asyncio.to_thread(
        write_notes, workspace, {"memory/lamp.md": f"---\ntags: [{word}]\n---\nA lamp is lit.\n"}
    )
    async with open_postgres(team_settings, services) as memory:
        report = await memory.sync()
        found = {*await paths(memory, word)}, {*await paths(memory, "lamp")}

    assert report.problems == ()
    assert found == ({"memory/lamp.md"}, {"memory/lamp.md"})


async def test_long_words_go_with_the_last_note_that_has_them(
    services: BackendServices,
    team_settings: PostgresSettings,
    postgres_server: PostgresServer,
    workspace: Path,
) -> None:
    listed = f"SELECT reverse(backwards) FROM {team_settings.schema_}.long_words"
    text = "Die alte Wasserpumpe und der Fensterrahmen sind nicht in der Werkstatt, sagt Una.\n"
    async with open_postgres(team_settings, services) as memory:
        await asyncio.to_thread(
            write_notes, workspace, {"memory/a.md": text, "memory/b.md": text[:40] + "da ist.\n"}
        )
        await memory.sync()
        both = postgres_server.run(listed).split()
        (workspace / "memory/a.md").unlink()
        await memory.sync()
        one = postgres_server.run(listed).split()

    assert {"wasserpumpe", "fensterrahmen"} <= {*both}
    assert "wasserpumpe" in one
    assert "fensterrahmen" not in one


async def test_a_forced_sync_makes_the_words_of_unchanged_notes_anew(
    services: BackendServices, team_settings: PostgresSettings, postgres_server: PostgresServer
) -> None:
    listed = f"SELECT string_agg(words, '' ORDER BY words) FROM {team_settings.schema_}.passage_words"
    async with open_postgres(team_settings, services) as memory:
        await memory.sync()
        made = postgres_server.run(listed)
        postgres_server.run(f"UPDATE {team_settings.schema_}.passage_words SET words = ' gone '")
        await memory.sync(force=True)

    assert postgres_server.run(listed) == made


async def test_a_phrase_is_found_among_many_passages_that_have_its_words_apart(
    services: BackendServices, team_settings: PostgresSettings, workspace: Path
) -> None:
    apart = {f"memory/{n}.md": f"new new new, and a project: project project {n}\n" for n in range(220)}
    beside = "A new project began. " + "Much else was said that day about boats and weather. " * 20
    async with open_postgres(team_settings, services) as memory:
        await asyncio.to_thread(write_notes, workspace, {**apart, "memory/phrase.md": f"{beside}\n"})
        await memory.sync()

        assert (await paths(memory, '"new project"'))[0] == "memory/phrase.md"


async def test_passages_that_others_wrote_without_a_vector_have_that_of_the_same_text(
    services: BackendServices,
    team_settings: PostgresSettings,
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> None:
    embedding = replace(services, embedder=HashEmbedder(dimensions=16), embedder_problem=None)
    lamp = "# Lamp\n\nThe lamp is lit.\n"
    for name in ("ada", "bob"):
        await asyncio.to_thread(write_notes, tmp_path / name, {f"memory/{name}.md": lamp})
    async with machine(team_settings, replace(services, embedder=None), tmp_path / "bob") as bob:
        await bob.sync()
    async with machine(team_settings, embedding, tmp_path / "ada") as ada:
        report = await ada.sync()
        answer = await ada.answer("lamp")

    told, true = await asyncio.to_thread(counted, postgres_server, team_settings.schema_)
    assert told == true
    assert (report.embedded, report.embeddings_pending) == (1, 0)
    assert answer.degraded == ()


class AfterTheText(HashEmbedder):
    """Answers when the server has the text: later than whoever writes that waits for vectors."""

    def __init__(self, server: PostgresServer, schema: str) -> None:
        super().__init__(dimensions=16)
        count = f"SELECT count(*) FROM {schema}.passages"
        self._count = partial(server.run, "SELECT pg_sleep(0.1)", count)

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        vectors = await super().embed_batch(inputs)
        while int(await asyncio.to_thread(self._count)) == 0:
            pass
        return vectors


async def test_a_text_is_written_before_an_embedder_that_is_slow_and_embedded_once(
    services: BackendServices,
    team_settings: PostgresSettings,
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> None:
    slow = AfterTheText(postgres_server, team_settings.schema_)
    await asyncio.to_thread(write_notes, tmp_path / "ada", {"memory/lamp.md": "The lamp is lit.\n"})
    async with (
        machine(
            team_settings, replace(services, embedder=slow, embedder_problem=None), tmp_path / "ada"
        ) as ada,
        asyncio.timeout(60),
    ):
        report = await ada.sync()

    told, true = await asyncio.to_thread(counted, postgres_server, team_settings.schema_)
    assert told == true
    assert (report.embedded, report.embeddings_pending, report.problems) == (1, 0, ())
    assert len(slow.texts) == 1


@dataclass(frozen=True)
class Ran:
    """What the server did for one execution of a statement."""

    rows: float
    """How many rows its steps have handled."""
    read_whole: frozenset[str]
    """The tables that it has read from one end to the other."""

    @classmethod
    def of(cls, plan: Mapping[str, Any]) -> "Ran":
        nodes, whole, rows = [plan], set[str](), 0.0
        for node in nodes:
            nodes += node.get("Plans", ())
            rows += node["Actual Loops"] * (node["Actual Rows"] + node.get("Rows Removed by Filter", 0))
            if node["Node Type"] == "Seq Scan":
                whole.add(node["Relation Name"])
        return cls(rows, frozenset(whole))


def executions(log: str) -> dict[str, list[Ran]]:
    """Return what `auto_explain` has logged of each statement that reads passages or their words."""
    found: dict[str, list[Ran]] = {}
    for part in log.split("plan:\n")[1:]:
        told, _ = json.JSONDecoder().raw_decode(part.replace("\n\t", "\n").lstrip())
        if "passage" in told["Query Text"] or "postings" in told["Query Text"]:
            found.setdefault(told["Query Text"], []).append(Ran.of(told["Plan"]))
    return found


EXPLAINED = (
    "session_preload_libraries=auto_explain",
    "auto_explain.log_min_duration=0",
    "auto_explain.log_analyze=on",
    "auto_explain.log_format=json",
)
INDEXED = ("passage_words", "postings")
ASKED = 55
"""A prepared statement may get another plan from its sixth execution on."""


@pytest.fixture
def explaining_server() -> Iterator[PostgresServer]:
    """A server that logs the plan of each statement."""
    if CITUS:
        pytest.skip("the plans of other servers are in their own logs")
    with running(*EXPLAINED) as explaining:
        explaining.run("CREATE EXTENSION vector", "CREATE ROLE team LOGIN")
        yield explaining


@pytest.mark.thorough
async def test_the_statements_of_a_question_keep_their_plans_however_often_it_is_asked(
    services: BackendServices, explaining_server: PostgresServer, tmp_path: Path
) -> None:
    """In a small workspace and in a large one, which is nearly all that the tables have."""
    embedding = replace(services, embedder=HashEmbedder(dimensions=16), embedder_problem=None)
    notes = {f"memory/{n}.md": f"# Note {n}\n\nThe ferry {n} leaves pier {n % 7}.\n" for n in range(3_000)}
    made = await make_tables(explaining_server, "team_memory")
    log = explaining_server.folder / "log"
    for name, count in (("small", 20), ("large", len(notes))):
        folder = tmp_path / name
        await asyncio.to_thread(write_notes, folder, dict([*notes.items()][:count]))
        own = replace(embedding, workspace_dir=folder, state_dir=folder / ".state", workspace_id=name)
        async with open_postgres(made.model_copy(update={"connections": 1}), own) as memory:
            await memory.sync()
            await asyncio.to_thread(write_notes, folder, {"memory/0.md": "The ferry 0 has left.\n"})
            await memory.sync()
            await asyncio.to_thread(explaining_server.run, "ANALYZE")
            before = log.stat().st_size
            for _ in range(ASKED):
                assert await memory.search('"leaves pier" of the ferry 12 and ferr*')
        logged = await asyncio.to_thread(log.read_bytes)
        ran = executions(logged[before:].decode())

        often = {query: one for query, one in ran.items() if len(one) >= ASKED}
        assert len(often) >= 4
        for query, one in often.items():
            assert one[-1].rows <= 3 * max(one[0].rows, 10), query
            assert name == "small" or one[-1].read_whole.isdisjoint(INDEXED), query


# --- a server that goes away --------------------------------------------------------------------------------


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that a test may kill."""
    with running() as server:
        server.run("CREATE EXTENSION vector", "CREATE ROLE team LOGIN")
        yield server


async def test_the_local_index_answers_while_the_server_is_away(
    workspace: Path, state_dir: Path, tmp_path: Path
) -> None:
    nowhere = tmp_path / "no-server"
    section = {"url": f"postgresql://team@localhost/db?host={nowhere}"}
    config = {
        "memory": {"backend": "postgres", "postgres": section, "builtin": {"query": {"rerank": "off"}}},
    }
    async with open_memory(workspace, state_dir, config=config, long_lived=False) as memory:
        response = await memory.query("When does the ferry leave?")

        assert response.results
        assert {"fallback"} <= {one.code for one in response.degraded}


async def test_a_server_that_has_never_answered_is_not_asked_again(
    workspace: Path, state_dir: Path, tmp_path: Path
) -> None:
    asked: list[asyncio.StreamWriter] = []

    def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(writer)
        writer.close()

    async with await asyncio.start_unix_server(refuse, tmp_path / ".s.PGSQL.5432"):
        section = {"enabled": True, "url": f"postgresql://team@localhost/db?host={tmp_path}"}
        config = {"memory": {"postgres": section}}
        async with open_memory(workspace, state_dir, config=config, long_lived=False) as memory:
            report = await memory.sync()

    assert report.files_indexed
    assert len(asked) <= 2  # with TLS, and without
    assert ["does not answer" in one for one in report.problems] == [True]


async def test_tables_are_spread_over_citus_once_and_over_nothing_else(
    postgres_server: PostgresServer, team_settings: PostgresSettings
) -> None:
    of_owner = {"url": postgres_server.url(), "schema": team_settings.schema_}
    owner = server.Server(
        PostgresSettings.model_validate(of_owner), Address.of(postgres_server.url()), "postgres"
    )
    try:
        if CITUS:
            assert await owner.distribute() == 0  # they are spread when they are made here
        else:
            with pytest.raises(BackendUnavailable, match="Citus"):
                await owner.distribute()
    finally:
        await owner.close()


@pytest.mark.thorough
async def test_whatever_a_memory_asks_of_a_cluster_one_server_answers(
    postgres_server: PostgresServer, team_settings: PostgresSettings, workspace: Path, state_dir: Path
) -> None:
    if not CITUS:
        pytest.skip("there is no Citus here")
    both = ", ".join(f"sum(query_execution_{one}_shard)" for one in ("single", "multi"))
    counters = partial(postgres_server.run, f"SELECT {both} FROM citus_stat_counters()")
    url = postgres_server.url("team")
    team = {"kind": "postgres", "workspace": "team", "schema": team_settings.schema_, "url": url}
    config = {
        "backends": {"team": {**team, "query": {"rerank": "off"}}},
        "feedback": {"backend": "team"},
        "embedding": {"provider": "wordllama"},
    }
    single, multi = map(int, (await asyncio.to_thread(counters)).split("|"))
    async with open_memory(workspace, state_dir, {"memory": config}, long_lived=False) as memory:
        await memory.sync()
        for question in ("ferry", '"the ferry" in March 2026', "ferr* tag:boats", "die Pumpe und die Anlage"):
            await memory.query(question)
        (workspace / "MEMORY.md").write_text("The ferry has left.\n")
        await memory.sync()
        await memory.sync(force=True)
        await memory.context.stored(lambda store: (store.add([judgement()]), store.forget_before(NOW)))
        await memory.learning.weights.set({"team": 0.5})
        await memory.forget(await memory.plan_forgetting("MEMORY.md#L1"))
    asked = [*map(int, (await asyncio.to_thread(counters)).split("|"))]

    assert asked[0] > single + 100
    assert asked[1] == multi


async def test_other_memories_answer_where_nothing_names_the_server(workspace: Path, state_dir: Path) -> None:
    config = {"memory": {"backends": {"builtin": {}, "team": {"kind": "postgres"}}}}
    async with open_memory(workspace, state_dir, config=config, environ={}, long_lived=False) as memory:
        response = await memory.query("When does the ferry leave?")

        assert response.results
        (of_team,) = [one for one in response.degraded if one.backend_id == "team"]
        assert of_team.code == "unavailable"
        assert "DATABASE_URL" in of_team.reason


async def test_a_server_that_is_away_is_named_at_once(
    services: BackendServices, team_settings: PostgresSettings, tmp_path: Path
) -> None:
    away = PostgresSettings.model_validate({"url": f"postgresql://team@localhost/db?host={tmp_path}/none"})
    async with open_postgres(away, services) as memory:
        for call in (memory.search("ferry"), memory.read_file("MEMORY.md")):
            with pytest.raises(BackendUnavailable, match="none"):
                await call
        assert memory.status().files is None
        assert await memory.probe_vector_availability() is False


@asynccontextmanager
async def silenced(server: PostgresServer, folder: Path) -> AsyncIterator[asyncio.Event]:
    """Yield what lets through all that goes to and from the server by a socket in `folder`."""
    is_open, tasks = asyncio.Event(), set[asyncio.Task[None]]()

    async def pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with closing(target):
            while data := await source.read(65_536):
                await is_open.wait()
                target.write(data)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_unix_connection(str(server.folder / ".s.PGSQL.5432"))
        tasks.update(asyncio.create_task(pass_on(*pair)) for pair in ((reader, there[1]), (there[0], writer)))

    async with await asyncio.start_unix_server(connected, str(folder / ".s.PGSQL.5432")):
        yield is_open
        is_open.set()
        for one in tasks:
            one.cancel()


SILENCE_S = 30.0
PATIENCE_S = 10.0
"""Ten times the deadline of a question, and a third of the silence."""


@pytest.mark.thorough
async def test_a_network_that_is_silent_holds_up_no_question_and_is_used_again_when_it_is_back(
    postgres_server: PostgresServer, team_settings: PostgresSettings, workspace: Path, state_dir: Path
) -> None:
    """Nothing is refused, as by a server that is away: packets are lost."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # a path that is short enough for a socket
        async with silenced(postgres_server, Path(folder)) as is_open:
            is_open.set()
            section = {
                "url": f"postgresql://team@localhost/postgres?host={folder}",
                "schema": team_settings.schema_,
                "connections": 1,
                "connect_timeout_ms": 200,
                "timeout_ms": 1000,
                "query": {"rerank": "off"},
            }
            embedding = {"provider": "wordllama"}
            config = {"memory": {"backend": "postgres", "postgres": section, "embedding": embedding}}
            async with open_memory(workspace, state_dir, config=config, long_lived=False) as memory:
                await memory.sync()
                assert not (await memory.query("When does the ferry leave?")).degraded
                is_open.clear()
                loop = asyncio.get_running_loop()
                until, asked = loop.time() + SILENCE_S, 0
                while loop.time() < until:
                    async with asyncio.timeout(PATIENCE_S):
                        meanwhile = await memory.query("When does the ferry leave?")
                    assert meanwhile.results
                    assert "fallback" in {one.code for one in meanwhile.degraded}
                    asked += 1
                assert asked > SILENCE_S / PATIENCE_S
                is_open.set()
                while (await memory.query("When does the ferry leave?")).degraded:
                    pass  # until the breaker lets through again


async def test_changes_are_followed_and_brought_when_the_server_is_back(
    services: BackendServices, own_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "AGAIN", replace(server.AGAIN, tries=1))  # one sync gives up at once
    # Each failure doubles the wait: as long again as a server takes to start, on a busy machine a minute.
    monkeypatch.setattr(sync_scheduler, "MAX_RETRY_S", sync_scheduler.RETRY_S)
    made = await make_tables(own_server, "team_memory")
    sync = made.sync.model_copy(update={"watch_debounce_ms": 20})
    open_long = replace(services, is_long_lived=True)
    folder = tmp_path / "ada"
    async with machine(made.model_copy(update={"sync": sync}), open_long, folder) as memory:
        await memory.sync()
        failed, loop = asyncio.Event(), asyncio.get_running_loop()

        def hear(event: OpsEvent) -> None:
            if isinstance(event.detail, SyncFailed):
                loop.call_soon_threadsafe(failed.set)

        unsubscribe = services.ops_log.subscribe(hear)
        await asyncio.to_thread(write_notes, folder, {"memory/port.md": "The harbour opens at six.\n"})
        await _until_found(memory, "harbour", "memory/port.md")

        await asyncio.to_thread(own_server.kill)
        await asyncio.to_thread(write_notes, folder, {"memory/ferry.md": "The ferry leaves at nine.\n"})
        await failed.wait()
        await asyncio.to_thread(own_server.start)
        await _until_found(memory, "ferry", "memory/ferry.md")
        unsubscribe()


async def _until_found(memory: PostgresMemory, query: str, path: str) -> None:
    found: list[str] = []
    while path not in found:
        await asyncio.sleep(0.01)
        with suppress(BackendError):  # the server is not back yet
            found = await paths(memory, query)


async def test_kills_of_the_server_lose_no_note_and_tear_none(
    services: BackendServices, own_server: PostgresServer, tmp_path: Path
) -> None:
    """Two machines replace whole notes of several passages and somebody asks, while the server is killed."""
    made = await make_tables(own_server, "team_memory")
    settings = made.model_copy(update={"chunking": made.chunking.model_copy(update={"tokens": 20})})
    stop = asyncio.Event()
    torn: list[str] = []

    def text_of(name: str, version: int) -> str:
        return "".join(f"The {name} log, line {line}, version v{version}.\n\n" for line in range(12))

    async def replace_notes(memory: PostgresMemory, folder: Path) -> int:
        version = 0
        while not stop.is_set():
            version += 1
            await asyncio.to_thread(
                write_notes, folder, {f"memory/{folder.name}.md": text_of(folder.name, version)}
            )
            await memory.sync()
        return version

    async def ask(memory: PostgresMemory) -> None:
        while not stop.is_set():
            with suppress(BackendError):
                hits = await memory.search("log line version", SearchOptions(max_results=50))
                for name in ("ada", "bob"):
                    versions = {
                        w for hit in hits if hit.path.endswith(f"{name}.md") for w in _versions(hit.text)
                    }
                    torn.extend(versions if len(versions) > 1 else ())
            await asyncio.sleep(0)

    async with (
        machine(settings, services, tmp_path / "ada") as ada,
        machine(settings, services, tmp_path / "bob") as bob,
        machine(settings, services, tmp_path / "reader") as reader,
    ):
        writing = [
            asyncio.create_task(replace_notes(ada, tmp_path / "ada")),
            asyncio.create_task(replace_notes(bob, tmp_path / "bob")),
        ]
        reading = asyncio.create_task(ask(reader))
        for _ in range(rounds(3, explore=20)):
            await _some_are_written(reader, *writing)
            await asyncio.to_thread(own_server.kill)
            await asyncio.to_thread(own_server.start)
        await _some_are_written(reader, *writing)
        stop.set()
        versions = await asyncio.gather(*writing)
        await reading

        assert torn == []
        for name, version in zip(("ada", "bob"), versions, strict=True):
            assert (await reader.read_file(f"memory/{name}.md")).text == text_of(name, version)


async def _some_are_written(memory: PostgresMemory, *writing: asyncio.Task[int]) -> None:
    """Wait until both notes have changed, or a writer has failed."""
    seen: dict[str, set[str]] = {"ada": set(), "bob": set()}
    while min(map(len, seen.values())) < 2 and not any(task.done() for task in writing):
        with suppress(BackendError):
            for name, texts in seen.items():
                texts.add((await memory.read_file(f"memory/{name}.md")).text)
        await asyncio.sleep(0)


def _versions(text: str) -> set[str]:
    return {word.strip(".") for word in text.split() if word.startswith("v") and word[1:2].isdigit()}


async def test_writers_of_the_same_notes_leave_each_of_them_whole(
    services: BackendServices, team_settings: PostgresSettings, tmp_path: Path
) -> None:
    settings = team_settings.model_copy(
        update={"chunking": team_settings.chunking.model_copy(update={"tokens": 20})}
    )
    names = [f"memory/{number}.md" for number in range(5)]

    async def writer(number: int) -> list[SyncReport]:
        folder = tmp_path / f"writer{number}"
        async with machine(settings, services, folder) as memory:
            reports = []
            for round_ in range(4):
                text = "".join(f"Line {line} by w{number}r{round_}.\n\n" for line in range(8))
                await asyncio.to_thread(write_notes, folder, dict.fromkeys(names, text))
                reports.append(await memory.sync())
            return reports

    reports = await asyncio.gather(*(writer(number) for number in range(4)))
    async with machine(settings, services, tmp_path / "reader") as memory:
        for name in names:
            text = (await memory.read_file(name)).text
            said = {word.strip(".") for word in text.split() if word.startswith("w")}
            assert len(said) == 1, text
        hits = await memory.search("line by", SearchOptions(max_results=200))
        for name in names:
            text = (await memory.read_file(name)).text
            assert all(hit.text in text for hit in hits if hit.path == name)
    assert not any(report.problems for some in reports for report in some)


@pytest.fixture
def pooled_url(own_server: PostgresServer) -> Iterator[str]:
    """The URL of a pooler before the server that a test has to itself."""
    with pooler(own_server) as url:
        yield url


async def test_a_pooler_may_be_in_between(
    services: BackendServices, own_server: PostgresServer, pooled_url: str, tmp_path: Path
) -> None:
    direct = await make_tables(own_server, "team_memory")
    pooled = direct.model_copy(update={"url": SecretStr(pooled_url)})
    for name in ("ada", "bob", "eve"):
        notes = {f"memory/{name}{number}.md": f"Boat {number} of {name}.\n" for number in range(4)}
        await asyncio.to_thread(write_notes, tmp_path / name, notes)
    async with (
        machine(pooled, services, tmp_path / "ada") as ada,
        machine(pooled, services, tmp_path / "bob") as bob,
        machine(direct, services, tmp_path / "eve") as eve,
    ):
        reports = await asyncio.gather(ada.sync(), bob.sync(), eve.sync())
        found = await asyncio.gather(*(one.search("boat 2") for one in (ada, bob, eve) * 8))
    learnt = FeedbackServices(
        backend_id="team", workspace_id="w", environ={}, clock=utc_now, keep_traces=lambda _: None
    )

    def learn() -> list[Judgement]:
        with PostgresFeedbackStore(pooled, learnt) as one, PostgresFeedbackStore(direct, learnt) as other:
            other.add([judgement()])
            one.wait_for_change(0.0)
            return one.judgements()

    assert await asyncio.to_thread(learn) == [judgement()]
    assert [one.problems for one in reports] == [(), (), ()]
    places = [tuple((hit.path, round(hit.score, 6)) for hit in hits) for hits in found]
    assert len(places[0]) > 0
    assert len({*places}) == 1


# --- large workspaces ---------------------------------------------------------------------------------------


@asynccontextmanager
async def owner_of(running: PostgresServer, settings: PostgresSettings) -> AsyncIterator[server.Server]:
    """Open the server as the owner of the tables."""
    own = PostgresSettings.model_validate({"url": running.url(), "schema": settings.schema_})
    opened = server.Server(own, Address.of(running.url()), "postgres")
    try:
        yield opened
    finally:
        await opened.close()


async def test_an_index_of_vectors_finds_what_comparing_all_of_them_does(
    services: BackendServices,
    team_settings: PostgresSettings,
    postgres_server: PostgresServer,
    word_vectors: WordLlamaEmbedder,
    tmp_path: Path,
) -> None:
    folder, questions = await vault(tmp_path, every=12)
    here = replace(services, workspace_dir=folder, embedder=word_vectors, embedder_problem=None)
    there = team_settings.model_copy(update={"scope": "folder"})
    async with (
        owner_of(postgres_server, team_settings) as owner,
        open_postgres(there, here) as memory,
    ):
        await memory.sync()
        expected = [await memory.search(question) for question in questions[::15]]
        (made,) = await vector_index.keep_up(owner, above=1)
        found = [await memory.search(question) for question in questions[::15]]
        (kept,) = await vector_index.keep_up(owner, above=1)

        assert (made.is_new, kept.is_new, kept.is_gone) == (True, False, False)
        assert memory.status().custom["vectorIndex"] is True
        assert [[hit.path for hit in hits] for hits in found] == [
            [hit.path for hit in hits] for hits in expected
        ]
    query = vector_index.NEAREST.format(tenant=1, dims=256)
    query = query.replace("$1", f"'{[0.0625] * 256}'::vector").replace("$2", "48")
    local = ("ROLE team", "cmem.tenant = '1'", f"search_path = {team_settings.schema_}, public")
    without = ("enable_seqscan = off", "enable_sort = off")
    settings = [f"SET LOCAL {one}" for one in (*local, *without)]
    plan = await asyncio.to_thread(postgres_server.run, "BEGIN", *settings, f"EXPLAIN {query}")
    assert "Index Scan using nearest_1_256_" in plan


async def test_an_index_of_vectors_goes_with_most_of_them_and_with_their_embedder(
    services: BackendServices,
    team_settings: PostgresSettings,
    postgres_server: PostgresServer,
    tmp_path: Path,
) -> None:
    wide, narrow = (
        replace(services, embedder=HashEmbedder(dimensions=dims), embedder_problem=None) for dims in (24, 16)
    )
    folder = tmp_path / "ada"
    notes = {f"memory/{number}.md": f"Boat {number} is in the harbour.\n" for number in range(8)}
    await asyncio.to_thread(write_notes, folder, notes)
    async with (
        owner_of(postgres_server, team_settings) as owner,
        machine(team_settings, wide, folder) as before,
        machine(team_settings, narrow, folder) as after,
    ):
        await before.sync()
        await vector_index.keep_up(owner, above=4)
        anew = await after.sync(force=True)
        other = await after.search("boat harbour")
        (replaced,) = await vector_index.keep_up(owner, above=4)
        for number in range(4):
            await asyncio.to_thread((folder / f"memory/{number}.md").write_text, "Gone.\n")
        await after.sync()
        is_indexed = after.status().custom["vectorIndex"]
        (dropped,) = await vector_index.keep_up(owner, above=10)
        again = await after.search("boat harbour")

        assert (anew.embedded, anew.problems) == (8, ())
        assert other
        assert (replaced.is_new, replaced.is_gone, is_indexed) == (True, False, True)
        assert (dropped.is_new, dropped.is_gone, dropped.vectors) == (False, True, 5)
        assert after.status().custom["vectorIndex"] is False
        assert again
        assert await vector_index.keep_up(owner, above=10) == []


# --- the commands -------------------------------------------------------------------------------------------


Cmem: TypeAlias = Callable[..., Result]


@pytest.fixture
def cmem(
    postgres_server: PostgresServer, workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Cmem:
    """Return what runs a command with the settings in `config.yaml`, which a test writes, as the team."""
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.setenv("OWNER_URL", postgres_server.url())
    monkeypatch.setenv("DATABASE_URL", postgres_server.url("team"))

    def run(*words: str) -> Result:
        return CliRunner().invoke(app, [*words, "-w", str(workspace), "--state-dir", str(tmp_path / "state")])

    return run


def test_the_commands_make_tables_and_tell_how_the_server_is(cmem: Cmem, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "memory: {backends: {team: {kind: postgres, schema: made_by_command}}}\n"
    )

    early = cmem("postgres", "migrate")
    first = cmem("postgres", "init", "--url-env", "OWNER_URL", "--grant-to", "team", "--json")
    again = cmem("postgres", "migrate", "--url-env", "OWNER_URL", "--json")
    told = cmem("postgres", "status", "--json")
    indexed = cmem("index", "--json")
    found = cmem("search", "When does the ferry leave?", "--json")

    assert early.exit_code != 0
    assert "cmem postgres init" in early.stderr
    assert json.loads(first.stdout) == {"schema": "made_by_command", "before": 0, "after": VERSION}
    assert json.loads(again.stdout) == {"schema": "made_by_command", "before": VERSION, "after": VERSION}
    about = json.loads(told.stdout)
    assert told.exit_code == 0, told.output
    assert (about["tables"], about["known"], about["bypasses"]) == (VERSION, VERSION, False)
    assert about["pgvector"]
    assert indexed.exit_code == found.exit_code == 0
    backends = {one["id"]: one for one in json.loads(found.stdout)["backends"]}
    assert backends["team"]["engines"] == {"keyword": "postings", "vector": "pgvector"}
    assert backends["team"]["resultCount"] > 0


def put_vectors(server: PostgresServer, schema: str, workspace: str, *, dims: int, count: int) -> None:
    """Store vectors of a workspace that has no passages."""
    numbers = f"SELECT array_agg(sin(one * n)) FROM generate_series(1, {dims}) AS n"
    server.run(f"INSERT INTO {schema}.workspaces (name) VALUES ('{workspace}') ON CONFLICT DO NOTHING")
    tenant = server.run(f"SELECT tenant FROM {schema}.workspaces WHERE name = '{workspace}'").strip()
    server.run(
        f"INSERT INTO {schema}.workspace_states (tenant, space) VALUES ({tenant}, 'of/test/{dims}/key')"
        " ON CONFLICT DO NOTHING",
        f"INSERT INTO {schema}.vectors (tenant, hash, vector)"
        f" SELECT {tenant}, one, ({numbers})::real[]::vector FROM generate_series(1, {count}) AS one"
        " ON CONFLICT DO NOTHING",
    )


async def test_an_index_of_vectors_is_made_though_the_server_gives_little_memory(
    team_settings: PostgresSettings, postgres_server: PostgresServer
) -> None:
    if CITUS:
        pytest.skip("the other servers of a cluster have their own limits")
    put = partial(put_vectors, postgres_server, team_settings.schema_, "large")
    await asyncio.to_thread(put, dims=256, count=2_000)
    try:
        little = "ALTER ROLE postgres SET maintenance_work_mem = '1MB'"
        await asyncio.to_thread(postgres_server.run, little)
        async with owner_of(postgres_server, team_settings) as owner:
            (indexed,) = await vector_index.keep_up(owner, above=1_000)
    finally:
        await asyncio.to_thread(postgres_server.run, "ALTER ROLE postgres RESET maintenance_work_mem")

    assert indexed.is_new


async def test_an_index_of_vectors_is_made_anew_when_its_workspace_has_doubled(
    team_settings: PostgresSettings, postgres_server: PostgresServer
) -> None:
    made = []
    async with owner_of(postgres_server, team_settings) as owner:
        for count in (100, 200, 201):
            put = partial(put_vectors, postgres_server, team_settings.schema_, "large")
            await asyncio.to_thread(put, dims=16, count=count)
            made += [one.is_new for one in await vector_index.keep_up(owner, above=50)]
    named = f"SELECT indexname FROM pg_indexes WHERE schemaname = '{team_settings.schema_}'"
    names = (await asyncio.to_thread(postgres_server.run, named)).split()

    assert made == [True, False, True]
    assert [one for one in names if one.startswith("nearest_")] == ["nearest_1_16_201"]


async def test_an_index_of_vectors_and_an_upgrade_of_the_tables_wait_for_each_other(
    team_settings: PostgresSettings, postgres_server: PostgresServer
) -> None:
    asked = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%advisory_xact_lock%' AND pid <> $1"
    async with (
        owner_of(postgres_server, team_settings) as owner,
        owner_of(postgres_server, team_settings) as other,
        asyncio.timeout(60),
    ):
        async with owner.alone("index vectors") as connection:
            with pytest.raises(BackendError, match="somebody else"):
                await vector_index.keep_up(other)
            upgrade = asyncio.create_task(other.migrate())
            while not await connection.fetchval(asked, connection.get_server_pid()):
                assert not upgrade.done()
            await connection.execute("CREATE INDEX CONCURRENTLY beside ON vectors (tenant)")
            assert not upgrade.done()
        assert (await upgrade).after == VERSION


async def test_vectors_that_are_too_long_for_an_index_keep_it_from_no_other_workspace(
    team_settings: PostgresSettings, postgres_server: PostgresServer
) -> None:
    for name, dims in (("first", 4_001), ("second", 16)):
        put = partial(put_vectors, postgres_server, team_settings.schema_, name)
        await asyncio.to_thread(put, dims=dims, count=10)
    async with owner_of(postgres_server, team_settings) as owner:
        first, second = await vector_index.keep_up(owner, above=5)

    assert "4001" in (first.problem or "")
    assert (first.is_new, first.is_gone) == (False, False)
    assert (second.problem, second.is_new) == (None, True)


async def test_where_there_are_no_tables_an_index_of_vectors_is_refused_with_what_to_do(
    postgres_server: PostgresServer,
) -> None:
    await asyncio.to_thread(postgres_server.run, "CREATE DATABASE without_tables")
    address = Address.of(postgres_server.url(database="without_tables"))
    empty = server.Server(PostgresSettings(), address, "postgres")
    try:
        with pytest.raises(BackendUnavailable, match="cmem postgres init"):
            await vector_index.keep_up(empty)
    finally:
        await empty.close()


async def test_no_index_of_vectors_is_made_through_a_pooler(
    own_server: PostgresServer, pooled_url: str
) -> None:
    settings = await make_tables(own_server, "team_memory")
    pooled = server.Server(settings, Address.of(pooled_url), "postgres")
    try:
        with pytest.raises(BackendUnavailable, match="pooler"):
            await vector_index.keep_up(pooled)
    finally:
        await pooled.close()

    held = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"
    assert (await asyncio.to_thread(own_server.run, held)).strip() == "0"


def test_the_owner_of_the_tables_has_the_vectors_of_large_workspaces_indexed(
    cmem: Cmem,
    team_settings: PostgresSettings,
    tmp_path: Path,
) -> None:
    section = {"kind": "postgres", "schema": team_settings.schema_, "workspace": "field-team"}
    (tmp_path / "config.yaml").write_text(json.dumps({"memory": {"backends": {"team": section}}}))

    assert cmem("index").exit_code == 0
    refused = cmem("postgres", "index", "--above", "1")
    small = cmem("postgres", "index", "--url-env", "OWNER_URL", "--json")
    before = json.loads(cmem("postgres", "status", "--json").stdout)["workspace"]
    large = cmem("postgres", "index", "--url-env", "OWNER_URL", "--above", "1", "--json")
    after = json.loads(cmem("postgres", "status", "--json").stdout)["workspace"]

    assert refused.exit_code != 0
    assert "owner" in refused.stderr
    assert json.loads(small.stdout)["indexed"] == []
    (indexed,) = json.loads(large.stdout)["indexed"]
    assert (indexed["workspace"], indexed["isNew"], indexed["isGone"]) == ("field-team", True, False)
    assert (before["vectorIndex"], after["vectorIndex"]) == (False, True)


def test_a_backup_of_the_server_is_restored_into_an_empty_one(
    cmem: Cmem,
    postgres_server: PostgresServer,
    team_settings: PostgresSettings,
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    section = {"kind": "postgres", "schema": team_settings.schema_, "workspace": "field-team"}
    learnt = {"feedback": {"backend": "team"}}
    (tmp_path / "config.yaml").write_text(json.dumps({"memory": {"backends": {"team": section}, **learnt}}))
    monkeypatch.setenv("PATH", f"{postgres_server.programs}:{os.environ['PATH']}")
    file = tmp_path / "team.dump"

    (workspace / "memory" / "ferry.md").write_text("The ferry leaves at nine.\n")
    assert cmem("index").exit_code == 0
    assert cmem("weights", "set", "team=0.5").exit_code == 0
    refused = cmem("postgres", "backup", str(file))
    assert not file.exists()
    made = cmem("postgres", "backup", str(file), "--url-env", "OWNER_URL", "--json")
    again = cmem("postgres", "backup", str(file), "--url-env", "OWNER_URL")

    postgres_server.run("CREATE DATABASE restored")
    try:
        postgres_server.run("CREATE EXTENSION vector", database="restored")
        restore: list[str | Path] = [postgres_server.programs / "pg_restore", "-h", postgres_server.folder]
        into = ["-U", "postgres", "-d", "restored", "--exit-on-error"]
        subprocess.run([*restore, *into, file], check=True, capture_output=True)
        monkeypatch.setenv("DATABASE_URL", postgres_server.url("team", "restored"))
        found = cmem("search", "When does the ferry leave?", "--json")
        weights = cmem("weights", "show", "--json")
        indexed = cmem("index", "--json")
    finally:
        postgres_server.run("DROP DATABASE restored WITH (FORCE)")

    assert refused.exit_code != 0
    assert "team" in refused.stderr
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["bytes"] == file.stat().st_size > 0
    assert file.stat().st_mode & 0o077 == 0
    assert again.exit_code != 0
    backends = {one["id"]: one for one in json.loads(found.stdout)["backends"]}
    assert backends["team"]["engines"] == {"keyword": "postings", "vector": "pgvector"}
    assert backends["team"]["resultCount"] > 0
    assert '"team": 0.5' in weights.stdout
    assert indexed.exit_code == 0


@pytest.mark.parametrize("name", variants(["field-team", None], "field-team"))
def test_what_a_folder_has_brought_that_is_gone_can_be_removed(
    name: str | None,
    postgres_server: PostgresServer,
    team_settings: PostgresSettings,
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", postgres_server.url("team"))
    config = tmp_path / "config.yaml"
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(config))

    def cmem(*words: str, owner: str = "new") -> Result:
        section = {"kind": "postgres", "schema": team_settings.schema_, "workspace": name, "owner": owner}
        config.write_text(json.dumps({"memory": {"backends": {"team": section}}}))
        return CliRunner().invoke(app, [*words, "-w", str(workspace), "--state-dir", str(tmp_path / "state")])

    ferry = workspace / "memory" / "ferry.md"
    ferry.write_text("The ferry leaves at nine.\n")
    assert cmem("index", owner="old").exit_code == 0
    ferry.unlink()
    assert cmem("index").exit_code == 0

    told = {one["name"]: one for one in json.loads(cmem("postgres", "owners", "--json").stdout)["owners"]}
    assert {one: told[one]["alone"] for one in told} == {"new": 0, "old": 1}
    assert told["old"]["notes"] == told["new"]["notes"] + 1
    assert cmem("postgres", "leave", "older", "--yes").exit_code != 0
    assert cmem("postgres", "leave", "old").exit_code == 0
    assert "ferry.md" in cmem("search", "ferry").stdout
    assert cmem("postgres", "leave", "old", "--yes").exit_code == 0
    assert "ferry.md" not in cmem("search", "ferry", "--weak").stdout
    assert [one["name"] for one in json.loads(cmem("postgres", "owners", "--json").stdout)["owners"]] == [
        "new"
    ]
    assert cmem("search", "memory", "--weak").stdout
