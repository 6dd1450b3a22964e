"""Collects what is known about an entity or a time from the notes, the graph and the search."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, date, datetime, time
from functools import partial
from math import ceil
from pathlib import Path

from composable_memory.citations import read_citation
from composable_memory.errors import (
    BackendError,
    ConfigError,
    InvalidArgument,
    require_all,
    require_text,
    require_whole,
)
from composable_memory.facts import Fact
from composable_memory.front_matter import front_matter
from composable_memory.interfaces import Capability, SupportsFacts
from composable_memory.memory_interface import OpenMemory
from composable_memory.paths import is_note
from composable_memory.query.filters import day_in_path, may_pass, parse_since, parse_until
from composable_memory.query.near_duplicates import words_of
from composable_memory.recall.items import RECALL_KINDS, Recall, RecalledItem, RecallKind
from composable_memory.recall.name_matching import KnownNames, NameMatch, folded, is_named
from composable_memory.recall.retained_notes import KnownLine, Note
from composable_memory.types import Degradation, Origin, SearchFilters
from composable_memory_ops_logs.quick_dataclass import dataclass

MOST_GRAPH_ENTITIES = 10
MOST_PASSAGES = 50
MOST_QUERIES = 3
MOST_LINES = 2000
"""How many lines to read of a note that is named like the entity."""
MOST_CHARS = 600
"""Maximum length of a passage; the rest is at its source."""
LEAST_WORD = 3
"""Shorter words of a query are ignored."""


async def recall(memory: OpenMemory, asked: "RecallQuery") -> Recall:
    """Return what is known; see `Memory.recall`."""
    notes = await asyncio.to_thread(memory.notes.read, memory.workspace_dir, memory.status().note_paths)
    lines = [line for note in notes.values() for line in note.lines]
    graph, lost = await facts_if_any(memory, partial(_facts_about, asked))
    match = await asyncio.to_thread(_match, asked, notes, graph)
    found = await asyncio.to_thread(_select, asked, match.names, lines, graph)
    items = found[: asked.most]
    if asked.wants("passage") and len(items) < asked.most:
        passages, degraded = await _passages(memory, asked, match.names, notes)
        found += passages
        items = (found if asked.entity else _ordered(asked, found))[: asked.most]
        lost += degraded
    return Recall(
        items=tuple(items),
        entity=asked.entity,
        names=match.names,
        nearest=() if items else match.nearest or await asyncio.to_thread(_nearest_titles, asked, notes),
        since=asked.window.since,
        until=asked.window.until,
        types=asked.types,
        query=asked.query,
        total=len(found),
        notes=len(notes),
        lines=len(lines),
        degraded=lost,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallQuery:
    """The parameters of a recall; `key` is the entity normalised to compare, `words` those of the query."""

    entity: str | None
    key: str
    window: SearchFilters
    types: tuple[RecallKind, ...]
    query: str | None
    words: frozenset[str]
    most: int
    now: datetime

    def wants(self, kind: RecallKind) -> bool:
        """Return whether items of a kind are wanted."""
        return not self.types or kind in self.types

    def all_names(self, names: Sequence[str]) -> list[str]:
        """Return the entity and the known names that match it, normalised for comparison."""
        return [*dict.fromkeys([self.key, *map(folded, names)])]

    def is_of_time(self, moment: datetime | None) -> bool:
        """Return whether a day is within the wanted time; without a day only if any time will do."""
        is_any = self.window.since is None and self.window.until is None
        return is_any or may_pass(moment.date() if moment else None, self.window) is True

    def has_words(self, text: str) -> bool:
        """Return whether a text has at least half of the query's words, in any form."""
        words = words_of(text)
        found = sum(any(one.startswith(word) for one in words) or word in text for word in self.words)
        return not self.words or found >= ceil(len(self.words) / 2)


def read_recall_query(
    entity: str | None,
    since: datetime | str | None,
    until: datetime | str | None,
    types: Sequence[str],
    query: str | None,
    max_results: int,
    now: datetime,
) -> RecallQuery:
    """Validate the arguments of `Memory.recall`; relative times are counted from `now`.

    Raises:
        InvalidArgument: one of them is invalid.
    """
    require_text("entity", entity, optional=True)
    require_text("query", query, optional=True)
    require_all("types", types, str, "a list of texts")
    require_whole("max_results", max_results)
    if entity is not None and not folded(entity):
        raise InvalidArgument("entity", "a name", entity)
    kinds = tuple(dict.fromkeys(one.strip().lower() for one in types))
    if unknown := [one for one in kinds if one not in RECALL_KINDS]:
        raise InvalidArgument("types", " or ".join(RECALL_KINDS), unknown[0])
    window = SearchFilters(
        since=parse_since(since, now) if isinstance(since, str) else since,
        until=parse_until(until, now) if isinstance(until, str) else until,
    )
    words = {word.strip(".,;:!?\"'()") for word in words_of(query or "")}
    told = {word for word in words if len(word) >= LEAST_WORD} or words - {""}
    return RecallQuery(
        entity=entity,
        key=folded(entity or ""),
        window=window,
        types=tuple(one for one in RECALL_KINDS if one in kinds),
        query=query.strip() or None if query else None,
        words=frozenset(told),
        most=max_results,
        now=now,
    )


# --- lines and facts ----------------------------------------------------------------------------------------


async def facts_if_any(
    memory: OpenMemory, ask: Callable[[SupportsFacts], Awaitable[Sequence[Fact]]], *, otherwise: str = ""
) -> tuple[Sequence[Fact], tuple[Degradation, ...]]:
    """Query the graph for facts, if one is open; also return its failure, with a reason that begins so."""
    try:
        return await ask(memory.facts_of()), ()
    except ConfigError:  # no graph is open
        return (), ()
    except BackendError as error:
        reason = f"{otherwise}{error}"
        return (), (Degradation(backend_id=error.backend_id, code="failed", reason=reason),)


async def _facts_about(asked: RecallQuery, graph: SupportsFacts) -> Sequence[Fact]:
    """Return the facts about the entity, or the newest of all."""
    if asked.entity is None:
        return await graph.facts(limit=5 * asked.most)
    entities = await graph.entities(named=asked.key, limit=MOST_GRAPH_ENTITIES)
    named = [one for one in entities if is_named(folded(one.name), asked.key)]
    facts = {fact.id: fact for one in named for fact in await graph.timeline(one.name)}
    return [*facts.values()]


def _match(asked: RecallQuery, notes: Mapping[str, Note], graph: Sequence[Fact]) -> NameMatch:
    if asked.entity is None:
        return NameMatch()
    of_lines = (name for note in notes.values() for line in note.lines for name in line.line.entities)
    of_facts = (name for fact in graph for name in (fact.source, fact.target))
    groups = [note.names for note in notes.values() if note.names]
    return KnownNames([*of_lines, *of_facts], groups).match(asked.entity)


def _nearest_titles(asked: RecallQuery, notes: Mapping[str, Note]) -> tuple[str, ...]:
    called = (name for note in notes.values() for name in note.called)
    return KnownNames(called).match(asked.entity).nearest if asked.entity else ()


def _select(
    asked: RecallQuery, names: Sequence[str], lines: Sequence[KnownLine], facts: Sequence[Fact]
) -> list[RecalledItem]:
    """Return the wanted lines and facts, in order; a fact that a line already states is left out."""
    wanted = asked.all_names(names)
    ends, told = ends_of_lines(lines, facts, asked.now)
    items = [
        replace(_of_line(line), ended_at=ends.get(line.source))
        for line in lines
        if asked.wants(line.line.type) and (asked.entity is None or _is_about(line, wanted))
    ]
    if asked.wants("fact"):
        left = (fact for fact in facts if fact.id not in told and not fact.is_forgotten(asked.now))
        items += [_of_fact(fact, asked.now) for fact in left]
    return _ordered(
        asked, [one for one in items if asked.is_of_time(one.timestamp) and _holds_words(asked, one)]
    )


def ends_of_lines(
    lines: Iterable[KnownLine], facts: Iterable[Fact], now: datetime
) -> tuple[dict[str, datetime], set[str]]:
    """Return when lines ceased to hold, by source, and the ids of the facts that lines state.

    A line has ended when all facts taken from it have.
    """
    by_path: dict[str, list[KnownLine]] = {}
    for line in lines:
        by_path.setdefault(line.path, []).append(line)
    taken: dict[str, list[Fact]] = {}
    for fact in facts:
        for origin in fact.origins:
            for line in by_path.get(origin.path, ()):
                if _is_from(fact, origin, line):
                    taken.setdefault(line.source, []).append(fact)
    ends = {
        source: max(filter(None, (_end_of(fact) for fact in said)), default=now)
        for source, said in taken.items()
        if not any(fact.is_current(now) for fact in said)
    }
    return ends, {fact.id for said in taken.values() for fact in said}


def _is_from(fact: Fact, origin: Origin, line: KnownLine) -> bool:
    """Return whether a fact was taken from a line: same place and names, or same words.

    The place may be outdated if lines above were removed.
    """
    text = folded(" ".join((line.line.text, *line.line.entities)))
    if fact.text and folded(fact.text) in text:
        return True
    overlaps = origin.start_line <= line.line.end_line and line.line.start_line <= origin.end_line
    return overlaps and any(is_named(text, folded(name)) for name in (fact.source, fact.target))


def _end_of(fact: Fact) -> datetime | None:
    return fact.invalid_at or fact.expired_at


def _is_about(line: KnownLine, wanted: Sequence[str]) -> bool:
    own = {folded(name) for name in line.line.entities}
    text = folded(line.line.text)
    return any(name in own or is_named(text, name) for name in wanted)


def _of_line(line: KnownLine) -> RecalledItem:
    return RecalledItem(
        kind=line.line.type,
        content=line.line.text,
        timestamp=datetime.combine(line.day, time.min, UTC),
        entities=line.line.entities,
        source=line.source,
        id=line.line.id,
        confidence=line.line.confidence,
        tags=line.line.tags,
        by_file_time=None if line.is_dated else True,
    )


def _of_fact(fact: Fact, now: datetime) -> RecalledItem:
    return RecalledItem(
        kind="fact",
        content=fact.statement,
        timestamp=fact.valid_at or fact.created_at,
        entities=tuple(dict.fromkeys((fact.source, fact.target))),
        source=fact.origins[0].citation if fact.origins else None,
        id=fact.id,
        confidence=fact.confidence,
        ended_at=None if fact.is_current(now) else _end_of(fact),
        source_gone=fact.origins[0].gone if fact.origins else None,
    )


def _holds_words(asked: RecallQuery, item: RecalledItem) -> bool:
    return asked.has_words(folded(" ".join((item.content, *item.entities, *item.tags))))


def _ordered(asked: RecallQuery, items: Iterable[RecalledItem]) -> list[RecalledItem]:
    newest_first = sorted(items, key=_age)
    if asked.entity is None:  # file times are unreliable: copying the notes makes all files new
        return sorted(newest_first, key=lambda one: bool(asked.window.since and one.by_file_time))
    return sorted(newest_first, key=lambda one: 2 if one.ended_at else int(one.kind != "fact"))


def _age(item: RecalledItem) -> tuple[int, bool, float, str, int]:
    """Return a sort key, newest first; on one day, what has not ended comes first.

    Further down in a note is newer.
    """
    place = read_citation(item.source or "")
    day, since = (item.timestamp.toordinal(), item.timestamp.timestamp()) if item.timestamp else (0, 0.0)
    return (
        -day,
        item.ended_at is not None,
        -since,
        place.path if place else "",
        -(place.start_line if place else 0),
    )


# --- passages -----------------------------------------------------------------------------------------------


async def _passages(
    memory: OpenMemory, asked: RecallQuery, names: Sequence[str], notes: Mapping[str, Note]
) -> tuple[list[RecalledItem], tuple[Degradation, ...]]:
    """Return what notes say outside of retained lines, in order: passages, or for an entity paragraphs.

    Those of notes named like the entity come first, then others that name it in the text or heading.
    """
    wanted = _shortest(asked.all_names(names)) if asked.entity else []
    own = {
        path: note
        for path, note in notes.items()
        if asked.is_of_time(datetime.combine(note.day, time.min, UTC))
        and any(is_named(folded(one), name) for one in note.called for name in wanted)
    }
    pages = [
        item
        for path in sorted(own, key=lambda one: own[one].day, reverse=True)[:MOST_PASSAGES]
        for item in _items_in(asked, path, 1, await memory.text_of(path, 1, MOST_LINES) or "", own[path])
    ]
    filters = [replace(asked.window, phrases=(name,)) for name in wanted[:MOST_QUERIES]]
    if not filters:  # without a query, search by the filter only
        filters = [asked.window or SearchFilters(until=asked.now)]
    most = max(MOST_PASSAGES, asked.most)
    ask = partial(memory.manager.query, max_results=most, now=asked.now)
    texts = [" ".join((*one.phrases, asked.query or "")).strip() for one in filters]
    answers = await asyncio.gather(
        *(ask(text, filters=one) for text, one in zip(texts, filters, strict=True))
    )
    # A full list has the best results only, or by the filter alone the newest.
    asked_all = zip(filters, texts, answers, strict=True)
    full = [one for one, text, answer in asked_all if text and len(answer.results) >= most]
    answers += await asyncio.gather(*(ask("", filters=one) for one in full))
    items: dict[str, RecalledItem] = {}
    results = [one for answer in answers for one in answer.results if one.start_line and one.path not in own]
    undated = {one.path for one in results if one.path not in notes and day_in_path(one.path) is None}
    file_days = await asyncio.to_thread(_days_of_files, memory.workspace_dir, undated)
    for result in results:
        path, first, is_piece = result.path, result.start_line, bool(result.start_char)
        text = (None if is_piece else await memory.text_of(path, first, result.end_line)) or result.snippet
        told = _items_in(asked, path, first, text, notes.get(path), wanted, file_day=file_days.get(path))
        for item in told:
            if is_note(path):
                items.setdefault(item.source or "", item)
            else:  # a page or a message may have several paragraphs
                source = Origin(path=path, start_line=first, end_line=result.end_line).citation
                items.setdefault(f"{source} {item.content}", replace(item, source=source))
    graphs = memory.manager.backends_with(Capability.FACTS)  # their facts are listed already
    degraded = {
        one.code + one.backend_id: one
        for answer in answers
        for one in answer.degraded
        if not (one.code == "not-filtered" and one.backend_id in graphs)
    }
    return [*pages, *_ordered(asked, items.values())], tuple(degraded.values())


def _shortest(names: Sequence[str]) -> list[str]:
    """Drop names that contain another one: whatever names Ellen Smith also names Ellen."""
    return [one for one in names if not any(other != one and is_named(one, other) for other in names)]


def _items_in(
    asked: RecallQuery,
    path: str,
    start: int,
    text: str,
    note: Note | None,
    wanted: Sequence[str] = (),
    *,
    file_day: date | None = None,
) -> Iterator[RecalledItem]:
    """Yield items from lines of a note, numbered from `start`; for an entity, the paragraphs that name it."""
    told = [
        (first, last, words)
        for first, last, words, heading in _paragraphs(start, text, note)
        if not wanted or any(is_named(folded(one), name) for one in (words, heading) for name in wanted)
    ]
    if told and asked.entity is None:
        told = [(told[0][0], told[-1][1], "\n".join(words for _, _, words in told))]
    for first, last, words in (one for one in told if asked.has_words(folded(one[2]))):
        day = note.day if note else file_day or day_in_path(path)
        yield RecalledItem(
            kind="passage",
            content=words if len(words) <= MOST_CHARS else f"{words[: MOST_CHARS - 1].rstrip()}…",
            timestamp=datetime.combine(day, time.min, UTC) if day else None,
            source=Origin(path=path, start_line=first, end_line=last).citation,
            by_file_time=True if file_day or (note and not note.is_dated) else None,
        )


def _days_of_files(workspace: Path, paths: Iterable[str]) -> dict[str, date]:
    """Return the days on which files of the workspace, such as documents, were last changed."""
    days = {}
    for path in paths:
        with suppress(OSError):
            days[path] = datetime.fromtimestamp((workspace / path).stat().st_mtime, UTC).date()
    return days


def _paragraphs(start: int, text: str, note: Note | None) -> Iterator[tuple[int, int, str, str]]:
    """Yield the paragraphs of a text that starts at line `start`, with their lines and the heading above.

    Headings, front matter and retained lines are left out.
    """
    passed_over = {
        number
        for line in (note.lines if note else ())
        for number in range(line.line.start_line, line.line.end_line + 1)
    } | (note.repeated if note else frozenset())
    head = front_matter(text).lines if start == 1 else 0
    held: list[tuple[int, str]] = []
    heading = ""
    for number, line in enumerate([*text.split("\n"), ""], start):
        is_text = line.strip() and not line.startswith("#") and number not in passed_over
        if is_text and number > head:
            held.append((number, line))
        elif held:
            yield held[0][0], held[-1][0], "\n".join(one for _, one in held), heading
            held = []
        if line.startswith("#"):
            heading = line
