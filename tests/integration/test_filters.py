"""Filters and the asker's clock, from a question to what is found and logged."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from composable_memory import open_memory
from composable_memory.errors import ConfigError, InvalidArgument
from composable_memory.query.filters import filter_results
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.runtime.memory import Memory
from composable_memory.testing.in_memory import InMemoryBackend
from composable_memory.tools.search import MemorySearchRequest, memory_search
from composable_memory.types import MemorySearchResult, QueryRequest, SearchFilters, SearchOptions
from composable_memory_ops_logs import OpsLogReader
from tests.notes import write_notes

NOTES = {
    "MEMORY.md": "The fence is green. #garden/wood\n",
    "memory/2026-04-14.md": "# Tuesday\n\nWalked along the fence with Ana. An *exact  phrase* stands here.\n",
    "memory/2026-05-01.md": "The fence is done. #garden\n",
    "memory/plan.md": "---\ntitle: Fence\ndate: 2026-03-02\ntags: [house, work/alpha]\n---\n"
    "The fence needs a draft of the budget.\n",
    "memory/work/2026-02-03/call.md": "---\ntags:\n  - house\n---\n# The fence #1\n\nA call, 木のフェンス.\n",
}


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    folder = tmp_path / "vault"
    for path, text in NOTES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
        os.utime(folder / path, (1_750_000_000, 1_750_000_000))  # in June 2025
    return folder


RETAINED = {
    "memory/2026-05-03.md": "## Retain\n\n- O(c=0.8) @Ana: Finds the fence ugly.\n- W: A fence has posts.\n",
    "memory/2026-05-04.md": "## Retain\n\n- W: The fence is of oak.\n",
    "memory/plain.md": "The fence: an O, a W and a B.\n",
    "bank/opinions.md": "---\ntype: opinion\n---\n\nThe fence pleases nobody.\n",
}


def found(memory_paths: Mapping[str, str], *names: str) -> set[str]:
    return {path for path in memory_paths if any(name in path for name in names)}


async def paths(memory: Memory, query: str, **named: object) -> set[str]:
    filters = SearchFilters(**named) if named else None  # type: ignore[arg-type]
    response = await memory.query(query, filters=filters, now=datetime(2026, 5, 10, 9, tzinfo=UTC))
    assert response.degraded == (), query
    return {result.path for result in response.results}


async def test_every_filter_narrows_what_the_builtin_memory_finds(vault: Path, state_dir: Path) -> None:
    cases = {
        "fence": {*NOTES},
        "fence path:memory": found(NOTES, "memory/"),
        "fence path:memory/*.md": found(NOTES, "memory/2026", "plan"),
        "fence path:work tag:house": found(NOTES, "call"),
        "fence tag:garden": found(NOTES, "MEMORY", "2026-05-01"),
        "fence tag:#work": found(NOTES, "plan"),
        "fence tag:1": set(),
        "fence after:2026-04": found(NOTES, "2026-04-14", "2026-05-01"),
        "fence before:2026-03": found(NOTES, "MEMORY", "call"),
        'fence after:"last month" -done': found(NOTES, "2026-04-14"),
        'fence "exact phrase*"': found(NOTES, "2026-04-14"),
        '"exact phrase"': found(NOTES, "2026-04-14"),
        '"phrase exact"': set(),
        "フェンス -call": {*NOTES} - found(NOTES, "call"),
        "fence -draft -green": found(NOTES, "2026-04-14", "2026-05-01", "call"),
        "tag:garden": found(NOTES, "MEMORY", "2026-05-01"),
    }
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        await memory.sync()
        for query, expected in cases.items():
            assert await paths(memory, query) == expected, query
        assert await paths(memory, "fence", types=("transcript",)) == set()
        assert await paths(memory, "fence", sources=("sessions",)) == set()
        assert await paths(memory, "fence", types=("md",), tags=("house",)) == found(NOTES, "plan", "call")
        assert await paths(memory, "", until=datetime(2026, 3, 1, tzinfo=UTC)) == found(
            NOTES, "MEMORY", "call"
        )
        newest = await memory.query("tag:garden", max_results=1)
        assert [one.path for one in newest.results] == ["memory/2026-05-01.md"]


async def test_without_keywords_texts_are_read(vault: Path, state_dir: Path) -> None:
    config = {"memory": {"builtin": {"store": {"fts": {"enabled": False}}}}}
    async with open_memory(vault, state_dir, config, long_lived=False) as memory:
        await memory.sync()
        response = await memory.query('fence tag:house "of the Budget" -done')

    assert [one.path for one in response.results] == ["memory/plan.md"]


async def test_a_backend_that_knows_no_filters_is_corrected() -> None:
    notes = {"MEMORY.md": "the fence", "memory/2026-04-14.md": "the fence, a draft", "memory/a.md": "a fence"}
    entry = ComposableBackendEntry(id="plain", manager=InMemoryBackend(notes, backend_id="plain"))
    manager = ComposableMemoryManager([entry])

    by_path = await manager.query("fence path:memory")
    by_tag = await manager.query("fence tag:x path:memory/a.md")
    by_filter_alone = await manager.query("path:memory")

    assert {one.path for one in by_path.results} == {"memory/2026-04-14.md", "memory/a.md"}
    assert by_path.degraded == ()
    assert [one.path for one in by_tag.results] == ["memory/a.md"]
    assert [(one.code, "tag" in one.reason) for one in by_tag.degraded] == [("not-filtered", True)]
    assert by_filter_alone.results == ()
    assert [(one.backend_id, one.code) for one in by_filter_alone.degraded] == [("plain", "not-filtered")]


async def test_the_time_of_the_asker_is_given_and_logged(vault: Path, state_dir: Path) -> None:
    environ = {"COMPOSABLE_MEMORY_NOW": "2026-05-10T09:00+00:00"}
    given = datetime(2026, 3, 5, tzinfo=UTC)
    async with open_memory(vault, state_dir, environ=environ, long_lived=False) as memory:
        await memory.sync()
        of_environ = await memory.query("fence after:2w")
        of_request = await memory.query(QueryRequest(query="fence before:today -green", now=given))
        of_options = await memory.query(
            QueryRequest(query="fence before:today -green", options=SearchOptions(now=given))
        )
        await memory.ops_log.flush()
        events = await asyncio.to_thread(OpsLogReader(memory.ops_log_dir).tail, 50)

    assert [one.path for one in of_environ.results] == ["memory/2026-05-01.md"]
    assert {one.path for one in of_request.results} == found(NOTES, "plan", "call")
    assert of_options.results == of_request.results
    logged = [
        event.detail
        for event in events
        if event.action == "query.start" and isinstance(event.detail, Mapping)
    ]
    assert [one["now"] for one in logged] == [
        "2026-05-10T09:00:00+00:00",
        given.isoformat(),
        given.isoformat(),
    ]
    assert logged[1]["filters"] == {"until": "2026-03-04T23:59:59.999999+00:00", "without": ["green"]}


async def test_a_wrong_filter_is_an_error_that_names_it(vault: Path, state_dir: Path) -> None:
    with pytest.raises(ConfigError, match="COMPOSABLE_MEMORY_NOW"):
        async with open_memory(vault, state_dir, environ={"COMPOSABLE_MEMORY_NOW": "soon"}):
            pass
    async with open_memory(vault, state_dir, long_lived=False) as memory:
        with pytest.raises(InvalidArgument):
            await memory.query("fence after:lunch")
        reply = await memory_search(memory, MemorySearchRequest(query="fence", since="lunch"))
        assert (reply.unavailable, reply.results) == (None, ())
        assert "lunch" in (reply.error or "")


async def test_passages_with_retained_lines_of_a_type_and_pages_of_a_type_pass(
    tmp_path: Path, state_dir: Path
) -> None:
    write_notes(tmp_path / "notes", RETAINED)
    cases = {
        "fence type:opinion": found(RETAINED, "05-03", "bank"),
        "fence type:opinion path:memory": found(RETAINED, "05-03"),
        "fence type:world": found(RETAINED, "05-03", "05-04"),
        "type:world after:2026-05-04": found(RETAINED, "05-04"),
        "fence type:experience": set(),
        "fence type:note": {*RETAINED},
        "fence": {*RETAINED},
    }
    async with open_memory(tmp_path / "notes", state_dir, long_lived=False) as memory:
        await memory.sync()
        for query, expected in cases.items():
            assert await paths(memory, query) == expected, query
        page = await memory.read_file("bank/opinions.md")
        assert "pleases nobody" in page.text
    without_keywords = {"memory": {"builtin": {"query": {"hybrid": {"enabled": False}}}}}
    async with open_memory(tmp_path / "notes", state_dir, without_keywords, long_lived=False) as memory:
        await memory.sync()
        response = await memory.query("fence type:opinion")
        assert {result.path for result in response.results} == found(RETAINED, "05-03", "bank")


def test_what_another_memory_found_passes_as_far_as_it_tells_its_type() -> None:
    said = MemorySearchResult(path="a.md", start_line=1, end_line=3, score=1, snippet="- O @Ana: Likes it.")
    other = replace(said, path="b.md", snippet="- W: It is so.")
    results = [said, other, replace(other, path="sessions/c.jsonl", source="sessions")]
    passed = filter_results(results, SearchFilters(types=("opinion",)))
    assert [one.path for one in passed.results] == ["a.md", "b.md"]
    assert passed.unknown == ("type",)
