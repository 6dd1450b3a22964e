"""How the confidence of an opinion moves."""

from dataclasses import replace
from datetime import date
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composable_memory.recall.retained_notes import KnownLine, note_of
from composable_memory.reflect.opinions import DAY_LIMIT, LEAST, MOST, Day, evolve_confidence, opinions_of
from composable_memory.reflect.report import Opinion

DAYS = st.lists(st.builds(Day, st.integers(0, 5), st.integers(0, 5)), max_size=12)
STATED = st.floats(0, 1)


def lines_of(*notes: tuple[str, str]) -> list[KnownLine]:
    read = (note_of(f"memory/{day}.md", f"## Retain\n{text}", date(2026, 1, 1)) for day, text in notes)
    return [line for note in read for line in note.lines]


def only(*notes: tuple[str, str]) -> Opinion:
    (opinion,) = opinions_of(lines_of(*notes))
    return opinion


@given(STATED, DAYS)
def test_a_confidence_stays_within_bounds(stated: float, days: list[Day]) -> None:
    assert (
        (LEAST - 1e-9 <= evolve_confidence(stated, days) <= MOST + 1e-9)
        if days
        else evolve_confidence(stated, days) == stated
    )


@given(STATED, DAYS, st.data())
def test_more_agreement_never_lowers_it_and_more_contradiction_never_raises_it(
    stated: float, days: list[Day], data: st.DataObject
) -> None:
    if days:
        at = data.draw(st.integers(0, len(days) - 1))
        agreed, contradicted = [*days], [*days]
        agreed[at] = days[at]._replace(supporting=days[at].supporting + 1)
        contradicted[at] = days[at]._replace(contradicting=days[at].contradicting + 1)
        assert evolve_confidence(stated, agreed) >= evolve_confidence(stated, days) - 1e-12
        assert evolve_confidence(stated, contradicted) <= evolve_confidence(stated, days) + 1e-12


@given(st.floats(0.1, 0.9), st.integers(0, 9), st.integers(0, 2))
def test_one_day_moves_it_a_little_unless_contradiction_is_repeated(
    stated: float, supporting: int, contradicting: int
) -> None:
    assert abs(evolve_confidence(stated, [Day(supporting, contradicting)]) - stated) <= DAY_LIMIT / 4 + 1e-9


def test_three_contradictions_weigh_more_than_three_times_one() -> None:
    one, three = (evolve_confidence(0.9, [Day(0, 1)] * count) for count in (1, 3))
    assert 0.9 - one < 0.03
    assert 0.9 - three > 4 * (0.9 - one)
    assert evolve_confidence(0.9, [Day(0, 3)]) < 0.75
    assert evolve_confidence(0.9, [Day(0, 1), Day(1, 1), Day(1, 1), Day(0, 1)]) > 0.85


def test_the_order_of_the_lines_of_a_day_makes_no_difference() -> None:
    rows = (
        "- O(c=0.6) @Ana: Ana likes long walks. ^a",
        "- O(c=0.8) @Ana: Ana likes long walks. ^b",
        "- O @Ana: Ana does not like long walks. ^c",
    )
    found = {
        (round(one.stated, 9), round(one.confidence, 9), frozenset(one.contradicting))
        for order in permutations(rows)
        for one in (only(("2026-01-05", "\n".join(order))),)
    }
    assert found == {(0.7, round(evolve_confidence(0.7, [Day(0, 1)]), 9), frozenset({"^c"}))}


def test_lines_of_the_same_entity_in_much_the_same_words_are_evidence() -> None:
    opinion = only(
        ("2026-01-05", "- O(c=0.7) @Peter @[[Ellen Smith]]: Ellen prefers short replies. ^a"),
        (
            "2026-01-06",
            "- S @[[ellen smith]]: Again, Ellen prefers short replies. ^b\n- W @Tom: Prefers short replies.",
        ),
        (
            "2026-01-07",
            "- B @[[Ellen Smith]]: Ellen does not prefer short replies. ^y\n- W @[[Ellen Smith]]: Sails.",
        ),
        ("2026-01-08", "- O @[[Ellen Smith]]: Ellen never prefers short replies. ^c"),
        ("2026-01-09", "- W: Nothing alike, yet it tells. #supports/a ^d\n- W: Nor this. #contradicts/a"),
    )
    assert (opinion.id, opinion.statement, opinion.stated) == ("a", "Ellen prefers short replies.", 0.7)
    assert opinion.supporting == ("^b", "^d")
    assert opinion.contradicting == ("^y", "^c", "memory/2026-01-09.md#L3")
    assert opinion.updated == date(2026, 1, 9)
    assert opinion.confidence == pytest.approx(
        evolve_confidence(0.7, [Day(1, 0), Day(0, 1), Day(0, 1), Day(1, 1)])
    )


def test_a_short_sentence_is_contradicted_whatever_the_form_of_its_verb() -> None:
    for contrary in (
        "Ana does not prefer tea.",
        "Ana never likes tea.",
        "Ana dislikes tea.",
        "Ana hates tea.",
    ):
        liked = "prefers" if "prefer" in contrary else "likes"
        opinion = only(
            ("2026-01-05", f"- O @Ana: Ana {liked} tea. ^a"), ("2026-01-06", f"- O @Ana: {contrary} ^b")
        )
        assert opinion.contradicting == ("^b",), contrary


def test_numbers_have_to_agree_and_other_opinions_stay_apart() -> None:
    found = opinions_of(
        lines_of(
            ("2026-01-05", "- O @Ana: Ana wants 3 bees in the garden.\n- O @Ana: Ana finds oak ugly."),
            ("2026-01-06", "- O @Ana: Ana wants 5 bees in the garden."),
        )
    )
    assert [one.supporting + one.contradicting for one in found] == [(), (), ()]
    assert [one.stated for one in found] == [0.7] * 3


def test_without_evidence_a_confidence_is_as_stated() -> None:
    (line,) = lines_of(("2026-01-05", "- O(c=1) @Ana: Sure of it."))
    assert opinions_of([line])[0].confidence == 1
    assert opinions_of([replace(line, path="memory/other.md"), line])[0].confidence == 1
