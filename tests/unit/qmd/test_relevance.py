"""Passages are scored by the words of a question, on one scale for every question."""

import pytest

from composable_memory_adapters.qmd.documents.relevance import Scored, likeness, score
from composable_memory_adapters.text.query_terms import analyse

ELSEWHERE = "The weather was fine and nobody had anything to report about it."


def words(question: str, *texts: str) -> list[float]:
    return [one.words for one in score(analyse(question), [*texts, ELSEWHERE])][: len(texts)]


def test_more_of_the_words_score_higher() -> None:
    both, one, none = words("rate limit", "The rate limit is 100.", "The rate is high.", "Nothing of it.")

    assert 1.0 > both > one > none == 0.0


def test_all_words_near_each_other_are_nearly_a_full_score() -> None:
    (found,) = words("Where is the rate limit set?", "The rate limit is set in gateway.yaml.")

    assert found > 0.85


def test_words_that_stand_together_score_higher_than_far_apart() -> None:
    together = "alpha beta " + "filler " * 60
    apart = "alpha " + "filler " * 60 + "beta"

    near, far = words("alpha beta", together, apart)

    assert near > far


def test_a_rare_word_counts_for_more_than_a_common_one() -> None:
    common = [f"deploy note number {at}" for at in range(8)]

    *_, rare = words("deploy kafka", *common, "kafka note number nine")

    assert rare > max(words("deploy kafka", *common))


def test_a_word_that_is_nowhere_weighs_on_every_score() -> None:
    (known,) = words("gateway", "The gateway.")
    (less,) = words("gateway zyzzyva", "The gateway.")

    assert less < known * 0.75


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("deployments", "The deployment of it."),
        ("CAFE", "the café"),
        ("方案", "部署方案在这里"),
        ("猫", "我的猫很大"),
        ("الحديقة", "ذهب إلى حديقة"),
        ("¿Quién es la directora de la escuela?", "El director de la escuela"),
        ("deplo", "The deployment of it."),
    ],
)
def test_other_forms_of_a_word_are_found(question: str, text: str) -> None:
    assert words(question, text)[0] > 0.0


def test_a_beginning_is_only_taken_for_a_word_that_is_nowhere() -> None:
    plan, planet = words("plan", "The plan is ready.", "The planet is round.")

    assert plan > planet == 0.0


@pytest.mark.parametrize(
    ("question", "text", "exact"),
    [
        ("rate limit", "a limit on the rate", True),
        ("rate limit gateway", "a limit on the rate", False),
        ('"rate limit" gateway', "the rate limit", True),
        ('"rate limit"', "a limit on the rate", False),
    ],
)
def test_a_passage_with_all_that_was_asked_for_is_exact(question: str, text: str, exact: bool) -> None:
    assert score(analyse(question), [text, ELSEWHERE])[0].exact is exact


def test_a_phrase_counts_for_more_than_its_words() -> None:
    phrase, loose = words('"rate limit"', "the rate limit here", "the limit rate here")

    assert phrase > loose > 0.0


def test_nothing_is_scored_where_nothing_is_asked_or_found() -> None:
    assert score(analyse(""), ["text"]) == [Scored(words=0.0, exact=False)]
    assert score(analyse("rate"), []) == []


def test_likeness_falls_with_the_place() -> None:
    assert [likeness(rank) for rank in (0, 10, 30)] == [1.0, 0.5, 0.25]
