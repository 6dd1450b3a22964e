"""Golden questions: how they are read, and how a ranking is scored by them."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.golden import (
    GoldenPlace,
    GoldenQuestion,
    GoldenRecord,
    compare_golden,
    read_questions,
    score_golden,
    score_hits,
)
from composable_memory_feedback.logged.logged_query import RankedHit
from composable_memory_feedback.weights import IntentKind, WeightTable
from tests.unit.feedback.worlds import logged, plain_ranker

RELEVANT_SECOND = 0.6309297535714575
"""1 / log2(3): the discount of the second rank."""


def hit(path: str, start: int = 1, end: int = 9, *others: str) -> RankedHit:
    return RankedHit(
        path=path,
        start_line=start,
        end_line=end,
        backend="builtin",
        score=0.5,
        calibrated=0.5,
        others=others,
    )


def written(folder: Path, *lines: object) -> Path:
    path = folder / "questions.jsonl"
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts), encoding="utf-8")
    return path


def test_a_piece_of_a_long_line_is_at_its_line() -> None:
    piece = replace(hit("a.md", 3, 3), start_char=1280)

    assert GoldenPlace(path="a.md", line=3).is_in(piece)
    assert GoldenPlace(path="a.md").is_in(piece)
    assert not GoldenPlace(path="a.md", line=4).is_in(piece)
    assert not GoldenPlace(path="b.md", line=3).is_in(piece)


def test_every_way_to_name_a_place_is_read(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        {
            "query": "Where are the keys?",
            "id": "keys",
            "expect": [
                "./notes//a.md",
                "a#1.md#L3",
                "a.md#L3-L5",
                {"path": "b.md", "line": 2, "last_line": 4},
            ],
        },
        "",
        {"question": "Rent?", "qrels": [["c.md", 7], ["d.md", None], ["c.md", 7]], "comment": "mine"},
    )

    assert [
        GoldenQuestion(
            id="keys",
            question="Where are the keys?",
            expected=(
                GoldenPlace(path="notes/a.md"),
                GoldenPlace(path="a#1.md", line=3),
                GoldenPlace(path="a.md", line=3, last_line=5),
                GoldenPlace(path="b.md", line=2, last_line=4),
            ),
        ),
        GoldenQuestion(
            id="q3",
            question="Rent?",
            expected=(GoldenPlace(path="c.md", line=7), GoldenPlace(path="d.md")),
        ),
    ] == read_questions(path)


def test_a_line_of_a_test_collection_is_read(tmp_path: Path) -> None:
    line = {"qid": 7, "query": "Rent?", "qrels": [["a.md", 0]], "expect": [{"path": "b.md", "grade": 2}]}

    expected = (GoldenPlace(path="b.md"), GoldenPlace(path="a.md"))
    assert read_questions(written(tmp_path, line)) == [
        GoldenQuestion(id="7", question="Rent?", expected=expected)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "null",
        '"a question"',
        "[" * 100_000,
        {"question": "?"},
        {"question": "  ", "expect": ["a.md"]},
        {"question": 5.5, "expect": 3},
        {"expect": ["a.md"]},
        {"question": "?", "expect": [{"path": "a.md", "line": 0}]},
        {"question": "?", "expect": [{"path": "a.md", "line": "three"}]},
        {"question": "?", "expect": [{"line": 3}]},
        {"question": "?", "expect": ["a.md#L0"]},
        {"question": "?", "expect": ["a.md#L5-L3"]},
        {"question": "?", "expect": [""]},
        {"question": "?", "qrels": [["a.md"]]},
        {"question": "?", "expect": ["a.md"] * 1001},
    ],
    ids=lambda line: str(line)[:60],
)
def test_a_bad_line_is_named(tmp_path: Path, line: object) -> None:
    good = {"question": "?", "expect": ["a.md"]}

    with pytest.raises(FeedbackError, match="line 2 of"):
        read_questions(written(tmp_path, good, line))


def test_two_questions_of_one_id_are_refused(tmp_path: Path) -> None:
    one = {"id": 7, "question": "?", "expect": ["a.md"]}

    with pytest.raises(FeedbackError, match="'7' is taken already"):
        read_questions(written(tmp_path, one, one))


@pytest.mark.parametrize("content", [None, b"", b"\n \n", b"\xff\xfe{}"], ids=str)
def test_a_file_without_questions_is_refused(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "questions.jsonl"
    if content is not None:
        path.write_bytes(content)

    with pytest.raises(FeedbackError, match="cannot be read"):
        read_questions(path)


def test_a_ranking_is_scored_by_places_recall_and_order() -> None:
    expected = [GoldenPlace(path="a.md", line=3), GoldenPlace(path="b.md")]

    score = score_hits([hit("x.md"), hit("a.md"), hit("y.md")], expected, 10)

    assert (score.recall, score.mrr) == (0.5, 0.5)
    assert pytest.approx(RELEVANT_SECOND / (1 + RELEVANT_SECOND)) == score.ndcg


def test_results_below_the_depth_do_not_count() -> None:
    score = score_hits([hit("x.md"), hit("a.md")], [GoldenPlace(path="a.md")], 1)

    assert (score.recall, score.mrr, score.ndcg) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("place", "found"),
    [
        (GoldenPlace(path="a.md", line=5), True),
        (GoldenPlace(path="a.md", line=8), True),
        (GoldenPlace(path="a.md", line=9), False),
        (GoldenPlace(path="a.md", line=4), False),
        (GoldenPlace(path="a.md", line=1, last_line=5), True),
        (GoldenPlace(path="a.md", line=8, last_line=20), True),
        (GoldenPlace(path="a.md", line=1, last_line=4), False),
        (GoldenPlace(path="b.md", line=2), True),
        (GoldenPlace(path="b.md", line=6), False),
        (GoldenPlace(path="md"), False),
    ],
    ids=str,
)
def test_a_place_is_found_where_its_lines_or_those_of_a_duplicate_are_shown(
    place: GoldenPlace, found: bool
) -> None:
    assert found is place.is_in(hit("a.md", 5, 8, "b.md:1:3"))


def test_a_place_that_stands_twice_is_paid_once() -> None:
    score = score_hits([hit("a.md", 1, 9), hit("a.md", 5, 14)], [GoldenPlace(path="a.md", line=7)], 10)

    assert (score.recall, score.ndcg) == (1.0, 1.0)


def test_one_passage_with_two_answers_is_a_perfect_ranking() -> None:
    expected = [GoldenPlace(path="a.md", line=2), GoldenPlace(path="a.md", line=7)]

    score = score_hits([hit("a.md")], expected, 10)

    assert (score.recall, score.ndcg) == (1.0, 1.0)


def record(
    name: str,
    answer: str,
    intent: IntentKind = IntentKind.GENERAL,
    *,
    weights: Mapping[str, float] = {"good": 1.0, "bad": 1.0},
) -> GoldenRecord:
    """A question that `good` answers and `bad` is wrong about, as it was asked under weights."""
    lists = {"good": {answer: 0.8, "z.md": 0.1}, "bad": {"x.md": 0.9, "y.md": 0.7}}
    return GoldenRecord(
        question=GoldenQuestion(id=name, question=name, expected=(GoldenPlace(path=answer),)),
        query=logged(lists, intent=intent, weights=weights),
    )


RECORDS = [record("one", "a.md"), record("two", "b.md", IntentKind.TIME)]


def test_golden_questions_are_scored_as_they_were_asked_and_for_each_backend_alone() -> None:
    score = score_golden(RECORDS, ranker=plain_ranker)

    assert (score.recall, score.mrr, score.questions) == (1.0, 0.5, 2)
    assert pytest.approx(RELEVANT_SECOND) == score.ndcg
    assert {name: one.mrr for name, one in score.by_backend.items()} == {"good": 1.0, "bad": 0.0}


def test_a_backend_of_weight_0_shows_what_it_can_alone() -> None:
    off = {"good": 0.0, "bad": 1.0}

    score = score_golden([record("one", "a.md", weights=off)], ranker=plain_ranker)

    assert (score.recall, score.by_backend["good"].recall) == (0.0, 1.0)


def test_a_backend_that_was_not_asked_finds_nothing_for_that_question() -> None:
    query = logged({"bad": {"x.md": 0.9}})
    records = [RECORDS[0], replace(RECORDS[1], query=query)]

    assert score_golden(records, ranker=plain_ranker).by_backend["good"].recall == 0.5


def test_a_comparison_names_the_questions_that_get_worse() -> None:
    asked = {"good": 1.0, "bad": 0.5}
    records = [record("one", "a.md", weights=asked), record("two", "b.md", IntentKind.TIME, weights=asked)]
    proposed = WeightTable.fixed({"bad": 0.5}, by_intent={IntentKind.TIME: {"bad": 1.0}})

    found = compare_golden(records, proposed, plain_ranker)

    assert (found.worse, found.current.mrr, found.proposed.mrr) == (("two",), 1.0, 0.75)
    assert found.falls_by_more_than(0.0)
    assert not found.falls_by_more_than(0.5)


def test_an_equal_table_is_no_fall() -> None:
    found = compare_golden(RECORDS, WeightTable.fixed({"good": 0.7, "bad": 0.7}), plain_ranker)

    assert (found.worse, found.falls_by_more_than(0.0)) == ((), False)


def test_no_questions_make_no_floor() -> None:
    found = compare_golden([], WeightTable.fixed({}), plain_ranker)

    assert (found.current.questions, found.falls_by_more_than(0.0)) == (0, False)
