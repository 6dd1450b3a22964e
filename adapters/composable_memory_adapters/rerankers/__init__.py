"""Judges of passages that were found, each behind an entry point of `composable_memory.rerankers`."""

from contextlib import AbstractAsyncContextManager

from composable_memory.interfaces import Reranker, RerankerSpec, RerankServices
from composable_memory_adapters.rerankers.token_states import what_is_missing

__all__ = ["spec"]


def _open(services: RerankServices) -> AbstractAsyncContextManager[Reranker]:
    # Imported when it is opened: a command that finds the extra missing does not pay for numpy.
    from composable_memory_adapters.rerankers.late_interaction import open_late_interaction

    return open_late_interaction(services)


spec = RerankerSpec(
    id="late-interaction",
    summary="Compares the words of query and passage in context, by a small model on this machine.",
    open=_open,
    missing=what_is_missing,
)
