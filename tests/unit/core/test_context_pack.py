"""Packing results into one text."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composable_memory.query.context_pack import PackBudget, estimate_tokens, pack_results
from composable_memory.types import MemorySearchResult, Origin, SupportingFact


def hit(
    path: str, snippet: str, start_line: int = 3, *, score: float = 0.5, backend: str = "notes"
) -> MemorySearchResult:
    return MemorySearchResult(
        path=path,
        start_line=start_line,
        end_line=start_line,
        score=score,
        snippet=snippet,
        source_backend=backend,
    )


FACT = replace(
    hit("graph/1", "Ada Example runs billing", start_line=0, backend="graph"),
    origin=Origin(path="memory/a.md", start_line=3, end_line=7),
    facts=(
        SupportingFact(
            text="Ada Example runs billing",
            valid_from=datetime(2026, 3, 1, 10, tzinfo=UTC),
            valid_to=datetime(2026, 5, 2, tzinfo=UTC),
            holds=False,
        ),
    ),
)


def test_each_piece_has_a_heading_with_its_place_and_score() -> None:
    pack, sources = pack_results([hit("a.md", " first "), hit("graph/1", "second", start_line=0)])

    assert pack == "#1 a.md:3-3 (score 0.50)\nfirst\n\n#2 graph/1 (score 0.50)\nsecond"
    assert [source.path for source in sources] == ["a.md", "graph/1"]


def test_the_last_piece_is_cut_to_the_budget() -> None:
    pack, sources = pack_results([hit("a.md", "x" * 500)], PackBudget(max_chars=100))

    assert len(pack) == 100
    assert len(sources) == 1


def test_a_piece_of_which_too_little_would_remain_is_left_out() -> None:
    results = [hit("a.md", "x" * 50), hit("b.md", "y" * 50)]

    pack, sources = pack_results(results, PackBudget(max_chars=90))

    assert "b.md" not in pack
    assert [source.path for source in sources] == ["a.md"]


def test_no_results_make_an_empty_pack() -> None:
    assert pack_results([]) == ("", ())


def test_a_fact_tells_when_it_holds_and_where_it_is_from() -> None:
    pack, _ = pack_results([FACT])

    assert pack == (
        "#1 graph/1 (score 0.50) from memory/a.md#L3-L7\n"
        "Ada Example runs billing\n"
        "- 2026-03-01 to 2026-05-02; no longer holds"
    )


def test_what_the_text_of_a_fact_says_of_its_time_is_not_said_again() -> None:
    told = "Ada Example runs billing (2026-03-01 to 2026-05-02; no longer holds)"

    pack, _ = pack_results([replace(FACT, snippet=told)])

    assert pack.count("2026-03-01") == 1


def test_a_passage_tells_the_facts_that_were_taken_from_it() -> None:
    note = replace(hit("memory/a.md", "Ada runs billing, Ben\nruns support."), facts=FACT.facts)

    pack, _ = pack_results([note], PackBudget(max_chars=140))

    assert pack.endswith(
        "runs support.\n- Ada Example runs billing (2026-03-01 to 2026-05-02; no longer holds)"
    )
    assert len(pack) <= 140


def test_a_piece_is_cut_between_words() -> None:
    for max_chars in (42, 43, 44):  # to the end of a word, to the space after it, into the next one
        pack, _ = pack_results(
            [hit("a.md", "alpha beta gamma delta epsilon")], PackBudget(max_chars=max_chars)
        )

        assert pack == "#1 a.md:3-3 (score 0.50)\nalpha beta gamma…"


def test_a_backend_with_a_good_result_gets_a_place_beside_one_that_could_fill_the_pack() -> None:
    flood = [hit(f"{number}.md", "word " * 60, score=0.9) for number in range(5)]
    results = [*flood, hit("graph/1", "the boat key is at Ada's", 0, score=0.45, backend="graph")]

    pack, sources = pack_results(results, PackBudget(max_chars=700))

    assert [source.path for source in sources] == ["0.md", "1.md", "graph/1"]
    assert pack.startswith("#1 0.md")
    assert "#3 graph/1 (score 0.45)\nthe boat key is at Ada's" in pack


def test_a_backend_whose_best_result_is_poor_gets_no_place_of_its_own() -> None:
    flood = [hit(f"{number}.md", "word " * 60, score=0.9) for number in range(5)]

    _, sources = pack_results(
        [*flood, hit("graph/1", "x", 0, score=0.4, backend="graph")], PackBudget(max_chars=700)
    )

    assert {source.source_backend for source in sources} == {"notes"}


def test_a_token_is_four_characters_or_one_ideograph() -> None:
    assert [estimate_tokens(text) for text in ("", "abcd", "abcde", "部署方案", "ab 部署")] == [0, 1, 2, 4, 3]


def test_a_budget_of_tokens_holds_less_of_a_script_without_spaces() -> None:
    latin, _ = pack_results([hit("a.md", "word " * 200)], PackBudget(max_tokens=60))
    chinese, _ = pack_results([hit("a.md", "部署方案在六月" * 60)], PackBudget(max_tokens=60))

    assert 200 < len(latin) <= 240
    assert len(chinese) < 85


@pytest.mark.parametrize(
    "wrong", [{}, {"max_chars": 0}, {"max_tokens": -1}, {"max_chars": 5, "max_tokens": 5}]
)
def test_a_budget_that_makes_no_sense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"budget|has to be"):
        PackBudget(**wrong)


RESULTS = st.lists(
    st.builds(
        lambda path, text, score, backend: hit(path, text, score=score, backend=backend),
        path=st.sampled_from(["a.md", "b.md", "部署.md"]),
        text=st.text(st.sampled_from("ab 部署。\n"), max_size=300),
        score=st.floats(0.0, 1.0),
        backend=st.sampled_from(["notes", "graph", "other"]),
    ),
    max_size=6,
).map(lambda found: sorted(found, key=lambda one: -one.score))


@given(results=RESULTS, room=st.integers(1, 600))
def test_a_pack_never_exceeds_its_budget_and_names_its_sources_in_order(
    results: list[MemorySearchResult], room: int
) -> None:
    by_chars, sources = pack_results(results, PackBudget(max_chars=room))
    by_tokens, _ = pack_results(results, PackBudget(max_tokens=room))

    assert len(by_chars) <= room
    assert estimate_tokens(by_tokens) <= room
    assert [one for one in results if any(one is source for source in sources)] == list(sources)
