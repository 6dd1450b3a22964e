"""Infers judgements from traffic: what was opened or quoted after a search (pure).

Such signals say most about results that were looked at, which is more often those at the top; whoever learns
from them must take the rank into account, which every judgement has.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from composable_memory_feedback.judgements import Judgement, JudgementKind
from composable_memory_feedback.logged.logged_query import LoggedAnswer, LoggedQuery, LoggedRead
from composable_memory_feedback.logged.reading import TrafficItem
from composable_memory_ops_logs import OpsEvent, TakenFrom

Conversation: TypeAlias = tuple[str | None, str | None, str]
"""Session key, memory and composite; a composite inside another has conversations of its own."""
_Read: TypeAlias = tuple[LoggedRead, set[Conversation]]
"""A read, and the conversations in which it already counted for a query."""


class Uses:
    """Finds what reads and answers imply about results, in traffic that comes newest first.

    In that order, everything that followed a query is known when the query comes, and no query has to be
    kept. `answers` are further ones, which name the trace of their query. `window` is how long after a search
    a read may follow.
    """

    def __init__(
        self, answers: Iterable[LoggedAnswer] = (), *, window: timedelta = timedelta(minutes=30)
    ) -> None:
        self._window = window
        self._naming: defaultdict[str, list[LoggedRead | LoggedAnswer]] = defaultdict(list)
        self._reads: defaultdict[str | None, deque[_Read]] = defaultdict(deque)
        for answer in answers:
            self._naming[answer.query_trace_id].append(answer)

    def judgements(self, traffic: Iterable[TrafficItem]) -> Iterator[Judgement]:
        """Yield the implied judgements of shown results; at most one of each kind per result.

        Opened: a read of the result's place, or of the place a fact was taken from. It counts for the latest
        query of each conversation in its session that showed the place, or for those of the trace that the
        read names. Quoted: an answer that names the trace quotes the place. Either has relevance 1.
        """
        for item in traffic:
            if isinstance(item, LoggedQuery):
                yield from self._judgements_of(item)
            elif item.query_trace_id is not None:
                self._naming[item.query_trace_id].append(item)
            elif isinstance(item, LoggedRead):
                self._reads[item.session_key].append((item, set()))

    def may_have_followers(self, start: OpsEvent, _rest: Sequence[OpsEvent]) -> bool:
        """Return whether anything may have followed a query; otherwise its lines need not be read."""
        if not isinstance(start.session_key, str | None):
            return True  # an invalid line has to be counted
        return start.trace_id in self._naming or any(True for _ in self._after(start.ts, start.session_key))

    def _judgements_of(self, query: LoggedQuery) -> Iterator[Judgement]:
        signs: dict[tuple[int, JudgementKind], datetime] = {}
        shown = [*enumerate(_places_of(query), 1)]

        def note(fits: Callable[[TakenFrom], bool], kind: JudgementKind, at: datetime) -> bool:
            ranks = [rank for rank, places in shown if any(map(fits, places))]
            for rank in ranks:
                signs[rank, kind] = min(at, signs.get((rank, kind), at))
            return bool(ranks)

        for one in self._naming.get(query.trace_id, ()):
            if isinstance(one, LoggedAnswer):
                note(one.quoted.__contains__, JudgementKind.QUOTED, one.at)
            else:
                note(one.covers, JudgementKind.OPENED, one.at)
        conversation = (query.session_key, query.memory, query.manager)
        for read, counted in self._after(query.at, query.session_key):
            if conversation in counted or read.memory not in (None, query.memory):
                continue
            if note(read.covers, JudgementKind.OPENED, read.at):
                counted.add(conversation)
        for (rank, kind), at in sorted(signs.items()):
            yield query.judged(query.shown[rank - 1], kind, at=at, relevance=1.0, was_used=True)

    def _after(self, at: datetime, session_key: str | None) -> Iterator[_Read]:
        """Yield the reads of a session within the window after a moment, and drop reads that are too late."""
        reads = self._reads[session_key]
        while reads and reads[0][0].at > at + 2 * self._window:  # lines may be slightly out of order
            reads.popleft()
        return (one for one in reads if at <= one[0].at <= at + self._window)


def _places_of(query: LoggedQuery) -> list[Sequence[TakenFrom]]:
    """Return for each result of a query its place and, if it is a fact, the place it was taken from."""
    origins = {
        one.key: one.origin for found in query.lists for one in found.candidates if one.origin is not None
    }
    own = [
        (hit.key, TakenFrom(hit.path, hit.start_line, hit.end_line, hit.start_char or None))
        for hit in query.shown
    ]
    return [(place, origins[key]) if key in origins else (place,) for key, place in own]
