"""Lines of the log as they must be to be believed; what does not fit its model is a `ValueError`.

Unknown fields are passed over, so that lines of later versions can be read. Numbers are checked as far as a
ranking or a learner could go wrong, or on for ever, with them.
"""

from collections.abc import Iterable
from operator import itemgetter
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel

from composable_memory_ops_logs import TakenFrom

Count = Annotated[int, Field(ge=0)]
Weights = dict[str, Annotated[float, Field(ge=0.0)]]


class Line(BaseModel):
    """What is particular to a line: camelCase on disk, and of exactly the types that are written."""

    model_config = ConfigDict(alias_generator=to_camel, strict=True, frozen=True, allow_inf_nan=False)


class QueryStartLine(Line):
    """A `query.start`."""

    query: str
    active_backends: list[str]
    weights_version: str | int | None = None
    manager: str
    query_id: str
    memory: str | None = None


class PlaceLine(Line):
    """Lines of a file."""

    path: str
    start_line: Count
    end_line: Count
    start_char: Count | None = None

    @property
    def place(self) -> TakenFrom:
        """Return the value."""
        return TakenFrom(self.path, self.start_line, self.end_line, self.start_char)


class CandidateColumns(Line):
    """The candidates of a `query.backend_result`, by column: checked several times as fast as one by one."""

    path: tuple[str, ...] = ()
    start_line: tuple[Count, ...] = ()
    end_line: tuple[Count, ...] = ()
    score: tuple[float, ...] = ()
    rank: tuple[Annotated[int, Field(ge=1)], ...] = ()
    source: tuple[str, ...] = ()
    snippet_preview: tuple[str, ...] = ()
    content_hash: tuple[str | None, ...] = ()
    exact: tuple[bool, ...] = ()
    origin: tuple[PlaceLine | None, ...] = ()
    start_char: tuple[Count | None, ...] = ()
    outdated: tuple[list[PlaceLine] | None, ...] = ()

    @classmethod
    def by_column(cls, rows: object) -> dict[str, tuple[object, ...]]:
        """Turn candidates into columns; one that none of them has is left out.

        Raises:
            ValueError: they are no list of objects that have what every candidate has.
        """
        if not isinstance(rows, list) or {*map(type, rows)} - {dict}:
            raise ValueError("candidates are a list of objects")
        try:
            columns = dict(zip(_REQUIRED, zip(*map(_required, rows), strict=True), strict=bool(rows)))
        except KeyError as error:
            raise ValueError(f"a candidate has no {error}") from error
        for name in _OPTIONAL.keys() & set[object]().union(*rows):
            columns[name] = tuple(row.get(name, _OPTIONAL[name]) for row in rows)
        return columns


_REQUIRED = ("path", "startLine", "endLine", "score", "rank", "source", "snippetPreview")
_required = itemgetter(*_REQUIRED)
_OPTIONAL = {"contentHash": None, "exact": False, "origin": None, "startChar": None, "outdated": None}


class ErrorLine(Line):
    """An error, by its class and its message."""

    type: str
    message: str


class AnswerOfBackend(Line):
    """What a backend answered, but for its candidates."""

    depth: Count
    error: ErrorLine | None = None
    calibration: str
    is_absolute: bool
    answered_by: str | None = None


class BackendLine(AnswerOfBackend):
    """A `query.backend_result`."""

    results: Annotated[CandidateColumns, BeforeValidator(CandidateColumns.by_column)]


class ShortAnswer(AnswerOfBackend):
    """What a backend answered, within a `query.merged` in the short form."""

    backend: str
    found: list[Count]
    scores: list[float]
    exact: list[Count] | None = None


class FinalLine(PlaceLine):
    """A result of a `query.merged`."""

    score: float
    backend: str
    calibrated_score: float
    backend_rank: Count = 0
    merged_with: list[str] = []


class PairLine(Line):
    """Two places of candidates."""

    one: Count
    other: Count


class ExperimentLine(Line):
    """How a list was drawn from two rankings."""

    id: str
    weights_a: Weights
    weights_b: Weights
    seed: int
    teams: list[Literal["a", "b", "-"]]


class DegradedLine(Line):
    """A backend that answered with less than it can."""

    backend: str
    reason: str


class MergedLine(Line):
    """A `query.merged`. A depth of 0 could be doubled for ever, so there is none."""

    fusion: str
    weights: Weights
    dedup: str
    min_score: Annotated[float, Field(ge=0.0, le=1.0)]
    max_results: Annotated[int, Field(ge=1)]
    depth: Annotated[int, Field(ge=1)]
    rrf_k: Count
    degraded: list[DegradedLine] = []
    intent_kind: str | None = None
    experiment: ExperimentLine | None = None
    rules: Count = 1

    @property
    def near_pairs(self) -> Iterable[tuple[int, int]]:
        """Return the places of candidates that are nearly equal."""
        raise NotImplementedError


class LongMergedLine(MergedLine):
    """One that has the lines of its backends beside it."""

    final_results: list[FinalLine]
    dropped: list[dict[str, object]] = []
    near: list[PairLine]

    @property
    def near_pairs(self) -> Iterable[tuple[int, int]]:
        """Return the places of candidates that are nearly equal."""
        return ((pair.one, pair.other) for pair in self.near)


class ShortMergedLine(MergedLine):
    """One in the short form, with all that `read_short` makes candidates of."""

    backends: list[ShortAnswer]
    shown: list[Any]
    ruled_out: list[Any]
    near: list[Count]
    paths: list[str]
    places: list[Count]
    previews: list[str]
    # Pydantic copies a default that is a list, for every line.
    sources: dict[str, list[Count]] | None = None
    origins: list[Count] | None = None
    start_chars: list[Count] | None = None
    outdated: list[Count] | None = None

    @property
    def near_pairs(self) -> Iterable[tuple[int, int]]:
        """Return the places of candidates that are nearly equal."""
        return zip(self.near[::2], self.near[1::2], strict=True)


class ReadLine(Line):
    """A `memory.read`."""

    path: str
    from_line: int | None = None
    lines: int | None = None
    query_trace_id: str | None = None
    memory: str | None = None


class AnswerLine(Line):
    """An `answer.given`."""

    query_trace_id: str
    quoted: list[PlaceLine] = []
