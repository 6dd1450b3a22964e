"""Judgements that nobody had to give: what was read, quoted, or asked again after a search."""

from composable_memory_feedback.signals.implicit_feedback import gather, gather_parts
from composable_memory_feedback.signals.quoting import ShownText, quoted_places

__all__ = ["ShownText", "gather", "gather_parts", "quoted_places"]
