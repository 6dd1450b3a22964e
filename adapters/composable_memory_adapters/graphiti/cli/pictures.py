"""Draws part of the graph as a Mermaid diagram or a self-contained HTML page.

`page.html` is the page, and `page.js` its script, which lays out the entities.
"""

import json
import re
from base64 import b64encode
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from html import escape
from importlib import resources
from string import Template

from composable_memory.cli.plugin_api import counted, one_line, plain
from composable_memory.facts import Fact, GraphEntity, Neighbourhood
from composable_memory_adapters.graphiti.cli.fact_text import (
    format_day,
    format_origin,
    format_relation,
)
from composable_memory_adapters.graphiti.fact_results import format_validity

Key = tuple[str, str]
"""Identifies an entity: its group, and its name in lower case."""

DAY_S = 86_400
COLOURS = 8
"""The number of kinds of entities with their own colour; 0 is for those without a kind."""

POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'; "
    "base-uri 'none'; form-action 'none'"
)
"""No network, and no script except the page's own, so that nothing in a note can run."""

_MARKUP = re.compile(r"[!-&(-+:-@\[-`{-~]|(?<=\d)\.|^-")
"""What Mermaid could mistake for markup; a number with a point, or a dash, would start a list."""


def mermaid(neighbourhood: Neighbourhood, *, centre: str | None = None, now: datetime) -> str:
    """Return a Mermaid `graph LR`; facts that no longer hold are dotted. `centre` comes first."""
    entities = _ordered(neighbourhood, centre)
    names = {key: f"n{number}" for number, key in enumerate(entities)}
    lines = ["graph LR"]
    lines += [f'  {names[key]}["{_label(entity.name)}"]' for key, entity in entities.items()]
    for fact in neighbourhood.facts:
        source, target = (names[key] for key in _ends(fact))
        arrow = "-->" if fact.is_current(now) else "-.->"
        when = format_validity(fact, now)
        label = _label(format_relation(fact.relation)) + (f"<br/>{_label(when)}" if when else "")
        lines.append(f'  {source} {arrow}|"{label}"| {target}')
    return "\n".join(lines) + "\n"


def html_page(neighbourhood: Neighbourhood, *, centre: str | None = None, now: datetime) -> str:
    """Return a page with the entities, the facts between them, and a table of all facts. Blocks."""
    folder = resources.files(__package__)
    script = folder.joinpath("page.js").read_text(encoding="utf-8")
    entities = _ordered(neighbourhood, centre)
    kinds = _kinds([*entities.values()])
    first = next(iter(entities.values()), None)
    days = [day for fact in neighbourhood.facts for day in _days(fact) if day is not None]
    held = sum(fact.is_current(now) for fact in neighbourhood.facts)
    about = f"{counted(len(entities), 'entity', 'entities')}, {counted(len(neighbourhood.facts), 'fact')}"
    return Template(folder.joinpath("page.html").read_text(encoding="utf-8")).substitute(
        policy=POLICY.format(b64encode(sha256(script.encode()).digest()).decode()),
        title=_safe(first.name if first and centre else "Graph of the memory"),
        summary=f"{about}; on {format_day(now)} {held} of these hold",
        kinds="".join(f'<li class="kind k{number}">{_safe(kind)}</li>' for kind, number in kinds.items()),
        table="\n".join(_table(neighbourhood.facts, now)),
        day=format_day(now),
        first=int(min(days, default=0)),
        last=int(now.timestamp() / DAY_S),
        timeless="" if days else " hidden",
        graph=_graph(neighbourhood.facts, entities, kinds, now, has_centre=bool(centre)),
        script=script,
    )


# --- entities and facts -------------------------------------------------------------------------------------


def _ordered(neighbourhood: Neighbourhood, centre: str | None) -> dict[Key, GraphEntity]:
    """Return all entities, including those only named in facts: outwards from the centre, then the others.

    `centre` is a name or an id; without it, the entity with the most neighbours comes first.
    """
    known = {_key(one.group_id, one.name): one for one in neighbourhood.entities}
    beside: defaultdict[Key, set[Key]] = defaultdict(set)
    for fact in neighbourhood.facts:
        source, target = _ends(fact)
        beside[source].add(target)
        beside[target].add(source)
        for key, name in ((source, fact.source), (target, fact.target)):
            known.setdefault(key, GraphEntity(id="", group_id=fact.group_id, name=name))
    wanted = " ".join((centre or "").split()).casefold()
    starts = sorted(
        known, key=lambda key: (wanted not in (key[1], known[key].id.casefold()), -len(beside[key]), key)
    )
    found: dict[Key, GraphEntity] = {}
    for start in starts:
        ring = {start} - found.keys()
        while ring:
            found |= {key: known[key] for key in sorted(ring)}
            ring = set().union(*(beside[key] for key in ring)) - found.keys()
    return found


def _ends(fact: Fact) -> tuple[Key, Key]:
    return _key(fact.group_id, fact.source), _key(fact.group_id, fact.target)


def _key(group_id: str, name: str) -> Key:
    return group_id, " ".join(name.split()).casefold()


def _kinds(entities: Sequence[GraphEntity]) -> dict[str, int]:
    """Return a number from 1 for each kind of entity, limited by the number of colours."""
    kinds = sorted({one.kind for one in entities if one.kind})
    return {kind: number % COLOURS + 1 for number, kind in enumerate(kinds)}


# --- the page -----------------------------------------------------------------------------------------------


def _graph(
    facts: Sequence[Fact],
    entities: Mapping[Key, GraphEntity],
    kinds: Mapping[str, int],
    now: datetime,
    *,
    has_centre: bool,
) -> str:
    """Return what the page's script draws, as JSON that cannot close its HTML element."""
    numbers = {key: number for number, key in enumerate(entities)}
    between: defaultdict[tuple[Key, Key], list[Fact]] = defaultdict(list)
    for fact in facts:
        between[_ends(fact)].append(fact)
    nodes = [
        {
            "name": _clean(one.name),
            "kind": kinds.get(one.kind or "", 0),
            "title": _clean(", ".join(filter(None, (one.name, one.kind, one.summary)))),
            "centre": has_centre and number == 0,
        }
        for number, one in enumerate(entities.values())
    ]
    links = [
        {"source": numbers[source], "target": numbers[target], **_link(found, now)}
        for (source, target), found in between.items()
        if source != target
    ]
    return json.dumps({"nodes": nodes, "links": links}).replace("<", "\\u003c")


def _link(facts: Sequence[Fact], now: datetime) -> dict[str, object]:
    """Return the displayed data of the facts from one entity to another."""
    holding = [fact for fact in facts if fact.is_current(now)]
    more = f" +{len(facts) - 1}" if len(facts) > 1 else ""
    return {
        "holds": bool(holding),
        "words": _clean(format_relation((holding or facts)[0].relation)) + more,
        "times": [_days(fact) for fact in facts],
        "title": "\n".join(_clean(f"{fact.text} ({format_validity(fact, now)})") for fact in facts),
    }


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
    origins = "<br>".join(_safe(format_origin(origin)) for origin in fact.origins)
    relation = f"{fact.source} → {format_relation(fact.relation)} → {fact.target}"
    begin, end = ("" if day is None else f"{day:g}" for day in _days(fact))
    cells = (_safe(format_validity(fact, now)), _safe(fact.text), _safe(relation), origins)
    told = "".join(f"<td>{cell}</td>" for cell in cells)
    return f'<tr class="{state}" data-from="{begin}" data-to="{end}">{told}</tr>'


def _days(fact: Fact) -> tuple[float | None, float | None]:
    """Return when a fact held, as a range in days since 1970, as far as known."""
    begin, end = (
        None if moment is None else round(moment.timestamp() / DAY_S, 3)
        for moment in (fact.valid_at, fact.invalid_at or fact.expired_at)
    )
    return begin, end


def _seconds(fact: Fact) -> float:
    moment = fact.valid_at or fact.created_at
    return moment.timestamp() if moment else 0.0


# --- text ---------------------------------------------------------------------------------------------------


def _label(text: str) -> str:
    """Escape a text so that Mermaid does not interpret it."""
    return _MARKUP.sub(lambda found: f"#{ord(found[0])};", _clean(text)) or " "


def _safe(text: str) -> str:
    return escape(_clean(text), quote=True)


def _clean(text: str) -> str:
    """Return a text on one line, without control characters."""
    return plain(one_line(text)).encode("utf-8", "replace").decode()
