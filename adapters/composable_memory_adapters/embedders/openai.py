"""Embeds with OpenAI.

The API takes 8,192 tokens a text and 300,000 tokens a request. A token stands for at least one byte, so texts
and requests below these many bytes are never refused for their size. It would take 2,048 texts; a hundred of
them come back as 3 MB, which are read in the time of a blink, and lost with less pain.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import Field

from composable_memory_adapters.embedders.jobs.embedder import EmbedderWithJobs
from composable_memory_adapters.embedders.jobs.settings import SettingsWithJobs
from composable_memory_adapters.embedders.remote.embedder import Kind
from composable_memory_adapters.embedders.remote.openai_wire import OpenAiWireEmbedder, without_nothing
from composable_memory_adapters.embedders.remote.opening import remote_spec
from composable_memory_adapters.embedders.remote.settings import RemoteProvider

if TYPE_CHECKING:
    from composable_memory_adapters.embedders.jobs.api import JobApi, JobWire

__all__ = ["OpenAiEmbedder", "OpenAiSettings", "spec"]


class OpenAiSettings(SettingsWithJobs):
    """Settings of OpenAI."""

    model_prefixes = ("openai/",)

    model: str = Field(default="text-embedding-3-small", description="The model.")
    base_url: str = Field(default="https://api.openai.com/v1", description="Where OpenAI is asked.")
    max_batch_bytes: int = Field(
        default=250_000, ge=1, description="Most bytes of text in one request; a larger text goes alone."
    )


class OpenAiEmbedder(EmbedderWithJobs[OpenAiSettings], OpenAiWireEmbedder[OpenAiSettings]):
    """OpenAI's models; those of the third generation can be asked for shorter vectors."""

    provider = RemoteProvider(
        id="openai",
        key_variables=("OPENAI_API_KEY",),
        native_dimensions={
            "text-embedding-3-large": 3072,
            "text-embedding-3-small": 1536,
            "text-embedding-ada-002": 1536,
        },
    )

    def wishes(self, kind: Kind) -> Mapping[str, object]:  # noqa: ARG002 - questions are asked as passages are
        """Ask for another length where one is set."""
        return without_nothing(dimensions=self.asked_dimensions)

    def job_api(self, wire: "JobWire") -> "JobApi":
        """Return how OpenAI is asked for jobs."""
        from composable_memory_adapters.embedders.jobs.openai import OpenAiJobs

        return OpenAiJobs(wire, model=self.model, wishes=self.wishes)


spec = remote_spec(OpenAiEmbedder, OpenAiSettings, summary="OpenAI's models, over the network; needs a key.")
