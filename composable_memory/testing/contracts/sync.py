"""The contracts of memories that sync and that forget: an index follows its sources, and keeps no more."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import pytest

from composable_memory.errors import BackendUnavailable
from composable_memory.forget.report import ForgetLine, Forgetting
from composable_memory.interfaces import MemorySearchManager, ProgressCallback, SupportsForget, SupportsSync
from composable_memory.testing.contracts.opening import BackendSuite, OpenBackend, cancel_after, opened
from composable_memory.types import (
    MemorySearchResult,
    MemorySyncProgressUpdate,
    SearchOptions,
    SyncReport,
)

WriteNote: TypeAlias = Callable[[str, str | None], Awaitable[None]]
"""Writes a text to a path in the sources of the open backend, or removes the note if it is None."""

NEW_PATH = "memory/2026-04-01.md"
NEW_TEXT = "# Wednesday\n\nThe lighthouse keeper's parrot is called Bosun.\n"
NEW_QUERY = "lighthouse keeper parrot"
NEW_ANSWER = "Bosun"

PATH = "memory/2026-04-02.md"
KEPT = "- Anna Bosun works at Beacon Labs."
GONE = "- Mirela Capstan works at Zanzebrook Labs."
WANTED = Forgetting(lines=(ForgetLine(path=PATH, start_line=2, end_line=2, text=GONE),))


class SyncContract(BackendSuite):
    """What a memory that keeps an index must do."""

    @pytest.fixture
    def write_note(self) -> WriteNote:
        """Return a function that changes the sources of the open backend; override this."""
        raise NotImplementedError(
            f"{type(self).__name__} has to override the fixture `write_note`: return a coroutine function "
            "(path, text) that writes a note of the open backend, or removes it if text is None"
        )

    async def test_a_second_sync_writes_nothing(self, open_backend: OpenBackend) -> None:
        """If nothing has changed there is nothing to do."""
        async with opened(open_backend) as memory:
            await _sync(memory)
            again = await _sync(memory)

            assert (again.files_indexed, again.files_removed) == (0, 0)
            assert (again.chunks_written, again.embedded) == (0, 0)

    async def test_a_new_note_is_found_after_a_sync(
        self, open_backend: OpenBackend, write_note: WriteNote
    ) -> None:
        """One changed file is one indexed file, and a search finds it."""
        async with opened(open_backend) as memory:
            await _sync(memory)
            await write_note(NEW_PATH, NEW_TEXT)
            report = await _sync(memory)

            assert report.files_indexed == 1
            if self.questions:
                assert any(NEW_ANSWER in hit.snippet for hit in await _best(memory))

    async def test_a_removed_note_is_gone_after_a_sync(
        self, open_backend: OpenBackend, write_note: WriteNote
    ) -> None:
        """Nothing of a removed file is found any more."""
        async with opened(open_backend) as memory:
            await write_note(NEW_PATH, NEW_TEXT)
            await _sync(memory)
            await write_note(NEW_PATH, None)
            report = await _sync(memory)

            assert report.files_removed == 1
            assert all(hit.path != NEW_PATH for hit in await _best(memory))

    async def test_a_changed_note_replaces_what_it_was(
        self, open_backend: OpenBackend, write_note: WriteNote
    ) -> None:
        """The old text of a changed file is not found any more."""
        async with opened(open_backend) as memory:
            await write_note(NEW_PATH, NEW_TEXT)
            await _sync(memory)
            await write_note(NEW_PATH, NEW_TEXT.replace(NEW_ANSWER, "Captain"))
            await _sync(memory)

            assert all(NEW_ANSWER not in hit.snippet for hit in await _best(memory))

    async def test_a_forced_sync_keeps_the_answers(self, open_backend: OpenBackend) -> None:
        """A rebuilt index gives the same answers as the old one."""
        async with opened(open_backend) as memory:
            normal = await _sync(memory)
            before = [list(await memory.search(question.query)) for question in self.questions]
            rebuilt = await _sync(memory, force=True)
            after = [list(await memory.search(question.query)) for question in self.questions]

            assert after == before
            assert rebuilt.files_indexed == normal.files_indexed + normal.files_unchanged

    async def test_concurrent_syncs_are_joined(
        self, open_backend: OpenBackend, write_note: WriteNote
    ) -> None:
        """Concurrent syncs all end, and what was written before they began is found."""
        async with opened(open_backend) as memory:
            await write_note(NEW_PATH, NEW_TEXT)
            reports = await asyncio.gather(*(_sync(memory, reason=f"test-{n}") for n in range(5)))
            again = await _sync(memory)

            assert len(reports) == 5
            assert again.files_indexed == 0

    async def test_a_forced_sync_is_not_lost_among_others(self, open_backend: OpenBackend) -> None:
        """A `force` that comes during a running sync still rebuilds."""
        async with opened(open_backend) as memory:
            first = await _sync(memory)
            running = asyncio.ensure_future(_sync(memory))
            await asyncio.sleep(0)
            forced = await _sync(memory, force=True)
            await running

            assert forced.files_indexed == first.files_indexed + first.files_unchanged

    async def test_progress_only_grows(self, open_backend: OpenBackend) -> None:
        """`completed` never falls, never passes `total`, and ends at it."""
        steps: list[MemorySyncProgressUpdate] = []
        async with opened(open_backend) as memory:
            await _sync(memory, force=True, progress=steps.append)

            assert steps
            assert all(before.completed <= after.completed for before, after in pairwise(steps))
            assert all(0 <= step.completed <= step.total for step in steps)
            assert steps[-1].completed == steps[-1].total

    async def test_a_cancelled_sync_leaves_the_memory_usable(
        self, open_backend: OpenBackend, write_note: WriteNote
    ) -> None:
        """Wherever it is cancelled, a sync can be repeated, and then everything is found."""
        async with opened(open_backend) as memory:
            await write_note(NEW_PATH, NEW_TEXT)
            for turns in (0, 1, 2, 5, 10, 20):
                await cancel_after(turns, _sync(memory, force=True))
            await _sync(memory)

            if self.questions:
                assert any(NEW_ANSWER in hit.snippet for hit in await _best(memory))

    async def test_searches_during_a_sync_answer(self, open_backend: OpenBackend) -> None:
        """While an index is being rebuilt, the old one answers."""
        async with opened(open_backend) as memory:
            await _sync(memory)
            before = [list(await memory.search(question.query)) for question in self.questions]
            running = asyncio.ensure_future(_sync(memory, force=True))
            while not running.done():
                during = [list(await memory.search(question.query)) for question in self.questions]
                assert during == before
                await asyncio.sleep(0)
            await running

    async def test_a_closed_memory_does_not_sync(self, open_backend: OpenBackend) -> None:
        """`sync` is closed like all other calls."""
        async with opened(open_backend) as memory:
            await memory.close()
            with pytest.raises(BackendUnavailable):
                await _sync(memory)


async def _sync(
    memory: MemorySearchManager,
    *,
    reason: str = "manual",
    force: bool = False,
    progress: ProgressCallback | None = None,
) -> SyncReport:
    assert isinstance(memory, SupportsSync)
    return await memory.sync(reason=reason, force=force, progress=progress)


async def _best(memory: MemorySearchManager) -> Sequence[MemorySearchResult]:
    return await memory.search(NEW_QUERY, SearchOptions(max_results=3))


class ForgetContract(BackendSuite):
    """What a memory that can forget must do; needs the fixture `write_note` of `SyncContract` too."""

    async def test_what_is_erased_is_held_no_more_and_the_rest_is(
        self, open_backend: OpenBackend, write_note: WriteNote
    ) -> None:
        """What it holds is listed and then erased; erasing twice does no harm."""
        async with opened(open_backend) as memory:
            assert isinstance(memory, SupportsForget)
            await write_note(PATH, f"{KEPT}\n{GONE}\n")
            await _sync_if_it_can(memory)
            assert sum(one.count for one in await memory.holdings(WANTED)) > 0

            await write_note(PATH, f"{KEPT}\n")
            await memory.erase(WANTED)
            await memory.erase(WANTED)

            found = await memory.search("where does Anna Bosun work?", SearchOptions(max_results=50))
            assert any("Beacon" in f"{one.snippet} {one.text}" for one in found)
            assert not any("Zanzebrook" in f"{one.snippet} {one.text}" for one in found)

    async def test_what_was_never_stored_can_be_erased(self, open_backend: OpenBackend) -> None:
        """There is nothing to list, and nothing is erased."""
        async with opened(open_backend) as memory:
            assert isinstance(memory, SupportsForget)
            await _sync_if_it_can(memory)

            assert [one for one in await memory.holdings(WANTED) if one.count] == []
            await memory.erase(WANTED)


async def _sync_if_it_can(memory: MemorySearchManager) -> None:
    if isinstance(memory, SupportsSync):
        await memory.sync()
