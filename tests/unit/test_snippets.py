"""Which part of a passage is shown."""

import re

from hypothesis import given
from hypothesis import strategies as st

from composable_memory.types import MAX_SNIPPET_CHARS
from composable_memory_adapters.text.snippets import snippet

FILLER = "\n".join(f"row {number} of nothing much" for number in range(100))


def test_a_short_text_is_shown_whole() -> None:
    assert snippet("all of it\n", ["it"]) == "all of it\n"


def test_a_long_text_is_shown_from_its_beginning_when_nothing_better_is_further_down() -> None:
    assert snippet(f"zanzibar first\n{FILLER}\nzanzibar again", ["zanzibar"]).startswith("zanzibar first")
    assert snippet(FILLER, ["absent"]) == FILLER[:MAX_SNIPPET_CHARS]


def test_the_part_with_most_terms_is_shown_from_the_start_of_a_line() -> None:
    shown = snippet(f"zanzibar\n{FILLER}\nthe zanzibar trip in may\n{FILLER}", ["zanzibar", "trip"])

    assert "the zanzibar trip in may" in shown
    assert shown.startswith("row ")


def test_a_rare_word_among_many_of_a_common_one_is_shown_with_what_follows_it() -> None:
    lamps = "lamp " * 300

    shown = snippet(f"{lamps}the needle is in the hay {lamps}", ["lamp", "needl"])

    assert "the needle is in the hay" in shown


def test_a_match_deep_in_one_long_line_is_found_and_begins_with_a_word() -> None:
    line = "lorem ipsum " * 200 + "zanzibar " + "dolor sit " * 200

    shown = snippet(line, ["zanzibar"])

    assert "zanzibar" in shown
    assert shown.split()[0] in {"lorem", "ipsum"}
    assert len(shown) <= MAX_SNIPPET_CHARS


def test_other_forms_accents_and_case_are_recognised() -> None:
    text = f"{FILLER}\nDie RÉSUMÉS wurden verschickt"

    assert "RÉSUMÉS" in snippet(text, ["resume"])


def test_characters_of_other_scripts_are_found() -> None:
    text = "天气很好。" * 200 + "部署方案已定" + "天气很好。" * 200

    assert "部署方案" in snippet(text, ["部署", "署方", "方案"])


CLUSTERS = ("a", "b", " ", "\n", "e\u0301", "👩\u200d🚀", "日", "本")


@given(
    clusters=st.lists(st.sampled_from(CLUSTERS), max_size=200),
    term=st.text(alphabet="ab日", max_size=3),
    limit=st.integers(min_value=8, max_value=60),
)
def test_it_is_a_piece_of_the_text_within_the_limit_that_parts_no_character(
    clusters: list[str], term: str, limit: int
) -> None:
    text = "".join(clusters)

    shown = snippet(text, [term], limit=limit)

    assert shown in text
    assert bool(shown) == bool(text)
    assert len(shown) <= limit
    assert re.fullmatch(f"({'|'.join(CLUSTERS)})*", shown)


def test_endless_marks_are_cut_all_the_same() -> None:
    assert len(snippet("a" + "\u0301" * 5000, ["a"])) == MAX_SNIPPET_CHARS
