"""The command line: `composable-memory`, or `cmem` for short."""

import gc
import sys

from composable_memory.cli.app import app
from composable_memory.cli.screen import complain, prepare_streams

__all__ = ["app", "main"]

GC_THRESHOLD = 200_000
"""So many more objects than at the last look for garbage are worth another; a search makes half of that."""


def main() -> None:
    """Run the command line; exits with 0 fine, 1 failed, 2 bad usage, 3 degraded, 130 interrupted."""
    # Python looks for garbage after every 700 new objects and again at the end: a quarter of a search's time.
    gc.set_threshold(GC_THRESHOLD)
    prepare_streams()
    try:
        app()
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        complain(f"unexpected {type(error).__name__}: {error} (PYTHONDEVMODE=1 shows where)")
        sys.exit(1)
    finally:
        gc.freeze()  # what is left ends with the process
