"""Has texts embedded by jobs: finds those that go on, begins others, waits, and takes the vectors."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from composable_memory.content import EmbedderInput
from composable_memory.errors import DimensionMismatch, EmbeddingError, EmbeddingPending
from composable_memory.supervision.backoff import Pace
from composable_memory_adapters.embedders.jobs.api import JobApi, JobPhase, JobState
from composable_memory_adapters.embedders.jobs.batches import JobText, Parcel, ordered, parcelled
from composable_memory_adapters.embedders.jobs.failure_counter import JobTally
from composable_memory_adapters.embedders.jobs.journal import JobJournal, NotedJob
from composable_memory_adapters.embedders.jobs.results import JobResults, ResultReader
from composable_memory_adapters.embedders.jobs.settings import SettingsWithJobs
from composable_memory_adapters.embedders.remote.embedder import RemoteEmbedder
from composable_memory_adapters.embedders.remote.refusals import HttpFailure, Trouble

__all__ = ["Jobs"]

T = TypeVar("T")
SettingsT = TypeVar("SettingsT", bound=SettingsWithJobs)

Vectors = Mapping[str, Sequence[float]]
Texts = Mapping[str, JobText]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What a job brought, and what was wrong with it."""

    vectors: Vectors = field(default_factory=dict)
    problem: EmbeddingError | None = None


class Jobs(Generic[SettingsT]):
    """The jobs of one embedder.

    At most `concurrency` jobs go on at once. A job counts as failed if it does not bring every vector; what
    it brought is used, and requests are made for the rest.
    """

    def __init__(
        self,
        embedder: RemoteEmbedder[SettingsT],
        api: JobApi,
        journal: JobJournal,
        tally: JobTally,
        *,
        texts_per_job: int,
        pace: Pace,
    ) -> None:
        self._embedder = embedder
        self._api = api
        self._journal = journal
        self._tally = tally
        self._texts_per_job = texts_per_job
        self._pace = pace
        self._batch = embedder.settings.batch
        self._is_offered = True

    async def embed(self, inputs: Sequence[EmbedderInput]) -> list[Sequence[float]]:
        """Return the vectors of the inputs, in their order.

        Raises:
            EmbeddingPending: a job goes on.
            EmbeddingError: the jobs failed and brought nothing, or the requests for the rest failed.
        """
        order = await asyncio.to_thread(ordered, inputs, self._embedder.settings.max_text_bytes)
        vectors = await self._by_jobs(order.texts) if order.texts else {}
        rest = {text_id: text for text_id, text in order.texts.items() if text_id not in vectors}
        vectors |= await self._by_requests(rest)
        blank = [0.0] * self._embedder.dimensions
        return [blank if text_id is None else vectors[text_id] for text_id in order.ids]

    async def _by_jobs(self, texts: Texts) -> dict[str, Sequence[float]]:
        outcomes = await self._outcomes(texts)
        vectors = {text_id: vector for one in outcomes for text_id, vector in one.vectors.items()}
        problems = [one.problem for one in outcomes if one.problem]
        pending = [problem for problem in problems if isinstance(problem, EmbeddingPending)]
        failures = [problem for problem in problems if not isinstance(problem, EmbeddingPending)]
        if failures:
            self._tally.failed(failures[0], is_final=not self._is_offered)
        if pending:
            raise pending[0]
        if failures and not vectors:
            raise failures[0]
        if not failures:
            self._tally.succeeded()
        return vectors

    async def _by_requests(self, texts: Texts) -> Vectors:
        inputs = [EmbedderInput(text=text.text, kind=text.kind) for text in texts.values()]
        vectors = await self._embedder.embed_batch(inputs) if inputs else []
        return dict(zip(texts, vectors, strict=True))

    # --- all jobs -------------------------------------------------------------------------------------------

    async def _outcomes(self, texts: Texts) -> Sequence[_Outcome]:
        outcomes: list[_Outcome] = []
        try:
            work = deque(await self._work(texts))
        except EmbeddingError as error:
            return [_Outcome(problem=error)]
        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(work), self._batch.concurrency)):
                group.create_task(self._work_off(work, texts, outcomes))
        return outcomes

    async def _work(self, texts: Texts) -> Sequence[NotedJob | Parcel]:
        """Return the jobs that have these texts, and files with those that none has, if they are worth it."""
        jobs = await self._known_jobs(texts)
        covered = frozenset[str]().union(*(job.texts for job in jobs))
        rest = {text_id: text for text_id, text in texts.items() if text_id not in covered}
        if jobs and len(rest) < self._batch.min_texts:
            return jobs
        limits = {"max_texts": self._texts_per_job, "max_bytes": self._api.max_file_bytes}
        parcels = partial(parcelled, rest, self._api.line, **limits)
        return [*jobs, *await asyncio.to_thread(lambda: list(parcels()))]

    async def _work_off(self, work: deque[NotedJob | Parcel], texts: Texts, outcomes: list[_Outcome]) -> None:
        """Do one after the other; after one that failed, or that goes on at the provider, none is begun."""
        while work:
            try:
                outcome = await self._taken(await self._begun(work.popleft()), texts)
            except EmbeddingError as error:
                outcome = _Outcome(problem=error)
            outcomes.append(outcome)
            if outcome.problem:
                return

    # --- one job --------------------------------------------------------------------------------------------

    async def _known_jobs(self, texts: Texts) -> list[NotedJob]:
        """Return the noted jobs with any of these texts; what the provider does not know is forgotten.

        They are asked for before anything is begun: a job that could not be noted would be paid for in vain.
        """
        known = []
        for job in await self._noting(self._journal.jobs()):
            if job.texts.isdisjoint(texts):
                continue
            if (await self._look(job)).phase is JobPhase.LOST:
                await self._noting(self._journal.forget(job))
            else:
                known.append(job)
        return known

    async def _begun(self, work: NotedJob | Parcel) -> NotedJob:
        if isinstance(work, NotedJob):
            return work
        file = await self._embedder.asking(partial(self._offered, partial(self._api.upload, work.content)))
        name = await self._embedder.asking(partial(self._offered, partial(self._api.create, file, work.kind)))
        job = NotedJob(id=name, texts=work.ids)
        await self._noting(self._journal.note(job))
        return job

    async def _taken(self, job: NotedJob, texts: Texts) -> _Outcome:
        """Wait for the end of a job and take what it brought of these texts."""
        state = await self._end(job)
        if state.phase is JobPhase.GOING:
            raise EmbeddingPending(self._embedder.id, self._embedder.model, job.id)
        wanted = job.texts & texts.keys()
        results = await self._results(job, state, wanted)
        missing = wanted - results.vectors.keys()
        if not missing:
            return _Outcome(vectors=results.vectors)
        if results.vectors:
            await self._noting(self._journal.note(NotedJob(id=job.id, texts=job.texts - missing)))
        else:
            await self._noting(self._journal.forget(job))
        brought = f"brought {len(wanted) - len(missing)} of {len(wanted)} vectors"
        failure = HttpFailure(
            Trouble.JOB,
            f"{brought} with job {job.id} ({state.name or state.phase})",
            said=state.said or results.complaint,
        )
        return _Outcome(vectors=results.vectors, problem=self._embedder.failed(failure))

    async def _end(self, job: NotedJob) -> JobState:
        """Return how a job ended, or how it stands when it is not waited for any longer."""
        now = asyncio.get_running_loop().time
        interval_s, limit_s = self._batch.poll_interval_ms / 1000, self._batch.timeout_minutes * 60
        began_s, slept_s = now(), 0.0
        while True:
            state = await self._look(job)
            is_late = max(slept_s, now() - began_s) >= limit_s
            if state.phase is not JobPhase.GOING or is_late or not self._batch.wait:
                return state
            await self._pace.sleep(interval_s)
            slept_s += interval_s

    async def _look(self, job: NotedJob) -> JobState:
        return await self._embedder.asking(partial(self._seen, job))

    async def _seen(self, job: NotedJob) -> JobState:
        """Look at a job. Trouble that may pass is none of the job's."""
        try:
            return await self._api.look(job.id)
        except HttpFailure as failure:
            if failure.trouble is Trouble.NOT_FOUND:
                return JobState(phase=JobPhase.LOST, said=failure.said)
            if failure.may_pass or failure.trouble is Trouble.SLOW:
                return JobState(phase=JobPhase.GOING)
            raise

    async def _results(self, job: NotedJob, state: JobState, wanted: frozenset[str]) -> JobResults:
        reader = ResultReader(self._api.parsed, wanted=wanted, checked=self._embedder.checked)
        results = JobResults()
        try:
            for file in state.files:
                read = partial(self._found, file, reader)
                results = results.followed_by(await self._embedder.asking(read))
        except DimensionMismatch:
            await self._noting(self._journal.forget(job))
            raise
        return results

    async def _found(self, file: str, reader: ResultReader) -> JobResults:
        try:
            return await self._api.read(file, reader)
        except HttpFailure as failure:
            if failure.trouble is not Trouble.NOT_FOUND:
                raise
            return JobResults(complaint=failure.said)

    async def _offered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Await what only a provider without jobs does not know."""
        try:
            return await ask()
        except HttpFailure as failure:
            if failure.trouble is not Trouble.NOT_FOUND:
                raise
            said = failure.said
        self._is_offered = False
        raise HttpFailure(Trouble.JOB, "takes no jobs (404 Not Found)", said=said)

    async def _noting(self, noted: Awaitable[T]) -> T:
        try:
            return await noted
        except OSError as error:
            problem = f"what jobs go on cannot be noted: {error}"
        raise EmbeddingError(self._embedder.id, self._embedder.model, problem)
