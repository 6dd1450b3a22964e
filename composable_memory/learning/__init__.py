"""Weights that learn: judgements, advice, replay and experiments, over the log and the store of a memory."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from composable_memory.learning.active_weights import WeightsReport
    from composable_memory.learning.judging import OutcomeCallback, TextReader
    from composable_memory.learning.service import Learning, open_learning
    from composable_memory.learning.values import (
        Advice,
        EvaluationRun,
        GoldenRun,
        LearningStats,
        QuestionScore,
        ReplayRun,
    )

__all__ = [
    "Advice",
    "EvaluationRun",
    "GoldenRun",
    "Learning",
    "LearningStats",
    "OutcomeCallback",
    "QuestionScore",
    "ReplayRun",
    "TextReader",
    "WeightsReport",
    "open_learning",
]

_ROOMS = {
    "active_weights": "WeightsReport",
    "judging": "OutcomeCallback TextReader",
    "service": "Learning open_learning",
    "values": "Advice EvaluationRun GoldenRun LearningStats QuestionScore ReplayRun",
}

if not TYPE_CHECKING:  # a type checker would take this for a promise of any name

    def __getattr__(name: str) -> object:
        """Import what is asked for: a search needs only the weights in force, in a tenth of the time."""
        room = next((room for room, names in _ROOMS.items() if name in names.split()), None)
        if room is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{room}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
