"""What is known of the quality of answers as lines for the terminal (pure)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from composable_memory.cli.feedback_documents import EvaluatedDocument, EvaluateDocument
from composable_memory.cli.screen import Line, counted, one_line
from composable_memory.cli.weight_words import ALL_QUESTIONS, columns, told_gain, told_moment, told_weights
from composable_memory.learning import LearningStats, WeightsReport
from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.judgements import Judgement, JudgementKind
from composable_memory_feedback.store.values import BackendDay, KindGroup, ShadowRecord

__all__ = [
    "QualityRow",
    "evaluated_line",
    "evaluation_lines",
    "judgement_lines",
    "quality_rows",
    "stats_lines",
]

QUESTION_CHARS = 60
GROUPS: tuple[tuple[KindGroup, str], ...] = (
    ("judged", "Quality, as judged"),
    ("implicit", "Quality, by what was opened, quoted or asked again"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityRow:
    """How the results of one backend did over some days; the means are over `queries`, from 0 to 1."""

    backend: str
    intent: IntentKind | None
    queries: int
    precision: float
    mean_relevance: float
    used: int
    results: int


def quality_rows(days: Iterable[BackendDay], group: KindGroup) -> list[QualityRow]:
    """Return a row for every backend over all questions, then one for each kind if there are several."""
    found: defaultdict[str, defaultdict[IntentKind, list[BackendDay]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for one in days:
        if one.group == group and one.queries:
            found[one.backend][one.intent].append(one)
    rows = []
    for backend, kinds in sorted(found.items()):
        rows.append(_summed(backend, None, [one for days_ in kinds.values() for one in days_]))
        if len(kinds) > 1:
            rows += [_summed(backend, kind, kinds[kind]) for kind in IntentKind if kind in kinds]
    return rows


def judgement_lines(judgement: Judgement) -> Iterator[Line]:
    """Yield what is remembered of a result."""
    lines = f":{judgement.start_line}-{judgement.end_line}" if judgement.start_line else ""
    used = ", used" if judgement.was_used else ""
    yield (
        f"Judged result {judgement.rank} of trace {judgement.trace_id[:8]}: {judgement.relevance:.2f}{used}",
        "bold",
    )
    yield f"  {one_line(judgement.path)}{lines} [{judgement.backend or 'a stand-in'}]", "plain"


def evaluated_line(one: EvaluatedDocument) -> str:
    """Return what a model said of one query, and what that cost."""
    question = one_line(one.query or "", QUESTION_CHARS)
    head = f"{one.state.replace('-', ' ').ljust(6)}  {(one.trace_id or '').ljust(8)[:8]}"
    if one.state != "judged" or one.precision is None or one.mean_relevance is None:
        return f"{head}  {one_line(one.problem or 'no judgements')}  {question}".rstrip()
    quality = f"precision {one.precision:.2f}  relevance {one.mean_relevance:.2f}  used {one.used}"
    return f"{head}  {quality}  {one.input_tokens + one.output_tokens:>6,} tokens  {question}".rstrip()


def evaluation_lines(found: EvaluateDocument) -> Iterator[Line]:
    """Yield what a whole evaluation brought, what it cost, and what is left."""
    told = f"Judged {counted(found.judged, 'query', 'queries')}, {counted(found.judgements, 'result')}"
    if found.precision is not None:
        told += f"; mean precision {found.precision:.2f}"
    yield f"{told}{f'; {found.failed} failed' if found.failed else ''}.", "bold"
    if found.queries:
        seconds = sum(one.duration_ms for one in found.queries) / 1000
        yield f"Cost: {_told_tokens(found.input_tokens, found.output_tokens)}, {seconds:.1f} s.", "plain"
    yield f"Signals of use: {found.signals} new.", "plain"
    if found.left:
        yield f"{counted(found.left, 'query is', 'queries are')} left to judge.", "plain"


def stats_lines(stats: LearningStats, backends: Sequence[str]) -> Iterator[Line]:
    """Yield how the backends did, what is judged and by whom, the weights, and what waits."""
    yield from _overview(stats, backends)
    for group, title in GROUPS:
        if rows := quality_rows(stats.days, group):
            yield "", "plain"
            yield title, "bold"
            yield from _quality(rows)


def _summed(backend: str, intent: IntentKind | None, days: Sequence[BackendDay]) -> QualityRow:
    queries = sum(one.queries for one in days)
    return QualityRow(
        backend=backend,
        intent=intent,
        queries=queries,
        precision=sum(one.precision * one.queries for one in days) / queries,
        mean_relevance=sum(one.mean_relevance * one.queries for one in days) / queries,
        used=sum(one.used for one in days),
        results=sum(one.results for one in days),
    )


def _overview(stats: LearningStats, backends: Sequence[str]) -> Iterator[Line]:
    kinds = [f"{stats.kinds[kind]} {kind}" for kind in JudgementKind if stats.kinds.get(kind)]
    cost = _told_tokens(stats.input_tokens, stats.output_tokens)
    failed = f", {stats.failed_evaluations} failed" if stats.failed_evaluations else ""
    rows = [
        ["Judgements", f"{', '.join(kinds) or 'none'}; {_told_queries(stats.judged_queries)}"],
        [
            "Model",
            f"{counted(stats.evaluations, 'evaluation')}{failed}; {cost}; {stats.quota_left} left this hour",
        ],
        ["Weights", _told_weights(stats.weights, backends)],
    ]
    rows += [["Waiting", _told_waiting(stats.shadow)]] if stats.shadow else []
    yield from ((line, "plain") for line in columns(rows))


def _told_weights(report: WeightsReport, backends: Sequence[str]) -> str:
    weights = told_weights({one: report.table[one] for one in backends}, backends) or "no backend is enabled"
    if report.since is None:
        return f"those of the settings: {weights}"
    return f"{report.table.version} since {told_moment(report.since)}: {weights}"


def _told_waiting(shadow: ShadowRecord) -> str:
    proposal = shadow.proposal
    gain = f", expected gain {told_gain(proposal.gain)}" if proposal.gain else ""
    since = told_moment(shadow.since)
    return f"a proposal of the {proposal.advisor} advisor proves itself since {since}{gain}"


def _told_queries(count: int) -> str:
    return counted(count, "judged query", "judged queries")


def _told_tokens(asked: int, answered: int) -> str:
    return f"{asked:,} tokens in, {answered:,} out"


def _quality(rows: Sequence[QualityRow]) -> Iterator[Line]:
    cells = [["backend", "questions", "queries", "precision", "relevance", "used"]]
    for one in rows:
        used = f"{one.used} of {one.results}"
        quality = [str(one.queries), f"{one.precision:.2f}", f"{one.mean_relevance:.2f}", used]
        cells.append(["" if one.intent else one.backend, one.intent or ALL_QUESTIONS, *quality])
    head, *lines = columns(cells, right=(2, 3, 4, 5))
    yield head, "dim"
    yield from ((line, "plain") for line in lines)
