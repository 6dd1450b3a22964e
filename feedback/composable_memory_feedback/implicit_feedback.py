"""Infer judgements from traffic: what was opened or quoted after a search (pure).

Such signals say most about results that were looked at, which those in front are more often; whoever learns
from them has to allow for the rank, which every judgement tells.
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
"""A read, and the conversations in which it counted for a query already."""


class Uses:
    """What reads and answers say of results, of traffic that comes newest first.

    So all that followed on a query is known when the query is met, and no query has to be kept. `answers` are
    further ones, which name the trace of their query. `window` is how long a read may follow on a search.
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
        """Yield what is said of the results that were shown; at most one judgement of a kind for each.

        Opened: a read of the result's place, or of the place a fact was taken from. It counts for the latest
        query of each conversation of its session that showed the place, or for those of the trace that the
        read names. Quoted: an answer that names the trace quotes the place. Either is of relevance 1.
        """
        for item in traffic:
            if isinstance(item, LoggedQuery):
                yield from self._said_of(item)
            elif item.query_trace_id is not None:
                self._naming[item.query_trace_id].append(item)
            elif isinstance(item, LoggedRead):
                self._reads[item.session_key].append((item, set()))

    def may_tell_of(self, start: OpsEvent, _rest: Sequence[OpsEvent]) -> bool:
        """Return whether anything may follow on a query; of others its lines need not be read."""
        if not isinstance(start.session_key, str | None):
            return True  # such a line is counted
        return start.trace_id in self._naming or any(True for _ in self._after(start.ts, start.session_key))

    def _said_of(self, query: LoggedQuery) -> Iterator[Judgement]:
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
        """Yield the reads of a session within the window after a moment; the last that is kept goes by."""
        reads = self._reads[session_key]
        while reads and reads[0][0].at > at + 2 * self._window:  # lines may be a little out of order
            reads.popleft()
        return (one for one in reads if at <= one[0].at <= at + self._window)


def _places_of(query: LoggedQuery) -> list[Sequence[TakenFrom]]:
    """Return the places that each result of a query stands at and, where it is a fact, was taken from."""
    origins = {
        one.key: one.origin for found in query.lists for one in found.candidates if one.origin is not None
    }
    own = [
        (hit.key, TakenFrom(hit.path, hit.start_line, hit.end_line, hit.start_char or None))
        for hit in query.shown
    ]
    return [(place, origins[key]) if key in origins else (place,) for key, place in own]
