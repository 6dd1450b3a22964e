"""Deadlines: for a block of our own code, and for foreign calls, which are abandoned when overdue."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Generic, TypeVar

from composable_memory.errors import BackendError, BackendTimeout, ComposableMemoryError
from composable_memory_ops_logs.quick_dataclass import dataclass

CANCEL_GRACE_S = 0.002
"""How long to wait for a call that ignores its cancellation before abandoning it."""

CLOSE_TIMEOUT_S = 30.0
"""How long a backend may take to close."""

R = TypeVar("R")
T = TypeVar("T")


@asynccontextmanager
async def deadline(owner: str, operation: str, limit_s: float) -> AsyncIterator[None]:
    """Cancel the block after `limit_s` seconds; the block must honour cancellation, as our code does.

        async with deadline("qmd", "search", 4.0):
            return await client.ask(question)

    Raises:
        BackendTimeout: the block took too long, or a `TimeoutError` came out of it.
    """
    began = perf_counter()
    try:
        async with asyncio.timeout(limit_s):
            yield
    except BackendTimeout:  # an inner deadline, which is more specific
        raise
    except TimeoutError as error:
        elapsed_s = perf_counter() - began
        raise BackendTimeout(owner, operation, limit_s=limit_s, elapsed_s=elapsed_s) from error


@dataclass(frozen=True, slots=True)
class Failure:
    """What a call raised instead of returning."""

    error: Exception

    @property
    def reason(self) -> str:
        """Return the error message, with the class if it is not one of ours."""
        if isinstance(self.error, ComposableMemoryError):
            return str(self.error)
        return f"{type(self.error).__name__}: {self.error}".removesuffix(": ")


class BoundedCalls:
    """Runs foreign calls, each in its own task, and turns whatever goes wrong into a value.

    A call that ignores its cancellation is abandoned but tracked until it ends; `deadline` and anyio's cancel
    scopes would wait for it forever.

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

        A call that is overdue, or whose caller is cancelled, is cancelled, and a later result is ignored.
        Only Ctrl-C propagates.
        """
        return await self.start(owner, operation, call, limit_s, lambda outcome, _: outcome)

    def start(
        self,
        owner: str,
        operation: str,
        call: Coroutine[object, object, R],
        limit_s: float | None,
        then: Callable[[R | Failure, float], T],
    ) -> asyncio.Future[T]:
        """Start a call as `run` does; the future returns `then(outcome, seconds)`.

        The future is done once the call has ended or was abandoned, also when it is cancelled.
        """
        task = asyncio.create_task(_contained(owner, operation, call))
        self._running.add(task)
        task.add_done_callback(self._forget)
        return _Bounded(task, owner, operation, limit_s, then)

    async def cancel(self) -> None:
        """Cancel all running calls, and give them a last moment to end."""
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=CANCEL_GRACE_S)

    def _forget(self, call: asyncio.Task[object]) -> None:
        self._running.discard(call)
        if not call.cancelled():
            call.exception()  # or asyncio would report it as never retrieved


class _Bounded(asyncio.Future[T], Generic[R, T]):
    """The outcome of a call. Not the task itself: waiting for a task may outlast any deadline."""

    __slots__ = (
        *("_task", "_owner", "_operation", "_limit_s", "_then"),
        *("_began", "_is_cancelled", "_is_overdue", "_timer"),
    )

    def __init__(
        self,
        task: asyncio.Task[R],
        owner: str,
        operation: str,
        limit_s: float | None,
        then: Callable[[R | Failure, float], T],
    ) -> None:
        super().__init__()
        self._task, self._owner, self._operation, self._then = task, owner, operation, then
        loop = self.get_loop()
        self._limit_s, self._began = limit_s, loop.time()
        self._is_overdue = self._is_cancelled = False
        self._timer = None if limit_s is None else loop.call_later(limit_s, self._time_out)
        task.add_done_callback(self._settle)

    def cancel(self, msg: object = None) -> bool:  # noqa: ARG002 - asyncio's signature
        """Cancel the call; this future is done once the call has ended or was abandoned."""
        if self.done():
            return False
        self._is_cancelled = True
        self.get_loop().call_soon(self._give_up)  # after the call has begun; otherwise it is never awaited
        return True

    def _time_out(self) -> None:
        if not self._task.done():  # otherwise it has just ended and is about to be settled
            self._is_overdue = True
            self._give_up()

    def _give_up(self) -> None:
        self._task.cancel()
        if self._timer:
            self._timer.cancel()
        self._timer = self.get_loop().call_later(CANCEL_GRACE_S, self._settle)

    def _settle(self, _: object = None) -> None:
        if self.done():
            return
        if self._timer:
            self._timer.cancel()
        if self._is_cancelled:
            super().cancel()
            return
        took_s = self.get_loop().time() - self._began
        try:
            self.set_result(self._then(self._outcome(took_s), took_s))
        except BaseException as error:  # noqa: BLE001 - passed on to the caller
            self.set_exception(error)

    def _outcome(self, took_s: float) -> R | Failure:
        if self._is_overdue and self._limit_s is not None:
            return Failure(
                BackendTimeout(self._owner, self._operation, limit_s=self._limit_s, elapsed_s=took_s)
            )
        return _outcome(self._task, self._owner, self._operation)


async def _contained(owner: str, operation: str, call: Coroutine[object, object, R]) -> R:
    """Await a call; turn a `sys.exit` in it, which would end the event loop, into a failure of `owner`."""
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
    except Exception:  # noqa: BLE001 - printing a third-party error may raise again
        return False
    return True
