"""What the jobs of one provider have of their own: how one is left with it, how it goes, how results read.

A provider that takes jobs takes a file with one text a line, and gives a file with one vector a line.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar, Protocol, TypeVar
from uuid import uuid4

from pydantic import BaseModel

from composable_memory_adapters.embedders.remote.connection import Connection, HttpRequest, Reader
from composable_memory_adapters.embedders.remote.embedder import Kind

__all__ = ["FilePart", "JobApi", "JobLine", "JobPhase", "JobState", "JobWire"]

T = TypeVar("T")
AnswerT = TypeVar("AnswerT", bound=BaseModel)

FILE_TIMEOUT_S = 1800.0
"""A file of a hundred megabytes takes this long at half a megabit a second."""


class JobPhase(StrEnum):
    """How a job stands."""

    GOING = "going"
    DONE = "done"
    FAILED = "failed"
    LOST = "lost"
    """The provider does not know it, or not any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """How a job stands; `said` is what the provider says of its failure, with every secret still in it.

    `files` hold its results. A job that failed may have some as well.
    """

    phase: JobPhase
    name: str = ""
    said: str = ""
    files: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLine:
    """One line of the results: the vector of a text, or why there is none."""

    text_id: str
    vector: list[float] | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """One part of a body in several parts."""

    headers: Mapping[str, str]
    content: bytes


class _Parser(Protocol):
    """Reads an answer as a value, or raises an `EmbeddingError`."""

    def __call__(self, body: bytes, answer: type[AnswerT]) -> AnswerT:
        """Return the value."""
        ...


class JobWire:
    """Asks for jobs. A job belongs to the account of a key, so of several keys only the first is used.

    Every method raises `HttpFailure` for a request that failed, and `EmbeddingError` for an unusable answer.
    """

    def __init__(self, connected: Callable[[], Awaitable[Connection]], parsed: _Parser) -> None:
        self._connected = connected
        self._parsed = parsed

    async def get(self, path: str, answer: type[AnswerT]) -> AnswerT:
        """Return the answer at a path."""
        connection = await self._connection()
        return self._parsed(await connection.send(HttpRequest(path=path, method="GET")), answer)

    async def post(self, path: str, body: Mapping[str, object], answer: type[AnswerT]) -> AnswerT:
        """Send JSON to a path and return the answer."""
        connection = await self._connection()
        return self._parsed(await connection.post(path, json.dumps(body).encode()), answer)

    async def upload(
        self,
        path: str,
        parts: Sequence[FilePart],
        answer: type[AnswerT],
        *,
        subtype: str,
        query: Mapping[str, str] | None = None,
    ) -> AnswerT:
        """Send a body of several parts, of the type `multipart/<subtype>`, and return the answer."""
        boundary = uuid4().hex
        request = HttpRequest(
            path=path,
            content=_joined(parts, boundary),
            headers={"content-type": f"multipart/{subtype}; boundary={boundary}"},
            query=query or {},
            timeout_s=FILE_TIMEOUT_S,
        )
        connection = await self._connection()
        return self._parsed(await connection.send(request), answer)

    async def download(self, path: str, reader: Reader[T], *, query: Mapping[str, str] | None = None) -> T:
        """Return what `reader` makes of the file at a path."""
        request = HttpRequest(path=path, method="GET", query=query or {}, timeout_s=FILE_TIMEOUT_S)
        return await (await self._connection()).read(request, reader)

    async def _connection(self) -> Connection:
        return (await self._connected()).with_first_key()


class JobApi(ABC):
    """The jobs of one provider. The methods raise as those of `JobWire` do."""

    max_file_bytes: ClassVar[int] = 100_000_000
    """OpenAI takes files of 200 MB, Voyage of 1 GB, Gemini of 2 GB; what is sent has to be held in memory."""
    lifetime: ClassVar[timedelta]
    """How long a job may still be of use: the time that the provider takes at most, and a day to fetch it."""

    @abstractmethod
    def line(self, text_id: str, text: str, kind: Kind) -> Mapping[str, object]:
        """Return what stands in the file for a text."""

    @abstractmethod
    async def upload(self, content: bytes) -> str:
        """Leave a file with the provider and return its name there."""

    @abstractmethod
    async def create(self, file: str, kind: Kind) -> str:
        """Have the texts of a file embedded, which are all of one kind, and return the name of the job."""

    @abstractmethod
    async def look(self, job: str) -> JobState:
        """Return how a job stands."""

    @abstractmethod
    async def read(self, file: str, reader: Reader[T]) -> T:
        """Return what `reader` makes of a file of results."""

    @abstractmethod
    def parsed(self, line: bytes) -> JobLine:
        """Return a line of the results as a value.

        Raises:
            ValidationError: it is no such line.
        """


def _joined(parts: Sequence[FilePart], boundary: str) -> bytes:
    """Return the body of several parts (RFC 2046, 5.1)."""
    body = bytearray()
    for part in parts:
        headers = "".join(f"{name}: {value}\r\n" for name, value in part.headers.items())
        body += f"--{boundary}\r\n{headers}\r\n".encode() + part.content + b"\r\n"
    return bytes(body + f"--{boundary}--\r\n".encode())
