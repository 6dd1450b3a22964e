"""Texts are cut between characters, and requests stay within their limits."""

from hypothesis import given
from hypothesis import strategies as st

from composable_memory_adapters.embedders.remote.embedder import grouped, truncated

ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=60)


def test_a_text_is_cut_between_two_characters() -> None:
    cases: list[tuple[str, int, str]] = [
        ("ferry", 5, "ferry"),
        ("ferry", 4, "ferr"),
        ("né", 2, "n"),
        ("né", 3, "né"),
        ("港a", 2, ""),
        ("a😀b", 4, "a"),
        ("a😀b", 5, "a😀"),
        ("a\ud800b", 9, "a?b"),
        ("", 3, ""),
    ]
    for text, limit, expected in cases:
        assert truncated(text, limit) == expected


@given(ANY_TEXT, st.integers(16, 80))
def test_what_fits_can_be_sent_and_begins_as_the_text_does(text: str, limit: int) -> None:
    fit = truncated(text, limit)

    assert len(fit.encode()) <= limit
    assert text.encode("utf-8", "replace").decode().startswith(fit)
    assert len(fit) == len(text) or len(fit.encode()) > limit - 4


def test_a_request_takes_as_many_texts_as_both_limits_allow() -> None:
    cases: list[tuple[list[str], list[range]]] = [
        ([], []),
        (["aa", "bb", "cc"], [range(3)]),
        (["a", "b", "c", "d"], [range(3), range(3, 4)]),
        (["aaaa", "bbb", "c"], [range(1), range(1, 3)]),
        (["a" * 50, "b", "c" * 50], [range(1), range(1, 2), range(2, 3)]),
        (["ééé", "a"], [range(1), range(1, 2)]),
    ]
    for texts, expected in cases:
        assert list(grouped(texts, max_texts=3, max_bytes=6)) == expected


@given(st.lists(st.text(max_size=9)), st.integers(1, 5), st.integers(1, 20))
def test_every_text_is_in_one_request_and_limits_hold(texts: list[str], most: int, size: int) -> None:
    groups = list(grouped(texts, max_texts=most, max_bytes=size))

    assert [place for group in groups for place in group] == list(range(len(texts)))
    for group in groups:
        sizes = [len(texts[place].encode()) for place in group]
        assert 1 <= len(group) <= most
        assert sum(sizes) <= size or len(group) == 1
