"""Statements in both dialects: complete, and each in its own database's words."""

from dataclasses import astuple

import pytest

from composable_memory_adapters.graphiti.database.cypher import DatabaseKind
from composable_memory_adapters.graphiti.reading.dialects import dialect_of, statements_for


@pytest.mark.parametrize("in_window", [True, False])
def test_statements_for_neo4j_stay_in_the_group_and_use_nothing_of_falkordb(in_window: bool) -> None:
    statements = statements_for("neo4j", in_window=in_window)
    exact = [text for text in astuple(statements) if text != statements.by_vector_index]

    assert all("$group_id" in text for text in exact)
    assert not any(foreign in text for text in exact for foreign in ("vecf32", "db.idx", "vec."))


@pytest.mark.parametrize("in_window", [True, False])
def test_statements_for_falkordb_use_nothing_of_neo4j(in_window: bool) -> None:
    texts = astuple(statements_for("falkordb", in_window=in_window))

    assert not any(foreign in text for text in texts for foreign in ("db.index.", "datetime(", "$group_id"))


@pytest.mark.parametrize("kind", ["falkordb", "neo4j"])
def test_a_statement_names_the_parameters_of_a_window_only_with_one(kind: DatabaseKind) -> None:
    with_window, without = (statements_for(kind, in_window=flag) for flag in (True, False))

    assert "$start" in with_window.by_words
    assert "$start" not in without.by_words


def test_words_are_lower_case_in_lucene_where_capitals_are_operators() -> None:
    assert dialect_of("neo4j").any_of(["AND", "NOT", "mün*", "a-b"]) == "and OR not OR mün* OR a b"
