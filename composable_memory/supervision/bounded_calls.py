"""Bounded calls: each under a deadline, left behind where it ignores its cancellation, failing as a value."""

import asyncio
from collections.abc import Coroutine
from time import perf_counter
from typing import TypeVar

from composable_memory.errors import BackendError, BackendTimeout, ComposableMemoryError
from composable_memory_ops_logs.quick_dataclass import dataclass

CANCEL_GRACE_S = 0.002
"""How long a call that ignores its cancellation is waited for before it is left behind."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Failure:
    """What a call raised instead of returning."""

    error: Exception

    @property
    def reason(self) -> str:
        """Return the error in words, with its class if it is not one of ours."""
        if isinstance(self.error, ComposableMemoryError):
            return str(self.error)
        return f"{type(self.error).__name__}: {self.error}".removesuffix(": ")


class BoundedCalls:
    """Runs calls of others, each as a task of its own, and turns whatever goes wrong into a value.

    A call that ignores its cancellation is left behind, known here until it ends; `deadline`, and anyio's
    cancel scopes, would wait for it without end.

        calls = BoundedCalls()
        outcome = await calls.run("qmd", "search", backend.search(query), limit_s=4.0)
        if isinstance(outcome, Failure):
            return outcome.reason
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[object]] = set()

    async def run(
        self, owner: str, operation: str, call: Coroutine[object, object, R], limit_s: float | None
    ) -> R | Failure:
        """Return what `call` returns or what it raised; after `limit_s` seconds, a `BackendTimeout`.

        A call that is overdue, or whose caller is cancelled, is cancelled; what it returns after that is
        ignored. Only a Ctrl-C passes through.
        """
        began = perf_counter()
        task = asyncio.create_task(_contained(owner, operation, call))
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
        """Cancel all calls that still run, and give them a last moment to end."""
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=CANCEL_GRACE_S)

    def _forget(self, call: asyncio.Task[object]) -> None:
        self._running.discard(call)
        if not call.cancelled():
            call.exception()  # or asyncio would report that of a call left behind as never retrieved


async def _contained(owner: str, operation: str, call: Coroutine[object, object, R]) -> R:
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
        case Exception() as error if _has_text(error):
            return Failure(error)
        case KeyboardInterrupt() as interrupt:
            raise interrupt
        case BaseExceptionGroup() as group if group.subgroup(KeyboardInterrupt):
            raise group
        case fatal:
            return Failure(_fatal(owner, operation, fatal))


def _fatal(owner: str, operation: str, error: BaseException) -> BackendError:
    text = f": {error}" if _has_text(error) else ""
    return BackendError(owner, operation, f"it raised {type(error).__name__}{text}")


def _has_text(error: BaseException) -> bool:
    try:
        str(error).encode()
    except Exception:  # noqa: BLE001 - the error of a stranger may raise again when it is printed
        return False
    return True


async def _give_up(task: asyncio.Task[R]) -> None:
    task.cancel()
    await asyncio.wait([task], timeout=CANCEL_GRACE_S)
