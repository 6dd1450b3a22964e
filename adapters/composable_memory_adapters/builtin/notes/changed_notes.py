"""Finds notes and transcripts that differ from the index, reads them and cuts them into chunks."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from types import MappingProxyType
from typing import NamedTuple

from composable_memory.interfaces import HideForgotten, hide_nothing
from composable_memory.paths import NO_TEXT, Reading
from composable_memory.types import MemorySource
from composable_memory_adapters.builtin.notes.documents import Document, cut_document, reader_of
from composable_memory_adapters.builtin.notes.fields import NO_FIELDS, NoteFields, fields_of
from composable_memory_adapters.builtin.notes.note_files import (
    BY_KEY,
    Note,
    ScannedFile,
    ScanReport,
    read_note,
)
from composable_memory_adapters.builtin.notes.sessions import (
    TRANSCRIPT_RECIPE,
    Transcript,
    has_grown_enough,
    read_transcript,
)
from composable_memory_adapters.builtin.settings import ChunkingSettings, SessionDeltaSettings
from composable_memory_adapters.chunking import Chunk, cut
from composable_memory_adapters.text.markdown_outline import outline
from composable_memory_ops_logs.quick_dataclass import dataclass

GROUP_CHUNKS = 1000
"""Chunks per transaction: as fast as a single transaction, and no reader or other process waits long."""
GROUP_FILES = 1000
IN_PART = "/in-part"
"""Suffix of the recipe of a partly read file; earlier versions read less, and did not add it."""
FAULTS: Mapping[int, str] = {
    Reading.IN_PART: "characters that could not be read were replaced",
    Reading.AS_WESTERN: "not UTF-8, read as Windows-1252",
    Reading.NO_TEXT: f"it is {NO_TEXT}",
}
"""What the user is told about notes that were not read cleanly."""
CUT_VERSION = "markdown-3"
KEYWORD_VERSION = "keywords-4"


class FileState(NamedTuple):
    """What the index knows of a file, to tell whether the file has changed.

    An empty `recipe` marks damaged rows: the file must be read again. So must a file that an earlier version
    read only in part.
    """

    mtime_ns: int
    size: int
    recipe: str
    hash: str
    source: MemorySource = "memory"
    reading: int = Reading.WHOLE
    ctime_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDraft:
    """A file as it will be indexed.

    `seen` is the index's state of the file when the change was found; if that has changed since, another
    process has written the file and the draft is dropped. `chunks` is None if the content is unchanged, and
    the stored fields then stay too. `recipe` names the versions and settings that made the chunks and
    keywords; rows with another recipe are rewritten. `note` is the content that was read.
    """

    key: str
    source: MemorySource = "memory"
    note: Note
    recipe: str
    fields: NoteFields = NO_FIELDS
    chunks: Sequence[Chunk] | None
    seen: FileState | None

    @property
    def fault(self) -> str | None:
        """Return what is missing from the file or was not read cleanly."""
        lacks = self.note.problem if isinstance(self.note, Document) else None
        return lacks or FAULTS.get(self.note.reading)


class ChangedNote(NamedTuple):
    """A note or transcript whose rows may be out of date, and its state in the index."""

    found: ScannedFile
    seen: FileState | None


@dataclass(slots=True, kw_only=True)
class DraftGroup:
    """Notes to write in one transaction.

    `end` is the position after the last note considered. `unread` maps the key of each note that could not be
    read to the reason; `vanished` is set if a note had disappeared.
    """

    end: int
    drafts: list[FileDraft] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    vanished: bool = False
    chunks: int = 0

    @property
    def is_full(self) -> bool:
        """Return whether the next note belongs in another transaction."""
        return self.chunks >= GROUP_CHUNKS or len(self.drafts) >= GROUP_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """Makes drafts of changed notes and transcripts.

    `growth_limits` says how much a transcript must grow before it is read again; None means any change. With
    `any_cut`, a file whose chunks were only cut differently counts as unchanged. `hide` blanks forgotten
    lines; `forgotten` identifies the set of them, so that files nobody edits are read again when it changes.
    """

    chunking: ChunkingSettings
    keywords: bool
    growth_limits: SessionDeltaSettings | None = None
    any_cut: bool = False
    hide: HideForgotten = hide_nothing
    forgotten: str = ""

    @property
    def recipe(self) -> str:
        """Return the versions and settings that a note's rows depend on."""
        keywords = KEYWORD_VERSION if self.keywords else "no-keywords"
        return f"{CUT_VERSION}/{self.chunking.tokens}/{self.chunking.overlap}/{keywords}"

    def changed(self, report: ScanReport, known: Mapping[str, FileState]) -> list[ChangedNote]:
        """Return the files that differ from the index in times, size or recipe; call it from a thread.

        Reads no notes, and at most the new part of a transcript.
        """
        recipes = {source: self._recipe_of("", source) for source in report.sources}
        changed = []
        for found in report.files:
            key, _, mtime_ns, size, _, _, ctime_ns, source = found
            seen = known.get(key)
            if (
                seen is not None
                and seen[:3] == (mtime_ns, size, recipes[source])
                and seen.reading
                and seen.ctime_ns in (0, ctime_ns)
            ):
                continue  # true for most files, so this path must be fast
            if seen is None or self._differs(found, seen):
                changed.append(ChangedNote(found, seen))
        return changed

    def _differs(self, found: ScannedFile, seen: FileState) -> bool:
        """Return whether a file's rows must be rewritten."""
        if not self._matches_recipe(found.key, seen):
            return True
        is_same = (seen.mtime_ns, seen.size) == (found.mtime_ns, found.size)
        return not (is_same and seen.ctime_ns in (0, found.ctime_ns)) and self._is_due(found, seen)

    def _matches_recipe(self, key: str, seen: FileState) -> bool:
        """Return whether a file's rows match the recipe; rows made by another document reader never do."""
        if self.any_cut:
            return bool(seen.recipe) and seen.recipe.startswith(_reader(key, seen.source))
        return seen.recipe == self._recipe_of(key, seen.source, seen.reading)

    def _is_due(self, found: ScannedFile, seen: FileState) -> bool:
        return (
            self.growth_limits is None
            or found.source == "memory"
            or has_grown_enough(found.path, known_size=seen.size, size=found.size, limits=self.growth_limits)
        )

    def _recipe_of(self, key: str, source: MemorySource, reading: int = Reading.WHOLE) -> str:
        reader = _reader(key, source)
        forgotten = f"/forgotten-{self.forgotten}" if reader and self.forgotten else ""
        return f"{reader}{self.recipe}{forgotten}{IN_PART if reading == Reading.IN_PART else ''}"

    def group(
        self,
        changed: Sequence[ChangedNote],
        start: int,
        documents: Mapping[str, Document | OSError] = MappingProxyType({}),
    ) -> DraftGroup:
        """Read and cut notes from `start` until they fill a transaction; call it from a thread.

        Stops at the first document whose text is not in `documents`.
        """
        group = DraftGroup(end=start)
        while group.end < len(changed) and not group.is_full:
            found, seen = changed[group.end]
            if reader_of(found.key) and found.key not in documents:
                break
            group.end += 1
            try:
                note = self._read(found, documents)
            except FileNotFoundError:
                group.vanished = True
            except OSError as error:
                group.unread[found.key] = error.strerror or str(error)
            else:
                draft = self._draft(found, note, seen)
                group.drafts.append(draft)
                group.chunks += len(draft.chunks or ())
        return group

    def _read(self, found: ScannedFile, documents: Mapping[str, Document | OSError]) -> Note:
        note = _read(found, documents)
        shown = self.hide(note.text, found.source)
        return note if shown is note.text else replace(note, text=shown)

    def _draft(self, found: ScannedFile, note: Note, seen: FileState | None) -> FileDraft:
        is_same = seen is not None and seen.hash == note.hash and self._matches_recipe(found.key, seen)
        fields, chunks = (NO_FIELDS, None) if is_same else self._cut(note)
        return FileDraft(
            key=found.key,
            source=found.source,
            # If a later change could get the same mtime, store one that matches nothing.
            note=note if note.settled else replace(note, mtime_ns=note.mtime_ns - 1),
            recipe=seen.recipe
            if seen and is_same
            else self._recipe_of(found.key, found.source, note.reading),
            fields=fields,
            chunks=chunks,
            seen=seen,
        )

    def _cut(self, note: Note) -> tuple[NoteFields, list[Chunk]]:
        if isinstance(note, Transcript):
            return NO_FIELDS, cut_document(note, self.chunking)
        structure = outline(note.text)
        if isinstance(note, Document):
            return NoteFields(title=structure.title or ""), cut_document(note, self.chunking)
        chunks = cut(structure, tokens=self.chunking.tokens, overlap=self.chunking.overlap)
        return fields_of(note.text, structure), chunks


def _reader(key: str, source: MemorySource) -> str:
    """Return the recipe's prefix: the file's reader, or nothing for a plain note."""
    reader = TRANSCRIPT_RECIPE if source == "sessions" else reader_of(key)
    return f"{reader}/" if reader else ""


def _read(found: ScannedFile, documents: Mapping[str, Document | OSError]) -> Note:
    if found.source == "sessions":
        return read_transcript(found.path)
    document = documents.get(found.key)
    if isinstance(document, OSError):
        raise document
    return document or read_note(found.path)


def gone_notes(report: ScanReport, known: Mapping[str, FileState]) -> dict[str, FileState]:
    """Return the indexed files that no longer exist, as far as the scan could tell."""
    missing = set(known).difference(map(BY_KEY, report.files))
    return {key: known[key] for key in sorted(missing) if report.covers(key, known[key].source)}
