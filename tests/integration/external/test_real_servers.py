"""Real servers joined by their presets, as a memory of a person beside the builtin one."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from composable_memory import open_memory
from composable_memory.errors import MemoryPathError
from composable_memory.runtime.memory import Memory
from composable_memory.types import QueryResponse
from tests.integration.external import real_servers
from tests.integration.external.real_servers import REFERENCE, node

QUERY = "When was the harbour pump replaced?"
PUMP = "The harbour pump was replaced in May."
OTHER = "Tomatoes need shade cloth."
NOTES = {"pump.md": f"# Pump\n\n{PUMP}\n", "garden.md": f"# Garden\n\n{OTHER}\n"}


def lost(response: QueryResponse) -> list[str]:
    return [one.reason for one in response.degraded if one.backend_id == "away"]


@asynccontextmanager
async def joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str], **section: Any
) -> AsyncIterator[Memory]:
    """Open a memory of no notes of its own and the server, which gets `environ` by variables of ours."""
    for name, value in environ.items():
        monkeypatch.setenv(f"TEST_{name}", value)
    own = {"kind": "mcp", "timeout_ms": 60_000, "env": {name: f"TEST_{name}" for name in environ}, **section}
    config = {"embedding": {"provider": "none"}, "backends": {"builtin": {}, "away": own}}
    (tmp_path / "ours").mkdir()
    async with open_memory(tmp_path / "ours", tmp_path / "state", config, long_lived=False) as memory:
        yield memory


@pytest.mark.needs("mcp-servers")
async def test_the_reference_server_joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [node(), str(REFERENCE)]
    entities = [
        {"type": "entity", "name": "Harbour", "entityType": "place", "observations": [PUMP, "It is deep."]},
        {"type": "entity", "name": "Garden", "entityType": "place", "observations": [OTHER]},
        {"type": "relation", "from": "Garden", "to": "Harbour", "relationType": "lies_behind"},
    ]
    graph = tmp_path / "graph.jsonl"
    graph.write_text("\n".join(map(json.dumps, entities)), encoding="utf-8")
    environ = {"MEMORY_FILE_PATH": str(graph)}
    section = {"command": command, "preset": "server-memory", "writes": True}
    async with joined(tmp_path, monkeypatch, environ, **section) as memory:
        response = await memory.query(QUERY, min_score=0.0)
        whole = await memory.read_file("away://Harbour")
        done = await memory.remember("The harbour crane is green.")
        added = await memory.query("harbour crane green", min_score=0.0, backends=["away"])
    assert not lost(response)
    result, relation = response.results
    assert (result.path, result.title) == ("away://Harbour", "Harbour")
    assert PUMP in result.snippet
    assert relation.text == "Garden lies behind Harbour"
    assert whole.text.split("\n") == [PUMP, "It is deep.", "", relation.text]
    assert not done.degraded
    assert added.results[0].path == f"away://{done.path}#^{done.id}"


@pytest.mark.needs("qmd")
async def test_qmd_joins_over_mcp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section, environ = await asyncio.to_thread(real_servers.qmd, tmp_path, NOTES)
    async with joined(tmp_path, monkeypatch, environ, **section) as memory:
        response = await memory.query(QUERY, min_score=0.0)
        whole = await memory.read_file("away://notes/pump.md")
    assert "# Pump" in whole.text
    assert PUMP in whole.text
    assert not lost(response)
    assert [one.path for one in response.results] == ["away://notes/pump.md"]
    assert PUMP in response.results[0].snippet


@pytest.mark.needs("basic-memory")
async def test_basic_memory_joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section, environ = await asyncio.to_thread(real_servers.basic_memory, tmp_path, NOTES)
    async with joined(tmp_path, monkeypatch, environ, **section) as memory:
        response = await memory.query(QUERY, min_score=0.0)
        whole = await memory.read_file("away://pump.md")
        with pytest.raises(MemoryPathError):
            await memory.read_file("away://nowhere.md")
    assert PUMP in whole.text
    assert not lost(response)
    assert response.results[0].path == "away://pump.md"
    assert PUMP in response.results[0].snippet
