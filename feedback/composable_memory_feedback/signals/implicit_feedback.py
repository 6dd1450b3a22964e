"""Infer judgements from traffic: what was opened, quoted, or asked again (pure).

Such signals say most about results that were looked at, which those in front are more often; whoever learns
from them has to allow for the rank, which every judgement tells.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TypeAlias

from composable_memory_feedback.judgements import Judgement, JudgementKind
from composable_memory_feedback.logged import (
    LoggedAnswer,
    LoggedQuery,
    LoggedRead,
    RankedHit,
    Traffic,
    TrafficItem,
)
from composable_memory_feedback.signals.quoting import is_rephrased
from composable_memory_ops_logs import TakenFrom
from composable_memory_ops_logs.quick_dataclass import dataclass

REQUERY_WINDOW = timedelta(minutes=3)
"""A question that is put again counts as a sign of failure within this time."""
REQUERY_DEPTH = 3
"""So many results are held to have been looked at before the question was put again."""

PART_SPAN = timedelta(hours=1)
"""So much traffic is judged at a time, with what came shortly before and after it."""

Conversation: TypeAlias = tuple[str | None, str | None, str]
"""Session key, memory and composite; a composite inside another has conversations of its own."""


def gather(
    traffic: Traffic,
    *,
    window: timedelta = timedelta(minutes=30),
    names: Collection[tuple[str, str]] | None = None,
) -> list[Judgement]:
    """Return what the traffic says of the results that were shown, oldest first; at most one of a kind each.

    Opened: a read of the result's place, or of the place a fact was taken from. It counts for the latest
    query of its session that showed the place at most `window` before, or for those of the trace that the
    read names. Quoted: an answer that names the trace quotes the place. Either is of relevance 1. Requeried:
    nothing of a query was used before its question was put again in other words; its first results are of
    relevance 0, save those that then turned out to be of use. With `names` only these queries are judged.
    """
    shown = [_Shown(query) for query in traffic.queries]
    uses = [*_opened(shown, traffic.reads, window), *_quoted(shown, traffic.answers)]
    signs = [*uses, *_requeried(shown, uses, window)]
    judgements = [_judgement(one) for one in signs if names is None or _name(one.shown.query) in names]
    judgements.sort(key=lambda one: (one.at, one.trace_id, one.query_id, one.rank, one.kind))
    first: dict[tuple[str, ...], Judgement] = {}
    for one in judgements:
        first.setdefault((one.trace_id, one.query_id, one.key, one.kind), one)
    return list(first.values())


def gather_parts(
    items: Iterable[TrafficItem],
    *,
    answers: Sequence[LoggedAnswer] = (),
    window: timedelta = timedelta(minutes=30),
    span: timedelta = PART_SPAN,
) -> Iterator[list[Judgement]]:
    """Yield what `gather` returns of traffic that comes newest first, part by part.

    Nothing that happens more than `window` before or after a query says anything of it, unless it names the
    trace. So what is held grows with the traffic of `span`, and with the reads and answers that name a trace,
    not with all that was asked; of queries it is what they showed. `answers` are further ones.
    """
    held: list[TrafficItem] = []
    waiting: dict[tuple[str, str], datetime] = {}
    edge, reach = None, max(window, REQUERY_WINDOW)
    for item in items:
        edge = item.at - span if edge is None else edge
        if item.at < edge - reach:
            over = {name for name, at in waiting.items() if at >= edge}
            yield _judged_of(over, held, answers, window)
            waiting = {name: at for name, at in waiting.items() if name not in over}
            held = [one for one in held if _names_a_trace(one) or one.at < edge + reach]
            edge = item.at + reach - span
        if isinstance(item, LoggedQuery):
            waiting[_name(item)] = item.at
            held.append(_without_candidates(item))
        else:
            held.append(item)
    yield _judged_of(waiting, held, answers, window)


def _judged_of(
    names: Collection[tuple[str, str]],
    items: Sequence[TrafficItem],
    answers: Sequence[LoggedAnswer],
    window: timedelta,
) -> list[Judgement]:
    """Return what traffic, newest first, says of some of its queries."""
    oldest_first = list(items[::-1])  # so that those of one moment stand in the order of writing
    oldest_first.sort(key=lambda one: one.at)
    traffic = Traffic(
        queries=tuple(one for one in oldest_first if isinstance(one, LoggedQuery)),
        reads=tuple(one for one in oldest_first if isinstance(one, LoggedRead)),
        answers=(*(one for one in oldest_first if isinstance(one, LoggedAnswer)), *answers),
    )
    return gather(traffic, window=window, names=names)


def _names_a_trace(item: TrafficItem) -> bool:
    return isinstance(item, LoggedRead | LoggedAnswer) and item.query_trace_id is not None


def _without_candidates(query: LoggedQuery) -> LoggedQuery:
    """Return a query with those candidates alone that say where a result that was shown was taken from."""
    shown = {hit.key for hit in query.shown}
    lists = tuple(
        replace(found, candidates=tuple(one for one in found.candidates if one.origin and one.key in shown))
        for found in query.lists
    )
    return replace(query, lists=lists, near=frozenset(), written=None)


class _Shown:
    """A query with the places that its results stand at and, for facts, were taken from."""

    def __init__(self, query: LoggedQuery) -> None:
        self.query = query

    @property
    def conversation(self) -> Conversation:
        return self.query.session_key, self.query.memory, self.query.manager

    @cached_property
    def places(self) -> Sequence[Sequence[TakenFrom]]:
        origins = {
            one.key: one.origin
            for found in self.query.lists
            for one in found.candidates
            if one.origin is not None
        }
        own = [
            (hit.key, TakenFrom(hit.path, hit.start_line, hit.end_line, hit.start_char or None))
            for hit in self.query.shown
        ]
        return [(place, origins[key]) if key in origins else (place,) for key, place in own]

    @cached_property
    def paths(self) -> frozenset[str]:
        return frozenset(place.path for places in self.places for place in places)

    def ranks_read_by(self, read: LoggedRead) -> list[int]:
        if read.path not in self.paths:
            return []
        return [rank for rank, places in enumerate(self.places, 1) if any(map(read.covers, places))]

    def ranks_at(self, place: TakenFrom) -> list[int]:
        return [rank for rank, places in enumerate(self.places, 1) if place in places]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sign:
    """Something happened that says something of the result at a rank."""

    shown: _Shown
    rank: int
    kind: JudgementKind
    at: datetime

    @property
    def hit(self) -> RankedHit:
        return self.shown.query.shown[self.rank - 1]


def _opened(shown: Sequence[_Shown], reads: Sequence[LoggedRead], window: timedelta) -> Iterator[_Sign]:
    by_session, by_trace = _by_session(shown), _by_trace(shown)
    for read in reads:
        if read.query_trace_id is not None:
            candidates = by_trace[read.query_trace_id]
        else:
            candidates = _latest(by_session[read.session_key], read, window)
        for one in candidates:
            for rank in one.ranks_read_by(read):
                yield _Sign(shown=one, rank=rank, kind=JudgementKind.OPENED, at=read.at)


def _latest(shown: Sequence[_Shown], read: LoggedRead, window: timedelta) -> list[_Shown]:
    """Return of each conversation the latest query that showed what was read."""
    first = bisect_left(shown, read.at - window, key=_time)
    last = bisect_right(shown, read.at, key=_time)
    latest: dict[Conversation, _Shown] = {}
    for one in reversed(shown[first:last]):
        is_open = one.conversation not in latest and read.memory in (None, one.query.memory)
        if is_open and one.ranks_read_by(read):
            latest[one.conversation] = one
    return list(latest.values())


def _quoted(shown: Sequence[_Shown], answers: Sequence[LoggedAnswer]) -> Iterator[_Sign]:
    by_trace = _by_trace(shown)
    for answer in answers:
        for one in by_trace[answer.query_trace_id]:
            for rank in (rank for place in answer.quoted for rank in one.ranks_at(place)):
                yield _Sign(shown=one, rank=rank, kind=JudgementKind.QUOTED, at=answer.at)


def _requeried(shown: Sequence[_Shown], uses: Sequence[_Sign], window: timedelta) -> Iterator[_Sign]:
    """Yield the failures; a use of a conversation clears the results that it found useful in the end."""
    used_queries = {_name(use.shown.query) for use in uses}
    uses_of: dict[Conversation, list[_Sign]] = defaultdict(list)
    for use in uses:
        uses_of[use.shown.conversation].append(use)
    for conversation, questions in _by_conversation(shown).items():
        for place, one in enumerate(questions):
            later = (questions[at] for at in range(place + 1, len(questions)))
            again = _asked_again(one.query, later)
            if again is None or _name(one.query) in used_queries:
                continue
            useful = {
                key for use in uses_of[conversation] if _follows(use, one, window) for key in use.hit.keys
            }
            for rank, hit in enumerate(one.query.shown[:REQUERY_DEPTH], 1):
                if useful.isdisjoint(hit.keys):
                    yield _Sign(shown=one, rank=rank, kind=JudgementKind.REQUERIED, at=again.at)


def _asked_again(query: LoggedQuery, later: Iterable[_Shown]) -> LoggedQuery | None:
    for one in later:
        if one.query.at - query.at > REQUERY_WINDOW:
            return None
        if is_rephrased(query.query, one.query.query):
            return one.query
    return None


def _follows(use: _Sign, one: _Shown, window: timedelta) -> bool:
    return one.query.at <= use.at <= one.query.at + window


def _judgement(sign: _Sign) -> Judgement:
    was_used = sign.kind is not JudgementKind.REQUERIED
    relevance = 1.0 if was_used else 0.0
    return sign.shown.query.judged(sign.hit, sign.kind, at=sign.at, relevance=relevance, was_used=was_used)


def _by_session(shown: Sequence[_Shown]) -> dict[str | None, list[_Shown]]:
    grouped: dict[str | None, list[_Shown]] = defaultdict(list)
    for one in sorted(shown, key=_time):
        grouped[one.query.session_key].append(one)
    return grouped


def _by_trace(shown: Sequence[_Shown]) -> dict[str, list[_Shown]]:
    grouped: dict[str, list[_Shown]] = defaultdict(list)
    for one in shown:
        grouped[one.query.trace_id].append(one)
    return grouped


def _by_conversation(shown: Sequence[_Shown]) -> dict[Conversation, list[_Shown]]:
    grouped: dict[Conversation, list[_Shown]] = defaultdict(list)
    for one in sorted(shown, key=_time):
        grouped[one.conversation].append(one)
    return grouped


def _time(one: _Shown) -> datetime:
    return one.query.at


def _name(query: LoggedQuery) -> tuple[str, str]:
    return query.trace_id, query.query_id
