"""How to ask for chat completions, and what the answers mean; `chat` sends them (pure)."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from pydantic import BaseModel, Field, ValidationError

from composable_memory_feedback.language_model import ChatReply
from composable_memory_ops_logs.events import JsonValue
from composable_memory_ops_logs.quick_dataclass import dataclass

BUSY = frozenset({429, 502, 503, 504})
UNFIT = frozenset({400, 422, 500})
"""Statuses of endpoints that do not support a part of the request; 500 is llama-cpp-python's."""
SPEAKS_OF_JSON = ("response_format", "json_schema", "json_object", "schema", "grammar")
MAX_TOKENS_COUNTED = 10**9
"""No call costs more than this; a larger number from an endpoint is not believed."""

Form = Literal["json_schema", "json_object", "plain"]
PLAINER: Mapping[Form, Form] = {"json_schema": "json_object", "json_object": "plain"}


class Refused(Exception):
    """An unsuccessful response; `asked_s` is how long the endpoint asks us to wait."""

    def __init__(self, status: int, said: str, asked_s: float | None = None) -> None:
        super().__init__(status)
        self.status = status
        self.said = said
        self.asked_s = asked_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question and its model; `max_tokens` limits the answer."""

    model: str
    system: str
    user: str
    max_tokens: int
    schema: Mapping[str, JsonValue] | None = None
    schema_name: str = "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How to ask an endpoint: for JSON, by which name for a limit, and whether for temperature 0.

    `has_bounds` keeps maximum lengths of texts in a schema: otherwise small models write without end.
    `json_object` includes the schema, which llama.cpp honours and others ignore.
    """

    form: Form = "json_schema"
    limit: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    has_temperature: bool = True
    has_bounds: bool = True

    def body(self, question: Question) -> bytes:
        """Return the request body."""
        messages = [
            {"role": "system", "content": question.system},
            {"role": "user", "content": question.user},
        ]
        body: dict[str, object] = {
            "model": question.model,
            "messages": messages,
            **self.limits(question.max_tokens),
            "stream": False,
        }
        if question.schema is not None and self.form != "plain":
            body["response_format"] = self._format(question.schema, question.schema_name)
        return json.dumps(body).encode()

    def limits(self, max_tokens: int) -> dict[str, object]:
        """Return the limits of an answer in a request."""
        return {self.limit: max_tokens, **({"temperature": 0} if self.has_temperature else {})}

    def with_other_limits(self, said: str) -> "Manner | None":
        """Return the manner to try next if a refusal is about the limits of an answer, else None."""
        said = said.lower()
        if self.limit == "max_tokens" and "max_completion_tokens" in said:
            return replace(self, limit="max_completion_tokens")
        if self.has_temperature and "temperature" in said:
            return replace(self, has_temperature=False)
        return None

    def instead(self, refused: Refused, question: Question) -> "Manner | None":
        """Return the manner to try next, or None if the refusal is about something else."""
        said = refused.said.lower()
        if refused.status not in UNFIT:
            return None
        if (other := self.with_other_limits(said)) is not None:
            return other
        is_about_json = question.schema is not None and any(word in said for word in SPEAKS_OF_JSON)
        if is_about_json and self.has_bounds and "maxlength" in said:
            return replace(self, has_bounds=False)
        if is_about_json and self.form in PLAINER:
            return replace(self, form=PLAINER[self.form])
        return None

    def _format(self, schema: Mapping[str, JsonValue], name: str) -> dict[str, object]:
        schema = schema if self.has_bounds else _unbounded(schema)
        if self.form == "json_object":
            return {"type": "json_object", "schema": schema}
        return {"type": "json_schema", "json_schema": {"name": name, "schema": schema, "strict": True}}


def _unbounded(schema: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a schema without maximum lengths, which not every endpoint supports."""
    return {
        key: _unbounded(part) if isinstance(part, Mapping) else part
        for key, part in schema.items()
        if key != "maxLength"
    }


class _Message(BaseModel):
    content: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Completion(BaseModel):
    choices: list[_Choice] = Field(min_length=1)
    usage: object = None


def read_completion(content: bytes, *, model: str, duration_ms: float) -> ChatReply | None:
    """Parse a response; None if it is not a chat completion."""
    try:
        completion = _Completion.model_validate_json(content)
    except ValidationError:
        return None
    choice = completion.choices[0]
    usage = completion.usage if isinstance(completion.usage, dict) else {}
    return ChatReply(
        text=choice.message.content or "",
        input_tokens=_tokens(usage.get("prompt_tokens")),
        output_tokens=_tokens(usage.get("completion_tokens")),
        duration_ms=duration_ms,
        model=model,
        is_whole=choice.finish_reason != "length",
    )


def meaning(status: int) -> tuple[str, str]:
    """Return what a refusal means, and what to do about it."""
    problem = f"the language model refuses with {status}"
    if status in {401, 403}:
        return problem, "use a key that it accepts"
    if status in {404, 405}:
        return problem, "check the base URL and the name of the model"
    if 300 <= status < 400:
        return problem, "redirects are not followed: use the address it points to"
    if status in BUSY:
        return f"the language model is busy ({status})", "try again later"
    return problem, "read its message, and check the model and its limits"


def _tokens(value: object) -> int:
    """Return a count of tokens, 0 if it is invalid or not credible."""
    if not isinstance(value, int) or isinstance(value, bool):
        return 0
    return value if 0 <= value <= MAX_TOKENS_COUNTED else 0
