"""How the contracts open what they test: within a time limit, and always closed again."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import ClassVar, TypeAlias, TypeVar

import pytest

from composable_memory.interfaces import Capability, MemorySearchManager
from composable_memory.testing.corpus import SEED_QUESTIONS, SeedQuestion

T = TypeVar("T")

Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[T]]
"""Opens a fresh, seeded part each time it is called."""

OpenBackend: TypeAlias = Opener[MemorySearchManager]

LIMIT_S = 300.0
"""How long a test may use a part: long enough for a slow model on a busy machine, but a hang fails."""

COVERAGE = (("coverage/control.py", "_should_trace"), ("coverage/collector.py", "lock_data"))
"""What blocks in tests under coverage.py, whatever code they call."""


@asynccontextmanager
async def opened(open_part: Opener[T]) -> AsyncIterator[T]:
    """Open a part for one test, which must end within `LIMIT_S` seconds."""
    async with asyncio.timeout(LIMIT_S), open_part() as part:
        yield part


def to_override(suite: object, fixture: str, what: str) -> NotImplementedError:
    """Return the error for a suite that does not override how to open what it tests."""
    return NotImplementedError(
        f"{type(suite).__name__} has to override the fixture `{fixture}`: return a function without "
        f"arguments that opens {what} as an async context manager"
    )


async def cancel_after(turns: int, call: Coroutine[object, object, object]) -> None:
    """Start a call, and cancel it after this many turns of the event loop."""
    running = asyncio.ensure_future(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.wait([running])


@contextmanager
def blocking_forbidden() -> Iterator[None]:
    """Turn a call that blocks the event loop into an error; skip the test without BlockBuster."""
    blockbuster = pytest.importorskip("blockbuster")
    with blockbuster.blockbuster_ctx() as watch:
        for function in watch.functions.values():
            for file, name in COVERAGE:
                function.can_block_in(file, name)
        yield


class BackendSuite:
    """The base of the backend contracts: the fixture that opens one, and what it promises.

    `capabilities` are those in the backend's spec. `questions` are asked of the seeded backend; override them
    if it cannot hold `SEED_NOTES`, and leave them empty if it cannot find anything. `missing_path` is a path
    that it could read, at which there is nothing.
    """

    capabilities: ClassVar[frozenset[Capability]] = frozenset()
    questions: ClassVar[Sequence[SeedQuestion]] = SEED_QUESTIONS
    missing_path: ClassVar[str] = "memory/no-such-note.md"

    @pytest.fixture
    def open_backend(self) -> OpenBackend:
        """Return a function that opens the backend, seeded with `SEED_NOTES`; override this."""
        raise to_override(self, "open_backend", "your backend, seeded with SEED_NOTES")
