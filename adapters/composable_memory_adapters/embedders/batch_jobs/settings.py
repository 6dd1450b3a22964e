"""When jobs are used: the settings, and the counter of failures that turns them off."""

from pydantic import Field

from composable_memory.config.base_model import SettingsModel
from composable_memory.errors import EmbeddingError
from composable_memory_adapters.embedders.remote.settings import RemoteSettings

FAILURE_LIMIT = 2
"""After so many failures in a row, jobs are off for the life of the embedder."""


class BatchSettings(SettingsModel):
    """Whether texts are left with the provider as a job, and how its end is waited for."""

    enabled: bool = Field(default=False, description="Embed many texts as a job instead of by requests.")
    wait: bool = Field(
        default=True, description="Wait for the job; without, what it brings is fetched another time."
    )
    min_texts: int = Field(
        default=200, ge=1, description="Fewer texts are embedded by requests, which takes seconds."
    )
    concurrency: int = Field(default=2, ge=1, le=32, description="How many jobs go on at once.")
    poll_interval_ms: int = Field(
        default=2000, ge=100, le=600_000, description="How often the provider is asked for the job's state."
    )
    timeout_minutes: int = Field(default=60, ge=1, le=1440, description="How long a job is waited for.")


class SettingsWithJobs(RemoteSettings):
    """The keys of a provider that also takes jobs."""

    batch: BatchSettings = BatchSettings()


class FailureCounter:
    """Counts the failures of jobs since the last success, and turns jobs off when there are too many."""

    def __init__(self) -> None:
        self.failures = 0
        self.last_error: str | None = None
        self.is_off = False

    def failed(self, error: EmbeddingError, *, is_final: bool = False) -> None:
        """Count a failure; one that is final, or one too many, turns jobs off."""
        self.failures += 1
        self.last_error = str(error)
        self.is_off = self.is_off or is_final or self.failures >= FAILURE_LIMIT

    def succeeded(self) -> None:
        """Start counting anew; jobs that are off stay off."""
        if not self.is_off:
            self.failures, self.last_error = 0, None
