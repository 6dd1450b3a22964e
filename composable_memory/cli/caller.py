"""For whom a command runs: whoever started this process, or a client of `cmem serve`."""

import os
import sys
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from composable_memory.registry import Registry
    from composable_memory.runtime.warm_memory import WarmMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client of the server: what it asks for, where it is, its environment, and what is printed for it."""

    registry: "Registry"
    """The backends that are installed, which each command would look for anew."""
    kept: "WarmMemory"
    """The memory that the commands before have left open."""
    installation: str
    folder: Path
    arguments: tuple[str, ...]
    environ: Mapping[str, str]
    out: TextIO
    err: TextIO
    frames: list[bytes]
    works: list[Any] = field(default_factory=list)
    """Takes the coroutine of the command, which runs on the loop of the server."""

    def path(self, given: Path) -> Path:
        """Return a path as the client means it."""
        return self.folder / given.expanduser()


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
