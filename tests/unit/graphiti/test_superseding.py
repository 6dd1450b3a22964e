"""Which fact holds when follows from all statements together, whatever the order they came in."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise, permutations
from random import Random
from typing import Any

import pytest

from composable_memory_adapters.graphiti.library.graph_records import FactRecord, Order, Told
from composable_memory_adapters.graphiti.writing.superseding import (
    by_episode,
    record_for,
    split_restated,
    with_ends,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC)


def day(number: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=number)


def fact(target: str, start: int | None, *, exclusive: bool = True, **changes: Any) -> FactRecord:
    made = FactRecord(
        uuid=f"{target}-id",
        own_id=f"{target}-id",
        source="zelda",
        target=target,
        relation="WORKS_AT",
        fact=f"Zelda works at {target}",
        created_at=NOW,
        episodes=(f"{target}-{start}",),
        told=() if start is None else (Told(f"{target}-{start}", day(start)),),
        valid_at=None if start is None else day(start),
        exclusive=exclusive,
    )
    return replace(made, **changes)


def after(statements: Sequence[FactRecord]) -> dict[str, FactRecord]:
    """Return what is known after statements that came one by one."""
    known: dict[str, FactRecord] = {}
    for one in (part for whole in statements for part in by_episode(whole)):
        record = record_for(one, known.values(), "g1")
        known = with_ends(split_restated({**known, record.uuid: record}, "g1"), NOW)
    return known


def times(known: dict[str, FactRecord]) -> set[tuple[str, datetime | None, datetime | None]]:
    return {(one.target, one.valid_at, one.invalid_at) for one in known.values()}


def holds_on(one: FactRecord, number: int) -> bool:
    began = one.valid_at is None or one.valid_at <= day(number)
    return began and (one.invalid_at is None or one.invalid_at > day(number))


@pytest.mark.parametrize("order", list(permutations([fact("a", 1), fact("b", 5), fact("c", 9)])))
def test_each_exclusive_fact_ends_when_the_next_begins(order: Sequence[FactRecord]) -> None:
    known = after(order)

    assert times(known) == {("a", day(1), day(5)), ("b", day(5), day(9)), ("c", day(9), None)}
    assert [one.target for one in known.values() if one.expired_at is None] == ["c"]


def test_a_fact_that_holds_again_begins_anew_and_its_history_stays() -> None:
    known = after([fact("a", 1), fact("b", 5), fact("a", 9)])

    assert times(known) == {("a", day(1), day(5)), ("b", day(5), day(9)), ("a", day(9), None)}
    assert {one.own_id for one in known.values() if one.target == "a"} == {"a-id"}


def test_what_was_stated_again_holds_again_whatever_the_order() -> None:
    stated = [fact("a", 1), fact("b", 5), fact("a", 9), fact("c", 12), fact("b", 20)]
    for order in permutations(stated):
        known = after(order)
        began = {one[:2] for one in times(known)}
        open_facts = [one for one in known.values() if one.invalid_at is None]

        assert began >= {("a", day(1)), ("b", day(5)), ("c", day(12)), ("b", day(20))}, order
        assert [(one.target, one.valid_at) for one in open_facts] == [("b", day(20))], order
        assert all(len(one.told) == len(one.episodes) for one in known.values()), order
        for moment, holding in ((3, "a"), (7, "b"), (10, "a"), (15, "c"), (25, "b")):
            assert {one.target for one in known.values() if holds_on(one, moment)} == {holding}, order


def test_what_was_stated_again_and_again_is_told_apart_where_all_was_written_at_once() -> None:
    stated = [("a", 1), ("b", 5), ("a", 9), ("b", 12), ("a", 20)]
    written = [fact(target, at, told=(Told(f"{target}-{at}", day(at), NOW),)) for target, at in stated]
    for order in permutations(written):
        periods = {(*one, end) for one, (_, end) in zip(stated, [*stated[1:], ("", None)], strict=True)}
        assert times(after(order)) == {(one, day(at), end and day(end)) for one, at, end in periods}, order


def test_what_several_episodes_state_together_is_told_apart_by_their_times() -> None:
    both = fact("a", 1, episodes=("a-1", "a-9"), told=(Told("a-1", day(1)), Told("a-9", day(9))))

    assert after([both, fact("b", 5)]) == after([fact("a", 1), fact("b", 5), fact("a", 9)])


def test_a_fact_whose_beginning_was_forgotten_begins_with_the_next_statement_of_it() -> None:
    known = after([fact("a", 1, told=(Told("a-9", day(9)),), episodes=("a-9",)), fact("b", 5)])

    assert times(known) == {("b", day(5), day(9)), ("a", day(9), None)}


def test_saying_it_twice_changes_nothing() -> None:
    statements = [fact("a", 1), fact("b", 5), fact("a", 9)]

    assert after([*statements, *statements]) == after(statements)


def test_a_superseded_fact_is_not_brought_back_by_an_earlier_statement() -> None:
    known = after([fact("a", 2), fact("b", 5), fact("a", 1)])

    assert times(known) == {("a", day(1), day(5)), ("b", day(5), None)}
    assert known["a-id"].episodes == ("a-2", "a-1")


def test_facts_that_begin_at_the_same_time_stand_beside_each_other() -> None:
    assert times(after([fact("a", 1), fact("b", 1)])) == {("a", day(1), None), ("b", day(1), None)}


def test_relations_that_are_not_exclusive_end_nothing() -> None:
    known = after([fact("a", 1, exclusive=False), fact("b", 5, exclusive=False)])

    assert times(known) == {("a", day(1), None), ("b", day(5), None)}


def test_a_fact_with_an_end_of_its_own_keeps_it_where_it_comes_first() -> None:
    known = after([fact("a", 1, ends_at=day(3)), fact("b", 5), fact("c", 9, ends_at=day(300))])

    assert times(known) == {("a", day(1), day(3)), ("b", day(5), day(9)), ("c", day(9), day(300))}


def test_what_only_begins_later_does_not_end_what_holds_now() -> None:
    known = after([fact("a", 1), fact("b", 300)])

    assert known["a-id"].invalid_at == day(300)
    assert known["a-id"].expired_at is None, "it was not found to be no longer true yet"


@pytest.mark.parametrize("is_first", [True, False])
def test_a_statement_that_something_ended_ends_it_and_nothing_else(is_first: bool) -> None:
    left = fact("a", 5, uuid="left", own_id="left", ends=True, ends_at=day(5))
    statements = [fact("a", 1), fact("b", 5, exclusive=False)]

    known = after([left, *statements] if is_first else [*statements, left])

    assert (known["a-id"].invalid_at, known["b-id"].invalid_at) == (day(5), None)


@pytest.mark.parametrize("is_first", [True, False])
def test_an_end_holds_for_no_time_where_it_is_known_when_its_fact_began(is_first: bool) -> None:
    left = fact("a", None, uuid="left", own_id="left", ends=True, ends_at=day(5))
    for begun, since in ((fact("a", 1), day(5)), (fact("a", 7), None), (fact("b", 1), None)):
        known = after([left, begun] if is_first else [begun, left])

        assert (known["left"].valid_at, known["left"].invalid_at) == (since, day(5))
    forgotten = with_ends({"left": replace(left, valid_at=day(5))}, NOW)
    assert forgotten["left"].valid_at is None


@pytest.mark.parametrize("is_first", [True, False])
def test_an_end_that_says_no_more_never_holds(is_first: bool) -> None:
    left = fact("a", None, uuid="left", own_id="left", ends=True, ends_at=day(5))
    for mood, since in (("ended", day(5)), ("over", day(5)), ("past", None)):
        told = replace(left, properties=json.dumps({"mood": mood}))
        other = fact("b", 9)
        known = after([told, other] if is_first else [other, told])

        assert (known["left"].valid_at, known["left"].invalid_at) == (since, day(5))
        assert holds_on(known["left"], 1) is (mood == "past")


@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_over_whatever_it_was_ends_all_that_began_before(is_first: bool) -> None:
    properties = json.dumps({"mood": "over"})
    quit_ = fact("job", None, uuid="quit", own_id="quit", ends=True, ends_at=day(5), properties=properties)
    jobs = [fact("a", 1), fact("b", 7)]

    known = after([quit_, *jobs] if is_first else [*jobs, quit_])

    assert (known["a-id"].invalid_at, known["b-id"].invalid_at) == (day(5), None)


def test_what_was_taken_back_holds_again_when_something_else_states_it() -> None:
    retired = fact("a", 1, retired_at=day(5))

    assert after([retired])["a-id"].invalid_at == day(5)
    assert after([retired, replace(fact("a", 2), episodes=("other",))])["a-id"].invalid_at is None


def test_the_end_of_a_fact_that_the_model_found_stays() -> None:
    found = fact("a", 1, ends_at=day(3), invalid_at=day(3), expired_at=day(4))

    assert after([found, fact("b", 9)])["a-id"] == replace(found, retired_at=None)


def on_one_day(target: str, hour: float, *, dated: bool = True, **changes: Any) -> FactRecord:
    """Return what was written at an hour of day 1, in a note of that day or in one without a date."""
    written_at = day(1) + timedelta(hours=hour)
    since = day(1) if dated else written_at
    episode = f"{target}-{hour}"
    return fact(
        target, 1, valid_at=since, episodes=(episode,), told=(Told(episode, since, written_at),), **changes
    )


def end_of(target: str, hour: float) -> FactRecord:
    """Return that it was written at an hour of day 1, in a note of that day, that something is no more."""
    temporal = json.dumps({"created_at": (day(1) + timedelta(hours=hour)).isoformat()})
    own_id = f"left-{target}"
    return fact(
        target,
        None,
        uuid=own_id,
        own_id=own_id,
        ends=True,
        ends_at=day(1),
        reference_time=day(1),
        temporal=temporal,
    )


def holding(known: dict[str, FactRecord]) -> list[str]:
    return sorted(one.target for one in known.values() if one.invalid_at is None)


def test_of_what_was_said_on_one_day_the_last_holds_whatever_the_order_it_came_in() -> None:
    said = [
        on_one_day("a", 11.75, dated=False),
        on_one_day("b", 12),
        on_one_day("a", 13),
        on_one_day("c", 14),
    ]
    outcomes = [after(order) for order in permutations(said)]

    assert {tuple(holding(known)) for known in outcomes} == {("c",)}
    assert len({frozenset(times(known)) for known in outcomes}) == 1
    assert all(
        one.valid_at <= one.invalid_at for one in outcomes[0].values() if one.valid_at and one.invalid_at
    )
    assert {one.target for one in outcomes[0].values() if holds_on(one, 2)} == {"c"}


def test_what_was_said_again_after_its_end_on_the_same_day_holds_again() -> None:
    for exclusive in (True, False):
        first = on_one_day("a", 11.75, dated=False, exclusive=exclusive)
        said = [first, end_of("a", 12), on_one_day("a", 13, exclusive=exclusive)]
        for order in permutations(said[:2]):
            assert [one.target for one in after(order).values() if one.invalid_at is None] == []
        for order in permutations(said):
            known = after(order)
            assert [one.told[0].episode for one in known.values() if one.invalid_at is None] == ["a-13"], (
                order
            )


MOMENTS = [(1, 0), (1, 0), (1, 2), (5, 0), (5, 2), (9, 0)]
"""Days, and the hours at which something was written of them; several things may be of one."""


def stated_at_random(chance: Random) -> list[FactRecord]:
    """Return statements of one thing, some of them of the same time: that it is so, or is so no more."""
    made = []
    for number in range(chance.randint(2, 4)):
        (at, hour), kind = chance.choice(MOMENTS), chance.choice(["is", "is", "is", "ended"])
        target, episode, written_at = chance.choice("abc"), f"e{number}", NOW + timedelta(hours=hour)
        if kind == "ended":
            end = end_of(target, hour)
            made.append(replace(end, ends_at=day(at), reference_time=day(at), episodes=(episode,)))
        else:
            made.append(fact(target, at, told=(Told(episode, day(at), written_at),), episodes=(episode,)))
    return made


def test_what_holds_does_not_depend_on_the_order_though_much_is_of_one_time() -> None:
    chance = Random(7)
    for _ in range(300):
        stated = stated_at_random(chance)
        held = [
            [{one.target for one in after(order).values() if holds_on(one, at)} for at in (1, 3, 5, 7, 9, 11)]
            for order in permutations(stated)
        ]
        assert all(one == held[0] for one in held), stated


def test_who_holds_what_has_one_holder_does_not_depend_on_the_order() -> None:
    heads = [
        fact("atlas", at, exclusive=False, one_holder=True, source=who, uuid=who, own_id=who)
        for who, at in (("ada", 1), ("bo", 5), ("ada", 9))
    ]
    for order in permutations(heads):
        known = after(order)
        for at, who in ((3, "ada"), (7, "bo"), (11, "ada")):
            assert {one.source for one in known.values() if holds_on(one, at)} == {who}, order


def test_what_changes_hundreds_of_times_is_told_apart_with_few_looks_at_each_statement() -> None:
    looks = 0

    class Seen(Told):
        @property
        def order(self) -> Order:
            nonlocal looks
            looks += 1
            return super().order

    chance = Random(3)
    hours = [NOW + timedelta(hours=number) for number in range(240)]
    chance.shuffle(hours)
    doors = {name: sorted(hours[at::8]) for at, name in enumerate("abcdefgh")}
    stated = [
        fact(name, None, told=tuple(Seen(f"{name}-{at}", at) for at in times), valid_at=times[0])
        for name, times in doors.items()
    ]
    known = split_restated({one.uuid: one for one in stated}, "g1")

    states = [next(name for name, times in doors.items() if hour in times) for hour in sorted(hours)]
    changes = 1 + sum(one != other for one, other in pairwise(states))
    assert len(known) == changes
    assert looks < 100 * len(hours)


def test_an_end_that_is_told_for_two_times_ends_both_periods() -> None:
    ends = [
        replace(end_of("a", 0), ends_at=day(at), reference_time=day(at), episodes=(f"left-{at}",))
        for at in (3, 9)
    ]
    for order in permutations([fact("a", 1), fact("a", 5), *ends]):
        periods = {one[1:] for one in times({o.uuid: o for o in after(order).values() if not o.ends})}
        assert periods == {(day(1), day(3)), (day(5), day(9))}, order


def test_a_day_goes_before_the_time_at_which_something_was_written() -> None:
    earlier = fact("a", 1, told=(Told("a-1", day(1), day(9)),))
    later = fact("b", 5, told=(Told("b-5", day(5), day(6)),))

    assert holding(after([earlier, later])) == holding(after([later, earlier])) == ["b"]


def test_the_day_of_a_time_at_an_edge_of_the_calendar_is_that_edge() -> None:
    west, east = timezone(-timedelta(hours=5)), timezone(timedelta(hours=5))
    first = datetime(1, 1, 1, 0, 30, tzinfo=UTC)
    last = datetime(9999, 12, 31, 23, 30, tzinfo=UTC)

    assert Told("e", first, NOW.astimezone(west)).order[0] == first.date()
    assert Told("e", last, NOW.astimezone(east)).order[0] == last.date()


def test_the_day_of_a_time_is_that_of_whoever_wrote_it() -> None:
    evening = timezone(timedelta(hours=-5))
    at_19, at_20 = (datetime(2026, 1, 1, hour, 30, tzinfo=evening) for hour in (19, 20))
    undated = fact("a", 1, valid_at=at_19, told=(Told("a-1", at_19.astimezone(UTC), at_19),))
    dated = fact("b", 0, told=(Told("b-0", day(0), at_20),))

    assert holding(after([undated, dated])) == holding(after([dated, undated])) == ["b"]
