"""What holds for whatever is put into the feedback store."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from composable_memory_feedback.golden import GoldenQuestion, GoldenRecord
from composable_memory_feedback.judgements import Judgement, JudgementKind, backend_days
from composable_memory_feedback.store.kinds import GOLDEN, WEIGHTS
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_feedback.weights import IntentKind, WeightChange, WeightTable
from tests.unit.feedback.store_makers import NOON, judgement, logged_query

SOME_WEIGHTS = st.dictionaries(
    st.sampled_from(["builtin", "graphiti", "qmd"]), st.floats(0.0, allow_infinity=False)
)
SCORES = st.floats(allow_nan=False, allow_infinity=False)
TABLE = st.builds(
    WeightTable,
    weights=SOME_WEIGHTS,
    by_intent=st.dictionaries(st.sampled_from(IntentKind), SOME_WEIGHTS),
    version=st.just("v1"),
    made_at=st.just(NOON),
    reason=st.text(st.characters(codec="utf-8")),
)


@given(TABLE)
def test_every_table_comes_back_to_the_last_bit(table: WeightTable) -> None:
    change = WeightChange(
        table=table, at=NOON, actor="", action="adopt", reason="", base=table.weights, gain=None
    )
    assert WEIGHTS.read(WEIGHTS.write(change)) == change


@given(st.lists(SCORES, min_size=1, max_size=5))
def test_every_score_of_a_logged_query_comes_back_to_the_last_bit(scores: list[float]) -> None:
    first = logged_query().lists[0]
    candidates = tuple(first.candidates[0]._replace(score=score) for score in scores)
    query = replace(
        logged_query(),
        lists=(replace(first, candidates=candidates),),
    )

    record = GoldenRecord(question=GoldenQuestion(id="q", question="?", expected=()), query=query)
    again = GOLDEN.read(GOLDEN.write(record)).query

    assert again == query
    assert repr(again.lists) == repr(query.lists)


@st.composite
def judgements(draw: st.DrawFn) -> list[Judgement]:
    """Return judgements of few results and judges, so that many replace one another; no two of one moment."""
    count = draw(st.integers(1, 8))
    return [
        judgement(
            draw(st.sampled_from(["a.md", "b.md"])),
            query=draw(st.sampled_from(["q1", "q2"])),
            backend=draw(st.sampled_from(["builtin", "graphiti", None])),
            kind=draw(st.sampled_from(JudgementKind)),
            relevance=draw(st.floats(0.0, 1.0)),
            at=NOON + timedelta(hours=9 * draw(st.integers(-n, n))),
            was_used=draw(st.booleans()),
        )
        for n in range(count)
    ]


@settings(max_examples=25)
@given(judgements(), st.integers(0, 8))
def test_the_word_stored_last_counts_in_whatever_portions_and_whatever_the_clock_said(
    made: list[Judgement], cut: int
) -> None:
    last = {(one.query_id, one.key, one.kind, one.by): one for one in made}
    with TemporaryDirectory() as folder:
        with FeedbackStore.open(Path(folder) / "at-once.db") as store:
            store.add(made)
            at_once = (store.judgements(), backend_days(store.judgements()))
        with FeedbackStore.open(Path(folder) / "bit-by-bit.db") as store:
            new = store.add(made[:cut]) + store.add(made[cut:])
            bit_by_bit = (store.judgements(), backend_days(store.judgements()))

    assert bit_by_bit == at_once
    assert sorted(at_once[0], key=repr) == sorted(last.values(), key=repr)
    assert new == len(at_once[0])
