"""Gives the chunks of an index the vectors that they lack, in batches, newest notes first."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from composable_memory.content import EmbedderInput
from composable_memory.errors import DimensionMismatch, EmbedderUnavailable, EmbeddingError, EmbeddingPending
from composable_memory.interfaces import EmbedderAdapter, SupportsJobs
from composable_memory_adapters.builtin.asking import answer_within
from composable_memory_adapters.builtin.store import index
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.table_set import TableSet

__all__ = ["EmbedOutcome", "Embedding"]

Ask = Callable[[Sequence[EmbedderInput]], Awaitable[Sequence[Sequence[float]]]]

FEW_TEXTS = 64
"""What a provider on this machine is given at once: it is soon done, and what it did is soon stored."""
MANY_TEXTS = 256
"""What a remote one is given at once: enough for several requests side by side."""
STORED_CHUNKS = 2000
BATCH_TIMEOUT_S = 600.0
NAMED_PLACES = 5
FAILURES_IN_A_ROW = 4
"""After so many, the trouble is not with some of the texts: for two of them, three batches may fail."""
MOVED = "another process uses this index with another embedder"
TWO_FOLDERS = "give the two different state folders"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedOutcome:
    """How many texts were embedded, how many chunks still wait, and what was wrong.

    `refused` of those that wait were refused one by one: asking again would not help them.
    """

    embedded: int = 0
    pending: int = 0
    problem: str | None = None
    refused: int = 0

    @property
    def is_as_far_as_possible(self) -> bool:
        """Return whether nothing waits but what the provider refuses."""
        return self.problem is None or self.pending == self.refused

    def followed_by(self, later: "EmbedOutcome") -> "EmbedOutcome":
        """Return the outcome of both together."""
        return replace(later, embedded=self.embedded + later.embedded)


class Embedding:
    """Gives the chunks of a table set their vectors.

    `refresh` is awaited between two batches; it says whether chunks have come or gone meanwhile.
    """

    def __init__(
        self,
        tables: TableSet,
        embedder: EmbedderAdapter,
        space: EmbeddingSpace,
        *,
        is_local: bool,
        now_ms: Callable[[], int],
        progress: Callable[[int, int], None],
        refresh: Callable[[], Awaitable[bool]],
    ) -> None:
        self._tables = tables
        self._embedder = embedder
        self._space = space
        self._batch = FEW_TEXTS if is_local else MANY_TEXTS
        self._now_ms = now_ms
        self._progress = progress
        self._refresh = refresh
        self._embedded = 0
        self._refused: set[int] = set()

    async def run(self) -> EmbedOutcome:
        """Embed every chunk without a vector; each batch is stored whole before the next is asked for.

        A provider that fails stops the work and is named in the outcome: what was embedded before stays.
        """
        if not await self._tables.read(index.count_pending):
            return EmbedOutcome()
        problem = None
        try:
            await self._by_job()
            problem = await self._by_batches()
        except EmbeddingError as error:
            problem = str(error)
        left = await self._tables.read(index.count_pending)
        if not left or problem is None:
            return EmbedOutcome(embedded=self._embedded, pending=left)
        if len(self._refused) == left:
            refused = await self._tables.read(partial(index.places_of, chunk_ids=sorted(self._refused)))
            problem = f"{', '.join(refused[:NAMED_PLACES])}: {problem}"
        return EmbedOutcome(
            embedded=self._embedded, pending=left, problem=problem, refused=len(self._refused)
        )

    async def _by_batches(self) -> str | None:
        """Embed batch by batch, and return what was wrong first; texts may have been left out then.

        One that fails is tried again in halves, after the others. So a text that the provider refuses keeps
        no other from its vector, and those beside it are not paid for anew by every sync.
        """
        problem: str | None = None
        failures = done = 0
        parts = await self._parts()
        total = sum(map(len, parts))
        self._progress(done, total)
        while parts:
            part = parts.popleft()
            refusal = await self._refusal(part)
            if refusal is not None:
                problem, failures = problem or refusal, failures + 1
                if failures == FAILURES_IN_A_ROW:
                    return problem
                parts.extend(self._halves(part))
                continue
            failures = 0
            done += len(part)
            self._progress(done, total)
            if parts and await self._refresh():
                parts, done = await self._parts(), 0
                total = sum(map(len, parts))
        return problem

    async def _parts(self) -> deque[Sequence[int]]:
        """Return what waits, in batches, without what was refused."""
        pending = await self._tables.read(index.pending_chunks)
        waiting = [chunk_id for chunk_id in pending if chunk_id not in self._refused]
        return deque(waiting[start : start + self._batch] for start in range(0, len(waiting), self._batch))

    def _halves(self, part: Sequence[int]) -> Sequence[Sequence[int]]:
        """Return a part in two; one that cannot be divided is refused for good, as far as this sync goes."""
        if len(part) == 1:
            self._refused.update(part)
            return ()
        middle = len(part) // 2
        return part[:middle], part[middle:]

    async def _refusal(self, part: Sequence[int]) -> str | None:
        """Embed a part, or return why that failed if it may go better with less."""
        try:
            await self._embed(part, self._embed_batch)
        except (EmbedderUnavailable, DimensionMismatch):
            raise
        except EmbeddingError as error:
            return str(error)
        return None

    async def _by_job(self) -> None:
        """Leave what there is to the provider's jobs, if it has them; what a job fails to do is left."""
        embedder = self._embedder
        if not isinstance(embedder, SupportsJobs):
            return
        waiting = await self._tables.read(index.pending_chunks)
        for start in range(0, len(waiting), embedder.job_limit):
            part = waiting[start : start + embedder.job_limit]
            if not embedder.takes_jobs(len(part)):
                return
            self._progress(start, len(waiting))
            try:
                await self._embed(part, embedder.embed_job)
            except EmbeddingPending:
                raise
            except EmbeddingError:  # the embedder counts it, and its status tells of it
                return

    async def _embed(self, chunk_ids: Sequence[int], ask: Ask) -> None:
        """Give these chunks their vectors."""
        texts = await self._tables.read(partial(index.texts_to_embed, chunk_ids=chunk_ids))
        if not texts:  # another process was here
            return
        inputs = [EmbedderInput(text=text, id=digest) for digest, text in texts.items()]
        vectors = await ask(inputs)
        if len(vectors) != len(inputs):
            problem = f"it returned {len(vectors)} vectors for {len(inputs)} texts"
            raise EmbeddingError(self._space.provider, self._space.model, problem)
        await self._store(chunk_ids, dict(zip(texts, vectors, strict=True)))

    async def _embed_batch(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        return await answer_within(BATCH_TIMEOUT_S, self._embedder.embed_batch(inputs), self._space)

    async def _store(self, chunk_ids: Sequence[int], vectors: Mapping[str, Sequence[float]]) -> None:
        for start in range(0, len(chunk_ids), STORED_CHUNKS):
            store = partial(
                index.store_vectors,
                space=self._space,
                chunk_ids=chunk_ids[start : start + STORED_CHUNKS],
                vectors=vectors,
                now_ms=self._now_ms(),
            )
            if not await self._tables.write(store):
                raise EmbedderUnavailable(self._space.provider, self._space.model, MOVED, TWO_FOLDERS)
        self._embedded += len(vectors)
