"""Presets: services and servers are asked as their documentation says, and their answers are read whole."""

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from composable_memory import open_memory
from composable_memory.errors import BackendError
from composable_memory.interfaces import BackendServices, BackendSpec
from composable_memory.types import MemorySearchResult
from composable_memory_adapters.external.http import spec as http
from composable_memory_adapters.external.mcp import spec as mcp
from composable_memory_adapters.external.retrievers import retriever_backend
from composable_memory_adapters.external.settings import HTTP_PRESETS, MCP_PRESETS

SERVER = Path(__file__).with_name("preset_server.py")
QUERY = "pump replaced"
PUMP = "The pump was replaced in May."
KEY = "key-of-the-test"
REAL = ("basic-memory", "datasette", "qmd", "server-memory")
"""Servers that need neither key nor database: the real ones are asked, in `test_real_servers.py`."""

_ENGINE = {
    "took": 2,
    "hits": {
        "total": {"value": 1, "relation": "eq"},
        "hits": [{"_index": "notes", "_id": "7", "_score": 3.2, "_source": {"title": "Pump", "text": PUMP}}],
    },
}
_MEM0 = {"results": [{"id": "7", "memory": PUMP, "score": 0.8, "created_at": "2026-05-04T10:00:00-07:00"}]}
_DATED = "2026-05-04"
_EDGE = {
    "uuid": "7",
    "name": "REPLACED",
    "fact": PUMP,
    "score": 0.7,
    "created_at": "2026-05-04T10:00:00Z",
    "valid_at": "2026-05-01T00:00:00Z",
    "invalid_at": None,
}
SERVICES: Mapping[str, tuple[dict[str, Any], dict[str, str], Any, str]] = {
    "elasticsearch": (
        {"body": {"size": 24, "query": {"multi_match": {"query": QUERY}}}},
        {},
        _ENGINE,
        "",
    ),
    "letta": (
        {"query": {"query": QUERY, "top_k": "24"}},
        {"authorization": f"Bearer {KEY}"},
        {
            "count": 1,
            "results": [{"id": "7", "content": PUMP, "timestamp": "2026-05-04T10:00:00", "tags": []}],
        },
        _DATED,
    ),
    "meilisearch": (
        {"body": {"q": QUERY, "limit": 24, "showRankingScore": True}},
        {"authorization": f"Bearer {KEY}"},
        {"hits": [{"id": 7, "title": "Pump", "text": PUMP, "_rankingScore": 0.95}], "query": QUERY},
        "",
    ),
    "mem0": (
        {"body": {"query": QUERY, "top_k": 24, "filters": {"user_id": "ann"}}},
        {"authorization": f"Token {KEY}"},
        _MEM0,
        _DATED,
    ),
    "mem0-server": (
        {"body": {"query": QUERY, "top_k": 24, "filters": {"user_id": "ann"}}},
        {"x-api-key": KEY},
        _MEM0,
        _DATED,
    ),
    "opensearch": ({"body": {"size": 24, "query": {"multi_match": {"query": QUERY}}}}, {}, _ENGINE, ""),
    "supermemory": (
        {"body": {"query": QUERY, "limit": 24, "searchMode": "hybrid"}},
        {"authorization": f"Bearer {KEY}"},
        {
            "results": [
                {
                    "id": "7",
                    "memory": PUMP,
                    "metadata": {"topic": "x"},
                    "isLatest": True,
                    "isInference": False,
                    "system": {"createdAt": "2026-01-01T00:00:00Z", "updatedAt": "2026-05-04T10:00:00Z"},
                },
                {"id": "8", "chunk": "A new pump.", "metadata": {}, "system": {"updatedAt": _DATED}},
            ],
            "searchTime": 42,
        },
        _DATED,
    ),
    "typesense": (
        {"query": {"q": QUERY, "query_by": "text", "per_page": "24"}},
        {"x-typesense-api-key": KEY},
        {
            "found": 1,
            "hits": [
                {
                    "document": {"id": "7", "title": "Pump", "text": PUMP},
                    "highlight": {"text": {"snippet": "The <mark>pump</mark>"}},
                    "text_match": 578730123377711105,
                    "text_match_info": {"score": "578730123377711105"},
                }
            ],
        },
        "",
    ),
    "zep": (
        {"body": {"query": QUERY}, "query": {"page_size": "50"}},
        {"authorization": f"Api-Key {KEY}"},
        {"items": [_EDGE | {"graph_uuid": "g", "scope": "entity", "episode_uuids": ["e"]}]},
        _DATED,
    ),
    "zep-v3": (
        {"body": {"query": QUERY, "limit": 50, "scope": "edges", "user_id": "ann"}},
        {"authorization": f"Api-Key {KEY}"},
        {"edges": [_EDGE], "nodes": None, "episodes": None},
        _DATED,
    ),
}
"""By preset: the request (its body, or its query), its headers, an answer, the day of the first result."""
OWN: Mapping[str, dict[str, Any]] = {
    "mem0": {"body": {"filters": {"user_id": "ann"}}},
    "mem0-server": {"body": {"filters": {"user_id": "ann"}}},
    "typesense": {"params": {"query_by": "text"}},
    "zep-v3": {"body": {"user_id": "ann"}},
}
"""What the user of a preset adds, as the documents say."""


REFUSALS: Mapping[str, Sequence[tuple[int, Any, str]]] = {
    "elasticsearch": [
        (
            404,
            {
                "error": {"type": "index_not_found_exception", "reason": "no such index [notes]"},
                "status": 404,
            },
            "no such index [notes]",
        ),
        (
            401,
            {"error": {"root_cause": [{"reason": "missing credentials"}], "type": "security_exception"}},
            "missing credentials",
        ),
    ],
    "letta": [
        (404, {"detail": "Agent not found"}, "Agent not found"),
        (
            422,
            {"detail": [{"type": "missing", "loc": ["query", "query"], "msg": "Field required"}]},
            "Field required",
        ),
    ],
    "meilisearch": [
        (
            404,
            {"message": "Index `notes` not found.", "code": "index_not_found", "type": "invalid_request"},
            "Index `notes` not found.",
        ),
        (
            403,
            {"message": "The provided API key is invalid.", "code": "invalid_api_key", "type": "auth"},
            "MEILI_MASTER_KEY",
        ),
    ],
    "mem0": [
        (401, {"detail": "Given token not valid", "code": "token_not_valid"}, "MEM0_API_KEY"),
        (429, {"detail": "Request was throttled."}, "Request was throttled."),
        (400, {"error": "Filters are required and cannot be empty."}, "Filters are required"),
    ],
    "mem0-server": [
        (401, {"detail": "Invalid API key."}, "MEM0_API_KEY"),
        (500, {"detail": "Internal server error"}, "Internal server error"),
    ],
    "opensearch": [(503, "OpenSearch Security not initialized.", "not initialized")],
    "supermemory": [
        (401, {"error": "Unauthorized", "details": "Invalid API key"}, "SUPERMEMORY_API_KEY"),
        (429, {"error": "Too many requests"}, "Too many requests"),
    ],
    "typesense": [
        (404, {"message": "Not Found"}, "Not Found"),
        (400, {"message": "Could not find a field named `text` in the schema."}, "a field named `text`"),
        (503, {"message": "Not Ready or Lagging"}, "Not Ready or Lagging"),
    ],
    "zep": [
        (404, {"message": "not found"}, "not found"),
        (401, {"message": "unauthorized"}, "ZEP_API_KEY"),
    ],
}
"""By preset: the status of a refusal, its body, and what is to be told of it."""


async def found(
    spec: BackendSpec, services: BackendServices, **settings: Any
) -> tuple[MemorySearchResult, ...]:
    """Return what a backend with these settings finds."""
    async with spec.open(spec.settings(**settings), replace(services, backend_id="away")) as memory:
        return tuple(await memory.search(QUERY))


@pytest.mark.parametrize("preset", sorted(set(HTTP_PRESETS) - {*REAL}))
async def test_a_service_is_asked_and_read_as_it_documents(
    preset: str, services: BackendServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, headers, answer, day = SERVICES[preset]
    for words in HTTP_PRESETS[preset].get("headers_env", {}).values():
        monkeypatch.setenv(words.split()[-1], KEY)
    asked: list[tuple[str, dict[str, str], bytes]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        got = {name.lower(): value for name, _, value in (one.partition(": ") for one in rest if one)}
        asked.append((line, got, await reader.readexactly(int(got.get("content-length", 0)))))
        body = json.dumps(answer).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (len(body), body)
        )
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/search/here"
        results = await found(http, services, preset=preset, url=url, **OWN.get(preset, {}))
    ((line, got, body),) = asked
    method, target, _ = line.split()
    assert (method, urlsplit(target).path) == ("POST" if "body" in request else "GET", "/search/here")
    assert (dict(parse_qsl(urlsplit(target).query)) or None, json.loads(body or b"null")) == (
        request.get("query"),
        request.get("body"),
    )
    assert {name: got.get(name) for name in headers} == headers
    assert (results[0].path, results[0].text, results[0].metadata.get("date", "")) == ("away://7", PUMP, day)
    assert 0 < results[0].score <= 1
    assert [one.text for one in results[1:]] == (["A new pump."] if preset == "supermemory" else [])


@pytest.mark.parametrize(
    ("preset", "status", "body", "told"),
    [(preset, *one) for preset, refusals in REFUSALS.items() for one in refusals],
)
async def test_why_a_service_refuses_is_told(
    preset: str, status: int, body: Any, told: str, services: BackendServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in HTTP_PRESETS[preset].get("headers_env", {}).values():
        monkeypatch.setenv(words.split()[-1], KEY)
    sent = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    head = (
        f"HTTP/1.1 {status} No\r\nretry-after: 0\r\nconnection: close\r\ncontent-length: {len(sent)}\r\n\r\n"
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(head.encode() + sent)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/search"
        with pytest.raises(BackendError) as refused:
            await found(http, services, preset=preset, url=url, **OWN.get(preset, {}))
    assert told in str(refused.value)
    assert str(status) in str(refused.value)
    assert KEY not in str(refused.value)


@pytest.mark.parametrize("preset", sorted(set(MCP_PRESETS) - {*REAL}))
async def test_a_server_is_asked_and_read_as_its_source_says(preset: str, services: BackendServices) -> None:
    (result,) = await found(mcp, services, preset=preset, command=[sys.executable, str(SERVER), preset])
    places = {"graphiti-mcp": "f1", "hindsight": "h1", "mem0": "m1", "memsearch": "notes/pump.md"}
    assert (result.path, result.text) == (f"away://{places[preset]}", PUMP)
    if preset == "memsearch":
        assert (result.title, result.start_line, result.end_line, round(result.score, 3)) == (
            "Pump",
            2,
            3,
            0.923,
        )
    elif preset == "graphiti-mcp":
        (fact,) = result.facts
        assert fact.valid_from is not None
        assert (fact.valid_from.date().isoformat(), fact.valid_to) == (_DATED, None)
    else:
        assert result.metadata["date"] == _DATED


async def test_a_question_is_cut_between_words_to_what_a_service_takes(services: BackendServices) -> None:
    asked = []

    async def search(query: str, limit: int) -> list[str]:
        asked.append(query)
        return ["The bilge was dry.", PUMP][:limit]

    wiki = retriever_backend("wiki", search)
    for limit in (17, 13, 12, 3):
        results = await found(wiki, services, query_limit=limit)
        assert [one.text for one in results] == [PUMP, "The bilge was dry."]
    assert asked == [QUERY, QUERY, "pump", "pum"]
    assert http.settings(preset="zep-v3").query_limit == 400  # type: ignore[attr-defined]


async def test_a_bare_list_of_mem0_is_read_as_well(services: BackendServices) -> None:
    (result,) = await found(
        mcp, services, preset="mem0", command=[sys.executable, str(SERVER), "mem0", "list"]
    )
    assert (result.path, result.text) == ("away://m1", PUMP)


async def test_a_header_of_a_preset_can_be_left_out(
    services: BackendServices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEILI_MASTER_KEY", raising=False)
    settings = http.settings(
        preset="meilisearch", url="http://127.0.0.1:9/", headers_env={"Authorization": ""}
    )
    async with http.open(settings, services) as memory:
        assert memory.status().provider == "127.0.0.1:9"


async def test_what_is_remembered_is_sent_to_a_service_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEY_OF_TEST", KEY)
    (tmp_path / "notes").mkdir()
    got: list[tuple[str, bool, Any]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = next(int(one[15:]) for one in head.split("\r\n") if one.lower().startswith("content-length:"))
        body = json.loads(await reader.readexactly(size))
        got.append((head.split(" HTTP")[0], f"Bearer {KEY}" in head, body))
        code = 200 if body["text"] == PUMP else 503
        writer.write(b"HTTP/1.1 %d Told\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}" % code)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        section = {
            "kind": "http",
            "url": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/search",
            "headers_env": {"Authorization": "Bearer KEY_OF_TEST"},
            "writes": True,
            "add": {"text": "{text}", "where": {"place": "{path}"}},
            "add_path": "/memories",
        }
        config = {"embedding": {"provider": "none"}, "backends": {"builtin": {}, "away": section}}
        async with open_memory(tmp_path / "notes", tmp_path / "state", config, long_lived=False) as memory:
            done = await memory.remember(PUMP)
            failed = await memory.remember("The crane is green.")
    place = {"place": f"{done.path}#^{done.id}"}
    assert got[0] == ("POST /memories", True, {"text": PUMP, "where": place})
    assert not done.degraded
    assert len(got) == 2
    assert [one.backend_id for one in failed.degraded] == ["away"]
    assert "The crane is green." in (tmp_path / "notes" / failed.path).read_text()
