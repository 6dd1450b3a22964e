"""Queries as the ops log tells of them: all that a ranking was made of, and the ranking."""

from importlib import import_module
from typing import TYPE_CHECKING

from composable_memory_feedback.logged.queries import (
    LoggedExperiment,
    LoggedList,
    LoggedQuery,
    RankedHit,
    Ranker,
    RankingPolicy,
)

if TYPE_CHECKING:
    from composable_memory_feedback.logged.reading import (
        LineTest,
        QueryStream,
        TrafficItem,
        read_queries,
        read_traffic,
    )
    from composable_memory_feedback.logged.traffic import (
        LoggedAnswer,
        LoggedDelivery,
        LoggedQueries,
        LoggedRead,
        Traffic,
    )

__all__ = [
    "LineTest",
    "LoggedAnswer",
    "LoggedDelivery",
    "LoggedExperiment",
    "LoggedList",
    "LoggedQueries",
    "LoggedQuery",
    "LoggedRead",
    "QueryStream",
    "RankedHit",
    "Ranker",
    "RankingPolicy",
    "Traffic",
    "TrafficItem",
    "read_queries",
    "read_traffic",
]

_ROOMS = {
    "reading": "LineTest QueryStream TrafficItem read_queries read_traffic",
    "traffic": "LoggedAnswer LoggedDelivery LoggedQueries LoggedRead Traffic",
}

if not TYPE_CHECKING:  # a type checker would take this for a promise of any name

    def __getattr__(name: str) -> object:
        """Import what is asked for: the store, which every search looks into, reads no log."""
        room = next((room for room, names in _ROOMS.items() if name in names.split()), None)
        if room is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{room}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
