"""Which part of a passage is shown."""

import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from composable_memory.types import MAX_SNIPPET_CHARS
from composable_memory_adapters.text.forms import Stemmer
from composable_memory_adapters.text.query_terms import analyse
from composable_memory_adapters.text.snippets import Snippet, SnippetMaker

FILLER = "\n".join(f"row {number} of nothing much" for number in range(100))


def shown(text: str, question: str, *, limit: int = MAX_SNIPPET_CHARS) -> Snippet:
    return SnippetMaker(analyse(question)).snippet(text, limit=limit)


def marked(snippet: Snippet) -> list[str]:
    return [snippet.text[begin:end] for begin, end in snippet.highlights]


def test_a_short_text_is_shown_whole() -> None:
    assert shown("all of it\n", "zebra").text == "all of it\n"


def test_a_long_text_is_shown_from_its_beginning_when_nothing_better_is_further_down() -> None:
    assert shown(f"zanzibar first\n{FILLER}\nzanzibar again", "zanzibar").text.startswith("zanzibar first")

    beginning = shown(FILLER, "absent").text

    assert FILLER.startswith(beginning.removesuffix("…"))
    assert beginning.endswith("much…")


def test_front_matter_is_passed_over_unless_it_is_what_was_asked_for() -> None:
    head = "---\ntitle: Boat licence\n---\n"

    def of_note(body: str, question: str) -> Snippet:
        return SnippetMaker(analyse(question)).snippet(f"{head}{body}", head=len(head))

    found = of_note("\nThe pump leaks.\n", "pump")

    assert found.text == "The pump leaks.\n"
    assert marked(found) == ["pump"]
    assert of_note("The pump leaks.\n", "boat pump").text == f"{head}The pump leaks.\n"
    assert of_note("\n", "pump").text == f"{head}\n"
    assert of_note("", "pump").text == head


def test_lines_with_many_words_of_the_question_are_shown_whole() -> None:
    found = shown(f"zanzibar\n{FILLER}\nthe zanzibar trip in may\n{FILLER}", "zanzibar trip")

    assert "\nthe zanzibar trip in may\n" in found.text
    assert found.text.startswith("…row ")
    assert found.text.endswith("much…")


def test_the_line_behind_what_was_asked_is_shown() -> None:
    text = f"{FILLER}\nAnn: where does the trolley live?\nBob: under the stairs\n{FILLER}"

    assert "under the stairs" in shown(text, "where does the trolley live?", limit=120).text


def test_a_rare_word_goes_before_common_ones() -> None:
    text = f"lamp table chair\n{FILLER}\nthe needle is in the hay\n{FILLER}"
    asked = analyse("lamp table chair needle")

    rare = SnippetMaker(asked, [0.1, 0.1, 0.1, 5.0]).snippet(text)

    assert "the needle is in the hay" in rare.text
    assert "lamp table chair" in SnippetMaker(asked).snippet(text).text


def test_a_long_line_is_cut_at_sentences() -> None:
    line = "Nothing is said in this sentence of some length. " * 30
    text = f"{line}The zanzibar trip is in May. {line}"

    found = shown(text, "zanzibar trip").text

    assert "The zanzibar trip is in May." in found
    assert found.startswith("…Nothing")
    assert found.endswith("length.…")


def test_a_match_deep_in_a_line_without_sentences_begins_and_ends_with_a_word() -> None:
    line = "lorem ipsum " * 200 + "zanzibar " + "dolor sit " * 200

    found = shown(line, "zanzibar").text

    assert "zanzibar" in found
    assert set(found.strip("…").split()) <= {"lorem", "ipsum", "zanzibar", "dolor", "sit"}
    assert len(found) <= MAX_SNIPPET_CHARS


def test_other_forms_accents_and_case_are_marked_and_no_part_of_another_word() -> None:
    text = "Die RÉSUMÉS wurden verschickt: one resume, resuming, presumed"

    assert marked(shown(text, "resume")) == ["RÉSUMÉS", "resume", "resuming"]


def test_every_form_that_the_index_finds_is_marked() -> None:
    stemmer = Stemmer()
    families = (
        "happy happiness happily unhappy",
        "able ability abilities capability capable capabilities sensible sensibility",
        "relate relational relations file filing filed files",
        "hop hopping hopped size sized sizing ties tie dying die dies conflate conflated",
        "generalise generalization formality formal vileness hesitancy radically",
    )
    for words in families:
        for asked in words.split():
            alike = [one for one in words.split() if stemmer.of_text(one) == stemmer.of_text(asked)]
            assert marked(shown(words, asked)) == alike


def test_a_free_last_letter_is_marked_where_the_language_inflects() -> None:
    assert marked(shown("la bicicleta roja", "¿dónde está la bicicleta que es rojo?")) == ["bicicleta"]
    assert marked(shown("las directoras", "¿quién es la director de la empresa?")) == ["directoras"]


def test_characters_of_other_scripts_are_found_and_marked_as_one() -> None:
    text = "天气很好。" * 200 + "部署方案已定" + "天气很好。" * 200

    found = shown(text, "部署方案")

    assert "部署方案" in marked(found)
    assert found.text.startswith("…天气")
    assert marked(shown("ذهبت إلى والحديقة أمس", "حديقة")) == ["والحديقة"]


CLUSTERS = ("a", "b", " ", "\n", "e\u0301", "👩\u200d🚀", "日", "本", ".", "。")


@given(
    clusters=st.lists(st.sampled_from(CLUSTERS), max_size=200),
    question=st.text(alphabet="ab日 ", max_size=5),
    limit=st.integers(min_value=8, max_value=60),
)
def test_it_is_a_piece_of_the_text_within_the_limit_that_parts_no_character(
    clusters: list[str], question: str, limit: int
) -> None:
    text = "".join(clusters)

    found = shown(text, question, limit=limit)

    part = found.text.removeprefix("…").removesuffix("…")
    assert part in text
    assert bool(part) == bool(text)
    assert len(found.text) <= limit
    assert re.fullmatch(f"({'|'.join(map(re.escape, CLUSTERS))})*", part)
    assert all(0 <= begin < end <= len(found.text) for begin, end in found.highlights)
    assert all(one[1] < other[0] for one, other in pairwise(found.highlights))


def test_endless_marks_are_cut_all_the_same() -> None:
    assert len(shown("a" + "\u0301" * 5000, "a").text) > MAX_SNIPPET_CHARS / 2
