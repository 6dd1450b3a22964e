"""Runs contents through the stages of ingesting. Every part is optional, and none stops the others."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from time import perf_counter
from typing import TypeVar
from uuid import uuid4

from composable_memory.content import (
    EmbedderInput,
    IngestWarning,
    MemoryContentObject,
    StageResult,
    TemporalPolicyDecision,
)
from composable_memory.ingest.extract import (
    STANDARD_HOOKS,
    Enriched,
    EnrichHook,
    Extraction,
    extract_from,
    extract_texts,
)
from composable_memory.ingest.lifetimes import lifetime_of
from composable_memory.ingest.normalize import normalize
from composable_memory.ingest.records import GraphPart, graph_of, joined, record_of
from composable_memory.ingest.requests import (
    STAGES,
    AuditEvent,
    IngestRequest,
    IngestResult,
    MetricEvent,
    PipelineError,
    Stage,
    error_of,
)
from composable_memory.interfaces import (
    Clock,
    EmbedderAdapter,
    EntityExtractor,
    GraphAdapter,
    TemporalPolicy,
    VectorAdapter,
)
from composable_memory_ops_logs import (
    ErrorInfo,
    IngestComplete,
    IngestStageComplete,
    IngestStart,
    OpsLog,
    StageOutcome,
    Status,
    trace,
    utc_now,
)
from composable_memory_ops_logs.quick_dataclass import dataclass

T = TypeVar("T")

EXTRACTIONS_AT_ONCE = 4
"""How many contents are extracted concurrently; an extractor that asks a model mostly waits for it."""

NEEDS: Mapping[Stage, Stage] = {
    "extract": "normalize",
    "enrich": "extract",
    "entity_extract": "enrich",
    "embed": "enrich",
    "graph": "entity_extract",
    "index": "embed",
}
"""The stage that must have succeeded for another to run: graph and vectors do not need each other."""


@dataclass(slots=True, kw_only=True)
class _Run:
    """The state of a run: the contents as the stages leave them, and how the stages went."""

    id: str
    request: IngestRequest
    trace_id: str
    now: datetime
    began: float = field(default_factory=perf_counter)
    contents: Sequence[MemoryContentObject] = ()
    decisions: dict[str, TemporalPolicyDecision] = field(default_factory=dict)
    parts: list[GraphPart] = field(default_factory=list)
    vectors: list[Sequence[float]] = field(default_factory=list)
    nodes: int = 0
    edges: int = 0
    indexed: int = 0
    results: list[StageResult] = field(default_factory=list)
    warnings: list[IngestWarning] = field(default_factory=list)
    errors: dict[Stage, PipelineError] = field(default_factory=dict)
    lost: set[Stage] = field(default_factory=set)

    @property
    def status(self) -> Status:
        """Return whether everything succeeded, and if not, whether anything was stored."""
        if not self.errors:
            return "success"
        return "partial" if self.indexed or self.nodes else "failure"

    @property
    def batch_id(self) -> str:
        """Return an id that is the same for the same set of contents."""
        ids = "\0".join(content.id for content in self.contents)
        return sha256(ids.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def continue_with(self, done: Enriched) -> None:
        """Continue with the output of a stage."""
        self.contents = done.contents
        self.warnings += done.warnings

    def skip(self, code: str, message: str) -> str:
        """Warn that a part is missing, unless there is nothing for it to do."""
        if self.contents:
            self.warnings.append(IngestWarning(code=code, message=message))
        return message

    def warn(self, code: str, message: str, content: MemoryContentObject) -> None:
        """Add a warning about one content."""
        self.warnings.append(IngestWarning(code=code, message=message, details={"id": content.id}))


class IngestPipeline:
    """Ingests contents with the available parts: no vectors without an embedder, no facts without a graph.

    `enrich` are hooks that transform all contents of a run, in order; by default they resolve aliases and
    drop duplicates. A missing part is a warning, a failing one an error of its stage; stages that do not
    depend on what failed still run. Running the same contents again changes nothing.
    """

    def __init__(
        self,
        *,
        embedder: EmbedderAdapter | None = None,
        vectors: VectorAdapter | None = None,
        graph: GraphAdapter | None = None,
        extractor: EntityExtractor | None = None,
        temporal_policy: TemporalPolicy | None = None,
        enrich: Sequence[EnrichHook] = STANDARD_HOOKS,
        ops_log: OpsLog | None = None,
        emit_audit: Callable[[AuditEvent], None] | None = None,
        emit_metric: Callable[[MetricEvent], None] | None = None,
        clock: Clock = utc_now,
        make_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        self._embedder = embedder
        self._vectors = vectors
        self._graph = graph
        self._extractor = extractor
        self._policy = temporal_policy
        self._hooks = tuple(enrich)
        self._ops_log = ops_log or OpsLog(None)
        self._emit_audit = emit_audit
        self._emit_metric = emit_metric
        self._clock = clock
        self._make_id = make_id

    async def run(self, request: IngestRequest) -> IngestResult:
        """Ingest the items of `request`, and report how each stage went; failures are in the result."""
        run_id = self._make_id()
        with trace(request.trace_id, session_key=request.session_key, run_id=run_id) as trace_id:
            run = _Run(
                id=run_id, request=replace(request, trace_id=trace_id), trace_id=trace_id, now=self._clock()
            )
            self._ops_log.emit(IngestStart(source=request.source, item_count=len(request.items)))
            work: Mapping[Stage, Callable[[_Run], Awaitable[str | None]]] = {
                "normalize": self._normalize,
                "extract": self._extract,
                "enrich": self._enrich,
                "entity_extract": self._extract_entities,
                "embed": self._embed,
                "graph": self._write_graph,
                "index": self._index,
                "audit": self._audit,
            }
            for stage in STAGES:
                await self._stage(run, stage, work[stage])
            return self._complete(run)

    async def _stage(self, run: _Run, stage: Stage, work: Callable[[_Run], Awaitable[str | None]]) -> None:
        """Run one stage if its dependency succeeded; `work` returns why it was skipped, if so."""
        needed = NEEDS.get(stage)
        if needed in run.lost:
            run.lost.add(stage)
            self._note(run, StageResult(stage=stage, ok=False, duration_ms=0.0, skipped=f"{needed} failed"))
            return
        began = perf_counter()
        outcome = await attempt(partial(work, run))
        if isinstance(outcome, PipelineError):
            run.lost.add(stage)
            run.errors[stage] = outcome
        error = run.errors.get(stage)
        result = StageResult(
            stage=stage,
            ok=error is None,
            duration_ms=(perf_counter() - began) * 1000,
            error=error.message if error else None,
            skipped=outcome if isinstance(outcome, str) else None,
        )
        self._note(run, result)

    def _note(self, run: _Run, result: StageResult) -> None:
        run.results.append(result)
        error = next((error for stage, error in run.errors.items() if stage == result.stage), None)
        self._ops_log.emit(
            IngestStageComplete(
                stage=result.stage,
                ok=result.ok,
                error=ErrorInfo(type=error.code, message=error.message) if error else None,
            ),
            status="success" if result.ok else "failure",
            duration_ms=result.duration_ms,
        )

    # --- the stages -----------------------------------------------------------------------------------------

    async def _normalize(self, run: _Run) -> None:
        run.continue_with(normalize(run.request, now=run.now))

    async def _extract(self, run: _Run) -> None:
        run.continue_with(extract_texts(run.contents))

    async def _enrich(self, run: _Run) -> None:
        for hook in self._hooks:
            run.continue_with(await hook(run.contents))
        if self._policy is not None:
            for content in run.contents:
                run.decisions[content.id] = await self._policy.evaluate(content)
        over = [one for one in run.contents if lifetime_of(one, run.decisions.get(one.id)).is_over(run.now)]
        run.contents = tuple(content for content in run.contents if content not in over)
        for content in over:
            run.warn("temporal.expired", "it has expired; it was not stored", content)

    async def _extract_entities(self, run: _Run) -> str | None:
        if self._extractor is None:
            return run.skip("entity_extract.disabled", "there is no extractor, so no facts are extracted")
        gate = asyncio.Semaphore(EXTRACTIONS_AT_ONCE)
        found = await asyncio.gather(
            *(_within(gate, partial(extract_from, self._extractor, content)) for content in run.contents)
        )
        for content, extraction in zip(run.contents, found, strict=True):
            if isinstance(extraction, PipelineError):
                run.errors.setdefault("entity_extract", extraction)
                run.warn("entity_extract.failed", extraction.message, content)
                continue
            run.warnings += extraction.warnings
            decision = run.decisions.get(content.id)
            run.parts.append(graph_of(content, extraction.entities, extraction.relations, decision))
        if run.contents and not run.parts:
            run.lost.add("entity_extract")
        return None

    async def _embed(self, run: _Run) -> str | None:
        if self._embedder is None:
            return run.skip("embed.missing_adapter", "there is no embedder, so there are no vectors")
        if self._vectors is None:  # a later stage will warn
            return "no store keeps vectors"
        inputs = [
            EmbedderInput(id=content.id, text=content.text or "", kind="document") for content in run.contents
        ]
        run.vectors = list(await self._embedder.embed_batch(inputs)) if inputs else []
        return None

    async def _write_graph(self, run: _Run) -> str | None:
        if self._graph is None:
            return run.skip("graph.missing_adapter", "there is no graph, so no facts are kept")
        part = joined(run.parts)
        if not part.nodes:
            return "there are no entities"
        await self._graph.upsert_nodes(part.nodes)
        run.nodes = len(part.nodes)
        await self._graph.upsert_edges(part.edges)
        run.edges = len(part.edges)
        return None

    async def _index(self, run: _Run) -> str | None:
        if self._vectors is None:
            return run.skip("index.missing_adapter", "there is no store of vectors")
        if run.contents and not run.vectors:
            return run.skip("index.no_vectors", "no text was embedded")
        records = [
            record_of(content, values, run.decisions.get(content.id))
            for content, values in zip(run.contents, run.vectors, strict=True)
        ]
        if records:
            await self._vectors.upsert(records)
        run.indexed = len(records)
        return None

    async def _audit(self, run: _Run) -> str | None:
        if self._emit_audit is None:
            return "nobody audits"
        self._emit_audit(
            AuditEvent(
                id=self._make_id(),
                ts=self._clock(),
                action="ingest",
                status=run.status,
                session_key=run.request.session_key,
                trace_id=run.trace_id,
                details={
                    "source": run.request.source,
                    "runId": run.id,
                    "contentIds": [content.id for content in run.contents],
                    "nodes": run.nodes,
                    "edges": run.edges,
                    "vectors": run.indexed,
                },
            )
        )
        return None

    # --- the end --------------------------------------------------------------------------------------------

    def _complete(self, run: _Run) -> IngestResult:
        duration_ms = (perf_counter() - run.began) * 1000
        self._ops_log.emit(
            IngestComplete(
                episode_count=len(run.contents),
                warning_count=len(run.warnings),
                error_count=len(run.errors),
                stages=[
                    StageOutcome(stage=one.stage, ok=one.ok, duration_ms=one.duration_ms)
                    for one in run.results
                ],
            ),
            status=run.status,
            duration_ms=duration_ms,
        )
        self._measure(run, duration_ms)
        return IngestResult(
            run_id=run.id,
            batch_id=run.batch_id,
            trace_id=run.trace_id,
            received=len(run.request.items),
            contents=tuple(run.contents),
            stages=tuple(run.results),
            warnings=tuple(run.warnings),
            errors=run.errors,
            started_at=run.now,
            completed_at=self._clock(),
            nodes=run.nodes,
            edges=run.edges,
            vectors=run.indexed,
        )

    def _measure(self, run: _Run, duration_ms: float) -> None:
        if self._emit_metric is None:
            return
        tags, now = {"source": run.request.source}, self._clock()
        for metric in (
            MetricEvent(name="memory.ingest.duration_ms", value=duration_ms, ts=now, tags=tags),
            MetricEvent(name="memory.pipeline.events", value=len(run.contents), ts=now, tags=tags),
            MetricEvent(name="memory.pipeline.errors", value=len(run.errors), ts=now, tags=tags),
        ):
            self._emit_metric(metric)


async def attempt(work: Callable[[], Awaitable[T]]) -> T | PipelineError:
    """Return the result of `work`, or whatever it raises as a value, except cancellation."""
    try:
        return await work()
    except Exception as error:  # noqa: BLE001 - a third-party part may raise anything; the others must go on
        return error_of(error)


async def _within(
    gate: asyncio.Semaphore, work: Callable[[], Awaitable[Extraction]]
) -> Extraction | PipelineError:
    async with gate:
        return await attempt(work)
