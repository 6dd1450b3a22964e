"""Transcript messages as lines that can be forgotten, and blanking them in their file.

An agent may append to its transcript at any moment, and keep it open: so bytes are overwritten in place.
Nothing moves, no line is removed, and what is appended meanwhile is not touched.
"""

import json
import os
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

from composable_memory.errors import NoteNotWritten
from composable_memory.forget.statement_matching import MIN_QUOTED_WORDS, Statement, statements_of, words_of
from composable_memory.forget.tombstones import INSTEAD
from composable_memory.paths import opened_file
from composable_memory.transcripts import masked_line, message_in, messages_of, record_of, texts_in

_NAME = re.compile(r"sessions/([^/\\\0]+\.jsonl)")
_STRING = re.compile(rb'("(?:[^"\\]++|\\.)*+")(\s*:)?')
"""A string in a line of JSON, and what shows that it is a field name."""
_SPOKEN = (b'"text"', b'"content"', b'"message"')
"""The fields with what was said. In others, a string without a space may be an id, a path or a kind."""
_EDGE = "(?!(?<=[A-Za-z0-9])(?=[A-Za-z0-9]))"
"""Matches except within a word."""
_ASCII_WORD = re.compile(r"[A-Za-z0-9]+")


def transcript_file(path: str, folder: Path | None) -> Path | None:
    """Return the file of the transcript that results name by `path`; None for any other path."""
    found = _NAME.fullmatch(path)
    return folder / found[1] if found and folder else None


def statements_in(file: Path, first: int = 1, last: int | None = None) -> Iterator[Statement]:
    """Yield the messages of a transcript that say enough to be recognised, each as one statement.

    `first` and `last` restrict them to these lines, inclusive. Yields none if it cannot be read. Reads the
    file: call it in a thread.
    """
    try:
        with opened_file(file) as (descriptor, _), os.fdopen(descriptor, "rb", closefd=False) as source:
            text = source.read().decode("utf-8-sig", "replace")
    except OSError:
        return
    for message in messages_of("\n".join(text.split("\n")[first - 1 : last]), above=first - 1):
        for one in statements_of(masked_line(message.text)):
            if one.is_recognisable:
                yield replace(one, start_line=message.line, end_line=message.line)


def blank_messages(path: str, file: Path, lines: Collection[int]) -> None:
    """Overwrite the messages in some lines of a transcript, and everything else in it with the same text.

    Without lines it only checks whether that is possible. Writes the file: call it in a thread.

    Raises:
        NoteNotWritten: it cannot be written, or its writer has replaced the file.
    """
    fix = "end the session that writes it, and make it writable for this user"
    try:
        # Unbuffered, so that each comparison right before overwriting sees the present content.
        with opened_file(file) as (_, found), file.open("r+b", buffering=0) as target:
            if not os.path.samestat(os.fstat(target.fileno()), found):
                raise NoteNotWritten(path, "another file has taken its place", fix=fix)
            rows, at = list[tuple[bool, int, bytes]](), 0
            for number, line in enumerate((target.read(found.st_size) or b"").split(b"\n"), 1):
                rows.append((number in lines, at, line))
                at += len(line) + 1
            texts = {text for is_meant, _, line in rows if is_meant for text in _texts_of(line)}
            telling = {text for text in texts if any(one.is_recognisable for one in statements_of(text))}
            # The given messages come last: if we are killed, they are how the next attempt knows the texts.
            for is_meant, at, line in sorted(rows):
                if (blank := _without(line, texts if is_meant else telling)) != line:
                    target.seek(at)
                    if target.read(len(line)) != line:
                        raise NoteNotWritten(path, "it is being rewritten", fix=fix)
                    target.seek(at)
                    target.write(blank)
            os.fsync(target.fileno())
            if not os.path.samestat(os.fstat(target.fileno()), file.stat()):
                raise NoteNotWritten(path, "another file has taken its place", fix=fix)
    except OSError as error:
        raise NoteNotWritten(path, error.strerror or str(error), fix=fix) from error


def _texts_of(line: bytes) -> set[str]:
    """Return the texts of the message in a line, both raw and without recalled parts."""
    content = message_in(record_of(line.decode("utf-8-sig", "replace"))).get("content")
    blocks = content if isinstance(content, list) else [{"text": content}]
    as_written = [block.get("text") for block in blocks if isinstance(block, dict)]
    texts = [*(one for one in as_written if isinstance(one, str)), *texts_in(content)]
    return {text.strip() for text in texts if text.strip()}


def _without(line: bytes, texts: Collection[str]) -> bytes:
    """Return a line of the same length in which no string contains one of some texts."""
    clues = [max(_ASCII_WORD.findall(text), key=len, default="").encode() for text in texts]
    if not any(clue in line for clue in clues):
        return line

    field = b""

    def blank(found: re.Match[bytes]) -> bytes:
        nonlocal field
        if found[2]:
            field = found[1]
            return found[0]
        try:
            value = str(json.loads(found[0]))
        except ValueError:
            return found[0]
        if field not in _SPOKEN and value.isascii() and len(value.split()) < 2:
            return found[0]
        kept = value
        for text in sorted(texts, key=len, reverse=True):
            if value.strip() == text:
                kept = INSTEAD
            elif len(words_of(text)) >= MIN_QUOTED_WORDS:  # fewer words occur in other texts by chance
                kept = re.sub(_EDGE + re.escape(text) + _EDGE, INSTEAD, kept)
        if kept == value:
            return found[0]
        for instead, is_ascii in product((kept, kept.replace(INSTEAD, "*")), (True, False)):
            fitting = json.dumps(instead, ensure_ascii=is_ascii).encode("utf-8", "backslashreplace")
            if len(fitting) <= len(found[0]):
                return fitting.ljust(len(found[0]))
        return b'""'.ljust(len(found[0]))

    return _STRING.sub(blank, line)
