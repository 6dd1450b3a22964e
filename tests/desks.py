"""A desk for memories under test that learn nothing: it has no log, and its store is never opened."""

from pathlib import Path

from composable_memory.feedback_settings import FeedbackSettings
from composable_memory.learning.desk import LearningDesk
from composable_memory.weights import WeightTable
from composable_memory_ops_logs import OpsLog, utc_now


def idle_desk(ops_log: OpsLog) -> LearningDesk:
    """Return a desk of no backends."""
    return LearningDesk(
        mark="main-test",
        settings=FeedbackSettings(),
        base=WeightTable.fixed({}),
        backends=(),
        ops_log=ops_log,
        log_dir=None,
        store_path=Path("nowhere.sqlite"),
        clock=utc_now,
    )
