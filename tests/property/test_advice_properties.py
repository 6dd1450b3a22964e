"""Properties of measures, scores and the grid of tables."""

from hypothesis import given
from hypothesis import strategies as st

from composable_memory_feedback.advice.evidence import CaseScores, Evidence, case_weight, score
from composable_memory_feedback.advice.statistical import coarse, positive, vector_of
from composable_memory_feedback.judgements import JudgementKind
from composable_memory_feedback.logged.logged_query import RankedHit
from composable_memory_feedback.metrics import ndcg
from composable_memory_feedback.weights import WeightTable

unit = st.floats(0.0, 1.0)
names = st.sampled_from("abcdef")


def _hit(name: str, others: frozenset[str]) -> RankedHit:
    return RankedHit(
        path=name,
        start_line=1,
        end_line=2,
        backend="builtin",
        score=0.5,
        calibrated=0.5,
        others=tuple(f"{one}:1:2" for one in sorted(others)),
    )


rankings = st.lists(st.builds(_hit, names, st.frozensets(names, max_size=2)), max_size=8)
evidences = st.dictionaries(
    names.map(lambda name: f"{name}:1:2"),
    st.builds(
        Evidence,
        relevance=unit,
        kind=st.just(JudgementKind.OPENED),
        boost=st.floats(1.0, 4.0),
    ),
)


@given(st.lists(unit, max_size=12), st.integers(0, 12))
def test_no_order_is_better_than_falling_gains(gains: list[float], k: int) -> None:
    found = ndcg(gains, gains, k)
    assert 0.0 <= found <= 1.0 + 1e-9
    assert found <= ndcg(sorted(gains, reverse=True), gains, k) + 1e-9


@given(rankings, evidences, st.integers(0, 10))
def test_a_score_is_a_share_of_the_ideal(
    hits: list[RankedHit], evidence: dict[str, Evidence], k: int
) -> None:
    assert 0.0 <= score(hits, evidence, k=k) <= 1.0


@given(rankings, evidences)
def test_ranking_a_case_again_changes_nothing(hits: list[RankedHit], evidence: dict[str, Evidence]) -> None:
    scores = CaseScores(evidence=evidence, k=10)
    first, ideal = scores.add(hits), scores.ideal
    assert (scores.add(hits), scores.ideal) == (first, ideal)


@given(evidences, st.integers(1, 10))
def test_a_case_stands_for_one_to_four_queries(evidence: dict[str, Evidence], k: int) -> None:
    assert 1.0 - 1e-9 <= case_weight(evidence, k) <= 4.0 + 1e-9


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=5), unit)
def test_every_table_of_the_grid_is_positive_with_the_heaviest_one(
    weights: list[float], floor: float
) -> None:
    table = WeightTable.fixed({str(at): weight for at, weight in enumerate(weights)})
    for vector in coarse(positive(vector_of(table, [*table.weights])), floor=floor, seed=0):
        assert max(vector) == 1.0
        assert min(vector) > 0.0
