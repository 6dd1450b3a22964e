"""Settings of foreign memories that are known by name, and how a question is put into settings (pure)."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

_HOLE = re.compile(r"\{(\w+)\}")

_MEM0: Mapping[str, Any] = {
    "results": "results",
    "map": {"text": "memory", "id": "id", "score": "score", "date": "created_at"},
}
_FACT: Mapping[str, str] = {
    "text": "fact",
    "title": "name",
    "id": "uuid",
    "valid_from": "valid_at",
    "valid_to": "invalid_at",
    "date": "created_at",
}
"""An edge of Graphiti and Zep."""
_SEARCH_ENGINE: Mapping[str, Any] = {
    "body": {"size": "{limit}", "query": {"multi_match": {"query": "{query}"}}},
    "results": "hits.hits",
    "map": {"score": "_score", "id": "_id"},
}

MCP_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "basic-memory": {
        "search_tool": "search_notes",
        "arguments": {"query": "{query}", "page_size": "{limit}", "output_format": "json"},
        "results": "results",
        "map": {
            "text": "content",
            "path": "file_path",
            "title": "title",
            "date": "updated_at",
            "score": "",  # lower is better in one way of its search, higher in another
        },
        "read_tool": "read_note",
        "read_arguments": {"identifier": "{path}", "output_format": "json", "include_frontmatter": True},
    },
    "graphiti-mcp": {
        "search_tool": "search_memory_facts",
        "arguments": {"query": "{query}", "max_facts": "{limit}"},
        "results": "facts",
        "map": _FACT,
    },
    "hindsight": {
        "search_tool": "recall",
        "arguments": {"query": "{query}"},
        "results": "results",
        "map": {"text": "text", "id": "id", "date": "mentioned_at"},
    },
    "mem0": {"map": _MEM0["map"]},  # a list, or `results`: its servers differ
    "memsearch": {
        "search_tool": "memory_search",
        "arguments": {"query": "{query}", "top_k": "{limit}"},
        "map": {"text": "content", "path": "source", "title": "heading", "score": "score"},
    },
    "qmd": {
        "ask_by": "words",
        "search_tool": "query",
        "arguments": {
            "searches": [{"type": "lex", "query": "{query}"}],
            "limit": "{limit}",
            "rerank": False,
        },
        "results": "results",
        "map": {"text": "snippet", "path": "file", "title": "title", "start_line": ""},  # that of the word
        "read_tool": "get",
        "read_arguments": {"file": "{path}"},
    },
    "server-memory": {
        "ask_by": "words",
        "search_tool": "search_nodes",
        "arguments": {"query": "{query}"},
        "results": "entities",
        "map": {"text": "observations", "title": "name", "id": "name"},
        "read_tool": "open_nodes",
        "read_arguments": {"names": ["{path}"]},
        "add_tool": "create_entities",
        "add_arguments": {"entities": [{"name": "{path}", "entityType": "note", "observations": ["{text}"]}]},
    },
}
"""By the name of the server. The tool of `mem0` has several names, so it is looked for.

Two servers are asked word by word: the reference server, `server-memory`, finds a text as it is given,
and `qmd` without its models finds what contains all words.
"""

HTTP_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "datasette": {
        "ask_by": "words",  # it finds what contains all words
        "method": "GET",
        "params": {"_search": "{query}", "_shape": "objects", "_size": "{limit}", "_nocount": "1"},
        "results": "rows",
    },
    "elasticsearch": _SEARCH_ENGINE,
    "letta": {
        "method": "GET",
        "params": {"query": "{query}", "top_k": "{limit}"},
        "headers_env": {"Authorization": "Bearer LETTA_API_KEY"},
        "results": "results",
        "map": {"text": "content", "id": "id", "date": "timestamp"},
    },
    "meilisearch": {
        "body": {"q": "{query}", "limit": "{limit}", "showRankingScore": True},
        "headers_env": {"Authorization": "Bearer MEILI_MASTER_KEY"},
        "results": "hits",
        "map": {"score": "_rankingScore"},
    },
    "mem0": {
        "url": "https://api.mem0.ai/v3/memories/search/",
        "body": {"query": "{query}", "top_k": "{limit}"},
        "headers_env": {"Authorization": "Token MEM0_API_KEY"},
        **_MEM0,
    },
    "mem0-server": {
        "body": {"query": "{query}", "top_k": "{limit}"},
        "headers_env": {"X-API-Key": "MEM0_API_KEY"},
        **_MEM0,
    },
    "opensearch": _SEARCH_ENGINE,
    "supermemory": {
        "body": {"query": "{query}", "limit": "{limit}", "searchMode": "hybrid"},
        "headers_env": {"Authorization": "Bearer SUPERMEMORY_API_KEY"},
        "results": "results",
        "map": {"id": "id", "date": "system.updatedAt"},
    },
    "typesense": {
        "method": "GET",
        "params": {"q": "{query}", "per_page": "{limit}"},
        "headers_env": {"X-TYPESENSE-API-KEY": "TYPESENSE_API_KEY"},
        "results": "hits",
        "map": {"score": "text_match", "id": "document.id"},
    },
    "zep": {
        "body": {"query": "{query}"},
        "params": {"page_size": "50"},  # it refuses more
        "headers_env": {"Authorization": "Api-Key ZEP_API_KEY"},
        "results": "items",
        "map": {**_FACT, "score": "score"},
    },
    "zep-v3": {
        "url": "https://api.getzep.com/api/v2/graph/search",
        "query_limit": 400,  # it refuses more
        "body": {"query": "{query}", "limit": 50, "scope": "edges"},
        "headers_env": {"Authorization": "Api-Key ZEP_API_KEY"},
        "results": "edges",
        "map": {**_FACT, "score": "score"},
    },
}
"""By name. Where none has an address, that of the search is given, such as
`http://localhost:7700/indexes/notes/search`."""


def with_preset(given: Any, presets: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return settings with what their preset says where they say nothing; mappings are put together.

    Raises:
        ValueError: there is no such preset.
    """
    if not isinstance(given, Mapping) or not (name := given.get("preset")):
        return given
    if name not in presets:
        raise ValueError(f"preset: {name!r} is not known; there are {', '.join(sorted(presets))}")
    return _joined(presets[name], given)


def filled(value: JsonValue, words: Mapping[str, str | int]) -> JsonValue:
    """Return a value with the words put in, such as `{query}`; `"{limit}"` alone becomes a number."""
    if isinstance(value, str):
        bare = value.removeprefix("{").removesuffix("}")
        if bare in words and value == f"{{{bare}}}":
            return words[bare]
        return _HOLE.sub(lambda hole: str(words.get(hole[1], hole[0])), value)
    if isinstance(value, list):
        return [filled(one, words) for one in value]
    if isinstance(value, dict):
        return {key: filled(one, words) for key, one in value.items()}
    return value


def within(text: str, limit: int) -> str:
    """Return the first words of a text that fit, or what fits of the first word."""
    if len(text) <= limit:
        return text
    whole = text[: limit + 1].rpartition(" ")[0].rstrip()
    return whole or text[:limit]


def _joined(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(base)
    for key, value in over.items():
        known = joined.get(key)
        joined[key] = (
            _joined(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
        )
    return joined
