"""Gather judgements: from people, from use, and from a language model."""

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
from composable_memory.learning.logged import from_log, signals_of, streamed, window
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
"""Returns the text of lines of a memory file, or None where there is none any more."""

OutcomeCallback = Callable[[EvaluationOutcome], None]

GIVE_UP_AFTER = 3
"""After so many failures one after the other it is the model that fails; the quota is kept for later."""
DEFAULT_SPAN = timedelta(days=7)
LOOK_BACK = timedelta(minutes=45)
"""A signal follows on a query within this time; so far behind the last look the log is read again."""
GATHERED = "signals gathered until"
ALL_ADVISED = "all that judged queries would show under the advice is judged"

NAMED_RESULTS = 5
"""So many results are named where somebody asks for one that is not there."""
_RANK = re.compile(r"[0-9]{1,6}")


Unjudged: TypeAlias = tuple[LoggedQuery, Sequence[RankedHit]]
"""A logged query, and those results of it that are to be judged, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRun:
    """What an evaluation brought.

    `signals` counts the judgements that use implied. `left` queries are not judged yet; `stopped` says why
    the run ended before all were.
    """

    signals: int
    outcomes: tuple[EvaluationOutcome, ...] = ()
    left: int = 0
    stopped: str | None = None

    @property
    def evaluations(self) -> list[Evaluation]:
        """Return what was written down of the queries that the model was asked about."""
        return [one.evaluation for one in self.outcomes if one.evaluation]

    @property
    def precision(self) -> float | None:
        """Return the mean over the queries that were judged; None where none was."""
        judged = [one.precision for one in self.evaluations if one.error is None and one.judged_count]
        return fmean(judged) if judged else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningStats:
    """What is known about the quality of the answers, and what finding it out has cost."""

    weights: WeightsReport
    quota_left: int
    """How many queries a language model may still judge within this hour."""
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
        """Keep what somebody says of a result: its relevance from 0 to 1, and whether it was used.

        `result` is its place in the answer as it was delivered, from 1, its path, or its path and lines as in
        `path#L3-L5`. By its lines, what a backend found and the answer did not show is judged too; its rank
        is the one after the last that was shown.

        Raises:
            FeedbackError: there is no such query or result, or the relevance is not from 0 to 1.
            OpsLogError: the log cannot be read, or the beginning of the trace id is not unique.
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
        """Keep what use implies since the last look; return how many judgements are new."""
        now = self._context.clock()
        until = await self._context.stored_if_any(lambda store: store.mark(GATHERED))
        first = window(self._context, None)
        # A mark that is still to come was set by a clock that ran ahead; all is looked at again.
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
        """Gather signals, then have a language model judge queries that it has not judged, the latest first.

        At most `limit` queries are judged, by default of the last seven days. `read` returns the text of a
        result; without it the model sees the previews of the log, which has none of what was not shown. With
        `advice` the model judges instead what judged queries would show under these weights and nobody has
        judged.
        """
        signals = await self.gather()
        most = self._context.settings.evaluations_per_hour + 1  # the one too many tells of the quota
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
        """Return what is known about the quality of the answers since then, and what that has cost."""
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
            self._tell(query, outcome)
            left = run.left - (outcome.state == "judged")
            run = replace(run, outcomes=(*run.outcomes, outcome), left=left)
            if on_outcome:
                on_outcome(outcome)
            last = [each.state for each in run.outcomes[-GIVE_UP_AFTER:]]
            if last == ["failed"] * GIVE_UP_AFTER:
                return replace(run, stopped=f"the last {GIVE_UP_AFTER} evaluations failed")
        return run

    async def _waiting(
        self, advice: WeightTable | None, since: datetime | None, most: int
    ) -> tuple[list[Unjudged], int]:
        """Return what a model is to judge next, and how much is left in all."""
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
                return _in_turn(_never_judged(queries, done), failed, most)
            return _in_turn(_unjudged_under(advice, queries, judgements, depth=depth), failed, most)

        traces = {one.trace_id for one in judgements} if advice else None
        return await streamed(context, select, since=first, traces=traces)

    async def _in_transcripts(self, read: Callable[..., list[T]], since: datetime) -> list[T]:
        """Return what is read of the transcripts, where the settings name their folder."""
        folder = self._context.settings.transcripts_dir
        return [] if folder is None else await asyncio.to_thread(read, folder.expanduser(), since=since)

    async def _query(self, trace_id: str) -> tuple[LoggedQuery, frozenset[int]]:
        """Return a query, and the ranks of its results that were too weak to be delivered."""
        found, hidden = await from_log(self._context, partial(_queries_of, trace_id, self._context.memory_id))
        if not found:
            advice = "give at least 4 characters of a trace of `cmem logs query --action query.merged`"
            raise FeedbackError("no such query", subject=trace_id, advice=advice)
        return found[-1], hidden

    def _tell(self, query: LoggedQuery, outcome: EvaluationOutcome) -> None:
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


def _in_turn(
    found: Iterable[Unjudged], failed: Mapping[QueryKey, int], most: int
) -> tuple[list[Unjudged], int]:
    """Return the first of what is to be judged, and how much that is in all.

    What no model could judge so far comes last: it must not use up the quota of the others.
    """
    number = count(1)
    turns = ((failed.get(query.key, 0), next(number), (query, hits)) for query, hits in found)
    first = nsmallest(most, turns, key=itemgetter(0, 1))
    return [one for *_, one in first], next(number) - 1


def _queries_of(trace_id: str, memory: str, folder: Path) -> tuple[list[LoggedQuery], frozenset[int]]:
    """Return the queries of one memory under a trace, of which the unique beginning will do.

    Beside them stand the ranks of those results that were not delivered.
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
    """Return a result by its place in the answer, from 1, its path, or its path and lines.

    Results of `hidden` ranks were not delivered: they have no place in the answer, and their path alone does
    not name them. With its lines, as in `path#L3-L5`, `path:3-5` or `path:3:5`, a candidate is found that was
    not shown. A piece of a long line is named by its citation, as in `path#L3:1280`; without the character it
    is the piece with which the line begins, and where that was not found, the first that was.

    Raises:
        FeedbackError: no result is called so; the error names those that were shown.
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
    raise FeedbackError("this query found no such result", subject=name, advice=f"it showed {shown}")


def _candidates(query: LoggedQuery) -> Iterator[RankedHit]:
    """Yield what the backends answered, in the order in which they were asked."""
    for answered in query.lists:
        for one in answered.candidates:
            yield RankedHit.of(one, answered.backend, score=one.score, calibrated=one.score)


def _never_judged(queries: Iterable[LoggedQuery], done: Collection[QueryKey]) -> Iterator[Unjudged]:
    return ((query, query.shown) for query in queries if query.shown and query.key not in done)


def _unjudged_under(
    table: WeightTable, queries: Iterable[LoggedQuery], judgements: Sequence[Judgement], *, depth: int
) -> Iterator[Unjudged]:
    """Yield what judged queries would show under other weights, of the first `depth` results, unjudged.

    They keep their order. Queries of which only use is known are left to a judgement of what they did show.
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
