"""Embeds with Voyage, which reads questions otherwise than passages.

The API takes 32,000 tokens a text (and cuts longer ones itself), and 120,000 tokens a request with its
largest models, more with others. A token stands for at least one byte, so as many bytes are never refused.
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

__all__ = ["VoyageEmbedder", "VoyageSettings", "spec"]


class VoyageSettings(SettingsWithJobs):
    """Settings of Voyage."""

    model_prefixes = ("voyage/",)

    model: str = Field(default="voyage-4-large", description="The model.")
    base_url: str = Field(default="https://api.voyageai.com/v1", description="Where Voyage is asked.")
    max_text_bytes: int = Field(
        default=32_000, ge=16, description="Of a longer text only this many bytes of UTF-8 are embedded."
    )
    max_batch_bytes: int = Field(
        default=120_000, ge=1, description="Most bytes of text in one request; a larger text goes alone."
    )


class VoyageEmbedder(EmbedderWithJobs[VoyageSettings], OpenAiWireEmbedder[VoyageSettings]):
    """Voyage's models; those of the last generations can be asked for other lengths."""

    provider = RemoteProvider(
        id="voyage",
        key_variables=("VOYAGE_API_KEY",),
        native_dimensions={
            "voyage-2": 1024,
            "voyage-3": 1024,
            "voyage-3-large": 1024,
            "voyage-3-lite": 512,
            "voyage-3.5": 1024,
            "voyage-3.5-lite": 1024,
            "voyage-4": 1024,
            "voyage-4-large": 1024,
            "voyage-4-lite": 1024,
            "voyage-code-2": 1536,
            "voyage-code-3": 1024,
            "voyage-finance-2": 1024,
            "voyage-large-2": 1536,
            "voyage-law-2": 1024,
            "voyage-multilingual-2": 1024,
        },
    )

    def wishes(self, kind: Kind) -> Mapping[str, object]:
        """Say what the texts are, and ask for another length where one is set."""
        return without_nothing(input_type=kind, output_dimension=self.asked_dimensions)

    def job_api(self, wire: "JobWire") -> "JobApi":
        """Return how Voyage is asked for jobs."""
        from composable_memory_adapters.embedders.jobs.openai import VoyageJobs

        return VoyageJobs(wire, model=self.model, wishes=self.wishes)


spec = remote_spec(VoyageEmbedder, VoyageSettings, summary="Voyage's models, over the network; needs a key.")
