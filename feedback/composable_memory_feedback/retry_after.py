"""Reads the `Retry-After` header; stands here because the core and its adapters may import it as well."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """Return how many seconds from `now` a `Retry-After` header asks to wait; None if it cannot be read.

    The header holds whole seconds or a date (RFC 9110, 10.2.3). A date in the past asks for nothing: 0.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - now).total_seconds())
