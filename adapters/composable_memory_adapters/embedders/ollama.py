"""Models run by Ollama, on this machine or another.

The default model reads 2,048 tokens. 6,000 bytes of English or Chinese have fewer; of symbols alone they have
more, and Ollama must truncate the text. Versions from 0.13.5 on may refuse that: then lower `max_text_bytes`.
"""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from composable_memory_adapters.embedders.remote.embedder import Kind, RemoteEmbedder, Vector, remote_spec
from composable_memory_adapters.embedders.remote.settings import RemoteProvider, RemoteSettings
from composable_memory_adapters.http_failures import FailureKind, HttpFailure


class OllamaSettings(RemoteSettings):
    """Settings of Ollama."""

    model_prefixes = ("ollama/",)

    model: str = Field(default="nomic-embed-text", description="The model; `ollama pull` fetches it.")
    base_url: str = Field(default="http://127.0.0.1:11434", description="The address of Ollama.")
    max_text_bytes: int = Field(
        default=6000, ge=16, description="Longer texts are cut to this many bytes of UTF-8."
    )
    max_batch_texts: int = Field(default=32, ge=1, description="The most texts per request.")
    max_concurrent_requests: int = Field(default=2, ge=1, le=64, description="The most requests at once.")


class OllamaEmbedder(RemoteEmbedder[OllamaSettings]):
    """Any embedding model that was pulled."""

    provider = RemoteProvider(
        id="ollama",
        key_variables=("OLLAMA_API_KEY",),
        needs_key=False,
        native_dimensions={
            "all-minilm": 384,
            "bge-large": 1024,
            "bge-m3": 1024,
            "embeddinggemma": 768,
            "mxbai-embed-large": 1024,
            "nomic-embed-text": 768,
            "paraphrase-multilingual": 768,
            "snowflake-arctic-embed2": 1024,
        },
    )
    normalises = True

    @classmethod
    def native_dimensions(cls, model: str) -> int | None:
        """Return the length for a known model; its tags differ in precision, not in length."""
        return super().native_dimensions(model.partition(":")[0])

    async def request_vectors(self, texts: Sequence[str], kind: Kind) -> Sequence[Vector]:  # noqa: ARG002 - all alike
        """Request all vectors at once."""
        length = self.requested_dimensions
        wanted = {"dimensions": length} if length is not None else {}
        body = {"model": self.model, "input": texts, **wanted}
        return (await self.post("api/embed", body, _Vectors)).embeddings

    def advice(self, failure: HttpFailure) -> str | None:
        """Say how to start Ollama, how to get the model, or that Ollama is too old.

        An unknown path and a missing model have the same status, but only the latter is explained in JSON.
        """
        if failure.kind is FailureKind.UNREACHABLE:
            return f"start it with `ollama serve`, or set {self.provider.setting('base_url')}"
        if failure.kind is FailureKind.NOT_FOUND and not failure.is_explained:
            return "update Ollama to 0.3 or newer, or name the address of Ollama itself"
        return f"run `ollama pull {self.model}`" if failure.kind is FailureKind.NOT_FOUND else None


class _Vectors(BaseModel):
    model_config = ConfigDict(strict=True)

    embeddings: list[Vector]


spec = remote_spec(OllamaEmbedder, OllamaSettings, summary="Models run by Ollama; needs no API key.")
