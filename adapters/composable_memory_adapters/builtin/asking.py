"""Asks an embedding provider, and waits no longer than was agreed."""

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

from composable_memory.content import EmbedderInput
from composable_memory.errors import EmbeddingError
from composable_memory.interfaces import EmbedderAdapter
from composable_memory_adapters.builtin.store import embedding_cache
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace

__all__ = ["answer_within", "probe"]

T = TypeVar("T")

PROBE_TIMEOUT_S = 60.0


async def probe(embedder: EmbedderAdapter, space: EmbeddingSpace) -> None:
    """Embed one word as a search would.

    Raises:
        EmbeddingError: it did not work, or what came back cannot be searched with.
    """
    word = EmbedderInput(text="ping", kind="query")
    vector = await answer_within(PROBE_TIMEOUT_S, embedder.embed(word), space)
    embedding_cache.pack(space, vector)


async def answer_within(timeout_s: float, asked: Coroutine[None, None, T], space: EmbeddingSpace) -> T:
    """Await an embedder; whatever a foreign one raises, and its silence, become an `EmbeddingError`."""
    task = asyncio.create_task(asked)
    try:
        await asyncio.wait([task], timeout=timeout_s)
    finally:
        has_ended = task.done()
        task.cancel()
    if not has_ended or task.cancelled():
        raise EmbeddingError(space.provider, space.model, f"it gave no answer within {timeout_s:g} s")
    error = task.exception()
    if error is None or isinstance(error, EmbeddingError):
        return task.result()
    problem = f"{type(error).__name__}: {error}".removesuffix(": ")
    raise EmbeddingError(space.provider, space.model, problem) from error
