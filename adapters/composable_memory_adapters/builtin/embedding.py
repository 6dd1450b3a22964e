"""Gives the chunks of an index the vectors that they lack, in batches, newest notes first."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from composable_memory.content import EmbedderInput
from composable_memory.errors import EmbeddingError
from composable_memory.interfaces import EmbedderAdapter
from composable_memory_adapters.builtin import embedding_cache, index
from composable_memory_adapters.builtin.embedding_cache import EmbeddingSpace
from composable_memory_adapters.sqlite_file import SqliteFile

__all__ = ["EmbedOutcome", "answer_within", "embed_pending", "probe"]

T = TypeVar("T")

BATCH_TEXTS = 64
BATCH_TIMEOUT_S = 600.0
PROBE_TIMEOUT_S = 60.0
MOVED = "another process uses this index with another embedder; give the two different state folders"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedOutcome:
    """How many texts were embedded, how many chunks still wait, and what stopped the work."""

    embedded: int = 0
    pending: int = 0
    problem: str | None = None


async def embed_pending(
    file: SqliteFile,
    embedder: EmbedderAdapter,
    space: EmbeddingSpace,
    *,
    now_ms: Callable[[], int],
    progress: Callable[[int, int], None],
) -> EmbedOutcome:
    """Embed every chunk without a vector; each batch is stored whole before the next is asked for.

    A provider that fails stops the work and is named in the outcome: what was embedded before stays.
    """
    if not await file.read(index.count_pending):
        return EmbedOutcome()
    waiting = await file.read(index.pending_chunks)
    embedded, problem = 0, None
    progress(0, len(waiting))
    for start in range(0, len(waiting), BATCH_TEXTS):
        batch = waiting[start : start + BATCH_TEXTS]
        try:
            embedded += await _embed_batch(file, embedder, space, batch, now_ms)
        except EmbeddingError as error:
            problem = str(error)
            break
        progress(start + len(batch), len(waiting))
    left = await file.read(index.count_pending)
    return EmbedOutcome(embedded=embedded, pending=left, problem=problem)


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


async def _embed_batch(
    file: SqliteFile,
    embedder: EmbedderAdapter,
    space: EmbeddingSpace,
    chunk_ids: Sequence[int],
    now_ms: Callable[[], int],
) -> int:
    """Give these chunks their vectors and return how many texts that took."""
    texts = await file.read(lambda connection: index.texts_to_embed(connection, chunk_ids))
    if not texts:  # another process was here
        return 0
    vectors = await _embed(embedder, space, texts)
    stored = await file.write(
        lambda connection: index.store_vectors(connection, space, chunk_ids, vectors, now_ms=now_ms())
    )
    if not stored:
        raise EmbeddingError(space.provider, space.model, MOVED)
    return len(texts)


async def _embed(
    embedder: EmbedderAdapter, space: EmbeddingSpace, texts: Mapping[str, str]
) -> dict[str, Sequence[float]]:
    """Return the vector of each text by the text's hash."""
    inputs = [EmbedderInput(text=text, id=digest) for digest, text in texts.items()]
    vectors = await answer_within(BATCH_TIMEOUT_S, embedder.embed_batch(inputs), space)
    if len(vectors) != len(inputs):
        problem = f"it returned {len(vectors)} vectors for {len(inputs)} texts"
        raise EmbeddingError(space.provider, space.model, problem)
    return dict(zip(texts, vectors, strict=True))
