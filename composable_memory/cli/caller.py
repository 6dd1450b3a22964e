"""For whom a command runs: whoever started this process, or a client of `cmem serve`."""

import io
import os
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from composable_memory_ops_logs.quick_dataclass import dataclass
from composable_memory_start import ERR, OUT, frame

if TYPE_CHECKING:
    from composable_memory.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client of the server: what it asks for, where it is, its environment, and what is printed for it."""

    registry: "Registry"
    """The backends that are installed, which each command would look for anew."""
    installation: str
    folder: Path
    arguments: tuple[str, ...]
    environ: Mapping[str, str]
    out: TextIO
    err: TextIO
    frames: list[bytes]
    works: list[Any] = field(default_factory=list)
    """Takes the coroutine of the command, which runs on the loop of the server."""

    @classmethod
    def parse(cls, message: bytes, registry: "Registry") -> "Client":
        """Return the client that sent what `composable_memory_start.request_of` made.

        Raises:
            ValueError: it is something else.
        """
        made_by, folder, width, count, *rest = map(os.fsdecode, message.split(b"\0"))
        (out, out_is_terminal, err, err_is_terminal), arguments = rest[:4], rest[4 : 4 + int(count)]
        pairs = (one.partition("=") for one in rest[4 + int(count) :])
        environ = {name: value for name, _, value in pairs}
        frames: list[bytes] = []
        return cls(
            registry=registry,
            installation=made_by,
            folder=Path(folder),
            arguments=tuple(arguments),
            environ={"COLUMNS": width, **environ} if width else environ,
            out=cast("TextIO", _ClientStream(frames, OUT, out, is_terminal=bool(out_is_terminal))),
            err=cast("TextIO", _ClientStream(frames, ERR, err, is_terminal=bool(err_is_terminal))),
            frames=frames,
        )

    def path(self, given: Path) -> Path:
        """Return a path as the client means it."""
        return self.folder / given.expanduser()


class _ClientStream(io.TextIOBase):
    """What is written for a client, in frames, encoded as the client's own stream would."""

    encoding = ""

    def __init__(self, frames: list[bytes], kind: bytes, encoding: str, *, is_terminal: bool) -> None:
        self._frames, self._kind, self._is_terminal = frames, kind, is_terminal
        self.encoding = encoding

    def isatty(self) -> bool:
        return self._is_terminal

    def write(self, text: str) -> int:
        self._frames.append(frame(self._kind, text.encode(self.encoding, "backslashreplace")))
        return len(text)


CLIENT: ContextVar[Client | None] = ContextVar("composable_memory_client", default=None)
"""The client for whom this code runs; None for this process itself."""


def client_stream(*, err: bool = False) -> TextIO | None:
    """Return the stream of a client; None lets Typer choose that of this process."""
    client = CLIENT.get()
    return (client.err if err else client.out) if client else None


def output() -> TextIO:
    """Return where results are written to."""
    return client_stream() or sys.stdout


def environment() -> Mapping[str, str]:
    """Return the environment that counts."""
    client = CLIENT.get()
    return client.environ if client else os.environ
