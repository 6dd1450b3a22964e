"""Computes the vectors of texts within a time limit, checks them, and caches them."""

import json
import math
import struct
import zlib
from collections.abc import Coroutine, Mapping, Sequence
from hashlib import sha256
from typing import TypeVar

from composable_memory.errors import BackendTimeout, DimensionMismatch, EmbeddingError
from composable_memory.interfaces import EmbedderAdapter, SupportsFingerprint
from composable_memory.supervision.deadline import BoundedCalls, Failure
from composable_memory.types import MemoryEmbeddingProbeResult
from composable_memory.vector_values import MAX_QUESTION_CHARS, EmbedderInput
from composable_memory_adapters.sqlite_file import Connection
from composable_memory_ops_logs.quick_dataclass import dataclass

STORE = """
INSERT INTO embedding_cache (hash, provider_key, model, provider, embedding, dims, updated_at, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (hash, provider_key, model, provider) DO UPDATE SET updated_at = excluded.updated_at
RETURNING id
"""
PRUNE = """
DELETE FROM embedding_cache WHERE id IN (
  SELECT id FROM embedding_cache AS cached
  WHERE NOT EXISTS (SELECT 1 FROM chunks WHERE embedding_id = cached.id)
  ORDER BY updated_at, id LIMIT ?
)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingSpace:
    """The vector space of one embedder; vectors of different spaces cannot be compared.

    `provider_key` is a hash of everything about the provider that affects its vectors.
    """

    provider: str
    model: str
    provider_key: str
    dims: int

    @property
    def identity(self) -> tuple[str, str, str]:
        """Return provider key, model and provider, in the order of the SQL parameters."""
        return self.provider_key, self.model, self.provider

    @classmethod
    def of(cls, embedder: EmbedderAdapter) -> "EmbeddingSpace":
        """Return the space of an embedder's vectors."""
        parts = [embedder.id, embedder.model, embedder.dimensions]
        if isinstance(embedder, SupportsFingerprint):
            parts.append(embedder.fingerprint)
        identity = json.dumps(parts)
        return cls(
            provider=embedder.id,
            model=embedder.model,
            provider_key=sha256(identity.encode()).hexdigest()[:16],
            dims=embedder.dimensions,
        )


def pack(space: EmbeddingSpace, vector: Sequence[float]) -> bytes:
    """Return `vector` scaled to length 1 as little-endian float32; a zero vector stays zero.

    Raises:
        DimensionMismatch: it has the wrong length for `space`.
        EmbeddingError: it holds a number that is not finite.
    """
    if len(vector) != space.dims:
        raise DimensionMismatch(space.provider, space.model, expected=space.dims, got=len(vector))
    length = math.hypot(*vector)
    if not math.isfinite(length):
        raise EmbeddingError(space.provider, space.model, "a vector has a number that is not finite")
    scaled = [value / length for value in vector] if length else vector
    return struct.pack(f"<{space.dims}f", *scaled)


def store(
    connection: Connection, space: EmbeddingSpace, vectors: Mapping[str, Sequence[float]], *, now_ms: int
) -> dict[str, int]:
    """Store the vectors of texts, keyed by the hash of the text, and return the id of each.

    Raises:
        EmbeddingError: a vector cannot be used.
    """
    ids = {}
    for digest, vector in vectors.items():
        blob = pack(space, vector)
        row = (digest, *space.identity, blob, space.dims, now_ms, zlib.crc32(blob))
        ids[digest] = connection.execute(STORE, row).get
    return ids


def count(connection: Connection) -> int:
    """Return the number of cached vectors."""
    return int(connection.execute("SELECT count(*) FROM embedding_cache").get)


def prune(connection: Connection, max_entries: int) -> int:
    """Remove unused vectors above `max_entries`, longest unused first; return how many."""
    excess = count(connection) - max_entries
    if excess <= 0:
        return 0
    connection.execute(PRUNE, (excess,))
    return connection.changes()


T = TypeVar("T")

PROBE_TIMEOUT_S = 60.0


async def probe(embedder: EmbedderAdapter | None, problem: str | None) -> MemoryEmbeddingProbeResult:
    """Embed a word as a search would, and report whether it worked; `problem` is why there is no embedder."""
    if embedder is None:
        return MemoryEmbeddingProbeResult(ok=False, error=problem or "no embedding provider is configured")
    try:
        await query_vector(embedder, EmbeddingSpace.of(embedder), "ping", within_s=PROBE_TIMEOUT_S)
    except EmbeddingError as error:
        return MemoryEmbeddingProbeResult(ok=False, error=str(error))
    return MemoryEmbeddingProbeResult(ok=True)


async def query_vector(
    embedder: EmbedderAdapter, space: EmbeddingSpace, text: str, *, within_s: float
) -> Sequence[float] | None:
    """Embed a query, cut to the maximum length; None if its vector has no direction.

    Raises:
        EmbeddingError: the call failed, timed out, or returned a vector that does not belong to `space`.
    """
    asked = EmbedderInput(text=text[:MAX_QUESTION_CHARS], kind="query")
    vector = await answer_within(within_s, embedder.embed(asked), space)
    try:
        dims, length = len(vector), math.hypot(*vector)
    except TypeError as error:
        raise EmbeddingError(space.provider, space.model, "the query's vector is not a vector") from error
    if dims != space.dims:
        raise DimensionMismatch(space.provider, space.model, expected=space.dims, got=dims)
    if not math.isfinite(length):
        problem = "the query's vector has a number that is not finite"
        raise EmbeddingError(space.provider, space.model, problem)
    return vector if length else None


async def answer_within(timeout_s: float, asked: Coroutine[object, object, T], space: EmbeddingSpace) -> T:
    """Await an embedder; a timeout or any error it raises becomes an `EmbeddingError`."""
    outcome = await BoundedCalls().run(space.provider, "embed", asked, timeout_s)
    if not isinstance(outcome, Failure):
        return outcome
    if isinstance(outcome.error, EmbeddingError):
        raise outcome.error
    is_late = isinstance(outcome.error, BackendTimeout)
    problem = f"it gave no answer within {timeout_s:g} s" if is_late else outcome.reason
    raise EmbeddingError(space.provider, space.model, problem) from outcome.error
