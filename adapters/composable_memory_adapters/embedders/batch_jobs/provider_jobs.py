"""The interface to the jobs of one provider: how one is created, polled, and its results read.

A provider that takes jobs takes a file with one text a line, and gives a file with one vector a line.
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


LineOf = Callable[[str, str, Kind], Mapping[str, object]]
"""Returns the line of a file for an id, a text and its kind."""

MAX_LINE_BYTES = 4 * 2**20
"""A vector of 65,536 numbers, the longest that can be asked for, takes less than half of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInputs:
    """The id of the text at each index (None for a blank one), and each text once, as it is sent."""

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
    """The vectors of a job by the ids of their texts; a number takes 8 bytes here, and 32 in a list.

    `problem` is the first thing that was wrong with a line, with every secret still in it.
    """

    vectors: dict[str, "array[float]"] = field(default_factory=dict)
    problem: str = ""

    def followed_by(self, more: "JobResults") -> "JobResults":
        """Return both together."""
        return JobResults(vectors=self.vectors | more.vectors, problem=self.problem or more.problem)


def job_inputs(inputs: Sequence[EmbedderInput], max_text_bytes: int) -> JobInputs:
    """Return the texts as they are sent. An id is made of what is sent: the same id is the same vector.

    The id of a passage is its SHA-256; a question that reads the same has another id.
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
    """Yield the files to upload; a line that is longer than `max_bytes` goes alone."""
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
    """Return the results in a file, read line by line: there may be too many to be held as text.

    `check` returns a vector as it is wanted, or raises what is wrong with it.

    Raises:
        DimensionMismatch: a vector has another length than promised.
        HttpFailure: a line does not end, or the file breaks off.
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
