"""Collects judgements: from people, from use, and from a language model."""

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime, timedelta
from functools import partial
from heapq import nsmallest
from itertools import count
from operator import itemgetter, methodcaller
from pathlib import Path
from statistics import fmean
from typing import TypeAlias, TypeVar

from composable_memory.citations import format_place, read_citation
from composable_memory.learning.active_weights import WeightsReport
from composable_memory.learning.chat_model import language_model
from composable_memory.learning.context import LearningContext
from composable_memory.learning.logged import from_log, signals_of, stream_queries, window
from composable_memory.learning.transcript_answers import answers_in_transcripts, quotes_in_transcripts
from composable_memory.learning.weight_tables import WeightTables
from composable_memory.query.replay import Replayer
from composable_memory_feedback.advice.evidence import evidence_of
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.judgements import (
    BackendDay,
    Evaluation,
    Judgement,
    JudgementKind,
    QueryKey,
    backend_days,
)
from composable_memory_feedback.judging import MAX_RESULTS, EvaluationOutcome, Evaluator
from composable_memory_feedback.language_model import LanguageModel
from composable_memory_feedback.logged.logged_query import LoggedQuery, RankedHit
from composable_memory_feedback.logged.reading import read_queries
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_feedback.weights import WeightTable
from composable_memory_ops_logs import ErrorInfo, FeedbackEvaluated, OpsLogReader, trace
from composable_memory_ops_logs.quick_dataclass import dataclass

T = TypeVar("T")

TextReader = Callable[[str, int, int], Awaitable[str | None]]
"""Returns the text of some lines of a memory file, or None if they no longer exist."""

OutcomeCallback = Callable[[EvaluationOutcome], None]

MAX_FAILURES_IN_A_ROW = 3
"""After this many failures in a row, the model is assumed to be down; the quota is kept for later."""
DEFAULT_SPAN = timedelta(days=7)
LOOK_BACK = timedelta(minutes=45)
"""How long after a query its signals may come; the log is read again from so far before the last look."""
GATHERED = "signals gathered until"
ALL_ADVISED = "everything that judged queries would show with this advice is judged"

NAMED_RESULTS = 5
"""How many results to name if someone asks for one that does not exist."""
_RANK = re.compile(r"[0-9]{1,6}")


Unjudged: TypeAlias = tuple[LoggedQuery, Sequence[RankedHit]]
"""A logged query, and its results to be judged, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRun:
    """The result of an evaluation.

    `signals` counts the judgements implied by use. `left` queries are not judged yet; `stopped` says why the
    run ended before all were.
    """

    signals: int
    outcomes: tuple[EvaluationOutcome, ...] = ()
    left: int = 0
    stopped: str | None = None

    @property
    def evaluations(self) -> list[Evaluation]:
        """Return the stored evaluations of the queries that the model was asked about."""
        return [one.evaluation for one in self.outcomes if one.evaluation]

    @property
    def precision(self) -> float | None:
        """Return the mean over the judged queries; None if there are none."""
        judged = [one.precision for one in self.evaluations if one.error is None and one.judged_count]
        return fmean(judged) if judged else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningStats:
    """What is known about the quality of the answers, and what it cost to find out."""

    weights: WeightsReport
    quota_left: int
    """How many more queries a language model may judge within this hour."""
    days: tuple[BackendDay, ...] = ()
    kinds: Mapping[JudgementKind, int] = field(default_factory=dict)
    judged_queries: int = 0
    evaluations: int = 0
    failed_evaluations: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class Judging:
    """Judges the logged queries of one memory."""

    def __init__(self, context: LearningContext, weights: WeightTables) -> None:
        self._context = context
        self._weights = weights

    async def judge(
        self, trace_id: str, result: str, *, relevance: float, used: bool = False, by: str = ""
    ) -> Judgement:
        """Store someone's judgement of a result: its relevance from 0 to 1, and whether it was used.

        `result` is its 1-based rank in the delivered answer, its path, or its path and lines as in
        `path#L3-L5`. By its lines, a candidate that a backend found and the answer did not show can be judged
        too; its rank is the one after the last that was shown.

        Raises:
            FeedbackError: there is no such query or result, or the relevance is not from 0 to 1.
            OpsLogError: the log cannot be read, or the prefix of the trace id is not unique.
        """
        query, hidden = await self._query(trace_id)
        hit = named_result(query, result, hidden=hidden)
        if not 0.0 <= relevance <= 1.0:
            raise FeedbackError("no relevance", subject=f"{relevance}", advice="give a number from 0 to 1")
        judgement = query.judged(
            hit,
            JudgementKind.EXPLICIT,
            at=self._context.clock(),
            relevance=relevance,
            was_used=used,
            by=by,
        )
        await self._context.stored(lambda store: store.add([judgement]))
        return judgement

    async def gather(self) -> int:
        """Store the judgements implied by use since the last look; return how many are new."""
        now = self._context.clock()
        until = await self._context.stored_if_any(lambda store: store.mark(GATHERED))
        first = window(self._context, None)
        # A mark in the future was set by a clock that ran fast; then look at everything again.
        if until is not None and (last := datetime.fromisoformat(until)) <= now:
            first = last - LOOK_BACK
        quotes = await self._in_transcripts(quotes_in_transcripts, first)
        since = min([first, *(one.at - LOOK_BACK for one in quotes)])
        new = 0
        async for part in signals_of(self._context, since=since, answers=quotes):
            new += await self._context.stored(methodcaller("add", part))
        await self._context.stored_if_any(lambda store: store.set_mark(GATHERED, now.isoformat()))
        return new

    async def evaluate(
        self,
        *,
        since: datetime | None = None,
        limit: int | None = None,
        read: TextReader | None = None,
        on_outcome: OutcomeCallback | None = None,
        advice: WeightTable | None = None,
    ) -> EvaluationRun:
        """Gather signals, then have a language model judge queries that it has not judged, latest first.

        At most `limit` queries are judged, by default from the last seven days. `read` returns the text of a
        result; without it the model sees the previews in the log, which has none for results that were not
        shown. With `advice`, the model instead judges unjudged results that judged queries would show under
        these weights.
        """
        signals = await self.gather()
        most = self._context.settings.evaluations_per_hour + 1  # one more, to see that the quota is exceeded
        most = most if limit is None else min(limit, most)
        waiting, left = await self._waiting(advice, since, most)
        run = EvaluationRun(signals=signals, left=left)
        if not left:
            return replace(run, stopped=ALL_ADVISED if advice else "no query is left to judge")
        try:
            async with language_model(self._context.settings.llm) as model:
                return await self._evaluate(model, waiting, run, read, on_outcome)
        except FeedbackError as error:
            return replace(run, stopped=str(error))

    async def stats(self, since: datetime | None = None) -> LearningStats:
        """Return what is known about the quality of the answers since then, and what it cost."""
        report, per_hour = await self._weights.report(), self._context.settings.evaluations_per_hour
        first, now = window(self._context, since), self._context.clock()
        found = await self._context.stored_if_any(lambda store: _stats(store, report, first, now, per_hour))
        return found or LearningStats(weights=report, quota_left=per_hour)

    async def _evaluate(
        self,
        model: LanguageModel,
        waiting: Sequence[Unjudged],
        run: EvaluationRun,
        read: TextReader | None,
        on_outcome: OutcomeCallback | None,
    ) -> EvaluationRun:
        per_hour, clock = self._context.settings.evaluations_per_hour, self._context.clock
        store = await self._context.stored(lambda store: store)
        evaluator = Evaluator(model, store, per_hour=per_hour, clock=clock)
        since = min((query.at for query, _ in waiting), default=clock())
        found = await self._in_transcripts(answers_in_transcripts, since)
        answers = {one.trace_id: one.text for one in found}
        for query, hits in waiting:
            texts = await _texts_of(hits, read) if read else {}
            answer = answers.get(query.trace_id)
            outcome = await evaluator.evaluate(query, texts=texts, answer=answer, hits=hits)
            if outcome.state == "quota-used-up":
                return replace(run, stopped=outcome.problem)
            self._log(query, outcome)
            left = run.left - (outcome.state == "judged")
            run = replace(run, outcomes=(*run.outcomes, outcome), left=left)
            if on_outcome:
                on_outcome(outcome)
            last = [each.state for each in run.outcomes[-MAX_FAILURES_IN_A_ROW:]]
            if last == ["failed"] * MAX_FAILURES_IN_A_ROW:
                return replace(run, stopped=f"the last {MAX_FAILURES_IN_A_ROW} evaluations failed")
        return run

    async def _waiting(
        self, advice: WeightTable | None, since: datetime | None, most: int
    ) -> tuple[list[Unjudged], int]:
        """Return what a model should judge next, and how much there is in all."""
        context, depth = self._context, self._context.settings.depth
        first = window(context, since) if advice else since or context.clock() - DEFAULT_SPAN
        known = await context.stored_if_any(
            lambda store: (
                store.judgements(since=first) if advice else [],
                store.judged_queries(first),
                store.evaluations(first),
            )
        )
        judgements, done, evaluations = known or ((), (), ())
        failed = Counter((one.trace_id, one.query_id) for one in evaluations if one.error)

        def select(queries: Iterable[LoggedQuery]) -> tuple[list[Unjudged], int]:
            if advice is None:
                return _next_first(_never_judged(queries, done), failed, most)
            return _next_first(_unjudged_under(advice, queries, judgements, depth=depth), failed, most)

        traces = {one.trace_id for one in judgements} if advice else None
        return await stream_queries(context, select, since=first, traces=traces)

    async def _in_transcripts(self, read: Callable[..., list[T]], since: datetime) -> list[T]:
        """Return what `read` finds in the transcripts, if the settings name their folder."""
        folder = self._context.settings.transcripts_dir
        return [] if folder is None else await asyncio.to_thread(read, folder.expanduser(), since=since)

    async def _query(self, trace_id: str) -> tuple[LoggedQuery, frozenset[int]]:
        """Return a query, and the ranks of its results that were too weak to be delivered."""
        found, hidden = await from_log(self._context, partial(_queries_of, trace_id, self._context.memory_id))
        if not found:
            advice = "give at least 4 characters of a trace id from `cmem logs query --action query.merged`"
            raise FeedbackError("no such query", subject=trace_id, advice=advice)
        return found[-1], hidden

    def _log(self, query: LoggedQuery, outcome: EvaluationOutcome) -> None:
        evaluation = outcome.evaluation
        if evaluation is None:
            return
        error = ErrorInfo(type="FeedbackError", message=evaluation.error) if evaluation.error else None
        with trace():
            self._context.ops_log.emit(
                FeedbackEvaluated(
                    query_trace_id=query.trace_id,
                    result_count=evaluation.judged_count,
                    precision=evaluation.precision,
                    mean_relevance=evaluation.mean_relevance,
                    model=evaluation.model,
                    backends=list(query.backends),
                    error=error,
                ),
                status="failure" if error else "success",
                duration_ms=evaluation.duration_ms,
            )


async def _texts_of(hits: Sequence[RankedHit], read: TextReader) -> Mapping[str, str]:
    texts: dict[str, str] = {}
    for hit in hits[:MAX_RESULTS]:
        text = await read(hit.path, hit.start_line, hit.end_line) if hit.start_line > 0 else None
        if text:
            texts[hit.key] = text[hit.start_char :]
    return texts


def _next_first(
    found: Iterable[Unjudged], failed: Mapping[QueryKey, int], most: int
) -> tuple[list[Unjudged], int]:
    """Return the first of what is to be judged, and how much there is in all.

    What no model could judge so far comes last, so that it does not use up the quota of the others.
    """
    number = count(1)
    turns = ((failed.get(query.key, 0), next(number), (query, hits)) for query, hits in found)
    first = nsmallest(most, turns, key=itemgetter(0, 1))
    return [one for *_, one in first], next(number) - 1


def _queries_of(trace_id: str, memory: str, folder: Path) -> tuple[list[LoggedQuery], frozenset[int]]:
    """Return the queries of one memory under a trace, given by a unique prefix of its id.

    Also returns the ranks of the results that were not delivered.
    """
    events = OpsLogReader(folder).trace(trace_id)
    if not events:
        return [], frozenset()
    logged = read_queries(folder, since=events[0].ts, until=events[-1].ts, memory=memory)
    lists = [one.detail.get("hidden") for one in events if isinstance(one.detail, Mapping)]
    hidden = {rank for ranks in lists if isinstance(ranks, list) for rank in ranks if isinstance(rank, int)}
    return [one for one in logged.queries if one.trace_id == events[0].trace_id], frozenset(hidden)


def _stats(
    store: FeedbackStore, weights: WeightsReport, since: datetime, now: datetime, per_hour: int
) -> LearningStats:
    judgements, evaluations = store.judgements(since=since), store.evaluations(since=since)
    an_hour_ago = now - timedelta(hours=1)
    taken = sum(one.at > an_hour_ago for one in store.evaluations(since=an_hour_ago))
    return LearningStats(
        days=tuple(backend_days(judgements)),
        kinds=Counter(one.kind for one in judgements),
        judged_queries=len({(one.trace_id, one.query_id) for one in judgements}),
        evaluations=len(evaluations),
        failed_evaluations=sum(one.error is not None for one in evaluations),
        input_tokens=sum(one.input_tokens for one in evaluations),
        output_tokens=sum(one.output_tokens for one in evaluations),
        quota_left=max(0, per_hour - taken),
        weights=weights,
    )


def named_result(query: LoggedQuery, name: str, *, hidden: Collection[int] = ()) -> RankedHit:
    """Look up a result by its 1-based rank in the answer, its path, or its path and lines.

    Results with `hidden` ranks were not delivered: they have no rank in the answer, and their path alone does
    not name them. With its lines, as in `path#L3-L5`, `path:3-5` or `path:3:5`, a candidate that was not
    shown is found too. A piece of a long line is named by its citation, as in `path#L3:1280`; without the
    character it is the piece with which the line begins, or if that was not found, the first that was.

    Raises:
        FeedbackError: there is no such result; the error names those that were shown.
    """
    delivered = [hit for rank, hit in enumerate(query.shown, 1) if rank not in hidden]
    places = dict(enumerate(delivered, 1))
    if _RANK.fullmatch(name) and int(name) in places:
        return places[int(name)]
    found = [*query.shown, *_candidates(query)]
    named = [hit for hit in delivered if hit.path == name] + [hit for hit in found if hit.key == name]
    if cited := read_citation(name):
        of_lines = [hit for hit in found if (hit.path, hit.start_line, hit.end_line) == cited[:3]]
        named += [hit for hit in of_lines if hit.start_char == (cited.start_char or 0)]
        named += of_lines if cited.start_char is None else []
    if named:
        return named[0]
    first = list(places.items())[:NAMED_RESULTS]
    shown = "; ".join(f"{rank}: {format_place(hit)}" for rank, hit in first) or "nothing"
    raise FeedbackError("this query had no such result", subject=name, advice=f"it showed {shown}")


def _candidates(query: LoggedQuery) -> Iterator[RankedHit]:
    """Yield the candidates of the backends, in the order in which they were asked."""
    for answered in query.lists:
        for one in answered.candidates:
            yield RankedHit.of(one, answered.backend, score=one.score, calibrated=one.score)


def _never_judged(queries: Iterable[LoggedQuery], done: Collection[QueryKey]) -> Iterator[Unjudged]:
    return ((query, query.shown) for query in queries if query.shown and query.key not in done)


def _unjudged_under(
    table: WeightTable, queries: Iterable[LoggedQuery], judgements: Sequence[Judgement], *, depth: int
) -> Iterator[Unjudged]:
    """Yield the unjudged results among the first `depth` that judged queries would show under other weights.

    They keep their order. Queries with only implied judgements are skipped: their shown results are judged
    first.
    """
    known, ranker = evidence_of(judgements), Replayer(keeps=1)
    for query in queries:
        evidence = known.get(query.key, {})
        is_judged = any(not one.kind.is_implicit for one in evidence.values())
        if is_judged and ranker.reproduces(query):
            ranking = ranker(query, query.under(table))[:depth]
            hits = [hit for hit in ranking if not any(key in evidence for key in hit.keys)]
            if hits:
                yield query, hits
