"""What goes to a language model and what comes back from it, whoever carries it; no network in here."""

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
"""A text in the form of a reply; without a longest length small models write until they are cut off."""
FENCE = "```"
MAX_FENCED_BLOCKS = 8
"""How many fenced blocks of an answer are looked at: one is expected."""
MAX_STARTS = 100
"""At how many opening braces an object is looked for; text with thousands of them would take seconds."""
MARK_CHARS = 12

_DECODER = json.JSONDecoder(strict=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatReply:
    """What a model said, and what that cost; `is_whole` is false where it was cut off at the limit."""

    text: str
    input_tokens: int
    output_tokens: int
    duration_ms: float
    model: str
    is_whole: bool = True


class LanguageModel(Protocol):
    """Answers one question at a time; several may be under way."""

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
        """Return the answer; with a JSON schema one that follows it, if the model is able to.

        Raises:
            FeedbackError: there is no answer, and why.
        """
        ...


class Fence:
    """Shows a model where data begins and ends, by a mark that stands nowhere in the data.

    So no text can end its own block and go on as if it were part of the question.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        joined = "\0".join(texts)
        seed = joined.encode("utf-8", "replace")
        marks = (sha256(seed + str(turn).encode()).hexdigest()[:MARK_CHARS] for turn in count())
        self.mark = next(mark for mark in marks if mark not in joined)

    def around(self, name: str, text: str) -> str:
        """Return the text as a block of this name."""
        return f"<{name} {self.mark}>\n{text}\n</{name} {self.mark}>"


def clean(text: str, limit: int) -> str:
    """Return the text without secrets and control characters, and not longer than `limit`; lines stay."""
    shown = "".join(_shown(character) for character in redact(text))
    return _cut(shown.strip(), limit)


def one_line(text: str, limit: int) -> str:
    """Return the text without secrets and control characters, in one line not longer than `limit`."""
    shown = "".join(one if one.isprintable() else " " for one in redact(text))
    return _cut(" ".join(shown.split()), limit)


def object_schema(properties: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return the schema of an object that has all of these properties, and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": dict(properties),
    }


class UnusableReply(Exception):
    """Why what a model said is refused, in words for people."""


def json_object_in(text: str) -> dict[str, object] | None:
    """Return the first JSON object in a model's answer that is not part of another one; fenced ones first.

    What a model thought aloud before it answered is left out. None where there is no object; one that is
    nested too deeply counts as none. Numbers may be infinite or none at all, as JSON of models has them.
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
