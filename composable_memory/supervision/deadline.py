"""Runs calls to memories of others under a deadline, and turns whatever goes wrong into a value."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from time import perf_counter
from typing import TypeVar

from composable_memory.errors import BackendError, BackendTimeout, ComposableMemoryError

__all__ = ["BoundedCalls", "Failure"]

CANCEL_GRACE_S = 0.002
"""How long a call that ignores its cancellation is waited for before it is left behind."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Failure:
    """What a call raised instead of returning."""

    error: Exception

    @property
    def reason(self) -> str:
        """Return it in words; an error that is not ours goes with its class."""
        error = self.error
        return str(error) if isinstance(error, ComposableMemoryError) else f"{type(error).__name__}: {error}"


class BoundedCalls:
    """Knows the calls that run, each a task, also those that ignored their cancellation, until they end."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[object]] = set()

    async def run(
        self, owner: str, operation: str, call: Coroutine[object, object, R], limit_s: float | None
    ) -> R | Failure:
        """Return what `call` returns or what it raised; with a limit, a `BackendTimeout` after so long.

        One that is overdue, or that nobody waits for any more, is cancelled. What it returns after that is
        not looked at. Only a Ctrl-C passes through.
        """
        began = perf_counter()
        task = asyncio.create_task(_staying(owner, operation, call))
        self._running.add(task)
        task.add_done_callback(self._forget)
        try:
            await asyncio.wait([task], timeout=limit_s)
            if not task.done() and limit_s is not None:
                await _give_up(task)
                elapsed_s = perf_counter() - began
                return Failure(BackendTimeout(owner, operation, limit_s=limit_s, elapsed_s=elapsed_s))
        except asyncio.CancelledError:
            await _give_up(task)
            raise
        return _outcome(task, owner, operation)

    async def cancel(self) -> None:
        """Cancel all that run, and give them a last moment to end."""
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=CANCEL_GRACE_S)

    def _forget(self, call: asyncio.Task[object]) -> None:
        self._running.discard(call)
        if not call.cancelled():
            call.exception()  # of one that was left behind nobody wants to know any more


async def _staying(owner: str, operation: str, call: Coroutine[object, object, R]) -> R:
    """Await a call; a `sys.exit` in it, which asyncio hands to the event loop, is the owner's failure."""
    try:
        return await call
    except SystemExit as error:
        raise _fatal(owner, operation, error) from error


def _outcome(task: asyncio.Task[R], owner: str, operation: str) -> R | Failure:
    if task.cancelled():
        return Failure(BackendError(owner, operation, "it was cancelled from within"))
    match task.exception():
        case None:
            return task.result()
        case Exception() as error if _can_be_told(error):
            return Failure(error)
        case KeyboardInterrupt() as interrupt:
            raise interrupt
        case BaseExceptionGroup() as group if group.subgroup(KeyboardInterrupt):
            raise group
        case fatal:
            return Failure(_fatal(owner, operation, fatal))


def _fatal(owner: str, operation: str, error: BaseException) -> BackendError:
    told = f": {error}" if _can_be_told(error) else ""
    return BackendError(owner, operation, f"it raised {type(error).__name__}{told}")


def _can_be_told(error: BaseException) -> bool:
    try:
        str(error).encode()
    except Exception:  # noqa: BLE001 - the error of a stranger may raise again when it is told
        return False
    return True


async def _give_up(task: asyncio.Task[R]) -> None:
    task.cancel()
    await asyncio.wait([task], timeout=CANCEL_GRACE_S)
