"""Answers a query from the server: both legs in SQL, and the builtin memory's ranking."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import partial

from composable_memory.errors import EmbeddingError
from composable_memory.interfaces import Clock, EmbedderAdapter
from composable_memory.query.filters import has_all_phrases, holds_line_of, memory_types
from composable_memory.time.local_time import LOCAL_TIME
from composable_memory.types import Degradation, DegradationCode, SearchAnswer, SearchFilters, SearchOptions
from composable_memory_adapters.builtin.search import hybrid
from composable_memory_adapters.builtin.search.filtering import (
    FileRow,
    Row,
    days_of_files,
    folded,
    newest_first,
    of_types,
)
from composable_memory_adapters.builtin.search.ranking import (
    COMPARED_WHOLE,
    Candidates,
    Near,
    Page,
    RankingPolicy,
    listed_page,
    make_page,
    to_judge,
)
from composable_memory_adapters.builtin.search.reranking import Reranked, Reranking
from composable_memory_adapters.builtin.search.searcher import DEEPER_FOR_BOTH, EMBED_TIMEOUT_S, WORDLESS
from composable_memory_adapters.builtin.search.time_matching import (
    MOST_DAYS_LISTED,
    Dated,
    asked_time,
    dated_of,
    spellings,
    subject_of,
)
from composable_memory_adapters.builtin.settings import QuerySettings
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace, query_vector
from composable_memory_adapters.postgres import vector_index
from composable_memory_adapters.postgres.keywords import Keywords
from composable_memory_adapters.postgres.passage_tokens import direction_of
from composable_memory_adapters.postgres.server import Connection, Server
from composable_memory_adapters.postgres.snapshot import (
    Times,
    WorkspaceState,
    read_places,
    read_snapshot,
    read_state,
    read_times,
    said_between,
    timed_paths,
)
from composable_memory_adapters.postgres.writing import OTHER_SPACE, space_id
from composable_memory_adapters.text.query_terms import analyse
from composable_memory_ops_logs.plurals import counted

FILES = "SELECT path, source, mtime, day, tags, type FROM notes WHERE tenant = $1"
PASSAGES = """
SELECT id, path, start_line, start_char FROM passages
WHERE tenant = $1 AND {} = ANY ($2) ORDER BY path COLLATE "C", start_line, start_char
"""
IN_FILES, AMONG = PASSAGES.format("path"), PASSAGES.format("id")
TEXTS = "SELECT id, text FROM passages WHERE tenant = $1 AND id = ANY ($2)"
MAY_RETAIN = f"{TEXTS} AND text ~ '[-*+][ \t][WBOS][(: @,：]'"


async def passing(
    connection: Connection, tenant: int, filters: SearchFilters, *, zone: tzinfo | None, keywords: Keywords
) -> list[int]:
    """Return the passages that pass `filters`: the first of each note, newest note first, then the rest."""
    files: list[FileRow] = [tuple(row) for row in await connection.fetch(FILES, tenant)]
    timed, said = frozenset[str](), frozenset[int]()
    if filters.since is not None or filters.until is not None:
        timed = await timed_paths(connection, tenant)
        between = await said_between(connection, tenant, filters.since, filters.until) if timed else ()
        said = frozenset(one.id for one in between)
    days = await asyncio.to_thread(lambda: days_of_files(files, filters, zone=zone, timed=timed))
    sources = dict(days.keys())
    # Few passages have a phrase, and if there is no other filter all are in these files.
    phrases = [await keywords.having(phrase) for phrase in filters.phrases]
    looked_for = (AMONG, frozenset.intersection(*phrases)) if phrases else (IN_FILES, sources.keys())
    rows: list[Row] = [
        (id_, path, sources[path], start, char)
        for id_, path, start, char in await connection.fetch(looked_for[0], tenant, sorted(looked_for[1]))
        if path in sources and (path not in timed or id_ in said)
    ]
    if retained := memory_types(filters.types):
        of_notes = [row[0] for row in rows if row[2] == "memory"]
        texts = await connection.fetch(MAY_RETAIN, tenant, of_notes)
        holding = await asyncio.to_thread(
            lambda: {id_ for id_, text in texts if holds_line_of(text, retained)}
        )
        rows = of_types(rows, files, filters.types, holding)
    if phrases:
        texts = await connection.fetch(TEXTS, tenant, [row[0] for row in rows])
        holding = await asyncio.to_thread(
            lambda: {id_ for id_, text in texts if has_all_phrases(folded(text), filters.phrases)}
        )
        rows = [row for row in rows if row[0] in holding]
    for word in filters.without:
        having = await keywords.having(word)
        rows = [row for row in rows if row[0] not in having]
    return await asyncio.to_thread(newest_first, rows, days)


KEYWORD_ENGINE = "postings"
VECTOR_ENGINE = "pgvector"

# Compute the product of each vector once; sorting by it and returning it would compute it twice.
NEAREST = """
SELECT nearest.id, -distance AS cosine, passages.id FROM (
  SELECT id, hash, vector <#> $2 AS distance FROM vectors WHERE tenant = $1 ORDER BY distance, id LIMIT $3
) AS nearest JOIN passages ON passages.tenant = $1 AND passages.hash = nearest.hash
ORDER BY distance, nearest.id, passages.id
"""


class Searching:
    """Searches one workspace on a server; concurrent calls are fine.

    Without an embedder, or if embedding a query fails, only keywords are used.
    """

    def __init__(
        self,
        server: Server,
        *,
        settings: QuerySettings,
        clock: Clock,
        embedder: EmbedderAdapter | None,
        space: EmbeddingSpace | None,
        embedder_problem: str | None,
        backend_id: str,
        has_both_sources: bool,
        reranking: Reranking | None,
    ) -> None:
        self._server = server
        self._has_both_sources = has_both_sources
        self._settings = settings
        self._clock = clock
        self._embedder = embedder
        self._space = space
        self._embedder_problem = embedder_problem
        self._id = backend_id
        self._depth = max(hybrid.CANDIDATES, settings.hybrid.candidate_multiplier * settings.max_results)
        self._reranking = reranking
        self._times: tuple[int, Times] | None = None
        self.state: WorkspaceState | None = None
        """The workspace at the last look."""

    async def answer(self, query: str, options: SearchOptions | None, *, tenant: int) -> SearchAnswer:
        """Return the passages that answer `query`, best first, and the reasons why there may be too few.

        Raises:
            BackendError: the server does not answer, or rejects the request.
        """
        defaults = self._settings
        options = options or SearchOptions(max_results=defaults.max_results, min_score=defaults.min_score)
        if not query.strip():
            return await self._listed(options, tenant=tenant)
        subject = subject_of(query.strip(), options.intent)
        vector, problem = await self._embedded(subject)
        async with self._server.reading("search", tenant=tenant) as connection:
            state = await self.look(connection, tenant)
            if vector is not None and self._space and state.space != space_id(self._space):
                vector = None
                problem = OTHER_SPACE if state.space else None
            keywords = Keywords(connection, tenant, state)
            asked = await keywords.with_compounds(analyse(subject))
            among = await self._passing(connection, tenant, keywords, options) if options.filters else None
            dated = await self._dated(connection, tenant, keywords, subject, options, among)
            depth, page = self._depth, Page()
            has_both = self._has_both_sources or 0 < state.transcripts < state.notes
            policy = RankingPolicy(
                hybrid=defaults.hybrid, today=self._today(options.now), balances_sources=has_both
            )
            direction = direction_of(vector) if vector else None
            is_small = among is not None and direction is not None and len(among) <= COMPARED_WHOLE
            compared = among if among is not None and is_small else ()
            is_reranked = self._reranking is not None and await self._reranking.is_on()
            reranked: Reranked | None = None
            while True:
                by_words = None
                if defaults.hybrid.enabled or direction is None:
                    by_words = await keywords.search(
                        asked,
                        limit=depth,
                        reserved="memory" if has_both else None,
                        among=among,
                        also=dated.ids if dated else (),
                        wordless=None if dated is None or dated.asked.is_all else WORDLESS,
                    )
                near, held = None, dict[int, list[int]]()
                if vector is not None and direction is not None:
                    deep = depth * (DEEPER_FOR_BOTH if has_both else 1)
                    near, held = await _nearest(connection, tenant, vector, direction, deep, state)
                found = Candidates(depth=depth, keyword=by_words, near=near)
                reader = await read_snapshot(
                    connection,
                    tenant,
                    ids=[*(hit.id for hit in (by_words.hits if by_words else ())), *compared],
                    held=held,
                    direction=direction,
                    sample=state.sample,
                    is_dated=dated is not None,
                )
                if self._reranking is not None and is_reranked:
                    show = partial(
                        to_judge,
                        reader,
                        found=found,
                        settings=defaults.hybrid,
                        keywords=asked,
                        among=among,
                        dated=dated,
                    )
                    shown = await asyncio.to_thread(show)
                    reranked = await self._reranking.rerank(shown, subject, asked, by_words)
                make = partial(
                    make_page,
                    reader,
                    found=found,
                    after=page,
                    options=options,
                    policy=policy,
                    keywords=asked,
                    among=among,
                    dated=dated,
                    fused=reranked.fused if reranked else None,
                )
                page = await asyncio.to_thread(make)
                if page.is_enough or found.are_all or (among is not None and depth >= len(among)):
                    break
                depth *= 2
        engines = {"keyword": KEYWORD_ENGINE} if by_words else {}
        if near:
            engines["vector"] = VECTOR_ENGINE
        degraded = [*self._degradations(state, problem)]
        if reranked and reranked.by:
            engines["rerank"] = reranked.by
        if reranked and reranked.problem:
            degraded.append(self._degradation("not-reranked", reranked.problem))
        return SearchAnswer(
            results=page.results,
            degraded=tuple(degraded),
            engines=engines,
            is_filtered=True,
        )

    def forget(self) -> None:
        """Forget what is known of the workspace, because it was replaced by another."""
        self.state = self._times = None

    async def look(self, connection: Connection, tenant: int) -> WorkspaceState:
        """Read the state of the workspace and keep it."""
        self.state = await read_state(connection, tenant, known=self.state)
        return self.state

    def _today(self, now: datetime | None) -> date:
        return (now or self._clock()).astimezone(UTC).date()

    async def _embedded(self, text: str) -> tuple[Sequence[float] | None, str | None]:
        """Return the vector of a query, None if it is all 0, or why there is none."""
        embedder, space = self._embedder, self._space
        if embedder is None or space is None:
            return None, None
        try:
            return await query_vector(embedder, space, text, within_s=EMBED_TIMEOUT_S), None
        except EmbeddingError as error:
            return None, str(error)

    async def _dated(
        self,
        connection: Connection,
        tenant: int,
        keywords: Keywords,
        subject: str,
        options: SearchOptions,
        among: Sequence[int] | None,
    ) -> Dated | None:
        """Return what the workspace has from the requested time; None if no time is requested."""
        asked = asked_time(subject, options.intent, options.now or self._clock().astimezone(LOCAL_TIME))
        if asked is None or self.state is None:
            return None
        revision = self.state.revision
        if self._times is None or self._times[0] != revision:
            self._times = (revision, await read_times(connection, tenant))
        times = self._times[1]
        short = [span for span in asked.spans if span.days <= MOST_DAYS_LISTED]
        if times.timed and short:
            days = min(span.first for span in short), max(span.last for span in short)
            first, last = (datetime.combine(day, time.min).replace(tzinfo=asked.zone) for day in days)
            said = await said_between(connection, tenant, first, last + timedelta(days=1, seconds=-1))
            times = replace(times, said=said)
        saying = await keywords.saying(spellings(asked))
        dated = dated_of(times, asked, saying)
        if dated.days:
            places = await read_places(connection, tenant, dated.days)
            dated = dated_of(replace(times, places=places), asked, saying)
        return dated if among is None else dated.among(among)

    async def _passing(
        self, connection: Connection, tenant: int, keywords: Keywords, options: SearchOptions
    ) -> list[int]:
        zone = (options.now or self._clock().astimezone(LOCAL_TIME)).tzinfo
        return await passing(connection, tenant, options.filters, zone=zone, keywords=keywords)

    async def _listed(self, options: SearchOptions, *, tenant: int) -> SearchAnswer:
        """Return what passes the filters when nothing else is requested, newest note first."""
        async with self._server.reading("search", tenant=tenant) as connection:
            state = await self.look(connection, tenant)
            ids = await self._passing(connection, tenant, Keywords(connection, tenant, state), options)
            wanted = ids[: options.max_results]
            reader = await read_snapshot(connection, tenant, ids=wanted, held={}, direction=None, sample=())
        page = await asyncio.to_thread(partial(listed_page, reader, ids=wanted, options=options))
        degraded = (*self._degradations(state, None),)
        return SearchAnswer(results=page.results, degraded=degraded, is_filtered=True)

    def _degradations(self, state: WorkspaceState, problem: str | None) -> Iterable[Degradation]:
        if not state.notes:
            yield self._degradation("never-indexed", "no note has been indexed yet; run `cmem index`")
        if self._embedder is None:
            why = self._embedder_problem or "no embedding provider is configured"
            yield self._degradation("keyword-only", why)
        elif problem is not None:
            yield self._degradation("keyword-only", problem)
        elif state.pending:
            yield self._degradation(
                "vectors-pending",
                f"no vector yet for {state.pending} of {counted(state.passages, 'passage')};"
                " `cmem index` continues",
            )
        if not self._settings.hybrid.enabled and self._embedder is not None:
            yield self._degradation("vector-only", "hybrid search is switched off (query.hybrid.enabled)")

    def _degradation(self, code: DegradationCode, reason: str) -> Degradation:
        return Degradation(backend_id=self._id, code=code, reason=reason)


async def _nearest(
    connection: Connection,
    tenant: int,
    vector: Sequence[float],
    direction: bytes,
    depth: int,
    state: WorkspaceState,
) -> tuple[Near, dict[int, list[int]]]:
    """Return the nearest vectors, and the passages of each."""
    cosines, held = dict[int, float](), dict[int, list[int]]()
    if state.indexed and state.space and depth <= vector_index.MOST:
        rows = await vector_index.nearest(connection, tenant, state.space, direction, depth)
    else:
        rows = await connection.fetch(NEAREST, tenant, direction, depth)
    for id_, cosine, passage in rows:
        cosines[id_] = cosine
        held.setdefault(id_, []).append(passage)
    near = Near(vector=vector, embeddings=[*cosines.items()], engine=VECTOR_ENGINE, followed=state.followed)
    return near, held
