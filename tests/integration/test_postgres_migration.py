"""A memory moves from its file to a PostgreSQL server and back: notes as they are, nothing embedded again."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from composable_memory import open_memory
from composable_memory.cli import app
from composable_memory.config.settings import SettingsModel
from composable_memory.interfaces import EmbedderServices, EmbedderSpec
from composable_memory.testing import HashEmbedder
from composable_memory.types import SyncReport
from composable_memory.vector_values import EmbedderInput
from composable_memory_adapters.postgres.settings import PostgresSettings
from tests.postgres_server import PostgresServer


class Paid(HashEmbedder):
    """An embedder that refuses to embed notes once they have been paid for."""

    is_paid = False

    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        assert not self.is_paid, f"embedded again: {[one.text for one in inputs]}"
        return await super().embed_batch(inputs)


class Move:
    """A folder of notes and an empty one, with a server that both know."""

    def __init__(self, tmp_path: Path, server: PostgresServer, schema: str) -> None:
        self.embedder = Paid()
        self.server = server
        self.team = {"kind": "postgres", "workspace": "team", "schema": schema, "url": server.url("team")}
        self.config = tmp_path / "config.yaml"
        self.states = tmp_path / "states"

    def cmem(self, folder: Path, *words: str) -> Result:
        state = str(self.states / folder.name)
        return CliRunner().invoke(app, [*words, "--json", "-w", str(folder), "--state-dir", state])

    async def moved(self, folder: Path, to: str) -> Mapping[str, object]:
        done = await asyncio.to_thread(self.cmem, folder, "migrate", to)
        assert done.exit_code in (0, 3), done.output
        return dict(json.loads(done.stdout))

    async def synced(self, folder: Path, config: Mapping[str, object]) -> tuple[SyncReport, list[str]]:
        """Sync a folder, and ask about the ferry."""

        @asynccontextmanager
        async def opened(
            _settings: SettingsModel, _services: EmbedderServices
        ) -> AsyncIterator[HashEmbedder]:
            yield self.embedder

        spec = EmbedderSpec(id="hash", summary="", settings=SettingsModel, open=opened, local=True)
        memory_config = {"embedding": {"provider": "hash"}, **config}
        async with open_memory(
            folder,
            self.states / folder.name,
            {"memory": memory_config},
            embedders=[spec],
            long_lived=False,
        ) as memory:
            report = await memory.sync()
            found = await memory.query("ferry")
            assert found.degraded == ()
            return report, [hit.path for hit in found.results]


def left_out(document: Mapping[str, object]) -> set[str]:
    given = document["leftOut"]
    assert isinstance(given, list)
    return {one["path"] for one in given}


def notes_in(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*.md")}


@pytest.fixture
def move(
    tmp_path: Path,
    postgres_server: PostgresServer,
    team_settings: PostgresSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> Move:
    move = Move(tmp_path, postgres_server, team_settings.schema_)
    move.config.write_text("{}")
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(move.config))
    return move


async def test_a_memory_moves_to_a_server_and_back_and_nothing_is_embedded_again(
    move: Move, workspace: Path, tmp_path: Path
) -> None:
    (workspace / "memory" / "ferry.md").write_text("The ferry leaves at nine.\n")
    at_home = {"builtin": {"enabled": True}}
    there = {"backend": "postgres", "postgres": {k: v for k, v in move.team.items() if k != "kind"}}

    before, found_before = await move.synced(workspace, at_home)
    move.config.write_text(json.dumps({"memory": there}))
    move.embedder.is_paid = True
    assert (await asyncio.to_thread(move.cmem, workspace, "weights", "set", "postgres=0.5")).exit_code == 0
    shares = {"feedback": {"backend": "postgres"}}
    move.config.write_text(json.dumps({"memory": {**there, **shares}}))
    first = await move.moved(workspace, "postgres")
    again = await move.moved(workspace, "postgres")
    move.server.run(
        f"DELETE FROM {move.team['schema']}.vectors WHERE id IN"
        f" (SELECT id FROM {move.team['schema']}.vectors LIMIT 2)",
        f"UPDATE {move.team['schema']}.workspace_states SET pending = 2",
    )
    resumed = await move.moved(workspace, "postgres")
    on_server, found_there = await move.synced(workspace, there)

    assert first["vectors"] == before.embedded > 2
    assert first["withoutVector"] == 0
    assert first["learnt"] == {"weight_changes": 1}
    assert (again["notesWritten"], again["vectors"], again["learnt"]) == (0, 0, {})
    assert (resumed["notesWritten"], resumed["vectors"]) == (0, 2)
    assert (on_server.embedded, on_server.embeddings_pending) == (0, 0)
    assert found_there == found_before
    assert "memory/ferry.md" in found_there

    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "memory").mkdir(parents=True)
    (elsewhere / "memory" / "ferry.md").write_text("My own line about the ferry.\n")
    shares = {"feedback": {"backend": "team"}}
    move.config.write_text(json.dumps({"memory": {"backends": {"team": move.team}, **shares}}))
    back = await move.moved(elsewhere, "builtin")
    back_again = await move.moved(elsewhere, "builtin")
    notes = notes_in(workspace)
    for note in notes - {Path("memory/ferry.md")}:
        assert (elsewhere / note).read_bytes() == (workspace / note).read_bytes()
        assert (elsewhere / note).stat().st_mtime_ns == (workspace / note).stat().st_mtime_ns
    (elsewhere / "memory" / "ferry.md").write_bytes((workspace / "memory" / "ferry.md").read_bytes())
    move.config.write_text("{}")
    at_home_again, found_back = await move.synced(elsewhere, at_home)

    assert back["notesWritten"] == len(notes) - 1
    assert left_out(back) == {"memory/ferry.md"}
    assert back["vectors"] == before.embedded
    assert back["learnt"] == first["learnt"]
    assert (back_again["notesWritten"], back_again["vectors"]) == (0, 0)
    assert (at_home_again.embedded, at_home_again.embeddings_pending) == (0, 0)
    assert found_back == found_before


async def test_notes_of_a_server_are_written_into_the_folder_alone(
    move: Move, workspace: Path, tmp_path: Path
) -> None:
    """Whoever has the password can bring a note of any name; it leads nowhere else."""
    move.config.write_text(json.dumps({"memory": {"backends": {"team": move.team}}}))
    await move.moved(workspace, "postgres")
    schema = move.team["schema"]
    for path in ("../outside.md", "memory/.hidden/x.md", "/etc/outside.md", "memory/run.sh"):
        move.server.run(
            f"INSERT INTO {schema}.notes SELECT tenant, '{path}', hash, mtime, recipe, title, aliases, tags,"
            f" type, day, body FROM {schema}.notes LIMIT 1"
        )
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    back = await move.moved(elsewhere, "builtin")

    assert {"../outside.md", "/etc/outside.md", "memory/run.sh"} <= left_out(back)
    assert not (tmp_path / "outside.md").exists()
    assert back["notesWritten"] == len(notes_in(elsewhere))
