"""Where in the words of a passage, as PostgreSQL keeps them, those of a question are."""

import pytest

from composable_memory_adapters.builtin.notes.fields import KeywordRow
from composable_memory_adapters.postgres.passage_tokens import Sought, fts5_score, words_of
from composable_memory_adapters.text.forms import Stemmer
from composable_memory_adapters.text.query_terms import Lookup

STEMMER = Stemmer()
ROW = KeywordRow("red lamp, red lamps and a redder door", "lamp", "", "red red red")


@pytest.mark.parametrize(
    ("lookup", "expected"),
    [
        (Lookup(("red",)), [[0, 2], [], [], [0, 1, 2]]),
        (Lookup(("lamp",)), [[1, 3], [0], [], []]),
        (Lookup(("red", "lamp")), [[0, 2], [], [], []]),
        (Lookup(("red", "red")), [[], [], [], [0, 1]]),
        (Lookup(("red",), is_open=True), [[0, 2, 6], [], [], [0, 1, 2]]),
        (Lookup(("amp",)), [[], [], [], []]),
        (Lookup(("…",)), [[], [], [], []]),
    ],
)
def test_places_are_the_numbers_of_tokens_by_column(lookup: Lookup, expected: list[list[int]]) -> None:
    assert Sought.of(lookup, STEMMER).places(words_of(ROW, STEMMER).words) == expected


def test_tokens_that_stand_side_by_side_all_count() -> None:
    words, sought = words_of(ROW, STEMMER), Sought.of(Lookup(("red",)), STEMMER)
    once = words_of(KeywordRow("red", "", "", "a b c d e f g h i j k"), STEMMER)

    many, one = (fts5_score(it.words, [sought], [1.0], tokens=12, average=12.0) for it in (words, once))

    assert many == pytest.approx(5 * 2.2 / (5 + 1.2))
    assert one == pytest.approx(1.0)


def test_the_tokens_of_a_passage_are_counted_where_a_field_has_none() -> None:
    words = words_of(ROW, STEMMER)

    assert (words.length, words.tokens) == (8, 12)
    assert words_of(KeywordRow("", "", "", ""), STEMMER).tokens == 0
