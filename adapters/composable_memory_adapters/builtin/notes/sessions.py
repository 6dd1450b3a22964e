"""Session transcripts: JSONL files whose redacted messages are indexed and read like notes.

Only what the user and the assistant said is used, and secrets are masked first. The text has one line per
message; line numbers are those of the JSONL file. Everything but `growth_limits` reads the disk: call it from
a thread.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import IO, NamedTuple

from composable_memory.errors import MemoryPathError
from composable_memory.interfaces import BackendServices
from composable_memory.paths import Reading, is_note, opened_file, problem_with_file
from composable_memory.transcripts import SPEAKERS, masked_line, message_in, record_of, said_at, texts_in
from composable_memory_adapters.builtin.notes.documents import Document
from composable_memory_adapters.builtin.notes.note_files import (
    TRANSCRIPT_SUFFIX,
    TRANSCRIPTS_KEY,
    is_settled,
    mtime_of,
)
from composable_memory_adapters.builtin.settings import BuiltinSettings, SessionDeltaSettings, filled_in
from composable_memory_ops_logs.quick_dataclass import dataclass
from composable_memory_ops_logs.redaction.redactor import REDACTION_VERSION

TRANSCRIPT_RECIPE = f"transcript-3/redaction-{REDACTION_VERSION}"
"""The version of the transcript reader; rows with another are rewritten."""

RECURRING_REASONS = frozenset({"search", "watch", "interval", "session-delta"})
"""Reasons for syncs that start by themselves, some every few seconds."""

QUARTER_S = 900
"""The resolution of message times: in every time zone, midnight is a multiple of it."""

MAX_LINE_BYTES = 16 * 1024 * 1024
BLOCK_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript(Document):
    """The text of a transcript, one line per message, and the `times` at which the messages were said.

    `lines` holds the 1-based line number in the file for each line of the text.
    """

    times: Sequence["MessageTime"] = ()


class MessageTime(NamedTuple):
    """Messages said within one quarter of an hour, which began `at` seconds since 1970."""

    first_line: int
    last_line: int
    at: int


def transcripts_folder(settings: BuiltinSettings, services: BackendServices) -> Path | None:
    """Return the folder of transcripts, which need not exist; None if they are not indexed."""
    if "sessions" not in settings.sources:
        return None
    return filled_in(
        settings.sessions.folder,
        state_dir=services.state_dir,
        agent_id=services.agent_id,
        workspace_id=services.workspace_id,
    )


def growth_limits(reason: str, limits: SessionDeltaSettings) -> SessionDeltaSettings | None:
    """Return how much a transcript must grow for a sync with this reason to read it again; None for any.

    A transcript grows with every message, and reading it again costs as much as the first time. So a sync
    whose reasons, joined by `+`, are all among `search`, `watch`, `interval` and `session-delta` skips a
    known transcript until it has grown by `delta_bytes` or by `delta_messages` lines. A limit of 0 disables
    its criterion; two zeros mean any growth. Any other reason (`session-start`, `manual`, `cli`, `boot` …)
    reads everything that changed. New transcripts, and those that shrank or were replaced, are always read.
    """
    has_limit = limits.delta_bytes or limits.delta_messages
    return limits if has_limit and RECURRING_REASONS.issuperset(reason.split("+")) else None


def has_grown_enough(path: str, *, known_size: int, size: int, limits: SessionDeltaSettings) -> bool:
    """Return whether a transcript, now `size` bytes, has passed a limit since it had `known_size`.

    Also True if it did not grow, if it was replaced (no line ends at the old end of the file), or if it
    cannot be read, since reading it will say why.
    """
    growth = size - known_size
    if growth <= 0 or 0 < limits.delta_bytes <= growth:
        return True
    try:
        with opened_file(path) as (descriptor, _):
            os.lseek(descriptor, max(0, known_size - 1), os.SEEK_SET)
            if known_size and os.read(descriptor, 1) != b"\n":
                return True
            wanted = limits.delta_messages
            return 0 < wanted <= _count_lines(descriptor, growth, enough=wanted)
    except OSError:
        return True


def read_transcript(path: str) -> Transcript:
    """Read the transcript at the absolute real `path`.

    Anything that is not a message is skipped: other records, lines that are not JSON or longer than 16 MB, a
    last line still being written.

    Raises:
        FileNotFoundError: the file is gone, or a folder in its path has become a link elsewhere.
        OSError: it cannot be read, or is larger than 256 MB.
    """
    texts: list[str] = []
    numbers: list[int] = []
    times: list[MessageTime] = []
    with opened_file(path) as (descriptor, before):
        lines = _Lines(descriptor, before.st_size)
        for number, line in enumerate(lines, start=1):
            record = record_of(line)
            if text := _message_text(record):
                texts.append(text)
                numbers.append(number)
                _add_time(times, number, said_at(record))
    return Transcript(
        text="\n".join(texts),
        lines=numbers,
        times=times,
        hash=lines.hash.hexdigest(),
        mtime_ns=mtime_of(before),
        size=before.st_size,
        ctime_ns=before.st_ctime_ns,
        reading=Reading(lines.is_utf8),
        settled=is_settled(before),
    )


def is_transcript_path(rel_path: str) -> bool:
    """Return whether a path names a transcript, valid or not; `sessions/*.md` may be in an extra path."""
    parts = _parts(rel_path)
    return parts[:1] == [TRANSCRIPTS_KEY] and not is_note(parts[-1])


def resolve_transcript(rel_path: str, folder: Path | None) -> Path:
    """Return the real path of the transcript `rel_path`, which need not exist.

    Only `*.jsonl` files directly in `folder` are allowed, named `sessions/<file>`; without a folder, none.

    Raises:
        MemoryPathError: the path is not a transcript's; the message gives the reason and what is allowed.
    """
    if folder is None:
        why = f"session transcripts are no source of this memory; add {TRANSCRIPTS_KEY!r} to its `sources`"
        raise MemoryPathError(rel_path[:200], why)
    names = _parts(rel_path)[1:]
    target = Path(os.path.realpath(folder), *names)
    problem = _problem_with_names(names) or problem_with_file(target)
    if problem is not None:
        allowed = [f"{TRANSCRIPTS_KEY}/*{TRANSCRIPT_SUFFIX}"]
        raise MemoryPathError(rel_path[:200], problem, allowed=allowed)
    return target


# --- messages -----------------------------------------------------------------------------------------------


class _Lines:
    """The first `size` bytes of a file as lines, with their hash; `is_utf8` covers possible messages only.

    A line that cannot be a message, or is too long, is yielded as an empty string.
    """

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._left = size
        self.hash = sha256()
        self.is_utf8 = True

    def __iter__(self) -> Iterator[str]:
        with os.fdopen(self._descriptor, "rb", buffering=BLOCK_BYTES, closefd=False) as file:
            while line := self._read(file, MAX_LINE_BYTES):
                is_whole = len(line) < MAX_LINE_BYTES or line.endswith(b"\n")
                while not line.endswith(b"\n") and (rest := self._read(file, BLOCK_BYTES)):
                    line = rest
                # Most records are not messages, and some are megabytes of tool output.
                yield self._decode(line) if is_whole and b'"role"' in line else ""

    def _read(self, file: IO[bytes], limit: int) -> bytes:
        part = file.readline(min(limit, self._left))
        self._left -= len(part)
        self.hash.update(part)
        return part

    def _decode(self, line: bytes) -> str:
        try:
            return line.decode("utf-8-sig")
        except UnicodeDecodeError:
            self.is_utf8 = False
            return line.decode("utf-8", "replace")


def _add_time(times: list[MessageTime], line: int, moment: datetime | None) -> None:
    """Record when a message was said; a message without a time gets that of the message before it."""
    at = int(moment.timestamp()) // QUARTER_S * QUARTER_S if moment else None
    if times and at in (None, times[-1].at):
        times[-1] = times[-1]._replace(last_line=line)
    elif at is not None:
        times.append(MessageTime(line, line, at))


def _message_text(record: Mapping[str, object]) -> str:
    """Return `User: …` or `Assistant: …` on one line; empty if the record is not a message with words."""
    message = message_in(record)
    speaker = SPEAKERS.get(str(message.get("role")))
    if speaker is None:
        return ""
    words = masked_line("\n".join(texts_in(message.get("content"))))
    return f"{speaker}: {words}" if words else ""


def _count_lines(descriptor: int, size: int, *, enough: int) -> int:
    """Count the lines that end in the next `size` bytes, stopping at `enough`."""
    count = 0
    while size > 0 and count < enough and (part := os.read(descriptor, min(size, BLOCK_BYTES))):
        size -= len(part)
        count += part.count(b"\n")
    return count


# --- paths --------------------------------------------------------------------------------------------------


def _parts(rel_path: str) -> list[str]:
    """Return the parts of a path, without empty ones and `.`."""
    return [part for part in rel_path.strip().replace(os.sep, "/").split("/") if part not in ("", ".")]


def _problem_with_names(names: Sequence[str]) -> str | None:
    text = "/".join(names)
    if ".." in names:
        return "it is outside the folder with the transcripts"
    if "\0" in text:
        return "the path holds a NUL character"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "the path is not valid Unicode"
    if len(names) > 1:
        return "transcripts must be directly in their folder, not in a subfolder"
    if not text.endswith(TRANSCRIPT_SUFFIX):
        return f"only transcripts ({TRANSCRIPT_SUFFIX}) can be read"
    return None
