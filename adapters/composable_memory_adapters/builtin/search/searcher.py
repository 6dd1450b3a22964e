"""Answers a query from the index file: runs both legs at once, fuses them, and reports what is missing.

The number of candidates does not depend on how many results are wanted, so a short answer is the beginning of
the long one. Only if the candidates run out is the number doubled, and new results follow those already
found.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from composable_memory.errors import BackendUnavailable, EmbeddingError
from composable_memory.interfaces import Clock, EmbedderAdapter, ProgressCallback
from composable_memory.supervision.tasks import all_of
from composable_memory.time.local_time import LOCAL_TIME
from composable_memory.types import (
    Degradation,
    DegradationCode,
    MemorySource,
    SearchAnswer,
    SearchOptions,
    VectorStatus,
)
from composable_memory_adapters.builtin.search import hybrid, keyword_leg
from composable_memory_adapters.builtin.search.compound_words import with_compounds
from composable_memory_adapters.builtin.search.filtering import passing
from composable_memory_adapters.builtin.search.hybrid import FusedHit
from composable_memory_adapters.builtin.search.keyword_leg import KeywordAnswer
from composable_memory_adapters.builtin.search.ranking import (
    Candidates,
    Near,
    Page,
    RankingPolicy,
    listed_page,
    make_page,
    to_judge,
)
from composable_memory_adapters.builtin.search.reranking import FileTexts, Reranking
from composable_memory_adapters.builtin.search.time_matching import Dated, asked_time, find_dated, subject_of
from composable_memory_adapters.builtin.search.vector_search import VectorSearch
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.store import read_queries
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.read_queries import IndexPassages, PassageReader
from composable_memory_adapters.sqlite_file import Connection, SqliteFile
from composable_memory_adapters.text import compounds
from composable_memory_adapters.text.query_terms import KeywordQuery, analyse
from composable_memory_ops_logs.plurals import counted
from composable_memory_ops_logs.quick_dataclass import dataclass

EMBED_TIMEOUT_S = 3.0
"""How long a query waits for its vector before it is answered by keywords alone."""
LOAD_TIMEOUT_S = 6.0
"""How long it waits if a local model must be loaded first; well within a backend's deadline."""

BACKEND_ID = "builtin"
KEYWORD_ENGINE = "fts5"

NAMED_FILES = 3

ASKED_AGAIN = 3
"""How often a search restarts because a note was written meanwhile."""

WORDLESS = 16
"""How many passages of the time asked for are candidates without a matching word, if the query has words."""

DEEPER_FOR_BOTH = 4
"""How many times more neighbours to fetch if there are transcripts, so that notes are among them."""

First = TypeVar("First")
Second = TypeVar("Second")


@dataclass(slots=True, kw_only=True)
class _Asked:
    """A query in progress. `vector` is None if the query has no direction, or for the reason in `problem`."""

    text: str
    keywords: KeywordQuery
    among: Sequence[int] | None = None
    """The passages that pass the filters; None without filters."""
    dated: Dated | None = None
    narrowed_at: int | None = None
    """The revision of the index at which both were read."""
    by_word: bool = False
    revision: int | None = None
    """The revision of the index that the keyword leg has searched; None before."""
    is_embedded: bool = False
    vector: Sequence[float] | None = None
    problem: str | None = None
    reranked_by: str | None = None
    rerank_problem: str | None = None
    began: float = field(default_factory=perf_counter)
    legs: dict[str, tuple[float, float]] = field(default_factory=dict)

    @contextmanager
    def timed(self, leg: str) -> Iterator[None]:
        """Measure the time of a leg; one that is repeated counts from its first start."""
        start = self.legs[leg][0] if leg in self.legs else (perf_counter() - self.began) * 1000
        try:
            yield
        finally:
            self.legs[leg] = (start, (perf_counter() - self.began) * 1000 - start)


class Searcher:
    """Searches one index file. Concurrent calls are fine; a cancelled one leaves nothing behind.

    `embedder` and `space` are given together; without them, or if embedding fails, keywords answer alone.
    `embedder_problem` says why there is none. A query waits at most `embed_timeout_s` for its vector, and
    `load_timeout_s` until the first one was computed. `clock` gives the day from which ages are counted.
    While `is_paused`, queries are not embedded: the index holds vectors of another space.
    """

    def __init__(
        self,
        file: SqliteFile,
        *,
        settings: BuiltinSettings,
        clock: Clock,
        embedder: EmbedderAdapter | None,
        space: EmbeddingSpace | None,
        embedder_problem: str | None = None,
        embed_timeout_s: float = EMBED_TIMEOUT_S,
        load_timeout_s: float = 0.0,
        is_paused: Callable[[], bool] = lambda: False,
        state_dir: Path | None = None,
        is_long_lived: bool = False,
    ) -> None:
        self._file = file
        self._settings = settings
        self._clock = clock
        self._has_both_sources = len(settings.sources) > 1
        self._has_keywords = settings.store.fts.enabled
        self._is_paused = is_paused
        self._space = space
        self._generation: int | None = None
        self._is_long_lived = is_long_lived
        self._reranking: Reranking | None = None
        if state_dir is not None and settings.query.rerank != "off":
            texts = FileTexts(file=file, state_dir=state_dir)
            self._reranking = Reranking(texts, choice=settings.query.rerank, state_dir=state_dir)
        self._vectors: VectorSearch | None = None
        if settings.store.vector.enabled and embedder is not None and space is not None:
            self._vectors = VectorSearch(
                file,
                settings=settings.store.vector,
                embedder=embedder,
                space=space,
                embed_timeout_s=embed_timeout_s,
                load_timeout_s=load_timeout_s,
                state_dir=state_dir,
            )
        self._restriction = _restriction(settings, self._vectors is not None, embedder_problem)
        query = settings.query
        self._depth = max(hybrid.CANDIDATES, query.hybrid.candidate_multiplier * query.max_results)

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Return the passages that answer `query`, best first, and every way in which the answer may be
        incomplete.

        Raises:
            IndexProblem: the index cannot be read.
        """
        text = query.strip()
        defaults = self._settings.query
        options = options or SearchOptions(max_results=defaults.max_results, min_score=defaults.min_score)
        if not text:
            return await self._listed(options) if options.filters else SearchAnswer(results=())
        subject = subject_of(text, options.intent)
        asked = _Asked(text=subject, keywords=await self._keywords(subject), by_word=options.by_word)
        await self._narrow(asked, options)
        depth, page, policy = self._depth, Page(), self._policy(options.now)
        generation, has_caught_up, begun = await self._known_generation(), False, 0
        while True:
            found = await self._candidates(asked, depth)
            make = partial(
                make_page,
                found=found,
                after=page,
                options=options,
                policy=policy,
                keywords=asked.keywords,
                among=asked.among,
                dated=asked.dated,
                fused=await self._reranked(asked, found),
            )
            (made_of, revision), page_made = await self._read_page(make)
            # Only once: while the index is being filled with vectors, there is always a later revision.
            is_older = not begun and asked.narrowed_at not in (None, revision)
            is_overtaken = page_made.lacks_some or is_older
            if made_of != generation or (is_overtaken and begun < ASKED_AGAIN):
                # The index was rebuilt or a note rewritten meanwhile, so the candidates are out of date.
                begun += 1
                self._generation = generation = made_of
                depth, page = self._depth, Page()
                await self._narrow(asked, options)
                continue
            if not has_caught_up and await self._catch_up(found, revision):
                has_caught_up = True  # only once: an index that is being written changes all the time
                continue
            page = page_made
            if page.is_enough or found.are_all or (asked.among is not None and depth >= len(asked.among)):
                break
            depth *= 2
        if self._reranking and self._is_long_lived and await self._reranking.is_on():
            self._reranking.follow(revision)
        return SearchAnswer(
            results=page.results,
            degraded=(*self._degradations(asked, found), *_damage(page)),
            engines=_engines(found) | ({"rerank": asked.reranked_by} if asked.reranked_by else {}),
            is_filtered=True,
            legs=asked.legs,
        )

    async def _keywords(self, text: str) -> KeywordQuery:
        """Analyse the query, adding compounds in languages that have them."""
        query = analyse(text)
        if not self._has_keywords or query.language not in compounds.ENDINGS:
            return query
        return await self._file.read(partial(with_compounds, query=query))

    async def _narrow(self, asked: _Asked, options: SearchOptions) -> None:
        """Find the passages that pass the filters, and those that match the time asked for."""
        time = asked_time(asked.text, options.intent, options.now or self._clock().astimezone(LOCAL_TIME))
        if not (options.filters or time):
            return

        def narrow(connection: Connection) -> None:
            asked.narrowed_at = read_queries.revision(connection)
            asked.among = self._passing(connection, options) if options.filters else None
            if time:
                dated = find_dated(connection, asked=time, has_keywords=self._has_keywords)
                asked.dated = dated if asked.among is None else dated.among(asked.among)

        await self._file.read(narrow)

    def _passing(self, connection: Connection, options: SearchOptions) -> Sequence[int]:
        """Return the ids of the passages that pass the filters."""
        return passing(
            connection,
            filters=options.filters,
            zone=(options.now or self._clock().astimezone(LOCAL_TIME)).tzinfo,
            has_keywords=self._has_keywords,
        )

    async def _listed(self, options: SearchOptions) -> SearchAnswer:
        """Answer a query that consists of filters only, newest note first."""

        def listed(connection: Connection) -> Page:
            return listed_page(self._reader(connection), self._passing(connection, options), options)

        page = await self._file.read(listed)
        degraded = (*self.restrictions, *_damage(page))
        return SearchAnswer(results=page.results, degraded=degraded, is_filtered=True)

    async def warm(self) -> None:
        """Load everything that a first search would load."""
        if self._vectors:
            await self._vectors.warm()

    async def read_ahead(self, progress: ProgressCallback | None = None) -> str | None:
        """Let the reranker read what is new in the index; return why it could not, if so.

        A long-lived memory returns at once, and the reranker reads in the background.
        """
        if self._reranking is None or not await self._reranking.is_on():
            return None
        if not self._is_long_lived:
            return await self._reranking.read_all(progress)
        self._reranking.follow(await self._file.read(read_queries.revision))
        return None

    async def close(self) -> None:
        """Close the vector store and the reranker; the file belongs to whoever opened it."""
        if self._reranking:
            await self._reranking.close()
        if self._vectors:
            await self._vectors.close()

    @property
    def restrictions(self) -> tuple[Degradation, ...]:
        """Return the ways in which every answer is limited, whatever the query."""
        return (self._restriction,) if self._restriction else ()

    @property
    def has_failed(self) -> bool:
        """Return whether vector search failed recently; it may not be retried for a while."""
        return self._vectors is not None and self._vectors.has_failed

    def vector_status(self) -> VectorStatus:
        """Return whether vectors are searched, and any problem with the configured engine."""
        if self._vectors:
            return self._vectors.status()
        return VectorStatus(enabled=self._settings.store.vector.enabled, available=False)

    def _policy(self, now: datetime | None) -> RankingPolicy:
        return RankingPolicy(
            hybrid=self._settings.query.hybrid,
            today=(now or self._clock()).astimezone(UTC).date(),
            balances_sources=self._has_both_sources,
        )

    async def _read_page(self, make: Callable[[PassageReader], Page]) -> tuple[tuple[int, int], Page]:
        """Return a page, and the generation and revision of the index that it was made from."""
        return await self._file.read(
            lambda connection: (read_queries.state(connection), make(self._reader(connection)))
        )

    def _reader(self, connection: Connection) -> PassageReader:
        held = self._vectors.held if self._vectors else None
        return IndexPassages(connection=connection, space=self._space, held=held)

    async def _catch_up(self, found: Candidates, revision: int) -> bool:
        """Let the vector store catch up if the index has changed; return whether to search again."""
        if self._vectors is None or found.near is None or found.near.followed.revision == revision:
            return False
        return await self._vectors.catch_up()

    async def _known_generation(self) -> int:
        if self._generation is None:
            self._generation = await self._file.read(read_queries.generation)
        return self._generation

    async def _candidates(self, asked: _Asked, depth: int) -> Candidates:
        """Query both legs at once; with hybrid search off, keywords are used only if there are no vectors."""
        keywords_too = self._has_keywords and (self._settings.query.hybrid.enabled or not self._vectors)
        keyword, near = await all_of(
            self._by_keyword(asked, depth) if keywords_too else _nothing(),
            self._by_meaning(self._vectors, asked, depth) if self._vectors else _nothing(),
        )
        if keyword is None and near is None and self._has_keywords:
            keyword = await self._by_keyword(asked, depth)
        if self._vectors and near and keyword and near.followed.revision != asked.revision:
            # The index has changed between the legs: only the vector leg is asked again.
            near = await self._by_meaning(self._vectors, asked, depth, behind=near)
        return Candidates(depth=depth, keyword=keyword, near=near)

    async def _reranked(self, asked: _Asked, found: Candidates) -> Sequence[FusedHit] | None:
        """Return the fused candidates, rescored by the reranker; None if there is none."""
        if self._reranking is None or not await self._reranking.is_on():
            return None
        settings = self._settings.query.hybrid
        shown = partial(
            to_judge,
            found=found,
            settings=settings,
            keywords=asked.keywords,
            among=asked.among,
            dated=asked.dated,
        )
        candidates = await self._file.read(lambda connection: shown(self._reader(connection)))
        if not candidates.texts:
            return candidates.fused
        with asked.timed("rerank"):
            reranked = await self._reranking.rerank(candidates, asked.text, asked.keywords, found.keyword)
        asked.rerank_problem, asked.reranked_by = reranked.problem, reranked.by
        return reranked.fused

    async def _by_keyword(self, asked: _Asked, depth: int) -> KeywordAnswer:
        def search(connection: Connection) -> tuple[int, KeywordAnswer]:
            keyword_leg.prepare(connection)
            reserved: MemorySource | None = "memory" if self._has_both_sources else None
            return read_queries.revision(connection), keyword_leg.search(
                connection,
                asked.keywords,
                limit=depth,
                reserved=reserved,
                among=asked.among,
                also=asked.dated.ids if asked.dated else (),
                wordless=None if asked.dated is None or asked.dated.asked.is_all else WORDLESS,
                by_word=asked.by_word,
            )

        with asked.timed("keyword"):
            asked.revision, answer = await self._file.read(search)
        return answer

    async def _by_meaning(
        self, vectors: VectorSearch, asked: _Asked, depth: int, *, behind: Near | None = None
    ) -> Near | None:
        if self._is_paused():
            return None
        if not asked.is_embedded:
            asked.is_embedded = True
            try:
                with asked.timed("embed"):
                    asked.vector = await vectors.embed(asked.text)
            except EmbeddingError as error:
                asked.problem = str(error)
        vector = asked.vector
        if vector is None:
            return None
        try:
            with asked.timed("vector"):
                if behind is not None and not await vectors.catch_up():
                    return behind  # another search is catching up
                return await vectors.near(vector, depth * (DEEPER_FOR_BOTH if self._has_both_sources else 1))
        except BackendUnavailable as error:
            asked.problem = str(error)
            return None

    def _degradations(self, asked: _Asked, found: Candidates) -> Iterable[Degradation]:
        if asked.problem:
            yield _degradation("keyword-only" if found.keyword else "unavailable", asked.problem)
        elif self._restriction:
            yield self._restriction
        if asked.rerank_problem:
            yield _degradation("not-reranked", asked.rerank_problem)
        if found.near is None:
            return
        if self._vectors and self._vectors.engine_problem:
            answers = f"{found.near.engine} answers in place of {self._settings.store.vector.engine}"
            yield _degradation("engine-fallback", f"{answers}: {self._vectors.engine_problem}")
        counts = found.near.followed.counts
        if counts.pending:
            yield _degradation(
                "vectors-pending",
                f"no vector yet for {counts.pending} of {counted(counts.passages, 'passage')};"
                " `cmem index` continues",
            )


def _damage(page: Page) -> Iterable[Degradation]:
    """Name the files of passages that were found but are damaged."""
    if page.damaged:
        files = ", ".join(sorted(page.damaged)[:NAMED_FILES])
        yield _degradation(
            "damaged",
            f"passages of {files} were left out: the index is damaged there; `cmem index` repairs it",
        )


def _restriction(settings: BuiltinSettings, has_vectors: bool, problem: str | None) -> Degradation | None:
    """Return the way in which every answer is limited, whatever the query."""
    no_vectors = ""
    if not settings.store.vector.enabled:
        no_vectors = "vector search is switched off (store.vector.enabled)"
    elif not has_vectors:
        no_vectors = problem or "no embedding provider is configured"
    no_keywords = "" if settings.store.fts.enabled else "keyword search is switched off (store.fts.enabled)"
    if no_vectors and no_keywords:
        return _degradation("disabled", f"{no_vectors}, and {no_keywords}")
    if no_vectors:
        return _degradation("keyword-only", no_vectors)
    if no_keywords:
        return _degradation("vector-only", no_keywords)
    if not settings.query.hybrid.enabled:
        return _degradation("vector-only", "hybrid search is switched off (query.hybrid.enabled)")
    return None


def _degradation(code: DegradationCode, reason: str) -> Degradation:
    return Degradation(backend_id=BACKEND_ID, code=code, reason=reason)


def _engines(found: Candidates) -> dict[str, str]:
    engines = {"keyword": KEYWORD_ENGINE} if found.keyword else {}
    if found.near:
        engines["vector"] = found.near.engine
    return engines


async def _nothing() -> None:
    return None
