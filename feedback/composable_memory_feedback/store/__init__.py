"""The feedback store: judgements, evaluations, weights and experiments in one SQLite file."""

from composable_memory_feedback.judgements import BackendDay
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_feedback.store.stored_values import (
    Evaluation,
    StoredWeights,
    WeightChange,
)

__all__ = [
    "BackendDay",
    "Evaluation",
    "FeedbackStore",
    "StoredWeights",
    "WeightChange",
]
