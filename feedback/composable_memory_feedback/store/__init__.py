"""The feedback store: judgements, evaluations, weights and experiments in one SQLite file."""

from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_feedback.store.values import (
    AuditEntry,
    BackendDay,
    Evaluation,
    ShadowRecord,
    StoredWeights,
    WeightChange,
)

__all__ = [
    "AuditEntry",
    "BackendDay",
    "Evaluation",
    "FeedbackStore",
    "ShadowRecord",
    "StoredWeights",
    "WeightChange",
]
