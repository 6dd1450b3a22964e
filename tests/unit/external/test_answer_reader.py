"""What is read from an answer of a foreign memory that says little of itself."""

import json
from typing import Any

from composable_memory_adapters.external.answer_reader import FieldNames, Reading, joined, read_answer
from composable_memory_adapters.external.mcp_source import read_blocks


def read(answer: Any, results_at: str | None = None, empty: str = "") -> Reading:
    return read_answer(answer, backend_id="away", results_at=results_at, names=FieldNames(), empty=empty)


def paths(reading: Reading) -> list[str]:
    return [one.path for one in reading.hits]


def rows(*scores: float) -> list[dict[str, Any]]:
    return [
        {"id": f"r{number}", "text": f"pump {number}", "score": score} for number, score in enumerate(scores)
    ]


def test_scores_that_grow_downwards_keep_the_order_of_the_answer() -> None:
    assert paths(read(rows(-7.5, -2.0, -0.5))) == ["away://r0", "away://r1", "away://r2"]
    assert paths(read(rows(0.2, 0.9))) == ["away://r1", "away://r0"]
    assert paths(read(rows(-2.0, -7.5))) == ["away://r0", "away://r1"]


def test_what_is_said_instead_of_results_is_told() -> None:
    assert read("Error: the store is locked", "results").complaint == "Error: the store is locked"
    assert read({"error": "no bank", "results": []}).complaint == "no bank"
    assert (read({"results": []}).complaint, read("").complaint) == ("", "")
    assert read({"error": None, "results": rows(0.5)}).complaint == ""


def test_a_text_that_says_that_nothing_was_found_is_no_result_and_no_complaint() -> None:
    for answer in ("No results found for 'pump'.", {"message": "NO RESULTS FOUND", "took": 2}):
        for results_at in (None, "results"):
            reading = read(answer, results_at, "no results")
            assert (reading.hits, reading.complaint, reading.keys) == ([], "", None), answer
    assert len(read("No results found for 'pump'.").hits) == 1
    assert len(read("There are no results of the pump test.", empty="no results").hits) == 1
    assert len(read(rows(0.5), empty="pump").hits) == 1


def test_answers_to_single_words_become_one_with_the_rarest_first() -> None:
    def one(*ids: str) -> Reading:
        return read([{"id": id_, "text": f"about {id_}"} for id_ in ids])

    whole = joined([one("a", "b", "c"), one("c"), one()])
    assert paths(whole) == ["away://c", "away://a", "away://b"]
    both, common = (whole.hits[place].score or 0.0 for place in (0, 1))
    assert 1 > both > 2 * common > 0
    assert paths(joined([one("b", "a")])) == ["away://b", "away://a"]


def test_an_answer_in_which_nothing_is_recognised_tells_its_keys_and_an_empty_one_none() -> None:
    row = {"text": "a pump"}
    unknown: list[tuple[Any, str | None, str]] = [
        ({"answer": {"rows": [row], "n": 1}, "took": 2}, None, "answer.rows, answer.n, took"),
        ({"answer": {"rows": [row]}}, "answer.hits", "answer.rows"),
        ({"groups": [{"rows": [row]}]}, "groups.hits", "groups"),
        ([row], "hits", "none (it is a list)"),
        ({str(number): 1 for number in range(20)}, None, ", ".join(map(str, range(12))) + ", …"),
    ]
    for answer, results_at, keys in unknown:
        assert (read(answer, results_at).hits, read(answer, results_at).keys) == ([], keys)
    empty: list[tuple[Any, str | None]] = [
        ({"results": []}, None),
        ({"hits": {"hits": [], "total": 0}}, None),
        ({"hits": {"hits": []}}, "hits.hits"),
        ({"rows": None, "n": 0}, "rows"),
        ({"groups": []}, "groups.rows"),
        ({"groups": [{"rows": []}]}, "groups.rows"),
        ([], None),
        ("", None),
        ({}, "rows"),
        (None, None),
    ]
    for answer, results_at in empty:
        assert read(answer, results_at) == Reading(hits=[], found_at=None), answer
    assert read({"results": [{"number": 1, "day": 2}, row]}).keys == "number, day"


def test_an_empty_name_stands_for_nothing() -> None:
    found = read_answer(
        [*rows(0.2, 0.9)],
        backend_id="away",
        results_at=None,
        names=FieldNames(score="", start_line="", id="", path=""),
    )
    assert (found.bad_scores, [one.text for one in found.hits]) == (0, ["pump 0", "pump 1"])


def test_a_list_that_comes_as_a_text_for_each_item_is_a_list() -> None:
    items = [{"id": "a", "text": "pump"}, {"id": "b", "text": "bilge"}]
    assert read_blocks([json.dumps(one) for one in items]) == items
    assert read_blocks(["Found 2:", json.dumps({"results": items})]) == {"results": items}
    assert read_blocks(["Found 2:", "pump", "bilge"]) == "Found 2:\npump\nbilge"
    assert read_blocks(["{", '"a": 1}']) == {"a": 1}
    assert read_blocks([]) == ""


def test_an_entity_of_a_graph_is_named_by_its_name() -> None:
    row = {"name": "Pump", "entityType": "thing", "observations": ["Was replaced."]}
    (hit,) = read({"entities": [row]}).hits
    (other,) = read({"results": [{"name": "Pump", "text": "Was replaced."}]}).hits
    assert (hit.path, other.path == hit.path) == ("away://Pump", False)


def test_relations_of_a_graph_are_read_as_sentences() -> None:
    entities = [{"name": "Ann", "observations": ["She likes boats."]}]
    relations = [{"from": "Ann", "to": "Harbour", "relationType": "works_at"}, {"from": "Ann"}, 7]
    texts = [one.text for one in read({"entities": entities, "relations": relations}, "entities").hits]
    assert texts == ["She likes boats.", "Ann works at Harbour"]
