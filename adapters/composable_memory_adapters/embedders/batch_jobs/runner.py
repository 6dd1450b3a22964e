"""Runs jobs: resumes recorded ones, creates others, waits, and collects the vectors.

Records are on disk, so that after a restart paid results can be fetched. A record holds the job's name and
the hashes of its texts: no text, no key. Each job has a record file of its own, so processes never overwrite
each other's records. A record is kept for as long as the provider keeps the results: after an interruption
before the vectors were stored, or to rebuild an index, they can be fetched again.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import AwareDatetime, BaseModel, ValidationError

from composable_memory.content import EmbedderInput
from composable_memory.errors import DimensionMismatch, EmbeddingError, EmbeddingPending
from composable_memory.interfaces import Clock
from composable_memory.supervision.backoff import Pace
from composable_memory_adapters.embedders.batch_jobs.provider_jobs import (
    InputFile,
    JobApi,
    JobPhase,
    JobResults,
    JobState,
    input_files,
    job_inputs,
    read_results,
)
from composable_memory_adapters.embedders.remote.embedder import RemoteEmbedder
from composable_memory_adapters.embedders.remote.settings import FailureCounter, SettingsWithJobs
from composable_memory_adapters.http_failures import FailureKind, HttpFailure
from composable_memory_ops_logs.private_files import make_private_folder, replace_file
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedJob:
    """A job at the provider, and the hashes of the texts that it embeds."""

    id: str
    texts: frozenset[str]


class JobJournal:
    """The records of the jobs in one embedding space, in files that only their owner can read.

    File names begin with `source`, which identifies the space. Files are written atomically, in threads.
    Records are dropped after `lifetime`.
    """

    def __init__(self, folder: Path, source: str, *, lifetime: timedelta, clock: Clock) -> None:
        self._folder = folder
        self._source = source
        self._lifetime = lifetime
        self._clock = clock

    async def jobs(self) -> list[RecordedJob]:
        """Return all recorded jobs that may still be useful; create the folder for records.

        Raises:
            OSError: the folder does not exist and cannot be created.
        """
        return await asyncio.to_thread(lambda: list(self._read_all()))

    async def record(self, job: RecordedJob) -> None:
        """Record a job, even if the call is cancelled.

        Raises:
            OSError: the record cannot be written.
        """
        record = _Record(job=job.id, created=self._clock(), texts=sorted(job.texts))
        content = record.model_dump_json().encode()
        await asyncio.to_thread(replace_file, self._file(job.id), content, survives="kill")

    async def forget(self, job: RecordedJob) -> None:
        """Remove the record of a job.

        Raises:
            OSError: it cannot be removed.
        """
        await asyncio.to_thread(partial(self._file(job.id).unlink, missing_ok=True))

    def _file(self, job: str) -> Path:
        digest = sha256(job.encode()).hexdigest()[:16]
        return self._folder / f"{self._source}-{digest}.json"

    def _read_all(self) -> Iterator[RecordedJob]:
        make_private_folder(self._folder)
        oldest = self._clock() - self._lifetime
        for partial_file in self._folder.glob(f".{self._source}-*.new"):  # left by a process that was killed
            _delete_if_older(partial_file, oldest)
        for file in sorted(self._folder.glob(f"{self._source}-*.json")):
            record = _read(file)
            if record is not None and oldest <= record.created:
                yield RecordedJob(id=record.job, texts=frozenset(record.texts))
            else:
                file.unlink(missing_ok=True)


class _Record(BaseModel):
    job: str
    created: AwareDatetime
    texts: list[str]


def _read(file: Path) -> _Record | None:
    """Return a record; None if it is damaged, or another process has just deleted it."""
    with suppress(FileNotFoundError, ValidationError):
        return _Record.model_validate_json(file.read_bytes())
    return None


def _delete_if_older(file: Path, oldest: datetime) -> None:
    with suppress(FileNotFoundError):
        if file.stat().st_mtime < oldest.timestamp():
            file.unlink()


T = TypeVar("T")
SettingsT = TypeVar("SettingsT", bound=SettingsWithJobs)

Vectors = Mapping[str, Sequence[float]]
Texts = Mapping[str, EmbedderInput]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """A job's vectors, and what was wrong with it."""

    vectors: Vectors = field(default_factory=dict)
    problem: EmbeddingError | None = None


class JobRunner(Generic[SettingsT]):
    """Runs the jobs of one embedder, at most `concurrency` at once.

    A job counts as failed if it does not return every vector; those it did return are used, and the rest are
    requested.
    """

    def __init__(
        self,
        embedder: RemoteEmbedder[SettingsT],
        api: JobApi,
        journal: JobJournal,
        failures: FailureCounter,
        *,
        texts_per_job: int,
        pace: Pace,
    ) -> None:
        self._embedder = embedder
        self._api = api
        self._journal = journal
        self._failures = failures
        self._texts_per_job = texts_per_job
        self._pace = pace
        self._batch = embedder.settings.batch
        self._is_supported = True

    async def embed(self, inputs: Sequence[EmbedderInput]) -> list[Sequence[float]]:
        """Return the vectors of the inputs, in order.

        Raises:
            EmbeddingPending: a job is still running.
            EmbeddingError: the jobs failed and returned nothing, or the requests for the rest failed.
        """
        prepared = await asyncio.to_thread(job_inputs, inputs, self._embedder.settings.max_text_bytes)
        vectors = await self._by_jobs(prepared.texts) if prepared.texts else {}
        rest = {text_id: text for text_id, text in prepared.texts.items() if text_id not in vectors}
        if rest:
            vectors |= zip(rest, await self._embedder.embed_batch(list(rest.values())), strict=True)
        blank = [0.0] * self._embedder.dimensions
        return [blank if text_id is None else vectors[text_id] for text_id in prepared.ids]

    async def _by_jobs(self, texts: Texts) -> dict[str, Sequence[float]]:
        outcomes = await self._outcomes(texts)
        vectors = {text_id: vector for one in outcomes for text_id, vector in one.vectors.items()}
        problems = [one.problem for one in outcomes if one.problem]
        pending = [problem for problem in problems if isinstance(problem, EmbeddingPending)]
        failures = [problem for problem in problems if not isinstance(problem, EmbeddingPending)]
        if failures:
            self._failures.failed(failures[0], is_final=not self._is_supported)
        if pending:
            raise pending[0]
        if failures and not vectors:
            raise failures[0]
        if not failures:
            self._failures.succeeded()
        return vectors

    # --- all jobs -------------------------------------------------------------------------------------------

    async def _outcomes(self, texts: Texts) -> Sequence[_Outcome]:
        outcomes: list[_Outcome] = []
        try:
            queue = deque(await self._plan(texts))
        except EmbeddingError as error:
            return [_Outcome(problem=error)]
        async with asyncio.TaskGroup() as group:
            for _ in range(min(len(queue), self._batch.concurrency)):
                group.create_task(self._work_off(queue, texts, outcomes))
        return outcomes

    async def _plan(self, texts: Texts) -> Sequence[RecordedJob | InputFile]:
        """Return the recorded jobs for these texts, and files for the rest, if that is worth a job."""
        jobs = await self._recorded_jobs(texts)
        covered = frozenset[str]().union(*(job.texts for job in jobs))
        rest = {text_id: text for text_id, text in texts.items() if text_id not in covered}
        if jobs and len(rest) < self._batch.min_texts:
            return jobs
        limits = {"max_texts": self._texts_per_job, "max_bytes": self._api.max_file_bytes}
        files = partial(input_files, rest, self._api.line, **limits)
        return [*jobs, *await asyncio.to_thread(lambda: list(files()))]

    async def _work_off(
        self, queue: deque[RecordedJob | InputFile], texts: Texts, outcomes: list[_Outcome]
    ) -> None:
        """Run jobs one after the other, stopping at one that fails or is still running."""
        while queue:
            try:
                outcome = await self._collected(await self._created(queue.popleft()), texts)
            except EmbeddingError as error:
                outcome = _Outcome(problem=error)
            outcomes.append(outcome)
            if outcome.problem:
                return

    # --- one job --------------------------------------------------------------------------------------------

    async def _recorded_jobs(self, texts: Texts) -> list[RecordedJob]:
        """Return the recorded jobs with any of these texts; forget those unknown to the provider.

        The records are read before any job is created: one that cannot be recorded would be paid for in vain.
        """
        known = []
        for job in await self._recording(self._journal.jobs()):
            if job.texts.isdisjoint(texts):
                continue
            if (await self._state(job)).phase is JobPhase.UNKNOWN:
                await self._recording(self._journal.forget(job))
            else:
                known.append(job)
        return known

    async def _created(self, work: RecordedJob | InputFile) -> RecordedJob:
        if isinstance(work, RecordedJob):
            return work
        file = await self._supported(partial(self._api.upload, work.content))
        name = await self._supported(partial(self._api.create, file, work.kind))
        job = RecordedJob(id=name, texts=work.ids)
        await self._recording(self._journal.record(job))
        return job

    async def _collected(self, job: RecordedJob, texts: Texts) -> _Outcome:
        """Wait for a job to end, and collect the vectors of these texts."""
        state = await self._final_state(job)
        if state.phase is JobPhase.RUNNING:
            raise EmbeddingPending(self._embedder.id, self._embedder.model, job.id)
        wanted = job.texts & texts.keys()
        results = await self._results(job, state, wanted)
        missing = wanted - results.vectors.keys()
        if not missing:
            return _Outcome(vectors=results.vectors)
        if results.vectors:
            await self._recording(self._journal.record(RecordedJob(id=job.id, texts=job.texts - missing)))
        else:
            await self._recording(self._journal.forget(job))
        brought = f"brought {len(wanted) - len(missing)} of {len(wanted)} vectors"
        failure = HttpFailure(
            FailureKind.JOB,
            f"{brought} with job {job.id} ({state.name or state.phase})",
            detail=state.detail or results.problem,
        )
        return _Outcome(vectors=results.vectors, problem=self._embedder.failed(failure))

    async def _final_state(self, job: RecordedJob) -> JobState:
        """Return the final state of a job, or its state when the wait ends."""
        now = asyncio.get_running_loop().time
        interval_s, limit_s = self._batch.poll_interval_ms / 1000, self._batch.timeout_minutes * 60
        started_s, slept_s = now(), 0.0
        while True:
            state = await self._state(job)
            is_late = max(slept_s, now() - started_s) >= limit_s
            if state.phase is not JobPhase.RUNNING or is_late or not self._batch.wait:
                return state
            await self._pace.sleep(interval_s)
            slept_s += interval_s

    async def _state(self, job: RecordedJob) -> JobState:
        """Return the state of a job. Trouble reaching the provider says nothing about the job."""

        async def request() -> JobState:
            try:
                return await self._api.state(job.id)
            except HttpFailure as failure:
                if failure.kind is FailureKind.NOT_FOUND:
                    return JobState(phase=JobPhase.UNKNOWN, detail=failure.detail)
                if failure.may_pass or failure.kind is FailureKind.SLOW:
                    return JobState(phase=JobPhase.RUNNING)
                raise

        return await self._embedder.in_slot(request)

    async def _results(self, job: RecordedJob, state: JobState, wanted: frozenset[str]) -> JobResults:
        results = JobResults()
        try:
            for file in state.files:
                results = results.followed_by(await self._results_in(file, wanted))
        except DimensionMismatch:
            await self._recording(self._journal.forget(job))
            raise
        return results

    async def _results_in(self, file: str, wanted: frozenset[str]) -> JobResults:
        reader = partial(read_results, parse=self._api.parsed, wanted=wanted, check=self._embedder.checked)

        async def request() -> JobResults:
            try:
                return await self._api.read(file, reader)
            except HttpFailure as failure:
                if failure.kind is not FailureKind.NOT_FOUND:
                    raise
                return JobResults(problem=failure.detail)

        return await self._embedder.in_slot(request)

    async def _supported(self, call: Callable[[], Awaitable[T]]) -> T:
        """Await a request that only fails with 404 if the provider does not support jobs."""

        async def request() -> T:
            try:
                return await call()
            except HttpFailure as failure:
                if failure.kind is not FailureKind.NOT_FOUND:
                    raise
                detail = failure.detail
            self._is_supported = False
            raise HttpFailure(FailureKind.JOB, "takes no jobs (404 Not Found)", detail=detail)

        return await self._embedder.in_slot(request)

    async def _recording(self, access: Awaitable[T]) -> T:
        try:
            return await access
        except OSError as error:
            problem = f"running jobs cannot be recorded: {error}"
        raise EmbeddingError(self._embedder.id, self._embedder.model, problem)
