"""Facts and the time in which they hold, in words for people (pure).

Days are in UTC, as dates in notes are read.
"""

from datetime import UTC, datetime

from composable_memory.cli.plugin_api import one_line
from composable_memory.facts import Fact
from composable_memory.ingest.origins import citation_of
from composable_memory.types import Origin

__all__ = ["cited", "day", "relation_words", "told_validity"]


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
