"""Laws of query analysis that hold for anything a person can type."""

import apsw
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from composable_memory_adapters.text.forms import index_text
from composable_memory_adapters.text.query_terms import MAX_PHRASES, MAX_TERMS, analyse

PIECES = st.one_of(
    st.sampled_from(['"', "“", "*", "^", "NEAR(", " AND ", " OR ", "NOT", ":", "-", "'", "(", ")", "+", "a"]),
    st.sampled_from(["深度学习", "東京タワー", "배포를", "ｶﾞ", "\u3099", "\u1112\u1161", "\x00", "\ud800"]),
    st.sampled_from(["الكتاب", "وَلَد", "\u064b", "\u0640", "٣", "¿qué dónde cuándo", "onde você"]),
    st.text(st.characters(codec=None), max_size=8),
    st.sampled_from(["foo_bar", "a/b.py", "Straße", "niño", "what", "the", "😀", " "]),
)
TYPED = st.lists(PIECES, max_size=12).map("".join)
WORDS = st.text(
    st.one_of(
        st.sampled_from("abzé部署的案東京タワは서버가책을الوبيتهةأِـ"),
        st.characters(min_codepoint=0x20, max_codepoint=0x024F, categories=["L", "N"]),
    ),
    min_size=1,
    max_size=8,
)


@pytest.fixture(scope="module")
def index() -> apsw.Connection:
    """Return an empty keyword index as the product makes it."""
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE notes USING fts5("
        "text, content='', contentless_delete=1, tokenize='porter unicode61 remove_diacritics 2')"
    )
    return connection


def finds(index: apsw.Connection, text: str, match: str | None) -> bool:
    with index:
        index.execute("INSERT INTO notes (rowid, text) VALUES (1, ?)", (index_text(text),))
        row = index.execute("SELECT rowid FROM notes WHERE notes MATCH ?", (match,)).fetchone()
        index.execute("DELETE FROM notes WHERE rowid = 1")
    return row is not None


@given(query=TYPED)
@example(query='"" OR "*')
@example(query="NEAR(a b, 3) AND {x}: y")
def test_fts5_accepts_whatever_is_typed(index: apsw.Connection, query: str) -> None:
    analysed = analyse(query)

    for match in (analysed.match_any(), *(one for every in analysed.lookups for one in every)):
        if match is not None:
            index.execute("SELECT rowid FROM notes WHERE notes MATCH ?", (match,)).fetchall()


@given(query=TYPED)
def test_what_is_looked_up_has_a_limit(query: str) -> None:
    analysed = analyse(query * 200)

    assert len(analysed.terms) <= MAX_TERMS
    assert len(analysed.phrases) <= MAX_PHRASES


@given(query=TYPED)
def test_the_same_question_is_analysed_alike(query: str) -> None:
    assert analyse(query) == analyse(query)


@given(text=TYPED)
def test_what_is_indexed_can_be_stored_unless_the_text_cannot(index: apsw.Connection, text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        text = text.encode("utf-8", "replace").decode("utf-8")

    finds(index, text, '"anything"')


@given(words=st.lists(WORDS, min_size=1, max_size=5))
def test_a_text_is_found_by_each_of_its_words(index: apsw.Connection, words: list[str]) -> None:
    text = " ".join(words)

    for word in words:
        match = analyse(word).match_any()
        assert match is None or finds(index, text, match), word


@given(words=st.lists(WORDS, min_size=1, max_size=5))
def test_a_text_is_found_by_itself_as_a_quotation(index: apsw.Connection, words: list[str]) -> None:
    text = " ".join(words)

    query = analyse(f'"{text}"')
    for (match,) in query.lookups[len(query.terms) :]:
        assert finds(index, text, match), match
