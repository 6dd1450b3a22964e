"""Reads the results of a job line by line: they may be too many to be held as text."""

from array import array
from collections.abc import AsyncIterator, Callable, Container
from dataclasses import dataclass, field

from pydantic import ValidationError

from composable_memory_adapters.embedders.jobs.api import JobLine
from composable_memory_adapters.embedders.remote.embedder import Vector
from composable_memory_adapters.embedders.remote.refusals import HttpFailure, Trouble

__all__ = ["JobResults", "ResultReader"]

MAX_LINE_BYTES = 4 * 2**20
"""A vector of 65,536 numbers, the longest that can be asked for, takes less than half of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResults:
    """The vectors of a job by the ids of their texts; a number takes 8 bytes here, and 32 in a list.

    `complaint` is the first thing that was wrong with a line, with every secret still in it.
    """

    vectors: dict[str, "array[float]"] = field(default_factory=dict)
    complaint: str = ""

    def followed_by(self, more: "JobResults") -> "JobResults":
        """Return both together."""
        return JobResults(vectors=self.vectors | more.vectors, complaint=self.complaint or more.complaint)


class ResultReader:
    """Makes results of a file. `checked` returns a vector as it is wanted, or raises what is wrong."""

    def __init__(
        self,
        parsed: Callable[[bytes], JobLine],
        *,
        wanted: Container[str],
        checked: Callable[[Vector], Vector],
    ) -> None:
        self._parsed = parsed
        self._wanted = wanted
        self._checked = checked

    async def __call__(self, parts: AsyncIterator[bytes]) -> JobResults:
        """Return the results in a file that comes in parts.

        Raises:
            DimensionMismatch: a vector has another length than promised.
            HttpFailure: a line does not end, or the file breaks off.
        """
        vectors: dict[str, array[float]] = {}
        complaint = ""
        async for line in _lines(parts):
            try:
                result = self._parsed(line)
            except ValidationError as error:
                complaint = complaint or f"a line cannot be read: {_first(error)}"
                continue
            if result.vector is None:
                complaint = complaint or result.problem
            elif result.text_id in self._wanted:
                vectors[result.text_id] = array("d", self._checked(result.vector))
        return JobResults(vectors=vectors, complaint=complaint)


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    begun = b""
    async for part in parts:
        *lines, begun = (begun + part).split(b"\n")
        for line in filter(bytes.strip, lines):
            yield line
        if len(begun) > MAX_LINE_BYTES:
            raise HttpFailure(Trouble.TOO_LARGE, f"sent a line of more than {MAX_LINE_BYTES // 2**20} MiB")
    if begun.strip():
        yield begun


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    where = ".".join(map(str, first["loc"])) or "JSON"
    return f"{where}: {first['msg']}"
