"""How a text is cut into chunks."""

from hashlib import sha256

import pytest

from composable_memory_adapters.chunking import Chunk, chunk_markdown

SIX_LINES = "\n".join(f"line{number:06}" for number in range(1, 7))
ROCKET = "\N{ROCKET}"


def outline(text: str, tokens: int = 400, overlap: int = 80) -> list[tuple[int, int, int]]:
    """Return first line, last line and UTF-16 length of each chunk."""
    return [
        (chunk.start_line, chunk.end_line, len(chunk.text.encode("utf-16-le", "surrogatepass")) // 2)
        for chunk in chunk_markdown(text, tokens=tokens, overlap=overlap)
    ]


@pytest.mark.parametrize(
    ("text", "tokens", "overlap", "expected"),
    [
        pytest.param(SIX_LINES, 8, 0, [(1, 2, 21), (3, 4, 21), (5, 6, 21)], id="lines"),
        pytest.param(
            SIX_LINES,
            8,
            3,
            [(1, 2, 21), (1, 3, 32), (2, 4, 32), (3, 5, 32), (4, 6, 32)],
            id="whole lines are repeated",
        ),
        pytest.param("x" * 100, 8, 0, [(1, 1, 32), (1, 1, 32), (1, 1, 32), (1, 1, 4)], id="a long line"),
        pytest.param(
            "x" * 100,
            8,
            2,
            [(1, 1, 32), (1, 1, 32), (1, 1, 32), (1, 1, 28)],
            id="pieces of a long line are repeated",
        ),
        pytest.param("a\nb\n", 400, 80, [(1, 3, 4)], id="a final line break makes an empty last line"),
        pytest.param(
            "\n".join(["y" * 60] * 100),
            400,
            80,
            [(1, 26, 1585), (21, 46, 1585), (41, 66, 1585), (61, 86, 1585), (81, 100, 1219)],
            id="the usual size",
        ),
        pytest.param("a" * 20 + "\n" + "b" * 20, 1, 0, [(1, 1, 20), (2, 2, 20)], id="32 characters at least"),
        pytest.param("x" * 31 + "\n" + "y", 8, 0, [(1, 1, 31), (2, 2, 1)], id="a line break counts"),
        pytest.param("x" * 32, 8, 0, [(1, 1, 32)], id="a line that just fits"),
    ],
)
def test_chunks_begin_and_end_where_they_should(
    text: str, tokens: int, overlap: int, expected: list[tuple[int, int, int]]
) -> None:
    assert outline(text, tokens, overlap) == expected


def test_a_chunk_is_its_lines_and_their_hash() -> None:
    first = chunk_markdown(SIX_LINES, tokens=8, overlap=0)[0]

    text = "line000001\nline000002"
    assert first == Chunk(start_line=1, end_line=2, text=text, hash=sha256(text.encode()).hexdigest())
    assert first.hash.startswith("1920d9fb107eadce")


@pytest.mark.parametrize("text", ["", " ", "\n\n\n", " \t\r\n\u3000"])
def test_blank_text_has_no_chunks(text: str) -> None:
    assert chunk_markdown(text) == []


def test_a_blank_chunk_between_others_is_left_out() -> None:
    assert outline("a" * 30 + "\n" * 40 + "b", 8, 0) == [(1, 2, 31), (35, 41, 7)]


def test_characters_outside_the_basic_plane_count_twice() -> None:
    assert outline(ROCKET * 10 + "\n" + ROCKET * 10, 8, 0) == [(1, 1, 20), (2, 2, 20)]


def test_one_astral_character_does_not_change_how_other_lines_count() -> None:
    plain = outline("ü" * 60 + "\n" + "z" * 30, 8, 0)
    with_rocket = outline("ü" * 60 + "\n" + "z" * 28 + ROCKET, 8, 0)

    assert plain == with_rocket == [(1, 1, 32), (1, 1, 28), (2, 2, 30)]


def test_a_surrogate_pair_is_never_cut() -> None:
    chunks = chunk_markdown("x" * 31 + ROCKET * 20, tokens=8, overlap=0)

    assert [chunk.text for chunk in chunks] == ["x" * 31, ROCKET * 16, ROCKET * 4]


def test_half_a_surrogate_pair_is_text_like_any_other() -> None:
    broken = "\ud83d" * 40
    chunks = chunk_markdown(broken, tokens=8, overlap=0)

    assert "".join(chunk.text for chunk in chunks) == broken
    assert len({chunk.hash for chunk in chunks}) == 2


def test_pieces_of_a_long_line_are_told_apart_by_where_they_begin() -> None:
    text = " ".join(f"word{number}" for number in range(50))
    chunks = chunk_markdown(text, tokens=8, overlap=2)

    assert {(chunk.start_line, chunk.end_line) for chunk in chunks} == {(1, 1)}
    assert len({chunk.start_char for chunk in chunks}) == len(chunks)
    for chunk in chunks:
        assert text[chunk.start_char :].startswith(chunk.text)


@pytest.mark.parametrize(
    "text",
    [
        "x" * 5000,
        "word " * 1000,
        "供应商部署方案" * 800,
        ROCKET * 3000,
        "a\n" + "b" * 4000 + "\nc\nd",
        "\n".join(["y" * 1500] * 5),
    ],
    ids=["letters", "words", "Chinese", "astral", "among short ones", "long lines that fit"],
)
def test_no_chunk_is_longer_than_the_limit_and_the_overlap_is_kept(text: str) -> None:
    chunks = chunk_markdown(text)
    lines = text.split("\n")
    begins = [sum(len(line) + 1 for line in lines[: one.start_line - 1]) + one.start_char for one in chunks]

    assert max(length for _, _, length in outline(text)) <= 1600
    ends = [begin + len(one.text) for begin, one in zip(begins, chunks, strict=True)]
    assert ends[-1] >= len(text.rstrip())
    if len(lines) == 1:
        assert all(end - begin >= 160 for end, begin in zip(ends, begins[1:], strict=False))
    else:
        assert all(begin <= end + 1 for end, begin in zip(ends, begins[1:], strict=False))


@pytest.mark.parametrize(
    "sign",
    ["e\u0301", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "\U0001f44d\U0001f3fd"],
    ids=["an accent", "a family", "a flag", "a tone of skin"],
)
@pytest.mark.parametrize("before", range(4))
def test_what_readers_see_as_one_character_is_never_cut(sign: str, before: int) -> None:
    text = "x" * before + sign * 2000

    for chunk in chunk_markdown(text):
        if chunk.start_char:
            assert (chunk.start_char - before) % len(sign) == 0


def test_accents_without_end_are_cut_all_the_same() -> None:
    assert max(length for _, _, length in outline("e" + "\u0301" * 5000)) <= 1600


def test_a_carriage_return_stays_in_its_line() -> None:
    assert [chunk.text for chunk in chunk_markdown("a\r\nb")] == ["a\r\nb"]


def test_an_overlap_as_large_as_a_chunk_still_comes_to_an_end() -> None:
    assert outline(SIX_LINES, 8, 100) == outline(SIX_LINES, 8, 7)


def test_a_negative_overlap_is_none() -> None:
    assert outline(SIX_LINES, 8, -5) == outline(SIX_LINES, 8, 0)
