"""Splits written text into contents to ingest: notes into sections, talks into messages (pure)."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime, time, timedelta
from hashlib import sha256
from pathlib import PurePosixPath
from typing import NamedTuple

from composable_memory.content import MemoryContentObject, MemoryProvenance, MemoryTemporalMetadata
from composable_memory.data_files import tables
from composable_memory.front_matter import front_matter
from composable_memory.ingest.extract import RETAINED
from composable_memory.markdown_lines import CodeReader, heading_in
from composable_memory.reflect.entity_pages import is_own_line
from composable_memory.retain.retained_lines import RetainedLine, retained_lines
from composable_memory.time.expressions import time_mentions
from composable_memory.time.windows import in_zone, moved, named_window
from composable_memory.transcripts import messages_of
from composable_memory.types import JsonValue, Origin, TimeWindow
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_SECTION_CHARS = 1200
"""Maximum length of a section; a longer paragraph is split between lines, a longer line between words."""

TRANSCRIPT_SUFFIX = ".jsonl"
LINE = timedelta(microseconds=100)
"""A line counts as written this much later than the one above it; sentences differ by microseconds."""
DAY, NO_TIME = timedelta(days=1), timedelta()
LEAST_WORDS = 3
"""Minimum words per turn in a talk where nobody speaks twice; fewer are rather a field, as `Port: 8080`."""

_DATE = r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2})?))?"
_DATED_HEADING = re.compile(rf"(?:\w+[:,]\s*)?{_DATE}")
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d{2}(?!\d)")
_SURE = re.compile(r"\d{4}-.+|--\d{2}-\d{2}")
_BEFORE_A_DATE = re.compile(r"\W*(?:\w+[:,]\s*)?")
_CLOCK_AT_END = re.compile(r"[T ]*(\d{2}:\d{2}(?::\d{2})?)?\W*")
_DATED_NAME = re.compile(
    r"(?<!\d)(?:\d{4}-\d{2}-\d{2}|(?:19|20)\d{2}-(?:\d{2}|W\d{2}|Q[1-4])(?!-\d))(?!\d)", re.IGNORECASE
)
_TURN = re.compile(
    rf"(?:\[{_DATE}\]\s*)?(?P<bold>\*\*)?"
    r"(?P<name>[^\W\d_][\w.'-]*(?: [^\W\d_][\w.'-]*){0,2})"
    r"(?(bold)(?::\*\*|\*\*:)|:)\s+(?P<words>\S.*)"
)
_ROLES = frozenset({"ai", "assistant", "bot", "human", "i", "me", "system", "user", "you"})
LABELS = frozenset(tables(__package__, "labels.toml")["labels"].split())
"""Words before a colon that are the name of a field or mark a remark, not a speaker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSource:
    """A text and where it came from.

    `path` is the file name for results; None for a text that is in no file, which gets no citations.
    `written_at` is when it was written, in the writer's time zone: the time of whatever has no date of its
    own, and the order within one day. With `observed_at`, everything in it was observed then, whatever dates
    it contains. `session_key` is the conversation that it belongs to.
    """

    text: str
    written_at: datetime
    path: str | None = None
    title: str | None = None
    observed_at: datetime | None = None
    session_key: str | None = None

    @property
    def is_transcript(self) -> bool:
        """Return whether its lines are JSON records of a conversation."""
        return self.path is not None and self.path.lower().endswith(TRANSCRIPT_SUFFIX)

    @property
    def stem(self) -> str | None:
        """Return the name of the file without its suffix."""
        return PurePosixPath(self.path).stem if self.path else None


def contents_of(source: WrittenSource) -> list[MemoryContentObject]:
    """Return the contents of a text, in order; none if it has no words."""
    if source.is_transcript:
        source = replace(source, session_key=source.session_key or source.stem)
        passages = _messages(source)
    else:
        parts = list(_parts(source))
        retained = [*retained_lines(source.text)]
        taken = {number for line in retained for number in range(line.start_line, line.end_line + 1)}
        passages = (one for section in _sections(source, parts, taken) for one in _talk(section) or [section])
        if retained:
            times = {number: part.observed_at for part in parts for number, _ in part.body}
            kept = (_retained(source, line, times[line.start_line]) for line in retained)
            passages = iter(sorted([*passages, *kept], key=lambda one: one.first))
    seen: Counter[str] = Counter()
    return [_content(source, passage, seen) for passage in passages if passage.text.strip()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passage:
    """Some lines of a source; `key` distinguishes passages in different places that say the same."""

    text: str
    first: int
    last: int
    title: str | None
    observed_at: datetime
    speaker: str | None = None
    key: str = ""
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)


def _content(source: WrittenSource, passage: _Passage, seen: Counter[str]) -> MemoryContentObject:
    retained = passage.metadata.get(RETAINED)
    line_id = retained.get("id") if isinstance(retained, dict) else None
    own = f"{source.path or 'text'}#{f'^{line_id}' if line_id else _digest(source, passage)}"
    seen[own] += 1
    spoken = {"speaker": passage.speaker} if passage.speaker else {}
    return MemoryContentObject(
        id=own if seen[own] == 1 else f"{own}-{seen[own]}",
        kind="message" if passage.speaker else "fact" if retained else "document",
        text=passage.text,
        title=passage.title,
        metadata={**passage.metadata, **spoken},
        provenance=MemoryProvenance(
            source="session" if source.is_transcript else "note",
            source_id=source.path,
            session_key=source.session_key,
            citations=(_citation(source.path, passage),) if source.path else (),
        ),
        temporal=_times(source, passage),
    )


def _times(source: WrittenSource, passage: _Passage) -> MemoryTemporalMetadata:
    """Return the day or time of a passage, and when it was written: later than what is above it.

    A day in the writer's time zone may start in UTC after its entries were written.
    """
    written_at, observed_at = source.written_at, in_zone(passage.observed_at)
    if observed_at.time() == time() and written_at.date() == observed_at.date():
        observed_at = min(observed_at, in_zone(written_at))
    created_at = moved(written_at, LINE * passage.first)
    return MemoryTemporalMetadata(observed_at=observed_at, created_at=created_at)


def _digest(source: WrittenSource, passage: _Passage) -> str:
    # The same words on another day are a new content, but only if the caller says which day:
    # saving a file again must not make its contents new.
    said = source.observed_at.isoformat() if source.observed_at else ""
    parts = (passage.title or "", passage.text, passage.speaker or "", passage.key, said)
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _citation(path: str, passage: _Passage) -> str:
    return Origin(path=path, start_line=passage.first, end_line=passage.last).citation


# --- notes --------------------------------------------------------------------------------------------------

_Lines = list[tuple[int, str]]
"""Lines with their 1-based numbers."""


class _Part(NamedTuple):
    """The text between two headings of a note, with the headings above it, outermost first."""

    headings: list[str]
    observed_at: datetime
    body: _Lines


def _parts(source: WrittenSource) -> Iterator[_Part]:
    """Yield the parts of a note with their times.

    An undated part has the time of the note or, if other parts have dates, of the day before the first of
    them: how new it is is unknown, and it must not end what is dated.
    """
    lines = [line.rstrip("\r") for line in source.text.removeprefix("\ufeff").split("\n")]
    head, path, latest = front_matter(source.text), source.path or "", moved(in_zone(source.written_at), DAY)
    told = _named_in_path(path, latest) or (TimeWindow(start=head.date, end=head.date) if head.date else None)
    parts = list(_under_headings(lines, head.lines))
    times = [_dated(headings, told, path, latest) for headings, _ in parts]
    first = min((one.start for one in times if one), default=None)
    undated = min(source.written_at, moved(first, -DAY)) if first else source.written_at
    for (headings, body), dated in zip(parts, times, strict=True):
        yield _Part(headings, source.observed_at or (dated.start if dated else undated), body)


def _sections(source: WrittenSource, parts: Iterable[_Part], taken: Collection[int]) -> Iterator[_Passage]:
    """Split what is between two headings at paragraphs, without lines that are `taken`."""
    name = source.title or front_matter(source.text).title or source.stem
    for headings, observed_at, body in parts:
        # Lines of our pages are copies: their source has its own day.
        lines = [(n, "" if n in taken or is_own_line(line) else line) for n, line in body]
        title = " > ".join(([source.title] if source.title else []) + headings) or name
        for part in _packed(_paragraphs(lines)):
            text = "\n".join(line for _, line in part)
            yield _Passage(
                text=text, first=part[0][0], last=part[-1][0], title=title, observed_at=observed_at
            )


def _named_in_path(path: str, latest: datetime) -> TimeWindow | None:
    """Return the last day, week, month or quarter named in a path; one longer than a day must have begun."""
    found = (named_window(name.upper(), latest) for name in reversed(_DATED_NAME.findall(path)))
    return next((one for one in found if one and (one.start <= latest or one.end - one.start < DAY)), None)


def _dated(
    headings: Sequence[str], told: TimeWindow | None, path: str, latest: datetime
) -> TimeWindow | None:
    """Return the time at the start or end of the nearest heading that has one, else `told`."""
    above = path
    for heading in headings:
        told = _time_of(heading, told, above, latest) or told
        above += f"/{heading}"
    return told


def _time_of(heading: str, near: TimeWindow | None, above: str, latest: datetime) -> TimeWindow | None:
    """Return the time in a heading; one in words, or at its end, must not be later than when it was written.

    One without a year is the nearest to the time above, or in the year named there, or else the last. A year
    must be the whole heading, and so must a month or week of a year named above. A time that includes the
    time above says nothing more precise.
    """
    match = _DATED_HEADING.match(heading)
    if match and (said := _window(latest, *match.groups())):
        return said
    for mention in time_mentions(heading):
        hint, named = mention.hint, mention.hint.date or ""
        begins = _BEFORE_A_DATE.fullmatch(heading, 0, mention.start)
        rest = _CLOCK_AT_END.fullmatch(heading, mention.end)
        years = [] if near else _YEAR.findall(above)[-1:]
        is_sure = _SURE.fullmatch(named) and not (hint.until and named[0] == "-")
        is_long = near is not None and near.end - near.start > DAY
        is_whole = begins and rest and ((named[:2] == "--" and (is_long or years)) or named[:1].isdigit())
        if hint.relation not in (None, "during") or not (is_whole or (is_sure and (begins or rest))):
            continue
        around = near or TimeWindow(start=latest, end=latest)
        years = years or [*range(around.start.year - 1, around.start.year + 2)]
        dates = (named if named[0] != "-" else f"{year}{named[1:]}" for year in years)
        windows = (_window(latest, date, rest and rest[1]) for date in dates)
        past = [one for one in windows if one and one.start <= latest]
        if past:
            said = min(past, key=lambda one: max(around.start - one.start, one.start - around.end, NO_TIME))
            return near if near and said.start <= near.start and near.end <= said.end else said
    return None


def _window(latest: datetime, date: str, clock: str | None) -> TimeWindow | None:
    moment = _moment(date, clock) if clock else None
    return TimeWindow(start=moment, end=moment) if moment else named_window(date, latest)


def _moment(date: str, time: str | None = None) -> datetime | None:
    """Return the start of a day, or a time on it, in UTC; None if the calendar has no such day."""
    try:
        return datetime.fromisoformat(f"{date}T{time or '00:00'}").replace(tzinfo=UTC)
    except ValueError:
        return None


def _under_headings(lines: Sequence[str], start: int) -> Iterator[tuple[list[str], _Lines]]:
    """Yield the headings above each part of a note, outermost first, with the lines of the part."""
    path: list[tuple[int, str]] = []
    body: _Lines = []
    code = CodeReader()
    for number, line in enumerate(lines[start:], start=start + 1):
        heading = None if code.is_code(line) else heading_in(line)
        if heading is None:
            body.append((number, line))
            continue
        yield [title for _, title in path], body
        path = [*((above, title) for above, title in path if above < heading.level), heading]
        body = []
    yield [title for _, title in path], body


def _paragraphs(body: _Lines) -> Iterator[_Lines]:
    paragraph: _Lines = []
    for number, line in body:
        if line.strip():
            paragraph.append((number, line))
        elif paragraph:
            yield paragraph
            paragraph = []
    if paragraph:
        yield paragraph


def _packed(paragraphs: Iterable[_Lines]) -> Iterator[_Lines]:
    """Join neighbours as long as they fit into one section, keeping the blank line between them."""
    held: _Lines = []
    for paragraph in paragraphs:
        for piece in _cut(paragraph):
            between: _Lines = [(piece[0][0] - 1, "")] if held and piece[0][0] > held[-1][0] + 1 else []
            joined = [*held, *between, *piece]
            if held and _length(joined) > MAX_SECTION_CHARS:
                yield held
                joined = piece
            held = joined
    if held:
        yield held


def _cut(paragraph: _Lines) -> Iterator[_Lines]:
    """Split a paragraph that is too long between lines."""
    piece: _Lines = []
    for number, line in paragraph:
        for part in _split(line):
            if piece and _length([*piece, (number, part)]) > MAX_SECTION_CHARS:
                yield piece
                piece = []
            piece.append((number, part))
    if piece:
        yield piece


def _split(line: str) -> Iterator[str]:
    """Split a line that is too long between words, or anywhere if it has none."""
    while len(line) > MAX_SECTION_CHARS:
        at = line.rfind(" ", 1, MAX_SECTION_CHARS + 1)
        at = at if at > 0 else MAX_SECTION_CHARS
        yield line[:at]
        line = line[at:].lstrip(" ")
    yield line


def _length(lines: _Lines) -> int:
    return sum(len(line) + 1 for _, line in lines) - 1


def _retained(source: WrittenSource, line: RetainedLine, observed_at: datetime) -> _Passage:
    """Return a retained line as a passage: its sentence, with everything else as metadata."""
    head = front_matter(source.text)
    said: dict[str, JsonValue] = {"type": line.type, "entities": [*line.entities], "tags": [*line.tags]}
    sure: dict[str, JsonValue] = {} if line.confidence is None else {"confidence": line.confidence}
    return _Passage(
        text=line.text,
        first=line.start_line,
        last=line.end_line,
        title=source.title or head.title or source.stem,
        observed_at=observed_at,
        metadata={RETAINED: said | ({"id": line.id} if line.id else {}), **sure},
    )


# --- talks --------------------------------------------------------------------------------------------------


def _talk(section: _Passage) -> list[_Passage]:
    """Return the messages of a section that consists of lines `Name: text`, else nothing."""
    turns: list[_Passage] = []
    for number, line in enumerate(section.text.split("\n"), start=section.first):
        if match := _TURN.fullmatch(line.rstrip()):
            turns.append(_turn(section, number, match))
        elif not line.strip():
            continue
        elif not turns:
            return []
        else:
            said = turns[-1]
            turns[-1] = replace(said, text=f"{said.text}\n{line}", last=number)
    return turns if _is_talk(turns) else []


def _turn(section: _Passage, number: int, match: re.Match[str]) -> _Passage:
    at = _moment(match[1], match[2]) if match[1] else None
    return replace(
        section,
        text=match["words"],
        first=number,
        last=number,
        observed_at=at or section.observed_at,
        speaker=match["name"],
    )


def _is_talk(turns: Sequence[_Passage]) -> bool:
    """Return whether this is a conversation, not a list of names and values."""
    names = {turn.speaker.casefold() for turn in turns if turn.speaker}
    if len(names) < 2 or names & LABELS:
        return False
    if names <= _ROLES or any(count > 1 for count in Counter(turn.speaker for turn in turns).values()):
        return True
    return all(len(turn.text.split()) >= LEAST_WORDS for turn in turns)


# --- transcripts --------------------------------------------------------------------------------------------


def _messages(source: WrittenSource) -> Iterator[_Passage]:
    for message in messages_of(source.text):
        yield _Passage(
            text=message.text,
            first=message.line,
            last=message.line,
            title=source.title,
            observed_at=source.observed_at or message.at or source.written_at,
            speaker=message.speaker,
            key=str(message.line),
        )
