"""Weights that learn: judgements, advice, replay and experiments on the log and store of a memory.

The package `composable_memory_feedback` below makes the decisions, as pure functions: what a judgement
counts, which weights to advise. This package fetches their input and applies them to an open memory.
"""

from typing import TYPE_CHECKING

from composable_memory_ops_logs.lazy import lazy_names

if TYPE_CHECKING:
    from composable_memory.learning.active_weights import WeightsReport
    from composable_memory.learning.advising import Advice
    from composable_memory.learning.golden_questions import GoldenRun, QuestionScore
    from composable_memory.learning.judging import EvaluationRun, LearningStats, OutcomeCallback, TextReader
    from composable_memory.learning.service import Learning, open_learning

__all__ = [
    "Advice",
    "EvaluationRun",
    "GoldenRun",
    "Learning",
    "LearningStats",
    "OutcomeCallback",
    "QuestionScore",
    "TextReader",
    "WeightsReport",
    "open_learning",
]

_MODULES = {
    "active_weights": "WeightsReport",
    "advising": "Advice",
    "golden_questions": "GoldenRun QuestionScore",
    "judging": "EvaluationRun LearningStats OutcomeCallback TextReader",
    "service": "Learning open_learning",
}
"""Imported on demand: a search only needs the active weights, which load in a tenth of the time."""

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
