"""How the results of one backend did on one day: the sums that advice begins with."""

from dataclasses import dataclass
from datetime import date
from typing import Literal

from composable_memory_feedback.intents import IntentKind

__all__ = ["BackendDay", "KindGroup"]

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
