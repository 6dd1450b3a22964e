"""For whom a command runs: whoever started this process, or a client of `cmem serve`."""

import io
import os
import sys
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from composable_memory.registry import Registry


class ClientStream(io.TextIOBase):
    """What a command writes for a client, encoded as the client's own stream would."""

    def __init__(self, send: Callable[[bytes], object], encoding: str, *, is_terminal: bool) -> None:
        self._send = send
        self._encoding = encoding
        self._is_terminal = is_terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Return the encoding of the client's stream."""
        return self._encoding

    def isatty(self) -> bool:
        """Return whether the client's stream is a terminal."""
        return self._is_terminal

    def write(self, text: str) -> int:
        """Send a text to the client."""
        self._send(text.encode(self._encoding, "backslashreplace"))
        return len(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client of the server: where it writes to, where it is, and what its environment says."""

    out: TextIO
    err: TextIO
    environ: Mapping[str, str]
    folder: Path
    registry: "Registry"
    """The backends that are installed, which every command would look for anew."""
    works: list[Any]
    """Takes the coroutine of the command, which runs on the loop of the server."""

    def path(self, given: Path) -> Path:
        """Return a path as the client means it."""
        return self.folder / given.expanduser()


CLIENT: ContextVar[Client | None] = ContextVar("composable_memory_client", default=None)
"""The client for whom this code runs; None for this process itself."""


def output() -> TextIO:
    """Return where results are written to."""
    client = CLIENT.get()
    return client.out if client else sys.stdout


def client_stream(*, err: bool = False) -> TextIO | None:
    """Return the stream of a client; None lets Typer choose that of this process."""
    client = CLIENT.get()
    return (client.err if err else client.out) if client else None


def environment() -> Mapping[str, str]:
    """Return the environment that counts."""
    client = CLIENT.get()
    return client.environ if client else os.environ
