"""Turns another memory's export into notes and transcripts, each item once, and keeps people's edits.

Memories become retained lines in `memory/imported/ORIGIN/DAY.md`, notes files in that folder, conversations
transcripts beside those of the agent. Keyed hashes of what was written distinguish edits made here and there.
"""

import asyncio
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from posixpath import splitext
from typing import Literal

from composable_memory.errors import BackendUnavailable, InvalidArgument, NoteNotWritten, PathRefused
from composable_memory.forget.workspace_notes import Notes, without_lines
from composable_memory.front_matter import front_matter
from composable_memory.hooks.session_memory import slug_of
from composable_memory.imports.export_files import files_of
from composable_memory.imports.readers import Problem, Record, origins_of, read_export
from composable_memory.paths import MEMORY_FOLDER
from composable_memory.retain.note_file import LEFT_BEHIND, NoteFile
from composable_memory.retain.remember import MAX_CHARS, MAX_NAMES, line_of
from composable_memory.retain.retained_lines import format_retained_line, retained_lines, with_retained_line
from composable_memory.runtime.memory import Memory
from composable_memory.state.folders import file_name_of
from composable_memory.supervision.file_lock import file_lock
from composable_memory_ops_logs import redact
from composable_memory_ops_logs.private_files import make_private_folder, replace_file
from composable_memory_ops_logs.quick_dataclass import dataclass

IMPORTED = f"{MEMORY_FOLDER}/imported"
SESSIONS = "sessions"
EXAMPLES, EXAMPLE_CHARS = 3, 200
LOCK_PATIENCE_S = 10.0
"""How long to wait for another import."""
MAX_PART_CHARS = 50
"""Maximum length of a name in a path, so that its bytes fit any file system."""

_NOT_IN_NAMES = re.compile(r'[\x00-\x1f\x7f-\x9f<>:"|?*\\\ud800-\udfff]+')
_NOT_IN_TAGS = re.compile(r"[^\w/-]+")

Outcome = Literal["new", "changed", "known", "forgotten", "conflict"]
"""Known includes what was edited or removed only here; a conflict was changed on both sides, and is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """How many items of each kind an export has, and what became of them; a dry run has written nothing."""

    origin: str
    found: Mapping[str, int]
    outcomes: Mapping[Outcome, int]
    conflicts: tuple[str, ...]
    problems: tuple[str, ...]
    examples: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """A line or a file to write; `was` is its present content, at `was_at`.

    To keep at most one copy of the export in memory, the record has no text, and of an item that will not be
    written only the hash is kept.
    """

    key: str
    record: Record
    path: str
    text: str
    hash: str = ""
    line_id: str = ""
    was: str = ""
    was_at: str = ""
    outcome: Outcome = "new"

    @property
    def is_due(self) -> bool:
        """Return whether it has to be written."""
        return self.outcome in ("new", "changed")


async def import_export(memory: Memory, origin: str, export: Path, *, dry_run: bool = False) -> ImportReport:
    """Import an export and index it; with `dry_run` only report what would be done.

    Raises:
        PathRefused: the export cannot be read, or its notes are notes of this workspace.
        BackendError: it was imported but no index could be synced; or another import is running.
    """
    run = _Import(memory, origin, export, is_rehearsal=dry_run)
    items = await asyncio.to_thread(run.plan) if dry_run else await run.run()
    return ImportReport(
        origin=origin,
        found=run.found,
        outcomes=Counter(one.outcome for one in items),
        conflicts=tuple(one.was_at for one in items if one.outcome == "conflict"),
        problems=tuple(f"{where}: {why}" for where, why in run.problems),
        examples=tuple(f"{one.path}: {one.text[:EXAMPLE_CHARS]}" for one in items if one.is_due)[:EXAMPLES],
    )


class _Import:
    """One import; methods that read or write files without `async` must be called in a thread."""

    def __init__(self, memory: Memory, origin: str, export: Path, *, is_rehearsal: bool) -> None:
        self.found = Counter[str]()
        """Counts by kind."""
        self.problems: list[Problem] = []
        self._memory = memory
        self._origin = origin
        self._export = export
        self._is_rehearsal = is_rehearsal
        self._ledger = memory.state_dir / "imported" / f"{memory.forgotten.folder.name}.json"
        self._hashes: dict[str, str] = {}
        agent = file_name_of(memory.settings.memory.agent_id)
        self._transcripts = memory.state_dir / "agents" / agent / SESSIONS
        self._searched = Path(memory.status().transcripts_folder or self._transcripts)
        if self._searched.is_relative_to(memory.state_dir):  # any other folder belongs to another program
            self._transcripts = self._searched

    def plan(self) -> list[_Item]:
        """Return what has to be written, and what is here already.

        Raises:
            PathRefused: the export cannot be read, or its notes are notes of this workspace.
        """
        paths = self._memory.status().note_paths
        notes = self._memory.notes.read(self._memory.workspace_dir, paths).values()
        lines = {one.line.id: one for note in notes for one in note.lines if one.line.id}
        files = Notes(self._memory.workspace_dir, paths)
        self._hashes = json.loads(self._ledger.read_text()) if self._ledger.exists() else {}
        items: dict[str, _Item] = {}
        for record in self._records():
            try:
                item = self._item(record)
            except InvalidArgument as error:
                self.problems.append(Problem(record.path or record.id or record.kind, str(error)))
                continue
            if known := lines.get(item.line_id):
                item = replace(item, was=format_retained_line(known.line), was_at=known.path)
            elif not item.line_id:
                item = replace(item, was=self._text(files, item.path), was_at=item.path)
            item = replace(item, outcome=self._outcome(item))
            if not item.is_due:
                own = "" if self._is_rehearsal else self._hash(item.text)  # the first hash writes a key
                item = replace(item, text="", was="", hash=own)
            if items.setdefault(item.key, item).text != item.text:
                self.problems.append(Problem(record.path or record.id, "another record has its id"))
        return [*items.values()]

    def _records(self) -> Iterator[Record]:
        """Yield and count the records of the export; adds to `problems`."""
        export = self._export
        try:
            root, workspace = export.expanduser().resolve(strict=True), self._memory.workspace_dir.resolve()
            if root.is_dir() and root.is_relative_to(workspace):
                raise PathRefused(root, "is in this workspace; `cmem index` reads its notes in place")
            known = origins_of(root, self._origin)
            if known and self._origin not in known:
                right = " or ".join(sorted(known))
                raise PathRefused(root, f"is an export of {right}; run `cmem import {right} {export}`")
            inside = f"{workspace.relative_to(root)}/" if workspace.is_relative_to(root) else "\0"
            files = (one for one in files_of(root) if not one.name.startswith(inside))
            for one in read_export(self._origin, files):
                if isinstance(one, Problem):
                    self.problems.append(one)
                elif one.text.strip() or one.turns:
                    self.found[one.kind] += 1
                    yield one
            if self.found["conversation"] and self._searched != self._transcripts:
                why = f"not searched: memory.builtin.sessions.folder is {self._searched}"
                self.problems.append(Problem(str(self._transcripts), why))
        except OSError as error:
            raise PathRefused(export, f"cannot be read: {error.strerror or error}") from error

    async def run(self) -> list[_Item]:
        """Plan and write while holding the lock for imports; return the plan.

        Raises:
            PathRefused: as for `plan`.
            BackendError: another import is running, or no index could be synced.
        """
        lock = self._ledger.with_suffix(".lock")
        await asyncio.to_thread(make_private_folder, lock.parent)
        async with file_lock(lock, owner="import", patience_s=LOCK_PATIENCE_S) as is_ours:
            if not is_ours:
                problem = "another import into this workspace is running"
                raise BackendUnavailable("import", problem, fix="wait until it has ended, and try again")
            await asyncio.to_thread(self._remove_what_was_left)
            items = await asyncio.to_thread(self.plan)
            await self.write(items)
        return items

    async def write(self, items: Sequence[_Item]) -> None:
        """Write what is new or changed, record what was imported, and index it."""
        folder = self._memory.workspace_dir
        if not await asyncio.to_thread((folder / MEMORY_FOLDER).is_dir):
            await self._memory.sync(reason="import")  # before the folder exists: it affects what is a note
        notes: dict[str, list[_Item]] = defaultdict(list)
        for one in (one for one in items if one.is_due):
            if one.record.turns:
                await asyncio.to_thread(self._write_transcript, one)
                continue
            notes[one.path].append(one)
            if one.was_at not in ("", one.path):  # the line has moved to another day
                notes[one.was_at].append(replace(one, text=""))
        lost = set[str]()
        for path, several in notes.items():
            try:
                async with NoteFile(folder, path) as note:
                    await note.change(partial(_changed, several))
            except NoteNotWritten as error:
                self.problems.append(Problem(path, str(error)))
                lost |= {one.key for one in several}
                continue
            if at := several[0].record.changed_at:
                await asyncio.to_thread(os.utime, folder / path, (at.timestamp(), at.timestamp()))
        await asyncio.to_thread(self._save, [one for one in items if one.key not in lost])
        await self._memory.sync(reason="import")

    def _item(self, record: Record) -> _Item:
        item = self._as_line(record)
        last = tuple((role, "", at) for role, _, at in record.turns[-1:])
        return replace(item, record=replace(record, text="", turns=last))

    def _as_line(self, record: Record) -> _Item:
        own = record.id or sha256(record.text.encode("utf-8", "replace")).hexdigest()
        key = sha256(f"{self._origin}\0{record.kind}\0{own}".encode("utf-8", "replace")).hexdigest()
        day = f"{record.at:%Y-%m-%d}" if record.at else ""
        folder = f"{IMPORTED}/{self._origin}"
        if record.turns:
            name = "-".join(filter(None, (self._origin, day, key[:8])))
            return _Item(
                key=key, record=record, path=f"{SESSIONS}/{name}.jsonl", text=self._as_transcript(record)
            )
        if record.kind == "note" or len(record.text) > MAX_CHARS:
            name = "-".join(filter(None, (day, slug_of(record.title), key[:8])))
            path = f"{folder}/{_inside(record.path, key) if record.path else f'{name}.md'}"
            return _Item(key=key, record=record, path=path, text=self._without_forgotten(self._page(record)))
        tags = (_NOT_IN_TAGS.sub("-", tag).strip("-") for tag in record.tags)
        worded = [tag for tag in tags if re.search(r"[^\W\d_]", tag)][:MAX_NAMES]
        line = replace(line_of(record.text, None, record.about, None, worded)[0], id=f"i{key[:11]}")
        text, path = self._without_forgotten(format_retained_line(line)), f"{folder}/{day or 'undated'}.md"
        return _Item(key=key, record=record, path=path, text=text, line_id=f"{line.id}")

    def _page(self, record: Record) -> str:
        text = _replace_surrogates(record.text).removeprefix("\ufeff")
        head = ["---", f"imported_from: {self._origin}"]
        if not record.path:
            head += [f"title: {json.dumps(record.title, ensure_ascii=False)}"] if record.title else []
            head += [f"date: {record.at:%Y-%m-%d}"] if record.at else []
        body = text.partition("\n")[2] if front_matter(text).length else f"---\n\n{text}"
        return redact("\n".join([*head, body.rstrip("\n"), ""]))

    def _as_transcript(self, record: Record) -> str:
        rows = []
        for role, said, at in record.turns:
            text = self._memory.forgotten.hide(redact(_replace_surrogates(said)), "sessions")
            time = {"timestamp": at.isoformat()} if at else {}
            rows.append({"type": "message", **time, "message": {"role": role, "content": text}})
        return "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)

    def _without_forgotten(self, text: str) -> str:
        shown = self._memory.forgotten.hide(text, "memory").split("\n")
        lines = zip(text.split("\n"), shown, strict=True)
        return "\n".join(new for old, new in lines if new or not old)

    def _text(self, files: Notes, path: str) -> str:
        if not path.startswith(f"{SESSIONS}/"):
            return files.text(path)
        file = self._transcripts / Path(path).name
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""

    def _outcome(self, item: _Item) -> Outcome:
        before = self._hashes.get(item.key)
        if item.was == item.text or not item.text:
            return "known" if item.text else "forgotten"
        if before is None:
            return "conflict" if item.was else "new"
        if not item.was or before == self._hash(item.text):
            return "known"
        return "changed" if before == self._hash(item.was) else "conflict"

    def _hash(self, text: str) -> str:
        return self._memory.forgotten.hashing().hash([text])

    def _remove_what_was_left(self) -> None:
        """Remove the partial files of a killed import: nothing would remove forgotten text from them."""
        for one in self._transcripts.glob(LEFT_BEHIND):
            one.unlink(missing_ok=True)

    def _write_transcript(self, item: _Item) -> None:
        make_private_folder(self._transcripts)
        file = self._transcripts / Path(item.path).name
        replace_file(file, item.text.encode(), survives="power cut")
        if at := item.record.turns[-1][2] or item.record.at:
            os.utime(file, (at.timestamp(), at.timestamp()))

    def _save(self, items: Sequence[_Item]) -> None:
        done = (one for one in items if one.outcome in ("new", "changed", "known"))
        self._hashes |= {one.key: one.hash or self._hash(one.text) for one in done}
        replace_file(self._ledger, json.dumps(self._hashes).encode(), survives="power cut")


def _changed(items: Sequence[_Item], text: str) -> str:
    """Return a note with some lines rewritten, or the page in its place if nobody has edited it."""
    if not items[0].line_id:
        return items[0].text if text == items[0].was else text
    ids = {one.line_id for one in items}
    old = [one for one in retained_lines(text) if one.id in ids]
    kept = without_lines(text, ((one.start_line, one.end_line) for one in old))
    new = [one.text for one in items if one.text]
    for line in retained_lines(new[0] if new else "", everywhere=True):
        return with_retained_line(kept, line).replace(new[0], "\n".join(new), 1)
    return kept


def _inside(path: str, key: str) -> str:
    """Return a safe path for an exported note, which stays inside and fits any file system."""
    stem, suffix = splitext(path)
    clean = (_NOT_IN_NAMES.sub("-", part).strip(" .")[:MAX_PART_CHARS] for part in stem.split("/"))
    same = "/".join(filter(None, clean))
    return f"{same if same == stem else f'{same}-{key[:8]}'}{suffix}"


def _replace_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", " ")
