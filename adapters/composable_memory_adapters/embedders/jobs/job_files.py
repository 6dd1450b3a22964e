"""The files of jobs: texts become files to upload, and downloaded files become vectors."""

import json
from array import array
from collections.abc import AsyncIterator, Callable, Container, Iterator, Mapping, Sequence
from dataclasses import field
from hashlib import sha256

from pydantic import ValidationError

from composable_memory.content import EmbedderInput
from composable_memory_adapters.embedders.jobs.api import ResultLine
from composable_memory_adapters.embedders.remote.batching import KINDS, Kind, Vector, grouped, truncated
from composable_memory_adapters.embedders.remote.provider_errors import first_problem
from composable_memory_adapters.http_failures import FailureKind, HttpFailure
from composable_memory_ops_logs.quick_dataclass import dataclass

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
            problem = problem or f"a line cannot be read: {first_problem(error)}"
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
