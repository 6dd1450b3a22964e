"""Google's Gemini API, which embeds queries and passages differently.

The API takes 100 texts per request and truncates texts that are too long for the model; free accounts have
30,000 tokens a minute, about as much as the default of `max_batch_bytes`.
"""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, field_validator
from pydantic_core import from_json

from composable_memory_adapters.embedders.batch_jobs.embedder import EmbedderWithJobs
from composable_memory_adapters.embedders.remote.embedder import Kind, Vector, remote_spec
from composable_memory_adapters.embedders.remote.settings import RemoteProvider, SettingsWithJobs

if TYPE_CHECKING:
    from composable_memory_adapters.embedders.batch_jobs.provider_jobs import JobApi, JobClient

TASK_TYPES: Mapping[Kind, str] = {"query": "RETRIEVAL_QUERY", "document": "RETRIEVAL_DOCUMENT"}


class GeminiSettings(SettingsWithJobs):
    """Settings of Gemini. The key may be several, with commas between them, or JSON with a `token`."""

    model_prefixes = ("models/", "gemini/", "google/")

    model: str = Field(default="gemini-embedding-001", description="The model.")
    base_url: str = Field(
        default="https://generativelanguage.googleapis.com/v1beta", description="The address of Gemini."
    )
    max_batch_texts: int = Field(default=100, ge=1, le=100, description="The most texts per request.")

    @field_validator("base_url", mode="after")
    @classmethod
    def _without_openai(cls, base_url: str) -> str:
        """Strip the suffix of the address at which Gemini offers OpenAI's API."""
        return re.sub(r"/openai(?:/.*)?$", "", base_url)


class GeminiEmbedder(EmbedderWithJobs[GeminiSettings]):
    """Google's models. Shortened vectors do not have unit length, so they are scaled here."""

    provider = RemoteProvider(
        id="gemini",
        key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        native_dimensions={
            "embedding-001": 768,
            "gemini-embedding-001": 3072,
            "gemini-embedding-2": 3072,
            "gemini-embedding-2-preview": 3072,
            "text-embedding-004": 768,
        },
    )
    normalises = True

    @classmethod
    def keys(cls, key: str) -> Sequence[str]:
        """Split the key at commas, unless it is JSON."""
        if key.startswith("{"):
            return [key]
        return [one.strip() for one in key.split(",") if one.strip()]

    @classmethod
    def credential(cls, key: str) -> Mapping[str, str]:
        """Return the header for an OAuth token or an API key."""
        token = _token(key)
        return {"Authorization": f"Bearer {token}"} if token else {"x-goog-api-key": key}

    async def request_vectors(self, texts: Sequence[str], kind: Kind) -> Sequence[Vector]:
        """Request the vectors of all texts; they come in the same order."""
        path = f"models/{quote(self.model)}:batchEmbedContents"
        answer = await self.post(path, {"requests": [self._request(text, kind) for text in texts]}, _Answer)
        return [item.values for item in answer.embeddings]

    def job_api(self, client: "JobClient") -> "JobApi":
        """Return Gemini's batch job API."""
        from composable_memory_adapters.embedders.batch_jobs.gemini import GeminiJobs

        return GeminiJobs(client, model=self.model, base_url=self.settings.base_url, request=self._request)

    def _request(self, text: str, kind: Kind) -> Mapping[str, object]:
        """Return the request for one text."""
        length = self.requested_dimensions
        return {
            "model": f"models/{self.model}",
            "content": {"parts": [{"text": text}]},
            "taskType": TASK_TYPES[kind],
            **({"outputDimensionality": length} if length is not None else {}),
        }


class _Item(BaseModel):
    model_config = ConfigDict(strict=True)

    values: Vector


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True)

    embeddings: list[_Item]


def _token(key: str) -> str | None:
    """Return the `token` of a key that is a JSON object; None for any other key."""
    try:
        held: object = from_json(key)
    except ValueError:
        return None
    token = held.get("token") if isinstance(held, Mapping) else None
    return token.strip() or None if isinstance(token, str) else None


spec = remote_spec(
    GeminiEmbedder, GeminiSettings, summary="Google's models, over the network; needs an API key."
)
