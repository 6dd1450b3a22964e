"""The feedback store: judgements, evaluations, weights and experiments in one SQLite file."""

from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_feedback.store.values import (
    BackendDay,
    Evaluation,
    ShadowRecord,
    StoredWeights,
    WeightChange,
)

__all__ = [
    "BackendDay",
    "Evaluation",
    "FeedbackStore",
    "ShadowRecord",
    "StoredWeights",
    "WeightChange",
]
