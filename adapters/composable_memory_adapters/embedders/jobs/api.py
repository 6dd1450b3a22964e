"""The interface to the jobs of one provider: how one is created, polled, and its results read.

A provider that takes jobs takes a file with one text a line, and gives a file with one vector a line.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

from pydantic import BaseModel

from composable_memory_adapters.embedders.remote.batching import Kind
from composable_memory_adapters.embedders.remote.embedder import RemoteEmbedder
from composable_memory_adapters.http_client import Connection, HttpRequest, Reader, read_whole
from composable_memory_ops_logs.quick_dataclass import dataclass

T = TypeVar("T")
AnswerT = TypeVar("AnswerT", bound=BaseModel)

FILE_TIMEOUT_S = 1800.0
"""A file of a hundred megabytes takes this long at half a megabit a second."""


class JobPhase(StrEnum):
    """The phase of a job."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The provider does not know it, or not any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The state of a job; `detail` is the provider's reason for a failure, with every secret still in it.

    `files` hold its results. A job that failed may have some as well.
    """

    phase: JobPhase
    name: str = ""
    detail: str = ""
    files: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultLine:
    """One line of the results: the vector of a text, or why there is none."""

    text_id: str
    vector: list[float] | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """One part of a multipart body."""

    headers: Mapping[str, str]
    content: bytes


class JobClient:
    """Sends the requests of jobs. A job belongs to the account of a key, so only the first key is used.

    Every method raises `HttpFailure` for a request that failed, and `EmbeddingError` for an unusable answer.
    """

    def __init__(self, embedder: RemoteEmbedder[Any]) -> None:
        self._embedder = embedder

    async def get(self, path: str, answer: type[AnswerT]) -> AnswerT:
        """Return the answer at a path."""
        connection = await self._connection()
        body = await connection.send(HttpRequest(path=path, method="GET"), read_whole)
        return self._embedder.errors.parsed(body, answer)

    async def post(self, path: str, body: Mapping[str, object], answer: type[AnswerT]) -> AnswerT:
        """Send JSON to a path and return the answer."""
        connection = await self._connection()
        return self._embedder.errors.parsed(await connection.post(path, json.dumps(body).encode()), answer)

    async def upload(
        self,
        path: str,
        parts: Sequence[FilePart],
        answer: type[AnswerT],
        *,
        subtype: str,
        query: Mapping[str, str] | None = None,
    ) -> AnswerT:
        """Send a body of the type `multipart/<subtype>` and return the answer."""
        boundary = uuid4().hex
        request = HttpRequest(
            path=path,
            content=_multipart(parts, boundary),
            headers={"content-type": f"multipart/{subtype}; boundary={boundary}"},
            query=query or {},
            timeout_s=FILE_TIMEOUT_S,
        )
        connection = await self._connection()
        return self._embedder.errors.parsed(await connection.send(request, read_whole), answer)

    async def download(self, path: str, reader: Reader[T], *, query: Mapping[str, str] | None = None) -> T:
        """Return what `reader` makes of the file at a path."""
        request = HttpRequest(path=path, method="GET", query=query or {}, timeout_s=FILE_TIMEOUT_S)
        return await (await self._connection()).send(request, reader)

    async def _connection(self) -> Connection:
        return (await self._embedder.connected()).with_first_key()


class JobApi(ABC):
    """The jobs of one provider. The methods raise as those of `JobClient` do."""

    max_file_bytes: ClassVar[int] = 100_000_000
    """OpenAI takes files of 200 MB, Voyage of 1 GB, Gemini of 2 GB; what is sent has to be held in memory."""
    lifetime: ClassVar[timedelta]
    """How long a job may still be of use: the time that the provider takes at most, and a day to fetch it."""

    @abstractmethod
    def line(self, text_id: str, text: str, kind: Kind) -> Mapping[str, object]:
        """Return the line of the file for a text."""

    @abstractmethod
    async def upload(self, content: bytes) -> str:
        """Upload a file and return its name at the provider."""

    @abstractmethod
    async def create(self, file: str, kind: Kind) -> str:
        """Create a job for an uploaded file, whose texts are all of one kind, and return the job's name."""

    @abstractmethod
    async def state(self, job: str) -> JobState:
        """Return the state of a job."""

    @abstractmethod
    async def read(self, file: str, reader: Reader[T]) -> T:
        """Return what `reader` makes of a file of results."""

    @abstractmethod
    def parsed(self, line: bytes) -> ResultLine:
        """Return a line of the results as a value.

        Raises:
            ValidationError: it is no such line.
        """


def _multipart(parts: Sequence[FilePart], boundary: str) -> bytes:
    """Return the body of several parts (RFC 2046, 5.1)."""
    body = bytearray()
    for part in parts:
        headers = "".join(f"{name}: {value}\r\n" for name, value in part.headers.items())
        body += f"--{boundary}\r\n{headers}\r\n".encode() + part.content + b"\r\n"
    return bytes(body + f"--{boundary}--\r\n".encode())
