"""Names the traces that any memory of a state folder has judgements of; the log keeps their lines."""

from pathlib import Path

from composable_memory_feedback.errors import FeedbackError

__all__ = ["judged_traces"]


def judged_traces(state_dir: Path) -> frozenset[str]:
    """Return the ids of judged traces.

    Raises:
        OSError: a store cannot be read, so that it cannot be told.
    """
    # Asked by the thread of the log, and only before it deletes something.
    from composable_memory_feedback.store import FeedbackStore

    traces: set[str] = set()
    for path in sorted((state_dir / "memory").glob("feedback-*.sqlite")):
        try:
            with FeedbackStore.open(path) as store:
                traces |= store.judged_traces()
        except FeedbackError as error:
            raise OSError(f"nothing of the log is deleted, since {error}") from error
    return frozenset(traces)
