"""Whatever a model says, what is read of it keeps its promises."""

import asyncio
import json
from datetime import UTC, datetime
from math import inf, nan

from hypothesis import example, given
from hypothesis import strategies as st

from composable_memory_feedback.advice.evidence import Case
from composable_memory_feedback.advice.llm import propose
from composable_memory_feedback.advice.proposal import AdviceLimits
from composable_memory_feedback.judging import read_reply
from composable_memory_feedback.language_model import Fence, UnusableReply, clean, json_object_in, one_line
from composable_memory_feedback.weights import WeightTable
from tests.unit.feedback.judged_queries import ScriptedModel, logged_query

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
CURRENT = WeightTable.fixed({"builtin": 0.7, "qmd": 0.3}, made_at=NOW)
WORST = [(Case(query=logged_query(query="where?")), 0.1)]
KEYS = ["resultIndex", "relevanceScore", "wasUsed", "builtin", "qmd", "time", "weights"]
NUMBERS = st.integers() | st.sampled_from([nan, inf, -inf, 0.5, 0.05, 1.0, -0.1, 10_000])
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(JSON, max_size=4))
def test_every_verdict_is_about_a_result_and_in_range(said: list[object]) -> None:
    try:
        verdicts = read_reply(json.dumps({"judgments": said}), results=3)
    except UnusableReply:
        return
    assert verdicts
    assert all(0 <= one.index < 3 and 0.0 <= one.relevance <= 1.0 for one in verdicts)


@given(st.text(alphabet=st.characters() | st.sampled_from('{}[]`"\n'), max_size=60))
@example("\ud800{}")
def test_any_text_can_be_looked_through_cleaned_and_fenced(text: str) -> None:
    json_object_in(text)

    assert len(clean(text, 20)) <= 20
    assert len(one_line(text, 20)) <= 20
    assert one_line(text, 20).isprintable()
    assert Fence([text]).mark not in text


@given(
    st.dictionaries(st.sampled_from(["builtin", "qmd", "other"]), NUMBERS | JSON, max_size=3),
    st.none() | st.dictionaries(st.sampled_from(["time", "topic", "x"]), JSON, max_size=2),
)
def test_a_table_from_a_model_has_known_backends_and_weights_above_the_least(
    weights: dict[str, object], by_intent: object
) -> None:
    model = ScriptedModel(json.dumps({"weights": weights, "byIntent": by_intent}))
    limits = AdviceLimits()

    proposal = asyncio.run(propose(model, current=CURRENT, days=[], worst=WORST, limits=limits))

    if proposal.table is CURRENT:
        assert proposal.reasons == {}
        assert proposal.notes[0].startswith("refused: ")
    else:
        assert set(proposal.table.weights) == {"builtin", "qmd"}
        assert max(proposal.table.weights.values()) == 1.0
        assert min(proposal.table.weights.values()) >= limits.min_weight
        assert proposal.reasons
