"""Values of what an ops log tells of a memory's use: the questions, and what was done with the answers."""

from collections.abc import Mapping
from dataclasses import field
from datetime import datetime

from composable_memory_feedback.logged.logged_query import LoggedQuery
from composable_memory_ops_logs import TakenFrom
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedRead:
    """A memory file, or lines of it, were read: `lines` from `from_line` on, from 1; None reads to the end.

    `query_trace_id` names the search that led there, where the reader said so.
    """

    at: datetime
    path: str
    from_line: int | None = None
    lines: int | None = None
    session_key: str | None = None
    memory: str | None = None
    query_trace_id: str | None = None

    def covers(self, place: TakenFrom) -> bool:
        """Return whether any line of a place was read; of a place without lines, whether its file was."""
        if place.path != self.path or (self.lines is not None and self.lines < 1):
            return False
        first = self.from_line or 1
        is_before_the_end = self.lines is None or place.start_line < first + self.lines
        return place.start_line < 1 or (first <= place.end_line and is_before_the_end)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedAnswer:
    """An answer was given with what a search had brought; `quoted` are the results it quotes."""

    at: datetime
    query_trace_id: str
    quoted: tuple[TakenFrom, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedQueries:
    """Queries, oldest first. `incomplete` counts, by the reason, what could not be used."""

    queries: tuple[LoggedQuery, ...] = ()
    incomplete: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Queries and what came after them, each oldest first. `incomplete` is as in `LoggedQueries`."""

    queries: tuple[LoggedQuery, ...] = ()
    reads: tuple[LoggedRead, ...] = ()
    answers: tuple[LoggedAnswer, ...] = ()
    incomplete: Mapping[str, int] = field(default_factory=dict)
