"""Runs a command to completion, within limits on time and output."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from composable_memory.errors import BackendGarbled
from composable_memory.supervision.deadline import deadline
from composable_memory.supervision.process import KILLED, GuardedProcess, cannot_start
from composable_memory.supervision.tasks import comes_first
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_OUTPUT_BYTES = 4 * 2**20
EXCERPT_BYTES = 1000
STDOUT = 1
CANNOT_START = (126, 127)  # exit codes by which a shell reports a command that is missing or cannot be run


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """How a command ended and what it wrote; `code` is 128 + n if signal n ended it."""

    code: int
    stdout: str
    stderr: str


async def run_command(
    command: Sequence[str],
    *,
    owner: str,
    operation: str,
    environ: Mapping[str, str],
    cwd: Path,
    timeout_s: float,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    overflow: Literal["refuse", "keep-end"] = "refuse",
    has_grace: bool = True,
) -> Reply:
    """Run a command to completion and return its output.

    Its standard input is empty and `environ` is its whole environment. More than `max_output_bytes` on
    standard output is an error, or only the end is kept; of standard error only the end is ever kept. When
    this returns, raises or is cancelled, the command and everything it started have ended: they get a second
    to end cleanly, or without `has_grace`, for commands that only read, are killed at once.

    Raises:
        BackendTimeout: it had not ended after `timeout_s`.
        BackendGarbled: it wrote too much.
        BackendUnavailable: it cannot be started.
    """
    output = _Output(max_output_bytes, refuses=overflow == "refuse")
    process: GuardedProcess | None = None
    try:
        async with deadline(owner, operation, timeout_s):
            process = await GuardedProcess.start(
                command,
                owner=owner,
                operation=operation,
                environ=environ,
                cwd=cwd,
                on_output=output.add,
            )
            has_ended = await comes_first(process.wait(), output.overflow.wait())
            code = await process.wait() if has_ended else KILLED
    finally:
        if process is not None:
            await process.stop(at_once=not has_grace)
    if output.overflow.is_set():
        raise output.too_much(owner, operation)
    if code in CANNOT_START:
        raise cannot_start(command, owner, operation, output.stderr)
    return Reply(code=code, stdout=output.stdout, stderr=output.stderr)


class _Output:
    """The output of a command, up to a limit."""

    def __init__(self, limit: int, *, refuses: bool) -> None:
        self.overflow = asyncio.Event()
        self._limit = limit
        self._refuses = refuses
        self._stdout = bytearray()
        self._stderr = bytearray()

    def add(self, fd: int, data: bytes) -> None:
        if self.overflow.is_set():
            return
        kept = self._stdout if fd == STDOUT else self._stderr
        kept += data
        if fd == STDOUT and self._refuses and len(kept) > self._limit:
            self.overflow.set()
        elif len(kept) > 2 * self._limit:  # not for every byte, as trimming moves the rest
            del kept[: -self._limit]

    @property
    def stdout(self) -> str:
        return _text(self._stdout[-self._limit :])

    @property
    def stderr(self) -> str:
        return _text(self._stderr[-self._limit :])

    def too_much(self, owner: str, operation: str) -> BackendGarbled:
        most = f"at most {self._limit / 2**20:g} MiB of output"
        beginning = _text(self._stdout[:EXCERPT_BYTES])
        return BackendGarbled(owner, operation, excerpt=beginning, expected=most)


def _text(written: bytes | bytearray) -> str:
    return written.decode("utf-8", "replace").replace("\0", "")
