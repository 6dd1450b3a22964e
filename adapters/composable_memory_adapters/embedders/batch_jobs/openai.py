"""OpenAI's and Voyage's batch jobs: a file in, a file out, and one with errors.

https://platform.openai.com/docs/api-reference/batch, https://docs.voyageai.com/docs/batch-inference
"""

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

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

ENDPOINT = "/v1/embeddings"
SOURCE = {"source": "composable-memory"}
PHASES = {
    "completed": JobPhase.DONE,
    "failed": JobPhase.FAILED,
    "expired": JobPhase.FAILED,
    "cancelled": JobPhase.FAILED,
}
"""The final states; `validating`, `in_progress`, `finalizing` and `cancelling` come before them."""


class OpenAiJobs(JobApi):
    """OpenAI's batch jobs; `parameters` returns a request's parameters besides the model and the text."""

    lifetime = timedelta(hours=24 + 24)

    def __init__(
        self, client: JobClient, *, model: str, parameters: Callable[[Kind], Mapping[str, object]]
    ) -> None:
        self._client = client
        self._model = model
        self._parameters = parameters

    def line(self, text_id: str, text: str, kind: Kind) -> Mapping[str, object]:
        """Return a complete request to the embeddings endpoint."""
        body = {"model": self._model, "input": text, **self._parameters(kind)}
        return {"custom_id": text_id, "method": "POST", "url": ENDPOINT, "body": body}

    async def upload(self, content: bytes) -> str:
        """Upload a file."""
        purpose = FilePart(headers={"content-disposition": 'form-data; name="purpose"'}, content=b"batch")
        disposition = 'form-data; name="file"; filename="memory-embeddings.jsonl"'
        file = FilePart(
            headers={"content-disposition": disposition, "content-type": "application/jsonl"},
            content=content,
        )
        return (await self._client.upload("files", [purpose, file], _Created, subtype="form-data")).id

    async def create(self, file: str, kind: Kind) -> str:
        """Create a job for a file."""
        body = {"input_file_id": file, "endpoint": ENDPOINT, "metadata": SOURCE, **self.job_options(kind)}
        return (await self._client.post("batches", body, _Created)).id

    def job_options(self, kind: Kind) -> Mapping[str, object]:  # noqa: ARG002 - for those who say it with the job
        """Return the further options of a job."""
        return {"completion_window": "24h"}

    async def state(self, job: str) -> JobState:
        """Return the state of a job; one that expired may have partial results."""
        batch = await self._client.get(f"batches/{job}", _Batch)
        phase = PHASES.get(batch.status, JobPhase.RUNNING)
        files = [file for file in (batch.output_file_id, batch.error_file_id) if file]
        return JobState(phase=phase, name=batch.status, detail=message_of(batch.errors), files=files)

    async def read(self, file: str, reader: Reader[T]) -> T:
        """Read a file."""
        return await self._client.download(f"files/{file}/content", reader)

    def parsed(self, line: bytes) -> ResultLine:
        """Return the single vector in a line, or the provider's error."""
        found = _Line.model_validate_json(line)
        body = found.response.body if found.response else None
        vectors = [item.embedding for item in body.data] if body else []
        if len(vectors) == 1:
            return ResultLine(text_id=found.custom_id, vector=vectors[0])
        detail = message_of(found.error) or message_of(body.model_dump() if body else None)
        return ResultLine(text_id=found.custom_id, problem=detail or f"{len(vectors)} vectors for a text")


class VoyageJobs(OpenAiJobs):
    """Voyage's batch jobs, which name the model and its parameters only once."""

    lifetime = timedelta(hours=12 + 24)

    def line(self, text_id: str, text: str, kind: Kind) -> Mapping[str, object]:  # noqa: ARG002 - see job_options
        """Return a text with its id."""
        return {"custom_id": text_id, "body": {"input": text}}

    def job_options(self, kind: Kind) -> Mapping[str, object]:
        """Return the completion window, the model, and the kind of the texts."""
        return {
            "completion_window": "12h",
            "request_params": {"model": self._model, **self._parameters(kind)},
        }


_Id = Annotated[str, Field(pattern=r"^[\w.-]{1,200}$")]
"""An id that becomes part of a path."""


class _Created(BaseModel):
    id: _Id


class _Batch(BaseModel):
    status: str
    output_file_id: _Id | None = None
    error_file_id: _Id | None = None
    errors: object = None


class _Item(BaseModel):
    model_config = ConfigDict(strict=True)

    embedding: Vector


class _Body(BaseModel):
    """Either vectors or an error, which services put in different places."""

    data: list[_Item] = []
    error: object = None
    message: object = None
    detail: object = None


class _Response(BaseModel):
    body: _Body | None = None


class _Line(BaseModel):
    custom_id: str
    response: _Response | None = None
    error: object = None
