"""Embeds with any server that speaks as OpenAI does: vLLM, LM Studio, llama.cpp, LocalAI, a gateway.

Such servers differ in what they take beside model and texts, so nothing else is sent; `dimensions` says how
long the vectors are that they return. A query in `base_url`, such as `?api-version=…`, is kept.
"""

from collections.abc import Mapping

from pydantic import Field

from composable_memory_adapters.embedders.remote.embedder import Kind
from composable_memory_adapters.embedders.remote.openai_wire import OpenAiWireEmbedder
from composable_memory_adapters.embedders.remote.opening import remote_spec
from composable_memory_adapters.embedders.remote.settings import RemoteProvider, RemoteSettings

__all__ = ["OpenAiCompatibleEmbedder", "OpenAiCompatibleSettings", "spec"]


class OpenAiCompatibleSettings(RemoteSettings):
    """Settings of such a server; `base_url` and `model` have to be set."""

    model: str = Field(default="", description="The model, as the server calls it; has to be set.")
    base_url: str = Field(
        default="", description="Where the server is asked, with `/v1` where it wants that; has to be set."
    )
    max_batch_texts: int = Field(
        default=32, ge=1, description="Most texts of one request; some servers take no more than 32."
    )


class OpenAiCompatibleEmbedder(OpenAiWireEmbedder[OpenAiCompatibleSettings]):
    """Whatever model the server offers."""

    provider = RemoteProvider(id="openai-compatible", needs_key=False)

    def wishes(self, kind: Kind) -> Mapping[str, object]:  # noqa: ARG002 - no two servers agree on more
        """Wish for nothing."""
        return {}


spec = remote_spec(
    OpenAiCompatibleEmbedder,
    OpenAiCompatibleSettings,
    summary="Any server with OpenAI's interface for embeddings; needs base_url and model.",
)
