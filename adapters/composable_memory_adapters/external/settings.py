"""Settings of foreign memories: how each kind is queried, presets for known ones, masking of secrets."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pydantic import Field, JsonValue, SecretStr, model_validator

from composable_memory.config.settings import SettingsModel
from composable_memory.data_files import tables
from composable_memory_adapters.external.answer_reader import FieldNames

_HOLE = re.compile(r"\{(\w+)\}")

_KNOWN = tables(__package__, "presets.toml")
MCP_PRESETS: Mapping[str, Mapping[str, Any]] = _KNOWN["mcp"]
HTTP_PRESETS: Mapping[str, Mapping[str, Any]] = _KNOWN["http"]


def with_preset(given: Any, presets: Mapping[str, Mapping[str, Any]]) -> Any:
    """Fill in settings from their preset; mappings are merged.

    Raises:
        ValueError: there is no such preset.
    """
    if not isinstance(given, Mapping) or not (name := given.get("preset")):
        return given
    if name not in presets:
        raise ValueError(f"unknown preset {name!r}; the presets are {', '.join(sorted(presets))}")
    return _joined(presets[name], given)


def filled(value: JsonValue, words: Mapping[str, str | int]) -> JsonValue:
    """Fill in placeholders such as `{query}`; `"{limit}"` on its own becomes a number."""
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
    """Truncate a text at a word boundary, or within the first word if that alone is too long."""
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


MAX_QUERY = 4_000
"""How many characters of a query are used."""


class AnswerSettings(SettingsModel):
    """How many results are asked for, and how they are read; shared by all kinds of foreign memories."""

    limit: int = Field(default=24, ge=1, le=200, description="The fewest results it is asked for.")
    ask_by: Literal["question", "words"] = Field(
        default="question",
        description="Whether it gets the whole question, or its words one by one, for a search that "
        "matches only exact words.",
    )
    query_limit: int = Field(
        default=MAX_QUERY, ge=1, le=MAX_QUERY, description="The most characters of a question it accepts."
    )
    results: str | None = Field(
        default=None, description="Where its results are, such as `data.hits`; unset: detected."
    )
    empty: str = Field(default="", description="How its text begins when it found nothing, ignoring case.")
    map: FieldNames = Field(default=FieldNames(), description="Which field of a result holds what.")
    score_is: Literal["similarity", "distance"] = Field(
        default="similarity", description="Whether a higher score is better, or a lower one."
    )
    writes: bool = Field(default=False, description="Also write to it what is remembered here.")


class HttpSettings(AnswerSettings):
    """Settings of a service over HTTP. `{query}` and `{limit}` stand for what is asked."""

    preset: str | None = Field(default=None, description="Use the known settings of this service.")
    url: str = Field(default="", description="Its address.", pattern="^https?://[^\\s]+$")
    method: Literal["GET", "POST"] = Field(default="POST", description="The HTTP method.")
    params: dict[str, str] = Field(default={}, description="Query parameters.")
    body: JsonValue = Field(default=None, description="The body, as JSON.")
    headers: dict[str, SecretStr] = Field(default={}, description="Headers; their values are not shown.")
    headers_env: dict[str, str] = Field(
        default={},
        description="Headers with a secret: the last word is the environment variable that holds it.",
    )
    timeout_ms: int = Field(default=10_000, ge=1, description="How long one request may take.")
    add: JsonValue = Field(
        default=None, description="The body to add `{text}`, which is at `{path}` in the notes."
    )
    add_path: str = Field(
        default="", description="The path to send it to, such as `/memories`; unset: as for a question."
    )

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, given: Any) -> Any:
        return with_preset(given, HTTP_PRESETS)


class McpSettings(AnswerSettings):
    """Settings of an MCP server. `{query}` and `{limit}` in the arguments stand for what is asked."""

    preset: str | None = Field(default=None, description="Use the known settings of this server.")
    command: tuple[str, ...] = Field(
        default=(), description="The command that starts it, as a list of words."
    )
    url: str = Field(default="", description="Its address, instead of a command.")
    env: dict[str, str] = Field(
        default={},
        description="Environment variables for the command, each with the name of the variable here that "
        "holds its value.",
    )
    search_tool: str | None = Field(default=None, description="The search tool; unset: detected.")
    arguments: dict[str, JsonValue] = Field(
        default={}, description="The tool's arguments; unset: what its schema requires."
    )
    read_tool: str | None = Field(default=None, description="The tool that reads a whole result.")
    read_arguments: dict[str, JsonValue] = Field(
        default={"path": "{path}"}, description="Its arguments; `{path}` is the result's path."
    )
    add_tool: str | None = Field(default=None, description="The tool that adds a memory.")
    add_arguments: dict[str, JsonValue] = Field(
        default={"text": "{text}"}, description="Its arguments; `{path}` is the place in the notes."
    )

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, given: Any) -> Any:
        return with_preset(given, MCP_PRESETS)


MIN_SECRET = 6
"""Shorter values occur in too many harmless texts to be replaced."""


class Secrets:
    """Masks secrets in texts and answers: a service may repeat what it was sent."""

    def __init__(self, values: Iterable[str]) -> None:
        known = {value for value in values if len(value) >= MIN_SECRET}
        self._values = sorted(known, key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """Return a text with the secrets masked."""
        for value in self._values:
            text = text.replace(value, "***")
        return text

    def hidden_in(self, answer: JsonValue) -> JsonValue:
        """Return an answer with the secrets masked, also in field names."""
        if not self._values:
            return answer
        if isinstance(answer, str):
            return self.hidden(answer)
        if isinstance(answer, list):
            return [self.hidden_in(one) for one in answer]
        if isinstance(answer, dict):
            return {self.hidden(name): self.hidden_in(one) for name, one in answer.items()}
        return answer
