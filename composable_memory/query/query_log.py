"""Writes the steps of a query into the ops log, with everything that a replay needs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from functools import partial
from itertools import chain, count, islice, repeat
from typing import Any

from composable_memory.query.context_pack import PackBudget
from composable_memory.query.fusion import Group, Merged, T
from composable_memory.query.near_duplicates import near_pairs, near_pairs_shown
from composable_memory.query.ranking import QueryContext, Ranking
from composable_memory.types import (
    LEGS,
    BackendAnswer,
    DroppedCandidate,
    MemorySearchResult,
    Origin,
    QueryIntent,
    QueryRequest,
    QueryResponse,
    SearchFilters,
    SkipReason,
    TimeHint,
)
from composable_memory_ops_logs import (
    QUERY_PREVIEW_CHARS,
    BackendResult,
    Candidate,
    ContextPackBuild,
    DedupStats,
    Dropped,
    ErrorInfo,
    FinalResult,
    Intent,
    Interleaved,
    NearPair,
    OpsLog,
    QueryMerged,
    QueryStart,
    TakenFrom,
    redact,
)
from composable_memory_ops_logs import Degradation as LoggedDegradation
from composable_memory_ops_logs.events import MadeWhenRead, snippet_preview

MOST_NEAR_PAIRS = 20_000
"""As many as two hundred equal texts make; a log line holds no more."""
TOO_MANY_NEAR = NearPair(-1, -1)
"""Stands for more pairs than are logged; such a query cannot be replayed."""


class QueryLogger:
    """Logs the steps of one query."""

    def __init__(self, ops_log: OpsLog, context: QueryContext) -> None:
        self._ops_log = ops_log
        self._context = context

    def start(
        self,
        request: QueryRequest,
        intent: QueryIntent | None,
        active: Sequence[str],
        skipped: Mapping[str, SkipReason],
        filters: SearchFilters,
    ) -> None:
        """Log `query.start`."""
        if not self._ops_log.is_heard:
            return
        # Masked before it is cut: part of a secret could no longer be recognised.
        query = redact(request.query)
        if intent is not None and query != request.query:
            intent = _without_masked(intent, query)
        self._ops_log.emit(
            QueryStart(
                query=query[:QUERY_PREVIEW_CHARS],
                max_results=request.options.max_results,
                min_score=request.options.min_score,
                intent=_intent(intent) if intent else None,
                active_backends=active,
                skipped_backends=skipped,
                weights_version=self._context.active_weights.version,
                manager=self._context.manager_id,
                query_id=self._context.query_id,
                memory=self._context.memory,
                now=request.now.isoformat() if request.now else None,
                filters=_filters(filters) if filters else None,
            )
        )

    def backend_result(self, answer: BackendAnswer, depth: int) -> None:
        """Log `query.backend_result` with every candidate."""
        if not self._ops_log.is_heard:
            return
        rule = self._context.rules[answer.backend_id]
        self._ops_log.emit(
            BackendResult(
                weight=self._context.weights[answer.backend_id],
                result_count=len(answer.results),
                results=MadeWhenRead(partial(_candidates, answer.results), partial(_columns, answer.results)),
                depth=depth,
                error=ErrorInfo.of(answer.error) if answer.error else None,
                query_id=self._context.query_id,
                calibration=rule.method,
                is_absolute=rule.is_absolute,
                answered_by=_answered_by(answer),
                legs={leg: [round(ms, 2) for ms in span] for leg, span in answer.legs.items()} or None,
                leg_scores=_leg_scores(answer.results),
            ),
            status="failure" if answer.error else "partial" if answer.degraded else "success",
            backend=answer.backend_id,
            duration_ms=round(answer.took_ms, 3),
        )

    def merged(
        self,
        request: QueryRequest,
        response: QueryResponse,
        ranking: Ranking[MemorySearchResult],
        draw: Interleaved | None,
    ) -> None:
        """Log `query.merged`; `draw` says how the list was drawn if it was interleaved from two rankings."""
        if not self._ops_log.is_heard:
            return
        merged, policy = ranking.merged, self._context.policy
        self._ops_log.emit(
            QueryMerged(
                fusion=policy.fusion,
                calibration=ranking.calibrations,
                weights={one.backend_id: self._context.weights[one.backend_id] for one in response.answers},
                dedup=policy.dedup,
                min_score=request.options.min_score,
                max_results=request.options.max_results,
                depth=policy.depth,
                rrf_k=policy.rrf_k,
                total_before_dedup=merged.total_before_dedup,
                total_after_dedup=merged.total_after_dedup,
                dedup_stats=DedupStats(
                    duplicates_removed=merged.total_before_dedup - merged.total_after_dedup,
                    by_backend={one.backend_id: len(one.results) for one in response.answers},
                ),
                final_results=MadeWhenRead(partial(_results, merged), partial(_result_rows, merged)),
                dropped=MadeWhenRead(partial(_dropped, response.dropped), partial(_loser_rows, merged)),
                backend_attribution=_paths_by_backend(response),
                degraded=[
                    LoggedDegradation(backend=one.backend_id, reason=f"{one.code}: {one.reason}")
                    for one in response.degraded
                ],
                query_id=self._context.query_id,
                intent_kind=self._context.kind,
                near=MadeWhenRead(
                    partial(_near, response.answers, request.options.max_results, policy.depth)
                ),
                experiment=draw,
            ),
            status="partial" if response.degraded else "success",
            duration_ms=round(response.latency_ms, 3),
        )


def log_context_pack(ops_log: OpsLog, pack: str, selected: int, budget: PackBudget) -> None:
    """Log `context_pack.build`."""
    ops_log.emit(
        ContextPackBuild(
            query_count=1,
            selected_count=selected,
            max_chars=budget.max_chars,
            max_tokens=budget.max_tokens,
            pack_length=len(pack),
        )
    )


def _results(merged: Merged[T]) -> list[FinalResult]:
    """Return the results of a ranking in the format of the log."""
    return [_final(group) for group in merged.kept]


def _result_rows(merged: Merged[T]) -> Iterator[tuple[Any, ...]]:
    for group in merged.kept:
        best, others = group.best, [(one.backend_id, one.rank) for one in group.others]
        yield (best.backend_id, best.rank), group.score, best.calibrated, others, group.support, best.weight


def _loser_rows(merged: Merged[T]) -> Iterator[tuple[Any, ...]]:
    for loser in merged.losers:
        one, against = loser.found, loser.against
        if isinstance(against, str):
            yield (one.backend_id, one.rank), loser.reason, against, None
        else:
            yield (
                (one.backend_id, one.rank),
                loser.reason,
                f"{loser.lost} ",
                (against.backend_id, against.rank),
            )


def _dropped(candidates: Sequence[DroppedCandidate]) -> list[Dropped]:
    """Return dropped candidates in the format of the log."""
    return [
        Dropped(  # positional, as there are dozens of them
            one.result.path,
            one.result.start_line,
            one.result.end_line,
            one.backend_id,
            one.reason,
            one.detail,
            _taken_from(one.result.origin),
            one.result.start_char or None,
        )
        for one in candidates
    ]


def _without_masked(intent: QueryIntent, query: str) -> QueryIntent:
    """Return an intent without what was masked in the query."""
    said = query.casefold()
    return replace(
        intent,
        entities=tuple(one for one in intent.entities if one.casefold() in said),
        topics=tuple(one for one in intent.topics if one.casefold() in said),
    )


def _filters(filters: SearchFilters) -> dict[str, str | Sequence[str]]:
    found = {one.name: getattr(filters, one.name) for one in fields(filters)}
    return {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in found.items()
        if value
    }


def _intent(intent: QueryIntent) -> Intent:
    return Intent(
        entities=intent.entities,
        topics=intent.topics,
        time_hints=[_time_hint(hint) for hint in intent.time_hints],
    )


def _time_hint(hint: TimeHint) -> dict[str, str | int]:
    fields = {"phrase": hint.phrase, "type": hint.type, "unit": hint.unit, "offset": hint.offset,
              "date": hint.date, "until": hint.until, "relation": hint.relation}  # fmt: skip
    return {name: value for name, value in fields.items() if value is not None}


def _candidates(results: Sequence[MemorySearchResult]) -> list[Candidate]:
    paths, starts, ends, scores, sources, previews, *rest = _columns(results)
    rows = zip(paths, starts, ends, scores, count(1), sources, previews, repeat(None), *rest, strict=False)
    return [*map(tuple.__new__, repeat(Candidate), rows)]  # a third of the time of calling the class


def _columns(results: Sequence[MemorySearchResult]) -> tuple[Sequence[Any], ...]:
    """Return the same as columns, which takes half the time: most of the last ones are empty."""
    origins = [one.origin for one in results]
    return (
        [one.path for one in results],
        [one.start_line for one in results],
        [one.end_line for one in results],
        [one.score for one in results],
        [one.source for one in results],
        [snippet_preview(one.snippet) for one in results],
        [one.exact for one in results],
        [*map(_taken_from, origins)] if any(origins) else origins,
        [one.start_char or None for one in results],
        [*map(_outdated, results)] if any(one.facts for one in results) else [None] * len(results),
    )


def _outdated(result: MemorySearchResult) -> tuple[TakenFrom, ...] | None:
    return tuple(filter(None, map(_taken_from, result.outdated))) or None if result.facts else None


def _near(answers: Sequence[BackendAnswer], max_results: int, depth: int) -> list[NearPair]:
    lists = [answer.results for answer in answers]
    # For more results than the default depth, the whole lists are ranked before the cut.
    is_whole = max_results > depth
    found = near_pairs([*chain(*lists)]) if is_whole else near_pairs_shown(lists, max_results)
    pairs = [NearPair(*pair) for pair in islice(found, MOST_NEAR_PAIRS + 1)]
    return pairs if len(pairs) <= MOST_NEAR_PAIRS else [TOO_MANY_NEAR]


def _leg_scores(results: Sequence[MemorySearchResult]) -> dict[str, list[float | None]] | None:
    """Return the scores that each leg gave to the results; None if no result has any."""
    told: dict[str, list[Any]] = {leg: [one.metadata.get(leg) for one in results] for leg in LEGS}
    scores = {
        leg: column
        if {float}.issuperset(map(type, column))
        else [one if isinstance(one, float) else None for one in column]
        for leg, column in told.items()
        if any(column)
    }
    return scores or None


def _taken_from(origin: Origin | TakenFrom | None) -> TakenFrom | None:
    return TakenFrom(origin.path, origin.start_line, origin.end_line) if origin else None


def _final(group: Group[T]) -> FinalResult:
    best, result = group.best, group.best.result
    return FinalResult(
        result.path,
        result.start_line,
        result.end_line,
        score=group.score,
        backend=best.backend_id,
        raw_score=result.score,
        calibrated_score=best.calibrated,
        weight=best.weight,
        backend_rank=best.rank,
        merged_with=tuple(other.label for other in group.others),
        support=group.support,
        snippet_preview=snippet_preview(result.snippet),
        origin=_taken_from(result.origin),
        start_char=result.start_char or None,
    )


def _answered_by(answer: BackendAnswer) -> str | None:
    by = answer.results[0].metadata.get("answered_by") if answer.results else None
    return by if isinstance(by, str) else None


def _paths_by_backend(response: QueryResponse) -> dict[str, list[str]]:
    paths: dict[str, list[str]] = {}
    for result, attribution in zip(response.results, response.attributions, strict=True):
        paths.setdefault(attribution.backend_id, []).append(result.path)
    return paths
