"""Embeds the chunks of an index that have no vector yet, in batches, newest notes first."""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from composable_memory.errors import DimensionMismatch, EmbedderUnavailable, EmbeddingError, EmbeddingPending
from composable_memory.interfaces import Clock, EmbedderAdapter, SupportsJobs
from composable_memory.vector_values import EmbedderInput
from composable_memory_adapters.builtin.store import index_writes
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace, answer_within
from composable_memory_adapters.builtin.store.index_meta import milliseconds
from composable_memory_adapters.builtin.store.schema import Tables
from composable_memory_adapters.sqlite_file import SqliteFile
from composable_memory_ops_logs.plurals import counted
from composable_memory_ops_logs.quick_dataclass import dataclass

Ask = Callable[[Sequence[EmbedderInput]], Awaitable[Sequence[Sequence[float]]]]

FEW_TEXTS = 64
"""Batch size for a provider on this machine: small, so that progress is stored often."""
MANY_TEXTS = 256
"""Batch size for a remote provider: enough for several concurrent requests."""
STORED_CHUNKS = 2000
BATCH_TIMEOUT_S = 600.0
NAMED_PLACES = 5
FAILURES_IN_A_ROW = 4
"""Give up after this many: two bad texts alone can make at most three batches in a row fail."""
MOVED = "another process uses this index with a different embedder"
TWO_FOLDERS = "give each its own state folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedOutcome:
    """How many texts were embedded, how many chunks are still pending, and the first problem.

    `refused` of the pending chunks were refused one by one, so retrying would not help.
    """

    embedded: int = 0
    pending: int = 0
    problem: str | None = None
    refused: int = 0

    @property
    def is_as_far_as_possible(self) -> bool:
        """Return whether nothing is pending except what the provider refuses."""
        return self.problem is None or self.pending == self.refused

    def followed_by(self, later: "EmbedOutcome") -> "EmbedOutcome":
        """Return this outcome and a later one combined."""
        return replace(later, embedded=self.embedded + later.embedded)


class Embedding:
    """Embeds the pending chunks of one set of tables, a batch at a time.

    embedding = Embedding(file, LIVE, embedder, space, is_local=True, clock=clock)
    await embedding.list_waiting()
    while not embedding.is_finished:
        await embedding.embed_next()
    outcome = await embedding.outcome()
    """

    def __init__(
        self,
        file: SqliteFile,
        tables: Tables,
        embedder: EmbedderAdapter,
        space: EmbeddingSpace,
        *,
        is_local: bool,
        clock: Clock,
    ) -> None:
        self._file = file
        self._tables = tables
        self._embedder = embedder
        self._jobs = embedder if isinstance(embedder, SupportsJobs) else None
        self._space = space
        self._batch = FEW_TEXTS if is_local else MANY_TEXTS
        self._clock = clock
        self._waiting: list[int] = []
        self._next = 0
        self._retries: deque[Sequence[int]] = deque()
        self._refused: set[int] = set()
        self._failures = 0
        self._embedded = 0
        self._problem: str | None = None
        self.done = 0

    @property
    def total(self) -> int:
        """Return how many chunks are done or pending."""
        return self.done + len(self._waiting) - self._next + sum(map(len, self._retries))

    @property
    def is_finished(self) -> bool:
        """Return whether no batch is left to embed."""
        return self._next == len(self._waiting) and not self._retries

    async def list_waiting(self) -> None:
        """List the chunks without a vector; call it again after chunks were added or removed."""
        pending = await self._file.read(index_writes.pending_chunks, self._tables)
        self._waiting = [chunk_id for chunk_id in pending if chunk_id not in self._refused]
        self._next = 0
        self._retries.clear()

    async def embed_next(self) -> None:
        """Embed the next batch and store it whole.

        If the provider fails, the work ends and `outcome` has the problem; earlier batches stay stored.
        """
        try:
            if self._jobs is not None:
                await self._embed_by_job(self._jobs)
            else:
                await self._embed_batch()
        except EmbeddingError as error:
            self._end(str(error))

    async def outcome(self) -> EmbedOutcome:
        """Return what was done, and how much is left."""
        left = await self._file.read(index_writes.count_pending, self._tables)
        problem = self._problem
        if not left or problem is None:
            return EmbedOutcome(embedded=self._embedded, pending=left)
        if len(self._refused) == left:
            refused = await self._file.read(index_writes.places_of, self._tables, sorted(self._refused))
            problem = f"{', '.join(refused[:NAMED_PLACES])}: {problem}"
        return EmbedOutcome(
            embedded=self._embedded, pending=left, problem=problem, refused=len(self._refused)
        )

    def _end(self, problem: str) -> None:
        self._problem = problem
        self._waiting, self._next = [], 0
        self._retries.clear()

    async def _embed_by_job(self, embedder: SupportsJobs) -> None:
        """Embed the next texts by a batch job; what jobs do not take, or fail to do, is listed again."""
        part = self._waiting[self._next : self._next + embedder.job_limit]
        if embedder.takes_jobs(len(part)):
            try:
                await self._embed(part, embedder.embed_job)
            except EmbeddingPending:
                raise
            except EmbeddingError:  # the embedder counts it and reports it in its status
                pass
            else:
                self._next += len(part)
                self.done += len(part)
                if not self.is_finished:
                    return
        self._jobs = None
        await self.list_waiting()

    async def _embed_batch(self) -> None:
        """Embed a batch; if that fails, queue its halves for a retry after all others.

        So one text that the provider refuses does not block the others, and these are not paid for again by
        every sync.
        """
        part = self._take_batch()
        try:
            await self._embed(part, self._ask)
        except (EmbedderUnavailable, DimensionMismatch):
            raise
        except EmbeddingError as error:
            self._problem, self._failures = self._problem or str(error), self._failures + 1
            if self._failures == FAILURES_IN_A_ROW:
                self._end(self._problem)
            else:
                self._retries.extend(self._halves(part))
        else:
            self._failures = 0
            self.done += len(part)

    def _take_batch(self) -> Sequence[int]:
        if self._next == len(self._waiting):
            return self._retries.popleft()
        part = self._waiting[self._next : self._next + self._batch]
        self._next += len(part)
        return part

    def _halves(self, part: Sequence[int]) -> Sequence[Sequence[int]]:
        """Split a batch in two; a single text counts as refused for the rest of this sync."""
        if len(part) == 1:
            self._refused.update(part)
            return ()
        middle = len(part) // 2
        return part[:middle], part[middle:]

    async def _embed(self, chunk_ids: Sequence[int], ask: Ask) -> None:
        """Embed and store these chunks, if they still need it."""
        texts = await self._file.read(index_writes.texts_to_embed, self._tables, chunk_ids)
        if not texts:  # another process has embedded them
            return
        inputs = [EmbedderInput(text=text, id=digest) for digest, text in texts.items()]
        vectors = await ask(inputs)
        if len(vectors) != len(inputs):
            problem = f"it returned {counted(len(vectors), 'vector')} for {counted(len(inputs), 'text')}"
            raise EmbeddingError(self._space.provider, self._space.model, problem)
        await self._store(chunk_ids, dict(zip(texts, vectors, strict=True)))

    async def _ask(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        return await answer_within(BATCH_TIMEOUT_S, self._embedder.embed_batch(inputs), self._space)

    async def _store(self, chunk_ids: Sequence[int], vectors: Mapping[str, Sequence[float]]) -> None:
        for start in range(0, len(chunk_ids), STORED_CHUNKS):
            is_stored = await self._file.write(
                index_writes.store_vectors,
                self._tables,
                self._space,
                chunk_ids[start : start + STORED_CHUNKS],
                vectors,
                now_ms=milliseconds(self._clock()),
            )
            if not is_stored:
                raise EmbedderUnavailable(self._space.provider, self._space.model, MOVED, TWO_FOLDERS)
        self._embedded += len(vectors)
