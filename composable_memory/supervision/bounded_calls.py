"""Bounded calls: each under a deadline, left behind where it ignores its cancellation, failing as a value."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

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


class Call(NamedTuple, Generic[R]):
    """What is asked of whom, and for how many seconds it may go on."""

    owner: str
    operation: str
    asked: Coroutine[object, object, R]
    limit_s: float | None


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
        outcomes: list[R | Failure] = []
        called = Call(owner, operation, call, limit_s)
        await self.run_all([called], lambda _, outcome, __: outcomes.append(outcome))
        return outcomes[0]

    async def run_all(
        self, calls: Sequence[Call[R]], on_outcome: Callable[[int, R | Failure, float], None]
    ) -> None:
        """Run calls at the same time, each as `run` does.

        As each ends, or is left, `on_outcome` is told its number, its outcome and how many seconds it took.
        """
        now = asyncio.get_running_loop().time  # by which the waiting below is counted too
        began = now()
        ended: list[tuple[asyncio.Task[R], float]] = []
        running: dict[asyncio.Task[R], int] = {}
        for number, call in enumerate(calls):
            task = asyncio.create_task(_contained(call))
            running[task] = number
            self._running.add(task)
            task.add_done_callback(self._forget)
            task.add_done_callback(lambda one: ended.append((one, now() - began)))
        try:
            while running:
                limits = [limit for one in running.values() if (limit := calls[one].limit_s) is not None]
                left_s = max(0.0, began + min(limits) - now()) if limits else None
                await asyncio.wait(running, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                for task, took_s in ended:
                    if (number := running.pop(task, -1)) >= 0:
                        on_outcome(number, _outcome(task, calls[number]), took_s)
                ended.clear()
                passed_s = now() - began
                late = [task for task, one in running.items() if _is_late(task, calls[one], passed_s)]
                await _give_up(late)
                for task in late:
                    owner, operation, _, limit_s = calls[number := running.pop(task)]
                    took_s = now() - began
                    overdue = BackendTimeout(owner, operation, limit_s=limit_s or 0.0, elapsed_s=took_s)
                    on_outcome(number, Failure(overdue), took_s)
        except BaseException:
            await _give_up(running)
            raise

    async def cancel(self) -> None:
        """Cancel all calls that still run, and give them a last moment to end."""
        await _give_up(self._running)

    def _forget(self, call: asyncio.Task[object]) -> None:
        self._running.discard(call)
        if not call.cancelled():
            call.exception()  # or asyncio would report that of a call left behind as never retrieved


async def _contained(call: Call[R]) -> R:
    """Await a call; a `sys.exit` in it, which asyncio hands to the event loop, is the owner's failure."""
    try:
        return await call.asked
    except SystemExit as error:
        raise _fatal(call, error) from error


def _is_late(task: asyncio.Task[R], call: Call[Any], passed_s: float) -> bool:
    return call.limit_s is not None and passed_s >= call.limit_s and not task.done()


def _outcome(task: asyncio.Task[R], call: Call[Any]) -> R | Failure:
    if task.cancelled():
        return Failure(BackendError(call.owner, call.operation, "it was cancelled from within"))
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
            return Failure(_fatal(call, fatal))


def _fatal(call: Call[Any], error: BaseException) -> BackendError:
    text = f": {error}" if _has_text(error) else ""
    return BackendError(call.owner, call.operation, f"it raised {type(error).__name__}{text}")


def _has_text(error: BaseException) -> bool:
    try:
        str(error).encode()
    except Exception:  # noqa: BLE001 - the error of a stranger may raise again when it is printed
        return False
    return True


async def _give_up(tasks: Iterable[asyncio.Task[R]]) -> None:
    """Cancel calls, and give them a last moment to end."""
    given_up = [*tasks]
    for task in given_up:
        task.cancel()
    if given_up:
        await asyncio.wait(given_up, timeout=CANCEL_GRACE_S)
