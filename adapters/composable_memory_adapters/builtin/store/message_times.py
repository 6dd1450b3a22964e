"""The times of transcripts' messages, by line range.

The table is created when the first transcript is indexed; an index without transcripts has none.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import date, datetime, tzinfo
from typing import NamedTuple

from composable_memory_adapters.builtin.notes.sessions import QUARTER_S, MessageTime
from composable_memory_adapters.sqlite_file import Connection

CREATE = """
CREATE TABLE IF NOT EXISTS message_times (
  path TEXT NOT NULL,
  first_line INTEGER NOT NULL,
  last_line INTEGER NOT NULL,
  at INTEGER NOT NULL,         -- seconds since 1970 when the quarter of an hour began
  PRIMARY KEY (path, first_line)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS idx_message_times_at ON message_times(at);
"""
EXISTS = "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'message_times')"
PASSAGES = """
SELECT id, path, start_line, end_line FROM chunks
WHERE source = 'sessions' AND path IN (SELECT value FROM json_each(?)) ORDER BY path, start_line, start_char
"""
TIMES = """
SELECT path, first_line, last_line, at FROM message_times WHERE path IN (SELECT value FROM json_each(?))
"""
SAID_BETWEEN = "SELECT DISTINCT path FROM message_times WHERE at BETWEEN ? AND ?"
PATHS = """
SELECT DISTINCT path FROM chunks WHERE source = 'sessions' AND id IN (SELECT value FROM json_each(?))
"""
TIMED = """
SELECT path FROM files
WHERE source = 'sessions' AND EXISTS (SELECT 1 FROM message_times AS times WHERE times.path = files.path)
"""


class SaidPassage(NamedTuple):
    """A passage of a transcript, and the time of some of its messages."""

    id: int
    path: str
    at: int


def store(connection: Connection, times: Mapping[str, Sequence[MessageTime]]) -> None:
    """Store the times of some transcripts, by path, replacing those already stored."""
    connection.execute(CREATE)
    connection.executemany("DELETE FROM message_times WHERE path = ?", [(path,) for path in times])
    rows = [(path, *one) for path, some in times.items() for one in some]
    connection.executemany("INSERT INTO message_times VALUES (?, ?, ?, ?)", rows)


def prune(connection: Connection) -> None:
    """Drop the times of transcripts that are no longer in the index."""
    if connection.execute(EXISTS).get:
        connection.execute(
            "DELETE FROM message_times WHERE path NOT IN (SELECT path FROM files WHERE source = 'sessions')"
        )


def timed_paths(connection: Connection) -> frozenset[str]:
    """Return the transcripts whose messages have times."""
    if not connection.execute(EXISTS).get:
        return frozenset()
    return frozenset(path for (path,) in connection.execute(TIMED))


def said_between(connection: Connection, since: datetime | None, until: datetime | None) -> list[SaidPassage]:
    """Return the passages with messages from a period, both ends included."""
    if not connection.execute(EXISTS).get:
        return []
    first, last = seconds_between(since, until)
    paths = [path for (path,) in connection.execute(SAID_BETWEEN, (first, last))]
    return [one for one in _passages_of(connection, paths) if first <= one.at <= last]


def seconds_between(since: datetime | None, until: datetime | None) -> tuple[int, int]:
    """Return the first and last stored time, in seconds, that fall in a period, both ends included."""
    first = int(since.timestamp()) // QUARTER_S * QUARTER_S if since else -(2**62)
    return first, int(until.timestamp()) if until else 2**62


def days_of(connection: Connection, ids: Iterable[int], zone: tzinfo | None) -> dict[int, set[date]]:
    """Return the days on which passages' messages were said, for those that have times."""
    wanted = frozenset(ids)
    if not connection.execute(EXISTS).get:
        return {}
    paths = [path for (path,) in connection.execute(PATHS, (json.dumps([*wanted]),))]
    return days_among(_passages_of(connection, paths), wanted, zone)


def days_among(said: Iterable[SaidPassage], ids: Set[int], zone: tzinfo | None) -> dict[int, set[date]]:
    """Return the days of those passages that are in `ids`."""
    days: defaultdict[int, set[date]] = defaultdict(set)
    for one in said:
        if one.id in ids:
            days[one.id].add(datetime.fromtimestamp(one.at, zone).date())
    return dict(days)


def _passages_of(connection: Connection, paths: Sequence[str]) -> Iterator[SaidPassage]:
    times = connection.execute(TIMES, (json.dumps(paths),))
    return said_passages(connection.execute(PASSAGES, (json.dumps(paths),)), times)


def said_passages(
    passages: Iterable[tuple[int, str, int, int]], rows: Iterable[tuple[str, int, int, int]]
) -> Iterator[SaidPassage]:
    """Yield each passage of a transcript once per message time, in order of position.

    `passages` are ids, paths, first and last lines; `rows` are paths, each with a `MessageTime`. Messages
    that a passage repeats from the one before do not count, unless it has no others.
    """
    times: defaultdict[str, list[MessageTime]] = defaultdict(list)
    for path, *when in rows:
        times[path].append(MessageTime(*when))
    last_path, reached = "", 0
    for id_, path, start, end in passages:
        reached = reached if path == last_path else 0
        own = min(max(start, reached + 1), end)
        last_path, reached = path, max(reached, end)
        for time in times[path]:
            if time.first_line <= end and time.last_line >= own:
                yield SaidPassage(id_, path, time.at)
