"""Packing results into one text."""

from composable_memory.context_pack import pack_results
from composable_memory.types import MemorySearchResult


def hit(path: str, snippet: str, start_line: int = 3) -> MemorySearchResult:
    return MemorySearchResult(
        path=path, start_line=start_line, end_line=start_line, score=0.5, snippet=snippet
    )


def test_each_piece_has_a_heading_with_its_place_and_score() -> None:
    pack, sources = pack_results([hit("a.md", " first "), hit("graph/1", "second", start_line=0)])

    assert pack == "#1 a.md:3-3 (score 0.50)\nfirst\n\n#2 graph/1 (score 0.50)\nsecond"
    assert [source.path for source in sources] == ["a.md", "graph/1"]


def test_the_last_piece_is_cut_to_the_budget() -> None:
    pack, sources = pack_results([hit("a.md", "x" * 500)], max_chars=100)

    assert len(pack) == 100
    assert len(sources) == 1


def test_a_piece_of_which_too_little_would_remain_is_left_out() -> None:
    results = [hit("a.md", "x" * 50), hit("b.md", "y" * 50)]

    pack, sources = pack_results(results, max_chars=90)

    assert "b.md" not in pack
    assert [source.path for source in sources] == ["a.md"]


def test_no_results_make_an_empty_pack() -> None:
    assert pack_results([]) == ("", ())
