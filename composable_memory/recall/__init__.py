"""What is known of somebody, or of a time: retained lines, facts and passages, each with its source."""

from composable_memory.recall.items import (
    RECALL_KINDS,
    Recall,
    RecalledItem,
    RecallKind,
)

__all__ = ["RECALL_KINDS", "Recall", "RecallKind", "RecalledItem"]
