"""A context for memories under test that learn nothing: it has no log, and its store is never opened."""

from pathlib import Path

from composable_memory.config.settings import FeedbackSettings
from composable_memory.learning.context import LearningContext
from composable_memory_feedback.weights import WeightTable
from composable_memory_ops_logs import OpsLog, utc_now


def idle_context(ops_log: OpsLog) -> LearningContext:
    """Return a context of no backends."""
    return LearningContext(
        memory_id="main-test",
        settings=FeedbackSettings(),
        base=WeightTable.fixed({}),
        backends=(),
        ops_log=ops_log,
        log_dir=None,
        store_path=Path("nowhere.sqlite"),
        clock=utc_now,
    )
