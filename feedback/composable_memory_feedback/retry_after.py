"""Parses the `Retry-After` header; in this package so that the core and its adapters can import it too."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def retry_after_s(value: str | None, now: datetime) -> float | None:
    """Return how many seconds from `now` a `Retry-After` header asks to wait; None if it is invalid.

    The header has whole seconds or a date (RFC 9110, 10.2.3). A date in the past means 0.
    """
    text = (value or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (date.replace(tzinfo=date.tzinfo or UTC) - now).total_seconds())
