"""Models that Ollama runs, on this machine or another.

The default model reads 2,048 tokens. 6,000 bytes of English or Chinese are fewer; of mere signs they are
more, and Ollama has to cut them itself. Versions from 0.13.5 on may refuse that: then lower `max_text_bytes`.
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
    base_url: str = Field(default="http://127.0.0.1:11434", description="Where Ollama listens.")
    max_text_bytes: int = Field(
        default=6000, ge=16, description="Of a longer text only this many bytes of UTF-8 are embedded."
    )
    max_batch_texts: int = Field(default=32, ge=1, description="Most texts of one request.")
    max_concurrent_requests: int = Field(default=2, ge=1, le=64, description="Most requests at once.")


class OllamaEmbedder(RemoteEmbedder[OllamaSettings]):
    """Any embedding model that was pulled. Old versions know one text a request; their vectors are scaled."""

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
    _knows_batches = True

    @classmethod
    def native_dimensions(cls, model: str) -> int | None:
        """Return the length for a model of the table; its tags differ in precision, not in length."""
        return super().native_dimensions(model.partition(":")[0])

    async def request_vectors(self, texts: Sequence[str], kind: Kind) -> Sequence[Vector]:  # noqa: ARG002 - all alike
        """Ask for all vectors at once, or for one after the other where Ollama is too old for that."""
        if self._knows_batches:
            try:
                return await self._batch(texts)
            except HttpFailure as failure:
                if not _is_missing_route(failure):
                    raise
            self._knows_batches = False
        return [await self._single(text) for text in texts]

    def advice(self, failure: HttpFailure) -> str | None:
        """Return how to start Ollama, or how to get the model."""
        if failure.kind is FailureKind.UNREACHABLE:
            return f"start it with `ollama serve`, or set {self.provider.setting('base_url')}"
        if failure.kind is FailureKind.NOT_FOUND and not _is_missing_route(failure):
            return f"run `ollama pull {self.model}`"
        return None

    async def _batch(self, texts: Sequence[str]) -> Sequence[Vector]:
        length = self.requested_dimensions
        wanted = {"dimensions": length} if length is not None else {}
        body = {"model": self.model, "input": texts, **wanted}
        return (await self.post("api/embed", body, _Vectors)).embeddings

    async def _single(self, text: str) -> Vector:
        return (await self.post("api/embeddings", {"model": self.model, "prompt": text}, _Single)).embedding


def _is_missing_route(failure: HttpFailure) -> bool:
    """Return whether the path is unknown. A missing model has the same status, but is explained in JSON."""
    return failure.kind is FailureKind.NOT_FOUND and not failure.is_explained


class _Vectors(BaseModel):
    model_config = ConfigDict(strict=True)

    embeddings: list[Vector]


class _Single(BaseModel):
    model_config = ConfigDict(strict=True)

    embedding: Vector


spec = remote_spec(OllamaEmbedder, OllamaSettings, summary="Models that Ollama runs; needs no key.")
