"""Takes notes into one set of tables: looks for what changed, writes it in groups, removes what is gone."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from composable_memory_adapters.builtin.notes.drafts import (
    ChangedNote,
    Drafter,
    DraftGroup,
    FileState,
    gone_notes,
)
from composable_memory_adapters.builtin.notes.sessions import patience
from composable_memory_adapters.builtin.notes.sources import ScanReport, scan
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.store import index
from composable_memory_adapters.builtin.store.embedding_cache import EmbeddingSpace
from composable_memory_adapters.builtin.store.table_set import TableSet
from composable_memory_adapters.text.query_terms import index_text

__all__ = ["Intake", "Tally", "Tell"]

GROUP_REMOVALS = 200
MAX_ROUNDS = 3
NOT_UTF8 = "it is not UTF-8; what could not be read was replaced"

Tell = Callable[[str, int, int], None]
"""Called with a label, the steps done and all steps."""


@dataclass(slots=True, kw_only=True)
class Tally:
    """What a sync has done so far: files, chunks, and chunks that found their vector in the cache."""

    indexed: int = 0
    removed: int = 0
    chunks: int = 0
    vectors_reused: int = 0

    @property
    def is_news(self) -> bool:
        """Return whether anything was changed."""
        return bool(self.indexed or self.removed)


class Intake:
    """Makes a table set hold what the notes hold; may be asked again and again."""

    def __init__(
        self,
        tables: TableSet,
        *,
        workspace: Path,
        transcripts: Path | None,
        reason: str,
        settings: BuiltinSettings,
        space: EmbeddingSpace | None,
        now_ms: Callable[[], int],
        tally: Tally,
        tell: Tell,
    ) -> None:
        self._tables = tables
        self._workspace = workspace
        self._transcripts = transcripts
        self._settings = settings
        self._space = space
        self._now_ms = now_ms
        self._tally = tally
        self._tell = tell
        self.drafter = Drafter(
            chunking=settings.chunking,
            keywords=settings.store.fts.enabled,
            patience=patience(reason, settings.sync.sessions),
        )
        self.scan = ScanReport(files=(), unreadable={})
        self.unread: dict[str, str] = {}
        self.not_utf8: set[str] = set()

    def keep_old_cuts(self, keep: bool) -> None:
        """Tell whether a file that did not change may stay as it is, though it would be cut otherwise now."""
        self.drafter = replace(self.drafter, any_cut=keep)

    async def settle(self) -> None:
        """Follow the notes until they stand still, at most `MAX_ROUNDS` times."""
        for _ in range(MAX_ROUNDS):
            if not await self.follow():
                return

    async def follow(self) -> bool:
        """Make the index hold what the notes hold; say whether to look once more.

        What the index knows is read before the disk is looked at: a file that it knows and the disk does not
        show is gone, while one that another process adds meanwhile is not taken for gone.
        """
        known = await self._tables.read(index.file_states)
        changed, gone = await asyncio.to_thread(self._look, known)
        self.unread = {}
        self.not_utf8 = {key for key, seen in known.items() if not seen.is_utf8}.difference(gone)
        moved = await self._write_changed(changed)
        await self._remove(gone)
        return moved

    @property
    def unreadable(self) -> Mapping[str, str]:
        """Return what could not be read, a file or a folder, with the reasons."""
        return {**self.scan.unreadable, **self.unread}

    @property
    def troubles(self) -> Mapping[str, str]:
        """Return what could not be read, or not in full, with the reasons; also of files read long ago."""
        return {**dict.fromkeys(sorted(self.not_utf8), NOT_UTF8), **self.unreadable}

    def _look(self, known: Mapping[str, FileState]) -> tuple[list[ChangedNote], dict[str, FileState]]:
        """Look at the disk and return what changed on it, and what is gone."""
        self.scan = scan(
            self._workspace,
            self._settings.extra_paths,
            sources=self._settings.sources,
            transcripts=self._transcripts,
        )
        return self.drafter.changed(self.scan, known), gone_notes(self.scan, known)

    async def _write_changed(self, changed: Sequence[ChangedNote]) -> bool:
        """Read, cut and write notes group by group; say whether one moved under our hands."""
        done, moved = 0, False
        if changed:
            self._tell("Indexing notes", done, len(changed))
        while done < len(changed):
            group = await asyncio.to_thread(self.drafter.group, changed, done)
            moved |= await self._write(group) or group.vanished
            self.unread |= group.unread
            self.not_utf8.difference_update(draft.key for draft in group.drafts)
            self.not_utf8.update(draft.key for draft in group.drafts if not draft.is_utf8)
            done = group.end
            self._tell("Indexing notes", done, len(changed))
        return moved

    async def _write(self, group: DraftGroup) -> bool:
        """Write a group in one transaction; say whether another process was faster with a part of it."""
        count = await self._tables.write(
            partial(
                index.write_drafts,
                drafts=group.drafts,
                space=self._space,
                keywords=index_text if self._settings.store.fts.enabled else None,
                now_ms=self._now_ms(),
            )
        )
        self._tally.indexed += count.files
        self._tally.chunks += count.chunks
        self._tally.vectors_reused += count.vectors_reused
        return bool(count.overtaken)

    async def _remove(self, gone: Mapping[str, FileState]) -> None:
        items = list(gone.items())
        for start in range(0, len(items), GROUP_REMOVALS):
            part = dict(items[start : start + GROUP_REMOVALS])
            removed = partial(index.remove_files, files=part, now_ms=self._now_ms())
            self._tally.removed += await self._tables.write(removed)
