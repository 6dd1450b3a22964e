"""Settings of foreign memories that are known by name, and how a question is put into settings (pure)."""

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

MCP_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "server-memory": {
        "search_tool": "search_nodes",
        "arguments": {"query": "{query}"},
        "results": "entities",
        "map": {"text": "observations", "title": "name", "id": "name"},
    },
}
"""By name: the reference server of the Model Context Protocol."""

HTTP_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "meilisearch": {
        "body": {"q": "{query}", "limit": "{limit}", "showRankingScore": True},
        "headers_env": {"Authorization": "Bearer MEILI_MASTER_KEY"},
        "results": "hits",
        "map": {"score": "_rankingScore"},
    },
    "opensearch": {
        "body": {"size": "{limit}", "query": {"multi_match": {"query": "{query}"}}},
        "results": "hits.hits",
        "map": {"score": "_score", "id": "_id"},
    },
}
"""By name; the address is that of the index, such as `http://localhost:7700/indexes/notes/search`."""


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


def filled(value: JsonValue, query: str, limit: int) -> JsonValue:
    """Return a value with `{query}` and `{limit}` replaced; `"{limit}"` alone becomes a number."""
    if isinstance(value, str):
        return limit if value == "{limit}" else value.replace("{limit}", str(limit)).replace("{query}", query)
    if isinstance(value, list):
        return [filled(one, query, limit) for one in value]
    if isinstance(value, dict):
        return {key: filled(one, query, limit) for key, one in value.items()}
    return value


def _joined(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(base)
    for key, value in over.items():
        known = joined.get(key)
        joined[key] = (
            _joined(known, value) if isinstance(known, Mapping) and isinstance(value, Mapping) else value
        )
    return joined
