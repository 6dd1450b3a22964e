"""Reads documents in child processes, within limits, and caches their texts.

A document that cannot be read is cached without text, with the reason: so a hostile file costs its minute
only once, until the file or its reader changes, or the index is rebuilt.
"""

import asyncio
import errno
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from composable_memory.errors import BackendError, BackendTimeout, BackendUnavailable
from composable_memory.supervision.run_command import run_command
from composable_memory_adapters.builtin.notes.changed_notes import ChangedNote
from composable_memory_adapters.builtin.notes.documents import (
    Document,
    reader_of,
    unread_document,
)
from composable_memory_adapters.builtin.store import document_cache
from composable_memory_adapters.builtin.store.document_cache import DocumentText
from composable_memory_adapters.sqlite_file import SqliteFile

PROGRAM = Path(__file__).parents[1] / "notes" / "document_reader.py"
TIME_LIMIT_S = 60
MAX_OUTPUT_BYTES = 64 * 2**20
AT_ONCE = 16
"""How many documents one process reads, as long as none of them fails; each PDF has its own process."""
CHANGED = "it changed while it was read"


class _Read(NamedTuple):
    """The text of a file and the hash of the bytes read; the hash is None if reading failed."""

    hash: str | None
    text: DocumentText


async def read_documents(
    file: SqliteFile | None,
    paths: Mapping[str, str],
    *,
    keep: bool = False,
    time_limit_s: int = TIME_LIMIT_S,
) -> dict[str, Document | OSError]:
    """Return the document at each path, by key, or why it could not be opened.

    Texts come from the index in `file` if cached there. With `keep`, new texts are cached, and documents that
    could not be read before are tried again.
    """
    found = await asyncio.to_thread(_unread, paths)
    names = {key: (one.hash, reader_of(key) or "") for key, one in found.items() if isinstance(one, Document)}
    stored = await file.read(document_cache.stored, [*names.values()], failed=not keep) if file else {}
    texts = {key: stored[name] for key, name in names.items() if name in stored}
    read = await _read_all([paths[key] for key in names if key not in texts], time_limit_s)
    for key in names.keys() - texts.keys():
        one = read[paths[key]]
        if one.hash in (None, names[key][0]):
            texts[key] = one.text
        else:
            found[key] = OSError(errno.EBUSY, one.text.problem or CHANGED)
    new = {names[key]: text for key, text in texts.items() if names[key] not in stored}
    if file and keep and new:
        await file.write(document_cache.store, new)
    return {
        key: _with_text(one, texts[key]) if isinstance(one, Document) else one for key, one in found.items()
    }


async def read_next(
    file: SqliteFile | None, changed: Sequence[ChangedNote], done: int
) -> dict[str, Document | OSError]:
    """Read the next documents among the changed files, after the first `done`."""
    coming = (found for found, _ in islice(changed, done, None) if reader_of(found.key))
    paths = {found.key: found.path for found in islice(coming, AT_ONCE)}
    return await read_documents(file, paths, keep=True) if paths else {}


def _unread(paths: Mapping[str, str]) -> dict[str, Document | OSError]:
    found: dict[str, Document | OSError] = {}
    for key, path in paths.items():
        try:
            found[key] = unread_document(path)
        except OSError as error:
            found[key] = error
    return found


def _with_text(document: Document, text: DocumentText) -> Document:
    numbers = [number for number, _ in text.lines]
    return replace(
        document, text="\n".join(line for _, line in text.lines), lines=numbers, problem=text.problem
    )


async def _read_all(paths: Sequence[str], time_limit_s: int) -> dict[str, _Read]:
    """Read files in groups; if a group fails, read its files one by one, so only the culprit has no text."""
    read: dict[str, _Read] = {}
    for part in _parts(paths):
        together = await _run(part, time_limit_s)
        if isinstance(together, str) and len(part) > 1:
            alone = {path: await _run([path], time_limit_s) for path in part}
            read |= {path: one[0] if isinstance(one, list) else _failed(one) for path, one in alone.items()}
        elif isinstance(together, str):
            read[part[0]] = _failed(together)
        else:
            read |= zip(part, together, strict=True)
    return read


def _parts(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the groups of files, each for one process."""
    others = [path for path in paths if not path.lower().endswith(".pdf")]
    for start in range(0, len(others), AT_ONCE):
        yield others[start : start + AT_ONCE]
    yield from ([path] for path in paths if path.lower().endswith(".pdf"))


def _failed(reason: str) -> _Read:
    return _Read(None, DocumentText((), reason))


async def _run(paths: Sequence[str], time_limit_s: int) -> list[_Read] | str:
    """Return what a process read from some files, or why it failed."""
    modules = os.pathsep.join(path for path in sys.path if os.path.isabs(path))  # noqa: PTH117 - none is a Path
    try:
        reply = await run_command(
            [sys.executable, "-P", str(PROGRAM), str(time_limit_s), *paths],
            owner="builtin",
            operation="read a document",
            environ={"PATH": os.defpath, "PYTHONPATH": modules, "PYTHONUTF8": "1"},
            cwd=PROGRAM.parent,
            timeout_s=time_limit_s,
            max_output_bytes=MAX_OUTPUT_BYTES,
            has_grace=False,
        )
    except BackendUnavailable as error:  # no process can be started, which says nothing about the files
        return [_Read("", DocumentText((), str(error)))] * len(paths)
    except BackendTimeout:
        return f"reading it takes longer than {time_limit_s} s"
    except BackendError as error:
        return str(error)
    if reply.code != 0:
        return (reply.stderr.strip().splitlines() or [f"its reader exited with code {reply.code}"])[-1]
    return await asyncio.to_thread(_parsed, reply.stdout)


def _parsed(output: str) -> list[_Read]:
    replies = (json.loads(line) for line in output.split("\n") if line)
    return [_Read(one["hash"], DocumentText(one["lines"], one["problem"])) for one in replies]
