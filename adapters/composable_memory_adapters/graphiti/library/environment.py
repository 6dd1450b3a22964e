"""Keeps graphiti-core from reading the environment, from filling it out of a `.env`, and from telling."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

__all__ = ["undisturbed"]

SILENCED = {"GRAPHITI_TELEMETRY_ENABLED": "false", "PYTHON_DOTENV_DISABLED": "1"}
HIDDEN = (
    "CHUNK_DENSITY_THRESHOLD",
    "CHUNK_MIN_TOKENS",
    "CHUNK_OVERLAP_TOKENS",
    "CHUNK_TOKEN_SIZE",
    "EMBEDDING_DIM",
    "SEMAPHORE_LIMIT",
    "USE_PARALLEL_RUNTIME",
)
"""What it reads when it is imported: a wrong one would keep it from being imported at all."""

_one_at_a_time = Lock()


@contextmanager
def undisturbed() -> Iterator[None]:
    """Run a block in which graphiti-core is imported or opened; afterwards the environment is as it was."""
    with _one_at_a_time:
        before = dict(os.environ)
        os.environ.update(SILENCED)
        for name in HIDDEN:
            os.environ.pop(name, None)
        try:
            yield
        finally:
            _restore(before)


def _restore(before: dict[str, str]) -> None:
    for name in os.environ.keys() - before.keys():
        del os.environ[name]
    for name, value in before.items():
        if os.environ.get(name) != value:
            os.environ[name] = value
