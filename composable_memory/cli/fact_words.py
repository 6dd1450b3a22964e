"""How facts and their times are told to people, and how people tell a time (pure).

Days are those of UTC, as dates in notes are read.
"""

import re
from datetime import UTC, datetime, timedelta

from composable_memory.facts import Fact
from composable_memory.ingest.origins import citation_of
from composable_memory.types import Origin

__all__ = ["cited", "counted", "day", "moment_of", "one_line", "relation_words", "told_validity"]

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def day(moment: datetime | None) -> str:
    """Return the day of a moment as `2026-03-01`; empty for none."""
    return moment.astimezone(UTC).date().isoformat() if moment else ""


def told_validity(fact: Fact, now: datetime) -> str:
    """Return the time in which a fact holds, in words; empty where nothing is known of it."""
    since, until = day(fact.valid_at), day(fact.invalid_at)
    if fact.valid_at is not None and fact.valid_at > now:
        return f"{since} to {until}" if until else f"from {since}"
    if since and until:
        return f"{since} to {until}"
    if not fact.is_current(now) and not until:
        return f"since {since}, no longer" if since else "no longer"
    return (since and f"since {since}") or (until and f"until {until}")


def relation_words(relation: str) -> str:
    """Return the name of a relation as words: `WORKS_AT` is `works at`."""
    return one_line(relation.replace("_", " ")).lower()


def cited(origin: Origin) -> str:
    """Return where something was taken from: `path#L3-L7`, `path#L3`, or the path alone."""
    return one_line(citation_of(origin))


def counted(count: int, one: str, many: str | None = None) -> str:
    """Return `1 fact`, `2 facts`; `many` is a plural that is not made with an s."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def one_line(text: str, room: int | None = None) -> str:
    """Return a text on one line, cut to `room` characters."""
    joined = " ".join(text.split())
    return joined if room is None or len(joined) <= room else f"{joined[: room - 1].rstrip()}…"


def moment_of(text: str, *, day_ends: bool = False) -> datetime:
    """Return the moment that an ISO date or time names; local unless it has a zone, a date alone is in UTC.

    A date is its beginning, or its last moment with `day_ends`.

    Raises:
        ValueError: it names none.
    """
    given = text.strip()
    if not _DAY.fullmatch(given):
        return datetime.fromisoformat(given).astimezone(UTC)
    start = datetime.fromisoformat(given).replace(tzinfo=UTC)
    return start + timedelta(days=1) - timedelta(microseconds=1) if day_ends else start
