"""Judgements: how well one result answered one query, who says so, and how much that tells."""

from datetime import date, datetime
from enum import StrEnum
from typing import Literal

from composable_memory_feedback.intents import IntentKind
from composable_memory_ops_logs import place_key
from composable_memory_ops_logs.quick_dataclass import dataclass

RELEVANT = 0.5
"""A result is relevant when its relevance is greater."""


class JudgementKind(StrEnum):
    """Who or what says how well a result answered."""

    EXPLICIT = "explicit"
    """A person or an agent said so."""
    GOLDEN = "golden"
    """It is known from a question with known answers."""
    MODEL = "model"
    """A language model judged it."""
    OPENED = "opened"
    """It was read after the search."""
    QUOTED = "quoted"
    """Its words stand in the answer that was given."""
    REQUERIED = "requeried"
    """The question was put again in other words; what was shown did not do."""

    @property
    def is_implicit(self) -> bool:
        """Return whether it was inferred from what happened; such signals depend on the place of a result."""
        return self in (JudgementKind.OPENED, JudgementKind.QUOTED, JudgementKind.REQUERIED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """How relevant one result was to its query, from 0 to 1.

    The place of the result is the passage that was delivered; `rank` is where it stood, from 1, or the place
    after the last for what was found and not delivered. `backend` is who brought it, or None where a fallback
    did, whom the judgement says nothing about.
    """

    trace_id: str
    query_id: str
    at: datetime
    path: str
    start_line: int
    end_line: int
    rank: int
    backend: str | None
    intent: IntentKind
    kind: JudgementKind
    relevance: float
    was_used: bool = False
    rationale: str = ""
    by: str = ""
    """The model, or the person, that judged."""
    start_char: int = 0
    """Where in its first line a piece of a long line begins."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.relevance <= 1.0:
            raise ValueError(f"a relevance is from 0 to 1, not {self.relevance}")

    @property
    def key(self) -> str:
        """Return `path:start_line:end_line`, and `:start_char` for a piece that begins within a line."""
        return place_key(self.path, self.start_line, self.end_line, self.start_char)


KindGroup = Literal["judged", "implicit"]
"""Judged by somebody (a person, known answers, a model), or inferred from what happened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendDay:
    """How the results of one backend did in the queries of one kind that were judged on one day (UTC).

    `precision` (the share of relevant results) and `mean_relevance` are means over the queries, each from
    0 to 1; `used` and `results` are sums over them.
    """

    day: date
    backend: str
    intent: IntentKind
    queries: int
    precision: float
    mean_relevance: float
    used: int
    results: int
    """How many results were judged."""
    group: KindGroup = "judged"
