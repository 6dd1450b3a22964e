"""The command line: `composable-memory`, or `cmem` for short."""

import sys

from composable_memory.cli.app import app
from composable_memory.cli.screen import complain, prepare_streams

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; exits with 0 fine, 1 failed, 2 bad usage, 3 degraded, 130 interrupted."""
    prepare_streams()
    try:
        app()
    except Exception as error:
        if sys.flags.dev_mode:
            raise
        complain(f"unexpected {type(error).__name__}: {error} (PYTHONDEVMODE=1 shows where)")
        sys.exit(1)
