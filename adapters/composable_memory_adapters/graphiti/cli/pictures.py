"""Pictures of a part of the graph: a Mermaid diagram, and a page that needs nothing but itself (pure)."""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from composable_memory.cli.plugin_api import counted, one_line, plain
from composable_memory.facts import Fact, GraphEntity, Neighbourhood
from composable_memory_adapters.graphiti.cli.drawing import ARROWS, drawn, safe
from composable_memory_adapters.graphiti.cli.fact_text import (
    format_day,
    format_origin,
    format_relation,
    format_validity,
)
from composable_memory_adapters.graphiti.cli.layout import Figure, entity_key, figures_of
from composable_memory_adapters.graphiti.cli.style import STYLE

__all__ = ["html_page", "mermaid"]

COLOURS = 8
"""How many kinds of entities have a colour of their own; 0 is that of those without a kind."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
"""No script, no network: whatever a note says, the page does nothing."""

_MARKUP = re.compile(r"[!-&(-+:-@\[-`{-~]|(?<=\d)\.|^-")
"""What Mermaid could take for its own; a number with a point, or a dash, would begin a list."""


def mermaid(neighbourhood: Neighbourhood, *, centre: str | None = None, now: datetime) -> str:
    """Return a Mermaid `graph LR`; facts that hold no more are dotted. `centre` is the first in it."""
    entities = [spot for figure in figures_of(neighbourhood, centre) for spot in figure.spots]
    names = {spot.key: f"n{number}" for number, spot in enumerate(entities)}
    lines = ["graph LR"]
    lines += [f'  {names[spot.key]}["{_label(spot.entity.name)}"]' for spot in entities]
    for fact in neighbourhood.facts:
        source, target = (names[entity_key(fact.group_id, name)] for name in (fact.source, fact.target))
        arrow = "-->" if fact.is_current(now) else "-.->"
        when = format_validity(fact, now)
        told = _label(format_relation(fact.relation)) + (f"<br/>{_label(when)}" if when else "")
        lines.append(f'  {source} {arrow}|"{told}"| {target}')
    return "\n".join(lines) + "\n"


def html_page(neighbourhood: Neighbourhood, *, centre: str | None = None, now: datetime) -> str:
    """Return a page with the entities around `centre` in rings, and a table of all facts."""
    figures = figures_of(neighbourhood, centre)
    title = figures[0].centre.entity.name if figures and centre else "Graph of the memory"
    kinds = _kinds(neighbourhood.entities)
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{safe(title)}</title>",
            f"<style>{STYLE}</style></head><body>",
            *_header(title, figures, neighbourhood.facts, kinds, now),
            ARROWS,
            *(f"<figure>{drawn(figure, kinds, now)}</figure>" for figure in figures),
            *_table(neighbourhood.facts, now),
            "</body></html>",
            "",
        ]
    )


def _label(text: str) -> str:
    text = plain(one_line(text)).encode("utf-8", "replace").decode()
    return _MARKUP.sub(lambda found: f"#{ord(found[0])};", text) or " "


def _kinds(entities: Sequence[GraphEntity]) -> dict[str, int]:
    """Return a number for every kind of entity, from 1 on; there are only so many colours."""
    kinds = sorted({one.kind for one in entities if one.kind})
    return {kind: number % COLOURS + 1 for number, kind in enumerate(kinds)}


def _header(
    title: str, figures: Sequence[Figure], facts: Sequence[Fact], kinds: dict[str, int], now: datetime
) -> Iterator[str]:
    entities = counted(sum(len(figure.spots) for figure in figures), "entity", "entities")
    held = sum(fact.is_current(now) for fact in facts)
    yield f"<header><h1>{safe(title)}</h1>"
    yield f"<p>{entities}, {counted(len(facts), 'fact')}; on {format_day(now)} {held} of these hold</p>"
    yield '<ul class="legend"><li class="now">holds now</li><li class="once">held once</li>'
    yield from (f'<li class="kind k{number}">{safe(kind)}</li>' for kind, number in kinds.items())
    yield "</ul></header>"


def _table(facts: Sequence[Fact], now: datetime) -> Iterator[str]:
    if not facts:
        yield '<p class="none">There are no facts.</p>'
        return
    yield "<table><thead><tr><th>When</th><th>Fact</th><th>Relation</th><th>From</th></tr></thead><tbody>"
    newest = sorted(facts, key=lambda fact: (not fact.is_current(now), -_seconds(fact), fact.id))
    yield from (_row(fact, now) for fact in newest)
    yield "</tbody></table>"


def _row(fact: Fact, now: datetime) -> str:
    state = "now" if fact.is_current(now) else "once"
    origins = "<br>".join(safe(format_origin(origin)) for origin in fact.origins)
    relation = f"{fact.source} → {format_relation(fact.relation)} → {fact.target}"
    return (
        f'<tr class="{state}"><td>{safe(format_validity(fact, now))}</td><td>{safe(fact.text)}</td>'
        f"<td>{safe(relation)}</td><td>{origins}</td></tr>"
    )


def _seconds(fact: Fact) -> float:
    moment = fact.valid_at or fact.created_at
    return moment.timestamp() if moment else 0.0
