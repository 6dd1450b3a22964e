"""Rerankers, each behind an entry point of `composable_memory.rerankers`."""

from composable_memory.interfaces import RerankerSpec
from composable_memory.supervision.resource import lazy_open
from composable_memory_adapters.rerankers.token_states import what_is_missing

__all__ = ["spec"]


spec = RerankerSpec(
    id="late-interaction",
    summary="Compares the words of query and passage in context, with a small model on this machine.",
    open=lazy_open("composable_memory_adapters.rerankers.late_interaction:open_late_interaction"),
    missing=what_is_missing,
)
