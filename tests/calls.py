"""Which functions are called, for tests of what a query goes through."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["watching_calls"]


@contextmanager
def watching_calls() -> Iterator[set[object]]:
    """Yield the code of every function that is called meanwhile, in any thread."""
    called: set[object] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            called.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield called
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
