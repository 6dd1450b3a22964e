"""Memories in the forms that agent frameworks know: one module for each framework, an extra each."""

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["needs_extra"]


@contextmanager
def needs_extra(extra: str) -> Iterator[None]:
    """Say how to install what the imports inside lack."""
    try:
        yield
    except ModuleNotFoundError as problem:
        told = f"{problem.name} is not installed; run: pip install 'composable-memory[{extra}]'"
        raise ModuleNotFoundError(told, name=problem.name) from problem
