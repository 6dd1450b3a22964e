"""Settings of foreign memories that are known by name, and how a question is put into settings (pure)."""

import re
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from composable_memory.data_files import tables

_HOLE = re.compile(r"\{(\w+)\}")

_KNOWN = tables(__package__, "presets.toml")
MCP_PRESETS: Mapping[str, Mapping[str, Any]] = _KNOWN["mcp"]
HTTP_PRESETS: Mapping[str, Mapping[str, Any]] = _KNOWN["http"]


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
