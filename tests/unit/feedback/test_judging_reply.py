"""Reading what a model says of results, from well-formed to hostile."""

import json

import pytest

from composable_memory_feedback.judging import read_reply
from composable_memory_feedback.language_model import UnusableReply
from tests.unit.feedback.judged_queries import judgments


def test_a_well_formed_reply_is_read() -> None:
    reply = read_reply(judgments(0.9, 0.2), results=2)

    first = reply[0]
    assert (first.index, first.was_used, first.rationale) == (0, True, "result 0 was judged")
    assert [one.relevance for one in reply] == [0.9, 0.2]


def test_a_reply_in_prose_and_fences_is_read() -> None:
    assert len(read_reply(f"Here you are:\n```json\n{judgments(0.9)}\n```\nBye.", results=1)) == 1


def test_scores_outside_are_moved_to_the_nearer_end() -> None:
    assert [one.relevance for one in read_reply(judgments(-3.0, 17.0), results=2)] == [0.0, 1.0]


@pytest.mark.parametrize("score", ["NaN", "1e999", "-1e999", "1" + "0" * 400, '"high"', "null", "[1]", "{}"])
def test_an_entry_without_a_finite_score_is_left_out(score: str) -> None:
    entries = f'{{"resultIndex": 0, "relevanceScore": {score}}}, {{"resultIndex": 1, "relevanceScore": 0.5}}'

    reply = read_reply(f'{{"judgments": [{entries}]}}', results=2)

    assert [one.index for one in reply] == [1]


@pytest.mark.parametrize("index", ["-1", "2", "1e3", "true", '"0"', "null", "9" * 400, "0.5"])
def test_an_entry_about_no_result_is_left_out(index: str) -> None:
    with pytest.raises(UnusableReply, match="the reply judges none of the results"):
        read_reply(f'{{"judgments": [{{"resultIndex": {index}, "relevanceScore": 1}}]}}', results=2)


def test_of_two_judgements_on_one_result_the_first_counts() -> None:
    text = json.dumps({"judgments": [{"resultIndex": 0, "relevanceScore": score} for score in (0.9, 0.1)]})

    assert [one.relevance for one in read_reply(text, results=1)] == [0.9]


@pytest.mark.parametrize(
    "text", ["", "I cannot judge this.", "[]", "{}", '{"judgments": {}}', '{"judgments": "all good"}', "```"]
)
def test_a_reply_without_judgements_says_what_is_wrong(text: str) -> None:
    with pytest.raises(UnusableReply):
        read_reply(text, results=2)


def test_entries_that_are_no_objects_are_left_out() -> None:
    reply = read_reply(
        '{"judgments": [1, null, "x", [], {"resultIndex": 0, "relevanceScore": 1}]}', results=1
    )

    assert [one.index for one in reply] == [0]


def test_rationales_are_short_and_in_one_line() -> None:
    text = judgments(0.9, rationale="\x1b[31ma\n\x00" * 500)

    reply = read_reply(text, results=1)

    assert len(reply[0].rationale) <= 300
    assert reply[0].rationale.isprintable()


def test_ten_thousand_entries_do_not_become_ten_thousand_judgements() -> None:
    entries = [{"resultIndex": index, "relevanceScore": 1} for index in range(10_000)]

    assert len(read_reply(json.dumps({"judgments": entries}), results=10_000)) == 200
