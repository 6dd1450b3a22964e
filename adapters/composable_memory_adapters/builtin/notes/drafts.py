"""Compares notes and transcripts with what the index knows of them, and reads and cuts those that differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from composable_memory.types import MemorySource
from composable_memory_adapters.builtin.notes.sessions import (
    TRANSCRIPT_RECIPE,
    Transcript,
    cut_transcript,
    has_grown_enough,
    read_transcript,
)
from composable_memory_adapters.builtin.notes.sources import BY_KEY, Note, ScannedFile, ScanReport, read_note
from composable_memory_adapters.builtin.settings import ChunkingSettings, SessionDeltaSettings
from composable_memory_adapters.chunking import Chunk, chunk_markdown

__all__ = ["KEYWORD_VERSION", "ChangedNote", "DraftGroup", "Drafter", "FileDraft", "FileState", "gone_notes"]

GROUP_CHUNKS = 1000
"""Chunks in a transaction: as fast as all in one, and no reader or other process waits long."""
GROUP_FILES = 1000
CUT_VERSION = "markdown-2"
KEYWORD_VERSION = "keywords-2"


class FileState(NamedTuple):
    """How the index knows a file: enough to tell that nothing changed.

    A `recipe` that is empty means: read it again, the rows are damaged.
    """

    mtime_ns: int
    size: int
    recipe: str
    hash: str
    source: MemorySource = "memory"
    is_utf8: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDraft:
    """A file as it shall stand in the index.

    `seen` is what the index held when the file was found changed; if it holds something else by now, another
    process was here and the draft is dropped. `chunks` is None where the content is what the index has.
    `recipe` says how the chunks and their keywords were made; rows of another recipe are written anew.
    """

    key: str
    source: MemorySource = "memory"
    hash: str
    mtime_ns: int
    size: int
    recipe: str
    is_utf8: bool = True
    chunks: Sequence[Chunk] | None
    seen: FileState | None


class ChangedNote(NamedTuple):
    """A note or transcript whose rows may be out of date, and what the index holds of it."""

    found: ScannedFile
    seen: FileState | None


@dataclass(slots=True, kw_only=True)
class DraftGroup:
    """Notes for one transaction, and what happened to others on the way.

    `end` is the place behind the last one that was looked at. `unread` maps the key of a note that could not
    be read to the reason; `vanished` says that one was gone when it was its turn.
    """

    end: int
    drafts: list[FileDraft] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)
    vanished: bool = False
    chunks: int = 0

    @property
    def is_full(self) -> bool:
        """Return whether the next note belongs into another transaction."""
        return self.chunks >= GROUP_CHUNKS or len(self.drafts) >= GROUP_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """Makes drafts of notes and transcripts that changed.

    `growth_limits` says how much a transcript must have grown before it is read again; None for any change.
    With `any_cut` a file that only was cut in another way counts as unchanged.
    """

    chunking: ChunkingSettings
    keywords: bool
    growth_limits: SessionDeltaSettings | None = None
    any_cut: bool = False

    @property
    def recipe(self) -> str:
        """Return what the rows of a note depend on besides its content."""
        keywords = KEYWORD_VERSION if self.keywords else "no-keywords"
        return f"{CUT_VERSION}/{self.chunking.tokens}/{self.chunking.overlap}/{keywords}"

    def changed(self, report: ScanReport, known: Mapping[str, FileState]) -> list[ChangedNote]:
        """Return the files that look otherwise than the index knows them; call it from a thread.

        No note is read for that, and of a transcript at most what is new.
        """
        recipes = {source: self._recipe_of(source) for source in report.sources}
        changed = []
        for found in report.files:
            key, _, mtime_ns, size, _, _, source = found
            seen = known.get(key)
            if seen is not None and seen[:3] == (mtime_ns, size, recipes[source]):
                continue  # most of them, so this has to be quick
            if seen is None or self._differs(found, seen):
                changed.append(ChangedNote(found, seen))
        return changed

    def _differs(self, found: ScannedFile, seen: FileState) -> bool:
        """Return whether the rows of a file have to be made anew."""
        if not self._is_made_right(seen):
            return True
        return (seen.mtime_ns, seen.size) != (found.mtime_ns, found.size) and self._is_due(found, seen)

    def _is_made_right(self, seen: FileState) -> bool:
        """Whether rows are made as they would be now; old ways of reading transcripts are never right."""
        if self.any_cut:
            return bool(seen.recipe) and (
                seen.source == "memory" or seen.recipe.startswith(f"{TRANSCRIPT_RECIPE}/")
            )
        return seen.recipe == self._recipe_of(seen.source)

    def _is_due(self, found: ScannedFile, seen: FileState) -> bool:
        return (
            self.growth_limits is None
            or found.source == "memory"
            or has_grown_enough(found.path, known_size=seen.size, size=found.size, limits=self.growth_limits)
        )

    def _recipe_of(self, source: MemorySource) -> str:
        return self.recipe if source == "memory" else f"{TRANSCRIPT_RECIPE}/{self.recipe}"

    def group(self, changed: Sequence[ChangedNote], start: int) -> DraftGroup:
        """Read and cut notes from `start` on until they fill a transaction; call it from a thread."""
        group = DraftGroup(end=start)
        while group.end < len(changed) and not group.is_full:
            found, seen = changed[group.end]
            group.end += 1
            try:
                note = read_note(found.path) if found.source == "memory" else read_transcript(found.path)
            except FileNotFoundError:
                group.vanished = True
            except OSError as error:
                group.unread[found.key] = error.strerror or str(error)
            else:
                draft = self._draft(found, note, seen)
                group.drafts.append(draft)
                group.chunks += len(draft.chunks or ())
        return group

    def _draft(self, found: ScannedFile, note: Note | Transcript, seen: FileState | None) -> FileDraft:
        is_same = seen is not None and seen.hash == note.hash and self._is_made_right(seen)
        return FileDraft(
            key=found.key,
            source=found.source,
            hash=note.hash,
            # A time that a later change may bear as well is stored so that it equals none.
            mtime_ns=note.mtime_ns if note.settled else note.mtime_ns - 1,
            size=note.size,
            recipe=seen.recipe if seen and is_same else self._recipe_of(found.source),
            is_utf8=note.is_utf8,
            chunks=None if is_same else self._cut(note),
            seen=seen,
        )

    def _cut(self, note: Note | Transcript) -> list[Chunk]:
        if isinstance(note, Transcript):
            return cut_transcript(note, self.chunking)
        return chunk_markdown(note.text, tokens=self.chunking.tokens, overlap=self.chunking.overlap)


def gone_notes(report: ScanReport, known: Mapping[str, FileState]) -> dict[str, FileState]:
    """Return what the index knows and the disk no longer has, as far as the scan could see."""
    missing = set(known).difference(map(BY_KEY, report.files))
    return {key: known[key] for key in sorted(missing) if report.covers(key, known[key].source)}
