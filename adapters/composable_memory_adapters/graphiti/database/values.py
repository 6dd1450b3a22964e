"""Values on their way into statements and out of answers."""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime

__all__ = ["iso", "plain", "plain_map", "readable"]

NUMBERS = frozenset({bool, float, int})
AS_THEY_ARE = NUMBERS | {str, type(None)}
"""Types that need no look: a vector has hundreds of them."""


def iso(moment: datetime) -> str:
    """Return a time in UTC as the text that graphs hold, which sorts like the time."""
    return (moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)).isoformat()


def plain(value: object) -> object:
    """Return a value as a statement can hold it: times as texts, texts without what cannot be stored."""
    if type(value) in NUMBERS:
        return value
    match value:
        case str():
            return _clean(value)
        case datetime():
            return iso(value)
        case date():
            return value.isoformat()
        case Mapping():
            return plain_map(value)
        case bytes():
            raise TypeError("a graph holds no bytes")
        case Iterable():
            return [item if type(item) in NUMBERS else plain(item) for item in value]
        case _:
            return value


def plain_map(values: Mapping[str, object]) -> dict[str, object]:
    """Return values by name as a statement can hold them."""
    return {str(name): plain(value) for name, value in values.items()}


def readable(value: object) -> object:
    """Return a value of an answer in plain types: times as texts, nodes and facts as their properties."""
    if type(value) in AS_THEY_ARE:
        return value
    properties = getattr(value, "properties", None)
    if isinstance(properties, dict):
        return readable(properties)
    match value:
        case Mapping():
            return {str(name): readable(item) for name, item in value.items()}
        case list() | tuple():
            return [item if type(item) in AS_THEY_ARE else readable(item) for item in value]
        case datetime():
            return iso(value)
        case date():
            return value.isoformat()
        case _:
            return value


def _clean(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "")
    # Half of a surrogate pair, as JSON may hold, has no form in UTF-8.
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
