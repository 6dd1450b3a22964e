"""Laws of the merge that hold for any input."""

from typing import TypeAlias

from hypothesis import assume, given
from hypothesis import strategies as st

from composable_memory.query.fusion import BackendList, Dedup, Fusion, merge
from composable_memory.types import MemorySearchResult, Origin, SupportingFact

Lists: TypeAlias = list[BackendList[MemorySearchResult]]

WORDS = st.sampled_from(["port", "dock", "queue", "retry", "部署", "note"])
PASSAGES = st.builds(
    lambda path, start, length, score, words, exact: MemorySearchResult(
        path=path,
        start_line=start,
        end_line=start + length,
        score=score,
        snippet=" ".join(words),
        exact=exact,
    ),
    path=st.sampled_from(["a.md", "b.md", "c.md"]),
    start=st.integers(1, 30),
    length=st.integers(0, 20),
    score=st.floats(0.0, 1.0),
    words=st.lists(WORDS, max_size=6),
    exact=st.booleans(),
)
FACTS = st.builds(
    lambda number, path, start, length, score, words, outdated: MemorySearchResult(
        path=f"graph/{number}",
        start_line=0,
        end_line=0,
        score=score,
        snippet=" ".join(words),
        origin=Origin(path=path, start_line=start, end_line=start + length if start else 0),
        facts=(
            SupportingFact(text="now"),
            *(
                SupportingFact(
                    text="then", holds=False, origin=Origin(path=path, start_line=line, end_line=line)
                )
                for line in outdated
            ),
        ),
    ),
    outdated=st.lists(st.integers(1, 30), max_size=2),
    number=st.integers(1, 4),
    path=st.sampled_from(["a.md", "b.md", "c.md"]),
    start=st.integers(0, 30),
    length=st.integers(0, 6),
    score=st.floats(0.0, 1.0),
    words=st.lists(WORDS, max_size=6),
)
RESULTS = st.one_of(PASSAGES, FACTS)
WEIGHTS = st.floats(0.0, 4.0)


@st.composite
def backend_lists(draw: st.DrawFn) -> Lists:
    count = draw(st.integers(0, 3))
    lists = []
    for place in range(count):
        results = sorted(draw(st.lists(RESULTS, max_size=8)), key=lambda result: -result.score)
        lists.append(
            BackendList(
                backend_id=f"backend{place}",
                weight=draw(WEIGHTS),
                results=results,
                calibrated=[result.score for result in results],
            )
        )
    return lists


POLICIES = st.fixed_dictionaries(
    {
        "fusion": st.sampled_from(list(Fusion)),
        "dedup": st.sampled_from(list(Dedup)),
        "min_score": st.sampled_from([0.0, 0.3, 0.9]),
    }
)


@given(lists=backend_lists(), policy=POLICIES)
def test_scores_are_in_bounds_and_in_order(lists: Lists, policy: dict[str, object]) -> None:
    scores = [result.score for result in merge(lists, **policy).results]  # type: ignore[arg-type]

    assert scores == sorted(scores, reverse=True)
    assert all(0.0 <= score <= 1.0 + 1e-9 for score in scores)


@given(lists=backend_lists(), policy=POLICIES, cut=st.integers(1, 6))
def test_a_shorter_answer_is_the_beginning_of_a_longer_one(
    lists: Lists, policy: dict[str, object], cut: int
) -> None:
    shorter = merge(lists, max_results=cut, **policy)  # type: ignore[arg-type]
    longer = merge(lists, max_results=cut + 1, **policy)  # type: ignore[arg-type]

    assert [one.key for one in shorter.results] == [one.key for one in longer.results][:cut]


@given(lists=backend_lists(), policy=POLICIES)
def test_merging_a_merged_list_again_changes_nothing(lists: Lists, policy: dict[str, object]) -> None:
    # What facts support counts between backends, and a merged list is one.
    assume(not any(result.origin for one in lists for result in one.results))
    policy = {**policy, "fusion": Fusion.WEIGHTED, "min_score": 0.0}
    once = merge(lists, **policy)  # type: ignore[arg-type]
    again = BackendList(
        backend_id="once",
        weight=1.0,
        results=once.results,
        calibrated=[result.score for result in once.results],
    )

    twice = merge([again], **policy)  # type: ignore[arg-type]

    assert [(one.key, one.score) for one in twice.results] == [(one.key, one.score) for one in once.results]


@given(lists=backend_lists(), policy=POLICIES)
def test_every_candidate_is_returned_or_accounted_for(lists: Lists, policy: dict[str, object]) -> None:
    merged = merge(lists, max_results=3, **policy)  # type: ignore[arg-type]

    known = {one.key for one in merged.results} | {one.result.key for one in merged.dropped}
    known |= {one.key for _, one in merged.overflow}
    assert known == {result.key for entry in lists for result in entry.results}


@given(lists=backend_lists(), factor=st.floats(1.0, 10.0))
def test_a_higher_weight_never_lowers_the_place_of_the_backends_best_hit(lists: Lists, factor: float) -> None:
    favoured = [entry for entry in lists if entry.results and entry.weight > 0.0][:1]
    if not favoured:
        return
    best = favoured[0].results[0].key
    raised = [
        BackendList(
            backend_id=entry.backend_id,
            weight=entry.weight * (factor if entry is favoured[0] else 1.0),
            results=entry.results,
            calibrated=entry.calibrated,
        )
        for entry in lists
    ]

    before = [one.key for one in merge(lists, dedup=Dedup.EXACT).results].index(best)
    after = [one.key for one in merge(raised, dedup=Dedup.EXACT).results].index(best)

    assert after <= before
