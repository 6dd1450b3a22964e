"""A memory for programs without an event loop: each call blocks until its answer is there."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import AbstractAsyncContextManager, suppress
from functools import wraps
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

from composable_memory.config.settings import Settings
from composable_memory.errors import BackendTimeout, BackendUnavailable
from composable_memory.interfaces import BackendSpec, Clock, EmbedderSpec
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory

WAKE_UP_S = 0.5
"""How often a waiting thread wakes up: Python handles a Ctrl-C that came just before only then."""

P = ParamSpec("P")
T = TypeVar("T")


def open_memory_sync(
    workspace: str | Path = ".",
    state_dir: str | Path | None = None,
    config: Mapping[str, object] | Settings | None = None,
    *,
    backends: Sequence[BackendSpec] = (),
    embedders: Sequence[EmbedderSpec] = (),
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    long_lived: bool = True,
) -> "BlockingMemory":
    """Open the memory of a workspace with blocking calls; leaving the block, or `close`, closes it.

        with open_memory_sync("notes") as memory:
            print(memory.query("which port does the dock use?").results[0].citation)

    It takes the arguments of `open_memory`, and also works where an event loop is running, as in a notebook.

    Raises:
        ConfigError: the workspace is not a folder, or a setting is invalid.
        InvalidArgument: an argument has the wrong type.
    """
    return BlockingMemory(
        open_memory(
            workspace,
            state_dir,
            config,
            backends=backends,
            embedders=embedders,
            environ=environ,
            clock=clock,
            long_lived=long_lived,
        )
    )


def _waiting(
    method: Callable[Concatenate[Memory, P], Awaitable[T]],
) -> Callable[Concatenate["BlockingMemory", P], T]:
    """Return a blocking version of a coroutine method, with the same arguments."""

    @wraps(method)
    def wait(self: "BlockingMemory", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.call(method, *args, **kwargs)

    return wait


def _plain(method: Callable[Concatenate[Memory, P], T]) -> Callable[Concatenate["BlockingMemory", P], T]:
    """Return a version of a plain method that runs on the memory's event loop."""

    async def call_there(memory: Memory, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(memory, *args, **kwargs)

    @wraps(method)
    def wait(self: "BlockingMemory", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.call(call_there, *args, **kwargs)

    return wait


class BlockingMemory:
    """An open memory with blocking calls; `open_memory_sync` opens one. Threads may share it.

    The memory lives on an event loop in its own thread. Ctrl-C cancels the waiting call and leaves the memory
    usable. It cannot be used in a forked process: open another one there.
    """

    query = _waiting(Memory.query)
    search = _waiting(Memory.search)
    context_pack = _waiting(Memory.context_pack)
    read_file = _waiting(Memory.read_file)
    text_of = _waiting(Memory.text_of)
    sync = _waiting(Memory.sync)
    remember = _waiting(Memory.remember)
    recall = _waiting(Memory.recall)
    reflect = _waiting(Memory.reflect)
    apply_reflection = _waiting(Memory.apply_reflection)
    ingest = _waiting(Memory.ingest)
    ingest_source = _waiting(Memory.ingest_source)
    plan_forgetting = _waiting(Memory.plan_forgetting)
    forget = _waiting(Memory.forget)
    apply_forgetting = _waiting(Memory.apply_forgetting)
    continue_forgetting = _waiting(Memory.continue_forgetting)
    language_hint = _waiting(Memory.language_hint)
    check = _waiting(Memory.check)
    probe_embedding_availability = _waiting(Memory.probe_embedding_availability)
    probe_vector_availability = _waiting(Memory.probe_vector_availability)
    record_answer = _plain(Memory.record_answer)
    status = _plain(Memory.status)
    backend_statuses = _plain(Memory.backend_statuses)
    unavailable = _plain(Memory.unavailable)

    def __init__(self, opening: AbstractAsyncContextManager[Memory]) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._is_closed = False
        self._closing = asyncio.Event()
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._loop = self._runner.get_loop()
        self._opened: Future[Memory] = Future()
        self._ended: Future[None] = Future()
        # A daemon: a program that never closes the memory can still exit, and no written data is at risk.
        self._thread = threading.Thread(target=self._run, args=(opening,), name="memory", daemon=True)
        self._thread.start()
        try:
            self._opened.result()
        except BaseException:  # opening failed, or was interrupted by Ctrl-C: then it closes by itself
            self._start_closing()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def call(
        self, function: Callable[Concatenate[Memory, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a coroutine function whose first argument is the open memory, and wait for its result.

            memory.call(memory_search, MemorySearchRequest(query="dock"))

        Raises:
            BackendUnavailable: the memory is closed, or belongs to the process that this one was forked from.
        """
        self._refuse_own_thread()
        future: Future[T] = Future()
        try:
            self._begin(future, lambda memory: function(memory, *args, **kwargs))
            # `concurrent.futures.wait` never returns a future that was cancelled before it ran.
            while not future.done():
                with suppress(TimeoutError, CancelledError):
                    future.exception(WAKE_UP_S)
            return future.result()
        except CancelledError:
            if not self._is_closed:
                raise
            raise _unusable("it has been closed in the meantime", "open it again") from None
        finally:
            future.cancel()  # after Ctrl-C nobody waits for it; a finished future stays as it is

    def submit(
        self, function: Callable[Concatenate[Memory, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> Future[T]:
        """Start a call as `call` does, and return its future; cancelling that cancels the call.

        A coroutine on another event loop can await it with `asyncio.wrap_future`.

        Raises:
            BackendUnavailable: the memory is closed, or belongs to the process that this one was forked from.
        """
        future: Future[T] = Future()
        self._begin(future, lambda memory: function(memory, *args, **kwargs))
        return future

    def _begin(self, future: Future[T], ask: Callable[[Memory], Awaitable[T]]) -> None:
        """Complete `future` on the memory's loop.

        `asyncio.run_coroutine_threadsafe` returns the future only after the call has begun: a Ctrl-C in
        between would leave a call behind that cannot be cancelled.
        """
        if os.getpid() != self._pid:
            raise _unusable("it was opened in the parent process", "open it again in this process")

        async def answer() -> T:
            return await ask(self._opened.result())

        def begin() -> None:
            task = self._loop.create_task(answer())
            task.add_done_callback(lambda _: _copy_outcome(future, task))
            future.add_done_callback(lambda _: self._loop.call_soon_threadsafe(task.cancel))

        with self._lock:  # whatever begins before the memory closes is run or cancelled, never forgotten
            if self._is_closed:
                raise _unusable("it is closed", "open it again")
            self._loop.call_soon_threadsafe(begin)

    def close(self, *, timeout_s: float = 30.0) -> None:
        """Close the memory; calls that are still running may fail. Does nothing in a forked process.

        Raises:
            BackendTimeout: it is not closed yet; closing continues, at most until the process ends.
        """
        if os.getpid() != self._pid:
            return
        self._refuse_own_thread()
        self._start_closing()
        try:
            self._ended.result(timeout_s)
        except TimeoutError:
            raise BackendTimeout("memory", "close", limit_s=timeout_s, elapsed_s=timeout_s) from None

    def _start_closing(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                with suppress(RuntimeError):  # its loop has ended: opening failed
                    self._loop.call_soon_threadsafe(self._closing.set)

    def _refuse_own_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise _unusable("it would wait for itself", "await the methods of Memory there")

    def _run(self, opening: AbstractAsyncContextManager[Memory]) -> None:
        try:
            with self._runner:
                self._runner.run(self._serve(opening))
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            for future in (self._opened, self._ended):
                if not future.done():
                    future.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _serve(self, opening: AbstractAsyncContextManager[Memory]) -> None:
        async with opening as memory:
            self._opened.set_result(memory)
            await self._closing.wait()


def _copy_outcome(future: Future[T], task: asyncio.Task[T]) -> None:
    """Copy the outcome of a task to a future."""
    error = None if task.cancelled() else task.exception()
    if task.cancelled():
        future.cancel()
    elif not future.set_running_or_notify_cancel():
        return
    elif error is not None:
        future.set_exception(error)
    else:
        future.set_result(task.result())


def _unusable(problem: str, fix: str) -> BackendUnavailable:
    return BackendUnavailable("memory", problem, fix=fix, operation="answer")
