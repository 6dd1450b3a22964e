"""The JSON documents of `cmem feedback`."""

from collections.abc import Mapping
from datetime import datetime
from statistics import fmean

from composable_memory.cli.learning_charts import Chart
from composable_memory.cli.weight_documents import ProposalDocument, WeightsDocument
from composable_memory.learning import EvaluationRun, LearningStats
from composable_memory.tools import Document
from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.judgements import Judgement, JudgementKind
from composable_memory_feedback.judging import EvaluationOutcome
from composable_memory_feedback.judging.evaluator import EvaluationState
from composable_memory_feedback.store.values import BackendDay

__all__ = [
    "BackupDocument",
    "EvaluateDocument",
    "EvaluatedDocument",
    "ExportDocument",
    "ImportDocument",
    "JudgementDocument",
    "PlotDocument",
    "StatsDocument",
    "WaitingDocument",
]


class BackupDocument(Document):
    """`cmem backup` and `cmem restore`: how much of what is in each part."""

    folder: str
    created_at: datetime
    parts: Mapping[str, Mapping[str, int]]


class ExportDocument(Document):
    """`cmem feedback export --output`: how many rows of each table were written."""

    output: str
    rows: Mapping[str, int]


class ImportDocument(Document):
    """`cmem feedback import`: rows by table that were added or there already; what was left out, why."""

    added: Mapping[str, int]
    known: Mapping[str, int]
    left_out: tuple[str, ...]


class JudgementDocument(Document):
    """`cmem feedback add`: what is remembered of a result; without `backend`, a stand-in brought it."""

    trace_id: str
    query_id: str
    at: datetime
    path: str
    start_line: int
    end_line: int
    rank: int
    backend: str | None = None
    intent: IntentKind
    kind: JudgementKind
    relevance: float
    was_used: bool

    @classmethod
    def of(cls, judgement: Judgement) -> "JudgementDocument":
        """Return the document of a judgement."""
        return cls.model_validate(judgement, from_attributes=True)


class EvaluatedDocument(Document):
    """One query that was put to the model; `problem` says why there are no judgements on it."""

    state: EvaluationState
    trace_id: str | None = None
    query_id: str | None = None
    query: str | None = None
    precision: float | None = None
    mean_relevance: float | None = None
    judged: int = 0
    used: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    duration_ms: float = 0.0
    problem: str | None = None
    suggestions: tuple[str, ...] = ()

    @classmethod
    def of(cls, outcome: EvaluationOutcome) -> "EvaluatedDocument":
        """Return the document of an outcome."""
        told = outcome.evaluation
        if told is None:
            return cls(state=outcome.state, problem=outcome.problem)
        is_judged = told.judged_count > 0
        return cls(
            state=outcome.state,
            trace_id=told.trace_id,
            query_id=told.query_id,
            query=told.query,
            precision=told.precision if is_judged else None,
            mean_relevance=told.mean_relevance if is_judged else None,
            judged=told.judged_count,
            used=told.used_count,
            input_tokens=told.input_tokens,
            output_tokens=told.output_tokens,
            duration_ms=round(told.duration_ms, 3),
            problem=outcome.problem,
            suggestions=told.suggestions,
        )


class EvaluateDocument(Document):
    """`cmem feedback evaluate`: what a model said of logged queries, and what it cost.

    `signals` counts the judgements that use implied. `left` queries are not judged yet; `stopped` says
    why the run ended before they were. `precision` is the mean over the queries that were judged.
    """

    signals: int
    judged: int
    failed: int
    judgements: int
    precision: float | None = None
    input_tokens: int
    output_tokens: int
    left: int
    stopped: str | None = None
    queries: tuple[EvaluatedDocument, ...]

    @classmethod
    def of(cls, found: EvaluationRun) -> "EvaluateDocument":
        """Return the document of a run."""
        queries = tuple(map(EvaluatedDocument.of, found.outcomes))
        precisions = [one.precision for one in queries if one.state == "judged" and one.precision is not None]
        return cls(
            signals=found.signals,
            judged=sum(one.state == "judged" for one in queries),
            failed=sum(one.state == "failed" for one in queries),
            judgements=sum(one.judged for one in queries),
            precision=fmean(precisions) if precisions else None,
            input_tokens=sum(one.input_tokens for one in queries),
            output_tokens=sum(one.output_tokens for one in queries),
            left=found.left,
            stopped=found.stopped,
            queries=queries,
        )


class WaitingDocument(Document):
    """A proposal that has to prove itself on queries that came after `since`."""

    since: datetime
    proposal: ProposalDocument


class StatsDocument(Document):
    """`cmem feedback stats`: how the backends did by day, what is judged by whom, and what that has cost."""

    days: tuple[BackendDay, ...]
    judgements: Mapping[JudgementKind, int]
    judged_queries: int
    evaluations: int
    failed_evaluations: int
    input_tokens: int
    output_tokens: int
    quota_left: int
    weights: WeightsDocument
    waiting: WaitingDocument | None = None

    @classmethod
    def of(cls, stats: LearningStats) -> "StatsDocument":
        """Return the document of what is known."""
        waiting = None
        if stats.shadow:
            proposal = ProposalDocument.of(stats.shadow.proposal)
            waiting = WaitingDocument(since=stats.shadow.since, proposal=proposal)
        return cls(
            days=stats.days,
            judgements={kind: stats.kinds[kind] for kind in JudgementKind if stats.kinds.get(kind)},
            judged_queries=stats.judged_queries,
            evaluations=stats.evaluations,
            failed_evaluations=stats.failed_evaluations,
            input_tokens=stats.input_tokens,
            output_tokens=stats.output_tokens,
            quota_left=stats.quota_left,
            weights=WeightsDocument.of(stats.weights),
            waiting=waiting,
        )


class PlotDocument(Document):
    """`cmem feedback plot`: what is drawn; `output` is the file it was written to."""

    charts: tuple[Chart, ...]
    output: str | None = None
