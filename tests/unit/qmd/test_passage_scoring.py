"""Passages are scored by the words of a question, on one scale for every question."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from composable_memory_adapters.qmd.passages import rank_score
from composable_memory_adapters.text.forms import Stemmer
from composable_memory_adapters.text.query_terms import analyse
from composable_memory_adapters.text.relevance import Scored, StemCache, score

ELSEWHERE = "The weather was fine and nobody had anything to report about it."

TEXTS = [
    "The gates are opening.",
    "部署方案",
    "!?",
    "",
    "ذهب إلى الحديقة",
    "lone \ud800 half",
    "Ünïcode 3.14",
]


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


def test_a_score_by_rank_falls_with_the_rank() -> None:
    assert [rank_score(rank) for rank in (0, 10, 30)] == [1.0, 0.5, 0.25]


# --- the stems that are kept ---


class CountingStemmer(Stemmer):
    """Knows what it has stemmed."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def of_text(self, text: str) -> list[str]:
        self.texts.append(text)
        return super().of_text(text)


def stems(texts: Sequence[str]) -> list[str]:
    stemmer = Stemmer()
    return [" ".join(["", *stemmer.of_text(text), ""]) for text in texts]


def test_the_stems_are_those_of_the_stemmer_the_first_time_and_later() -> None:
    cache, stemmer = StemCache(), Stemmer()

    assert cache.of_texts(TEXTS, stemmer) == stems(TEXTS)
    assert cache.of_texts(TEXTS[::-1], stemmer) == stems(TEXTS[::-1])


def test_no_text_is_stemmed_twice() -> None:
    cache, stemmer = StemCache(), CountingStemmer()

    cache.of_texts(["one gate", "one gate", "two gates"], stemmer)
    cache.of_texts(["two gates", "three gates"], stemmer)

    assert sorted(stemmer.texts) == ["one gate", "three gates", "two gates"]


def test_beyond_the_limit_texts_are_stemmed_anew_and_rightly() -> None:
    cache, stemmer = StemCache(max_texts=10), CountingStemmer()

    cache.of_texts(["the gate"], stemmer)
    for at in range(20):
        cache.of_texts([f"word{at} " * 20], stemmer)

    assert cache.of_texts(["the gate"], stemmer) == [" the gate "]
    assert stemmer.texts.count("the gate") == 2


def test_threads_may_share_a_cache() -> None:
    cache = StemCache(max_texts=20)
    texts = [f"word{at} gates " * 10 for at in range(60)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: cache.of_texts(texts, Stemmer()), range(40)))

    assert found == [stems(texts)] * 40
