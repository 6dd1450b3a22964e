"""Facts, entities and episodes as lines for the terminal (pure)."""

import re
from datetime import datetime
from typing import Literal

from composable_memory.cli.plugin_api import Line, counted, one_line
from composable_memory.facts import Episode, Fact, GraphEntity
from composable_memory_adapters.graphiti.cli.fact_text import cited, day, relation_words, told_validity

__all__ = ["entity_lines", "episode_lines", "fact_lines", "timeline_lines"]

PREVIEW_CHARS = 160
STATES = "STATES"
"""The relation of a statement of which no more is understood than what it speaks of."""

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""What some services name an entity by, for want of its name."""


def fact_lines(fact: Fact, path: str, now: datetime) -> list[Line]:
    """Return what a fact says and since when, between whom, where it is from, and what `get` knows it as."""
    validity = told_validity(fact, now)
    lines: list[Line] = [(one_line(fact.text) + (f" ({validity})" if validity else ""), _weight(fact, now))]
    if between := f"{_between(fact)}{_from(fact)}".strip():
        lines.append((f"  {between}", "dim"))
    return [*lines, (f"  {one_line(path)}", "dim")]


def timeline_lines(fact: Fact, path: str, now: datetime) -> list[Line]:
    """Return a fact behind the time in which it holds; `?` is an end that is not known."""
    until = day(fact.invalid_at) or ("" if fact.is_current(now) else "?")
    return [
        (f"{day(fact.valid_at) or '?':<10} to {until:<10}  {one_line(fact.text)}", _weight(fact, now)),
        (f"{'':26}{one_line(path)}{_from(fact)}", "dim"),
    ]


def entity_lines(entity: GraphEntity) -> list[Line]:
    """Return an entity, how much is known of it, and its id."""
    kind = f"  {one_line(entity.kind)}" if entity.kind else ""
    lines: list[Line] = [(f"{one_line(entity.name)}{kind}  {counted(entity.fact_count, 'fact')}", "bold")]
    if summary := one_line(entity.summary, PREVIEW_CHARS):
        lines.append((f"  {summary}", "plain"))
    return [*lines, (f"  {one_line(entity.id)} in {one_line(entity.group_id)}", "dim")]


def episode_lines(episode: Episode, path: str) -> list[Line]:
    """Return when and where something was said, what it begins with, and what `get` shows it under."""
    place = cited(episode.origin) if episode.origin else one_line(episode.source or episode.content_id)
    return [
        (f"{day(episode.observed_at) or 'no date'}  {place}  {counted(episode.fact_count, 'fact')}", "bold"),
        (f"  {one_line(episode.text, PREVIEW_CHARS)}", "plain"),
        (f"  {one_line(path)}", "dim"),
    ]


def _weight(fact: Fact, now: datetime) -> Literal["bold", "dim"]:
    return "bold" if fact.is_current(now) else "dim"


def _between(fact: Fact) -> str:
    """Return what a fact relates and how; nothing where its text says just that, or names are not known."""
    source, target = one_line(fact.source), one_line(fact.target)
    if _ID.fullmatch(source) or _ID.fullmatch(target):
        return ""
    if fact.relation == STATES:
        return ", ".join(dict.fromkeys((source, target)))
    related = f"{source} {relation_words(fact.relation)} {target}"
    return "" if related.casefold() == one_line(fact.text).rstrip(".").casefold() else related


def _from(fact: Fact) -> str:
    return f"  from {', '.join(map(cited, fact.origins))}" if fact.origins else ""
