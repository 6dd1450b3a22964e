"""Finds a place for every entity of a picture: rings around the one in the middle (pure, always the same)."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import cos, pi, sin

from composable_memory.facts import Fact, GraphEntity, Neighbourhood

__all__ = ["Figure", "Spot", "Tie", "entity_key", "figures_of"]

Key = tuple[str, str]
"""What tells entities apart: the group, and the name in small letters."""

FEW = 14
"""So many on the outermost ring have room to be written side by side; more are written along their rays."""

CROWD = 64
"""So many have room for two lines of words on their rays; with more there is one."""

LEAST_RADIUS = 290.0
RING_GAP = 270.0
WRITTEN_ROOM = 165.0
"""How far the words on a ray reach inwards from its end."""
LINE_HEIGHT = 13.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """An entity and its place, in pixels from the middle; `angle` is in radians, clockwise from the right."""

    key: Key
    entity: GraphEntity
    ring: int
    angle: float
    x: float
    y: float
    is_inner: bool
    """Whether rays go on from it to a further ring."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """The facts between two entities; `is_ray` says that it leads outwards from `a` to `b`."""

    a: Spot
    b: Spot
    facts: tuple[Fact, ...]
    is_ray: bool


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Entities that facts connect, the one in the middle first."""

    spots: tuple[Spot, ...]
    ties: tuple[Tie, ...]

    @property
    def centre(self) -> Spot:
        """Return the one in the middle."""
        return self.spots[0]

    @cached_property
    def is_roomy(self) -> bool:
        """Say whether names can be written side by side."""
        return self._leaves <= FEW

    @cached_property
    def is_crowded(self) -> bool:
        """Say whether a ray has room for no more than one line of words."""
        return self._leaves > CROWD

    @cached_property
    def _leaves(self) -> int:
        return sum(not spot.is_inner for spot in self.spots)


def entity_key(group_id: str, name: str) -> Key:
    """Return what an entity of a picture is known by."""
    return group_id, " ".join(name.split()).casefold()


def figures_of(neighbourhood: Neighbourhood, centre: str | None = None) -> list[Figure]:
    """Return a figure for all that hangs together: the one around `centre` first, then the largest.

    `centre` is the name or id of an entity. A figure without it has the entity with most facts in its middle.
    """
    entities = _entities(neighbourhood)
    facts = _facts_between(neighbourhood.facts)
    beside = _neighbours(facts)
    wanted = _key_of(centre, entities)
    left = sorted(entities, key=lambda key: (key != wanted, -len(beside[key]), key))
    figures: list[Figure] = []
    placed: set[Key] = set()
    for key in left:
        if key not in placed:
            figure = _figure(key, entities, facts, beside)
            placed |= {spot.key for spot in figure.spots}
            figures.append(figure)
    return figures[:1] + sorted(figures[1:], key=lambda figure: -len(figure.spots))


def _entities(neighbourhood: Neighbourhood) -> dict[Key, GraphEntity]:
    """Return all entities, also those that only facts name."""
    known = {entity_key(one.group_id, one.name): one for one in neighbourhood.entities}
    for fact in neighbourhood.facts:
        for name in (fact.source, fact.target):
            unknown = GraphEntity(id="", group_id=fact.group_id, name=name)
            known.setdefault(entity_key(fact.group_id, name), unknown)
    return known


def _key_of(centre: str | None, entities: Mapping[Key, GraphEntity]) -> Key | None:
    wanted = " ".join((centre or "").split()).casefold()
    return next((key for key, one in entities.items() if wanted in (key[1], one.id.casefold())), None)


def _facts_between(facts: Sequence[Fact]) -> dict[tuple[Key, Key], list[Fact]]:
    """Return the facts of each pair of entities, whichever way they point."""
    between: defaultdict[tuple[Key, Key], list[Fact]] = defaultdict(list)
    for fact in facts:
        a, b = sorted((entity_key(fact.group_id, fact.source), entity_key(fact.group_id, fact.target)))
        between[a, b].append(fact)
    return dict(between)


def _neighbours(facts: Mapping[tuple[Key, Key], Sequence[Fact]]) -> defaultdict[Key, list[Key]]:
    """Return whom each entity has facts with, those with most others first."""
    beside: defaultdict[Key, list[Key]] = defaultdict(list)
    for a, b in facts:
        if a != b:
            beside[a].append(b)
            beside[b].append(a)
    for keys in beside.values():
        keys.sort()
    return beside


def _figure(
    start: Key,
    entities: Mapping[Key, GraphEntity],
    facts: Mapping[tuple[Key, Key], Sequence[Fact]],
    beside: Mapping[Key, Sequence[Key]],
) -> Figure:
    rings, children = _rings(start, beside)
    spots = _placed(start, rings, children, entities)
    ties = [
        Tie(a=spots[a], b=spots[b], facts=tuple(facts[min(a, b), max(a, b)]), is_ray=True)
        for a in spots
        for b in children[a]
    ]
    rays = {(min(tie.a.key, tie.b.key), max(tie.a.key, tie.b.key)) for tie in ties}
    ties += [
        Tie(a=spots[a], b=spots[b], facts=tuple(said), is_ray=False)
        for (a, b), said in facts.items()
        if a in spots and b in spots and a != b and (a, b) not in rays
    ]
    return Figure(spots=tuple(spots.values()), ties=tuple(ties))


def _rings(
    start: Key, beside: Mapping[Key, Sequence[Key]]
) -> tuple[list[list[Key]], defaultdict[Key, list[Key]]]:
    """Return the entities by their distance from the first, and whom each leads outwards to."""
    rings = [[start]]
    children: defaultdict[Key, list[Key]] = defaultdict(list)
    seen = {start}
    while rings[-1]:
        further: list[Key] = []
        for key in rings[-1]:
            new = [other for other in beside.get(key, ()) if other not in seen]
            seen.update(new)
            children[key] += new
            further += new
        rings.append(further)
    return rings[:-1], children


def _placed(
    start: Key,
    rings: Sequence[Sequence[Key]],
    children: Mapping[Key, Sequence[Key]],
    entities: Mapping[Key, GraphEntity],
) -> dict[Key, Spot]:
    """Give each entity a part of its parent's angle, as large as what hangs on it."""
    leaves: dict[Key, int] = {}
    for ring in reversed(rings):
        for key in ring:
            leaves[key] = sum(leaves[child] for child in children.get(key, ())) or 1
    radii = _radii(rings, leaves[start])
    half = pi / leaves[start]
    # No ray goes straight up, where names would stand across it; two go to the sides.
    first_ray = 0.0 if leaves[start] <= 2 else -pi / 2 + half
    wedges = {start: (first_ray - half + pi, 2 * pi)}
    spots: dict[Key, Spot] = {}
    for number, ring in enumerate(rings):
        for key in ring:
            middle, width = wedges[key]
            spots[key] = _spot(key, entities[key], number, middle, radii[number], bool(children.get(key)))
            first = middle - width / 2
            for child in children.get(key, ()):
                share = width * leaves[child] / leaves[key]
                wedges[child] = (first + share / 2, share)
                first += share
    return spots


def _radii(rings: Sequence[Sequence[Key]], leaves: int) -> list[float]:
    """Return the radius of each ring: wide enough that no two lines of words on it touch."""
    radii = [0.0]
    for ring in rings[1:]:
        height = LINE_HEIGHT if leaves > CROWD else 2 * LINE_HEIGHT
        needed = leaves * height / (2 * pi) + WRITTEN_ROOM if ring is rings[1] else 0.0
        radii.append(max(needed, radii[-1] + (RING_GAP if len(radii) > 1 else LEAST_RADIUS)))
    return radii


def _spot(key: Key, entity: GraphEntity, ring: int, angle: float, radius: float, is_inner: bool) -> Spot:
    return Spot(
        key=key,
        entity=entity,
        ring=ring,
        angle=angle,
        x=round(radius * cos(angle), 1),
        y=round(radius * sin(angle), 1),
        is_inner=is_inner,
    )
