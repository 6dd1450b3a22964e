"""Cuts what people wrote down into contents to ingest: notes into sections, talks into messages (pure)."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime, time, timedelta
from hashlib import sha256
from pathlib import PurePosixPath

from composable_memory.content import MemoryContentObject, MemoryProvenance, MemoryTemporalMetadata
from composable_memory.front_matter import front_matter
from composable_memory.ingest.extract import RETAINED
from composable_memory.markdown_lines import CodeReader, heading_in
from composable_memory.reflect.entity_pages import is_own_line
from composable_memory.retain.retained_lines import RetainedLine, retained_lines
from composable_memory.time.expressions import time_mentions
from composable_memory.transcripts import messages_of
from composable_memory.types import JsonValue, Origin
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_SECTION_CHARS = 1200
"""The longest section; a longer paragraph is cut between lines, a longer line between words."""

TRANSCRIPT_SUFFIX = ".jsonl"
LINE = timedelta(microseconds=100)
"""So much later a line counts as written than the one above it; sentences follow by microseconds."""
LEAST_WORDS = 3
"""A turn of a talk in which nobody speaks twice has so many words; less is rather `Port: 8080`."""

_DATE = r"(\d{4}-\d{2}-\d{2})(?:[T ](\d{2}:\d{2}(?::\d{2})?))?"
_DATED_HEADING = re.compile(rf"(?:\w+[:,]\s*)?{_DATE}")
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d{2}(?!\d)")
_DAY = re.compile(r"(?:\d{4}|-)-\d{2}-\d{2}")
_BEFORE_A_DATE = re.compile(r"\W*(?:\w+[:,]\s*)?")
_CLOCK_AT_END = re.compile(r"[T ]*(\d{2}:\d{2}(?::\d{2})?)?\W*")
_DATED_NAME = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)")
_TURN = re.compile(
    rf"(?:\[{_DATE}\]\s*)?(?P<bold>\*\*)?"
    r"(?P<name>[^\W\d_][\w.'-]*(?: [^\W\d_][\w.'-]*){0,2})"
    r"(?(bold)(?::\*\*|\*\*:)|:)\s+(?P<words>\S.*)"
)
_ROLES = frozenset({"ai", "assistant", "bot", "human", "i", "me", "system", "user", "you"})
_LABELS = frozenset(
    "action address answer context date decision deadline email example fix goal hint important info location"
    " name next note notes option owner phone place price problem question reason result source status"
    " summary time tip title todo topic url warning when where who why".split()
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSource:
    """A text and where it came from.

    `path` is how results are to name the file; None for a text that is in no file, which gets no citations.
    `written_at` is when it was written, in the time zone of whoever wrote it: the time of what has no date of
    its own, and the order of what is of one day. With `observed_at` everything in it was seen then, whatever
    dates it holds. `session_key` is the conversation that it belongs to.
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
    """Return what a text says, in its order; nothing for one without words."""
    if source.is_transcript:
        source = replace(source, session_key=source.session_key or source.stem)
        passages = _messages(source)
    else:
        retained = {line.start_line: line for line in retained_lines(source.text)}
        written = replace(source, text=_without(source.text, retained.values()))
        passages = (part for section in _sections(written) for part in _talk(section) or [section])
        if retained:
            kept = (_retained(source, line) for line in retained.values())
            passages = iter(sorted([*passages, *kept], key=lambda one: one.first))
    seen: Counter[str] = Counter()
    return [_content(source, passage, seen) for passage in passages if passage.text.strip()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Passage:
    """Some lines of a source; `key` tells apart what may say the same at several places."""

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
    """Return the day or time of a passage, and when it was written: later than what stands above it.

    A day of the writer's calendar may begin in UTC after he has written what is of it.
    """
    written_at, observed_at = source.written_at, passage.observed_at.astimezone(UTC)
    if observed_at.time() == time() and written_at.date() == observed_at.date():
        observed_at = min(observed_at, written_at.astimezone(UTC))
    created_at = written_at + LINE * passage.first
    return MemoryTemporalMetadata(observed_at=observed_at, created_at=created_at)


def _digest(source: WrittenSource, passage: _Passage) -> str:
    # The same words said on another day are another thing to remember, but only if somebody says which day:
    # a file that is merely saved again must not become new.
    said = source.observed_at.isoformat() if source.observed_at else ""
    parts = (passage.title or "", passage.text, passage.speaker or "", passage.key, said)
    return sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _citation(path: str, passage: _Passage) -> str:
    return Origin(path=path, start_line=passage.first, end_line=passage.last).citation


# --- notes --------------------------------------------------------------------------------------------------

_Lines = list[tuple[int, str]]
"""Lines with their 1-based numbers."""


def _sections(source: WrittenSource) -> Iterator[_Passage]:
    """Cut a note at its headings, and what is between two of them at paragraphs."""
    lines = [line.rstrip("\r") for line in source.text.removeprefix("\ufeff").split("\n")]
    lines = ["" if is_own_line(line) else line for line in lines]  # its source says it, on its own day
    head = front_matter(source.text)
    told = _date_in_path(source) or head.date
    name = source.title or head.title or source.stem
    for headings, body in _under_headings(lines, head.lines):
        observed = source.observed_at or _dated(headings, told, source) or source.written_at
        title = " > ".join(([source.title] if source.title else []) + headings) or name
        for part in _packed(_paragraphs(body)):
            text = "\n".join(line for _, line in part)
            yield _Passage(text=text, first=part[0][0], last=part[-1][0], title=title, observed_at=observed)


def _date_in_path(source: WrittenSource) -> datetime | None:
    dates = map(_moment, reversed(_DATED_NAME.findall(source.path or "")))
    return next(filter(None, dates), None)


def _dated(headings: Sequence[str], told: datetime | None, source: WrittenSource) -> datetime | None:
    """Return the date with which the nearest heading begins or ends; `told` where none of them has one."""
    above, latest = source.path or "", source.written_at.astimezone(UTC) + timedelta(days=1)
    for heading in headings:
        if any(map(str.isdigit, heading)):
            told = _date_of(heading, told, above, latest) or told
            above += f"/{heading}"
    return told


def _date_of(heading: str, near: datetime | None, above: str, latest: datetime) -> datetime | None:
    """Return the date of a heading; one in words, or at its end, is not ahead of when it was written.

    One without a year is the nearest to the day of what stands above, or of the year that is named there, or
    else the last.
    """
    match = _DATED_HEADING.match(heading)
    if match and (moment := _moment(*match.groups())):
        return moment
    for mention in time_mentions(heading):
        day, rest = mention.hint.date or "", _CLOCK_AT_END.fullmatch(heading, mention.end)
        begins = _BEFORE_A_DATE.fullmatch(heading, 0, mention.start)
        if not _DAY.fullmatch(day) or mention.hint.relation or mention.hint.until or not (rest or begins):
            continue
        around, named = (near or latest).year, _YEAR.findall(above)[-1:]
        years = named if named and not near else range(around - 1, around + 2)
        dates = (_moment(day if day[0] != "-" else f"{year}{day[1:]}", rest and rest[1]) for year in years)
        past = [moment for moment in dates if moment and moment <= latest]
        if past:
            return min(past, key=lambda moment: abs(moment - (near or latest)))
    return None


def _moment(date: str, time: str | None = None) -> datetime | None:
    """Return a day's beginning, or a time of it, in UTC; None where the calendar has no such day."""
    try:
        return datetime.fromisoformat(f"{date}T{time or '00:00'}").replace(tzinfo=UTC)
    except ValueError:
        return None


def _under_headings(lines: Sequence[str], start: int) -> Iterator[tuple[list[str], _Lines]]:
    """Yield the headings above each part of a note, outermost first, with the part's lines."""
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
    """Join neighbours as long as they fit into a section; the blank line between them stays."""
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
    """Cut a paragraph that is too long between lines."""
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
    """Cut a line that is too long between words, or anywhere if it has none."""
    while len(line) > MAX_SECTION_CHARS:
        at = line.rfind(" ", 1, MAX_SECTION_CHARS + 1)
        at = at if at > 0 else MAX_SECTION_CHARS
        yield line[:at]
        line = line[at:].lstrip(" ")
    yield line


def _length(lines: _Lines) -> int:
    return sum(len(line) + 1 for _, line in lines) - 1


def _retained(source: WrittenSource, line: RetainedLine) -> _Passage:
    """Return a retained line as its sentence; what else it says is metadata."""
    head = front_matter(source.text)
    said: dict[str, JsonValue] = {"type": line.type, "entities": [*line.entities], "tags": [*line.tags]}
    sure: dict[str, JsonValue] = {} if line.confidence is None else {"confidence": line.confidence}
    return _Passage(
        text=line.text,
        first=line.start_line,
        last=line.end_line,
        title=source.title or head.title or source.stem,
        observed_at=source.observed_at or _date_in_path(source) or head.date or source.written_at,
        metadata={RETAINED: said | ({"id": line.id} if line.id else {}), **sure},
    )


def _without(text: str, retained: Iterable[RetainedLine]) -> str:
    """Return a text with blank lines in place of the retained ones."""
    lines = text.split("\n")
    for line in retained:
        lines[line.start_line - 1 : line.end_line] = [""] * (line.end_line - line.start_line + 1)
    return "\n".join(lines)


# --- talks --------------------------------------------------------------------------------------------------


def _talk(section: _Passage) -> list[_Passage]:
    """Return the messages of a section that consists of lines `Name: text`; nothing for any other."""
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
    """Return whether people talk here, rather than that names have values."""
    names = {turn.speaker.casefold() for turn in turns if turn.speaker}
    if len(names) < 2 or names & _LABELS:
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
