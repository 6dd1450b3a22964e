"""The input and output of embedding providers and vector stores."""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Literal

from composable_memory.types import JsonValue
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRecord:
    """A vector to keep under an id."""

    id: str
    values: Sequence[float]
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorQuery:
    """Asks for the `top_k` nearest; `filter` keeps records whose metadata equals every given value."""

    vector: Sequence[float]
    top_k: int
    filter: Mapping[str, JsonValue] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorMatch:
    """A near record; `score` is the cosine similarity, in [-1, 1]."""

    id: str
    score: float
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorQueryResult:
    """The nearest records, best first."""

    matches: tuple[VectorMatch, ...] = ()


MAX_QUESTION_CHARS = 8_000
"""How much of a question is embedded; splitting a megabyte into tokens takes seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedderInput:
    """A text to embed; `kind` distinguishes a question from a stored passage."""

    text: str
    id: str | None = None
    kind: Literal["query", "document"] = "document"
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """Whether a service answers, and what it said."""

    ok: bool
    message: str | None = None
