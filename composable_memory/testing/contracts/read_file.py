"""The contract of a memory with `Capability.READ_FILE`: what may be read, and how lines are counted."""

from collections.abc import Mapping
from typing import ClassVar

import pytest

from composable_memory.errors import BackendUnavailable, MemoryPathError
from composable_memory.testing.contracts.opening import BackendSuite, OpenBackend, opened
from composable_memory.testing.corpus import HOSTILE_PATHS, SEED_NOTES
from composable_memory.types import MemoryFileSlice, SearchOptions


class ReadFileContract(BackendSuite):
    """What a memory that reads files must do; `files` are texts that it holds, by path."""

    files: ClassVar[Mapping[str, str]] = SEED_NOTES

    async def test_whole_files_are_read(self, open_backend: OpenBackend) -> None:
        """A file comes back as it is, under its path."""
        async with opened(open_backend) as memory:
            read = [await memory.read_file(path) for path in self.files]

            assert read == [MemoryFileSlice(text=text, path=path) for path, text in self.files.items()]

    async def test_lines_count_from_one(self, open_backend: OpenBackend) -> None:
        """`from_line` 1 is the first line, and `lines` says how many follow."""
        path, text = next(iter(self.files.items()))
        all_lines = text.split("\n")
        async with opened(open_backend) as memory:
            first = await memory.read_file(path, from_line=1, lines=1)
            some = await memory.read_file(path, from_line=2, lines=2)
            rest = await memory.read_file(path, from_line=3)
            head = await memory.read_file(path, lines=2)

            assert first.text == all_lines[0]
            assert some.text == "\n".join(all_lines[1:3])
            assert rest.text == "\n".join(all_lines[2:])
            assert head.text == "\n".join(all_lines[:2])

    async def test_lines_beyond_the_end_are_empty(self, open_backend: OpenBackend) -> None:
        """Asking for more than there is gives what there is."""
        path, text = next(iter(self.files.items()))
        async with opened(open_backend) as memory:
            assert (await memory.read_file(path, from_line=100_000, lines=5)).text == ""
            assert (await memory.read_file(path, from_line=1, lines=100_000)).text == text

    async def test_numbers_below_one_count_as_one(self, open_backend: OpenBackend) -> None:
        """A line before the first is the first."""
        path, text = next(iter(self.files.items()))
        async with opened(open_backend) as memory:
            for number in (0, -1, -100_000):
                assert (await memory.read_file(path, from_line=number)).text == text, number

    async def test_the_lines_of_a_result_hold_its_answer(self, open_backend: OpenBackend) -> None:
        """What a result points at is what it quotes."""
        async with opened(open_backend) as memory:
            for question in self.questions:
                hits = await memory.search(question.query, SearchOptions(max_results=3))
                hit = next(hit for hit in hits if question.answer in hit.snippet)
                count = hit.end_line - hit.start_line + 1
                lines = await memory.read_file(hit.path, from_line=hit.start_line, lines=count)
                assert question.answer in lines.text, hit

    async def test_a_missing_file_is_empty(self, open_backend: OpenBackend) -> None:
        """A note that is not there is no error."""
        async with opened(open_backend) as memory:
            missing = await memory.read_file("memory/no-such-note.md", from_line=3, lines=4)

            assert missing == MemoryFileSlice(text="", path="memory/no-such-note.md")

    async def test_what_is_not_a_note_is_refused(self, open_backend: OpenBackend) -> None:
        """Paths that lead outside, or to something that is no note, raise `MemoryPathError`."""
        async with opened(open_backend) as memory:
            for path in HOSTILE_PATHS:
                with pytest.raises(MemoryPathError):
                    pytest.fail(f"{path!a} was read: {await memory.read_file(path)}")

    async def test_a_closed_memory_reads_nothing(self, open_backend: OpenBackend) -> None:
        """`read_file` is a call like the others."""
        async with opened(open_backend) as memory:
            await memory.close()
            with pytest.raises(BackendUnavailable):
                await memory.read_file(next(iter(self.files)))
