"""The input and output of a language model, however it is called; no network here."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import count
from typing import Protocol

from composable_memory_ops_logs import redact
from composable_memory_ops_logs.events import JsonValue
from composable_memory_ops_logs.quick_dataclass import dataclass

SHORT_TEXT: Mapping[str, JsonValue] = {"type": "string", "maxLength": 300}
"""Schema of a text in a reply; without a maximum length small models write until they are cut off."""
FENCE = "```"
MAX_FENCED_BLOCKS = 8
"""How many fenced blocks of an answer to examine: one is expected."""
MAX_STARTS = 100
"""At how many opening braces to look for an object; text with thousands of them would take seconds."""
MARK_CHARS = 12

_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """A model's answer and its cost; `is_whole` is false if it was cut off at the limit."""

    text: str
    input_tokens: int
    output_tokens: int
    duration_ms: float
    model: str
    is_whole: bool = True


class LanguageModel(Protocol):
    """Answers questions, possibly several concurrently."""

    @property
    def model(self) -> str:
        """Return the name that judgements and proposals are signed with."""
        ...

    async def complete(
        self,
        system: str,
        user: str,
        *,
        schema: Mapping[str, JsonValue] | None = None,
        schema_name: str = "answer",
    ) -> ChatReply:
        """Return the answer; with a JSON schema, one that follows it if the model is able to.

        Raises:
            FeedbackError: why there is no answer.
        """
        ...


class Fence:
    """Shows a model where data begins and ends, by a mark that does not occur in the data.

    So no text can end its own block and pose as part of the question.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        joined = "\0".join(texts)
        seed = joined.encode("utf-8", "replace")
        marks = (sha256(seed + str(turn).encode()).hexdigest()[:MARK_CHARS] for turn in count())
        self.mark = next(mark for mark in marks if mark not in joined)

    def around(self, name: str, text: str) -> str:
        """Return the text as a block with this name."""
        return f"<{name} {self.mark}>\n{text}\n</{name} {self.mark}>"


def clean(text: str, limit: int) -> str:
    """Return the text without secrets and control characters, at most `limit` long; line breaks stay."""
    shown = "".join(_shown(character) for character in redact(text))
    return _cut(shown.strip(), limit)


def one_line(text: str, limit: int) -> str:
    """Return the text without secrets and control characters, on one line at most `limit` long."""
    shown = "".join(one if one.isprintable() else " " for one in redact(text))
    return _cut(" ".join(shown.split()), limit)


def object_schema(properties: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the schema of an object with exactly these properties."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": dict(properties),
    }


class UnusableReply(Exception):
    """Why a model's reply is refused, in words for people."""


def json_object_in(text: str) -> dict[str, object] | None:
    """Return the first JSON object in a model's answer that is not part of another; fenced ones first.

    What a model thought aloud before answering is ignored. None if there is no object, or it is nested too
    deeply. Numbers may be infinite or NaN, as models write them.
    """
    answer = text.rpartition("</think>")[2]
    for piece in (*answer.split(FENCE, 2 * MAX_FENCED_BLOCKS)[1::2], answer):
        start = piece.find("{")
        for _ in range(MAX_STARTS):
            if start < 0:
                break
            with suppress(ValueError, RecursionError):
                found: dict[str, object] = _DECODER.raw_decode(piece, start)[0]
                return found
            start = piece.find("{", start + 1)
    return None


def _shown(character: str) -> str:
    if character in "\n\t" or character.isprintable():
        return character
    return "\n" if character == "\r" else " "


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1].rstrip()}…"
