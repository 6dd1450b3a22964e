"""Retains a sentence: one line in the day's note, searchable when the call returns."""

import asyncio
import re
import secrets
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from time import perf_counter
from typing import Any, TypeAlias

from composable_memory.content import IngestReport, MemoryContentObject
from composable_memory.errors import (
    ComposableMemoryError,
    InvalidArgument,
    require,
    require_all,
    require_text,
)
from composable_memory.forget.statement_matching import statements_of
from composable_memory.forget.tombstones import Forgotten, Tombstones
from composable_memory.forget.workspace_notes import without_lines
from composable_memory.ingest.note_reader import WrittenSource, contents_of
from composable_memory.interfaces import Capability, SupportsIngest, SupportsRetain, SupportsSync
from composable_memory.memory_interface import OpenMemory
from composable_memory.paths import MEMORY_FOLDER
from composable_memory.retain.already_known import WHOLE_NOTE, KnownLine, find_known, indexes, known_in
from composable_memory.retain.note_file import NoteFile
from composable_memory.retain.retained_lines import (
    MEMORY_TYPES,
    MemoryType,
    RetainedLine,
    format_retained_line,
    read_retained_line,
    retained_lines,
    with_retained_line,
)
from composable_memory.types import Degradation, Origin, SyncReport
from composable_memory_ops_logs import redact, trace
from composable_memory_ops_logs.events import MemoryRemembered
from composable_memory_ops_logs.quick_dataclass import dataclass

MAX_CHARS = 1000
"""Maximum length of a sentence: one line for people, and one passage for every backend."""
MAX_NAMES = 20
"""Maximum number of entities, and of tags."""
MAX_NAME_CHARS = 80
INDEX_S = 20.0
"""How long to wait for an index to have the line."""
WRITES = 3
"""How often to rewrite a line that an editor has undone while it was being indexed."""
EPOCH = date(2020, 1, 1)
ID_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"
OWN_CHARS = 4

_Call: TypeAlias = Coroutine[object, object, SyncReport | IngestReport | None]

_NO_TEXT = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_TAG = re.compile(r"(?=[\w/-]*[^\W\d])[\w/-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """A line in the notes and its place: the new one, or the one at `duplicate_of` that says the same.

    `id` is None for a duplicate of plain text. `warnings` say what was changed in the text; `degraded` says
    where the line cannot be found yet, though it is safe in its note.
    """

    id: str | None
    path: str
    start_line: int
    end_line: int
    citation: str
    line: str
    duplicate_of: str | None = None
    warnings: tuple[str, ...] = ()
    degraded: tuple[Degradation, ...] = ()
    trace_id: str = ""


async def remember(
    memory: OpenMemory,
    line: RetainedLine,
    warnings: tuple[str, ...],
    *,
    session_key: str | None,
    now: datetime | None,
) -> Remembered:
    """Retain a line; see `Memory.remember`. `warnings` say what was changed in its text."""
    require_text("session_key", session_key, optional=True)
    if now is not None and (not isinstance(now, datetime) or now.tzinfo is None):
        raise InvalidArgument("now", "a time with its zone", now)
    now = now or memory.manager.asked_at()
    path = f"{MEMORY_FOLDER}/{now.date()}.md"
    started = perf_counter()
    with trace(session_key=session_key) as trace_id:
        known, unsearched = await find_known(memory, line, path)
        if known is None:
            done = await _write(memory, line, path, now)
            told = await _pass_on(memory, line.text, f"{done.path}#^{done.id}")
            done = replace(done, degraded=(*done.degraded, *told))
        else:
            done = _duplicate(known)
        degraded = (*unsearched, *done.degraded)
        warnings = (*warnings, *done.warnings)
        done = replace(done, warnings=warnings, degraded=degraded, trace_id=trace_id)
        _log(memory, done, line, (perf_counter() - started) * 1000)
    return done


async def _write(memory: OpenMemory, line: RetainedLine, path: str, now: datetime) -> Remembered:
    """Write a line, index it, and make sure that no editor has undone it meanwhile."""
    stones = await asyncio.to_thread(memory.forgotten.now)
    addition = _Addition(line, now.date(), path, stones)
    if not await asyncio.to_thread((memory.workspace_dir / MEMORY_FOLDER).is_dir):
        await _index(memory)  # before the folder exists: it affects which files are notes
    async with NoteFile(memory.workspace_dir, path) as note:
        text = await note.change(addition)
        if addition.known is not None:
            # The process that has just written it may not have indexed it yet.
            return _duplicate(addition.known, degraded=await _index(memory))
        is_lifted = bool(stones) and await _lift(memory.forgotten, line)
        degraded: tuple[Degradation, ...] = ()
        takes_facts = bool(memory.manager.backends_with(Capability.INGEST))
        for _ in range(WRITES):
            written = addition.times
            contents = _content_of(path, text, addition.line, now) if takes_facts else ()
            degraded = await _index(memory, contents)
            text = await note.change(addition)
            if addition.times == written:
                break
    place = next(one for one in retained_lines(text) if one.id == addition.line.id)
    origin = Origin(path=path, start_line=place.start_line, end_line=place.end_line)
    warnings = ("it had been forgotten; it is now remembered again",) if is_lifted else ()
    text = format_retained_line(place)
    return _remembered(origin, text, place.id, warnings=warnings, degraded=degraded)


async def _lift(forgotten: Forgotten, line: RetainedLine) -> bool:
    from composable_memory.forget.forgetting import lift  # rarely needed

    return await lift(forgotten, line.text, line.entities)


class _Addition:
    """Adds a line to a note that does not have it; `times` counts how often it was added.

    Others may have written the same in the meantime: `known` is where. A forgotten copy that came back is
    replaced by the line.
    """

    def __init__(self, line: RetainedLine, day: date, path: str, stones: Tombstones) -> None:
        self.line = line
        self.times = 0
        self.known: KnownLine | None = None
        self._day, self._path, self._stones = day, path, stones

    def __call__(self, text: str) -> str:
        if self.line.id is None:
            whole = Origin(path=self._path, start_line=1, end_line=WHOLE_NOTE)
            shown = self._stones.hide(text, "memory")
            self.known = known_in([(whole, shown)], self.line, self._path)
            if self.known is not None:
                return text
            self.line = replace(self.line, id=_new_id(self._day, text))
        elif any(one.id == self.line.id for one in retained_lines(text)):
            return text
        self.times += 1
        return with_retained_line(self._without_forgotten(text), self.line)

    def _without_forgotten(self, text: str) -> str:
        (said,) = statements_of(format_retained_line(self.line))
        if not self._stones.covers(said):
            return text
        copies = [one for one in statements_of(text) if one.words == said.words]
        return without_lines(text, [(one.start_line, one.end_line) for one in copies])


def _new_id(day: date, note: str) -> str:
    """Return a unique id: a part derived from the day, and one that is new in its note."""
    while True:
        own = "".join(secrets.choice(ID_LETTERS) for _ in range(OWN_CHARS))
        if f"^{(found := _in_letters((day - EPOCH).days) + own)}" not in note:
            return found


def _in_letters(number: int) -> str:
    number, last = divmod(max(number, 0), len(ID_LETTERS))
    return (_in_letters(number) if number else "") + ID_LETTERS[last]


async def _index(memory: OpenMemory, contents: Sequence[MemoryContentObject] = ()) -> tuple[Degradation, ...]:
    """Make every index pick up what is new in the notes, and pass `contents` to memories of facts.

    Returns those that failed.
    """
    calls: dict[str, _Call] = {
        backend_id: one.sync(reason="remember")
        for backend_id, one in indexes(memory).items()
        if isinstance(one, SupportsSync)
    }
    for backend_id, taker in memory.manager.backends_with(Capability.INGEST).items() if contents else ():
        if isinstance(taker, SupportsIngest):
            calls[backend_id] = taker.ingest(contents)
    return await _run_all(calls)


async def _pass_on(memory: OpenMemory, text: str, place: str) -> tuple[Degradation, ...]:
    """Write a sentence that is in its note to other memories that are configured to get it."""
    takers = memory.manager.backends_with(Capability.RETAIN).items()
    able = {id_: one for id_, one in takers if isinstance(one, SupportsRetain) and one.retains()}
    return await _run_all({id_: one.retain(text, place) for id_, one in able.items()})


async def _run_all(calls: Mapping[str, _Call]) -> tuple[Degradation, ...]:
    """Run calls, each with a deadline; return those that failed."""
    outcomes = await asyncio.gather(
        *(asyncio.wait_for(call, INDEX_S) for call in calls.values()), return_exceptions=True
    )
    degraded = (_degraded(*one) for one in zip(calls, outcomes, strict=True))
    return tuple(one for one in degraded if one is not None)


def _degraded(
    backend_id: str, outcome: SyncReport | IngestReport | BaseException | None
) -> Degradation | None:
    """Return why a backend cannot find the line yet; None if it can."""
    if isinstance(outcome, TimeoutError):
        reason = f"the line is not indexed yet after {INDEX_S:g} s; `cmem index` continues"
        return Degradation(backend_id=backend_id, code="timeout", reason=reason)
    if isinstance(outcome, ComposableMemoryError):
        return Degradation(backend_id=backend_id, code="failed", reason=f"the line is not indexed: {outcome}")
    if isinstance(outcome, BaseException):
        raise outcome
    if isinstance(outcome, IngestReport) and (outcome.pending or outcome.failed):
        problems = "; ".join(outcome.problems) or "it waits"
        reason = f"the line is not indexed: {problems}; `cmem index` tries again"
        return Degradation(backend_id=backend_id, code="failed", reason=reason)
    return None


def _content_of(path: str, note: str, line: RetainedLine, now: datetime) -> list[MemoryContentObject]:
    """Return the line as a content, identical to the one from ingesting the whole note."""
    found = contents_of(WrittenSource(text=note, written_at=now, path=path))
    return [one for one in found if one.id == f"{path}#^{line.id}"]


def _remembered(place: Origin, text: str, line_id: str | None, **more: Any) -> Remembered:
    return Remembered(
        id=line_id,
        path=place.path,
        start_line=place.start_line,
        end_line=place.end_line,
        citation=place.citation,
        line=text,
        **more,
    )


def _duplicate(known: KnownLine, **more: Any) -> Remembered:
    line_id = known.line.id if known.line else None
    return _remembered(known.origin, known.text, line_id, duplicate_of=known.origin.citation, **more)


def _log(memory: OpenMemory, done: Remembered, line: RetainedLine, took_ms: float) -> None:
    """Log that a line was retained, without its text."""
    event = MemoryRemembered(
        path=done.path,
        start_line=done.start_line,
        end_line=done.end_line,
        id=done.id,
        type=line.type,
        chars=len(line.text),
        entity_count=len(line.entities),
        is_known=done.duplicate_of is not None,
        degraded=[one.backend_id for one in done.degraded],
        memory=memory.context.memory_id,
    )
    memory.context.ops_log.emit(event, status="partial" if done.degraded else "success", duration_ms=took_ms)


# --- arguments ----------------------------------------------------------------------------------------------


def line_of(
    text: str, kind: object, entities: Sequence[str], confidence: object, tags: Sequence[str]
) -> tuple[RetainedLine, tuple[str, ...]]:
    """Return the line to retain, with secrets masked, and what had to be changed in it."""
    require("text", text, str, "a text")
    line = RetainedLine(
        type=_type(kind, confidence),
        text=_sentence(text),
        entities=_names("entities", entities),
        confidence=_share(confidence),
        tags=_tags(tags),
    )
    clean = _without_secrets(line)
    warnings = () if clean == line else ("something that looked like a secret was masked",)
    return clean, warnings


def _type(kind: object, confidence: object) -> MemoryType:
    if kind is None:
        return "world" if confidence is None else "opinion"
    found = next((one for one in MEMORY_TYPES if one == kind), None)
    if found is None:
        raise InvalidArgument("type", f"one of {', '.join(MEMORY_TYPES)}", kind)
    return found


def _sentence(text: str) -> str:
    """Return a text on one line, so that nothing in it is markup of the note or the line."""
    said = " ".join(_NO_TEXT.sub(" ", _replace_surrogates(text)).split())
    said = said.replace("<!--", "<! --").replace("-->", "-- >")
    if not any(map(str.isalnum, said)):
        raise InvalidArgument("text", "a sentence", said)
    if len(said) > MAX_CHARS:
        raise InvalidArgument("text", f"at most {MAX_CHARS} characters long", len(said))
    read = read_retained_line(f"- W: {said}")
    # A last word like `#general` would be read as a tag, one like `^up` as the id.
    return said if read and read.text == said else f"{said}."


def _names(argument: str, names: Sequence[str]) -> tuple[str, ...]:
    require_all(argument, names, str, "a list of names")
    bare = [
        " ".join(re.sub(r"[\[\]|\x00-\x1f]", " ", _replace_surrogates(one)).split()).lstrip("@ ")
        for one in names
    ]
    if not all(bare) or len(bare) > MAX_NAMES or max(map(len, bare), default=0) > MAX_NAME_CHARS:
        expected = f"at most {MAX_NAMES} names of 1 to {MAX_NAME_CHARS} characters"
        raise InvalidArgument(argument, expected, str(names))
    return tuple(dict.fromkeys(bare))


def _tags(tags: Sequence[str]) -> tuple[str, ...]:
    bare = [one.lstrip("#") for one in _names("tags", tags)]
    if wrong := next((one for one in bare if not _TAG.fullmatch(one)), None):
        raise InvalidArgument("tags", "words of letters, digits, -, _ and /", wrong)
    return tuple(bare)


def _share(confidence: object) -> float | None:
    if confidence is None:
        return None
    if isinstance(confidence, int | float) and not isinstance(confidence, bool) and 0 <= confidence <= 1:
        return round(float(confidence), 2)
    raise InvalidArgument("confidence", "a number from 0 to 1", confidence)


def _without_secrets(line: RetainedLine) -> RetainedLine:
    """Mask secrets, including those recognised only by an entity or tag; refuse a line with nothing else."""
    whole = format_retained_line(replace(line, text=redact(line.text)))
    clean = read_retained_line(redact(whole)) if redact(whole) != whole else read_retained_line(whole)
    words = clean.text.split() if clean else ()
    told = (word for word in words if "***" not in word and "…" not in word)
    if clean is None or not any(map(str.isalnum, "".join(told))):
        raise InvalidArgument("text", "more than just a secret; nothing is stored", "***")
    return clean


def _replace_surrogates(text: str) -> str:
    """Replace lone surrogates, which cannot be written to a file."""
    return text.encode("utf-8", "replace").decode()
