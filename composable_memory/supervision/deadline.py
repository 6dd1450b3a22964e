"""A deadline for a block of our own code; calls of others, which may ignore theirs, go by `bounded_calls`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter

from composable_memory.errors import BackendTimeout


@asynccontextmanager
async def deadline(owner: str, operation: str, limit_s: float) -> AsyncIterator[None]:
    """Cancel the block when `limit_s` seconds have passed; the block must heed that, as ours does.

        async with deadline("qmd", "search", 4.0):
            return await client.ask(question)

    Raises:
        BackendTimeout: the block took too long, or a `TimeoutError` came out of it.
    """
    began = perf_counter()
    try:
        async with asyncio.timeout(limit_s):
            yield
    except BackendTimeout:  # the deadline of something inside, which says more
        raise
    except TimeoutError as error:
        elapsed_s = perf_counter() - began
        raise BackendTimeout(owner, operation, limit_s=limit_s, elapsed_s=elapsed_s) from error
