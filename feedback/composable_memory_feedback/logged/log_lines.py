"""Lines of the log as they must be to be believed; what does not fit its model is a `ValueError`.

Unknown fields are passed over, so that lines of later versions can be read. Numbers are checked as far as a
ranking or a learner could go wrong, or on for ever, with them.
"""

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
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
    query_id: Annotated[str, Field(min_length=1)]
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


class ErrorLine(Line):
    """An error, by its class and its message."""

    type: str
    message: str


class ShortAnswer(Line):
    """What a backend answered, within a `query.merged`."""

    backend: str
    depth: Count
    error: ErrorLine | None = None
    calibration: str
    is_absolute: bool
    answered_by: str | None = None
    found: list[Count]
    scores: list[float]
    exact: list[Count] | None = None


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
    """A `query.merged` in the short form, with all that `ShortRanking` makes candidates of.

    A depth of 0 could be doubled for ever, so there is none.
    """

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
