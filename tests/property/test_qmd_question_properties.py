"""QMD takes every request that is made of anything a person can type.

The rules are those of QMD 2.8: `validateLexQuery` and `validateSemanticQuery`, and the form of a query
document, one search a line. JavaScript's white space is wider than Python's by the mark of byte order.
"""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from composable_memory_adapters.qmd.settings import SearchMode
from composable_memory_adapters.qmd.transport.qmd_client import MAX_CHARACTERS, MAX_SEARCHES, request_of
from composable_memory_adapters.qmd.types import SubSearch

PIECES = st.one_of(
    st.sampled_from(
        ['"', "-", " -", "--", "–", "\n", "\r", "\x00", "\ufeff", "\ud800", "\u2028", " ", "\u0301"]
    ),
    st.sampled_from(
        ["lex:", "vec: ", "hyde:", "intent:", "expand:", "NOT", "AND", "(", "*", "qmd://", "?index=x"]
    ),
    st.sampled_from(
        ["深度学习", "東京タワー", "배포를", "الكتاب", "niño", "café", "what", "a/b.py", "x_y-z", "3.14.0"]
    ),
    st.text(st.characters(codec=None), max_size=8),
)
TYPED = st.lists(PIECES, max_size=12).map("".join)
MODES: st.SearchStrategy[SearchMode] = st.sampled_from(["search", "vsearch", "query"])

LINE_END = re.compile(r"[\r\n]")
NEGATED = re.compile(r'(^|[\s\ufeff])-[A-Za-z0-9_"]')
PREFIX = re.compile(r"^(lex|vec|hyde|expand|intent):", re.IGNORECASE)
JS_SPACE = "\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"


def problem_with(search: SubSearch) -> str | None:
    """Return why QMD would refuse a search, if it would."""
    if LINE_END.search(search.text):
        return "it has several lines"
    if not re.sub(f"[{JS_SPACE}]", "", search.text):
        return "it is empty"
    if search.kind == "lex" and search.text.count('"') % 2:
        return "a quotation mark has no partner"
    if search.kind == "vec" and NEGATED.search(search.text):
        return "it excludes something"
    return None


@given(query=TYPED, mode=MODES, rerank=st.booleans())
@example(query='"-x', mode="vsearch", rerank=False)
@example(query="lex:vec:x", mode="query", rerank=True)
@example(query='-"lex:x', mode="query", rerank=True)
@example(query='- "-lex:-vec:-x', mode="vsearch", rerank=False)
@example(query="a - -b", mode="query", rerank=True)
def test_any_text_makes_a_request_that_qmd_takes(query: str, mode: SearchMode, rerank: bool) -> None:
    asked = request_of(query, mode=mode, rerank=rerank, collections=["notes"], limit=40)

    if asked is None:
        return
    assert asked.expand or 1 <= len(asked.searches) <= MAX_SEARCHES
    assert [problem for one in asked.searches if (problem := problem_with(one))] == []
    assert len(asked.text) <= MAX_CHARACTERS
    assert not PREFIX.match(asked.text)
    assert not asked.text.startswith("-")
    assert not NEGATED.search(asked.text)
    asked.text.encode()  # a lone surrogate could not be handed over


@given(query=TYPED)
def test_no_search_by_words_excludes_anything(query: str) -> None:
    asked = request_of(query, mode="search", rerank=False, collections=["notes"], limit=40)

    assert not any(NEGATED.search(one.text) for one in (asked.searches if asked else ()))
