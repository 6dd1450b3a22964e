"""Settings of foreign memories: how each kind is asked, presets for known ones, and secrets they may hold."""

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


MAX_QUERY = 4_000
"""Characters of a question that are looked at."""


class AnswerSettings(SettingsModel):
    """How many results are asked for, and how they are read; shared by all kinds of foreign memories."""

    limit: int = Field(default=24, ge=1, le=200, description="How many results it is asked for at least.")
    ask_by: Literal["question", "words"] = Field(
        default="question",
        description="Whether it is given the question, or its words one by one, as one that knows no others.",
    )
    query_limit: int = Field(
        default=MAX_QUERY, ge=1, le=MAX_QUERY, description="How many characters of a question it takes."
    )
    results: str | None = Field(
        default=None, description="Where its results are, such as `data.hits`; unset, they are looked for."
    )
    empty: str = Field(
        default="", description="How the text begins by which it says that it found nothing, in any case."
    )
    map: FieldNames = Field(default=FieldNames(), description="Which fields of a result hold what.")
    score_is: Literal["similarity", "distance"] = Field(
        default="similarity", description="Whether a higher score is better, or a lower one."
    )
    writes: bool = Field(default=False, description="Write to it what is remembered here as well.")


class HttpSettings(AnswerSettings):
    """Settings of a service over HTTP. `{query}` and `{limit}` stand for what is asked."""

    preset: str | None = Field(default=None, description="A service whose settings are known.")
    url: str = Field(default="", description="Where it answers.", pattern="^https?://[^\\s]+$")
    method: Literal["GET", "POST"] = Field(default="POST", description="How it is asked.")
    params: dict[str, str] = Field(default={}, description="What is added to the address.")
    body: JsonValue = Field(default=None, description="What is sent, as JSON.")
    headers: dict[str, SecretStr] = Field(default={}, description="Headers, which are not shown.")
    headers_env: dict[str, str] = Field(
        default={},
        description="Headers with a secret: the last word names the variable that holds it.",
    )
    timeout_ms: int = Field(default=10_000, ge=1, description="How long one request may take.")
    add: JsonValue = Field(
        default=None, description="What is sent to add `{text}`, which stands at `{path}` in the notes."
    )
    add_path: str = Field(default="", description="Where that is sent, as `/memories`; unset, as a question.")

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, given: Any) -> Any:
        return with_preset(given, HTTP_PRESETS)


class McpSettings(AnswerSettings):
    """Settings of an MCP server. `{query}` and `{limit}` in the arguments stand for what is asked."""

    preset: str | None = Field(default=None, description="A server whose settings are known.")
    command: tuple[str, ...] = Field(default=(), description="The command that starts it, word by word.")
    url: str = Field(default="", description="Where it answers, instead of a command.")
    env: dict[str, str] = Field(
        default={},
        description="Variables that the command gets, each with the name of the variable here that holds it.",
    )
    search_tool: str | None = Field(
        default=None, description="The tool that searches; unset, the one that looks like it."
    )
    arguments: dict[str, JsonValue] = Field(
        default={}, description="What the tool is given; unset, what its schema asks for."
    )
    read_tool: str | None = Field(default=None, description="The tool that reads a result whole.")
    read_arguments: dict[str, JsonValue] = Field(
        default={"path": "{path}"}, description="What it is given; `{path}` names the result."
    )
    add_tool: str | None = Field(default=None, description="The tool that adds a memory.")
    add_arguments: dict[str, JsonValue] = Field(
        default={"text": "{text}"}, description="What it is given; `{path}` is the place in the notes."
    )

    @model_validator(mode="before")
    @classmethod
    def _with_preset(cls, given: Any) -> Any:
        return with_preset(given, MCP_PRESETS)


MIN_SECRET = 6
"""Shorter values stand in too many harmless texts to be replaced."""


class Secrets:
    """Replaces secrets in texts and answers: a service may repeat what it was given."""

    def __init__(self, values: Iterable[str]) -> None:
        known = {value for value in values if len(value) >= MIN_SECRET}
        self._values = sorted(known, key=len, reverse=True)

    def hidden(self, text: str) -> str:
        """Return a text without the secrets."""
        for value in self._values:
            text = text.replace(value, "***")
        return text

    def hidden_in(self, answer: JsonValue) -> JsonValue:
        """Return an answer without the secrets, the names of its fields included."""
        if not self._values:
            return answer
        if isinstance(answer, str):
            return self.hidden(answer)
        if isinstance(answer, list):
            return [self.hidden_in(one) for one in answer]
        if isinstance(answer, dict):
            return {self.hidden(name): self.hidden_in(one) for name, one in answer.items()}
        return answer
