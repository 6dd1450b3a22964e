"""Runs one command: keeps its errors to a line, and ends with the right exit code."""

from collections.abc import Coroutine
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import typer

from composable_memory.cli.screen import complain, write_json

__all__ = ["ExitCode", "Place", "run"]


class ExitCode(IntEnum):
    """What the caller is told."""

    FINE = 0
    FAILED = 1
    BAD_USAGE = 2
    DEGRADED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which memory a command is about; without a state folder, the one in the user's."""

    workspace: Path
    state_dir: Path | None


def run(command: Coroutine[None, None, ExitCode], *, as_json: bool = False) -> None:
    """Run a command to its end; an expected error becomes one line, and with `as_json` a document.

    Raises:
        typer.Exit: always, with the exit code.
    """
    # Imported late, because help and version need none of it.
    import asyncio

    from composable_memory.errors import ComposableMemoryError
    from composable_memory_feedback.errors import FeedbackError
    from composable_memory_ops_logs import OpsLogError

    try:
        code = asyncio.run(command)
    except BrokenPipeError:
        raise
    except (ComposableMemoryError, FeedbackError, OpsLogError, OSError) as error:
        if as_json:
            write_json({"error": str(error)})
        complain(str(error))
        code = ExitCode.FAILED
    raise typer.Exit(code)
