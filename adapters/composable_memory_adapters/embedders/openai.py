"""OpenAI, and providers with the same API: Mistral, Voyage, and any compatible server.

They differ in their models, their limits, and the names of the few parameters besides model and texts.

A token is at least one byte, so a request with no more bytes than the API's limit of tokens is never refused
for its size. OpenAI takes 8,192 tokens per text and 300,000 per request; it would take 2,048 texts, but the
answer for a hundred is already 3 MB, and less is lost if it fails. Mistral takes 16,384 tokens and 256 texts
per request. Voyage takes 32,000 tokens per text, and truncates longer ones; 120,000 tokens per request with
its largest models, more with others.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from composable_memory_adapters.embedders.batch_jobs.embedder import EmbedderWithJobs
from composable_memory_adapters.embedders.remote.embedder import Kind, RemoteEmbedder, Vector, remote_spec
from composable_memory_adapters.embedders.remote.settings import (
    RemoteProvider,
    RemoteSettings,
    SettingsWithJobs,
)

if TYPE_CHECKING:
    from composable_memory_adapters.embedders.batch_jobs.provider_jobs import JobApi, JobClient

SettingsT = TypeVar("SettingsT", bound=RemoteSettings)

BATCH_BYTES = "The most bytes of text per request; a larger text is sent alone."
TEXT_BYTES = "Longer texts are cut to this many bytes of UTF-8."


class OpenAiStyleEmbedder(RemoteEmbedder[SettingsT]):
    """Sends `{model, input}` and a provider's own parameters to `/embeddings`."""

    dimensions_parameter: ClassVar[str | None] = None
    """The request's parameter for the length of the vectors; None if it cannot be chosen."""
    kind_parameter: ClassVar[str | None] = None
    """The request's parameter for `query` or `document`; None if both are embedded alike."""

    def parameters(self, kind: Kind) -> Mapping[str, object]:
        """Return the request's parameters besides the model and the texts."""
        parameters: dict[str, object] = {}
        if self.kind_parameter is not None:
            parameters[self.kind_parameter] = kind
        if self.dimensions_parameter is not None and self.requested_dimensions is not None:
            parameters[self.dimensions_parameter] = self.requested_dimensions
        return parameters

    async def request_vectors(self, texts: Sequence[str], kind: Kind) -> Sequence[Vector]:
        """Request the vectors of all texts, and put them in the order of the texts."""
        body = {"model": self.model, "input": texts, **self.parameters(kind)}
        answer = await self.post("embeddings", body, _Answer)
        vectors = answer.in_order()
        if vectors is None:
            raise self.errors.unreadable("the indexes of its vectors are not 0, 1, 2 and so on")
        return vectors


class _Item(BaseModel):
    """A vector, and the index of its text in the request."""

    model_config = ConfigDict(strict=True)

    index: int | None = None
    embedding: Vector


class _Answer(BaseModel):
    """All vectors of a request, in any order."""

    model_config = ConfigDict(strict=True)

    data: list[_Item]

    def in_order(self) -> list[Vector] | None:
        """Return the vectors by index, or as they come if none has one; None if the indexes make no sense."""
        if all(item.index is None for item in self.data):
            return [item.embedding for item in self.data]
        by_index = {item.index: item.embedding for item in self.data}
        indexes = range(len(self.data))
        return [by_index[index] for index in indexes] if by_index.keys() == set(indexes) else None


# --- OpenAI -------------------------------------------------------------------------------------------------


class OpenAiSettings(SettingsWithJobs):
    """Settings of OpenAI."""

    model_prefixes = ("openai/",)

    model: str = Field(default="text-embedding-3-small", description="The model.")
    base_url: str = Field(default="https://api.openai.com/v1", description="The address of OpenAI.")
    max_batch_bytes: int = Field(default=250_000, ge=1, description=BATCH_BYTES)


class OpenAiEmbedder(EmbedderWithJobs[OpenAiSettings], OpenAiStyleEmbedder[OpenAiSettings]):
    """OpenAI's models; those of the third generation can return shorter vectors."""

    provider = RemoteProvider(
        id="openai",
        key_variables=("OPENAI_API_KEY",),
        native_dimensions={
            "text-embedding-3-large": 3072,
            "text-embedding-3-small": 1536,
            "text-embedding-ada-002": 1536,
        },
    )
    dimensions_parameter = "dimensions"

    def job_api(self, client: "JobClient") -> "JobApi":
        """Return OpenAI's batch job API."""
        from composable_memory_adapters.embedders.batch_jobs.openai import OpenAiJobs

        return OpenAiJobs(client, model=self.model, parameters=self.parameters)


spec = remote_spec(
    OpenAiEmbedder, OpenAiSettings, summary="OpenAI's models, over the network; needs an API key."
)


# --- any compatible server: vLLM, LM Studio, llama.cpp, LocalAI, a gateway ----------------------------------


class OpenAiCompatibleSettings(RemoteSettings):
    """Settings of such a server; `base_url` and `model` have to be set."""

    model: str = Field(default="", description="The server's name for the model; required.")
    base_url: str = Field(
        default="", description="The address of the server, with `/v1` if it needs that; required."
    )
    max_batch_texts: int = Field(
        default=32, ge=1, description="The most texts per request; some servers take no more than 32."
    )


class OpenAiCompatibleEmbedder(OpenAiStyleEmbedder[OpenAiCompatibleSettings]):
    """Whatever model the server offers.

    No two servers agree on parameters besides model and texts, so nothing else is sent; `dimensions` states
    the length of the vectors they return. A query in `base_url`, such as `?api-version=…`, is kept.
    """

    provider = RemoteProvider(id="openai-compatible", needs_key=False)


compatible_spec = remote_spec(
    OpenAiCompatibleEmbedder,
    OpenAiCompatibleSettings,
    summary="Any OpenAI-compatible server; needs base_url and model.",
)


# --- Mistral ------------------------------------------------------------------------------------------------


class MistralSettings(RemoteSettings):
    """Settings of Mistral."""

    model_prefixes = ("mistral/",)

    model: str = Field(default="mistral-embed", description="The model.")
    base_url: str = Field(default="https://api.mistral.ai/v1", description="The address of Mistral.")
    max_batch_bytes: int = Field(default=16_000, ge=1, description=BATCH_BYTES)


class MistralEmbedder(OpenAiStyleEmbedder[MistralSettings]):
    """Mistral's models; `codestral-embed` can return shorter vectors."""

    provider = RemoteProvider(
        id="mistral",
        key_variables=("MISTRAL_API_KEY",),
        native_dimensions={"codestral-embed": 1536, "mistral-embed": 1024},
    )
    dimensions_parameter = "output_dimension"


mistral_spec = remote_spec(
    MistralEmbedder, MistralSettings, summary="Mistral's models, over the network; needs an API key."
)


# --- Voyage -------------------------------------------------------------------------------------------------


class VoyageSettings(SettingsWithJobs):
    """Settings of Voyage."""

    model_prefixes = ("voyage/",)

    model: str = Field(default="voyage-4-large", description="The model.")
    base_url: str = Field(default="https://api.voyageai.com/v1", description="The address of Voyage.")
    max_text_bytes: int = Field(default=32_000, ge=16, description=TEXT_BYTES)
    max_batch_bytes: int = Field(default=120_000, ge=1, description=BATCH_BYTES)


class VoyageEmbedder(EmbedderWithJobs[VoyageSettings], OpenAiStyleEmbedder[VoyageSettings]):
    """Voyage's models, which embed queries and passages differently; recent ones offer several lengths."""

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
    dimensions_parameter = "output_dimension"
    kind_parameter = "input_type"

    def job_api(self, client: "JobClient") -> "JobApi":
        """Return Voyage's batch job API."""
        from composable_memory_adapters.embedders.batch_jobs.openai import VoyageJobs

        return VoyageJobs(client, model=self.model, parameters=self.parameters)


voyage_spec = remote_spec(
    VoyageEmbedder, VoyageSettings, summary="Voyage's models, over the network; needs an API key."
)
