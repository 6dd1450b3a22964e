"""The stems of passages are remembered, within bounds, and are always those of the text."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from composable_memory_adapters.qmd.documents import stemming
from composable_memory_adapters.qmd.documents.stemming import StemMemory
from composable_memory_adapters.text.stems import Stemmer

TEXTS = [
    "The gates are opening.",
    "部署方案",
    "!?",
    "",
    "ذهب إلى الحديقة",
    "lone \ud800 half",
    "Ünïcode 3.14",
]


@pytest.fixture
def stemmed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the texts that were stemmed, as that goes on."""
    texts: list[str] = []

    class Counting(Stemmer):
        def of_text(self, text: str) -> list[str]:
            texts.append(text)
            return super().of_text(text)

    monkeypatch.setattr(stemming, "Stemmer", Counting)
    return texts


def test_the_stems_are_those_of_the_stemmer_the_first_time_and_later() -> None:
    memory, stemmer = StemMemory(), Stemmer()
    expected = [tuple(stemmer.of_text(text)) for text in TEXTS]

    assert memory.of_texts(TEXTS) == expected
    assert memory.of_texts(TEXTS[::-1]) == expected[::-1]


def test_no_text_is_stemmed_twice(stemmed: list[str]) -> None:
    memory = StemMemory()

    memory.of_texts(["one gate", "one gate", "two gates"])
    memory.of_texts(["two gates", "three gates"])

    assert sorted(stemmed) == ["one gate", "three gates", "two gates"]


def test_no_more_is_kept_than_may_be(stemmed: list[str]) -> None:
    memory = StemMemory(max_bytes=20_000)

    for at in range(200):
        memory.of_texts([f"word{at} " * 20])
        assert memory.size <= 20_000

    assert len(stemmed) == 200
    assert memory.size > 5_000


def test_what_is_needed_again_and_again_stays(stemmed: list[str]) -> None:
    memory = StemMemory(max_bytes=20_000)

    for at in range(200):
        memory.of_texts(["the gate", f"word{at} " * 20])

    assert stemmed.count("the gate") == 1


def test_what_was_needed_long_ago_is_stemmed_anew(stemmed: list[str]) -> None:
    memory = StemMemory(max_bytes=20_000)

    memory.of_texts(["the gate"])
    for at in range(200):
        memory.of_texts([f"word{at} " * 20])

    assert memory.of_texts(["the gate"]) == [("the", "gate")]
    assert stemmed.count("the gate") == 2


def test_a_text_that_is_too_large_to_be_kept_is_stemmed() -> None:
    memory = StemMemory(max_bytes=100)

    assert memory.of_texts(["gates " * 1000]) == [("gate",) * 1000]
    assert memory.size == 0


def test_threads_may_share_it() -> None:
    memory, stemmer = StemMemory(max_bytes=20_000), Stemmer()
    texts = [f"word{at} gates " * 10 for at in range(60)]
    expected = [tuple(stemmer.of_text(text)) for text in texts]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: memory.of_texts(texts), range(40)))

    assert found == [expected] * 40
    assert memory.size <= 20_000
