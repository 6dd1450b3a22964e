"""Ships the lines of an operations log to another store, in order, resuming where it left off.

Of a log that several workspaces share, only the lines of one are shipped: those of traces that name it. Lines
of traces that name no workspace, such as those of a sync, are included if the state folder has only one.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from composable_memory.errors import BackendUnavailable
from composable_memory.interfaces import LogStore
from composable_memory.state.folders import OPS_LOG_FOLDER
from composable_memory.state.workspaces import known_workspaces
from composable_memory.supervision.file_lock import file_lock
from composable_memory_ops_logs.line_format import is_whole
from composable_memory_ops_logs.private_files import make_private_folder, replace_file
from composable_memory_ops_logs.segments import BLOCK_BYTES, Segment, lines_forwards, segments_in

FOLDER = "log-shipping"
"""In the state folder, with a file for each target."""
BATCH_LINES = 500
POLL_S = 5.0
KEPT_FILES = 2
"""Keep the position in this many files: the newest, and the one before, which may get lines at midnight."""
KEPT_TRACES = 1_000
"""Remember for this many traces whether they are ours, in case shipping resumes in the middle of one."""

Wire = dict[str, Any]


class Cursor(BaseModel):
    """How far a log was shipped to a target.

    `places` maps a file name to the offset and id of its last shipped line. A file that was rewritten has
    another line there; it is shipped again, and the store recognises the lines by their ids.
    """

    places: dict[str, tuple[int, str]] = Field(default_factory=dict)
    is_ours: dict[str, bool] = Field(default_factory=dict, alias="isOurs")

    @classmethod
    def read(cls, path: Path) -> "Cursor":
        """Read the stored cursor; start from the beginning if it is missing or unreadable."""
        with suppress(OSError, ValidationError):
            return cls.model_validate_json(path.read_bytes())
        return cls()

    def write(self, path: Path) -> None:
        """Store the cursor."""
        for kept, most in ((self.places, KEPT_FILES), (self.is_ours, KEPT_TRACES)):
            for name in list(islice(kept, max(0, len(kept) - most))):
                del kept[name]
        replace_file(path, self.model_dump_json(by_alias=True).encode(), survives="kill")


async def ship(state_dir: Path, workspace_id: str, store: LogStore, *, from_start: bool = False) -> int:
    """Send the lines of a log that are not in a store yet, and return how many.

    Raises:
        BackendUnavailable: the store is unreachable, or another process is shipping to it; lines sent before
            that are not sent again.
        BackendError: the store refuses a line.
        OSError: the log cannot be read.
    """
    name = sha256(f"{workspace_id}\n{store.name}".encode()).hexdigest()[:16]
    path = state_dir / FOLDER / f"{name}.json"
    await asyncio.to_thread(make_private_folder, path.parent)
    async with file_lock(path.with_suffix(".lock"), owner="logs ship", patience_s=0) as is_alone:
        if not is_alone:
            problem, fix = f"another process is shipping the log to {store.name}", "leave it to that process"
            raise BackendUnavailable("logs ship", problem, fix=fix, operation="ship")
        cursor = Cursor() if from_start else await asyncio.to_thread(Cursor.read, path)
        batches = await asyncio.to_thread(_batches, state_dir, workspace_id, cursor)
        sent = 0
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            if batch:
                await store.add(batch)
            sent += len(batch)
            await asyncio.to_thread(cursor.write, path)
        return sent


async def keep_shipping(
    state_dir: Path, workspace_id: str, store: LogStore, *, on_problem: Callable[[str], None]
) -> None:
    """Keep shipping new lines until cancelled; report once when the store is unreachable, and keep trying."""
    told = ""
    while True:
        await asyncio.sleep(POLL_S)
        try:
            await ship(state_dir, workspace_id, store)
            problem = ""
        except BackendUnavailable as error:
            problem = str(error)
        if problem and problem != told:
            on_problem(problem)
        told = problem


def _batches(state_dir: Path, workspace_id: str, cursor: Cursor) -> Iterator[list[Wire]]:
    """Yield batches of lines to ship; asking for the next one moves the cursor behind the last."""
    is_alone = len(known_workspaces(state_dir)) <= 1
    first = min(cursor.places, default="")
    for segment in segments_in(state_dir / OPS_LOG_FOLDER):
        if segment.stem < first:
            continue
        batch: list[Wire] = []
        for place, wire in _lines(segment, cursor.places.get(segment.stem)):
            if _is_ours(wire, workspace_id, cursor.is_ours, is_alone=is_alone):
                batch.append(wire)
            cursor.places.pop(segment.stem, None)  # so that it becomes the last entry
            cursor.places[segment.stem] = place
            if len(batch) == BATCH_LINES:
                yield batch
                batch = []
        yield batch


def _lines(segment: Segment, shipped: tuple[int, str] | None) -> Iterator[tuple[tuple[int, str], Wire]]:
    """Yield the lines after the last shipped one, with their places; all lines of a rewritten file."""
    start = 0
    if shipped is not None:
        lines = lines_forwards(segment, shipped[0], BLOCK_BYTES)
        wire = _wire(lines[: lines.find(b"\n") + 1])
        if wire is not None and wire["id"] == shipped[1]:
            start = shipped[0] + lines.find(b"\n") + 1
    while lines := lines_forwards(segment, start, BLOCK_BYTES):
        for line in lines.splitlines(keepends=True):
            if (wire := _wire(line)) is not None:
                yield (start, wire["id"]), wire
            start += len(line)


def _wire(line: bytes) -> Wire | None:
    """Parse a line; None if it is damaged."""
    with suppress(ValueError, TypeError):
        wire = json.loads(line) if is_whole(line) else None
        if isinstance(wire, dict) and all(
            isinstance(wire.get(key), str) for key in ("id", "ts", "action", "traceId")
        ):
            for name in ("at", "crc32"):
                wire.pop(name, None)
            return wire
    return None


def _is_ours(wire: Wire, workspace_id: str, known: dict[str, bool], *, is_alone: bool) -> bool:
    """Return whether a line belongs to the workspace, and remember that of its trace."""
    trace, detail = wire["traceId"], wire.get("detail")
    memory = detail.get("memory") if isinstance(detail, Mapping) else None
    if isinstance(memory, str) and memory:
        known[trace] = memory.endswith(f"-{workspace_id}")
    return known.get(trace, is_alone)
