"""Queries as the ops log tells of them: all that a ranking was made of, and the ranking."""

from typing import TYPE_CHECKING

from composable_memory_feedback.logged.logged_query import (
    LoggedAnswer,
    LoggedExperiment,
    LoggedList,
    LoggedQueries,
    LoggedQuery,
    LoggedRead,
    RankedHit,
    Ranker,
    RankingPolicy,
)
from composable_memory_ops_logs.lazy_names import lazy_names

if TYPE_CHECKING:
    from composable_memory_feedback.logged.reading import LineTest, QueryStream, TrafficItem, read_queries

__all__ = [
    "LineTest",
    "LoggedAnswer",
    "LoggedExperiment",
    "LoggedList",
    "LoggedQueries",
    "LoggedQuery",
    "LoggedRead",
    "QueryStream",
    "RankedHit",
    "Ranker",
    "RankingPolicy",
    "TrafficItem",
    "read_queries",
]

if not TYPE_CHECKING:
    # The store, which every search looks into, reads no log.
    __getattr__, __dir__ = lazy_names(__name__, {"reading": "LineTest QueryStream TrafficItem read_queries"})
