"""Gemini's batch jobs: a file in, a long-running operation, a file out.

https://ai.google.dev/gemini-api/docs/batch-api, https://ai.google.dev/api/batch-api
"""

import json
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, TypeVar
from urllib.parse import quote, urlsplit

from pydantic import AliasChoices, BaseModel, ConfigDict, Field

from composable_memory_adapters.embedders.batch_jobs.provider_jobs import (
    FilePart,
    JobApi,
    JobClient,
    JobPhase,
    JobState,
    ResultLine,
)
from composable_memory_adapters.embedders.remote.embedder import Kind, Vector
from composable_memory_adapters.http_client import Reader
from composable_memory_adapters.http_failures import message_of

T = TypeVar("T")

PHASES = {
    "SUCCEEDED": JobPhase.DONE,
    "COMPLETED": JobPhase.DONE,
    "DONE": JobPhase.DONE,
    "FAILED": JobPhase.FAILED,
    "CANCELLED": JobPhase.FAILED,
    "EXPIRED": JobPhase.FAILED,
}
"""The final states of a job, without the prefix `BATCH_STATE_` or `JOB_STATE_`."""
JSON = {"content-type": "application/json; charset=utf-8"}
JSONL = {"content-type": "application/jsonl; charset=utf-8"}


class GeminiJobs(JobApi):
    """Gemini's batch jobs; `request` builds the request for a text.

    Files have addresses beside the base URL: for `/v1beta` these are `/upload/v1beta` and `/download/v1beta`.
    """

    lifetime = timedelta(hours=48)
    """Both the job and its files expire after this time."""

    def __init__(
        self,
        client: JobClient,
        *,
        model: str,
        base_url: str,
        request: Callable[[str, Kind], Mapping[str, object]],
    ) -> None:
        self._client = client
        self._model = model
        self._before, _, self._version = urlsplit(base_url).path.rpartition("/")
        self._request = request

    def line(self, text_id: str, text: str, kind: Kind) -> Mapping[str, object]:
        """Return a request with its id."""
        return {"key": text_id, "request": self._request(text, kind)}

    async def upload(self, content: bytes) -> str:
        """Upload a file."""
        about = {"file": {"displayName": "memory-embeddings.jsonl", "mimeType": "application/jsonl"}}
        parts = [
            FilePart(headers=JSON, content=json.dumps(about).encode()),
            FilePart(headers=JSONL, content=content),
        ]
        path, query = self._beside("upload", "files"), {"uploadType": "multipart"}
        answer = await self._client.upload(path, parts, _Uploaded, subtype="related", query=query)
        return answer.file.name

    async def create(self, file: str, kind: Kind) -> str:  # noqa: ARG002 - every line says it
        """Create a job for a file."""
        batch = {"displayName": "memory-embeddings", "inputConfig": {"file_name": file}}
        path = f"models/{quote(self._model)}:asyncBatchEmbedContent"
        return (await self._client.post(path, {"batch": batch}, _Created)).name

    async def state(self, job: str) -> JobState:
        """Return the state of a job."""
        operation = await self._client.get(job, _Operation)
        detail = message_of(operation.error)
        name = re.sub(r"^(?:BATCH|JOB)_STATE_", "", operation.state or operation.metadata.state or "")
        unnamed = JobPhase.DONE if operation.done else JobPhase.RUNNING
        phase = JobPhase.FAILED if detail else PHASES.get(name, unnamed)
        return JobState(phase=phase, name=name.lower(), detail=detail, files=operation.files())

    async def read(self, file: str, reader: Reader[T]) -> T:
        """Read a file."""
        path = self._beside("download", f"{file}:download")
        return await self._client.download(path, reader, query={"alt": "media"})

    def parsed(self, line: bytes) -> ResultLine:
        """Return the vector in a line, or the provider's error."""
        found = _Line.model_validate_json(line)
        embedding = found.response.embedding if found.response else None
        if embedding is not None:
            return ResultLine(text_id=found.key, vector=embedding.values)
        return ResultLine(text_id=found.key, problem=message_of(found.error) or "no vector for a text")

    def _beside(self, folder: str, path: str) -> str:
        return "/".join([self._before, folder, *filter(None, [self._version]), path])


class _Named(BaseModel):
    name: Annotated[str, Field(pattern=r"^files/[\w.-]{1,200}$")]


class _Uploaded(BaseModel):
    file: _Named


class _Created(BaseModel):
    name: Annotated[str, Field(pattern=r"^batches/[\w.-]{1,200}$")]


class _Output(BaseModel):
    responses_file: Annotated[
        str | None,
        Field(validation_alias=AliasChoices("responsesFile", "fileName"), pattern=r"^files/[\w.-]{1,200}$"),
    ] = None


class _Metadata(BaseModel):
    state: str | None = None
    output: _Output = _Output()


class _Operation(BaseModel):
    """An operation or the batch itself: both have the same fields in different places."""

    done: bool = False
    state: str | None = None
    metadata: _Metadata = _Metadata()
    response: _Output = _Output()
    output: _Output = _Output()
    error: object = None

    def files(self) -> list[str]:
        """Return the file of the results, wherever it is named."""
        places = (self.response, self.output, self.metadata.output)
        return [place.responses_file for place in places if place.responses_file][:1]


class _Embedding(BaseModel):
    model_config = ConfigDict(strict=True)

    values: Vector


class _Response(BaseModel):
    embedding: _Embedding | None = None


class _Line(BaseModel):
    key: str
    response: _Response | None = None
    error: object = None
