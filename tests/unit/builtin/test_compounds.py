"""German and Dutch compounds: found by their ends, and by their parts where the question has the compound."""

import pytest

from composable_memory_adapters.text.compounds import ends, long_words, may_end_compounds, splits


def test_long_words_are_those_of_texts_in_languages_with_compounds() -> None:
    german = "Die Wasserpumpe im Keller ist laut. Der Ärztekongress war im Mai."
    dutch = "De waterkoker in de keuken lekt, het is niet de stekker."
    english = "The carpenter replaced the wooden staircase and painted the windows."

    assert {"wasserpumpe", "keller", "arztekongress"} <= long_words([german])
    assert {"waterkoker", "keuken", "stekker"} <= long_words([dutch])
    assert long_words([english]) == set()
    assert "unterschreiben" not in long_words(["Das muss ich im Mai unterschreiben."])


@pytest.mark.parametrize(
    ("asked", "language", "compound"),
    [
        ("Pumpe", "de", "wasserpumpen"),
        ("Pumpen", "de", "wasserpumpe"),
        ("Karten", "de", "speisekarte"),
        ("Häuser", "de", "gartenhaus"),
        ("Uhr", "de", "taschenuhr"),
        ("pomp", "nl", "fietspompen"),
        ("kaarten", "nl", "parkeerkaart"),
    ],
)
def test_a_compound_ends_in_one_of_the_forms_of_its_last_part(
    asked: str, language: str, compound: str
) -> None:
    assert any(compound.endswith(end) for end in ends(asked, language))


def test_only_nouns_end_compounds_in_german_unless_all_is_in_small_letters() -> None:
    assert may_end_compounds(["kostet", "Karte", "X1"], "de") == ["Karte"]
    assert may_end_compounds(["kostet", "karte"], "de") == ["kostet", "karte"]
    assert may_end_compounds(["kost", "kaart"], "nl") == ["kost", "kaart"]
    assert may_end_compounds(["card"], "en") == []


@pytest.mark.parametrize(
    ("compound", "first", "last"),
    [
        ("Kellerschlüssel", "Keller", "Schlüssel"),
        ("Kartenzahlung", "Karte", "Zahlung"),
        ("Arbeitsvertrag", "Arbeit", "Vertrag"),
        ("Wolldecke", "Wolle", "Decke"),
        ("Gießkanne", "Gießen", "Kanne"),
    ],
)
def test_a_compound_is_put_together_from_a_form_of_its_first_part_and_the_last(
    compound: str, first: str, last: str
) -> None:
    assert any(first in firsts and last == end for firsts, end in splits(compound, "de"))
