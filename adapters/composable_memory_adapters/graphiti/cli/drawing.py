"""Draws a figure of the graph as SVG; its colours are those of the page that it stands on (pure)."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from html import escape
from itertools import chain
from math import atan2, cos, degrees, inf, pi, sin
from unicodedata import east_asian_width

from composable_memory.cli.plugin_api import one_line, plain
from composable_memory.facts import Fact
from composable_memory_adapters.graphiti.cli.fact_text import format_relation, format_validity
from composable_memory_adapters.graphiti.cli.layout import Figure, Spot, Tie

__all__ = ["ARROWS", "drawn", "safe"]

ARROWS = (
    '<svg class="arrows" aria-hidden="true"><defs>'
    + "".join(
        f'<marker id="{name}" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        f'markerUnits="userSpaceOnUse" orient="auto-start-reverse"><path d="M0 .8 7 4 0 7.2z"/></marker>'
        for name in ("now", "once")
    )
    + "</defs></svg>"
)
"""The heads of the arrows, once for all figures of a page."""

NAME_CELLS = 26
RELATION_CELLS = 20
CELL = 7.1
"""The width of an average letter of a name, in pixels."""
DOT = 6.0
PILL_HEIGHT = 38.0
MARGIN = 24.0
UPRIGHT = 0.3
"""The cosine of a ray up to which a name stands above or below its dot."""


def safe(text: str) -> str:
    """Return a text for HTML, on one line and without characters that are none."""
    return escape(plain(one_line(text)).encode("utf-8", "replace").decode(), quote=True)


def drawn(figure: Figure, kinds: Mapping[str, int], now: datetime) -> str:
    """Return the SVG of a figure; `kinds` gives each kind of entity the number of its colour."""
    left, top, width, height = _box(figure)
    title = safe(f"{figure.centre.entity.name} and {len(figure.spots) - 1} others")
    parts = chain(
        *(_tie(tie, figure, now) for tie in sorted(figure.ties, key=lambda tie: tie.is_ray)),
        *(_spot(spot, figure, kinds) for spot in figure.spots[1:]),
        _pill(figure.centre, kinds),
    )
    return (
        f'<svg class="figure" role="img" aria-label="{title}" '
        f'viewBox="{left:.0f} {top:.0f} {width:.0f} {height:.0f}" '
        f'style="max-width:{width:.0f}px">{"".join(parts)}</svg>'
    )


def _box(figure: Figure) -> tuple[float, float, float, float]:
    """Return the left, top, width and height of a figure with all its words."""
    across, down = _pill_width(figure.centre) / 2, PILL_HEIGHT / 2
    corners = [(-across, -down), (across, down)]
    for spot in figure.spots[1:]:
        words = DOT + 8 + _cells(_cut(spot.entity.name, NAME_CELLS)) * CELL
        if not figure.is_roomy:
            corners.append((spot.x + words * cos(spot.angle), spot.y + words * sin(spot.angle)))
        elif not _stands_across(spot):
            corners.append((spot.x + (words if spot.x > 0 else -words), spot.y))
        else:
            beyond = spot.y + (26 if spot.y > 0 else -26)
            corners += [(spot.x - words / 2, beyond), (spot.x + words / 2, beyond)]
    left, top = min(x for x, _ in corners) - MARGIN, min(y for _, y in corners) - MARGIN
    return left, top, max(x for x, _ in corners) + MARGIN - left, max(y for _, y in corners) + MARGIN - top


# --- entities -----------------------------------------------------------------------------------------------


def _spot(spot: Spot, figure: Figure, kinds: Mapping[str, int]) -> Iterator[str]:
    entity = spot.entity
    kind = kinds.get(entity.kind or "", 0)
    told = ", ".join(filter(None, (entity.name, entity.kind, entity.summary)))
    yield f'<g class="entity k{kind}"><title>{safe(told)}</title>'
    yield f'<circle cx="{spot.x}" cy="{spot.y}" r="{DOT:g}"/>'
    yield f"<text {_beside(spot) if figure.is_roomy else _along(spot)}>"
    yield f"{safe(_cut(entity.name, NAME_CELLS))}</text></g>"


def _beside(spot: Spot) -> str:
    """Return where a name stands upright beside its dot, on the side away from the middle."""
    if not _stands_across(spot):
        x = spot.x + (DOT + 8) * (1 if spot.x > 0 else -1)
        return f'x="{x:.1f}" y="{spot.y + 4.5:.1f}" text-anchor="{"start" if spot.x > 0 else "end"}"'
    return f'x="{spot.x}" y="{spot.y + (24 if spot.y >= 0 else -14):.1f}" text-anchor="middle"'


def _stands_across(spot: Spot) -> bool:
    """Say whether a name stands above or below its dot: a ray goes on from it, or comes from there."""
    return spot.is_inner or abs(cos(spot.angle)) <= UPRIGHT


def _along(spot: Spot) -> str:
    """Return where a name goes on from its dot in the direction of its ray, never upside down."""
    place, side = _on_line(spot, spot.angle, DOT + 6)
    return f'{place} dy="4.5" text-anchor="{side}"'


def _on_line(spot: Spot, angle: float, beyond: float) -> tuple[str, str]:
    """Return the place of words on a line, so far `beyond` a dot, and which of their ends is nearer to it."""
    x, y = spot.x + beyond * cos(angle), spot.y + beyond * sin(angle)
    is_right = cos(angle) >= -1e-9
    turn = degrees(angle if is_right else angle - pi)
    place = f'x="{x:.1f}" y="{y:.1f}" transform="rotate({turn:.2f} {x:.1f} {y:.1f})"'
    return place, "start" if is_right else "end"


def _pill(spot: Spot, kinds: Mapping[str, int]) -> Iterator[str]:
    width = _pill_width(spot)
    entity = spot.entity
    told = ", ".join(filter(None, (entity.name, entity.kind, entity.summary)))
    yield f'<g class="entity centre k{kinds.get(entity.kind or "", 0)}"><title>{safe(told)}</title>'
    yield f'<rect x="{-width / 2:.1f}" y="{-PILL_HEIGHT / 2:g}" width="{width:.1f}" height="{PILL_HEIGHT:g}" '
    yield f'rx="{PILL_HEIGHT / 2:g}"/><text x="0" y="5.5" text-anchor="middle">'
    yield f"{safe(_cut(entity.name, NAME_CELLS))}</text></g>"


def _pill_width(spot: Spot) -> float:
    return max(70.0, _cells(_cut(spot.entity.name, NAME_CELLS)) * (CELL + 1.6) + 36)


# --- facts --------------------------------------------------------------------------------------------------


def _tie(tie: Tie, figure: Figure, now: datetime) -> Iterator[str]:
    holds = [fact for fact in tie.facts if fact.is_current(now)]
    state = "now" if holds else "once"
    chord = "" if tie.is_ray else " chord"
    yield f'<g class="tie {state}{chord}"><title>{_told(tie.facts, now)}</title>'
    yield f'<path d="{_path(tie, figure)}"{_heads(tie, holds or tie.facts, state)}/>'
    if tie.is_ray and (tie.a.ring == 0 or figure.is_roomy):
        yield _relation(tie, (holds or tie.facts)[0], figure, now)
    yield "</g>"


def _told(facts: tuple[Fact, ...], now: datetime) -> str:
    """Return what facts say, a line each, for HTML."""
    said = ((one.text, format_validity(one, now)) for one in facts)
    return "&#10;".join(safe(f"{text} ({validity})" if validity else text) for text, validity in said)


def _path(tie: Tie, figure: Figure) -> str:
    if tie.is_ray:
        start = _edge_of_pill(figure.centre, tie.b.angle) if tie.a.ring == 0 else DOT + 3
        ax, ay = _towards(tie.a, tie.b, start)
        bx, by = _towards(tie.b, tie.a, DOT + 3)
        return f"M{ax:.1f} {ay:.1f}L{bx:.1f} {by:.1f}"
    # A curve that bends to the middle does not run through the dots between its ends.
    cx, cy = (tie.a.x + tie.b.x) * 0.36, (tie.a.y + tie.b.y) * 0.36
    ax, ay = _step(tie.a.x, tie.a.y, cx, cy, DOT + 3)
    bx, by = _step(tie.b.x, tie.b.y, cx, cy, DOT + 3)
    return f"M{ax:.1f} {ay:.1f}Q{cx:.1f} {cy:.1f} {bx:.1f} {by:.1f}"


def _heads(tie: Tie, facts: tuple[Fact, ...] | list[Fact], state: str) -> str:
    """Return the arrow heads: at `b` for facts that go there, at `a` for those that come from there."""
    sources = {" ".join(fact.source.split()).casefold() for fact in facts}
    forth = f' marker-end="url(#{state})"' if tie.a.key[1] in sources else ""
    back = f' marker-start="url(#{state})"' if tie.b.key[1] in sources else ""
    return forth + back


def _relation(tie: Tie, fact: Fact, figure: Figure, now: datetime) -> str:
    """Return the words on a ray: above it the relation and how many more, below it the time."""
    more = f" +{len(tie.facts) - 1}" if len(tie.facts) > 1 else ""
    lines = [("-5", "", f"{_cut(format_relation(fact.relation), RELATION_CELLS)}{more}")]
    if not figure.is_crowded:
        lines.append(("13", ' class="when"', format_validity(fact, now)))
    place, side = _on_line(tie.b, atan2(tie.b.y - tie.a.y, tie.b.x - tie.a.x), -(DOT + 14))
    place += f' text-anchor="{"end" if side == "start" else "start"}"'
    return "".join(f'<text{kind} {place} dy="{down}">{safe(words)}</text>' for down, kind, words in lines)


def _edge_of_pill(centre: Spot, angle: float) -> float:
    """Return how far from the middle a ray leaves the pill."""
    across, down = abs(cos(angle)), abs(sin(angle))
    half_width = _pill_width(centre) / 2
    return min(half_width / across if across else inf, PILL_HEIGHT / 2 / down if down else inf) + 5


def _towards(one: Spot, other: Spot, distance: float) -> tuple[float, float]:
    return _step(one.x, one.y, other.x, other.y, distance)


def _step(x: float, y: float, to_x: float, to_y: float, distance: float) -> tuple[float, float]:
    length = ((to_x - x) ** 2 + (to_y - y) ** 2) ** 0.5 or 1.0
    return x + (to_x - x) * distance / length, y + (to_y - y) * distance / length


# --- words --------------------------------------------------------------------------------------------------


def _cut(text: str, cells: int) -> str:
    """Return a text that takes no more than so many letters' room; a Chinese one takes two."""
    text = plain(one_line(text))
    if _cells(text) <= cells:
        return text
    while _cells(text) > cells - 1:
        text = text[:-1]
    return f"{text.rstrip()}…"


def _cells(text: str) -> int:
    return sum(2 if east_asian_width(char) in "WF" else 1 for char in text)
