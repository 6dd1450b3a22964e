"""Parses transcripts of sessions, JSON lines: who said what, and when (pure)."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

from composable_memory.json_documents import moment_in
from composable_memory.memory_fence import without_memories
from composable_memory_ops_logs.quick_dataclass import dataclass
from composable_memory_ops_logs.redaction.redactor import redact

MESSAGE_TYPES = ("message", "user", "assistant", "response_item")
TEXT_TYPES = ("text", "input_text", "output_text")
SPEAKERS = {"user": "User", "assistant": "Assistant"}
"""Display names of the roles whose messages count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptMessage:
    """What somebody said, its 1-based line, and its time if the record has one.

    `is_inserted` says that the agent inserted it, or said it to a subagent.
    """

    line: int
    speaker: str
    text: str
    at: datetime | None
    is_inserted: bool = False


def messages_of(text: str, *, above: int = 0) -> Iterator[TranscriptMessage]:
    """Yield the messages with words; other records, and lines that are not JSON, are skipped.

    `above` is the number of transcript lines before `text`.
    """
    for number, line in enumerate(text.split("\n"), start=above + 1):
        record = record_of(line)
        message = message_in(record)
        speaker = SPEAKERS.get(str(message.get("role")))
        words = "\n".join(texts_in(message.get("content"))).strip()
        if speaker and words:
            inserted = record.get("isMeta") is True or record.get("isSidechain") is True
            yield TranscriptMessage(
                line=number, speaker=speaker, text=words, at=said_at(record), is_inserted=inserted
            )


def record_of(line: str) -> Mapping[str, object]:
    """Return the record in a line of JSON; empty if it cannot be a message."""
    try:
        record = json.loads(line) if '"role"' in line else None
    except (ValueError, RecursionError):
        record = None
    return record if isinstance(record, dict) else {}


def message_in(record: Mapping[str, object]) -> Mapping[str, object]:
    """Return the part of a record that has a role and content, whichever agent wrote it."""
    if record.get("type", "message") in MESSAGE_TYPES:
        for part in (record.get("message"), record.get("payload"), record):
            if isinstance(part, dict) and "role" in part:
                return part
    return {}


def said_at(record: Mapping[str, object]) -> datetime | None:
    """Return when the message of a record was said, if the message or the record says so."""
    moment = moment_in(message_in(record).get("timestamp")) or moment_in(record.get("timestamp"))
    return moment and moment.astimezone(UTC)


def texts_in(content: object) -> Iterator[str]:
    """Yield the texts of a message, without images, tool calls, thoughts and recalled memories."""
    if isinstance(content, str):
        yield without_memories(content)
    elif isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") in TEXT_TYPES:
                text = block.get("text")
                if isinstance(text, str):
                    yield without_memories(text)


def masked_line(text: str) -> str:
    """Mask secrets, then put everything on one line.

    Masking comes first because a private key is recognised by its lines, and again after joining lines,
    because a name and its value may only then be adjacent.
    """
    # A lone surrogate could not be stored, and a NUL would end the text for SQLite.
    masked = redact(text.encode("utf-8", "replace").decode().replace("\0", " "))
    line = " ".join(masked.split())
    return line if line == masked.strip() else redact(line)
