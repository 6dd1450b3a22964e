"""Our indexes are graphiti-core's, but for those on times."""

import re

import pytest

pytest.importorskip("graphiti_core")

from graphiti_core.driver.driver import GraphProvider
from graphiti_core.driver.falkordb import STOPWORDS
from graphiti_core.graph_queries import get_fulltext_indices

from composable_memory_adapters.graphiti.database import falkor, neo4j


def in_one_line(statements: "list[str] | tuple[str, ...]") -> set[str]:
    return {re.sub(r"\s+", " ", one) for one in statements if "FULLTEXT" in one and "Community" not in one}


def test_full_texts_are_indexed_as_graphiti_core_does() -> None:
    assert falkor.STOPWORDS == STOPWORDS
    assert in_one_line(falkor.INDEXES) == in_one_line(get_fulltext_indices(GraphProvider.FALKORDB))
    assert in_one_line(neo4j.INDEXES) == in_one_line(get_fulltext_indices(GraphProvider.NEO4J))
