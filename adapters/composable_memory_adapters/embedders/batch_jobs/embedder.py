"""The base of remote providers that also take batch jobs. The first job loads the code that runs them."""

import asyncio
import json
from abc import abstractmethod
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, TypeVar

from composable_memory.content import EmbedderInput
from composable_memory.interfaces import EmbedderServices
from composable_memory.supervision.backoff import Pace
from composable_memory.types import BatchStatus
from composable_memory_adapters.embedders.remote.embedder import RemoteEmbedder
from composable_memory_adapters.embedders.remote.settings import (
    FAILURE_LIMIT,
    FailureCounter,
    SettingsWithJobs,
)

if TYPE_CHECKING:
    from composable_memory_adapters.embedders.batch_jobs.provider_jobs import JobApi, JobClient
    from composable_memory_adapters.embedders.batch_jobs.runner import JobRunner

SettingsT = TypeVar("SettingsT", bound=SettingsWithJobs)

MAX_JOB_TEXTS = 50_000
"""OpenAI's limit for one job; the others take more."""
MAX_JOB_NUMBERS = 2**24
"""How many numbers one job's vectors may have in total; they take 134 MB."""
FOLDER = "embedding-jobs"


class EmbedderWithJobs(RemoteEmbedder[SettingsT]):
    """A remote embedder that can submit many texts as a job; a provider implements `job_api`."""

    def __init__(self, settings: SettingsT, services: EmbedderServices, *, pace: Pace | None = None) -> None:
        super().__init__(settings, services, pace=pace)
        self._failures = FailureCounter()
        self._runner: JobRunner[SettingsT] | None = None

    @property
    def texts_per_job(self) -> int:
        """Return the most texts in one job."""
        return max(1, min(MAX_JOB_TEXTS, MAX_JOB_NUMBERS // max(1, self.dimensions)))

    @property
    def job_limit(self) -> int:
        """Return the most texts that `embed_job` takes: as many as the jobs that may run at once."""
        return min(MAX_JOB_TEXTS, self.settings.batch.concurrency * self.texts_per_job)

    def takes_jobs(self, texts: int) -> bool:
        """Return whether jobs are on, have not failed too often, and are worth it for this many texts."""
        batch = self.settings.batch
        return batch.enabled and not self._failures.is_off and texts >= batch.min_texts

    async def embed_job(self, inputs: Sequence[EmbedderInput]) -> Sequence[Sequence[float]]:
        """Return the vectors of the inputs, in order.

        Texts that an earlier job embeds are fetched from it. Ordinary requests are used if jobs are off, and
        for whatever a job failed to return.

        Raises:
            EmbeddingPending: a job is still running at the provider; ask again later with the same texts.
            EmbeddingError: the job failed.
        """
        if self._failures.is_off or not self.settings.batch.enabled:
            return await self.embed_batch(inputs)
        if self._runner is None:
            self._runner = await asyncio.to_thread(self._open_runner)  # loads the HTTP client
        return await self._runner.embed(inputs)

    def batch_status(self) -> BatchStatus:
        """Return the state of the provider's jobs."""
        batch = self.settings.batch
        return BatchStatus(
            enabled=batch.enabled and not self._failures.is_off,
            failures=self._failures.failures,
            limit=FAILURE_LIMIT,
            wait=batch.wait,
            concurrency=batch.concurrency,
            poll_interval_ms=batch.poll_interval_ms,
            timeout_ms=batch.timeout_minutes * 60_000,
            last_error=self._failures.last_error,
            last_provider=self.id if self._failures.last_error else None,
        )

    @abstractmethod
    def job_api(self, client: "JobClient") -> "JobApi":
        """Return the provider's batch job API."""

    def _open_runner(self) -> "JobRunner[SettingsT]":
        from composable_memory_adapters.embedders.batch_jobs.provider_jobs import JobClient
        from composable_memory_adapters.embedders.batch_jobs.runner import JobJournal, JobRunner

        api = self.job_api(JobClient(self))
        shaping = json.dumps([self.id, self.model, self.dimensions, self.fingerprint])
        journal = JobJournal(
            self._services.state_dir / FOLDER,
            f"{self.id}-{sha256(shaping.encode()).hexdigest()[:16]}",
            lifetime=api.lifetime,
            clock=self._services.clock,
        )
        return JobRunner(
            self, api, journal, self._failures, texts_per_job=self.texts_per_job, pace=self._pace or Pace()
        )
