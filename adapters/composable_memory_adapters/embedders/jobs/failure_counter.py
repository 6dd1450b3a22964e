"""Counts the failures of jobs, and ends them when there were too many."""

from composable_memory.errors import EmbeddingError

__all__ = ["FAILURE_LIMIT", "JobTally"]

FAILURE_LIMIT = 2
"""After so many failures in a row, jobs are off for the life of the embedder."""


class JobTally:
    """The failures of jobs since the last that succeeded."""

    def __init__(self) -> None:
        self.failures = 0
        self.last_error: str | None = None
        self.is_off = False

    def failed(self, error: EmbeddingError, *, is_final: bool = False) -> None:
        """Count a failure; one that is final, or one too many, ends all jobs."""
        self.failures += 1
        self.last_error = str(error)
        self.is_off = self.is_off or is_final or self.failures >= FAILURE_LIMIT

    def succeeded(self) -> None:
        """Begin to count anew; what was ended stays so."""
        if not self.is_off:
            self.failures, self.last_error = 0, None
