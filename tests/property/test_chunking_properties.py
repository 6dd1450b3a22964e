"""Laws of chunking that hold for any text."""

from hashlib import sha256
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from composable_memory_adapters.chunking import SMALLEST_CHUNK, chunk_markdown
from composable_memory_adapters.text.markdown_outline import outline

ANY = st.text(
    st.one_of(st.sampled_from("ab \n\n\r\t，部\U0001f680"), st.characters(codec=None)), max_size=400
)
NOTES = st.lists(
    st.sampled_from(
        ["", "", "# Title", "## Part", "text", "more text, a little longer", "- item", "  of an item",
         "1. first", "| a | b |", "|---|---|", "```", "---", "tags: [x]", "==="]
    ),
    max_size=60,
).map("\n".join)  # fmt: skip
TEXTS = st.one_of(ANY, NOTES)
TOKENS = st.integers(1, 30)
OVERLAPS = st.integers(0, 40)


def utf16(text: str) -> bytes:
    return text.encode("utf-16-le", "surrogatepass")


@given(text=TEXTS, tokens=TOKENS, overlap=OVERLAPS)
def test_every_line_that_says_something_is_in_a_chunk(text: str, tokens: int, overlap: int) -> None:
    chunks = chunk_markdown(text, tokens=tokens, overlap=overlap)

    covered = {line for chunk in chunks for line in range(chunk.start_line, chunk.end_line + 1)}
    lines = enumerate(text.split("\n"), start=1)
    assert {number for number, line in lines if line and not line.isspace()} <= covered


@given(text=TEXTS, tokens=TOKENS)
def test_without_overlap_the_chunks_are_the_text(text: str, tokens: int) -> None:
    chunks = chunk_markdown(text, tokens=tokens, overlap=0)

    kept = "".join(chunk.text for chunk in chunks)
    assert "".join(kept.split()) == "".join(text.split())


@given(text=TEXTS, tokens=TOKENS, overlap=OVERLAPS)
def test_lines_start_at_one_and_never_go_back(text: str, tokens: int, overlap: int) -> None:
    chunks = chunk_markdown(text, tokens=tokens, overlap=overlap)

    last = text.count("\n") + 1
    assert all(1 <= chunk.start_line <= chunk.end_line <= last for chunk in chunks)
    assert [chunk.start_line for chunk in chunks] == sorted(chunk.start_line for chunk in chunks)
    assert [chunk.end_line for chunk in chunks] == sorted(chunk.end_line for chunk in chunks)


@given(text=TEXTS, tokens=TOKENS, overlap=OVERLAPS)
def test_a_chunk_of_whole_lines_is_those_lines(text: str, tokens: int, overlap: int) -> None:
    lines = text.split("\n")
    limit = max(SMALLEST_CHUNK, 4 * tokens)

    for chunk in chunk_markdown(text, tokens=tokens, overlap=overlap):
        named = lines[chunk.start_line - 1 : chunk.end_line]
        if all(len(utf16(line)) // 2 <= limit for line in named):
            assert chunk.text == "\n".join(named)


@given(text=TEXTS, tokens=TOKENS, overlap=OVERLAPS)
def test_what_is_repeated_does_not_grow_from_chunk_to_chunk(text: str, tokens: int, overlap: int) -> None:
    limit = max(SMALLEST_CHUNK, 4 * tokens)

    for chunk in chunk_markdown(text, tokens=tokens, overlap=overlap):
        assert len(utf16(chunk.text)) // 2 <= 3 * limit + 2


@given(text=NOTES, tokens=TOKENS, overlap=OVERLAPS)
def test_what_belongs_together_is_in_one_chunk_where_it_fits(text: str, tokens: int, overlap: int) -> None:
    limit = max(SMALLEST_CHUNK, 4 * tokens)
    lines, blocks = text.split("\n"), outline(text).blocks
    chunks = [
        range(chunk.start_line - 1, chunk.end_line)
        for chunk in chunk_markdown(text, tokens=tokens, overlap=overlap)
    ]

    def is_torn(start: int, end: int) -> bool:
        fits = sum(len(line) + 1 for line in lines[start:end]) <= limit
        return fits and not any(start in chunk and end - 1 in chunk for chunk in chunks)

    assert not any(is_torn(one.start, one.end) for one in blocks if one.kind in ("list", "whole"))
    kinds = ["", *(one.kind for one in blocks)]
    for before, heading, below in zip(kinds, blocks, blocks[1:], strict=False):
        if before != "heading" == heading.kind != below.kind:
            # Of a paragraph the first line is enough: it may be cut where the chunk would else be half empty.
            end = below.start + 1 if below.kind == "paragraph" else below.end
            assert not is_torn(heading.start, end)


@given(text=NOTES, tokens=TOKENS)
def test_nothing_is_repeated_across_a_heading_nor_from_within_what_is_whole(text: str, tokens: int) -> None:
    structure = outline(text)
    whole = {
        line for one in structure.blocks if one.kind == "whole" for line in range(one.start + 1, one.end)
    }
    headings = {one.start for one in structure.blocks if one.kind == "heading"}
    chunks = chunk_markdown(text, tokens=tokens, overlap=tokens // 2)

    for before, chunk in pairwise(chunks):
        repeated = set(range(chunk.start_line - 1, before.end_line))
        assert not repeated or chunk.start_line - 1 not in whole
        assert not (repeated - {chunk.start_line - 1}) & headings


@given(text=TEXTS, tokens=TOKENS, overlap=OVERLAPS)
def test_the_hash_is_that_of_the_text(text: str, tokens: int, overlap: int) -> None:
    for chunk in chunk_markdown(text, tokens=tokens, overlap=overlap):
        assert chunk.hash == sha256(chunk.text.encode("utf-8", "surrogatepass")).hexdigest()


@given(text=st.text(st.one_of(st.just("\U0001f680"), st.characters(codec="utf-8")), max_size=400))
def test_sound_text_gives_sound_chunks(text: str) -> None:
    for chunk in chunk_markdown(text, tokens=8, overlap=2):
        chunk.text.encode("utf-8")  # half a surrogate pair would raise
