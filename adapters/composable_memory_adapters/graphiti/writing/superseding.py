"""Works out which of several facts holds when: repeated, superseded, and stated again later (pure)."""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter, itemgetter
from typing import TypeAlias

from composable_memory_adapters.graphiti.episodes import graph_id
from composable_memory_adapters.graphiti.library.graph_records import FactRecord, Order, Told

_Facts: TypeAlias = Mapping[str, FactRecord]


def record_for(new: FactRecord, known: Iterable[FactRecord], group_id: str) -> FactRecord:
    """Return the record for a statement: a known one with its episodes added, or a new one.

    A fact that ended and is stated again for a later time gets its own record, so that nothing is claimed
    about the time between; if both are on the same day, `split_restated` separates them.
    """
    periods = sorted((one for one in known if one.own_id == new.own_id), key=attrgetter("start"))
    if not periods:
        return new
    if new.ends:
        same = [one for one in periods if one.ends_at == new.ends_at]
        return _merged(same[0], new) if same else replace(new, uuid=_id_at(new, str(new.ends_at), group_id))
    period = _period(new, periods)
    is_told = set(new.episodes) <= set(period.episodes)
    if not is_told and new.valid_at and _is_over(period, new.valid_at):
        return replace(new, uuid=_id_of_period(new, group_id))
    return _merged(period, new)


def by_episode(statement: FactRecord) -> Iterator[FactRecord]:
    """Yield one statement per episode if several state it and another fact may have held in between."""
    if not (statement.exclusive or statement.one_holder) or len(statement.told) < 2:
        yield statement
        return
    for told in sorted(statement.told, key=attrgetter("order")):
        yield replace(statement, episodes=(told.episode,), told=(told,), valid_at=told.since)


def as_one_person(known: _Facts, full: Mapping[str, str], settle: Callable[[_Facts], _Facts]) -> _Facts:
    """Apply `settle` as if facts about a first name were about its `full` name; both are entity ids."""
    if not full:
        return settle(known)
    ends = {one.own_id: (one.source, one.target) for one in known.values()}
    settled = settle(
        {uuid: _about(one, *(full.get(end, end) for end in ends[one.own_id])) for uuid, one in known.items()}
    )
    return {uuid: _about(one, *ends[one.own_id]) for uuid, one in settled.items()}


def under_both_names(facts: Iterable[FactRecord], full: Mapping[str, str]) -> Iterator[FactRecord]:
    """Yield facts under both the first name and the full name."""
    other = {**full, **{name: first for first, name in full.items()}}
    for one in facts:
        for source in {one.source, other.get(one.source, one.source)}:
            for target in {one.target, other.get(one.target, one.target)}:
                yield _about(one, source, target)


def _about(fact: FactRecord, source: str, target: str) -> FactRecord:
    is_same = (fact.source, fact.target) == (source, target)
    return fact if is_same else replace(fact, source=source, target=target)


def split_restated(known: Mapping[str, FactRecord], group_id: str) -> dict[str, FactRecord]:
    """Return facts, with those split in two that were restated after another fact had superseded them.

    The order of arrival does not matter: only the times of the statements decide.
    """
    after, groups, has_changed = dict(known), _grouped(known.values()), True
    while has_changed:  # parts that join again may split another fact
        has_changed, left = False, [*after]
        while left:
            one = after[left.pop()]
            kin, holders = _rivals(one, groups)
            successor = min((when for when, _ in _enders(one, kin.values(), holders.values())), default=None)
            again = [told for told in one.told if successor and told.order >= successor]
            if not again:
                continue
            has_changed = True
            for part in _in_two(one, again, group_id):
                stored = after.get(part.uuid)
                whole = part if stored is None or part.uuid == one.uuid else _merged(stored, part)
                after[part.uuid] = whole
                for key in _keys(whole):
                    groups[key][whole.uuid] = whole
                left.append(whole.uuid)
    return after


def rejoined(known: Mapping[str, FactRecord]) -> dict[str, FactRecord]:
    """Return fact periods that nothing separates any more, joined into one with the id of the first.

    It has the id of the first of them.
    """
    parts: dict[str, FactRecord] = {}
    last: dict[str, FactRecord] = {}
    for one in sorted(known.values(), key=attrgetter("start")):
        before = last.get(one.own_id)
        if before and one.valid_at and (before.invalid_at is None or before.invalid_at > one.valid_at):
            taken_back = before.retired_at and one.retired_at and max(before.retired_at, one.retired_at)
            joined = replace(_merged(before, one), retired_at=taken_back)
            parts = {uuid: joined if into == before else into for uuid, into in parts.items()}
            parts |= {before.uuid: joined, one.uuid: joined}
            one = joined
        last[one.own_id] = one
    return parts


def with_ends(known: Mapping[str, FactRecord], now: datetime) -> dict[str, FactRecord]:
    """Return facts with the ends that follow from all of them, whatever order they arrived in.

    A fact ends when the next exclusive one with another target begins, or with another source if only one
    holder is possible at a time: the next by day, and within a day the one written later. Facts that begin at
    the same time hold side by side. A statement that something ended ends what began before it, and then
    itself holds for no time: until it, what it ended was true.
    """
    groups = _grouped(known.values())
    return {uuid: _with_ends(one, *_rivals(one, groups), now) for uuid, one in known.items()}


_Group: TypeAlias = dict[str, FactRecord]


def _keys(fact: FactRecord) -> Iterator[tuple[str, str, str]]:
    """Yield the grouping keys of a fact: its source and relation, and its target if that has one holder."""
    yield fact.source, fact.relation, ""
    if fact.one_holder:
        yield "", fact.relation, fact.target


def _grouped(facts: Iterable[FactRecord]) -> dict[tuple[str, str, str], _Group]:
    groups: dict[tuple[str, str, str], _Group] = {}
    for one in facts:
        for key in _keys(one):
            groups.setdefault(key, {})[one.uuid] = one
    return groups


def _rivals(fact: FactRecord, groups: Mapping[tuple[str, str, str], _Group]) -> tuple[_Group, _Group]:
    """Return facts with the same source and relation, and those with other holders of the target."""
    return groups[fact.source, fact.relation, ""], groups.get(("", fact.relation, fact.target), {})


def _in_two(fact: FactRecord, again: Sequence[Told], group_id: str) -> tuple[FactRecord, ...]:
    """Return a fact without its restatements, and these as a second fact that begins then."""
    before = tuple(told for told in fact.told if told not in again)
    since = min(told.since for told in again)
    if not before:  # the episode that stated the beginning is retired
        return (replace(fact, valid_at=since),)
    restated = {told.episode for told in again}
    kept = {told.episode for told in before}
    first = tuple(one for one in fact.episodes if one in kept or one not in restated)
    second = replace(
        fact,
        episodes=tuple(one for one in fact.episodes if one in restated),
        told=tuple(again),
        valid_at=since,
        invalid_at=None,
        expired_at=None,
    )
    second = replace(second, uuid=_id_of_period(second, group_id))
    return replace(fact, episodes=first, told=before), second


def _id_of_period(fact: FactRecord, group_id: str) -> str:
    """Return the id of a restated fact, from the time of its first statement, which no other has."""
    return _id_at(fact, min(fact.told, key=attrgetter("order")).times, group_id)


def _id_at(fact: FactRecord, times: str, group_id: str) -> str:
    return graph_id(group_id, f"{fact.own_id}@{times}")


def _is_over(period: FactRecord, since: datetime) -> bool:
    """Return whether a period was over by a time, or by the day before if another statement ended it."""
    by_itself = period.ends_at is not None and period.ends_at <= since
    return by_itself or (period.invalid_at is not None and period.invalid_at.date() < since.date())


def retired_facts(facts: Iterable[FactRecord], retired: Mapping[str, datetime]) -> list[FactRecord]:
    """Return the facts that only `retired` episodes support, ended when the last of these was retired."""
    return [
        replace(one, retired_at=max(retired[uuid] for uuid in one.episodes))
        for one in facts
        if one.retired_at is None and one.episodes and retired.keys() >= set(one.episodes)
    ]


def _period(new: FactRecord, periods: Sequence[FactRecord]) -> FactRecord:
    """Return the period a statement belongs to: the one made for it, or the last that began before it."""
    made_for_it = [one for one in periods if new.episodes and set(new.episodes) <= set(one.episodes)]
    begun = [one for one in periods if new.valid_at is None or one.start <= new.start]
    return (made_for_it or begun[-1:] or periods)[0]


def _merged(old: FactRecord, new: FactRecord) -> FactRecord:
    """Return a known fact with what another statement of it adds."""
    episodes = tuple(dict.fromkeys((*old.episodes, *new.episodes)))
    starts = [moment for moment in (old.valid_at, new.valid_at) if moment]
    expiries = [one.expires_at for one in (old, new) if one.expires_at]
    return replace(
        new,
        uuid=old.uuid,
        episodes=episodes,
        told=tuple(dict.fromkeys((*old.told, *new.told))),
        created_at=old.created_at,
        valid_at=min(starts) if starts else None,
        invalid_at=old.invalid_at,
        expired_at=old.expired_at,
        ends_at=new.ends_at or old.ends_at,
        # A fact is retired once all its supporting episodes are; a new one makes it valid again.
        retired_at=old.retired_at if episodes == old.episodes else None,
        reference_time=old.reference_time or new.reference_time,
        expires_at=max(expiries) if len(expiries) == 2 else None,
        confidence=new.confidence if new.confidence is not None else old.confidence,
        exclusive=old.exclusive or new.exclusive,
        one_holder=old.one_holder or new.one_holder,
    )


def _with_ends(fact: FactRecord, kin: _Group, holders: _Group, now: datetime) -> FactRecord:
    enders = _enders(fact, kin.values(), holders.values())
    ended_by = [max(moment, fact.valid_at or moment) for _, moment in enders]
    ended = [*filter(None, [fact.retired_at]), *ended_by]
    ends = [moment for moment in (fact.ends_at, *ended) if moment]
    invalid_at = min(ends, default=None)
    is_over = bool(ended) and invalid_at is not None and invalid_at <= now
    expired_at = None if invalid_at is None else fact.expired_at or (now if is_over else None)
    valid_at = _start_of_end(fact, kin.values(), invalid_at) if fact.ends else fact.valid_at
    return replace(fact, valid_at=valid_at, invalid_at=invalid_at, expired_at=expired_at)


def _start_of_end(end: FactRecord, kin: Iterable[FactRecord], invalid_at: datetime | None) -> datetime | None:
    """Return `invalid_at` if an end has no start or ended a known fact: it holds for no time. Else None."""
    if end.says_no_start:
        return invalid_at
    ended = (one for one in kin if not one.ends and one.target == end.target and one.valid_at)
    return invalid_at if any(one.start < end.end for one in ended) else None


def _enders(
    fact: FactRecord, kin: Iterable[FactRecord], holders: Iterable[FactRecord]
) -> Iterator[tuple[Order, datetime]]:
    """Yield the order and time of whatever ends a fact: statements of its end, and later facts."""
    if fact.ends:
        return
    start = fact.start
    for one in kin:
        if one.ends:
            if one.ends_at and one.may_end(fact) and one.end > start:
                yield one.end, one.ends_at
        elif one.exclusive and one.target != fact.target:
            yield from _begins_after(one, start)
    for one in holders:
        if not one.ends and one.source != fact.source:
            yield from _begins_after(one, start)


def _begins_after(fact: FactRecord, start: Order) -> Sequence[tuple[Order, datetime]]:
    """Return when a fact begins, or is restated, after another began."""
    if not fact.beginnings or fact.beginnings[-1][0] <= start:
        return ()
    return fact.beginnings[bisect_right(fact.beginnings, start, key=itemgetter(0)) :]
