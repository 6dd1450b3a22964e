"""Checks of what a caller hands to a public method, with errors that name the argument and what it takes."""

from collections.abc import Sequence
from types import UnionType

from composable_memory.errors import InvalidArgument


def require(name: str, value: object, kind: type | UnionType, expected: str) -> None:
    """Refuse `value` unless it is of a kind.

    Raises:
        InvalidArgument: it is not.
    """
    if not isinstance(value, kind):
        raise InvalidArgument(name, expected, value)


def require_text(name: str, value: object, *, optional: bool = False) -> None:
    """Refuse what is no text; None passes where the argument is optional."""
    if not (optional and value is None):
        require(name, value, str, "a text")


def require_whole(name: str, value: object, *, optional: bool = False) -> None:
    """Refuse what is no whole number of 1 or more; None passes where the argument is optional."""
    if optional and value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidArgument(name, "a whole number, 1 or more", value)


def require_all(name: str, values: object, kind: type, expected: str) -> None:
    """Refuse what is no list or tuple of a kind; a text is none of texts."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise InvalidArgument(name, expected, values)
    for value in values:
        require(name, value, kind, expected)
