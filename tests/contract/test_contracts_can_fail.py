"""The contracts are not hollow: for each way of breaking a promise, the test of that promise fails."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import count
from math import inf

import pytest

from composable_memory.content import EmbedderInput, VectorQuery, VectorQueryResult, VectorRecord
from composable_memory.forget.report import Forgetting, Holding
from composable_memory.interfaces import MemorySearchManager, ProgressCallback
from composable_memory.testing import (
    SEED_NOTES,
    AnswerContract,
    BackendContract,
    EmbedderContract,
    ForgetContract,
    HashEmbedder,
    InMemoryBackend,
    Opener,
    ReadFileContract,
    SyncContract,
    VectorContract,
    in_memory_spec,
)
from composable_memory.types import (
    MemoryFileSlice,
    MemoryProviderStatus,
    MemorySearchResult,
    MemorySyncProgressUpdate,
    SearchAnswer,
    SearchOptions,
    SyncReport,
)
from composable_memory_adapters.vectors.in_memory import InMemoryVectors
from tests.contract.test_in_memory import ForgettingMemory

Trial = Callable[..., Awaitable[None]]
"""A contract test, to be given its suite and what opens the part."""

CALLS = count()

BROKEN = (Exception, pytest.fail.Exception)
"""What a contract test raises: an assertion, the error of the broken part, or "did not raise"."""


class Backend(BackendContract, AnswerContract, ReadFileContract):
    capabilities = in_memory_spec.capabilities


class Altered(InMemoryBackend):
    """A memory whose honest results are changed before they are returned."""

    def __init__(self, change: Callable[[MemorySearchResult], MemorySearchResult]) -> None:
        super().__init__()
        self._change = change

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        honest = await super().answer(query, options)
        return replace(honest, results=tuple(self._change(hit) for hit in honest.results))


@pytest.mark.parametrize(
    "change",
    [
        lambda hit: replace(hit, score=hit.score * 2),
        lambda hit: replace(hit, score=hit.score - 0.5),
        lambda hit: replace(hit, score=float("nan")),
        lambda hit: replace(hit, start_line=0),
        lambda hit: replace(hit, end_line=hit.start_line - 1),
        lambda hit: replace(hit, snippet="x" * 701),
        lambda hit: replace(hit, snippet="x", highlights=((0, 2),)),
        lambda hit: replace(hit, path=f"/{hit.path}"),
        lambda hit: replace(hit, path=hit.path.replace("/", "\\") + "\\"),
        lambda hit: replace(hit, source="elsewhere"),
        lambda hit: replace(hit, score=hit.score if hit.path == "MEMORY.md" else 0.1),
        lambda hit: hit.path,
    ],
)
async def test_unsound_results_are_found(change: Callable[[MemorySearchResult], MemorySearchResult]) -> None:
    with pytest.raises(BROKEN):
        await Backend().test_every_result_is_sound(lambda: nullcontext(Altered(change)))


class FindsNothing(InMemoryBackend):
    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        return SearchAnswer(results=())


class FindsEverythingForNothing(InMemoryBackend):
    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        return await super().answer(query if query.strip() else "the", options)


class ChokesOnQuotes(InMemoryBackend):
    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        if '"' in query:
            raise ValueError(query)
        return await super().answer(query, options)


class ReturnsTwice(InMemoryBackend):
    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        honest = await super().answer(query, options)
        return replace(honest, results=tuple(hit for hit in honest.results for _ in range(2)))


class IgnoresItsOptions(InMemoryBackend):
    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        return await super().answer(query, SearchOptions(max_results=100))


class CutsExactHits(InMemoryBackend):
    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        honest = await super().answer(query, options)
        least = (options or SearchOptions()).min_score
        return replace(honest, results=tuple(hit for hit in honest.results if hit.score > least))


class MixesUpQuestions(InMemoryBackend):
    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        self.query = query
        await asyncio.sleep(0)
        return await super().answer(self.query, options)


class BreaksWhenCancelled(InMemoryBackend):
    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self._notes.clear()
            raise
        return await super().answer(query, options)


class ClosesOnce(InMemoryBackend):
    async def close(self) -> None:
        self.check_open("close")
        await super().close()


class NeverCloses(InMemoryBackend):
    async def close(self) -> None:
        pass


class Blocks(InMemoryBackend):
    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        time.sleep(0.001)  # noqa: ASYNC251 - the point
        return await super().answer(query, options)


class CountsRefusals(InMemoryBackend):
    refused = 0

    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        self.refused += 1
        return await super().read_file(rel_path, from_line=from_line, lines=lines)

    def status(self) -> MemoryProviderStatus:
        return replace(super().status(), custom={"refused": self.refused})


class SearchesOtherwise(InMemoryBackend):
    async def search(self, query: str, options: SearchOptions | None = None) -> Sequence[MemorySearchResult]:
        return (await self.answer(query, options)).results[1:]


class NamesNoEngine(InMemoryBackend):
    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        return replace(await super().answer(query, options), engines={})


class ReadsAnything(InMemoryBackend):
    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        return MemoryFileSlice(text=self._notes.get(rel_path, ""), path=rel_path)


class CountsLinesFromZero(InMemoryBackend):
    async def read_file(
        self, rel_path: str, *, from_line: int | None = None, lines: int | None = None
    ) -> MemoryFileSlice:
        shifted = None if from_line is None else from_line + 1
        return await super().read_file(rel_path, from_line=shifted, lines=lines)


@pytest.mark.parametrize(
    ("backend", "test"),
    [
        (FindsNothing, Backend.test_the_seeded_questions_are_answered),
        (FindsNothing, Backend.test_a_memory_that_can_find_nothing_says_why),
        (
            FindsEverythingForNothing,
            lambda suite, opener: suite.test_a_blank_query_has_no_results(opener),
        ),
        (ChokesOnQuotes, Backend.test_hostile_queries_are_survived),
        (ReturnsTwice, Backend.test_no_passage_is_returned_twice),
        (IgnoresItsOptions, Backend.test_a_shorter_answer_is_the_beginning_of_a_longer_one),
        (IgnoresItsOptions, lambda s, opener: s.test_a_minimum_score_cuts_all_but_exact_hits(opener)),
        (CutsExactHits, lambda s, opener: s.test_a_minimum_score_cuts_all_but_exact_hits(opener)),
        (MixesUpQuestions, Backend.test_concurrent_searches_answer_as_single_ones),
        (BreaksWhenCancelled, Backend.test_a_cancelled_search_leaves_the_memory_usable),
        (ClosesOnce, Backend.test_closing_twice_is_fine),
        (NeverCloses, Backend.test_a_closed_memory_is_unavailable),
        (NeverCloses, Backend.test_an_answer_of_a_closed_memory_is_unavailable),
        (NeverCloses, Backend.test_a_closed_memory_reads_nothing),
        (Blocks, Backend.test_the_event_loop_is_not_blocked),
        (CountsRefusals, Backend.test_a_status_is_sound_before_and_after_a_failure),
        (SearchesOtherwise, Backend.test_an_answer_holds_what_a_search_returns),
        (NamesNoEngine, Backend.test_an_answer_names_its_engines),
        (ReadsAnything, Backend.test_lines_count_from_one),
        (ReadsAnything, lambda s, opener: s.test_what_is_not_a_note_is_refused(opener)),
        (CountsLinesFromZero, Backend.test_lines_count_from_one),
        (CountsLinesFromZero, Backend.test_the_lines_of_a_result_hold_its_answer),
    ],
)
async def test_a_broken_backend_is_found(backend: type[InMemoryBackend], test: Trial) -> None:
    with pytest.raises(BROKEN):
        await test(Backend(), lambda: nullcontext(backend()))


async def test_what_is_offered_without_being_declared_is_found() -> None:
    undeclared = BackendContract()

    with pytest.raises(BROKEN):
        await undeclared.test_reading_files_is_offered_or_refused(lambda: nullcontext(InMemoryBackend()))
    with pytest.raises(BROKEN):
        await undeclared.test_what_is_declared_is_there_and_what_is_not_is_refused(
            lambda: nullcontext(InMemoryBackend())
        )


class Indexed(InMemoryBackend):
    """An honest memory with an index: `sources` are copied by a sync."""

    def __init__(self) -> None:
        super().__init__()
        self.sources = dict(SEED_NOTES)

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        self.check_open("sync")
        changed = [path for path, text in self.sources.items() if force or self._notes.get(path) != text]
        gone = self._notes.keys() - self.sources.keys()
        for step in range(len(changed) + 1):
            if progress is not None:
                progress(MemorySyncProgressUpdate(completed=step, total=len(changed)))
        self._notes = dict(self.sources)
        return SyncReport(
            reason=reason,
            files_indexed=len(changed),
            files_unchanged=len(self.sources) - len(changed),
            files_removed=len(gone),
        )

    async def write_note(self, path: str, text: str | None) -> None:
        if text is None:
            del self.sources[path]
        else:
            self.sources[path] = text


class WritesAlways(Indexed):
    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        return await super().sync(reason=reason, force=True, progress=progress)


class LosesForce(Indexed):
    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        return await super().sync(reason=reason, progress=progress)


class NeverSyncs(Indexed):
    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        return SyncReport(reason=reason, files_unchanged=len(self._notes))


class KeepsWhatIsGone(Indexed):
    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        old = dict(self._notes)
        report = await super().sync(reason=reason, force=force, progress=progress)
        self._notes = old | self._notes
        return report


class ForgetsWhileItRebuilds(Indexed):
    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        if force:
            self._notes.clear()
            await asyncio.sleep(0)
        return await super().sync(reason=reason, force=force, progress=progress)


class CountsBackwards(Indexed):
    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        def backwards(step: MemorySyncProgressUpdate) -> None:
            assert progress is not None
            progress(replace(step, completed=step.total - step.completed))

        return await super().sync(reason=reason, force=force, progress=progress and backwards)


SYNC_TESTS = {name: test for name, test in vars(SyncContract).items() if name.startswith("test_")}


async def run_sync_test(name: str, memory: Indexed) -> None:
    wanted = inspect.signature(SYNC_TESTS[name]).parameters
    fixtures = {"open_backend": lambda: nullcontext(memory), "write_note": memory.write_note}
    await SYNC_TESTS[name](SyncContract(), **{key: fixtures[key] for key in fixtures if key in wanted})


@pytest.mark.parametrize("name", SYNC_TESTS)
async def test_an_honest_index_keeps_the_contract(name: str) -> None:
    await run_sync_test(name, Indexed())


@pytest.mark.parametrize(
    ("memory", "name"),
    [
        (WritesAlways, "test_a_second_sync_writes_nothing"),
        (WritesAlways, "test_concurrent_syncs_are_joined"),
        (LosesForce, "test_a_forced_sync_keeps_the_answers"),
        (LosesForce, "test_a_forced_sync_is_not_lost_among_others"),
        (NeverSyncs, "test_a_new_note_is_found_after_a_sync"),
        (NeverSyncs, "test_a_cancelled_sync_leaves_the_memory_usable"),
        (NeverSyncs, "test_progress_only_grows"),
        (NeverSyncs, "test_a_closed_memory_does_not_sync"),
        (KeepsWhatIsGone, "test_a_removed_note_is_gone_after_a_sync"),
        (ForgetsWhileItRebuilds, "test_searches_during_a_sync_answer"),
        (CountsBackwards, "test_progress_only_grows"),
    ],
)
async def test_a_broken_sync_is_found(memory: type[Indexed], name: str) -> None:
    with pytest.raises(BROKEN):
        await run_sync_test(name, memory())


class Dot(InMemoryVectors):
    async def query(self, query: VectorQuery) -> VectorQueryResult:
        found = await super().query(query)
        return replace(found, matches=tuple(replace(match, score=match.score * 3) for match in found.matches))


class Appends(InMemoryVectors):
    async def upsert(self, records: Sequence[VectorRecord]) -> None:
        self.count = getattr(self, "count", 0) + 1
        await super().upsert([replace(record, id=f"{record.id}#{self.count}") for record in records])


class IgnoresFilters(InMemoryVectors):
    async def query(self, query: VectorQuery) -> VectorQueryResult:
        return await super().query(replace(query, filter=None))


class PadsVectors(InMemoryVectors):
    async def upsert(self, records: Sequence[VectorRecord]) -> None:
        await super().upsert([replace(record, values=record.values[:16]) for record in records])


@pytest.mark.parametrize(
    ("store", "test"),
    [
        (Dot, VectorContract.test_the_nearest_come_first),
        (Dot, VectorContract.test_a_stored_vector_is_nearest_to_itself),
        (Dot, VectorContract.test_zero_vectors_are_survived),
        (Appends, VectorContract.test_upserting_twice_changes_nothing),
        (Appends, VectorContract.test_a_record_with_a_known_id_replaces_the_old_one),
        (Appends, VectorContract.test_metadata_and_ids_come_back_as_they_were),
        (Appends, VectorContract.test_deleted_records_are_gone),
        (IgnoresFilters, VectorContract.test_a_filter_keeps_what_equals_every_value),
        (PadsVectors, VectorContract.test_a_vector_of_another_length_is_refused),
        (InMemoryVectors, VectorContract.test_further_promises_are_kept),
    ],
)
async def test_a_broken_store_is_found(store: type[InMemoryVectors], test: Trial) -> None:
    with pytest.raises(BROKEN):
        await test(VectorContract(), lambda: nullcontext(store()))


class Distorted(HashEmbedder):
    """An embedder whose honest vectors are changed before they are returned."""

    def __init__(self, change: Callable[[Sequence[float], EmbedderInput], Sequence[float]]) -> None:
        super().__init__()
        self._change = change

    async def embed(self, input: EmbedderInput) -> Sequence[float]:  # noqa: A002 - the interface's name
        return self._change(await super().embed(input), input)


class Reverses(HashEmbedder):
    async def embed_batch(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        return (await super().embed_batch(inputs))[::-1]


@pytest.mark.parametrize(
    ("embedder", "test"),
    [
        (
            Distorted(lambda vector, text: vector[:9] if text.kind == "query" else vector),
            EmbedderContract.test_vectors_have_the_promised_length,
        ),
        (
            Distorted(lambda vector, _: [1.0, *vector[1:]]),
            lambda s, opener: s.test_a_blank_text_has_the_zero_vector(opener),
        ),
        (
            Distorted(lambda vector, _: [value * inf for value in vector]),
            EmbedderContract.test_hostile_texts_are_survived,
        ),
        (
            Distorted(lambda vector, _: [1.0] * len(vector)),
            EmbedderContract.test_what_says_the_same_is_nearer_than_what_does_not,
        ),
        (
            Distorted(lambda vector, _: [value + next(CALLS) for value in vector]),
            EmbedderContract.test_the_same_text_has_the_same_vector,
        ),
        (Reverses(), EmbedderContract.test_a_batch_gives_what_single_calls_give),
    ],
)
async def test_a_broken_embedder_is_found(embedder: HashEmbedder, test: Trial) -> None:
    with pytest.raises(BROKEN):
        await test(EmbedderContract(), lambda: nullcontext(embedder))


class KeepsAll(ForgettingMemory):
    async def erase(self, wanted: Forgetting) -> Sequence[Holding]:
        return await self.holdings(wanted)


class LosesTheNote(ForgettingMemory):
    async def erase(self, wanted: Forgetting) -> Sequence[Holding]:
        self._notes.clear()
        return ()


class HoldsNothing(ForgettingMemory):
    async def holdings(self, wanted: Forgetting) -> Sequence[Holding]:
        return ()


class HoldsEverything(ForgettingMemory):
    async def holdings(self, wanted: Forgetting) -> Sequence[Holding]:
        return (Holding(store=self.id, what="lines", count=1),)


def opener_of(memory: ForgettingMemory) -> Opener[MemorySearchManager]:
    return lambda: nullcontext(memory)


async def test_a_memory_that_does_not_forget_as_promised_is_found_out() -> None:
    suite = ForgetContract()
    erased = suite.test_what_is_erased_is_held_no_more_and_the_rest_is
    for broken in (KeepsAll(), LosesTheNote(), HoldsNothing()):
        with pytest.raises(AssertionError):
            await erased(opener_of(broken), broken.write)
    with pytest.raises(AssertionError):
        await suite.test_what_was_never_stored_can_be_erased(opener_of(HoldsEverything()))
