"""Parses search filters from a query, and applies them to results that a backend did not filter (pure)."""

import re
from collections.abc import Iterable, Iterator, Sequence, Set
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import NamedTuple

from composable_memory.errors import InvalidArgument
from composable_memory.paths import FOREIGN
from composable_memory.retain.retained_lines import MEMORY_TYPES, MemoryType, retained_lines
from composable_memory.time.windows import moved, named_window
from composable_memory.types import NO_FILTERS, MemorySearchResult, SearchFilters
from composable_memory_ops_logs.lazy import Pattern

LONGEST_READ = 8_000
"""Only this many characters of a query are read for filters."""
NAMED_TYPES = ("fact", "note", "transcript")

_ENDS = "?!.,;…？！。、，；"
_NAMED = Pattern(rf'(?<!\S)(path|tag|type|after|before):("[^"\n]*"[{_ENDS}]*|\S+)')
_QUOTED = re.compile(r'(?<!\S)"(?=[^"\n]*\w)([^"\n]*)"(?![\w"])')
_EXCLUDED = Pattern(r"(?<!\S)-([^\W\d_][\w'’-]*)(?!\S)")
_PROSE_END = Pattern(r"[.?!。？！…]\s*$")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}(?!\d)")


def read_filters(query: str, now: datetime) -> tuple[str, SearchFilters]:
    """Return the query without its filters, and the filters; relative times are counted from `now`.

    A query that ends like a sentence is one: quotation marks and hyphens in it are not filters, as in `who
    sang "Yesterday"?`. The words of a required phrase are still searched for. Punctuation after a filter does
    not belong to it, unless in quotation marks.

    Raises:
        InvalidArgument: a filter has an invalid value.
    """
    if not any(sign in query for sign in (":", '"', "-")):
        return query, NO_FILTERS
    head, tail = query[:LONGEST_READ], query[LONGEST_READ:]
    named = [(match[1], _value_of(match[2])) for match in _NAMED.finditer(head)]
    left = _NAMED.sub(" ", head) if named else head
    is_prose = any(_PROSE_END.search(text) for text in (head, left))
    phrases = () if is_prose else tuple(" ".join(match[1].split()) for match in _QUOTED.finditer(left))
    unquoted = _QUOTED.sub(" ", left)
    without = () if is_prose else tuple(match[1] for match in _EXCLUDED.finditer(unquoted))
    if not (named or phrases or without):
        return query, NO_FILTERS
    if without:
        left = " ".join(
            part if part.startswith('"') else _EXCLUDED.sub(" ", part) for part in _parts_of(left)
        )
    values = {name: [value for key, value in named if key == name] for name in ("path", "tag", "type")}
    after = [parse_since(value, now, "after:") for key, value in named if key == "after"]
    before = [_before(value, now) for key, value in named if key == "before"]
    filters = SearchFilters(
        since=max(after, default=None),
        until=min(before, default=None),
        paths=tuple(values["path"]),
        tags=tuple(values["tag"]),
        types=tuple(values["type"]),
        phrases=phrases,
        without=without,
    )
    return " ".join((left + tail).split()), filters


def _value_of(written: str) -> str:
    """Return the value of a filter without trailing punctuation of the sentence."""
    return (written.rstrip(_ENDS) or written).strip('"')


def _parts_of(text: str) -> Iterator[str]:
    """Split a text into parts, keeping quoted ones whole."""
    at = 0
    for match in _QUOTED.finditer(text):
        yield text[at : match.start()]
        yield match[0]
        at = match.end()
    yield text[at:]


def combine(one: SearchFilters, other: SearchFilters) -> SearchFilters:
    """Return both sets of filters combined; of their paths, sources or types, any one has to match."""
    if not one or not other:
        return one or other
    return SearchFilters(
        since=max(filter(None, (one.since, other.since)), default=None),
        until=min(filter(None, (one.until, other.until)), default=None),
        paths=(*one.paths, *other.paths),
        tags=(*one.tags, *other.tags),
        sources=(*one.sources, *other.sources),
        types=(*one.types, *other.types),
        phrases=(*one.phrases, *other.phrases),
        without=(*one.without, *other.without),
    )


def parse_since(text: str, now: datetime, name: str = "since") -> datetime:
    """Return the start of the time that `text` names, such as `2026-05-03`, `2026-05`, `last week`, `7d`.

    Raises:
        InvalidArgument: it names no time.
    """
    return _window(text, now, name)[0]


def parse_until(text: str, now: datetime, name: str = "until") -> datetime:
    """Return the end of the time that `text` names.

    Raises:
        InvalidArgument: it names no time.
    """
    return _window(text, now, name)[1]


def _before(text: str, now: datetime) -> datetime:
    return moved(_window(text, now, "before:")[0], -timedelta(microseconds=1))


def _window(text: str, now: datetime, name: str) -> tuple[datetime, datetime]:
    window = named_window(text, now)
    try:
        if window is not None:
            return window.start.astimezone(now.tzinfo), window.end.astimezone(now.tzinfo)
    except OverflowError:  # at the edge of the calendar
        pass
    raise InvalidArgument(name, "a time such as 2026-05-03, 2026-05, yesterday, last week or 7d", text)


# --- filtering results --------------------------------------------------------------------------------------


class Filtered(NamedTuple):
    """The results that pass, and the names of the filters that could not be checked for some of them."""

    results: tuple[MemorySearchResult, ...]
    unknown: tuple[str, ...]


def filter_results(results: Iterable[MemorySearchResult], filters: SearchFilters) -> Filtered:
    """Remove the results that fail a filter; those that say too little to be checked stay."""
    kept: list[MemorySearchResult] = []
    unknown: dict[str, None] = {}
    for result in results:
        verdicts = dict(_verdicts(result, filters))
        if False not in verdicts.values():
            kept.append(result)
            unknown.update((name, None) for name, verdict in verdicts.items() if verdict is None)
    return Filtered(tuple(kept), tuple(unknown))


def _verdicts(result: MemorySearchResult, filters: SearchFilters) -> Iterator[tuple[str, bool | None]]:
    """Yield each filter and whether the result passes; None if the result does not say."""
    path = result.origin.path if result.origin else result.path
    if filters.paths:
        yield "path", path_matches(path, filters.paths)
    if filters.sources:
        yield "source", result.source in filters.sources
    if filters.types:
        yield "type", _type_verdict(result, path, filters.types)
    if filters.since or filters.until:
        yield "date", may_pass(day_of(result), filters)
    if filters.tags:
        yield "tag", None
    # The snippet of a fact is its whole text; that of a passage may be only part of it.
    text = " ".join(result.snippet.split()).casefold()
    is_whole = _is_fact(result)
    if filters.phrases:
        yield "phrase", True if has_all_phrases(text, filters.phrases) else (False if is_whole else None)
    if filters.without:
        has_any = any(_word(one).search(text) for one in filters.without)
        yield "-word", False if has_any else (True if is_whole else None)


def day_of(result: MemorySearchResult) -> date | None:
    """Return the day from which a fact holds, or the day of a passage, from its metadata or path."""
    told = result.metadata.get("valid_at") or result.metadata.get("date")
    return (leading_day(told) if isinstance(told, str) else None) or day_in_path(result.path)


def _is_fact(result: MemorySearchResult) -> bool:
    """Return whether a result is a fact, not a passage; passages of other memories often have no lines."""
    return result.start_line == 0 and (bool(result.facts) or FOREIGN not in result.path)


def has_all_phrases(text: str, phrases: Sequence[str]) -> bool:
    """Return whether a text, with single spaces and case folded, contains all phrases."""
    return all(" ".join(phrase.split()).casefold() in text for phrase in phrases)


@lru_cache(maxsize=64)
def _word(word: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(word.casefold())}(?!\w)")


def may_pass(day: date | None, filters: SearchFilters) -> bool | None:
    """Return whether some moment of a day lies between `since` and `until`; None without a day."""
    if day is None:
        return None
    moment = filters.since or filters.until
    zone = moment.tzinfo if moment else None
    first, last = datetime.combine(day, time.min, zone), datetime.combine(day, time.max, zone)
    is_late_enough = filters.since is None or last >= filters.since
    return is_late_enough and (filters.until is None or first <= filters.until)


def day_in_path(path: str) -> date | None:
    """Return the date at the start of the file name, or else of the nearest folder that has one."""
    return next((day for name in reversed(path.split("/")) if (day := leading_day(name))), None)


def leading_day(text: str) -> date | None:
    """Return the day that a text begins with, such as `2026-05-03`."""
    match = _DAY.match(text)
    try:
        return date.fromisoformat(match[0]) if match else None
    except ValueError:  # 2026-02-30 only looks like a date
        return None


def type_matches(
    path: str, source: str, types: Sequence[str], *, is_fact: bool = False, told: str = ""
) -> bool:
    """Return whether an entry is of one of `types`; see `SearchFilters`. `told` is the type it states."""
    kind = "fact" if is_fact else "transcript" if source == "sessions" else "note"
    ending = path.rpartition("/")[2].rpartition(".")[2].lower()
    wanted = {one.strip().lower().removeprefix(".") for one in types}
    if not is_fact and {ending, told.lower()} & (wanted - {*NAMED_TYPES}):
        return True
    return kind in wanted


def _type_verdict(result: MemorySearchResult, path: str, types: Sequence[str]) -> bool | None:
    told = str(result.metadata.get("type", ""))
    if type_matches(path, result.source, types, is_fact=_is_fact(result), told=told):
        return True
    retained = memory_types(types)
    if not retained or _is_fact(result) or result.source != "memory":
        return False
    return True if holds_line_of(result.text or result.snippet, retained) else None


def memory_types(types: Iterable[str]) -> frozenset[MemoryType]:
    """Return the `types` that are types of retained lines, such as `opinion`."""
    named = {one.strip().lower() for one in types}
    return frozenset(one for one in MEMORY_TYPES if one in named)


def holds_line_of(text: str, types: Set[MemoryType]) -> bool:
    """Return whether a text contains a retained line of one of `types`."""
    return any(line.type in types for line in retained_lines(text, everywhere=True))


def path_matches(path: str, patterns: Sequence[str]) -> bool:
    """Return whether a path matches one of the patterns; see `SearchFilters`."""
    return any(_path_pattern(one).fullmatch(path) for one in patterns)


@lru_cache(maxsize=64)
def _path_pattern(pattern: str) -> re.Pattern[str]:
    bare = pattern.strip().removeprefix("./").strip("/")
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", bare)
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    body = "".join(known.get(part, re.escape(part)) for part in parts)
    anywhere = "" if "/" in pattern.strip("/").removeprefix("./") else "(?:.*/)?"
    return re.compile(f"{anywhere}{body}(?:/.*)?", re.DOTALL)
