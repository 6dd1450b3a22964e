"""Compares the notes with what the index knows of them, and reads and cuts those that differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from composable_memory_adapters.builtin.chunking import Chunk, chunk_markdown
from composable_memory_adapters.builtin.settings import ChunkingSettings
from composable_memory_adapters.builtin.sources import Note, ScannedFile, ScanReport, read_note

__all__ = ["ChangedNote", "DraftGroup", "Drafter", "FileDraft", "FileState", "gone_notes"]

GROUP_CHUNKS = 1000
"""Chunks in a transaction: as fast as all in one, and no reader or other process waits long."""
GROUP_FILES = 1000
CUT_VERSION = "markdown-1"
KEYWORD_VERSION = "keywords-1"


class FileState(NamedTuple):
    """How the index knows a file: enough to tell that nothing changed."""

    mtime_ns: int
    size: int
    recipe: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDraft:
    """A file as it shall stand in the index.

    `seen` is what the index held when the file was found changed; if it holds something else by now, another
    process was here and the draft is dropped. `chunks` is None where the content is what the index has.
    `recipe` says how the chunks and their keywords were made; rows of another recipe, and all rows when
    `replace` is set, are written anew.
    """

    key: str
    source: str = "memory"
    hash: str
    mtime_ns: int
    size: int
    recipe: str
    chunks: Sequence[Chunk] | None
    seen: FileState | None
    replace: bool = False


class ChangedNote(NamedTuple):
    """A note whose rows may be out of date, and what the index holds of it."""

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
    not_utf8: list[str] = field(default_factory=list)
    vanished: bool = False
    chunks: int = 0

    @property
    def is_full(self) -> bool:
        """Say whether the next note belongs into another transaction."""
        return self.chunks >= GROUP_CHUNKS or len(self.drafts) >= GROUP_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafter:
    """Makes drafts of notes; with `force` of all, whether they changed or not."""

    chunking: ChunkingSettings
    keywords: bool
    force: bool

    @property
    def recipe(self) -> str:
        """Return what the rows of a file depend on besides its content."""
        keywords = KEYWORD_VERSION if self.keywords else "no-keywords"
        return f"{CUT_VERSION}/{self.chunking.tokens}/{self.chunking.overlap}/{keywords}"

    def changed(self, report: ScanReport, known: Mapping[str, FileState]) -> list[ChangedNote]:
        """Return the notes that look otherwise than the index knows them, without reading any."""
        recipe = self.recipe
        changed = []
        for found in report.files:
            seen = known.get(found.key)
            if (
                seen is None
                or self.force
                or (seen.mtime_ns, seen.size, seen.recipe) != (found.mtime_ns, found.size, recipe)
            ):
                changed.append(ChangedNote(found, seen))
        return changed

    def group(self, changed: Sequence[ChangedNote], start: int) -> DraftGroup:
        """Read and cut notes from `start` on until they fill a transaction; call it from a thread."""
        group = DraftGroup(end=start)
        while group.end < len(changed) and not group.is_full:
            found, seen = changed[group.end]
            group.end += 1
            try:
                note = read_note(found.path)
            except FileNotFoundError:
                group.vanished = True
            except OSError as error:
                group.unread[found.key] = error.strerror or str(error)
            else:
                draft = self._draft(found.key, note, seen)
                group.drafts.append(draft)
                group.chunks += len(draft.chunks or ())
                if not note.is_utf8:
                    group.not_utf8.append(found.key)
        return group

    def _draft(self, key: str, note: Note, seen: FileState | None) -> FileDraft:
        recipe, cut = self.recipe, self.chunking
        is_same = seen is not None and (seen.hash, seen.recipe) == (note.hash, recipe) and not self.force
        return FileDraft(
            key=key,
            hash=note.hash,
            # A time that a later change may bear as well is stored so that it equals none.
            mtime_ns=note.mtime_ns if note.settled else note.mtime_ns - 1,
            size=note.size,
            recipe=recipe,
            chunks=None if is_same else chunk_markdown(note.text, tokens=cut.tokens, overlap=cut.overlap),
            seen=seen,
            replace=self.force,
        )


def gone_notes(report: ScanReport, known: Mapping[str, FileState]) -> dict[str, FileState]:
    """Return what the index knows and the disk no longer has, as far as the scan could see."""
    found = {file.key for file in report.files}
    return {key: state for key, state in known.items() if key not in found and report.covers(key)}
