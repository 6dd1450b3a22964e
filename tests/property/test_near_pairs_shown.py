"""The near pairs that are logged decide on every ranking of the logged candidates as all pairs would."""

from collections.abc import Sequence
from itertools import chain

from hypothesis import given, settings
from hypothesis import strategies as st

from composable_memory.query.calibration import Calibration
from composable_memory.query.fusion import Dedup, Fusion
from composable_memory.query.near_duplicates import near_pairs, near_pairs_shown
from composable_memory.query.ranking import CalibrationRule, MergePolicy, rank
from composable_memory.types import MemorySearchResult, Origin, SearchOptions

DEPTH = 12
IDS = ("notes", "graph", "qmd")
# Few texts, of which many are nearly equal, and places that often share lines.
TEXTS = st.builds(
    lambda kind, odd: " ".join(f"{kind}{one}" if one != odd else f"{kind}other{odd}" for one in range(40)),
    kind=st.sampled_from("ab"),
    odd=st.integers(0, 9),
) | st.integers(0, 99).map(lambda number: f"alone {number} of its kind {number}")
PASSAGES = st.builds(
    lambda number, is_foreign, start, length, **rest: MemorySearchResult(
        path=f"away://{number}" if is_foreign else f"{number}.md",
        start_line=start,
        end_line=start + length,
        **rest,
    ),
    number=st.integers(0, 60),
    is_foreign=st.integers(0, 5).map(lambda number: number == 0),
    start=st.sampled_from([1, 1, 0, 4]),
    length=st.integers(0, 5),
    score=st.sampled_from([0.1, 0.5, 0.5, 0.9]) | st.floats(0.0, 1.0),
    snippet=TEXTS,
    exact=st.integers(0, 3).map(lambda number: number == 0),
)
FACTS = st.builds(
    lambda number, at, **rest: MemorySearchResult(
        path=f"graph/{number}",
        start_line=0,
        end_line=0,
        origin=None if at is None else Origin(path=f"{at}.md", start_line=1, end_line=4),
        **rest,
    ),
    number=st.integers(0, 9),
    at=st.none() | st.integers(0, 60),
    score=st.floats(0.0, 1.0),
    snippet=TEXTS,
)
LISTS = st.lists(
    st.lists(PASSAGES | PASSAGES | FACTS, min_size=DEPTH // 2, max_size=DEPTH).map(
        lambda found: sorted(found, key=lambda one: -one.score)
    ),
    min_size=1,
    max_size=3,
)


@given(
    lists=LISTS,
    weights=st.lists(
        st.sampled_from([0.0, 0.2, 1.0, 1.0, 3.0]) | st.floats(0.0, 2.0), min_size=3, max_size=3
    ),
    methods=st.lists(st.sampled_from(Calibration), min_size=3, max_size=3),
    policy=st.builds(
        MergePolicy,
        fusion=st.sampled_from(Fusion),
        dedup=st.sampled_from([Dedup.OVERLAP, *[Dedup.NEAR] * 4]),
        depth=st.just(DEPTH),
        rrf_k=st.sampled_from([0, 60]),
    ),
    most=st.integers(1, 4),
    min_score=st.sampled_from([0.0, 0.0, 0.3, 0.7]),
    dropped=st.sampled_from([None, None, *IDS]),
)
@settings(max_examples=60)
def test_no_ranking_needs_another_pair(
    lists: Sequence[Sequence[MemorySearchResult]],
    weights: Sequence[float],
    methods: Sequence[Calibration],
    policy: MergePolicy,
    most: int,
    min_score: float,
    dropped: str | None,
) -> None:
    places = {id(result): place for place, result in enumerate(chain(*lists))}
    answers = {one: found for one, found in zip(IDS, lists, strict=False) if one != dropped}
    rules = {
        one: CalibrationRule(method=how, is_absolute=True) for one, how in zip(IDS, methods, strict=True)
    }
    all_pairs = frozenset(near_pairs([*chain(*lists)]))
    shown_pairs = frozenset(near_pairs_shown(lists, most))

    def ranked(pairs: frozenset[tuple[int, int]]) -> object:
        def is_near(one: MemorySearchResult, other: MemorySearchResult) -> bool:
            first, second = sorted((places[id(one)], places[id(other)]))
            return (first, second) in pairs

        return rank(
            answers,
            rules,
            weights=dict(zip(IDS, weights, strict=True)),
            policy=policy,
            options=SearchOptions(max_results=most, min_score=min_score),
            min_depth=policy.depth,
            is_near=is_near,
        )

    assert shown_pairs <= all_pairs
    assert ranked(shown_pairs) == ranked(all_pairs)
