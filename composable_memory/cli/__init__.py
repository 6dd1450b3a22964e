"""The command line: `composable-memory`, or `cmem` for short."""

import gc
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from composable_memory_ops_logs.lazy import lazy_names

if TYPE_CHECKING:
    from composable_memory.cli.commands import app

__all__ = ["app", "main"]

GC_THRESHOLD = 200_000
"""Run the garbage collector after this many more objects; a search creates half as many."""

LEAST_OPEN_FILES = 32
"""With fewer, parts of the program cannot even be imported when they are needed."""


FIX = "write it in this encoding, or set LC_ALL=C.UTF-8"


def _is_text(argument: str) -> bool:
    """Return whether an argument could be decoded; undecodable bytes become lone surrogates."""
    return not any("\ud800" <= char <= "\udfff" for char in argument)


def main() -> None:
    """Run the command line; exits with 0 fine, 1 failed, 2 bad usage, 3 degraded, 130 interrupted."""
    # By default Python collects garbage after every 700 new objects and at exit: a quarter of a search's
    # time, part of it during these imports.
    gc.set_threshold(GC_THRESHOLD)
    # Otherwise pydantic would scan all installed packages for its own plug-ins.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # One numpy thread per core costs more time than it ever saves for products of this size.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from composable_memory.cli.commands import app
    from composable_memory.cli.output import error, prepare_streams

    prepare_streams()
    if (limit := _open_files_limit()) < LEAST_OPEN_FILES:
        error(f"this process may open only {limit} files; allow {LEAST_OPEN_FILES} (`ulimit -n`)")
        sys.exit(1)
    for argument in sys.argv[1:]:
        if not _is_text(argument) and not os.path.lexists(
            argument.rpartition("=")[2]
        ):  # a file may have this name
            error(
                f"the argument {argument!r} is not valid text in the encoding "
                f"{sys.getfilesystemencoding()}; {FIX}"
            )
            sys.exit(2)
    try:
        app()
    except Exception as problem:
        if sys.flags.dev_mode:
            raise
        error(f"unexpected {type(problem).__name__}: {problem} (PYTHONDEVMODE=1 shows where)")
        sys.exit(1)
    finally:
        gc.freeze()  # the process is about to end anyway


def _open_files_limit() -> int:
    """Return how many files this process may have open; if the system does not say, enough."""
    with suppress(ImportError):
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return LEAST_OPEN_FILES if limit == resource.RLIM_INFINITY else limit
    return LEAST_OPEN_FILES


if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {"commands": "app"})
