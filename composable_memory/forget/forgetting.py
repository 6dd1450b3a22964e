"""Forgets lines of notes everywhere: plans, removes in an order that survives a kill, and resumes after one.

First, tombstones and a journal are written, so that nothing brings the lines back. While the notes still have
the lines, their text is used to find what else quotes them; then they are cut out, and the backends follow.
The journal has places and keyed hashes, no text. It stays until every backend is done.
"""

import asyncio
import json
import os
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from composable_memory.citations import Citation, read_citation
from composable_memory.errors import (
    BackendError,
    BackendUnavailable,
    ComposableMemoryError,
    InvalidArgument,
    NoteNotWritten,
    require_text,
)
from composable_memory.forget import target_lines
from composable_memory.forget.report import ForgetLine, ForgetPlan, ForgetReport, Forgetting, Holding
from composable_memory.forget.statement_matching import Quotations, statements_of, words_of
from composable_memory.forget.target_lines import Marked
from composable_memory.forget.tombstones import INSTEAD, Forgotten, Tombstones
from composable_memory.forget.transcript_messages import blank_messages
from composable_memory.forget.workspace_notes import NoteLine, Notes, without_lines
from composable_memory.interfaces import Capability, SupportsForget, SupportsRetain
from composable_memory.learning.active_weights import RecentResults
from composable_memory.learning.context import LearningContext
from composable_memory.paths import MAIN_FILES, is_note
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.recall.retained_notes import ENTITY_PAGES
from composable_memory.reflect.entity_pages import is_empty, without_counts
from composable_memory.retain.note_file import NoteFile
from composable_memory.retain.retained_lines import RETAIN_HEADING, RetainedLine, format_retained_line
from composable_memory.supervision.file_lock import file_lock
from composable_memory.types import MemorySearchResult
from composable_memory_feedback.errors import FeedbackError
from composable_memory_ops_logs.erasing import erase
from composable_memory_ops_logs.events import MemoryForgotten
from composable_memory_ops_logs.private_files import replace_file
from composable_memory_ops_logs.quick_dataclass import dataclass

PATIENCE_S = 60.0
"""How long to wait for another process that is forgetting something in the same workspace."""
NEAREST = 5
"""How many passages to search for candidates if no line has the words of a query."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgettingScope:
    """What forgetting works on: the notes, stores and caches of one open memory.

    `able` are the backends that can forget, `lost` those that could if they were open, with the reasons.
    """

    workspace_dir: Path
    extra_paths: Sequence[str]
    transcripts: Path | None
    manager: ComposableMemoryManager
    forgotten: Forgotten
    recent: RecentResults
    learning: LearningContext
    able: Mapping[str, SupportsForget]
    lost: Mapping[str, str]


async def plan_forgetting(memory: ForgettingScope, target: str, *, everything: bool = False) -> ForgetPlan:
    """Return what would be forgotten; with `everything` all lines that match a query, not just a single one.

    Raises:
        InvalidArgument: the target is blank, or an id that no line has.
        MemoryPathError: there is nothing at the place.
    """
    require_text("target", target)
    if not target.strip():
        raise InvalidArgument("target", "a query, a place such as notes.md#L3, or the id of a line", target)
    notes = await asyncio.to_thread(_notes_of, memory)
    if place := read_citation(target):
        await _add_documents(memory, notes, [place])
    found = await asyncio.to_thread(partial(target_lines.look_up, notes, target, everything=everything))
    if found.chosen or found.candidates:
        return await _plan(memory, notes, target, found.chosen, found.candidates)
    nearest = await _nearest(memory, notes, target)
    return replace(await _plan(memory, notes, target, (), nearest), is_guess=bool(nearest))


async def forget(memory: ForgettingScope, plan_or_token: ForgetPlan | str) -> ForgetReport:
    """Forget what a plan shows if nothing has changed; otherwise return what would go now.

    Raises:
        InvalidArgument: the token is invalid, or one of the plan's candidates has to be chosen.
        NoteNotWritten: a note cannot be written; nothing was forgotten then.
        BackendUnavailable: another process is forgetting something, and does not finish.
    """
    token = plan_or_token.token if isinstance(plan_or_token, ForgetPlan) else plan_or_token
    require_text("token", token)
    hashing = await asyncio.to_thread(memory.forgotten.hashing)
    digest, lines = target_lines.read_token(token, hashing)
    notes = await asyncio.to_thread(_notes_of, memory)
    await _add_documents(memory, notes, lines)
    async with _alone(memory.forgotten):
        if await asyncio.to_thread(target_lines.digest_of, notes, lines, hashing) != digest:
            again = await asyncio.to_thread(target_lines.standing_lines, notes, lines, hashing)
            target = plan_or_token.target if isinstance(plan_or_token, ForgetPlan) else ""
            return ForgetReport(is_done=False, plan=await _plan(memory, notes, target, again, ()))
        await _require_writable(memory, notes, lines)
        await asyncio.to_thread(_begin, memory.forgotten, notes, lines)
        return await _carry_out(memory, notes, _Journal(lines=tuple(lines)))


async def continue_forgetting(memory: ForgettingScope) -> None:
    """Resume what was left undone because a process was killed, or a backend was down or disabled."""
    async with file_lock(memory.forgotten.lock_path, owner="forget", patience_s=0) as is_ours:
        if not is_ours:
            return
        notes = await asyncio.to_thread(_notes_of, memory)
        if journal := await asyncio.to_thread(_read_journal, memory.forgotten):
            await _carry_out(memory, notes, journal)
        elif behind := await asyncio.to_thread(memory.forgotten.behind, memory.able):
            able = {backend_id: memory.able[backend_id] for backend_id in behind}
            await _carry_out(replace(memory, able=able, lost={}), notes, _Journal(lines=(), is_cut=True))


async def apply_forgetting(memory: ForgettingScope) -> None:
    """Remove forgotten text that has come back to a store, as after restoring an old backup.

    A backend that cannot do so now will when the memory is opened next.

    Raises:
        BackendError: the log or the feedback store cannot be changed now.
    """
    stones = await asyncio.to_thread(memory.forgotten.now)
    if not stones:
        return

    async with _alone(memory.forgotten):
        before = await asyncio.to_thread(_read_journal, memory.forgotten)
        journal = _Journal(lines=before.lines if before else (), is_cut=before is None or before.is_cut)
        await asyncio.to_thread(_write_journal, memory.forgotten, journal)
        await asyncio.to_thread(memory.forgotten.require_all_to_follow)
        await _mask_with(memory, stones.hide_in_excerpt, words=("",), is_rehearsal=False)
        await _carry_out(memory, await asyncio.to_thread(_notes_of, memory), journal)


async def lift(forgotten: Forgotten, text: str, entities: Sequence[str] = ()) -> bool:
    """Allow a text to be remembered again, alone or with entities; return whether it was forgotten."""
    if not await asyncio.to_thread(forgotten.now):
        return False
    async with _alone(forgotten):
        line = RetainedLine(type="world", text=text, entities=tuple(entities))
        return await asyncio.to_thread(forgotten.lift, f"{format_retained_line(line)}\n{text}")


# --- planning -----------------------------------------------------------------------------------------------


def _notes_of(memory: ForgettingScope) -> Notes:
    return Notes(memory.workspace_dir, memory.extra_paths, memory.transcripts)


async def _nearest(memory: ForgettingScope, notes: Notes, query: str) -> list[NoteLine]:
    """Return the lines of the passages that answer a query in other words."""
    response = await memory.manager.query(query, max_results=NEAREST)
    found = [one for one in response.results if one.start_line] if not response.weak else []
    await _add_documents(memory, notes, found)
    asked = set(words_of(query))

    def lines() -> list[NoteLine]:
        near = [
            line
            for one in found
            for line in target_lines.lines_in(notes, one.path, one.start_line, one.end_line)
            if line.statement.is_recognisable
            and (notes.has(one.path) or notes.is_document(one.path) or notes.transcript(one.path))
        ]
        return sorted(dict.fromkeys(near), key=lambda line: -len(asked.intersection(line.statement.words)))

    return (await asyncio.to_thread(lines))[: target_lines.MOST_CANDIDATES]


async def _add_documents(
    memory: ForgettingScope, notes: Notes, places: Iterable[Citation | Marked | MemorySearchResult]
) -> None:
    """Read those places that are in documents, such as pages of a PDF, so that their lines are known."""
    for path, first, last in dict.fromkeys((one.path, one.start_line, one.end_line) for one in places):
        if is_note(path.rpartition("/")[2]) or path.endswith(".jsonl") or not 1 <= first <= last:
            continue
        with suppress(ComposableMemoryError):  # not a place, or gone: there is nothing to forget
            part = await memory.manager.read_file(path, from_line=first, lines=last - first + 1)
            notes.add_document(path, first, last, part.text)


async def _plan(
    memory: ForgettingScope,
    notes: Notes,
    target: str,
    chosen: Sequence[NoteLine],
    candidates: Sequence[NoteLine],
) -> ForgetPlan:
    """Return the plan for chosen lines, or one with the candidates to choose from."""

    def write() -> tuple[str, list[ForgetLine], list[ForgetLine]]:
        hashing = memory.forgotten.hashing()
        copies = target_lines.copies_of(notes, chosen)
        lines = target_lines.forget_lines(notes, chosen) + target_lines.forget_lines(
            notes, copies, is_copy=True
        )
        token = target_lines.token_of(notes, target_lines.marked([*chosen, *copies], hashing), hashing)
        best = candidates[: target_lines.MOST_CANDIDATES]
        every = [*candidates, *target_lines.copies_of(notes, best)]
        each = [[one, *target_lines.copies_of(notes, [one], every)] for one in best]
        tokens = [target_lines.token_of(notes, target_lines.marked(one, hashing), hashing) for one in each]
        return token if lines else "", lines, target_lines.forget_lines(notes, candidates, tokens)

    token, lines, shown = await asyncio.to_thread(write)
    stores = [*(await _holdings(memory, lines) if lines else ()), *_unread(notes)]
    return ForgetPlan(
        target=target, token=token, lines=tuple(lines), candidates=tuple(shown), stores=tuple(stores)
    )


def _unread(notes: Notes) -> Iterator[Holding]:
    if notes.unread:
        told = tuple(f"{path}: {problem}" for path, problem in sorted(notes.unread.items()))
        what, stays = (
            "notes or folders that may also say it",
            "they cannot be read; fix that, then forget again",
        )
        yield Holding(store="notes", what=what, count=len(told), examples=told, stays=stays)


async def _holdings(memory: ForgettingScope, lines: Sequence[ForgetLine]) -> list[Holding]:
    found, wanted = await _mask_records(memory, lines, is_rehearsal=True), Forgetting(lines=lines)
    found += await _each(memory, lambda backend: backend.holdings(wanted), otherwise="unknown")
    return [*found, *_foreign_copies(memory, lines)]


async def _each(
    memory: ForgettingScope, ask: Callable[[SupportsForget], Awaitable[Sequence[Holding]]], *, otherwise: str
) -> list[Holding]:
    """Ask every backend; the reason for one that fails begins with `otherwise`."""
    stores: list[Holding] = []
    for backend_id, backend in memory.able.items():
        try:
            stores += await ask(backend)
        except ComposableMemoryError as error:
            stores.append(Holding(store=backend_id, what=otherwise, count=0, pending=str(error)))
    return stores


def _foreign_copies(memory: ForgettingScope, lines: Sequence[ForgetLine]) -> Iterator[Holding]:
    """Yield other memories to which remembered lines are written: nothing can be removed from them."""
    for backend_id, one in memory.manager.backends_with(Capability.RETAIN).items():
        if isinstance(one, SupportsRetain) and one.retains():
            stays = "it belongs to another program; remove it there"
            yield Holding(store=backend_id, what="lines it may hold", count=len(lines), stays=stays)


# --- removing -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class _Journal:
    """What is being forgotten: the lines, and whether they are already gone from the notes."""

    lines: tuple[Marked, ...]
    is_cut: bool = False


@asynccontextmanager
async def _alone(forgotten: Forgotten) -> AsyncIterator[None]:
    await asyncio.to_thread(forgotten.key)  # creates the folder
    async with file_lock(forgotten.lock_path, owner="forget", patience_s=PATIENCE_S) as is_ours:
        if not is_ours:
            problem = "another process has been forgetting something for too long"
            raise BackendUnavailable("forget", problem, fix="try again when it has ended", operation="begin")
        yield


def _begin(forgotten: Forgotten, notes: Notes, lines: Sequence[Marked]) -> None:
    standing = target_lines.standing_lines(notes, lines, forgotten.hashing())
    forgotten.bury(one for _, one in standing)
    before = _read_journal(forgotten)
    _write_journal(forgotten, _Journal(lines=(*(before.lines if before else ()), *lines)))


async def _carry_out(memory: ForgettingScope, notes: Notes, journal: _Journal) -> ForgetReport:
    forgotten, stores = memory.forgotten, list[Holding]()
    ids: list[str] = []
    if journal.is_cut:
        lines = [_without_text(line) for line in journal.lines]
    else:
        hashing = await asyncio.to_thread(forgotten.hashing)
        standing = await asyncio.to_thread(target_lines.standing_lines, notes, journal.lines, hashing)
        lines = await asyncio.to_thread(target_lines.forget_lines, notes, standing)
        lines = lines or [_without_text(line) for line in journal.lines]
        ids = [one.id for _, one in standing if one.id]
        stores += await _mask_records(memory, lines)
        try:
            for path in await asyncio.to_thread(_paths_to_cut, notes, journal.lines):
                await _cut(memory, notes, path, journal.lines, hashing)
            for path, change in await asyncio.to_thread(lambda: [*_cores_that_count(notes, journal.lines)]):
                async with NoteFile(memory.workspace_dir, path) as note:
                    await note.change(change)
        except NoteNotWritten as error:  # despite the check before; the next opening resumes
            forgotten.pending = {error.path: str(error)}
            raise
        memory.recent.clear()
        await asyncio.to_thread(_write_journal, forgotten, _Journal(lines=journal.lines, is_cut=True))
    stores += [*await _erase(memory, Forgetting(lines=lines)), *_foreign_copies(memory, lines)]
    forgotten.pending = pending = {one.store: one.pending for one in stores if one.pending}
    rest = _Journal(lines=journal.lines, is_cut=True) if pending else None
    await asyncio.to_thread(forgotten.follow, memory.able.keys() - pending.keys())
    await asyncio.to_thread(_write_journal, forgotten, rest)
    is_whole = not any(line.stays for line in lines)
    if not lines:
        return ForgetReport(is_done=not pending, stores=tuple(stores))
    memory.learning.ops_log.emit(
        MemoryForgotten(
            place_count=len(lines),
            stays_count=sum(bool(line.stays) for line in lines),
            ids=ids,
            pending=[*pending],
            memory=memory.learning.memory_id,
        )
    )
    return ForgetReport(is_done=is_whole and not pending, lines=tuple(lines), stores=tuple(stores))


async def _mask_records(
    memory: ForgettingScope, lines: Sequence[ForgetLine], *, is_rehearsal: bool = False
) -> list[Holding]:
    """Mask what quotes the lines in the log and the feedback store; the events themselves stay."""
    quotations = Quotations(one for line in lines for one in statements_of(line.text))
    if not quotations:
        return []
    mask = partial(quotations.masked, instead=INSTEAD)
    return await _mask_with(memory, mask, words=quotations.words, is_rehearsal=is_rehearsal)


async def _mask_with(
    memory: ForgettingScope, mask: Callable[[str], str], *, words: Collection[str], is_rehearsal: bool
) -> list[Holding]:
    learning = memory.learning

    def is_of_ours(memory_id: str) -> bool:
        return not memory_id or memory_id.endswith(f"-{memory.forgotten.folder.name}")

    def mask_log(folder: Path) -> int:
        return erase(folder, mask, words=words, is_of=is_of_ours, is_rehearsal=is_rehearsal)

    try:
        await learning.ops_log.flush()
        logged = await asyncio.to_thread(mask_log, learning.log_dir) if learning.log_dir else 0
        rows = await learning.stored_if_any(lambda store: store.mask(mask, is_rehearsal=is_rehearsal))
    except (OSError, FeedbackError) as error:
        raise BackendError("log and feedback", "forget", f"{error}; fix that, then try again") from error
    found = (
        Holding(store="ops log", what="lines that quote it", count=logged),
        Holding(store="feedback", what="judgements and questions that quote it", count=rows or 0),
    )
    return [one for one in found if one.count]


async def _require_writable(memory: ForgettingScope, notes: Notes, lines: Sequence[Marked]) -> None:
    """Check that the notes can be cut, before anything permanent is done.

    Raises:
        NoteNotWritten: a note cannot be changed.
    """
    cores = await asyncio.to_thread(lambda: [path for path, _ in _cores_that_count(notes, lines)])
    for path in dict.fromkeys([*await asyncio.to_thread(_paths_to_cut, notes, lines), *cores]):
        if transcript := notes.transcript(path):
            await asyncio.to_thread(blank_messages, path, transcript, ())
            continue
        async with NoteFile(memory.workspace_dir, path, extra_paths=notes.extra_paths) as note:
            await note.change(lambda text: text)
        if not await asyncio.to_thread(os.access, notes.file(path).parent, os.W_OK):
            fix = "make it writable for this user, then forget it again"
            raise NoteNotWritten(path, "its folder is read-only", fix=fix)


def _paths_to_cut(notes: Notes, lines: Sequence[Marked]) -> list[str]:
    paths = dict.fromkeys(line.path for line in lines)
    return [
        path
        for path in paths
        if not notes.why_uncut(path)
        and (transcript.is_file() if (transcript := notes.transcript(path)) else notes.text(path))
    ]


async def _cut(
    memory: ForgettingScope, notes: Notes, path: str, lines: Sequence[Marked], hashing: Tombstones
) -> None:
    def change(text: str) -> str:
        bare = text.removeprefix("\ufeff")
        found = target_lines.standing([*statements_of(bare)], path, lines, hashing)
        kept = without_lines(bare, [(one.start_line, one.end_line) for one in found])
        if found and path.startswith(ENTITY_PAGES):
            kept = without_counts(kept, path, [path])
        return text[: len(text) - len(bare)] + kept

    if transcript := notes.transcript(path):
        said = await asyncio.to_thread(notes.statements, path)
        found = {one.start_line for one in target_lines.standing(said, path, lines, hashing)}
        await asyncio.to_thread(blank_messages, path, transcript, found)
        return
    async with NoteFile(memory.workspace_dir, path, extra_paths=notes.extra_paths) as note:
        left = await note.change(change)
        is_ours = left.strip() == RETAIN_HEADING and path not in MAIN_FILES  # written by `remember`
        if is_ours or (path.startswith(ENTITY_PAGES) and is_empty(left)):
            await note.remove(left)


def _cores_that_count(notes: Notes, lines: Sequence[Marked]) -> Iterator[tuple[str, Callable[[str], str]]]:
    """Yield the main files that count lines of the entity pages to be cut, and how to change them."""
    pages = {line.path for line in lines if line.path.startswith(ENTITY_PAGES)}
    for path in MAIN_FILES if pages else ():
        change = partial(without_counts, page=path, changed=pages)
        if change(text := notes.text(path)) != text:
            yield path, change


async def _erase(memory: ForgettingScope, wanted: Forgetting) -> list[Holding]:
    """Make every backend forget; those that cannot now, or could not be opened, are pending."""
    stores = await _each(memory, lambda backend: backend.erase(wanted), otherwise="everything")
    lost = (Holding(store=id_, what="everything", count=0, pending=why) for id_, why in memory.lost.items())
    return [*stores, *lost]


def _without_text(line: Marked) -> ForgetLine:
    return ForgetLine(path=line.path, start_line=line.start_line, end_line=line.end_line, text="")


def _read_journal(forgotten: Forgotten) -> _Journal | None:
    try:
        wire = json.loads(forgotten.journal_path.read_bytes())
        return _Journal(lines=tuple(Marked(*line) for line in wire["lines"]), is_cut=wire["isCut"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (LookupError, TypeError, ValueError):  # damaged: the tombstones still know what has to go
        return _Journal(lines=(), is_cut=True)


def _write_journal(forgotten: Forgotten, journal: _Journal | None) -> None:
    if journal is None:
        forgotten.journal_path.unlink(missing_ok=True)
        return
    wire = {"lines": journal.lines, "isCut": journal.is_cut}
    replace_file(forgotten.journal_path, json.dumps(wire).encode(), survives="power cut")
