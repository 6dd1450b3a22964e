"""Text forms of values: they come back equal."""

import json

import pytest

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.golden import GoldenQuestion, GoldenRecord
from composable_memory_feedback.store.kinds import GOLDEN, KINDS
from tests.unit.feedback.store_makers import logged_query

RECORD = GoldenRecord(question=GoldenQuestion(id="q", question="where?", expected=()), query=logged_query())


def test_a_logged_query_comes_back_equal() -> None:
    assert GOLDEN.read(GOLDEN.write(RECORD)) == RECORD


def test_a_text_of_an_earlier_version_that_says_more_is_read() -> None:
    more = {"final_results": [{"path": "a.md", "score": 1}], "dropped_results": [], "rules": 2}
    record = json.loads(GOLDEN.write(RECORD))
    record["query"] |= more

    assert GOLDEN.read(json.dumps(record)) == RECORD


@pytest.mark.parametrize(
    "text", ["", "null", "[1]", "{}", '{"weights": {"a": -1}, "version": "v1", "made_at": 0, "reason": ""}']
)
def test_a_text_of_something_else_is_an_error_of_ours(text: str) -> None:
    for kind in KINDS.values():
        with pytest.raises(FeedbackError, match=f"an entry of {kind.name} cannot be read"):
            kind.read(text)
