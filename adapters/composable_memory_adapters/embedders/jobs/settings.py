"""Settings of the jobs in which a provider embeds many texts at leisure, for less money."""

from pydantic import Field

from composable_memory.config.settings import SettingsModel
from composable_memory_adapters.embedders.remote.settings import RemoteSettings

__all__ = ["BatchSettings", "SettingsWithJobs"]


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
