"""`cmem backup` and `cmem restore` over a real graph: facts, times and origins are as they were."""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pytest
from typer.testing import CliRunner, Result

from composable_memory.cli import app
from composable_memory.content import MemoryContentObject, MemoryProvenance, MemoryTemporalMetadata
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory_adapters.graphiti.database import requirements
from composable_memory_adapters.graphiti.database.falkor import FalkorDatabase
from composable_memory_adapters.graphiti.database_store import open_database
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from tests.integration.graphiti.conftest import TcpServer
from tests.integration.graphiti.neighbour import WORD
from tests.variants import variants

pytest.importorskip("falkordb")
pytest.importorskip("graphiti_core")
pytestmark = pytest.mark.skipif(
    requirements.find_binaries() is None, reason="there is no graph server for this system"
)

T = TypeVar("T")

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
JOBS, HOMES = "memory/jobs.md", "memory/homes.md"
MIRELA = "Mirela"
ANN, BOB = "agent:main:direct:ann", "agent:main:direct:bob"

KINDS: dict[str, dict[str, object]] = {
    "the workspace's own group": {},
    "a group by name": {"group": "Team Red"},
    "a group for each session": {"ingest": {"group_by": "session"}},
    "with vectors": {"embedding": "wordllama"},
}


def said(path: str, text: str, day: str, *, session: str | None = None) -> MemoryContentObject:
    return MemoryContentObject(
        id=f"{path}#{text}",
        kind="message" if session else "document",
        text=text,
        provenance=MemoryProvenance(
            source="note", source_id=path, citations=(f"{path}#L1",), session_key=session
        ),
        temporal=MemoryTemporalMetadata(observed_at=datetime.fromisoformat(day).replace(tzinfo=UTC)),
    )


FIRST = (
    said(JOBS, "Mirela works at Beacon Labs.", "2026-01-10"),
    said(JOBS, "Mirela works at Acme Robotics.", "2026-06-01"),
    said(JOBS, "Mirela works at Beacon Labs now.", "2026-09-01"),
)
SECOND = tuple(said(HOMES, f"Person{number} lives in Town{number}.", "2026-02-02") for number in range(4))
CHAT = (
    said("chat", "Nadia works at Globex.", "2026-03-01", session=ANN),
    said("chat", "Nadia lives in Turin.", "2026-03-02", session=BOB),
)
SECRET = said("chat", "Oskar lives in Bergen.", "2026-03-03")
CHANGED = replace(FIRST[1], text="Mirela works at Initech.")
LATER = said(JOBS, "Mirela works at Delta Works.", "2026-10-01")


MoveIn = Callable[[Path, Path], None]


class Place:
    """A workspace with settings of its own, and with a state folder in which there is a neighbour."""

    def __init__(self, folder: Path, graphiti: Mapping[str, object], move_neighbour_in: MoveIn) -> None:
        self.workspace, self.state, self.config = folder / "notes", folder / "state", folder / "config.yaml"
        self.workspace.mkdir(parents=True, exist_ok=True)
        move_neighbour_in(self.workspace, self.state)
        graphiti = dict(graphiti)
        embedding = graphiti.pop("embedding", "none")
        settings = {
            "graphiti": {"enabled": True, **graphiti},
            "embedding": {"provider": embedding},
            "query": {"timeout_ms": 60_000},  # a busy machine may take longer than usual to start the server
        }
        self.config.write_text(json.dumps({"memory": settings}), encoding="utf-8")
        self._environ = {"COMPOSABLE_MEMORY_CONFIG": str(self.config)}

    def cmem(self, *args: str) -> Result:
        place = ["--workspace", str(self.workspace), "--state-dir", str(self.state)]
        return CliRunner().invoke(app, [*args, *place], env=self._environ)

    def done(self, *args: str) -> str:
        result = self.cmem(*args)
        assert result.exit_code == 0, result.output
        return result.stdout

    def run(self, work: Callable[[Memory], Awaitable[T]]) -> T:
        async def whole() -> T:
            opening = open_memory(
                self.workspace, self.state, environ=self._environ, clock=lambda: NOW, long_lived=False
            )
            async with opening as memory:
                return await work(memory)

        return asyncio.run(whole())

    def known(self) -> list[str]:
        """Return all that is known, in words: facts with times and origins, episodes, the life of Mirela."""
        known = self.run(_known)
        assert not [one for one in known if WORD in one]
        return known

    @property
    def ledger(self) -> Path:
        (found,) = self.state.glob("**/episodes.sqlite")
        return found


async def _known(memory: Memory) -> list[str]:
    graph = memory.facts_of()
    answers = [
        await memory.query(question, backends=["graphiti"], session_key=session, min_score=0.0)
        for question in ("Who works at Globex or lives in Turin?", f"What does {MIRELA} do?")
        for session in (None, ANN, BOB)
    ]
    assert [one.error for answer in answers for one in answer.answers if one.error] == []
    found = [f"{one.snippet} {one.score:.6f} {one.origin}" for answer in answers for one in answer.results]
    episodes = await graph.episodes(limit=1000)
    names = {one.id: one.content_id for one in episodes}
    facts = [*await graph.facts(limit=1000), *await graph.timeline(MIRELA)]
    told = [
        f"{one.text} {one.created_at} {one.valid_at} {one.invalid_at} {one.origins} "
        f"{sorted(names[id_] for id_ in one.episodes if id_ in names)}"
        for one in facts
    ]
    return sorted([*found, *told, *(f"{one.content_id} {one.text} {one.observed_at}" for one in episodes)])


async def _fill(memory: Memory) -> None:
    await memory.ingest_source(JOBS, FIRST)
    await memory.ingest_source(HOMES, SECOND)
    await memory.ingest_source(HOMES, SECOND[2:])
    await memory.ingest([*CHAT, SECRET])
    await memory.facts_of().forget(SECRET.id)


async def _go_on(memory: Memory) -> list[str]:
    """Say the same again, something new, something that was forgotten; take back and forget something."""
    reports = [
        (await memory.ingest([SECRET, *CHAT]))["graphiti"],
        (await memory.ingest_source(JOBS, [FIRST[0], CHANGED, FIRST[2], LATER]))["graphiti"],
        (await memory.ingest_source(HOMES, SECOND[3:]))["graphiti"],
        (await memory.ingest_source(HOMES, SECOND[1:]))["graphiti"],
    ]
    forgotten = await memory.facts_of().forget(SECOND[2].id)
    counts = [f"{one.stored} {one.known}" for one in reports]
    return [*counts, f"{forgotten.facts} {forgotten.entities}", *await _known(memory)]


@pytest.mark.parametrize("kind", variants(KINDS, "with vectors"))
def test_a_backup_restored_elsewhere_knows_the_same_and_goes_on_the_same(
    tmp_path: Path, kind: str, move_neighbour_in: MoveIn
) -> None:
    settings = KINDS[kind]
    place, other = (
        Place(tmp_path / "one", settings, move_neighbour_in),
        Place(tmp_path / "two", settings, move_neighbour_in),
    )
    place.run(_fill)
    before = place.known()
    assert any("Turin" in one for one in before)
    assert not any("Oskar" in one for one in before)
    document = json.loads(place.done("backup", str(tmp_path / "backup"), "--json"))

    restored = json.loads(other.done("restore", str(tmp_path / "backup"), "--json"))

    assert document["parts"]["graphiti"] == restored["parts"]["graphiti"]
    assert restored["parts"]["graphiti"]["facts"] >= 7
    assert other.known() == before
    assert other.run(_go_on) == place.run(_go_on)
    assert place.known() == other.known()


def test_facts_are_backed_up_exported_and_restored_where_the_graph_is_not_enabled(
    tmp_path: Path, move_neighbour_in: MoveIn
) -> None:
    place, other = (Place(tmp_path / name, {}, move_neighbour_in) for name in ("one", "two"))
    place.run(_fill)
    before = place.known()
    enabled = {one: one.config.read_text() for one in (place, other)}
    for one, settings in enabled.items():
        one.config.write_text(settings.replace('"enabled": true', '"enabled": false'))

    kept = json.loads(place.done("backup", str(tmp_path / "backup"), "--json"))
    exported = json.loads(place.done("export", str(tmp_path / "export"), "--json"))
    shutil.rmtree(tmp_path / "backup" / "settings")
    manifest = json.loads((tmp_path / "backup" / "manifest.json").read_text())
    manifest["files"] = {name: sha for name, sha in manifest["files"].items() if "settings/" not in name}
    (tmp_path / "backup" / "manifest.json").write_text(json.dumps(manifest))
    restored = json.loads(other.done("restore", str(tmp_path / "backup"), "--json"))
    other.config.write_text(enabled[other])

    assert kept["parts"]["graphiti"]["facts"] == exported["parts"]["facts"] >= 7
    assert kept["leftOut"] == exported["leftOut"] == {}
    assert restored["notEnabled"] == {"graphiti": "memory.graphiti.enabled"}
    assert other.known() == before


def test_facts_that_cannot_be_read_now_are_named_where_the_graph_is_not_enabled(
    tmp_path: Path, move_neighbour_in: MoveIn
) -> None:
    place = Place(tmp_path / "one", {}, move_neighbour_in)
    place.run(_fill)
    settings = json.loads(place.config.read_text())
    settings["memory"]["graphiti"] = {"enabled": False, "private": {"dir": str(tmp_path / "elsewhere")}}
    place.config.write_text(json.dumps(settings))

    document = json.loads(place.done("backup", str(tmp_path / "backup"), "--json"))

    assert [*document["leftOut"]] == ["graphiti"]
    assert not any(document["parts"]["graphiti"].values())


@pytest.mark.thorough
def test_a_fresh_state_folder_gets_all_back(tmp_path: Path, move_neighbour_in: MoveIn) -> None:
    place = Place(tmp_path / "one", {}, move_neighbour_in)
    place.run(_fill)
    before = place.known()
    place.done("backup", str(tmp_path / "backup"))
    shutil.rmtree(place.state)
    move_neighbour_in(place.workspace, place.state)

    place.done("restore", str(tmp_path / "backup"))

    assert place.known() == before
    place.done("index")
    assert place.known() == before


@pytest.mark.thorough
def test_facts_are_replaced_only_when_that_is_asked_for_and_those_of_others_never(
    tmp_path: Path, move_neighbour_in: MoveIn
) -> None:
    place, other = (
        Place(tmp_path / "one", {}, move_neighbour_in),
        Place(tmp_path / "two", {}, move_neighbour_in),
    )
    place.run(_fill)
    before = place.known()
    place.done("backup", str(tmp_path / "backup"))
    other.state = place.state  # in one ledger, on one server
    other.run(lambda memory: memory.ingest([LATER, SECOND[0]]))
    theirs = other.known()

    refused = other.cmem("restore", str(tmp_path / "backup"))

    assert refused.exit_code == 1
    assert "--force" in refused.stderr
    assert other.known() == theirs
    for _ in range(2):
        other.done("restore", str(tmp_path / "backup"), "--force")
        assert other.known() == before
    other.run(_go_on)
    assert place.known() == before
    place.done("restore", str(tmp_path / "backup"), "--force")
    assert place.known() == before


@pytest.mark.thorough
def test_what_a_kill_cut_off_is_completed_by_whoever_opens_the_memory_next(
    tmp_path: Path, move_neighbour_in: MoveIn
) -> None:
    place = Place(tmp_path / "one", {}, move_neighbour_in)
    place.run(_fill)
    before = place.known()

    async def as_after_a_kill() -> None:
        async with open_database(GraphitiSettings(), data_dir=place.ledger.parent) as database:
            assert isinstance(database, FalkorDatabase)
            (group,) = [
                one
                for one in await database.groups()
                if await database.read(one, "MATCH (n:Entity) WHERE n.name = $name RETURN n", name=MIRELA)
            ]
            await database.rename(group, "made")
            await database.write(group, "CREATE (:Episodic {uuid: 'of before', group_id: $group_id})")
            with closing(sqlite3.connect(place.ledger)) as ledger, ledger:
                ledger.execute("INSERT INTO restored VALUES (?, 'made')", (group,))

    asyncio.run(as_after_a_kill())

    assert place.known() == before
    with closing(sqlite3.connect(place.ledger)) as ledger:
        assert ledger.execute("SELECT count(*) FROM restored").fetchone() == (0,)
        assert ledger.execute("SELECT count(*) FROM episodes WHERE state = 'queued'").fetchone() == (0,)


@pytest.mark.thorough
def test_what_cannot_be_read_is_refused_and_nothing_is_changed(
    tmp_path: Path, move_neighbour_in: MoveIn
) -> None:
    place = Place(tmp_path / "one", {}, move_neighbour_in)
    place.run(_fill)
    before = place.known()
    place.done("backup", str(tmp_path / "backup"))
    manifest = tmp_path / "backup" / "manifest.json"
    told = json.loads(manifest.read_text(encoding="utf-8"))
    form = tmp_path / "backup" / "backends" / "graphiti" / "format.json"
    form.unlink()
    del told["files"]["backends/graphiti/format.json"]
    manifest.write_text(json.dumps(told), encoding="utf-8")

    refused = place.cmem("restore", str(tmp_path / "backup"), "--force")

    assert refused.exit_code == 1
    assert "format.json" in refused.stderr
    assert place.known() == before


def test_what_is_in_the_graph_of_others_is_counted_and_left_to_them(
    tmp_path: Path, tcp_server: TcpServer, move_neighbour_in: MoveIn
) -> None:
    place = Place(
        tmp_path / "one", {"url": tcp_server.url, "password": tcp_server.password}, move_neighbour_in
    )
    place.run(_fill)

    document = json.loads(place.done("backup", str(tmp_path / "backup"), "--json"))

    assert document["parts"]["graphiti"] == {"elsewhere": 7}
    place.done("restore", str(tmp_path / "backup"), "--force")


@pytest.mark.thorough
def test_in_a_group_of_several_workspaces_facts_are_left_and_counted(
    tmp_path: Path, move_neighbour_in: MoveIn
) -> None:
    place, other = (Place(tmp_path / name, {"group": "team"}, move_neighbour_in) for name in ("one", "two"))
    other.state = place.state
    place.run(_fill)
    place.done("backup", str(tmp_path / "alone"))
    other.run(lambda memory: memory.ingest([LATER]))
    before = other.known()

    document = json.loads(place.done("backup", str(tmp_path / "backup"), "--json"))
    refused = other.cmem("restore", str(tmp_path / "alone"), "--force")

    assert document["parts"]["graphiti"]["elsewhere"] == 7
    assert refused.exit_code == 1
    assert "team" in refused.stderr
    assert other.known() == before
