"""The batch job API of one provider: creating a job, polling it, and reading its results.

A provider that takes jobs takes a file with one text per line, and returns a file with one vector per line.
"""

import json
from abc import ABC, abstractmethod
from array import array
from collections.abc import AsyncIterator, Callable, Container, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ValidationError

from composable_memory.content import EmbedderInput
from composable_memory.json_documents import problems_in
from composable_memory_adapters.embedders.remote.embedder import (
    KINDS,
    Kind,
    RemoteEmbedder,
    Vector,
    grouped,
    truncated,
)
from composable_memory_adapters.http_client import Connection, HttpRequest, Reader, read_whole
from composable_memory_adapters.http_failures import FailureKind, HttpFailure
from composable_memory_ops_logs.quick_dataclass import dataclass

T = TypeVar("T")
AnswerT = TypeVar("AnswerT", bound=BaseModel)

FILE_TIMEOUT_S = 1800.0
"""At half a megabit a second, a file of a hundred megabytes takes this long."""


class JobPhase(StrEnum):
    """The phase of a job."""

    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """The provider does not know the job, or no longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobState:
    """The state of a job; `detail` is the provider's reason for a failure, with secrets not masked yet.

    `files` hold its results. A failed job may have some too.
    """

    phase: JobPhase
    name: str = ""
    detail: str = ""
    files: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultLine:
    """One line of the results: a text's vector, or why there is none."""

    text_id: str
    vector: list[float] | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart:
    """One part of a multipart body."""

    headers: Mapping[str, str]
    content: bytes


class JobClient:
    """Sends job requests. A job belongs to the account of its key, so only the first key is used.

    Every method raises `HttpFailure` if the request fails, and `EmbeddingError` for an unusable answer.
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
        """Send a body of type `multipart/<subtype>` and return the answer."""
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
    """The batch jobs of one provider. The methods raise the same errors as those of `JobClient`."""

    max_file_bytes: ClassVar[int] = 100_000_000
    """OpenAI takes files of 200 MB, Voyage of 1 GB, Gemini of 2 GB; but an upload must be held in memory."""
    lifetime: ClassVar[timedelta]
    """How long a job may be useful: the provider's maximum run time, and a day to fetch the results."""

    @abstractmethod
    def line(self, text_id: str, text: str, kind: Kind) -> Mapping[str, object]:
        """Return a text's line in the input file."""

    @abstractmethod
    async def upload(self, content: bytes) -> str:
        """Upload a file and return the provider's name for it."""

    @abstractmethod
    async def create(self, file: str, kind: Kind) -> str:
        """Create a job for an uploaded file, whose texts are all of one kind; return the job's name."""

    @abstractmethod
    async def state(self, job: str) -> JobState:
        """Return the state of a job."""

    @abstractmethod
    async def read(self, file: str, reader: Reader[T]) -> T:
        """Return what `reader` makes of a result file."""

    @abstractmethod
    def parsed(self, line: bytes) -> ResultLine:
        """Parse a line of the results.

        Raises:
            ValidationError: it is not a valid line.
        """


def _multipart(parts: Sequence[FilePart], boundary: str) -> bytes:
    """Build a multipart body (RFC 2046, 5.1)."""
    body = bytearray()
    for part in parts:
        headers = "".join(f"{name}: {value}\r\n" for name, value in part.headers.items())
        body += f"--{boundary}\r\n{headers}\r\n".encode() + part.content + b"\r\n"
    return bytes(body + f"--{boundary}--\r\n".encode())


LineOf = Callable[[str, str, Kind], Mapping[str, object]]
"""Builds the line for an id, a text and its kind."""

MAX_LINE_BYTES = 4 * 2**20
"""A vector of 65,536 numbers, the longest possible, takes less than half of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInputs:
    """Each input's id (None for a blank one), and each distinct text as it is sent."""

    ids: Sequence[str | None]
    texts: Mapping[str, EmbedderInput]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """The file for one job: texts of one kind, and their ids."""

    kind: Kind
    ids: frozenset[str]
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResults:
    """A job's vectors by the ids of their texts, as arrays: a number takes 8 bytes, instead of 32 in a list.

    `problem` is the first thing that was wrong with a line, with secrets not masked yet.
    """

    vectors: dict[str, "array[float]"] = field(default_factory=dict)
    problem: str = ""

    def followed_by(self, more: "JobResults") -> "JobResults":
        """Return both combined."""
        return JobResults(vectors=self.vectors | more.vectors, problem=self.problem or more.problem)


def job_inputs(inputs: Sequence[EmbedderInput], max_text_bytes: int) -> JobInputs:
    """Return the texts as they are sent. An id is a hash of what is sent: equal ids mean equal vectors.

    A passage's id is its SHA-256; a query with the same text has a different id.
    """
    ids: list[str | None] = []
    texts: dict[str, EmbedderInput] = {}
    for item in inputs:
        text = truncated(item.text, max_text_bytes)
        text_id = _id(text, item.kind) if text.strip() else None
        ids.append(text_id)
        if text_id is not None:
            texts[text_id] = EmbedderInput(text=text, kind=item.kind)
    return JobInputs(ids=ids, texts=texts)


def input_files(
    texts: Mapping[str, EmbedderInput], line_of: LineOf, *, max_texts: int, max_bytes: int
) -> Iterator[InputFile]:
    """Yield the files to upload; a line longer than `max_bytes` gets a file of its own."""
    for kind in KINDS:
        ids = [text_id for text_id, text in texts.items() if text.kind == kind]
        lines = [_dumped(line_of(text_id, texts[text_id].text, kind)) for text_id in ids]
        for part in grouped(lines, max_texts=max_texts, max_bytes=max_bytes):
            content = "".join(lines[part.start : part.stop]).encode()
            yield InputFile(kind=kind, ids=frozenset(ids[part.start : part.stop]), content=content)


async def read_results(
    chunks: AsyncIterator[bytes],
    *,
    parse: Callable[[bytes], ResultLine],
    wanted: Container[str],
    check: Callable[[Vector], Vector],
) -> JobResults:
    """Read the results from a file line by line: there may be too many to hold as text.

    `check` returns a vector in its final form, or raises an error.

    Raises:
        DimensionMismatch: a vector does not have the promised length.
        HttpFailure: a line does not end, or the file is truncated.
    """
    vectors: dict[str, array[float]] = {}
    problem = ""
    async for line in _lines(chunks):
        try:
            result = parse(line)
        except ValidationError as error:
            problem = problem or f"a line cannot be read: {problems_in(error, 'JSON')[0]}"
            continue
        if result.vector is None:
            problem = problem or result.problem
        elif result.text_id in wanted:
            vectors[result.text_id] = array("d", check(result.vector))
    return JobResults(vectors=vectors, problem=problem)


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in filter(bytes.strip, lines):
            yield line
        if len(rest) > MAX_LINE_BYTES:
            problem = f"sent a line of more than {MAX_LINE_BYTES // 2**20} MiB"
            raise HttpFailure(FailureKind.TOO_LARGE, problem)
    if rest.strip():
        yield rest


def _id(text: str, kind: Kind) -> str:
    named = text if kind == "document" else f"{kind}: {text}"
    return sha256(named.encode()).hexdigest()


def _dumped(line: Mapping[str, object]) -> str:
    return json.dumps(line, ensure_ascii=False) + "\n"
