"""The merge of several ranked lists."""

from dataclasses import fields, replace

from composable_memory.query.fusion import BackendList, Dedup, Fusion, Merged, merge
from composable_memory.types import MemorySearchResult, Origin, SupportingFact


def hit(
    path: str, start: int, end: int, score: float, snippet: str = "", *, exact: bool = False
) -> MemorySearchResult:
    text = snippet or f"{path} from {start} to {end} says something of its own"
    return MemorySearchResult(
        path=path, start_line=start, end_line=end, score=score, snippet=text, exact=exact
    )


def backend(backend_id: str, weight: float, *results: MemorySearchResult) -> BackendList[MemorySearchResult]:
    return BackendList(
        backend_id=backend_id,
        weight=weight,
        results=results,
        calibrated=[result.score for result in results],
    )


def places(merged: Merged[MemorySearchResult]) -> list[tuple[str, float]]:
    return [(result.path, round(result.score, 6)) for result in merged.results]


def test_duplicates_keep_the_highest_weighted_score() -> None:
    first = backend("a", 1.0, hit("p.md", 1, 5, 0.6))
    second = backend("b", 0.5, hit("p.md", 1, 5, 0.9), hit("q.md", 1, 2, 0.8))

    merged = merge([first, second])

    assert places(merged) == [("p.md", 0.6), ("q.md", 0.4)]
    assert merged.results[0].source_backend == "a"
    assert (merged.total_before_dedup, merged.total_after_dedup) == (3, 2)


def test_the_first_backend_keeps_a_duplicate_of_equal_weighted_score() -> None:
    merged = merge([backend("a", 1.0, hit("p.md", 1, 5, 0.4)), backend("b", 0.5, hit("p.md", 1, 5, 0.8))])

    assert [result.source_backend for result in merged.results] == ["a"]


def test_a_result_keeps_all_that_its_backend_said_of_it() -> None:
    told = MemorySearchResult(
        path="p.md", start_line=3, end_line=3, start_char=7, score=0.6, snippet="a text", source="sessions",
        citation="p.md#L3", source_backend="other", exact=True, origin=Origin(path="q.md"),
        metadata={"answered_by": "c"}, highlights=((0, 1),), text="a text and more",
        facts=(SupportingFact(text="a fact"),), title="a title", headings=("a heading",),
    )  # fmt: skip
    usual = {one.name: one.default for one in fields(MemorySearchResult)}
    assert all(getattr(told, name) != default for name, default in usual.items())

    [result] = merge([backend("a", 1.0, told)]).results

    assert result == replace(told, source_backend="a", citation="q.md")


def test_a_result_is_cited_and_has_a_text_whatever_its_backend_gives() -> None:
    bare = MemorySearchResult(path="p.md", start_line=3, end_line=7, score=0.6, snippet="a text")

    [result] = merge([backend("a", 1.0, bare)]).results

    assert (result.citation, result.text) == ("p.md#L3-L7", "a text")


def test_the_attribution_names_what_was_merged() -> None:
    merged = merge([backend("a", 1.0, hit("p.md", 1, 5, 0.6)), backend("b", 1.0, hit("p.md", 1, 5, 0.5))])

    attribution = merged.attributions[0]
    assert (attribution.backend_id, attribution.raw_score, attribution.backend_rank) == ("a", 0.6, 1)
    assert attribution.merged_with == ("b p.md:1:5",)


def test_weights_above_one_keep_scores_within_bounds() -> None:
    merged = merge([backend("a", 4.0, hit("p.md", 1, 5, 0.9)), backend("b", 1.0, hit("q.md", 1, 5, 0.8))])

    assert places(merged) == [("p.md", 0.9), ("q.md", 0.2)]


def test_a_backend_of_weight_zero_is_listed_and_not_returned() -> None:
    merged = merge([backend("a", 1.0, hit("p.md", 1, 5, 0.1)), backend("b", 0.0, hit("q.md", 1, 5, 1.0))])

    assert places(merged) == [("p.md", 0.1)]
    assert [(one.backend_id, one.reason) for one in merged.dropped] == [("b", "weight-zero")]


def test_a_range_that_lies_half_in_a_better_one_is_merged_into_it() -> None:
    lists = [backend("a", 1.0, hit("p.md", 1, 20, 0.9)), backend("b", 1.0, hit("p.md", 12, 18, 0.8))]

    merged = merge(lists, dedup=Dedup.OVERLAP)

    assert places(merged) == [("p.md", 0.9)]
    assert [(one.reason, one.detail) for one in merged.dropped] == [("overlap", "merged into a p.md:1:20")]


def test_a_range_that_adds_more_than_it_repeats_stays_a_result() -> None:
    lists = [backend("a", 1.0, hit("p.md", 11, 18, 0.9), hit("p.md", 1, 17, 0.8))]

    assert len(merge(lists, dedup=Dedup.OVERLAP).results) == 2


def test_ranges_that_only_touch_stay_two_results() -> None:
    lists = [backend("a", 1.0, hit("p.md", 1, 20, 0.9), hit("p.md", 17, 40, 0.8))]

    assert len(merge(lists, dedup=Dedup.OVERLAP).results) == 2


def test_overlapping_ranges_stay_apart_when_only_exact_duplicates_count() -> None:
    lists = [backend("a", 1.0, hit("p.md", 1, 20, 0.9)), backend("b", 1.0, hit("p.md", 2, 20, 0.8))]

    assert len(merge(lists, dedup=Dedup.EXACT).results) == 2


def test_facts_without_lines_are_told_apart_by_their_path() -> None:
    lists = [backend("graph", 1.0, hit("graph/1", 0, 0, 0.9), hit("graph/2", 0, 0, 0.8))]

    assert len(merge(lists, dedup=Dedup.OVERLAP).results) == 2


def fact(number: int, score: float, start: int, end: int, snippet: str = "") -> MemorySearchResult:
    origin = Origin(path="p.md", start_line=start, end_line=end)
    return MemorySearchResult(
        path=f"graph/{number}",
        start_line=0,
        end_line=0,
        score=score,
        snippet=snippet or f"fact {number} says something of its own",
        origin=origin,
        facts=(SupportingFact(text=f"fact {number}", origin=origin),),
    )


def test_a_fact_takes_no_second_place_beside_the_passage_that_it_is_from() -> None:
    lists = [backend("notes", 1.0, hit("p.md", 1, 20, 0.9)), backend("graph", 1.0, fact(1, 0.8, 3, 4))]

    merged = merge(lists, dedup=Dedup.OVERLAP)

    assert [result.path for result in merged.results] == ["p.md"]
    assert merged.attributions[0].merged_with == ("graph graph/1:0:0",)
    assert [(one.reason, one.detail) for one in merged.dropped] == [
        ("overlap", "merged into notes p.md:1:20")
    ]


def test_a_fact_supports_the_passage_that_it_is_from() -> None:
    lists = [
        backend("notes", 1.0, hit("q.md", 1, 5, 0.9), hit("p.md", 1, 20, 0.8)),
        backend("graph", 1.0, fact(1, 0.5, 3, 4)),
    ]

    merged = merge(lists, fusion=Fusion.RRF, dedup=Dedup.OVERLAP)

    assert [result.path for result in merged.results] == ["p.md", "q.md"]


def test_a_passage_gains_a_tenth_of_the_best_fact_from_its_lines() -> None:
    facts = backend("graph", 1.0, fact(1, 0.9, 3, 4), fact(2, 0.7, 8, 9))
    lists = [backend("notes", 1.0, hit("q.md", 1, 5, 0.85), hit("p.md", 1, 20, 0.8)), facts]

    merged = merge(lists)

    assert places(merged) == [("p.md", 0.89), ("q.md", 0.85)]
    assert [round(one.support, 6) for one in merged.attributions] == [0.09, 0.0]


def test_a_fact_far_ahead_of_its_passage_stays_a_result() -> None:
    lists = [backend("notes", 1.0, hit("p.md", 1, 20, 0.5)), backend("graph", 1.0, fact(1, 0.9, 3, 4))]

    assert places(merge(lists)) == [("graph/1", 0.9), ("p.md", 0.5)]


def test_a_passage_carries_the_facts_from_its_lines_also_those_that_stay_results() -> None:
    facts = backend("graph", 1.0, fact(1, 0.95, 3, 4), fact(2, 0.7, 8, 9))
    lists = [backend("notes", 1.0, hit("p.md", 1, 20, 0.5), hit("q.md", 1, 5, 0.4)), facts]

    told = {result.path: [fact.text for fact in result.facts] for result in merge(lists).results}

    assert told == {"graph/1": ["fact 1"], "p.md": ["fact 2", "fact 1"], "q.md": []}


def test_a_passage_carries_the_facts_of_its_note_whose_lines_are_not_known() -> None:
    told = SupportingFact(text="somewhere in it", origin=Origin(path="p.md"))
    other = SupportingFact(text="elsewhere", origin=Origin(path="q.md"))
    lists = [
        backend("notes", 1.0, hit("p.md", 1, 20, 0.9)),
        backend("graph", 1.0, replace(fact(1, 0.8, 3, 4), facts=(told, other))),
    ]

    assert merge(lists).results[0].facts == (told,)


def changed(number: int, score: float, start: int, *before: int) -> MemorySearchResult:
    """Return a fact that holds, from one line of p.md, and names lines with what held before."""
    told = fact(number, score, start, start)
    ended = [Origin(path="p.md", start_line=line, end_line=line) for line in before]
    return replace(
        told, facts=(*told.facts, *(SupportingFact(text="old", holds=False, origin=one) for one in ended))
    )


def test_a_passage_of_what_no_longer_holds_comes_after_what_holds() -> None:
    notes = backend("notes", 1.0, hit("p.md", 1, 5, 0.9), hit("q.md", 1, 5, 0.8), hit("p.md", 21, 25, 0.5))

    for weight in (1.0, 0.6):
        merged = merge([notes, backend("graph", weight, changed(1, 0.7, 22, 2))])

        assert [result.key for result in merged.results] == ["p.md:21:25", "p.md:1:5", "q.md:1:5"]
        first, second, third = merged.results
        assert first.score == second.score > third.score
        assert [(one.text, one.holds) for one in first.facts] == [("fact 1", True)]
        assert [(one.text, one.holds) for one in second.facts] == [("old", False)]


def test_a_fact_whose_passage_was_not_found_comes_before_what_no_longer_holds() -> None:
    merged = merge(
        [backend("notes", 1.0, hit("p.md", 1, 5, 0.9)), backend("graph", 1.0, changed(1, 0.7, 22, 2))]
    )

    assert [result.path for result in merged.results] == ["graph/1", "p.md"]


def test_a_passage_that_tells_of_both_is_not_outdated() -> None:
    notes = backend("notes", 1.0, hit("q.md", 1, 5, 0.9), hit("p.md", 1, 9, 0.8))

    merged = merge([notes, backend("graph", 1.0, changed(1, 0.6, 8, 2))])

    assert [result.path for result in merged.results] == ["q.md", "p.md"]


def test_a_fact_that_does_not_answer_the_question_outdates_nothing() -> None:
    notes = backend("notes", 1.0, hit("p.md", 1, 5, 0.9), hit("p.md", 21, 25, 0.5))

    merged = merge([notes, backend("graph", 1.0, changed(1, 0.3, 22, 2))])

    assert [result.key for result in merged.results] == ["p.md:1:5", "p.md:21:25"]


def test_a_fact_that_its_own_backend_puts_before_the_passage_stays_a_result() -> None:
    one = backend("both", 1.0, fact(1, 0.9, 3, 4), hit("p.md", 1, 20, 0.8), fact(2, 0.7, 8, 9))

    assert places(merge([one])) == [("graph/1", 0.9), ("p.md", 0.8)]


def test_a_fact_that_its_own_backend_rates_like_the_passage_takes_no_place() -> None:
    one = backend("both", 1.0, fact(1, 0.8, 3, 4), hit("p.md", 1, 20, 0.8))

    assert places(merge([one])) == [("p.md", 0.8)]


def test_a_fact_whose_passage_was_searched_and_not_found_counts_half() -> None:
    notes = backend("notes", 1.0, hit("p.md", 40, 60, 0.5))

    merged = merge([notes, backend("graph", 1.0, fact(1, 0.9, 3, 4))])

    assert places(merged) == [("p.md", 0.5), ("graph/1", 0.45)]
    assert [round(one.support, 6) for one in merged.attributions] == [0.0, -0.45]


def test_a_fact_from_a_folder_that_nobody_searched_counts_in_full() -> None:
    notes = backend("notes", 1.0, hit("memory/q.md", 40, 60, 0.5))

    assert places(merge([notes, backend("graph", 1.0, fact(1, 0.9, 3, 4))])) == [
        ("graph/1", 0.9),
        ("memory/q.md", 0.5),
    ]


def test_support_does_not_save_a_passage_from_the_minimum_score() -> None:
    lists = [backend("notes", 1.0, hit("p.md", 1, 20, 0.48)), backend("graph", 1.0, fact(1, 0.45, 3, 4))]

    assert merge(lists, min_score=0.5).results == ()


def test_a_fact_from_elsewhere_in_the_file_stays_a_result() -> None:
    lists = [backend("notes", 1.0, hit("p.md", 1, 20, 0.9)), backend("graph", 1.0, fact(1, 0.8, 20, 24))]

    assert len(merge(lists).results) == 2


def test_a_fact_whose_lines_are_not_known_stays_a_result() -> None:
    lists = [backend("notes", 1.0, hit("p.md", 1, 20, 0.9)), backend("graph", 1.0, fact(1, 0.8, 0, 0))]

    assert len(merge(lists).results) == 2


def test_a_fact_beside_its_passage_stays_where_only_exact_duplicates_count() -> None:
    lists = [backend("notes", 1.0, hit("p.md", 1, 20, 0.9)), backend("graph", 1.0, fact(1, 0.8, 3, 4))]

    assert len(merge(lists, dedup=Dedup.EXACT).results) == 2


def test_two_facts_from_the_same_lines_that_say_the_same_are_one_result() -> None:
    facts = [fact(1, 0.9, 3, 4, NOTE), fact(2, 0.8, 3, 4, NOTE.upper()), fact(3, 0.7, 3, 4)]

    merged = merge([backend("graph", 1.0, *facts)], dedup=Dedup.OVERLAP)

    assert [result.path for result in merged.results] == ["graph/1", "graph/3"]


NOTE = (
    "the dock controller answers on port 8443 since the move in june and nowhere else any more at all today"
)


def test_facts_from_one_file_whose_lines_are_not_known_are_not_from_the_same_lines() -> None:
    facts = [fact(1, 0.9, 0, 0, NOTE), fact(2, 0.8, 0, 0, NOTE.upper())]

    merged = merge([backend("graph", 1.0, *facts)], dedup=Dedup.OVERLAP)

    assert [one.reason for one in merged.dropped if one.reason == "overlap"] == []


def test_nearly_equal_texts_in_two_files_are_one_result() -> None:
    lists = [
        backend("a", 1.0, hit("p.md", 1, 5, 0.9, NOTE)),
        backend("b", 1.0, hit("q.md", 7, 9, 0.8, NOTE.replace("today", "").upper())),
    ]

    merged = merge(lists)

    assert places(merged) == [("p.md", 0.9)]
    assert merged.attributions[0].merged_with == ("b q.md:7:9",)
    assert [one.reason for one in merged.dropped] == ["near-duplicate"]


def test_all_that_stand_at_the_place_of_a_copy_are_named_with_it() -> None:
    lists = [backend("a", 1.0, hit("p.md", 1, 5, 0.9, NOTE))]
    lists += [backend(name, 1.0, hit("q.md", 7, 9, 0.8, NOTE.upper())) for name in ("b", "c")]

    merged = merge(lists)

    assert places(merged) == [("p.md", 0.9)]
    assert merged.attributions[0].merged_with == ("b q.md:7:9", "c q.md:7:9")


def test_a_crowd_of_foreign_copies_gives_its_place_to_the_note_far_behind() -> None:
    words = [f"word{number}" for number in range(60)]
    copies = [
        hit(f"away://{odd}", 0, 0, 0.9 - odd / 1000, " ".join([*words[:odd], *words[odd + 6 :]]))
        for odd in (0, 15, 30, 45)
    ]
    note = hit("p.md", 1, 5, 0.4, " ".join(words))
    others = [hit(f"{number}.md", 1, 5, 0.5) for number in range(3)]
    lists = [backend("away", 1.0, *copies), backend("builtin", 1.0, *others, note)]

    first = merge(lists, max_results=2)

    assert places(first) == [("p.md", 0.9), ("0.md", 0.5)]
    assert [one.result.path for one in first.dropped] == [copy.path for copy in copies]
    assert places(merge(lists)) == [*places(first), ("1.md", 0.5), ("2.md", 0.5)]


def test_nearly_equal_texts_in_a_script_without_spaces_are_one_result() -> None:
    text = "部署方案在六月评审会上通过,调度服务改用新的端口,旧端口在九月底之前保留"
    lists = [
        backend("a", 1.0, hit("p.md", 1, 5, 0.9, text)),
        backend("b", 1.0, hit("q.md", 7, 9, 0.8, text + "。")),
    ]

    assert len(merge(lists).results) == 1


def test_texts_that_share_half_their_words_stay_two_results() -> None:
    lists = [
        backend("a", 1.0, hit("p.md", 1, 5, 0.9, NOTE)),
        backend(
            "b",
            1.0,
            hit("q.md", 7, 9, 0.8, "the dock controller answers slowly when the cache is cold again"),
        ),
    ]

    assert len(merge(lists).results) == 2


def test_the_minimum_score_acts_before_weights() -> None:
    best = backend("b", 0.1, hit("q.md", 1, 5, 0.9), hit("just.md", 1, 5, 0.5))
    lists = [backend("a", 1.0, hit("p.md", 1, 5, 0.2)), best]

    merged = merge(lists, min_score=0.5)

    assert places(merged) == [("q.md", 0.09), ("just.md", 0.05)]
    assert [(one.result.path, one.reason) for one in merged.dropped] == [("p.md", "min-score")]


def test_the_minimum_score_never_cuts_an_exact_hit() -> None:
    lists = [backend("a", 1.0, hit("p.md", 1, 5, 0.01, exact=True))]

    assert places(merge(lists, min_score=0.9)) == [("p.md", 0.01)]


def test_what_does_not_fit_is_listed_in_order() -> None:
    lists = [backend("a", 1.0, hit("p.md", 1, 2, 0.9), hit("q.md", 1, 2, 0.8), hit("r.md", 1, 2, 0.7))]

    merged = merge(lists, max_results=1)

    assert [(backend_id, one.path) for backend_id, one in merged.overflow] == [("a", "q.md"), ("a", "r.md")]
    assert merged.dropped == ()


def test_reciprocal_rank_fusion_prefers_what_two_backends_found() -> None:
    lists = [
        backend("a", 1.0, hit("only-a.md", 1, 2, 0.9), hit("both.md", 1, 2, 0.5)),
        backend("b", 1.0, hit("only-b.md", 1, 2, 0.9), hit("both.md", 1, 2, 0.5)),
    ]

    merged = merge(lists, fusion=Fusion.RRF)

    assert merged.results[0].path == "both.md"
    assert merged.results[0].score == (2 / 62) * 61 / 2


def test_weights_act_in_reciprocal_rank_fusion() -> None:
    lists = [backend("a", 1.0, hit("p.md", 1, 2, 0.9)), backend("b", 3.0, hit("q.md", 1, 2, 0.1))]

    assert [result.path for result in merge(lists, fusion=Fusion.RRF).results] == ["q.md", "p.md"]


def test_the_convex_combination_adds_weighted_scores() -> None:
    lists = [
        backend("a", 1.0, hit("both.md", 1, 2, 0.6), hit("a.md", 1, 2, 0.5)),
        backend("b", 3.0, hit("both.md", 1, 2, 0.4)),
    ]

    merged = merge(lists, fusion=Fusion.CONVEX)

    assert places(merged) == [("both.md", 0.45), ("a.md", 0.125)]


def test_no_lists_make_an_empty_ranking() -> None:
    merged: Merged[MemorySearchResult] = merge([])

    assert (merged.results, merged.attributions, merged.dropped) == ((), (), ())
