"""Elements of large JSON documents are read one by one, whole or as far as they are sound."""

import io
import json
import random
import tracemalloc
from collections.abc import Iterator, Sequence

import pytest

from composable_memory.imports.export_files import PIECE, Unreadable, elements

DOCUMENTS: Sequence[object] = (
    [],
    [1, 23, -4.5e6, True, None, 'é\n\\" [{', [[]], {"a": {"b": [1, 2]}}],
    {"results": [{"memory": "one"}, {"memory": "two"}], "next": None},
    {"page": 1, "memories": [], "x": {"memories": [7]}},
    {"alone": [1]},
    {},
)


class Dripping(io.StringIO):
    """A file that gives some characters at a time, however many are wanted."""

    chance = random.Random(5)

    def read(self, size: int | None = -1, /) -> str:
        return super().read(min(self.chance.randint(1, 7), size or 0))


def expected(document: object) -> list[object]:
    match document:
        case list():
            return document
        case {"results": list(rows)} | {"memories": list(rows)}:
            return rows
    return [document]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_they_are_those_of_the_whole_document_however_it_comes_in(document: object) -> None:
    for text in (json.dumps(document), f" {json.dumps(document, indent=3, ensure_ascii=False)}\n"):
        for _ in range(20):
            assert [*elements(Dripping(text), "results", "memories")] == expected(document)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_of_a_document_that_is_cut_anywhere_the_elements_before_are_read(document: object) -> None:
    text = json.dumps(document)
    for end in range(len(text)):
        read = list[object]()
        with pytest.raises(Unreadable):
            read.extend(elements(Dripping(text[:end]), "results", "memories"))
        assert read == expected(document)[: len(read)]
        if isinstance(document, list) and end == len(text) - 1:
            assert read == document


def test_where_it_is_damaged_is_told_and_not_what_stands_there() -> None:
    text = json.dumps(["x" * 100, "secret", "after"]).replace('"secret"', '"secret')
    with pytest.raises(Unreadable, match="character 115") as told:
        [*elements(io.StringIO(text))]
    assert "secret" not in str(told.value)


class Generated(io.StringIO):
    """A list of texts that is made as it is read."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._parts: Iterator[str] = iter(["[", *[f'"{"x" * 1000}",'] * count, "0]"])

    def read(self, size: int | None = -1, /) -> str:
        found = 0
        parts = []
        for part in self._parts:
            parts.append(part)
            found += len(part)
            if found >= (size or 0):
                break
        return "".join(parts)


def test_a_document_of_any_size_takes_the_memory_of_a_few_pieces() -> None:
    count = 16 * PIECE // 1000
    tracemalloc.start()
    try:
        assert sum(1 for _ in elements(Generated(count))) == count + 1
        assert tracemalloc.get_traced_memory()[1] < 6 * PIECE
    finally:
        tracemalloc.stop()
