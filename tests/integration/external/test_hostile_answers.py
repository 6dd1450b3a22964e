"""What a foreign memory answers, whatever it is: no note is replaced, a bad value costs only itself."""

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from composable_memory import open_memory
from composable_memory.errors import MemoryPathError
from composable_memory.types import QueryResponse, SearchFilters
from composable_memory_adapters.external.answer_reader import parsed
from composable_memory_adapters.external.retrievers import retriever_backend

QUERY = "harbour pump"
OURS = "The harbour pump was replaced in May."


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    for name in ("MEMORY.md", "away/pump.md", "memory/pump.md"):
        note = tmp_path / "notes" / name
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(f"{OURS} So says {name}.\n", encoding="utf-8")
    return tmp_path / "notes"


async def asked(
    notes: Path, rows: Sequence[object], backend_id: str = "away", query: str = QUERY, **more: Any
) -> QueryResponse:
    """Ask the memory of `notes` beside one that answers `rows`."""

    async def search(_query: str, _limit: int) -> Sequence[object]:
        return rows

    own = more.pop("section", {})
    config = {
        "embedding": {"provider": "none"},
        "builtin": {"extra_paths": ["away"]},
        "backends": {backend_id: own},
    }
    spec = retriever_backend(backend_id, search)
    async with open_memory(
        notes, notes.parent / "state", config, backends=[spec], long_lived=False
    ) as memory:
        await memory.sync()
        return await memory.query(query, max_results=20, min_score=0.0, **more)


def from_away(response: QueryResponse) -> list[str]:
    return [one.path for one in response.results if one.path.startswith("away://")]


def lost(response: QueryResponse) -> str:
    return " ".join(one.reason for one in response.degraded if one.backend_id == "away")


async def test_no_answer_takes_the_place_of_a_note(notes: Path) -> None:
    names = ("MEMORY.md", "../MEMORY.md", "/pump.md", "pump.md", "memory/pump.md", "../away//pump.md")
    rows = [
        {"path": one, "line": line, "text": f"harbour pump: never replaced, says {one} {line}", "score": 1.0}
        for one in names
        for line in (0, 1)
    ]
    response = await asked(notes, rows)
    ours = {one.path: one.text for one in response.results if OURS in one.text}
    assert {*ours} == {"MEMORY.md", "away/pump.md", "memory/pump.md"}
    assert all(one.source_backend == "builtin" for one in response.results if one.path in ours)
    assert {"away://MEMORY.md", "away://pump.md"} <= {*from_away(response)}
    assert not [one for one in response.dropped if one.backend_id == "builtin"]


async def test_a_copy_of_a_note_that_scores_higher_does_not_displace_it(notes: Path) -> None:
    note = notes / "memory" / "crane.md"
    said = " ".join(f"word{number}" for number in range(60))
    note.write_text(f"The harbour pump was replaced in May, after {said}.\n", encoding="utf-8")
    copy = f"The harbour pump was never replaced in May, after {said}."
    response = await asked(notes, [{"path": "copy", "text": copy, "score": 1.0}])
    assert "memory/crane.md" in [one.path for one in response.results]
    assert [one.result.path for one in response.dropped if one.reason == "near-duplicate"] == ["away://copy"]
    assert [one.score for one in response.results] == sorted(
        (one.score for one in response.results), reverse=True
    )


@pytest.mark.parametrize("backend_id", ["memory", "bank", "sessions", "file", "c"])
async def test_an_id_that_looks_like_a_place_of_notes_is_refused(notes: Path, backend_id: str) -> None:
    response = await asked(notes, [{"path": "pump.md", "text": "never"}], backend_id)
    assert {one.path for one in response.results} == {"MEMORY.md", "away/pump.md", "memory/pump.md"}
    (problem,) = (one for one in response.degraded if one.backend_id == backend_id)
    assert repr(backend_id) in problem.reason


async def test_a_bad_value_costs_only_itself(notes: Path) -> None:
    bad: list[Any] = [10**400, float("nan"), float("inf"), "0.9", True, [1], 1e308]
    rows = [
        {"id": f"r{number}", "text": f"pump {number}", "score": score, "line": score, "created_at": score}
        for number, score in enumerate(bad)
    ]
    rows += [{"id": "good", "text": "good pump", "score": 0.5}, {"id": "torn", "text": "pump \ud800"}]
    response = await asked(notes, rows)
    assert {*from_away(response)} == {f"away://{one['id']}" for one in rows}
    assert f"{len(bad)} of its scores" in lost(response)


def test_json_with_half_a_surrogate_pair_is_read() -> None:
    torn = rb'{"results": [{"text": "a pump \ud800"}, {"text": "another"}], "n": 1' + b"0" * 400 + b"}"
    for data in (torn, torn.decode(), torn.replace(b"another", b"an\xff other")):
        answer = parsed(data)
        assert isinstance(answer, dict)
        assert [str(one["text"])[:2] for one in answer["results"]] == ["a ", "an"]  # type: ignore[index,union-attr,call-overload]
        json.dumps(answer, ensure_ascii=False).encode()
    for nothing in (b"", b"no json", b"[" * 100_000):
        with pytest.raises(ValueError):  # noqa: PT011 - in whose words does not matter
            parsed(nothing)


async def test_dates_and_types_of_an_answer_are_filtered_by(notes: Path) -> None:
    rows = [
        {"id": "old", "text": "pump one", "created_at": "2020-03-01T10:00:00Z", "type": "report"},
        {"id": "new", "text": "pump two", "created_at": "2026-03-01", "type": "letter"},
        {"id": "fact", "text": "pump three", "valid_at": "2026-04-01T00:00:00Z", "created_at": "2020-01-01"},
    ]
    since = SearchFilters(since=datetime(2026, 1, 1, tzinfo=UTC))
    assert {*from_away(await asked(notes, rows, filters=since))} == {"away://new", "away://fact"}
    for wanted, found in {"report": "old", "letter": "new", "fact": "fact"}.items():
        response = await asked(notes, rows, filters=SearchFilters(types=(wanted,)))
        assert from_away(response) == [f"away://{found}"], wanted
    response = await asked(notes, rows, filters=SearchFilters(types=("note",)))
    assert {*from_away(response)} == {"away://old", "away://new"}


async def test_a_fact_says_whether_it_holds_at_the_time_asked_about(notes: Path) -> None:
    rows = [{"id": "a", "text": "Ann leads", "valid_at": "2025-01-01", "invalid_at": "2025-06-01"}]
    then, now = datetime(2025, 3, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC)
    for query, moment, holds in (("Ann", then, True), ("Ann", now, False), ("Ann in March 2025", now, True)):
        response = await asked(notes, rows, query=query, now=moment)
        (fact,) = (fact for one in response.results for fact in one.facts)
        assert fact.holds is holds, query


RAW_SERVER = r"""
import json, sys
SCHEMA = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
REPLIES = {
    "tools/list": {"tools": [{"name": "search", "inputSchema": SCHEMA}]},
    "tools/call": {
        "content": [{"type": "text", "text": "see there"}],
        "structuredContent": {"results": [{"id": "a", "text": "a pump \ud800"}, {"id": "b", "text": "pump"}]},
    },
}
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "raw", "version": "1"}
        known = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        REPLIES["initialize"] = known
    if "id" in message:
        known = REPLIES.get(message["method"])
        reply = {"result": known} if known else {"error": {"code": -32601, "message": "no such method"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **reply}), flush=True)
"""


@pytest.mark.thorough
async def test_a_message_with_half_a_surrogate_pair_is_read(notes: Path) -> None:
    server = {"kind": "mcp", "command": [sys.executable, "-c", RAW_SERVER]}
    config = {"embedding": {"provider": "none"}, "backends": {"builtin": {}, "away": server}}
    async with open_memory(notes, notes.parent / "state", config, long_lived=False) as memory:
        response = await memory.query("pump", min_score=0.0)
    assert (lost(response), sorted(from_away(response))) == ("", ["away://a", "away://b"])


async def test_each_passage_of_one_place_is_read_by_its_own_citation(notes: Path) -> None:
    async def search(_query: str, _limit: int) -> list[dict[str, object]]:
        texts = {1: "pump one", 7: "pump two\nis blue", 20: "pump three"}
        return [{"path": "x.md", "line": line, "text": text} for line, text in texts.items()]

    config = {"embedding": {"provider": "none"}, "backends": {"away": {}}}
    spec = retriever_backend("away", search)
    async with open_memory(
        notes, notes.parent / "state", config, backends=[spec], long_lived=False
    ) as memory:
        await memory.query("pump", min_score=0.0)
        for line, text in ((1, "pump one"), (7, "pump two\nis blue"), (20, "pump three")):
            assert (await memory.read_file(f"away://x.md#L{line}")).text == text
        with pytest.raises(MemoryPathError, match="read_tool"):
            await memory.read_file("away://y.md")
        assert (await memory.read_file("memory/pump.md")).text.startswith(OURS)
