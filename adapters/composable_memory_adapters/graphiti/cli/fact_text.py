"""Formats facts, entities and episodes as lines for the terminal; days are in UTC, as in notes."""

import re
from datetime import UTC, datetime

from composable_memory.cli.plugin_api import counted, one_line, print_line
from composable_memory.facts import Episode, Fact, GraphEntity
from composable_memory.types import Origin
from composable_memory_adapters.graphiti.fact_results import format_validity
from composable_memory_adapters.graphiti.fact_stores import STATES

PREVIEW_CHARS = 160

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The form of an id that some services give in place of an entity's name."""


def format_day(moment: datetime | None) -> str:
    """Format a time as a day, such as `2026-03-01`; empty for None."""
    return moment.astimezone(UTC).date().isoformat() if moment else ""


def format_relation(relation: str) -> str:
    """Format a relation as words: `WORKS_AT` becomes `works at`."""
    return one_line(relation.replace("_", " ")).lower()


def format_origin(origin: Origin) -> str:
    """Format an origin as `path#L3-L7`, with a note if it no longer exists."""
    return one_line(origin.shown)


def print_fact(fact: Fact, path: str, now: datetime) -> None:
    """Print a fact: its text, validity, entities, origin, and its path for `get`."""
    validity, is_current = format_validity(fact, now), fact.is_current(now)
    text = one_line(fact.text) + (f" ({validity})" if validity else "")
    print_line(text, bold=is_current, dim=not is_current)
    if between := f"{_between(fact)}{_from(fact)}".strip():
        print_line(f"  {between}", dim=True)
    print_line(f"  {one_line(path)}", dim=True)


def print_on_timeline(fact: Fact, path: str, now: datetime) -> None:
    """Print a fact after the time in which it holds; `?` is an unknown start or end."""
    is_current = fact.is_current(now)
    since = format_day(fact.valid_at) or "?"
    until = format_day(fact.invalid_at) or ("" if is_current else "?")
    span = f"{since:<10} to {until}" if until else f"since {since}"
    if fact.valid_at is not None and fact.valid_at == fact.invalid_at:  # it never held
        span = f"ended {until}"
    print_line(f"{span:<24}  {one_line(fact.statement)}", bold=is_current, dim=not is_current)
    print_line(f"{'':26}{one_line(path)}{_from(fact)}", dim=True)


def print_entity(entity: GraphEntity) -> None:
    """Print an entity, the number of its facts, and its id."""
    kind = f"  {one_line(entity.kind)}" if entity.kind else ""
    print_line(f"{one_line(entity.name)}{kind}  {counted(entity.fact_count, 'fact')}", bold=True)
    if summary := one_line(entity.summary, PREVIEW_CHARS):
        print_line(f"  {summary}")
    print_line(f"  {one_line(entity.id)} in {one_line(entity.group_id)}", dim=True)


def print_episode(episode: Episode, path: str) -> None:
    """Print when and where something was said, how it begins, and its path for `get`."""
    place = (
        format_origin(episode.origin) if episode.origin else one_line(episode.source or episode.content_id)
    )
    day = format_day(episode.observed_at) or "no date"
    print_line(f"{day}  {place}  {counted(episode.fact_count, 'fact')}", bold=True)
    print_line(f"  {one_line(episode.text, PREVIEW_CHARS)}")
    print_line(f"  {one_line(path)}", dim=True)


def _between(fact: Fact) -> str:
    """Return what a fact relates and how; empty if its text says exactly that, or if names are unknown."""
    source, target = one_line(fact.source), one_line(fact.target)
    if _ID.fullmatch(source) or _ID.fullmatch(target):
        return ""
    if fact.relation == STATES:
        return ", ".join(dict.fromkeys((source, target)))
    related = f"{source} {format_relation(fact.relation)} {target}"
    return "" if related.casefold() == one_line(fact.text).rstrip(".").casefold() else related


def _from(fact: Fact) -> str:
    return f"  from {', '.join(map(format_origin, fact.origins))}" if fact.origins else ""
