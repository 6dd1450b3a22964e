"""Ingests contents: first into the outbox, then as facts into the graph."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import replace
from typing import Literal
from uuid import uuid4

from composable_memory.content import IngestReport, MemoryContentObject
from composable_memory.errors import ComposableMemoryError
from composable_memory.interfaces import ProgressCallback
from composable_memory.types import MemorySyncProgressUpdate, SyncReport
from composable_memory_adapters.graphiti.episodes import (
    EpisodeDraft,
    drafts_of,
    named_in,
    no_text,
    storable,
)
from composable_memory_adapters.graphiti.outbox.delivery import WorkReport
from composable_memory_adapters.graphiti.outbox.entries import Entry
from composable_memory_adapters.graphiti.outbox.merging import plan_merges
from composable_memory_adapters.graphiti.status import OpenGraph, ingest_settings

DraftsByContent = Sequence[tuple[EpisodeDraft, ...]]
"""The episodes of each content, in the order of the contents."""


class Ingest(OpenGraph):
    """The part of the graph memory that turns contents into episodes and has them processed."""

    async def ingest(self, contents: Sequence[MemoryContentObject], *, wait: bool = True) -> IngestReport:
        """Ingest contents: into the outbox first and then, with `wait` before this returns, as facts."""
        with self._traced("ingest"):
            drafts = await self._drafts(contents)
            with self._parts.worker.reserve(self._groups_of(drafts) if wait else ()):
                known = await self._parts.outbox.enqueue([draft for some in drafts for draft in some])
                return await self._work_off(contents, drafts, known, wait=wait)

    async def ingest_source(
        self, path: str, contents: Sequence[MemoryContentObject], *, wait: bool = True
    ) -> IngestReport:
        """Ingest contents as everything that `path` says now; what it said before no longer holds."""
        with self._traced("ingest"):
            drafts = await self._drafts(contents)
            source = named_in(self._parts.scope.owner_in_ids, storable(path))
            known = set[str]()
            with self._parts.worker.reserve(self._groups_of(drafts) if wait else ()):
                for group in self._groups_of(drafts):
                    of_group = [one for some in drafts for one in some if one.group_id == group]
                    known |= await self._parts.outbox.replace_source(source, of_group, group_id=group)
                return await self._work_off(contents, drafts, known, wait=wait)

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        """Process what waits in the outbox, and update the graph's indexes and vectors.

        Postponed work is retried at once. `force` also retries what was given up, and recomputes all vectors.
        """
        with self._traced("sync"):
            return await self._sync(reason=reason, force=force, progress=progress)

    async def _sync(self, *, reason: str, force: bool, progress: ProgressCallback | None) -> SyncReport:
        _report_progress(progress, 0)
        await self._parts.outbox.retry_now(failed=force)
        await self._parts.adoption.run_without_model()
        await plan_merges(
            self._parts.outbox, ingest_settings(self._parts.settings), now=self._parts.services.clock()
        )
        await self._monitor.count_waiting(anew=True)
        if self._monitor.is_empty:
            _report_progress(progress, 1)
            return SyncReport(reason=reason)
        with suppress(ComposableMemoryError):  # the work itself reports an unreachable graph
            await self._monitor.compare_again(force=force)
        done = await self._parts.worker.work()
        self._parts.worker.wake()  # to process retries
        problems = await self._parts.store.refresh(self._parts.scope.searched, force=force)
        await self._monitor.count_facts()
        _report_progress(progress, 1)
        return SyncReport(
            reason=reason,
            files_indexed=done.stored + done.sent,
            files_removed=done.retired,
            chunks_written=done.facts,
            problems=(*done.problems, *problems),
        )

    def _groups_of(self, drafts: DraftsByContent) -> list[str]:
        """Return the groups of the drafts, and the workspace's own, where the source may have been before."""
        return sorted({draft.group_id for some in drafts for draft in some} | {self._parts.scope.searched[0]})

    async def _drafts(self, contents: Sequence[MemoryContentObject]) -> list[tuple[EpisodeDraft, ...]]:
        """Return the episodes of each content, in a thread: for ten megabytes this takes a second."""
        return await asyncio.to_thread(lambda: [self._drafts_of(content) for content in contents])

    def _drafts_of(self, content: MemoryContentObject) -> tuple[EpisodeDraft, ...]:
        return drafts_of(
            replace(content, text=self._shown(content.text)) if content.text else content,
            group_id=self._parts.scope.group_of(content.provenance),
            now=self._parts.services.clock(),
            max_chars=self._parts.settings.ingest.max_episode_chars,
            workspace_id=self._parts.scope.owner_in_ids,
        )

    async def _work_off(
        self,
        contents: Sequence[MemoryContentObject],
        drafts: DraftsByContent,
        known: Set[str],
        *,
        wait: bool,
    ) -> IngestReport:
        if wait:
            with suppress(ComposableMemoryError):  # the outbox keeps what waits for the graph
                await self._monitor.compare(self._groups_of(drafts))
            done = await self._parts.worker.work(self._groups_of(drafts))
            await self._monitor.count_facts()
        else:
            done = WorkReport()
            await self._monitor.count_waiting(anew=True)  # else the next search would report it empty
        self._parts.worker.wake()  # to process new episodes and retries
        entries = await self._parts.outbox.entries([draft.id for some in drafts for draft in some])
        report = _report(contents, drafts, known, {entry.draft_id: entry for entry in entries}, done)
        last_error = self._monitor.waiting.last_error
        if wait and report.pending and not report.problems and last_error:
            # They were not attempted, because earlier ones failed.
            report = replace(report, problems=(last_error,))
        return report


def _report(
    contents: Sequence[MemoryContentObject],
    drafts: DraftsByContent,
    known: Set[str],
    entries: Mapping[str, Entry],
    done: WorkReport,
) -> IngestReport:
    """Report the outcome for each content: the worst among its episodes."""
    outcomes = Counter(_outcome(of_content, known, entries) for of_content in drafts)
    blank = [no_text(content) for content, some in zip(contents, drafts, strict=True) if not some]
    warnings = [warning for some in drafts for draft in some for warning in draft.warnings]
    errors = [entry.last_error for entry in entries.values() if entry.last_error and entry.state != "done"]
    return IngestReport(
        run_id=str(uuid4()),
        stored=outcomes["stored"],
        known=outcomes["known"],
        pending=outcomes["pending"],
        failed=outcomes["failed"],
        entities=done.entities,
        facts=done.facts,
        warnings=(*blank, *warnings),
        problems=tuple(dict.fromkeys([*(one.message for one in blank), *errors, *done.problems])),
    )


def _outcome(
    drafts: tuple[EpisodeDraft, ...], known: Set[str], entries: Mapping[str, Entry]
) -> Literal["stored", "known", "pending", "failed"]:
    states = {entries[draft.id].state for draft in drafts if draft.id in entries}
    if not drafts or "failed" in states:
        return "failed"
    if states & {"queued", "sent", "merging"}:
        return "pending"
    return "known" if all(draft.id in known for draft in drafts) else "stored"


def _report_progress(progress: ProgressCallback | None, completed: int) -> None:
    if progress is not None:
        progress(MemorySyncProgressUpdate(completed=completed, total=1, label="the graph"))
