"""Finds the time that a query asks for, and the passages that date from it or mention it.

A note's date is that in its name, in its nearest dated folder, or `date:` in its front matter. A passage of a
transcript has the days of its messages, or that of the file's last change if they have no times. The keyword
index finds texts that mention a time, in a few spellings.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta, tzinfo
from itertools import islice, takewhile
from operator import itemgetter
from statistics import fmean
from typing import Protocol

from composable_memory.paths import NOTE_SUFFIXES
from composable_memory.query.filters import day_in_path, leading_day
from composable_memory.query.intent import LONGEST_READ
from composable_memory.time.expressions import time_mentions
from composable_memory.time.windows import MOST_DAYS, SHORT_DAYS, TIME_BONUS, DaySpan, window_of
from composable_memory.types import QueryIntent, TimeHint
from composable_memory_adapters.builtin.search.hybrid import FusedHit
from composable_memory_adapters.builtin.store.message_times import SaidPassage, said_between, timed_paths
from composable_memory_adapters.builtin.store.read_queries import PassageReader
from composable_memory_adapters.sqlite_file import Connection
from composable_memory_adapters.text import stop_words
from composable_memory_adapters.text.forms import folded
from composable_memory_adapters.text.query_terms import topic_of
from composable_memory_ops_logs.lazy import Pattern
from composable_memory_ops_logs.quick_dataclass import dataclass

SAYING_BONUS = 0.1
"""Bonus for a passage that only mentions the time in its text."""
MOST_DAYS_LISTED = 92
"""For spans of up to this many days, a quarter or a season, all notes from them are candidates."""
MOST_LISTED = 400
MOST_SPELLINGS = 200

FILES = """
SELECT path, source, mtime FROM files
WHERE (source = 'memory' AND path GLOB ?) OR (source = 'sessions' AND mtime BETWEEN ? AND ?)
"""
WITH_DAY = "SELECT path, day FROM files WHERE day BETWEEN ? AND ?"
PASSAGES = """
SELECT id, path FROM chunks WHERE path IN (SELECT value FROM json_each(?))
ORDER BY path, start_line, start_char LIMIT ?
"""
SAYING = "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT ?"

_MONTHS = (
    "january januar enero", "february februar febrero", "march märz marzo", "april abril", "may mai mayo",
    "june juni junio", "july juli julio", "august agosto", "september septiembre", "october oktober octubre",
    "november noviembre", "december dezember diciembre",
)  # fmt: skip
# Words and characters that only ask what happened at a time.
_ONLY_ASKS = frozenset(
    """happen happened happening note notes diary journal log entry entries write wrote written
    passiert geschah geschehen los notiz notizen tagebuch eintrag einträge gemacht geschrieben
    show everything anything new week day days month earlier morning afternoon evening night doing
    going notable
    alles neues stand steht woche tag monat abend morgen vormittag nachmittag
    pasó paso ocurrió nota notas diario hice hicimos hizo escribí semana día mes mañana tarde noche
    passé fait noté écrit carnet semaine jour mois soir matin
    monday tuesday wednesday thursday friday saturday sunday
    montag dienstag mittwoch donnerstag freitag samstag sonntag
    lunes martes miércoles jueves viernes sábado domingo
    lundi mardi mercredi jeudi vendredi samedi dimanche""".split()
)
_ONLY_ASKS_HAN = re.compile("发生|什么|日记|笔记|记录|星期|[事情干做写过的了我们在有吗呢那天是都末初底周]")
_WORD = re.compile(r"\w+")
_STOPS = stop_words.ALWAYS.union(*stop_words.BY_LANGUAGE.values())
_END = re.compile(r"\bend\b|\bfinal")
_SUFFIXES = "|".join(map(re.escape, sorted(NOTE_SUFFIXES)))
_DAY_IN_NAME = Pattern(rf"(?<![\w-])(?:[\w.-]+/)*(\d{{4}}-\d{{2}}-\d{{2}})(?:(?:{_SUFFIXES})\b)?(?!\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedTime:
    """The time that a query asks for, in the asker's time zone; `is_all` if it asks for nothing else."""

    spans: tuple[DaySpan, ...]
    is_all: bool
    zone: tzinfo | None = None

    @property
    def is_within(self) -> bool:
        """Return whether no day outside the spans can match, and every note inside them was listed."""
        return all(1 < span.days <= MOST_DAYS_LISTED and not span.any_year for span in self.spans)

    def level(self, day: date | None) -> float:
        """Return how well a day matches: 2 for the day or the week, 1 for the month, 0 for not at all."""
        return max((span.level(day) for span in self.spans), default=0.0) if day else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dated:
    """What the index has for the time asked for.

    `ids` are passages from that time, the first of each note before the others. `days` dates the notes and
    transcripts whose paths have no date. `saying` are the passages that mention the time.
    """

    asked: AskedTime
    ids: Sequence[int]
    days: Mapping[str, date]
    saying: frozenset[int]

    def among(self, passages: Sequence[int]) -> "Dated":
        """Return a copy in which `ids` has only those passages."""
        wanted = frozenset(passages)
        return replace(self, ids=[id_ for id_ in self.ids if id_ in wanted])


def subject_of(query: str, intent: QueryIntent | None) -> str:
    """Return a query without its as-of time: what was true then was written earlier.

    That date would only find the note of that day.
    """
    subject = query
    for hint in filter(_asks_for_state, _hints(query, intent)):
        subject = re.sub(re.escape(hint.phrase), " ", subject, count=1, flags=re.IGNORECASE)
    return topic_of(subject.strip()) or query


def asked_time(query: str, intent: QueryIntent | None, now: datetime) -> AskedTime | None:
    """Return the time that a query asks for; None if it asks for none, or for nearly all time."""
    hints = tuple(hint for hint in _hints(query, intent) if not _asks_for_state(hint))
    spans = tuple(span for span in _spans(hints, now) if span.days <= MOST_DAYS) if hints else ()
    rest = query.lower()
    for hint in hints:
        rest = rest.replace(hint.phrase, " ", 1)
    named = None if hints else _DAY_IN_NAME.search(rest[:LONGEST_READ])
    day = day_in_path(named[1]) if named else None
    if named and day and date.min.year < day.year < date.max.year:  # needs a day before and after
        spans, rest = (DaySpan(first=day, last=day),), rest.replace(named[0], " ", 1)
    if not spans:
        return None
    words = (word for word in _WORD.findall(_ONLY_ASKS_HAN.sub(" ", rest)) if word not in _ONLY_ASKS)
    is_all = all(folded(word) in _STOPS or word in _STOPS for word in words)
    return AskedTime(spans=spans, is_all=is_all, zone=now.tzinfo)


def _hints(query: str, intent: QueryIntent | None) -> tuple[TimeHint, ...]:
    return intent.time_hints if intent else tuple(one.hint for one in time_mentions(query))


def _asks_for_state(hint: TimeHint) -> bool:
    """Return whether a hint asks how things stood at a time; "end of May" may ask what happened then."""
    return hint.relation == "as-of" and _END.search(hint.phrase) is None


def _spans(hints: Sequence[TimeHint], now: datetime) -> Iterator[DaySpan]:
    """Yield the intersection of all hints; if it is empty, the span of each."""
    each = [window for hint in hints if (window := window_of([hint], now))]
    shared = window_of(hints, now)
    if shared is None:
        return
    # A weekday belongs to the week that is also named; alone it would mean another day.
    has_weekday = any((hint.date or "").startswith("-W") for hint in hints)
    if (
        len(each) > 1
        and not has_weekday
        and not all(one.start <= shared.start <= shared.end <= one.end for one in each)
    ):
        for hint in hints:
            yield from _spans([hint], now)
        return
    zone = now.tzinfo
    named = hints[0].date or "" if hints[0].relation in (None, "during") else ""
    try:
        first, last = shared.start.astimezone(zone).date(), shared.end.astimezone(zone).date()
    except OverflowError:  # at an edge of the calendar
        return
    yield DaySpan(
        first=first, last=last, any_year=len(hints) == 1 and re.fullmatch(r"--\d\d", named) is not None
    )


class NoteTimes(Protocol):
    """Reads from an index which times its notes and transcripts date from."""

    def of_days(self, first: str, last: str) -> Iterable[tuple[str, str]]:
        """Return the files whose front matter has a day between two ISO dates, with that day."""
        ...

    def files(self, pattern: str, first_ns: int, last_ns: int) -> Iterable[tuple[str, str, int]]:
        """Return path, source and mtime of notes whose path matches, and of transcripts last changed then."""
        ...

    def passages(self, paths: Iterable[str], limit: int) -> Iterable[tuple[int, str]]:
        """Return ids and paths of the passages of some files, in order of position in each file."""
        ...

    def timed_paths(self) -> frozenset[str]:
        """Return the transcripts whose messages have times."""
        ...

    def said_between(self, since: datetime, until: datetime) -> Sequence[SaidPassage]:
        """Return the passages with messages from a period."""
        ...


@dataclass(frozen=True, slots=True)
class IndexTimes:
    """Implements `NoteTimes` within a transaction of the index file."""

    connection: Connection

    def of_days(self, first: str, last: str) -> Iterable[tuple[str, str]]:
        """Return the files whose front matter has a day between two ISO dates, with that day."""
        return self.connection.execute(WITH_DAY, (first, last))

    def files(self, pattern: str, first_ns: int, last_ns: int) -> Iterable[tuple[str, str, int]]:
        """Return path, source and mtime of notes whose path matches, and of transcripts last changed then."""
        return self.connection.execute(FILES, (pattern, first_ns, last_ns))

    def passages(self, paths: Iterable[str], limit: int) -> Iterable[tuple[int, str]]:
        """Return ids and paths of the passages of some files, in order of position in each file."""
        return self.connection.execute(PASSAGES, (json.dumps([*paths]), limit))

    def timed_paths(self) -> frozenset[str]:
        """Return the transcripts whose messages have times."""
        return timed_paths(self.connection)

    def said_between(self, since: datetime, until: datetime) -> Sequence[SaidPassage]:
        """Return the passages with messages from a period."""
        return said_between(self.connection, since, until)


def find_dated(connection: Connection, asked: AskedTime, *, has_keywords: bool) -> Dated:
    """Return what the index file has for a time."""
    saying: frozenset[int] = frozenset()
    if has_keywords and (phrases := " OR ".join(f'"{one}"' for one in spellings(asked))):
        saying = frozenset(row[0] for row in connection.execute(SAYING, (phrases, MOST_LISTED)))
    return dated_of(IndexTimes(connection), asked, saying)


def dated_of(times: NoteTimes, asked: AskedTime, saying: frozenset[int]) -> Dated:
    """Return what an index has for a time; `saying` are the passages that mention it."""
    heads = dict(one for span in asked.spans for one in _days_in_heads(times, span))
    short = [span for span in asked.spans if span.days <= MOST_DAYS_LISTED]
    days = {path: day for path, day in heads.items() if _is_in(day, short)}
    for span in short:
        days |= _files_of(times, span)
    for path in times.timed_paths():
        days.pop(path, None)
    said = [one for span in short for one in _said_in(times, span, asked.zone)]
    ids = _passages_of(times, days, said) if days or said else []
    return Dated(asked=asked, ids=ids, days=heads | days, saying=saying)


def spellings(asked: AskedTime) -> Sequence[str]:
    """Return the phrases by which a text may mention a time."""
    return [*islice(_phrases(asked.spans), MOST_SPELLINGS)]


def _days_in_heads(times: NoteTimes, span: DaySpan) -> Iterator[tuple[str, date]]:
    """Yield the notes whose front matter has a matching day and whose path has none."""
    first, last = span.first.replace(day=1), (span.last.replace(day=28) + timedelta(days=4)).replace(day=1)
    for path, told in times.of_days(first.isoformat(), last.isoformat()):
        if (day := leading_day(told)) and not day_in_path(path):
            yield path, day


def _files_of(times: NoteTimes, span: DaySpan) -> dict[str, date]:
    midnight = datetime.combine(span.first, datetime.min.time()).astimezone()
    first_ns = int(midnight.timestamp() * 1e9)
    last_ns = first_ns + span.days * 86_400 * 10**9 - 1
    pattern = f"*{_shared_beginning(span.first.isoformat(), span.last.isoformat())}*"
    found = {}
    for path, source, mtime in times.files(pattern, first_ns, last_ns):
        day = day_in_path(path) if source == "memory" else _day_of_change(mtime)
        if day and span.first <= day <= span.last:
            found[path] = day
    return found


def _said_in(times: NoteTimes, span: DaySpan, zone: tzinfo | None) -> Iterator[tuple[date, str, int]]:
    """Yield first day, path and id of each transcript passage with messages from a period."""
    first, last = (datetime.combine(day, time.min).replace(tzinfo=zone) for day in (span.first, span.last))
    earliest: dict[int, SaidPassage] = {}
    for said in times.said_between(first, last + timedelta(days=1, seconds=-1)):
        earliest.setdefault(said.id, said)
    for said in earliest.values():
        yield datetime.fromtimestamp(said.at, zone).date(), said.path, said.id


def _shared_beginning(one: str, other: str) -> str:
    return "".join(a for a, _ in takewhile(lambda both: both[0] == both[1], zip(one, other, strict=True)))


def _day_of_change(mtime_ns: int) -> date:
    return datetime.fromtimestamp(mtime_ns / 1e9).astimezone().date()


def _is_in(day: date, spans: Sequence[DaySpan]) -> bool:
    return any(span.first <= day <= span.last for span in spans)


def _passages_of(
    times: NoteTimes, days: Mapping[str, date], said: Sequence[tuple[date, str, int]]
) -> list[int]:
    """Return the passages of files and those in `said`: the first of each file, by date, then the others."""
    firsts: dict[str, tuple[date, int]] = {}
    others: list[tuple[date, int]] = []
    rows = times.passages(days, MOST_LISTED)
    for day, path, id_ in (*((days[path], path, id_) for id_, path in rows), *sorted(said)[:MOST_LISTED]):
        if path in firsts:
            others.append((day, id_))
        else:
            firsts[path] = (day, id_)
    return [id_ for _, id_ in (*sorted(firsts.values(), key=itemgetter(0)), *sorted(others))]


def _phrases(spans: Sequence[DaySpan]) -> Iterator[str]:
    """Yield the spellings of single days, or of months if whole ones are asked for."""
    for span in spans:
        if span.days <= SHORT_DAYS:
            for number in range(span.days):
                yield from _spellings(span.first + timedelta(days=number), in_words=span.days == 1)
            continue
        if span.is_year:
            yield f"{span.first.year}"
            continue
        month = span.first.replace(day=1)
        while month <= span.last:
            yield f"{month:%Y %m}"
            yield from (f"{name} {month:%Y}" for name in _MONTHS[month.month - 1].split())
            yield f"{month:%Y} 年 {month.month} 月"
            month = (month + timedelta(days=31)).replace(day=1)


def _spellings(day: date, *, in_words: bool) -> Iterator[str]:
    yield f"{day:%Y %m %d}"
    yield f"{day:%d %m %Y}"
    yield f"{day.month} 月 {day.day} 日"
    for name in _MONTHS[day.month - 1].split() if in_words else ():
        yield from (f"{day.day} {name}", f"{name} {day.day}", f"{day.day} de {name}")


def rescored(reader: PassageReader, hits: Sequence[FusedHit], dated: Dated) -> list[FusedHit]:
    """Return `hits` with bonuses for matching the time, best first."""
    paths = {id_: origin.path for id_, origin in reader.origins([hit.id for hit in hits]).items()}
    told: Mapping[str, date | None] = dated.days
    if not dated.asked.is_within:
        told = {path: told.get(path) or day_in_path(path) for path in {*paths.values()}}
    by_path = {path: dated.asked.level(day) for path, day in told.items()}
    levels = {id_: by_path.get(path, 0.0) for id_, path in paths.items()}
    for id_, days in reader.days_of(paths, dated.asked.zone).items():
        levels[id_] = fmean(map(dated.asked.level, days))
    places = {id_: place for place, id_ in enumerate(dated.ids)}
    scored = []
    for hit in hits:
        gain = max(TIME_BONUS * levels.get(hit.id, 0.0), SAYING_BONUS if hit.id in dated.saying else 0.0)
        score = hit.score + gain
        if dated.asked.is_all:
            # If the query asks for nothing but a time, its words and meaning carry no other information.
            if hit.id in places:
                score = 0.95 - 0.2 * places[hit.id] / len(places)
            else:
                score = 0.5 * hit.score + (0.25 if hit.id in dated.saying else 0.0)
        scored.append((score, hit))
    scored.sort(key=lambda one: -one[0])
    return [hit if score == hit.score else replace(hit, score=min(1.0, score)) for score, hit in scored]
