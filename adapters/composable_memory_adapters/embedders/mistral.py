"""Embeds with Mistral.

The API takes 16,384 tokens and 256 texts a request. A token stands for at least one byte, so requests of
fewer bytes are never refused for their size.
"""

from collections.abc import Mapping

from pydantic import Field

from composable_memory_adapters.embedders.remote.embedder import Kind
from composable_memory_adapters.embedders.remote.openai_wire import OpenAiWireEmbedder, without_nothing
from composable_memory_adapters.embedders.remote.opening import remote_spec
from composable_memory_adapters.embedders.remote.settings import RemoteProvider, RemoteSettings

__all__ = ["MistralEmbedder", "MistralSettings", "spec"]


class MistralSettings(RemoteSettings):
    """Settings of Mistral."""

    model_prefixes = ("mistral/",)

    model: str = Field(default="mistral-embed", description="The model.")
    base_url: str = Field(default="https://api.mistral.ai/v1", description="Where Mistral is asked.")
    max_batch_bytes: int = Field(
        default=16_000, ge=1, description="Most bytes of text in one request; a larger text goes alone."
    )


class MistralEmbedder(OpenAiWireEmbedder[MistralSettings]):
    """Mistral's models; `codestral-embed` can be asked for shorter vectors."""

    provider = RemoteProvider(
        id="mistral",
        key_variables=("MISTRAL_API_KEY",),
        native_dimensions={"codestral-embed": 1536, "mistral-embed": 1024},
    )

    def wishes(self, kind: Kind) -> Mapping[str, object]:  # noqa: ARG002 - questions are asked as passages are
        """Ask for another length where one is set."""
        return without_nothing(output_dimension=self.asked_dimensions)


spec = remote_spec(
    MistralEmbedder, MistralSettings, summary="Mistral's models, over the network; needs a key."
)
