"""Memories as components of agent frameworks: one module and one extra for each framework."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["needs_extra"]


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Raise an error that names the extra to install if an import inside fails."""
    try:
        yield
    except ModuleNotFoundError as problem:
        told = f"{problem.name} is not installed; run: pip install 'composable-memory[{extra}]'"
        raise ModuleNotFoundError(told, name=problem.name) from problem
