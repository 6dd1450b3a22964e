"""Settings of foreign memories: how each kind is asked, and how its answers are read."""

from typing import Any, Literal

from pydantic import Field, JsonValue, SecretStr, model_validator

from composable_memory.config.base_model import SettingsModel
from composable_memory_adapters.external.answer_reader import FieldNames
from composable_memory_adapters.external.presets import HTTP_PRESETS, MCP_PRESETS, with_preset

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
