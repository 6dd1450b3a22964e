"""Makes values of the lines of the log, once it is clear that they can be believed."""

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from itertools import repeat
from typing import cast

from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.logged.log_lines import (
    AnswerLine,
    AnswerOfBackend,
    BackendLine,
    CandidateColumns,
    FinalLine,
    LongMergedLine,
    MergedLine,
    QueryStartLine,
    ReadLine,
    ShortMergedLine,
)
from composable_memory_feedback.logged.logged_query import (
    LoggedAnswer,
    LoggedExperiment,
    LoggedList,
    LoggedQuery,
    LoggedRead,
    RankedHit,
    RankingPolicy,
)
from composable_memory_ops_logs import PIECES_TOLD, Candidate, OpsEvent
from composable_memory_ops_logs.events import JsonValue
from composable_memory_ops_logs.short_form import ShortRanking, final_row, is_short, read_short


class MissingLines(ValueError):
    """The lines of a query are not all there."""


def start_from(event: OpsEvent) -> QueryStartLine:
    """Read a `query.start`.

    Raises:
        ValueError: the line lies.
    """
    start = QueryStartLine.model_validate(event.detail)
    if len(set(start.active_backends)) < len(start.active_backends):
        raise ValueError("a backend cannot be asked twice")
    return start


def query_from(event: OpsEvent, start: QueryStartLine, rest: Sequence[OpsEvent]) -> LoggedQuery:
    """Make a query of its start, which `event` carries, and of its other lines in the order of writing.

    Raises:
        MissingLines: the merged list, or what a backend answered, is not among them.
        ValueError: a line lies.
    """
    merges = [one for one in rest if one.action == "query.merged"]
    if not merges:
        raise MissingLines(start.query_id)
    detail = merges[0].detail
    merged: MergedLine
    final: Sequence[JsonValue]
    dropped: Sequence[JsonValue]
    if isinstance(detail, Mapping) and is_short(detail):
        ranking, merged = read_short(detail), ShortMergedLine.model_validate(detail)
        found = zip(merged.backends, ranking.candidates, strict=True)
        answers = {one.backend: _list(one.backend, one, tuple(candidates)) for one, candidates in found}
        shown = tuple(_short_hit(row, ranking) for row in merged.shown)
        final, dropped = ranking.final, ranking.dropped
    else:
        merged, answers = LongMergedLine.model_validate(detail), _long_answers(rest)
        shown = tuple(_hit(one, _start_char(one, merged.rules, answers)) for one in merged.final_results)
        final, dropped = (_as_written(merges[0], name) for name in ("finalResults", "dropped"))
    if not answers.keys() >= set(start.active_backends):
        raise MissingLines(start.query_id)
    lists = tuple(answers[one] for one in start.active_backends)
    near = frozenset(merged.near_pairs)
    _check(merged, lists, near, len(shown))
    return LoggedQuery(
        trace_id=event.trace_id,
        query_id=start.query_id,
        at=event.ts,
        query=start.query,
        intent=IntentKind(merged.intent_kind or IntentKind.GENERAL),
        policy=_policy(merged),
        lists=lists,
        near=near,
        shown=shown,
        weights_version="" if start.weights_version is None else str(start.weights_version),
        manager=start.manager,
        memory=start.memory,
        session_key=_session(event),
        experiment=_experiment(merged),
        degraded=tuple(f"{one.backend}: {one.reason}" for one in merged.degraded),
        final_results=final,
        dropped_results=dropped,
        rules=merged.rules,
    )


def read_from(event: OpsEvent) -> LoggedRead:
    """Read a `memory.read`.

    Raises:
        ValueError: the line lies.
    """
    line = ReadLine.model_validate(event.detail)
    return LoggedRead(
        at=event.ts,
        path=line.path,
        from_line=line.from_line,
        lines=line.lines,
        session_key=_session(event),
        memory=line.memory,
        query_trace_id=line.query_trace_id,
    )


def answer_from(event: OpsEvent) -> LoggedAnswer:
    """Read an `answer.given`.

    Raises:
        ValueError: the line lies.
    """
    line = AnswerLine.model_validate(event.detail)
    quoted = tuple(one.place for one in line.quoted)
    return LoggedAnswer(at=event.ts, query_trace_id=line.query_trace_id, quoted=quoted)


def _long_answers(rest: Sequence[OpsEvent]) -> dict[str, LoggedList]:
    answers = {}
    for one in reversed(rest):
        if one.action == "query.backend_result" and isinstance(one.backend, str):
            line = BackendLine.model_validate(one.detail)
            answers[one.backend] = _list(one.backend, line, _candidates(line.results))
    return answers


def _list(backend: str, line: AnswerOfBackend, candidates: tuple[Candidate, ...]) -> LoggedList:
    return LoggedList(
        backend=backend,
        depth=line.depth,
        candidates=candidates,
        calibration=line.calibration,
        is_absolute=line.is_absolute,
        answered_by=line.answered_by,
        error=None if line.error is None else f"{line.error.type}: {line.error.message}",
    )


def _candidates(columns: CandidateColumns) -> tuple[Candidate, ...]:
    origins = tuple(None if origin is None else origin.place for origin in columns.origin)
    outdated = tuple(places and tuple(one.place for one in places) for places in columns.outdated)
    rows = zip(
        columns.path,
        columns.start_line,
        columns.end_line,
        columns.score,
        columns.rank,
        columns.source,
        columns.snippet_preview,
        columns.content_hash or repeat(None),
        columns.exact or repeat(False),
        origins or repeat(None),
        columns.start_char or repeat(None),
        outdated or repeat(None),
        strict=False,  # what repeats has no end
    )
    return tuple(map(_candidate, rows))


_candidate = cast("Callable[[tuple[object, ...]], Candidate]", partial(tuple.__new__, Candidate))
"""Makes a candidate of all its fields in order, in a third of the time of calling the class."""


def _check(merged: MergedLine, lists: Sequence[LoggedList], near: Set[tuple[int, int]], results: int) -> None:
    """Refuse a merged list that does not fit what the backends answered."""
    found = sum(len(one.candidates) for one in lists)
    if any(max(pair) >= found for pair in near):
        raise ValueError("a pair names a candidate that is not there")
    if not merged.weights.keys() >= {one.backend for one in lists}:
        raise ValueError("a backend has no weight")
    if merged.experiment is not None and len(merged.experiment.teams) != results:
        raise ValueError("not every result has a team")


def _policy(line: MergedLine) -> RankingPolicy:
    return RankingPolicy(
        fusion=line.fusion,
        dedup=line.dedup,
        rrf_k=line.rrf_k,
        weights=line.weights,
        max_results=line.max_results,
        min_score=line.min_score,
        depth=line.depth,
    )


def _start_char(line: FinalLine, rules: int, answers: Mapping[str, LoggedList]) -> int:
    """Return where a result begins within its first line; in older lines only its candidate says so."""
    if rules < PIECES_TOLD:
        found = answers[line.backend].candidates if line.backend in answers else ()
        if 0 < line.backend_rank <= len(found):
            return found[line.backend_rank - 1].start_char or 0
    return line.start_char or 0


def _hit(line: FinalLine, start_char: int) -> RankedHit:
    return RankedHit(
        path=line.path,
        start_line=line.start_line,
        end_line=line.end_line,
        start_char=start_char,
        backend=line.backend,
        score=line.score,
        calibrated=line.calibrated_score,
        # Written as "backend path:start:end".
        others=tuple(label.partition(" ")[2] for label in line.merged_with),
    )


def _short_hit(row: object, ranking: ShortRanking) -> RankedHit:
    """Return a result of the short form; the passage that it names says where it begins within its line."""
    if isinstance(row, dict):
        line = FinalLine.model_validate(row)
        return _hit(line, line.start_char or 0)
    try:
        number, score, calibrated, others, *_ = final_row(cast("Sequence[object]", row))
        backend, one = ranking.found[number]
        if not (isinstance(score, float) and isinstance(calibrated, float)):
            raise TypeError("a score is a number")
        return RankedHit(
            path=one.path,
            start_line=one.start_line,
            end_line=one.end_line,
            start_char=one.start_char or 0,
            backend=backend,
            score=score,
            calibrated=calibrated,
            others=tuple(ranking.key(other) for other in others),
        )
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"not a result: {error!r}") from error


def _experiment(merged: MergedLine) -> LoggedExperiment | None:
    line = merged.experiment
    if line is None:
        return None
    return LoggedExperiment(
        id=line.id,
        weights_a=line.weights_a,
        weights_b=line.weights_b,
        seed=line.seed,
        teams=tuple(line.teams),
    )


def _session(event: OpsEvent) -> str | None:
    if not isinstance(event.session_key, str | None):
        raise ValueError("a session key is a text")
    return event.session_key


def _as_written(event: OpsEvent, name: str) -> Sequence[JsonValue]:
    """Return a list that was validated, as it stands in the log."""
    return cast("Mapping[str, Sequence[JsonValue]]", event.detail).get(name, ())
