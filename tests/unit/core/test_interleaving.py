"""One list of the rankings of two weight tables."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pytest

from composable_memory.query.calibration import Calibration
from composable_memory.query.fusion import Merged
from composable_memory.query.interleaving import interleave
from composable_memory.query.ranking import CalibrationRule, MergePolicy, rank
from composable_memory.types import MemorySearchResult, SearchOptions
from composable_memory_ops_logs import Interleaved

RULE = CalibrationRule(method=Calibration.IDENTITY, is_absolute=True)


def hit(path: str, score: float, *, start: int = 1, end: int = 2) -> MemorySearchResult:
    return MemorySearchResult(
        path=path, start_line=start, end_line=end, score=score, snippet=f"{path} {start} alone"
    )


NOTES = tuple(hit(f"n{place}.md", 0.9 - place / 20) for place in range(6))
GRAPH = tuple(hit(f"g{place}.md", 0.8 - place / 20) for place in range(6))


def ranked(
    weights: dict[str, float], *lists: tuple[MemorySearchResult, ...], max_results: int = 4
) -> Merged[MemorySearchResult]:
    return rank(
        dict(zip(weights, lists or (NOTES, GRAPH), strict=True)),
        dict.fromkeys(weights, RULE),
        weights=weights,
        policy=MergePolicy(),
        options=SearchOptions(max_results=max_results),
        min_depth=24,
    ).merged


def draw(seed: int) -> Interleaved:
    return Interleaved(id="e1", weights_a={}, weights_b={}, seed=seed)


FOR_NOTES = {"notes": 1.0, "graph": 0.1}
FOR_GRAPH = {"notes": 0.1, "graph": 1.0}


def interleaved(
    a: Merged[MemorySearchResult], b: Merged[MemorySearchResult], *, seeds: Iterable[int] = range(30)
) -> Iterator[tuple[Merged[MemorySearchResult], Interleaved]]:
    for seed in seeds:
        yield interleave(a, b, draw(seed), max_results=4)


def test_equal_rankings_are_shown_as_they_are_and_count_for_nobody() -> None:
    a = ranked(FOR_NOTES)

    for shown, drawn in interleaved(a, ranked(FOR_NOTES)):
        assert (shown.results, shown.attributions) == (a.results, a.attributions)
        assert drawn.teams == ("-",) * 4


def test_each_side_puts_up_half_of_the_list_and_is_told_by_its_weight() -> None:
    for shown, drawn in interleaved(ranked(FOR_NOTES), ranked(FOR_GRAPH)):
        assert sorted(drawn.teams) == ["a", "a", "b", "b"]
        assert [one.backend_id for one in shown.attributions] == [
            {"a": "notes", "b": "graph"}[team] for team in drawn.teams
        ]
        assert {one.weight for one in shown.attributions} == {1.0}


def test_no_score_is_better_than_that_of_the_result_before() -> None:
    for shown, _ in interleaved(ranked(FOR_NOTES), ranked(FOR_GRAPH)):
        scores = [result.score for result in shown.results]
        assert scores == sorted(scores, reverse=True)


def test_what_stands_for_the_same_candidate_is_shown_once() -> None:
    wide, narrow = (hit("p.md", 0.9, end=9),), (hit("p.md", 0.8, end=8), hit("q.md", 0.1))
    a = ranked({"notes": 1.0, "graph": 0.5}, wide, narrow)
    b = ranked({"notes": 0.5, "graph": 1.0}, narrow, wide)

    for shown, _ in interleaved(a, b):
        assert [one.path for one in shown.results] == ["p.md", "q.md"]


def test_what_is_shown_is_neither_dropped_nor_beyond_the_list() -> None:
    for shown, _ in interleaved(ranked({"notes": 1.0, "graph": 0.0}), ranked({"notes": 0.0, "graph": 1.0})):
        seen = {one.key for one in shown.results}
        told = [one.result.key for one in shown.dropped] + [result.key for _, result in shown.overflow]
        assert seen.isdisjoint(told)
        assert len(told) == len(set(told))
        assert seen.union(told) == {one.key for one in (*NOTES, *GRAPH)}


def test_the_counts_are_those_of_the_first_ranking() -> None:
    a = ranked({"notes": 1.0, "graph": 0.0})

    shown, _ = interleave(a, ranked(FOR_GRAPH), draw(1), max_results=4)

    assert (shown.total_before_dedup, shown.total_after_dedup) == (12, 6)


@pytest.mark.parametrize("side", ["a", "b"])
def test_a_side_without_results_leaves_the_list_to_the_other(side: str) -> None:
    none, some = ranked({"notes": 0.0}, NOTES), ranked({"notes": 1.0}, NOTES)
    a, b = (none, some) if side == "b" else (some, none)

    shown, drawn = interleave(a, b, draw(3), max_results=4)

    assert (shown.results, drawn.teams) == (some.results, (side,) * 4)


def test_the_draw_keeps_what_it_was_drawn_by() -> None:
    given = Interleaved(id="e1", weights_a={"notes": 1.0}, weights_b={"notes": 0.5}, seed=11)

    _, drawn = interleave(ranked(FOR_NOTES), ranked(FOR_GRAPH), given, max_results=2)

    assert replace(drawn, teams=()) == given


def test_the_seed_alone_decides_what_is_drawn() -> None:
    a, b = ranked(FOR_NOTES), ranked(FOR_GRAPH)

    assert list(interleaved(a, b)) == list(interleaved(a, b))
    assert len({drawn.teams for _, drawn in interleaved(a, b)}) > 1
