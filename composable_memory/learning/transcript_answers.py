"""Finds in transcripts what was answered after a search: results that the answer quotes were useful.

A search is recognised by its reply, wherever in a transcript record: an object, or its text, with a trace id
and results. The answer is what the assistant says from then on, until somebody else speaks.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from composable_memory.paths import opened_file
from composable_memory.transcripts import SPEAKERS, messages_of
from composable_memory_feedback.logged.logged_query import LoggedAnswer
from composable_memory_feedback.quoting import ShownText, quoted_places
from composable_memory_ops_logs import TakenFrom
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_FILE_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 12
"""Maximum nesting depth of a reply in a record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptAnswer:
    """What was answered after a search: the trace id, the shown results, and the answer's text."""

    trace_id: str
    shown: tuple[ShownText, ...]
    text: str
    at: datetime | None


def quotes_in_transcripts(folder: Path, *, since: datetime) -> list[LoggedAnswer]:
    """Return what the answers in a folder's transcripts quote, from files changed since then."""
    return [
        LoggedAnswer(
            at=answer.at or since,
            query_trace_id=answer.trace_id,
            quoted=tuple(quoted_places(answer.text, answer.shown)),
        )
        for answer in answers_in_transcripts(folder, since=since)
    ]


def answers_in_transcripts(folder: Path, *, since: datetime) -> list[TranscriptAnswer]:
    """Return the answers in a folder's transcripts, from files changed since then.

    Files that are unreadable or larger than 64 MB are skipped; a missing folder has none.
    """
    files = sorted(Path(os.path.realpath(folder)).glob("*.jsonl"))
    return [answer for path in files for answer in _answers_of(path, since)]


def answers_in(text: str) -> Iterator[TranscriptAnswer]:
    """Yield the answers in a transcript, each with the search before it."""
    messages = {message.line: message for message in messages_of(text)}
    searches: list[tuple[str, tuple[ShownText, ...]]] = []
    words: list[str] = []
    at: datetime | None = None
    for number, line in enumerate(text.split("\n"), start=1):
        message = messages.get(number)
        if message is not None and message.speaker == SPEAKERS["assistant"]:
            words.append(message.text)
            at = message.at
            continue
        replies = [*_replies_in(_json_of(line), MAX_DEPTH)] if "traceId" in line else []
        if message is None and not replies:
            continue
        if words or not replies:
            yield from _answered(searches, words, at)
            searches, words = [], []
        searches += replies
    yield from _answered(searches, words, at)


def _answered(
    searches: Sequence[tuple[str, tuple[ShownText, ...]]], words: Sequence[str], at: datetime | None
) -> Iterator[TranscriptAnswer]:
    if words:
        for trace_id, shown in searches:
            yield TranscriptAnswer(trace_id=trace_id, shown=shown, text="\n".join(words), at=at)


def _answers_of(path: Path, since: datetime) -> list[TranscriptAnswer]:
    try:
        with (
            opened_file(path, max_bytes=MAX_FILE_BYTES) as (descriptor, found),
            os.fdopen(descriptor, encoding="utf-8", errors="replace", closefd=False) as file,
        ):
            if datetime.fromtimestamp(found.st_mtime, UTC) < since:
                return []
            return list(answers_in(file.read()))
    except OSError:
        return []


def _replies_in(value: object, depth: int) -> Iterator[tuple[str, tuple[ShownText, ...]]]:
    if depth == 0:
        return
    if isinstance(value, str):
        if "traceId" in value and value.lstrip()[:1] in ("{", "["):
            yield from _replies_in(_json_of(value), depth - 1)
    elif isinstance(value, list):
        for item in value:
            yield from _replies_in(item, depth - 1)
    elif isinstance(value, Mapping):
        trace_id, results = value.get("traceId"), value.get("results")
        if isinstance(trace_id, str) and isinstance(results, list):
            yield trace_id, tuple(_shown(results))
        else:
            for item in value.values():
                yield from _replies_in(item, depth - 1)


def _json_of(text: str) -> object:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found


def _shown(results: Sequence[object]) -> Iterator[ShownText]:
    for one in results:
        match one:
            case {
                "path": str(path),
                "startLine": int(start),
                "endLine": int(end),
                "snippet": str(text),
                **rest,
            }:
                at = rest.get("startChar")
                within = at if isinstance(at, int) else 0
                yield ShownText(TakenFrom(path, start, end, within or None), text)
