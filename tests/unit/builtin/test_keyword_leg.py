"""What keyword search finds in a real index, and what it thinks of it."""

from collections.abc import Iterable

import apsw
import pytest

from composable_memory_adapters.builtin.search import keyword_leg
from composable_memory_adapters.builtin.search.hybrid import FusedHit, fuse
from composable_memory_adapters.builtin.search.keyword_leg import KeywordAnswer
from composable_memory_adapters.builtin.store import schema
from composable_memory_adapters.builtin.store.schema import LIVE
from composable_memory_adapters.text.forms import index_text
from composable_memory_adapters.text.query_terms import analyse

NOTES = [
    "The staging cluster is deployed from the release branch every Tuesday morning.",
    "Groceries: oat milk, lemons, bread. The bakery closes at six.",
    "Maya prefers the window handle and reads about the history of tea.",
]


def index(texts: Iterable[str]) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    keyword_leg.prepare(connection)
    connection.execute(LIVE.sql(schema.KEYWORDS))
    rows = [(number, index_text(text)) for number, text in enumerate(texts)]
    connection.executemany("INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)", rows)
    return connection


def ask(
    connection: apsw.Connection, question: str, limit: int = 48, row_budget: int = 8_000
) -> KeywordAnswer:
    return keyword_leg.search(connection, analyse(question), limit=limit, row_budget=row_budget)


def ranked(connection: apsw.Connection, question: str) -> list[FusedHit]:
    answer = ask(connection, question)
    return fuse(answer.hits, None, scale=answer.scale)


def exact_ids(answer: KeywordAnswer) -> set[int]:
    return {hit.id for hit in answer.hits if hit.exact}


@pytest.mark.parametrize(
    "question", ["staging cluster", "deployed", "what is deployed from the release branch?"]
)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_exact_hit_scores_high_in_a_tiny_index(question: str, count: int) -> None:
    best = ranked(index(NOTES[:count]), question)[0]

    assert best.id == 0
    assert best.exact
    assert best.score >= 0.6


def test_one_word_of_five_scores_low() -> None:
    connection = index(NOTES)

    (hit,) = ranked(connection, "bakery rocket quantum violin penguin")

    assert not hit.exact
    assert 0.0 < hit.score < 0.3


def test_a_word_that_every_note_has_still_finds_them() -> None:
    hits = ranked(index([f"project {name}" for name in ("alpha", "beta", "gamma")]), "project")

    assert [hit.id for hit in hits] == [0, 1, 2]
    assert all(hit.exact and hit.score >= 0.6 for hit in hits)


def test_a_hit_with_every_word_is_exact_and_others_are_not() -> None:
    connection = index(["red lamp", "red door", "blue lamp"])

    assert exact_ids(ask(connection, "the red lamp")) == {0}
    assert exact_ids(ask(connection, "the red lamp of Oslo")) == set()


def test_what_is_quoted_makes_a_hit_exact_whatever_else_was_asked() -> None:
    connection = index(["set retry_budget to 3", "the retry has no budget", "budget for Oslo"])

    assert exact_ids(ask(connection, "what did we decide about retry_budget?")) == {0}
    assert exact_ids(ask(connection, 'is "budget for" anything?')) == {2}


def test_an_identifier_is_found_before_its_parts() -> None:
    connection = index(["the budget is small and the retry was long ago in Oslo", "retry_budget: 3"])

    assert ranked(connection, "retry_budget")[0].id == 1


def test_a_phrase_adds_a_quarter_to_what_its_words_count() -> None:
    connection = index(["a small lamp-shade", *NOTES])

    words, phrase = (ask(connection, question).scale for question in ("lamp shade", "lamp-shade"))
    assert phrase == pytest.approx(words * 2.25 / 2)


def test_single_asian_characters_find_words_that_hold_them() -> None:
    connection = index(["昨天讨论部署方案", "东京的天气"])

    assert [hit.id for hit in ask(connection, "署").hits] == [0]
    assert [hit.id for hit in ask(connection, "气").hits] == [1]


@pytest.mark.parametrize("question", ["", "?!", "😀", "zebra", "whoever"])
def test_what_is_not_there_is_not_found(question: str) -> None:
    assert ask(index(NOTES), question).hits == ()


def test_an_empty_index_finds_nothing() -> None:
    assert ask(index([]), "anything").hits == ()


def test_removed_rows_are_not_found() -> None:
    connection = index(NOTES)
    connection.execute("DELETE FROM chunks_fts WHERE rowid = 0")

    assert ask(connection, "staging bakery").hits[0].id == 1


def test_no_more_than_the_limit_come_back_and_they_are_the_best() -> None:
    connection = index([*(["lamp"] * 30), "red lamp", *(["lamp"] * 30)])

    hits = ask(connection, "red lamp", limit=5).hits
    assert len(hits) == 5
    assert hits[0].id == 30


@pytest.mark.parametrize("count", [3, 20, keyword_leg.SORTED_WHOLE + 1])
def test_equal_rows_beyond_the_limit_are_left_out_in_the_order_of_ids(count: int) -> None:
    assert [hit.id for hit in ask(index(["lamp"] * count), "lamp", limit=3).hits] == [0, 1, 2]


@pytest.mark.parametrize("count", [10, 100, 1_000])
@pytest.mark.parametrize("every", [1, 2, 30])
def test_the_best_of_a_source_come_back_beside_the_best_of_all(count: int, every: int) -> None:
    connection = index(f"lamp {'and a door ' * number}" for number in range(count))
    connection.execute(LIVE.sql(schema.PASSAGES))
    rows = [(number, "sessions" if (count - number) % every else "memory") for number in range(count)]
    connection.execute(
        "INSERT INTO files (path, source, hash, mtime, size, chunker)"
        " VALUES ('', 'memory', '', 0, 0, ''), ('', 'sessions', '', 0, 0, '')"
    )
    connection.executemany(
        "INSERT INTO chunks (id, source, path, start_line, end_line, hash, text, updated_at)"
        " VALUES (?, ?, '', 1, 1, '', '', 0)",
        rows,
    )

    hits = keyword_leg.search(connection, analyse("lamp"), limit=3, reserved="memory").hits

    notes = [number for number, source in rows if source == "memory"]
    assert [hit.id for hit in hits] == sorted({0, 1, 2, *notes[:3]})


def test_scores_do_not_depend_on_the_limit() -> None:
    connection = index([f"{'lamp ' * (number % 5)} red {'door ' * number}" for number in range(20)])

    short, long = (ask(connection, "red lamp", limit=limit) for limit in (5, 20))
    assert short.scale == long.scale
    assert list(short.hits) == [hit for hit in long.hits if hit in short.hits]


def test_beyond_the_budget_a_common_word_only_adds_to_a_rare_one() -> None:
    texts = ["tea" if number % 5 == 0 else "milk" for number in range(100)]
    texts[50] += " lamp"
    texts[51] += " lamp"

    hits = ask(index(texts), "tea lamp", row_budget=10).hits
    assert [hit.id for hit in hits] == [50, 51]
    assert [hit.exact for hit in hits] == [True, False]


def test_beyond_the_budget_a_word_that_is_almost_everywhere_is_not_looked_up() -> None:
    texts = ["tea"] * 90 + ["milk lamp", "tea lamp"]

    hits = ask(index(texts), "tea lamp", row_budget=10).hits
    assert {hit.id for hit in hits} == {90, 91}
    assert all(hit.exact for hit in hits)


def test_beyond_the_budget_a_common_word_alone_is_found() -> None:
    assert len(ask(index(["tea"] * 90 + ["milk"]), "tea", row_budget=10).hits) == 48
