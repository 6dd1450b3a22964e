"""Text forms of values: they come back equal."""

import json

import pytest

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.store.codecs import QUERIES, TABLES
from tests.unit.feedback.store_makers import logged_query, table


def test_a_logged_query_comes_back_equal() -> None:
    assert QUERIES.read(QUERIES.write(logged_query())) == logged_query()


def test_a_text_of_an_earlier_version_that_says_more_is_read() -> None:
    more = {"final_results": [{"path": "a.md", "score": 1}], "dropped_results": [], "rules": 2}
    text = json.dumps(json.loads(QUERIES.write(logged_query())) | more)

    assert QUERIES.read(text) == logged_query()


@pytest.mark.parametrize(
    "text", ["", "null", "[1]", "{}", '{"weights": {"a": -1}, "version": "v1", "made_at": 0, "reason": ""}']
)
def test_a_text_of_something_else_is_an_error_of_ours(text: str) -> None:
    with pytest.raises(FeedbackError, match="the weight table cannot be read"):
        TABLES.read(text)
    with pytest.raises(FeedbackError, match="the logged query cannot be read"):
        QUERIES.read(text)


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(FeedbackError, match="the weight table cannot be kept"):
        TABLES.write(table(reason="half a character \ud83d"))
