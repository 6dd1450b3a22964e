"""Reading: a note or some of its lines, given by path or citation."""

import asyncio
import os
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from posixpath import splitext
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from composable_memory.citations import read_citation
from composable_memory.errors import ComposableMemoryError, InvalidArgument, MemoryPathError
from composable_memory.paths import is_note, leads_outside
from composable_memory.recall.retained_notes import note_files
from composable_memory.tools.document import Document
from composable_memory.types import PAGED, MemoryFileSlice
from composable_memory_ops_logs.plurals import counted

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory

WHOLE = ":0:0"
"""The suffix of the path of something without lines, in a citation of the whole."""
MOST_NAMES = 5000
"""How many names to search for a similar one."""

ReadErrorCode = Literal["MEMORY_PATH_NOT_ALLOWED", "MEMORY_NOT_FOUND", "MEMORY_READ_FAILED"]
"""Why a file could not be read: not a memory file, no file of this name, or a failure."""


class MemoryGetRequest(Document):
    """Which file to read, and from which 1-based line how many lines.

    `path` may be a citation; explicit lines override those in it.
    """

    path: str = Field(description="A path or a citation, such as notes/a.md#L3-L7")
    from_: Annotated[int, Field(ge=1)] | None = Field(default=None, description="First line, from 1")
    lines: Annotated[int, Field(ge=1)] | None = Field(default=None, description="How many lines")


class MemoryGetReply(Document):
    """The text of a file, or with `status` "error", why it cannot be read.

    `warning` says why there is no text; `is_past_end` is set if the file ends before the
    requested lines.
    """

    text: str
    path: str
    disabled: bool | None = None
    status: Literal["error"] | None = None
    code: ReadErrorCode | None = None
    error: str | None = None
    warning: str | None = None
    is_past_end: bool = Field(default=False, exclude=True)


async def memory_get(memory: "Memory", request: MemoryGetRequest) -> MemoryGetReply:
    """Read a memory file or some of its lines, given by path or citation.

    A file whose name looks like a citation takes precedence over the cited one.

    Raises:
        InvalidArgument: the citation has a line 0.
    """
    try:
        part = await _read(memory, request)
        if not part.text and await _is_missing(memory, part.path):
            problem = f"there is no {part.path!r}{await _did_you_mean(memory, part.path)}"
            return MemoryGetReply(
                text="", path=part.path, status="error", code="MEMORY_NOT_FOUND", error=problem
            )
    except InvalidArgument:
        raise
    except MemoryPathError as error:
        meant = await _did_you_mean(memory, error.path)
        return _unreadable(request.path, "MEMORY_PATH_NOT_ALLOWED", f"{error}{meant}")
    except (ComposableMemoryError, OSError) as error:
        return _unreadable(request.path, "MEMORY_READ_FAILED", str(error))
    if part.text:
        return MemoryGetReply(text=part.text, path=part.path)
    warning, is_past_end = await _why_empty(memory, request, part.path)
    return MemoryGetReply(text="", path=part.path, warning=warning, is_past_end=is_past_end)


async def _did_you_mean(memory: "Memory", path: str) -> str:
    return await asyncio.to_thread(notes_like, path, memory.workspace_dir, memory.status().note_paths)


def notes_like(name: str, workspace: Path, extra_paths: Sequence[str] = ()) -> str:
    """Ask which note a name may mean; blank if there are no candidates. Reads the disk.

    Candidates are those that a wiki link with this name leads to, or else those with a similar name.
    """
    found = islice(note_files(Path(os.path.realpath(workspace)), extra_paths), MOST_NAMES)
    names = [one.key for one in found if one.key != name]
    wanted = f"/{splitext(name)[0] if is_note(name) else name}".casefold()
    meant = [one for one in names if f"/{splitext(one)[0]}".casefold().endswith(wanted)][:3]
    if not (meant or leads_outside(name)):
        meant = get_close_matches(name, names, n=3)
    return f"; did you mean {' or '.join(map(repr, meant))}?" if meant else ""


def _unreadable(path: str, code: ReadErrorCode, error: str) -> MemoryGetReply:
    """Return the reply for a file that cannot be read."""
    return MemoryGetReply(text="", path=path, disabled=True, status="error", code=code, error=error)


async def _read(memory: "Memory", request: MemoryGetRequest) -> MemoryFileSlice:
    """Read the requested file; if there is none and the path may be a citation, what it cites."""
    first, lines, cited = request.from_, request.lines, read_citation(request.path)
    try:
        part = await memory.read_file(request.path, from_line=first, lines=lines)
        if part.text or cited is None:
            return part
    except MemoryPathError:
        if cited is None:
            raise
    if first is None and not (cited.start_line or request.path.rstrip().endswith(WHOLE)):
        raise InvalidArgument("path", "a citation whose lines count from 1", request.path)
    if first is None and cited.start_line:
        first = cited.start_line
        lines = lines or cited.end_line - cited.start_line + 1
    return await memory.read_file(cited.path, from_line=first, lines=lines)


async def _why_empty(memory: "Memory", request: MemoryGetRequest, path: str) -> tuple[str, bool]:
    """Return why there is no text in the requested lines, and whether the file ends before them."""
    whole = (await memory.manager.read_file(path)).text
    if not whole.strip():
        return "there is nothing in this file", False
    cited = read_citation(request.path)
    first = request.from_ or (cited.start_line if cited else 0)
    unit = "page" if path.lower().endswith(PAGED) else "line"
    if is_note(path):
        last = whole.removesuffix("\n").count("\n") + 1
        if first > last:
            return f"there is no line {first}; the file has {counted(last, 'line')}", True
    elif not (await memory.manager.read_file(path, from_line=first)).text:
        last, beyond = 1, first
        while beyond - last > 1:
            middle = (last + beyond) // 2
            has_more = (await memory.manager.read_file(path, from_line=middle)).text
            last, beyond = (middle, beyond) if has_more else (last, middle)
        return f"there is no {unit} {first}; the last with text is {unit} {last}", True
    return f"there is nothing in these {unit}s", False


async def _is_missing(memory: "Memory", path: str) -> bool:
    """Return whether there is no such file, rather than one without text or without these lines."""
    if await asyncio.to_thread((memory.workspace_dir / path).exists):
        return False
    return not (await memory.manager.read_file(path)).text
