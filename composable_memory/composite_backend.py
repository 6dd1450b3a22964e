"""A memory made of parts: any store of vectors and any graph, with whatever embeds and extracts.

It knows its parts by their interfaces only. Contents come in through the ingest pipeline; a question goes to
the vectors and to the graph at once, and their answers become one list.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TypeAlias

from composable_memory.composite_results import QueryWords, from_graph, from_vectors, joined_text, path_key
from composable_memory.content import (
    EmbedderInput,
    GraphQuery,
    IngestReport,
    IngestWarning,
    MemoryContentObject,
    MemoryTemporalMetadata,
    VectorMatch,
    VectorQuery,
)
from composable_memory.errors import (
    BackendError,
    BackendUnavailable,
    ConfigError,
    MemoryPathError,
    UnsupportedOperation,
)
from composable_memory.ingest import IngestPipeline, IngestRequest, IngestResult, node_id
from composable_memory.ingest.extract import STANDARD_HOOKS, EnrichHook
from composable_memory.ingest.records import content_of, lifetime_in
from composable_memory.ingest.stage_errors import PipelineError, PipelineErrorCode, attempt
from composable_memory.interfaces import (
    Capability,
    Clock,
    EmbedderAdapter,
    EntityExtractor,
    GraphAdapter,
    SupportsHealth,
    TemporalPolicy,
    VectorAdapter,
)
from composable_memory.query.fusion import BackendList, Dedup, merge
from composable_memory.query.intent import parse_query_intent
from composable_memory.types import (
    Degradation,
    DegradationCode,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    QueryIntent,
    SearchAnswer,
    SearchOptions,
    VectorStatus,
)
from composable_memory_ops_logs import OpsLog, utc_now

__all__ = ["CompositeBackend"]

LEAST_DEPTH = 64
"""How many candidates each part is asked for, whatever the answer's length: a short answer is then the
beginning of a long one."""

MAX_QUERY_CHARS = 2_000
SOURCE_DEPTH = 10_000
"""How many contents of one source are looked for at most."""

_Leg: TypeAlias = Callable[[], Awaitable[list[MemorySearchResult]]]


class CompositeBackend:
    """A memory over `vectors`, a `graph`, or both; it does not close them, they belong to who made them.

    Vectors need an `embedder`, a graph an `extractor`: without it the part is asked, but nothing new gets in.
    What has expired is never told; what does not hold now comes with half its score and says so.

    Raises:
        ConfigError: there is neither a store of vectors nor a graph.
    """

    def __init__(
        self,
        *,
        graph: GraphAdapter | None = None,
        vectors: VectorAdapter | None = None,
        embedder: EmbedderAdapter | None = None,
        extractor: EntityExtractor | None = None,
        temporal_policy: TemporalPolicy | None = None,
        id: str = "composite",  # noqa: A002 - as in every value that names a backend
        enrich: Sequence[EnrichHook] = STANDARD_HOOKS,
        ops_log: OpsLog | None = None,
        clock: Clock = utc_now,
    ) -> None:
        if graph is None and vectors is None:
            raise ConfigError(id, "a memory needs vectors, a graph, or both; give at least one")
        self.id = id
        self._graph = graph
        self._vectors = vectors
        self._embedder = embedder
        self._extractor = extractor
        self._clock = clock
        self._closed = False
        self._pipeline = IngestPipeline(
            embedder=embedder,
            vectors=vectors,
            graph=graph,
            extractor=extractor,
            temporal_policy=temporal_policy,
            enrich=enrich,
            ops_log=ops_log,
            clock=clock,
        )

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return what its parts allow: texts can only be read where vectors keep them."""
        always = {Capability.ANSWER, Capability.INGEST, Capability.CALIBRATED}
        return frozenset(always | ({Capability.READ_FILE} if self._has_vector_leg else set()))

    # --- asking ---------------------------------------------------------------------------------------------

    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        """Return what the vectors and the graph find, best first.

        Raises:
            BackendError: none of the parts could answer.
        """
        return (await self.answer(query, options)).results

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Ask all parts at once; a part that fails is named in `degraded`.

        Raises:
            BackendError: none of the parts could answer.
        """
        self._require_open("search")
        options = options or SearchOptions()
        asked = query.encode("utf-8", "replace").decode("utf-8").strip()[:MAX_QUERY_CHARS]
        if not asked:
            return SearchAnswer(results=())
        depth = max(LEAST_DEPTH, 1 << (options.max_results - 1).bit_length())
        legs = self._legs(asked, options.intent or parse_query_intent(asked), depth)
        found = await asyncio.gather(*(attempt(leg) for leg in legs.values()))
        outcomes = dict(zip(legs, found, strict=True))
        failed = {name: one for name, one in outcomes.items() if isinstance(one, PipelineError)}
        if legs and len(failed) == len(legs):
            told = "; ".join(f"{name}: {error.message}" for name, error in failed.items())
            raise BackendError(self.id, "search", told)
        lists = {name: one for name, one in outcomes.items() if not isinstance(one, PipelineError)}
        parts = {"vectors": self._vectors, "graph": self._graph}
        return SearchAnswer(
            results=_fused(lists, options),
            degraded=(*self._missing(), *(_degradation(self.id, name, one) for name, one in failed.items())),
            engines={name: type(parts[name]).__name__ for name in lists},
        )

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        """Return the text behind a result, as the vectors keep it; of a file what was taken in, in its place.

        Raises:
            MemoryPathError: the path names nothing that this memory holds.
            UnsupportedOperation: there are no vectors that could hold a text.
        """
        self._require_open("read_file")
        if not self._has_vector_leg:
            raise UnsupportedOperation(self.id, "read_file")
        wanted = path_key(rel_path, self.id)
        found = await self._told(wanted.key, wanted.value)
        if not found and not wanted.may_be_missing:
            raise MemoryPathError(rel_path, "nothing was taken in from it")
        text = joined_text(match.metadata for match in found)
        if from_line is not None or lines is not None:
            start = max(1, from_line or 1) - 1
            rows = text.split("\n")[start:]
            text = "\n".join(rows[: max(1, lines)] if lines is not None else rows)
        return MemoryFileSlice(text=text, path=rel_path)

    def status(self) -> MemoryProviderStatus:
        """Return which parts there are."""
        embedder, parts = self._embedder, {"graph": self._graph, "extractor": self._extractor}
        return MemoryProviderStatus(
            backend=self.id,
            provider=embedder.id if embedder else "none",
            model=embedder.model if embedder else None,
            sources=("memory",),
            vector=VectorStatus(
                enabled=self._vectors is not None,
                available=self._has_vector_leg,
                dims=embedder.dimensions if embedder else None,
            ),
            custom={name: type(part).__name__ if part else None for name, part in parts.items()},
        )

    async def probe_embedding_availability(self) -> MemoryEmbeddingProbeResult:
        """Embed a word and say whether it worked."""
        self._require_open("probe")
        if self._embedder is None:
            return MemoryEmbeddingProbeResult(ok=False, error="there is no embedder")
        outcome = await attempt(partial(self._embedder.embed, EmbedderInput(text="probe", kind="query")))
        error = outcome.message if isinstance(outcome, PipelineError) else None
        return MemoryEmbeddingProbeResult(ok=error is None, error=error)

    async def probe_vector_availability(self) -> bool:
        """Return whether the vectors can be searched."""
        self._require_open("probe")
        if not self._has_vector_leg:
            return False
        if isinstance(self._vectors, SupportsHealth):
            health = await attempt(self._vectors.health)
            return not isinstance(health, PipelineError) and health.ok
        return True

    async def close(self) -> None:
        """Answer no more; the parts are left as they are."""
        self._closed = True

    # --- taking in ------------------------------------------------------------------------------------------

    async def ingest(self, contents: Sequence[MemoryContentObject], *, wait: bool = True) -> IngestReport:
        """Take `contents`; they are stored when this returns, and nothing is kept back for later."""
        del wait
        self._require_open("ingest")
        return (await self._run(contents, source=self.id)).report()

    async def ingest_source(
        self, path: str, contents: Sequence[MemoryContentObject], *, wait: bool = True
    ) -> IngestReport:
        """Take `contents` as all that the source `path` says now; what it said before holds no more.

        What it said before is looked up among the vectors; a graph alone cannot tell.
        """
        del wait
        self._require_open("ingest")
        # What is gone comes first: what is still stated then replaces what it shares with it.
        problems = await self._end_all_but({content.id for content in contents}, path)
        report = (await self._run(contents, source=path)).report()
        if self._has_vector_leg:
            return replace(report, problems=report.problems + problems)
        unknown = f"what {path} said before is not known without vectors, and stays as it is"
        warning = IngestWarning(code="index.unknown_source", message=unknown)
        return replace(report, warnings=(*report.warnings, warning))

    async def _end_all_but(self, ids: Collection[str], path: str) -> tuple[str, ...]:
        """Retire everything a source said before except `ids`; return what failed."""
        now = self._clock()
        gone = [
            _ended(content_of(match.metadata), now)
            for match in await self._matching("path", path)
            if match.id not in ids and lifetime_in(match.metadata).valid_to is None
        ]
        return (await self._run(gone, source=path)).report().problems if gone else ()

    async def _run(self, contents: Sequence[MemoryContentObject], *, source: str) -> IngestResult:
        return await self._pipeline.run(IngestRequest(items=contents, source=source))

    # --- the parts ------------------------------------------------------------------------------------------

    @property
    def _has_vector_leg(self) -> bool:
        return self._vectors is not None and self._embedder is not None

    def _legs(self, query: str, intent: QueryIntent, depth: int) -> dict[str, _Leg]:
        legs: dict[str, _Leg] = {}
        if self._vectors is not None and self._embedder is not None:
            legs["vectors"] = partial(self._ask_vectors, self._vectors, self._embedder, query, depth)
        if self._graph is not None:
            legs["graph"] = partial(self._ask_graph, self._graph, query, intent, depth)
        return legs

    async def _ask_vectors(
        self, vectors: VectorAdapter, embedder: EmbedderAdapter, query: str, depth: int
    ) -> list[MemorySearchResult]:
        vector = await embedder.embed(EmbedderInput(text=query, kind="query"))
        found = await vectors.query(VectorQuery(vector=vector, top_k=depth))
        return from_vectors(found.matches, QueryWords(query), now=self._clock(), backend_id=self.id)

    async def _ask_graph(
        self, graph: GraphAdapter, query: str, intent: QueryIntent, depth: int
    ) -> list[MemorySearchResult]:
        entities = await self._entities_in(query, intent)
        found = await graph.query(GraphQuery(text=query, entity_ids=entities, limit=depth))
        return from_graph(found, QueryWords(query), now=self._clock(), backend_id=self.id)

    async def _entities_in(self, query: str, intent: QueryIntent) -> tuple[str, ...]:
        """Return the ids of the entities that a question names, as far as rules can tell."""
        labels = list(intent.entities)
        if self._extractor is not None:
            asked = MemoryContentObject(id="query", kind="message", text=query)
            found = await attempt(partial(self._extractor.extract, asked))
            labels += [] if isinstance(found, PipelineError) else [entity.label for entity in found]
        return tuple(dict.fromkeys(node_id(label) for label in labels))

    async def _told(self, key: str, value: str) -> list[VectorMatch]:
        """Return the records that hold, or if none does any more, those that held."""
        now = self._clock()
        matches = await self._matching(key, value)
        found = [match for match in matches if not lifetime_in(match.metadata).is_over(now)]
        return [match for match in found if lifetime_in(match.metadata).holds_at(now)] or found

    async def _matching(self, key: str, value: str) -> Sequence[VectorMatch]:
        """Return the records in which `key` is `value`, whatever they are like."""
        if self._vectors is None or self._embedder is None:
            return ()
        anything = [1.0] * self._embedder.dimensions
        query = VectorQuery(vector=anything, top_k=SOURCE_DEPTH, filter={key: value})
        return (await self._vectors.query(query)).matches

    def _missing(self) -> tuple[Degradation, ...]:
        if self._vectors is None or self._embedder is not None:
            return ()
        reason = "the vectors cannot be searched without an embedder"
        return (Degradation(backend_id=self.id, code="unavailable", reason=reason),)

    def _require_open(self, operation: str) -> None:
        if self._closed:
            raise BackendUnavailable(self.id, "it is closed", fix="make a new one", operation=operation)


def _fused(
    lists: Mapping[str, Sequence[MemorySearchResult]], options: SearchOptions
) -> tuple[MemorySearchResult, ...]:
    """Return one list, best first; what stands at the same place or says the same is there once."""
    merged = merge(
        [
            BackendList(
                backend_id=name, weight=1.0, results=results, calibrated=[one.score for one in results]
            )
            for name, results in lists.items()
        ],
        dedup=Dedup.EXACT,
    )
    kept = [one for one in merged.results if one.exact or one.score >= options.min_score]
    return tuple(kept[: options.max_results])


def _degradation(backend_id: str, leg: str, error: PipelineError) -> Degradation:
    code: DegradationCode = _DEGRADATIONS.get(error.code, "failed")
    return Degradation(backend_id=backend_id, code=code, reason=f"the {leg} did not answer: {error.message}")


_DEGRADATIONS: Mapping[PipelineErrorCode, DegradationCode] = {
    "timeout": "timeout",
    "adapter_unavailable": "unavailable",
    "serialization_error": "garbled",
}


def _ended(content: MemoryContentObject, now: datetime) -> MemoryContentObject:
    times = content.temporal or MemoryTemporalMetadata()
    return replace(content, temporal=replace(times, valid_to=now))
