"""Scores of facts: what they are made of, and that they mean the same for every question."""

import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from composable_memory.facts import Fact
from composable_memory_adapters.graphiti.fact_stores import ScoredFact
from composable_memory_adapters.graphiti.reading.fact_scoring import (
    MIN_SCORE,
    Relevance,
    best_first,
    rarity,
)
from composable_memory_adapters.graphiti.reading.question_words import question_words

NOW = datetime(2026, 6, 1, tzinfo=UTC)
FACT = Fact(id="1", group_id="g", text="Ann drinks green tea", relation="LIKES", source="Ann", target="tea")


def relevance(question: str, *, facts: int = 10, **frequencies: int) -> Relevance:
    return Relevance(
        words=question_words(question),
        facts=facts,
        frequencies=frequencies or {word.text: 1 for word in question_words(question)},
        vector_weight=0.5,
        holds=lambda fact: fact.is_current(NOW),
    )


def score(question: str, fact: Fact = FACT, cosine: float | None = None, **frequencies: int) -> float:
    return relevance(question, **frequencies).of(fact, cosine).score


def test_all_words_are_worth_one_and_half_of_them_a_half() -> None:
    assert score("Does Ann drink green tea?") == pytest.approx(1.0)
    assert score("Ann, tea, whales and submarines") == pytest.approx(0.5)
    assert score("whales and submarines") == 0.0


def test_rare_words_weigh_more_than_common_ones() -> None:
    common_and_rare = {"facts": 100, "tea": 2, "ann": 60, "whales": 2}

    assert score("tea Ann", replace(FACT, text="tea", source="", target=""), **common_and_rare) > 0.8
    assert score("whales Ann", replace(FACT, text="Ann", target=""), **common_and_rare) < 0.2


def test_words_that_the_graph_does_not_have_lower_a_short_question_and_not_a_long_one() -> None:
    known = "Ann drinks green tea every single morning outside"
    fact = replace(FACT, text=known)
    counts = dict.fromkeys(known.lower().split(), 1)

    assert score("tea xyzzy", ann=1, tea=1) == pytest.approx(0.5)
    assert score(f"{known} xyzzy plugh frobnicate quux", fact, **counts) == pytest.approx(1.0)


def test_names_and_relation_count_as_words_of_a_fact() -> None:
    assert score("does Ann like it") == pytest.approx(1.0)


@pytest.mark.parametrize("question", ["Wo wohnt Ann?", "Wo hat Ann gelebt?", "¿Dónde vive Ann?"])
def test_what_a_relation_is_called_in_another_language_counts_as_well(question: str) -> None:
    moved = replace(FACT, text="Ann ist nach Leipzig gezogen", relation="LIVES_IN", target="Leipzig")

    assert score(question, moved) == pytest.approx(1.0)
    assert score(question) < 0.6


def test_exact_means_every_content_word() -> None:
    assert relevance("Does Ann drink tea?").of(FACT).exact
    assert not relevance("Does Ann drink coffee?").of(FACT).exact
    assert not relevance("🎉").of(FACT).exact


def test_likeness_starts_above_chance_and_ends_before_sameness() -> None:
    one = relevance("tea")

    assert [one.likeness(cosine) for cosine in (-1.0, 0.0, 0.2, 0.65, 1.0, math.nan)] == [0, 0, 0, 1, 1, 0]
    assert one.likeness(0.4) == pytest.approx(0.5, abs=0.01)


def test_an_embedder_to_which_all_is_alike_is_judged_by_what_is_ordinary_to_it() -> None:
    one = replace(relevance("tea"), baseline=0.75)

    assert one.likeness(0.78) == 0.0
    assert one.likeness(0.9) == pytest.approx(1.0)
    assert replace(one, baseline=1.0).likeness(1.0) == 0.0


def test_likeness_and_words_are_weighed() -> None:
    assert score("submarines", cosine=0.9) == pytest.approx(0.5)
    assert score("tea", cosine=0.0) == pytest.approx(0.5)
    assert score("tea", cosine=0.9) == pytest.approx(1.0)


def test_nonsense_is_below_the_floor() -> None:
    assert score("xyzzy plugh", cosine=0.25) < MIN_SCORE


@pytest.mark.parametrize(
    ("confidence", "expected"), [(None, 1.0), (1.0, 1.0), (0.5, 0.75), (0.0, 0.5), (7.0, 1.0), (-1.0, 0.5)]
)
def test_confidence_is_worth_half_of_the_score(confidence: float | None, expected: float) -> None:
    assert score("tea", replace(FACT, confidence=confidence)) == pytest.approx(expected)


@pytest.mark.parametrize(
    "fact",
    [
        replace(FACT, invalid_at=NOW),
        replace(FACT, valid_at=NOW + timedelta(seconds=1)),
        replace(FACT, expired_at=NOW - timedelta(days=1)),
    ],
    ids=["over", "to come", "withdrawn"],
)
def test_what_does_not_hold_counts_half(fact: Fact) -> None:
    assert score("tea", fact) == pytest.approx(0.5)
    assert replace(relevance("tea"), holds=lambda _: True).of(fact).score == pytest.approx(1.0)


def test_a_word_that_every_fact_holds_still_counts() -> None:
    assert 0 < rarity(10, 10) < rarity(10, 5) < rarity(10, 1) < rarity(1000, 1)
    assert rarity(1, 5) == rarity(1, 1)


def test_the_order_does_not_depend_on_how_facts_came() -> None:
    dated = [replace(FACT, id=str(day), valid_at=NOW - timedelta(days=day)) for day in range(3)]
    undated = [replace(FACT, id=name) for name in "ba"]
    scored = [ScoredFact(fact=fact, score=0.5) for fact in (*dated, *undated)]
    noise = ScoredFact(fact=replace(FACT, id="noise"), score=MIN_SCORE - 0.01)
    best = ScoredFact(fact=replace(FACT, id="best"), score=0.6)

    forwards = best_first([*scored, noise, best], 9)

    assert [one.fact.id for one in forwards] == ["best", "0", "1", "2", "a", "b"]
    assert best_first([best, noise, *reversed(scored)], 9) == forwards
    assert best_first(scored, 2) == forwards[1:3]
