"""Writing that fails, as on a full disk."""

import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["no_file_longer_than"]


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    """Let writing fail as it does on a full disk."""
    limits, before = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
