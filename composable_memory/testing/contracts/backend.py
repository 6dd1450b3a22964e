"""The contracts of every memory: what `search`, `status`, the probes, `read_file` and `close` must do."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import ClassVar, get_args

import pytest

from composable_memory.errors import (
    BackendError,
    BackendUnavailable,
    MemoryPathError,
    UnsupportedOperation,
)
from composable_memory.highlights import within
from composable_memory.interfaces import (
    CAPABILITY_PROTOCOLS,
    Capability,
    MemorySearchManager,
    SupportsAnswer,
    SupportsSync,
)
from composable_memory.testing.contracts.opening import (
    BackendSuite,
    OpenBackend,
    blocking_forbidden,
    cancel_after,
    opened,
)
from composable_memory.testing.corpus import HOSTILE_PATHS, HOSTILE_TEXTS, SEED_NOTES
from composable_memory.types import (
    MAX_SNIPPET_CHARS,
    DegradationCode,
    MemoryEmbeddingProbeResult,
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    MemorySource,
    SearchAnswer,
    SearchOptions,
)

BROAD_QUERY = "ferry pump coffee keys harbour boat tomatoes gauge"
"""Matches most of the seeded notes."""


class BackendContract(BackendSuite):
    """What every memory must do. Add the contract of each capability that it declares."""

    async def test_it_is_a_memory(self, open_backend: OpenBackend) -> None:
        """The opened object satisfies the Protocol."""
        async with opened(open_backend) as memory:
            assert isinstance(memory, MemorySearchManager)

    async def test_the_seeded_questions_are_answered(self, open_backend: OpenBackend) -> None:
        """The answer is in a snippet of one of the three best results."""
        async with opened(open_backend) as memory:
            for question in self.questions:
                best = await memory.search(question.query, SearchOptions(max_results=3))
                assert any(question.answer in hit.snippet for hit in best), (question, best)

    async def test_every_result_is_sound(self, open_backend: OpenBackend) -> None:
        """Scores are in [0, 1], lines are 1-based or absent, snippets are short, paths are relative."""
        async with opened(open_backend) as memory:
            for query in [BROAD_QUERY, *(question.query for question in self.questions)]:
                assert_sound(await memory.search(query, SearchOptions(max_results=50)))

    async def test_no_passage_is_returned_twice(self, open_backend: OpenBackend) -> None:
        """The key of a result is unique in its answer."""
        async with opened(open_backend) as memory:
            keys = [hit.key for hit in await memory.search(BROAD_QUERY, SearchOptions(max_results=50))]

            assert len(set(keys)) == len(keys)

    async def test_a_blank_query_has_no_results(self, open_backend: OpenBackend) -> None:
        """A query of white space has no results."""
        async with opened(open_backend) as memory:
            for blank in ("", " ", "\n\t ", "\u3000"):
                assert list(await memory.search(blank)) == [], ascii(blank)

    async def test_hostile_queries_are_survived(self, open_backend: OpenBackend) -> None:
        """No text that a person can paste raises, and the next question is answered as before."""
        async with opened(open_backend) as memory:
            before = list(await memory.search(BROAD_QUERY))
            for text in HOSTILE_TEXTS.values():
                assert_sound(await memory.search(text))

            assert list(await memory.search(BROAD_QUERY)) == before

    async def test_a_shorter_answer_is_the_beginning_of_a_longer_one(self, open_backend: OpenBackend) -> None:
        """The first k results of a longer answer are the answer for k."""
        async with opened(open_backend) as memory:
            for query in [BROAD_QUERY, *(question.query for question in self.questions)]:
                longest = list(await memory.search(query, SearchOptions(max_results=12)))
                for wanted in (1, 2, 3, 6, 11):
                    shorter = list(await memory.search(query, SearchOptions(max_results=wanted)))
                    assert shorter == longest[:wanted], (query, wanted)

    async def test_a_minimum_score_cuts_all_but_exact_hits(self, open_backend: OpenBackend) -> None:
        """The remaining results reach the score or contain every word of the query."""
        async with opened(open_backend) as memory:
            for query in [BROAD_QUERY, *(question.query for question in self.questions)]:
                everything = await memory.search(query, SearchOptions(max_results=50))
                for min_score in (0.2, 0.5, 0.9, 1.0):
                    kept = await memory.search(query, SearchOptions(max_results=50, min_score=min_score))
                    expected = [hit for hit in everything if hit.exact or hit.score >= min_score]
                    assert list(kept) == expected, (query, min_score)

    async def test_options_may_be_left_out(self, open_backend: OpenBackend) -> None:
        """Without options, the defaults apply."""
        async with opened(open_backend) as memory:
            assert list(await memory.search(BROAD_QUERY)) == list(
                await memory.search(BROAD_QUERY, SearchOptions())
            )

    async def test_concurrent_searches_answer_as_single_ones(self, open_backend: OpenBackend) -> None:
        """Sixteen concurrent searches return the same as one after another."""
        queries = [BROAD_QUERY, *(question.query for question in self.questions)]
        async with opened(open_backend) as memory:
            in_turn = [list(await memory.search(query)) for query in queries]
            at_once = await asyncio.gather(*(memory.search(query) for query in queries * 2))

            assert [list(hits) for hits in at_once] == in_turn * 2

    async def test_a_cancelled_search_leaves_the_memory_usable(self, open_backend: OpenBackend) -> None:
        """Wherever it is cancelled, a search ends, and the next one answers as before."""
        async with opened(open_backend) as memory:
            before = list(await memory.search(BROAD_QUERY))
            for turns in (0, 1, 2, 4, 8, 16):
                await cancel_after(turns, memory.search(BROAD_QUERY))

            assert list(await memory.search(BROAD_QUERY)) == before

    async def test_a_status_is_sound_before_and_after_a_failure(self, open_backend: OpenBackend) -> None:
        """The status names the backend, counts are not negative, and a refused call changes nothing."""
        async with opened(open_backend) as memory:
            await memory.search(BROAD_QUERY)
            before = memory.status()
            with pytest.raises((MemoryPathError, UnsupportedOperation)):
                await memory.read_file("../outside.md")
            after = memory.status()

            assert_sound_status(before)
            assert after == before

    async def test_the_probes_answer(self, open_backend: OpenBackend) -> None:
        """A probe says yes or no, and a no has its reason."""
        async with opened(open_backend) as memory:
            embedding = await memory.probe_embedding_availability()
            vectors = await memory.probe_vector_availability()

            assert isinstance(embedding, MemoryEmbeddingProbeResult)
            assert embedding.ok or embedding.error
            assert isinstance(vectors, bool)

    async def test_closing_twice_is_fine(self, open_backend: OpenBackend) -> None:
        """`close` may be called again, and the context manager closes once more."""
        async with opened(open_backend) as memory:
            await memory.close()
            await memory.close()

    async def test_a_closed_memory_is_unavailable(self, open_backend: OpenBackend) -> None:
        """After `close` every call raises `BackendUnavailable`."""
        async with opened(open_backend) as memory:
            await memory.close()
            with pytest.raises(BackendUnavailable):
                await memory.search(BROAD_QUERY)
            with pytest.raises(BackendUnavailable):
                await memory.probe_embedding_availability()
            with pytest.raises(BackendUnavailable):
                await memory.probe_vector_availability()

    async def test_closing_ends_a_running_search(self, open_backend: OpenBackend) -> None:
        """A search that is running while the memory closes answers or raises; it does not hang."""
        async with opened(open_backend) as memory:
            running = asyncio.ensure_future(memory.search(BROAD_QUERY))
            await asyncio.sleep(0)
            await memory.close()
            outcome = (await asyncio.gather(running, return_exceptions=True))[0]

            assert not isinstance(outcome, BaseException) or isinstance(outcome, BackendError)

    async def test_the_event_loop_is_not_blocked(self, open_backend: OpenBackend) -> None:
        """No call reads files, sleeps or waits for locks on the event loop."""
        with blocking_forbidden():
            async with opened(open_backend) as memory:
                await memory.search(BROAD_QUERY)
                memory.status()
                await memory.probe_embedding_availability()
                await memory.probe_vector_availability()
                if Capability.READ_FILE in self.capabilities:
                    await memory.read_file(self.missing_path)

    async def test_reading_files_is_offered_or_refused(self, open_backend: OpenBackend) -> None:
        """A memory that declares READ_FILE reads files; any other raises `UnsupportedOperation`."""
        async with opened(open_backend) as memory:
            if Capability.READ_FILE in self.capabilities:
                missing = await memory.read_file(self.missing_path)
                assert missing == MemoryFileSlice(text="", path=self.missing_path)
            else:
                with pytest.raises(UnsupportedOperation):
                    await memory.read_file("MEMORY.md")

    async def test_what_is_declared_is_there_and_what_is_not_is_refused(
        self, open_backend: OpenBackend
    ) -> None:
        """Each declared Protocol is satisfied; one that is not declared is absent or refuses."""
        async with opened(open_backend) as memory:
            for capability, protocol in CAPABILITY_PROTOCOLS.items():
                offered = isinstance(memory, protocol)
                assert offered or capability not in self.capabilities, capability
            if isinstance(memory, SupportsAnswer) and Capability.ANSWER not in self.capabilities:
                with pytest.raises(UnsupportedOperation):
                    await memory.answer(BROAD_QUERY)
            if isinstance(memory, SupportsSync) and Capability.SYNC not in self.capabilities:
                with pytest.raises(UnsupportedOperation):
                    await memory.sync()


class AnswerContract(BackendSuite):
    """What a memory with `Capability.ANSWER` must do."""

    async def test_an_answer_holds_what_a_search_returns(self, open_backend: OpenBackend) -> None:
        """`search` is `answer` without the details."""
        async with opened(open_backend) as memory:
            for query in [BROAD_QUERY, "", *(question.query for question in self.questions)]:
                assert list((await _answer(memory, query)).results) == list(await memory.search(query))

    async def test_an_answer_names_its_engines(self, open_backend: OpenBackend) -> None:
        """Results come from an engine with a name."""
        async with opened(open_backend) as memory:
            answer = await _answer(memory, BROAD_QUERY)

            assert answer.engines or not answer.results
            assert all(isinstance(name, str) and name for pair in answer.engines.items() for name in pair)

    async def test_every_degradation_has_a_reason(self, open_backend: OpenBackend) -> None:
        """What is missing is given by backend, known code, and reason."""
        async with opened(open_backend) as memory:
            answer = await _answer(memory, BROAD_QUERY)

            for degradation in answer.degraded:
                assert degradation.backend_id
                assert degradation.reason.strip()
                assert degradation.code in get_args(DegradationCode)

    async def test_a_memory_that_can_find_nothing_says_why(self, open_backend: OpenBackend) -> None:
        """An empty answer of a memory that cannot find anything is degraded."""
        async with opened(open_backend) as memory:
            answer = await _answer(memory, BROAD_QUERY)

            assert answer.results or answer.degraded

    async def test_an_answer_of_a_closed_memory_is_unavailable(self, open_backend: OpenBackend) -> None:
        """`answer` is closed like all other calls."""
        async with opened(open_backend) as memory:
            await memory.close()
            with pytest.raises(BackendUnavailable):
                await _answer(memory, BROAD_QUERY)


def assert_sound(hits: Sequence[MemorySearchResult]) -> None:
    """Assert what must hold for every list of results."""
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        assert isinstance(hit, MemorySearchResult)
        assert 0.0 <= hit.score <= 1.0, hit
        assert 1 <= hit.start_line <= hit.end_line or hit.start_line == hit.end_line == 0, hit
        assert len(hit.snippet) <= MAX_SNIPPET_CHARS, hit
        assert hit.highlights == within(hit.highlights, len(hit.snippet)), hit
        assert hit.path, hit
        assert not hit.path.startswith("/"), hit
        assert "\\" not in hit.path, hit
        assert hit.source in get_args(MemorySource), hit


def assert_sound_status(status: MemoryProviderStatus) -> None:
    """Assert what must hold for every status."""
    assert isinstance(status, MemoryProviderStatus)
    assert status.backend
    assert status.provider
    assert all(count is None or count >= 0 for count in (status.files, status.chunks))
    assert all(count.files >= 0 and count.chunks >= 0 for count in status.source_counts)
    json.dumps(dict(status.custom))


async def _answer(memory: MemorySearchManager, query: str) -> SearchAnswer:
    assert isinstance(memory, SupportsAnswer)
    return await memory.answer(query)


class ReadFileContract(BackendSuite):
    """What a memory that reads files must do; `files` maps paths to texts that it has."""

    files: ClassVar[Mapping[str, str]] = SEED_NOTES

    async def test_whole_files_are_read(self, open_backend: OpenBackend) -> None:
        """A file is returned unchanged, under its path."""
        async with opened(open_backend) as memory:
            read = [await memory.read_file(path) for path in self.files]

            assert read == [MemoryFileSlice(text=text, path=path) for path, text in self.files.items()]

    async def test_lines_count_from_one(self, open_backend: OpenBackend) -> None:
        """`from_line` 1 is the first line, and `lines` says how many to read."""
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
        """Asking for more lines than there are returns those there are."""
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
        """A result quotes what its lines say."""
        async with opened(open_backend) as memory:
            for question in self.questions:
                hits = await memory.search(question.query, SearchOptions(max_results=3))
                hit = next(hit for hit in hits if question.answer in hit.snippet)
                count = hit.end_line - hit.start_line + 1
                lines = await memory.read_file(hit.path, from_line=hit.start_line, lines=count)
                assert question.answer in lines.text, hit

    async def test_a_missing_file_is_empty(self, open_backend: OpenBackend) -> None:
        """A note that does not exist is not an error."""
        async with opened(open_backend) as memory:
            missing = await memory.read_file("memory/no-such-note.md", from_line=3, lines=4)

            assert missing == MemoryFileSlice(text="", path="memory/no-such-note.md")

    async def test_what_is_not_a_note_is_refused(self, open_backend: OpenBackend) -> None:
        """Paths that lead outside, or to something that is not a note, raise `MemoryPathError`."""
        async with opened(open_backend) as memory:
            for path in HOSTILE_PATHS:
                with pytest.raises(MemoryPathError):
                    pytest.fail(f"{path!a} was read: {await memory.read_file(path)}")

    async def test_a_closed_memory_reads_nothing(self, open_backend: OpenBackend) -> None:
        """`read_file` is closed like all other calls."""
        async with opened(open_backend) as memory:
            await memory.close()
            with pytest.raises(BackendUnavailable):
                await memory.read_file(next(iter(self.files)))
