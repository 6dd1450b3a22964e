"""Calls to an embedding provider under a time limit."""

from collections.abc import Coroutine
from typing import TypeVar

from composable_memory.errors import BackendTimeout, EmbeddingError
from composable_memory.interfaces import EmbedderAdapter
from composable_memory.supervision.bounded_calls import BoundedCalls, Failure
from composable_memory.vector_values import EmbedderInput
from composable_memory_adapters.builtin.store import embedding_cache
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace

T = TypeVar("T")

PROBE_TIMEOUT_S = 60.0


async def probe(embedder: EmbedderAdapter, space: EmbeddingSpace) -> None:
    """Embed one word as a search would.

    Raises:
        EmbeddingError: the call failed, or returned a vector that cannot be used.
    """
    word = EmbedderInput(text="ping", kind="query")
    vector = await answer_within(PROBE_TIMEOUT_S, embedder.embed(word), space)
    embedding_cache.pack(space, vector)


async def answer_within(timeout_s: float, asked: Coroutine[object, object, T], space: EmbeddingSpace) -> T:
    """Await an embedder; a timeout, and whatever it raises, becomes an `EmbeddingError`."""
    outcome = await BoundedCalls().run(space.provider, "embed", asked, timeout_s)
    if not isinstance(outcome, Failure):
        return outcome
    if isinstance(outcome.error, EmbeddingError):
        raise outcome.error
    is_late = isinstance(outcome.error, BackendTimeout)
    problem = f"it gave no answer within {timeout_s:g} s" if is_late else outcome.reason
    raise EmbeddingError(space.provider, space.model, problem) from outcome.error
