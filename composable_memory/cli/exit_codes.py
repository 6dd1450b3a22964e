"""The exit codes of commands, and how an expected error becomes one of them."""

from collections.abc import Coroutine
from enum import IntEnum
from typing import Any

import typer

from composable_memory.cli.caller import CLIENT
from composable_memory.cli.output import error, print_json


class ExitCode(IntEnum):
    """How a command ended."""

    FINE = 0
    FAILED = 1
    BAD_USAGE = 2
    DEGRADED = 3


def run(work: Coroutine[Any, Any, ExitCode | None], *, as_json: bool = False) -> None:
    """Run a command to its end; an expected error becomes one line, and with `as_json` a document.

    For a client of the server it is only handed over, and the loop of the server runs it.

    Raises:
        typer.Exit: always otherwise, with the exit code.
    """
    outcome = _outcome(work, as_json=as_json)
    if (client := CLIENT.get()) is not None:
        client.works.append(outcome)
        return
    import asyncio  # late, because help and version do not need it

    raise typer.Exit(asyncio.run(outcome))


async def _outcome(work: Coroutine[Any, Any, ExitCode | None], *, as_json: bool) -> ExitCode:
    """Return how a command ended."""
    # Imported late, because help and version need none of it.
    from composable_memory.errors import ComposableMemoryError
    from composable_memory_feedback.errors import FeedbackError
    from composable_memory_ops_logs import OpsLogError

    try:
        return await work or ExitCode.FINE
    except BrokenPipeError:
        raise
    except (ComposableMemoryError, FeedbackError, OpsLogError, OSError) as problem:
        if as_json:
            print_json({"error": str(problem)})
        error(str(problem))
        return ExitCode.FAILED
