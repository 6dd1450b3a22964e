"""Searching facts: against a real graph, by words, names, times and vectors."""

import asyncio
import math
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial

import pytest

from composable_memory.types import Origin, TimeWindow
from composable_memory_adapters.graphiti.database.cypher import CypherDatabase
from composable_memory_adapters.graphiti.fact_stores import FactAnswer, Question
from composable_memory_adapters.graphiti.library import vectors
from composable_memory_adapters.graphiti.reading.search import search
from composable_memory_adapters.graphiti.settings import SearchSettings
from composable_memory_adapters.graphiti.writing.graph import GraphitiGraph
from tests.integration.graphiti.planting import NOW, Planted, day, plant, plant_episode


class Asking:
    """Asks one group, without a vector unless one is given."""

    def __init__(self, database: CypherDatabase, *groups: str) -> None:
        self._database = database
        self._groups = groups

    async def answer(
        self,
        text: str,
        *,
        limit: int = 6,
        vector: Sequence[float] | None = None,
        window: TimeWindow | None = None,
        settings: SearchSettings | None = None,
        space: str | None = None,
        now: datetime = NOW,
        when: str = "",
    ) -> FactAnswer:
        question = Question(text=text, groups=self._groups, limit=limit, now=now, window=window, when=when)
        settings = settings or SearchSettings()
        graph_of = partial(GraphitiGraph, self._database, embedder=None, clock=lambda: now, search=settings)
        graphs = {group: graph_of(group) for group in self._groups}
        return await search(self._database, graphs, question, vector, settings, space=space)

    async def texts(self, text: str, **options: object) -> list[str]:
        answer = await self.answer(text, **options)  # type: ignore[arg-type]  # handed on as they are
        return [one.fact.text for one in answer.facts]

    async def score(self, text: str, **options: object) -> float:
        answer = await self.answer(text, **options)  # type: ignore[arg-type]  # handed on as they are
        return answer.facts[0].score


@pytest.fixture
def ask(graph_database: CypherDatabase, group_id: str) -> Asking:
    return Asking(graph_database, group_id)


OFFICE = (
    "Ann works at Acme as an engineer",
    "Ann lives in Oslo with her two cats",
    "The payments service depends on PostgreSQL 16",
    "Bob prefers tea over coffee",
    "The deadline of project Falcon is in March",
)

# --- words -------------------------------------------------------------------------------------------------


async def test_a_question_finds_the_fact_that_holds_its_words(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    await plant(graph_database, group_id, *OFFICE)

    assert (await ask.texts("Where does Ann work?"))[0] == "Ann works at Acme as an engineer"
    assert await ask.texts("when is falcon's deadline") == ["The deadline of project Falcon is in March"]


async def test_scores_tell_how_much_of_the_question_a_fact_holds(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    await plant(graph_database, group_id, *OFFICE)

    answer = await ask.answer("Bob and tea and whales and submarines")
    everything = await ask.answer("Does Bob prefer tea over coffee?")

    assert 0.35 <= answer.facts[0].score <= 0.65
    assert not answer.facts[0].exact
    assert everything.facts[0].score >= 0.8
    assert everything.facts[0].exact


@pytest.mark.parametrize("question", ["xyzzy plugh frobnicate", "🎉🎉", "", "   ", "?!", "\0"])
async def test_nonsense_finds_nothing(
    graph_database: CypherDatabase, group_id: str, ask: Asking, question: str
) -> None:
    await plant(graph_database, group_id, *OFFICE)

    assert await ask.texts(question) == []


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ("安娜住在哪里", "安娜住在东京的新宿区"),
        ("新宿区有谁", "安娜住在东京的新宿区"),
        ("東京に誰が住んでいますか", "アンナは東京に住んでいます"),
        ("서울에 누가 살아?", "안나는 서울에 살고 있다"),
        ("แอนนาทำงานที่ไหน", "แอนนาทำงานที่ธนาคาร"),
        ("Кто живет в Москве?", "Анна живет в городе Москва"),
        ("MÜNCHEN", "Anna wohnt in München"),
        ("munchen", "Anna wohnt in München"),
        ("école", "L'ÉCOLE est fermée"),
        ("هل تعمل آنا", "تعمل آنا في البنك"),
        ("दिल्ली में कौन रहता है", "अन्ना दिल्ली में रहती है"),
        ("foo", "foo_bar belongs to the data team"),
        ("foo_bar", "foo_bar belongs to the data team"),
        ("What does Ann’s team own?", "The crawler is owned by “Ann’s team”"),
    ],
)
async def test_facts_are_found_in_any_script(
    graph_database: CypherDatabase, group_id: str, ask: Asking, question: str, fact: str
) -> None:
    await plant(graph_database, group_id, "Bob likes tea", fact, "Carla went home")

    assert (await ask.texts(question))[:1] == [fact]


async def test_a_script_without_spaces_is_found_by_the_names_alone(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    await plant(graph_database, group_id, Planted(text="she moved there", source="安娜", target="新宿区"))

    assert await ask.texts("安娜住在哪里") == ["she moved there"]


async def test_an_entity_that_is_named_brings_facts_that_do_not_name_it(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    facts = [
        Planted(text="is allergic to peanuts", source="Dan Brook"),
        Planted(text="likes tea", source="Eve"),
    ]
    await plant(graph_database, group_id, *facts)

    assert await ask.texts("Dan Brook") == ["is allergic to peanuts"]


async def test_a_question_of_three_hundred_words_finds(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    await plant(graph_database, group_id, *OFFICE)
    page = " ".join(f"filler{number} stands here" for number in range(100))

    assert (await ask.texts(f"{page} Bob prefers tea {page}"))[:1] == ["Bob prefers tea over coffee"]


ODD = [
    "it's \"quoted\" and 'so'",
    "back\\slash \\",
    "a|b -c (d) {e} [f] @name:(x) %y% z* =>[KNN 3 @v $b]",
    "$words; MATCH (n) DETACH DELETE n",
    "NUL\0in the middle",
    "half a pair \ud800 of surrogates",
    "🎉 emoji 👩‍👩‍👧 joined",
    "___ __init__ _",
    "AND OR NOT and or not",
    "1 2 3.14 -5 1e9 0x1F",
    "-",
    "*",
    "%%%",
    "x" * 5000,
    "עברית עם נִקּוּד",
    "ﬁnancial ＡＢＣ ½ ² ①",
    "مرحبا، بالعالم؟",
    "東京, Tokyo & 서울/Seoul",
]


@pytest.mark.parametrize("question", ODD)
async def test_whatever_is_asked_there_is_an_answer(
    graph_database: CypherDatabase, group_id: str, ask: Asking, question: str
) -> None:
    await plant(graph_database, group_id, *OFFICE)

    assert "Ann lives in Oslo with her two cats" in await ask.texts(f"{question} Ann Oslo", vector=None)
    await ask.answer(question)


async def test_any_characters_can_be_asked(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    await plant(graph_database, group_id, *OFFICE)
    chance = random.Random(4)
    alphabet = [chr(code) for code in range(128)] + list("äßÉø漢字かな한글ไทยअनाمЖ’“—…")

    for _ in range(60):
        question = "".join(chance.choices(alphabet, k=chance.randint(1, 40)))
        answer = await ask.answer(question)
        assert all(0 <= one.score <= 1 for one in answer.facts), question


# --- groups and limits -------------------------------------------------------------------------------------


async def test_a_group_that_is_empty_or_not_there_has_no_facts(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    assert await ask.answer("Ann") == FactAnswer(engines={"keyword": "redisearch"})

    await graph_database.write(group_id, "CREATE (:Entity {name: 'Ann', uuid: 'a'})")

    assert await ask.texts("Ann", vector=[1.0, 0.0]) == []


async def test_only_the_groups_that_are_named_are_searched(
    graph_database: CypherDatabase, group_id: str
) -> None:
    mine, other = group_id, f"{group_id}-other"
    await plant(graph_database, mine, "Ann lives in Oslo")
    await plant(graph_database, other, "Ann lives in Bergen")

    assert await Asking(graph_database, mine).texts("Ann") == ["Ann lives in Oslo"]
    assert await Asking(graph_database, other).texts("Ann") == ["Ann lives in Bergen"]


async def test_facts_of_several_groups_are_ranked_together_and_cut(
    graph_database: CypherDatabase, group_id: str
) -> None:
    mine, other = group_id, f"{group_id}-other"
    await plant(graph_database, mine, "Ann lives in Oslo", "Ann likes tea", "Ann likes red wine")
    await plant(graph_database, other, "Ann likes wine", "Bob likes red wine from Spain", "Bob is tall")
    ask = Asking(graph_database, mine, other, mine)

    answer = await ask.answer("Does Ann like red wine?", limit=3)

    assert len(answer.facts) == 3
    assert (answer.facts[0].fact.group_id, answer.facts[0].fact.text) == (mine, "Ann likes red wine")
    assert {one.fact.group_id for one in answer.facts} == {mine, other}
    assert [one.score for one in answer.facts] == sorted((one.score for one in answer.facts), reverse=True)


async def test_searches_at_the_same_time_keep_their_own_limits(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    await plant(graph_database, group_id, *(f"Ann owns boat {number}" for number in range(12)))

    few, more = await asyncio.gather(ask.texts("Ann boat", limit=2), ask.texts("Ann boat", limit=7))

    assert (len(few), len(more)) == (2, 7)
    assert more[:2] == few


async def test_a_larger_limit_changes_no_order(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    chance = random.Random(1)
    words = ["boat", "house", "horse", "garden", "piano", "bicycle"]
    facts = (f"Ann {number} owns {' and '.join(chance.sample(words, 3))}" for number in range(90))
    await plant(graph_database, group_id, *facts)

    whole = await ask.texts("boat horse piano", limit=16)

    for limit in (1, 3, 8):
        assert await ask.texts("boat horse piano", limit=limit) == whole[:limit]


async def test_the_fact_with_all_the_words_is_found_among_hundreds_with_one(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    words = ("boat", "horse", "piano")
    facts = (f"Somebody {number} has a {words[number % 3]} and more" for number in range(300))
    await plant(graph_database, group_id, *facts, "zz Somebody has a boat and a horse and a piano")

    assert (await ask.texts("boat horse piano", limit=1))[0].startswith("zz")


async def test_equal_facts_come_newest_first_and_always_in_the_same_order(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    days = [day("2026-01-03"), day("2026-01-01"), None, day("2026-01-02")]
    facts = (Planted(text="Ann rings", id=f"ring {n}", valid_at=at) for n, at in enumerate(days))
    await plant(graph_database, group_id, *facts)

    answer = await ask.answer("Ann rings")

    found = [one.fact.valid_at for one in answer.facts]
    assert found == [day("2026-01-03"), day("2026-01-02"), day("2026-01-01"), None]
    assert await ask.answer("Ann rings") == answer


# --- time --------------------------------------------------------------------------------------------------


async def test_what_holds_no_more_comes_below_what_does(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    old = Planted(text="Ann lives in Bergen", valid_at=day("2020-01-01"), invalid_at=day("2024-01-01"))
    withdrawn = Planted(text="Ann lives in Rome", valid_at=day("2025-01-01"), expired_at=day("2025-02-01"))
    new = Planted(text="Ann lives in Oslo", valid_at=day("2024-01-01"))
    coming = Planted(text="Ann lives in Paris", valid_at=day("2027-01-01"))
    await plant(graph_database, group_id, old, withdrawn, new, coming)

    answer = await ask.answer("Where does Ann live?")

    assert answer.facts[0].fact.text == "Ann lives in Oslo"
    assert {round(one.score / answer.facts[0].score, 6) for one in answer.facts[1:]} == {0.5}


async def test_a_long_history_does_not_crowd_out_what_is_true_now(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    history = (
        Planted(text=f"The status of Falcon is state{n}", invalid_at=day("2026-01-01")) for n in range(150)
    )
    current = Planted(text="The status of Falcon is, after much ado, at long last finished", id="zzz")
    await plant(graph_database, group_id, *history, current)

    assert (await ask.texts("status of Falcon", limit=2))[0] == current.text


async def test_words_that_name_the_window_are_expected_of_no_fact(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    await plant(graph_database, group_id, *OFFICE)
    window = TimeWindow(start=day("2026-02-01"), end=day("2026-03-01"))

    asked = await ask.score("Where did Ann live in February 2026?", window=window, when="february 2026")
    held = await ask.score("PostgreSQL in 16", window=window, when="16")

    assert asked == await ask.score("Where did Ann live?", window=window)
    assert held == await ask.score("PostgreSQL 16", window=window)


async def test_what_held_in_a_window_ranks_above_what_ended_before(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    old = Planted(text="Ann lives in Bergen", valid_at=day("2020-01-01"), invalid_at=day("2024-01-01"))
    new = Planted(text="Ann lives in Oslo", valid_at=day("2024-01-01"))
    coming = Planted(text="Ann lives in Paris", valid_at=day("2027-01-01"))
    await plant(graph_database, group_id, old, new, coming)
    year = TimeWindow(start=day("2022-01-01"), end=day("2022-12-31"))
    turn = TimeWindow(start=day("2023-12-01"), end=day("2024-02-01"))
    later = TimeWindow(start=day("2025-01-01"), end=day("2025-12-31"))

    past = await ask.answer("Where does Ann live?", window=year)

    (only,) = past.facts
    assert only.fact.text == "Ann lives in Bergen"
    assert only.score == pytest.approx(1.0)
    held, ended = (await ask.answer("Where does Ann live?", window=later)).facts
    assert (held.fact.text, ended.fact.text) == ("Ann lives in Oslo", "Ann lives in Bergen")
    assert ended.score == pytest.approx(0.5 * held.score)
    assert await ask.texts("Ann lives", window=turn) == ["Ann lives in Oslo", "Ann lives in Bergen"]


async def test_dates_are_compared_as_times_whatever_the_probe(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    chance = random.Random(7)
    # Range indexes on times, as others make them, must not lead astray.
    await graph_database.write(
        group_id, "CREATE INDEX FOR ()-[e:RELATES_TO]-() ON (e.valid_at, e.invalid_at, e.expired_at)"
    )
    facts = [_chance_fact(chance, number) for number in range(40)]
    await plant(graph_database, group_id, *facts)

    for _ in range(100):
        start = day("2026-01-01") + timedelta(hours=chance.randint(0, 24 * 100))
        window = TimeWindow(start=start, end=start + timedelta(minutes=chance.choice([0, 0, 30, 5000])))
        expected = {one.text for one in facts if _held_within(one, window)}
        answer = await ask.answer("probe", limit=50, window=window)
        best = {one.fact.text for one in answer.facts if one.score == answer.facts[0].score}
        begun = {one.text for one in facts if one.valid_at is None or one.valid_at <= window.end}
        assert {one.fact.text for one in answer.facts} == begun
        assert best == (expected or begun)


async def test_what_is_not_to_be_told_any_more_is_not_told(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    over = Planted(text="The code of the door is 1234", expires_at=NOW)
    left = Planted(text="The code of the gate is 5678", expires_at=NOW + timedelta(seconds=1))
    await plant(graph_database, group_id, over, left)
    always = TimeWindow(start=day("2000-01-01"), end=day("2100-01-01"))

    assert await ask.texts("the code of the door or the gate") == [left.text]
    assert await ask.texts("code", window=always) == [left.text]


async def test_confidence_lowers_a_score_by_half_at_most(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    for confidence, word in ((0.0, "rumour"), (0.5, "guess"), (1.0, "certainty")):
        await plant(graph_database, group_id, Planted(text=f"It is a {word}", confidence=confidence))

    scores = [await ask.score(word) for word in ("rumour", "guess", "certainty")]

    assert scores == pytest.approx([0.5, 0.75, 1.0])


# --- origins -----------------------------------------------------------------------------------------------


async def test_a_fact_says_where_it_was_taken_from(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    note = await plant_episode(graph_database, group_id, "n", description="memory/2026-03-01.md#L3-L7")
    talk = await plant_episode(graph_database, group_id, "t", description="chat")
    fact = Planted(text="Ann rings", episodes=[note, talk, note, "unknown"])
    await plant(graph_database, group_id, fact)

    answer = await ask.answer("Ann rings")

    assert answer.facts[0].fact.origins == (Origin(path="memory/2026-03-01.md", start_line=3, end_line=7),)
    assert answer.facts[0].fact.episodes == (note, talk, note, "unknown")


# --- vectors -----------------------------------------------------------------------------------------------


def _direction(degrees: float) -> list[float]:
    return [math.cos(math.radians(degrees)), math.sin(math.radians(degrees)), 0.0]


def _chance_vector(chance: random.Random, size: int = 16) -> list[float]:
    return [chance.gauss(0, 1) for _ in range(size)]


async def test_a_fact_that_is_near_is_found_without_a_word_in_common(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    near = Planted(text="Eve is employed by Globex", embedding=_direction(30))
    far = Planted(text="The sky is blue", embedding=_direction(95))
    await plant(graph_database, group_id, near, far)

    answer = await ask.answer("Who pays her salary?", vector=_direction(0))

    assert [one.fact.text for one in answer.facts] == ["Eve is employed by Globex"]
    assert answer.engines == {"keyword": "redisearch", "vector": "exact"}


async def test_without_weight_vectors_are_not_asked(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    await plant(graph_database, group_id, Planted(text="Eve is tall", embedding=_direction(0)))

    answer = await ask.answer(
        "salary", vector=_direction(0), settings=SearchSettings(vector_weight=0), space="a/b/3"
    )

    assert answer == FactAnswer(engines={"keyword": "redisearch"})


async def test_a_fact_without_a_vector_is_judged_by_its_words(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    with_vector = Planted(text="The sky is blue", embedding=_direction(0))
    await plant(graph_database, group_id, with_vector, "Ann likes tea")

    assert await ask.score("Ann tea", vector=_direction(90)) == pytest.approx(1.0)


async def test_vectors_of_another_length_leave_the_words(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    await plant(graph_database, group_id, Planted(text="Ann likes tea", embedding=_direction(0)))

    answer = await ask.answer("Ann tea", vector=[1.0, 0.0])

    (only,) = answer.facts
    assert only.fact.text == "Ann likes tea"
    assert only.score == pytest.approx(1.0)
    assert [(one.backend_id, one.code) for one in answer.degraded] == [("graphiti", "keyword-only")]
    assert "cmem index --force" in answer.degraded[0].reason
    assert answer.engines == {"keyword": "redisearch"}


async def test_vectors_of_two_lengths_leave_the_words(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    alike = (Planted(text=f"Ann {n} likes tea", embedding=_direction(n)) for n in range(70))
    stray = Planted(text="Ann the last likes tea", embedding=[1.0, 0.0])
    await plant(graph_database, group_id, *alike, stray)

    answer = await ask.answer("last tea", vector=_direction(0))

    assert answer.facts[0].fact.text == "Ann the last likes tea"
    assert [one.code for one in answer.degraded] == ["keyword-only"]
    assert answer.engines == {"keyword": "redisearch"}


async def test_vectors_of_another_model_are_not_compared(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    fact = Planted(text="Ann likes tea", embedding=_direction(0))
    await plant(graph_database, group_id, fact, space="wordllama/l2/3")

    other = await ask.answer("Ann tea", vector=_direction(90), space="openai/small/3")
    same = await ask.answer("Ann tea", vector=_direction(90), space="wordllama/l2/3")

    assert other.facts[0].score == pytest.approx(1.0)
    (degraded,) = other.degraded
    assert (degraded.backend_id, degraded.code) == ("graphiti", "keyword-only")
    facts = (group_id, "wordllama/l2/3", "openai/small/3", "`cmem index --force`")
    assert [one for one in facts if one not in degraded.reason] == []
    assert same.facts[0].score == pytest.approx(0.5)
    assert not same.degraded


ON = SearchSettings(vector_index="on")


async def test_the_index_names_the_same_facts_as_an_exact_search(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    chance = random.Random(3)
    facts = [Planted(text=f"fact {n}", embedding=_chance_vector(chance)) for n in range(120)]
    await plant(graph_database, group_id, *facts)
    questions = [_chance_vector(chance) for _ in range(5)]
    exact = [await ask.answer("zzz", vector=one) for one in questions]

    await vectors.arrange(graph_database, group_id, ON, dimensions=16)
    await _ready(graph_database, group_id)
    indexed = [await ask.answer("zzz", vector=one, settings=ON) for one in questions]

    assert [one.facts for one in indexed] == [one.facts for one in exact]
    assert any(one.facts for one in indexed)
    assert {one.engines["vector"] for one in indexed} == {"hnsw"}
    assert {one.engines["vector"] for one in exact} == {"exact"}


async def test_facts_that_come_after_the_index_are_found_through_it(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    await plant(graph_database, group_id, Planted(text="the first", embedding=_direction(90)))
    await vectors.arrange(graph_database, group_id, ON, dimensions=3)
    await plant(graph_database, group_id, Planted(text="the second", embedding=_direction(10)))
    await plant(graph_database, group_id, Planted(text="forgotten", embedding=_direction(1), expires_at=NOW))
    await _ready(graph_database, group_id)

    answer = await ask.answer("zzz", vector=_direction(0), settings=ON)

    assert [one.fact.text for one in answer.facts] == ["the second"]
    assert answer.engines["vector"] == "hnsw"


async def test_the_index_follows_settings_and_length(graph_database: CypherDatabase, group_id: str) -> None:
    async def arrange(setting: str, dimensions: int) -> int | None:
        settings = SearchSettings.model_validate({"vector_index": setting})
        await vectors.arrange(graph_database, group_id, settings, dimensions=dimensions)
        index = await vectors.indexed(graph_database, group_id)
        return index.dimensions if index else None

    assert await arrange("on", 3) is None, "there is nothing to index"
    await plant(graph_database, group_id, Planted(text="one", embedding=_direction(0)))
    assert await arrange("auto", 3) is None, "a few facts need none"
    assert await arrange("on", 3) == 3
    assert await arrange("on", 3) == 3
    assert await arrange("on", 4) == 4
    assert await arrange("off", 4) is None
    assert await arrange("off", 4) is None


async def test_after_a_change_of_length_words_answer_until_the_vectors_are_new(
    graph_database: CypherDatabase, group_id: str, ask: Asking
) -> None:
    await plant(graph_database, group_id, Planted(text="Ann likes tea", embedding=_direction(0)))
    await vectors.arrange(graph_database, group_id, ON, dimensions=3)

    between = await ask.answer("Ann", vector=[1.0, 0.0, 0.0, 0.0], settings=ON)
    await vectors.arrange(graph_database, group_id, ON, dimensions=4)
    await graph_database.write(
        group_id, "MATCH ()-[e:RELATES_TO]->() SET e.fact_embedding = vecf32([1.0, 0.0, 0.0, 0.0])"
    )
    await _ready(graph_database, group_id)
    after = await ask.answer("zzz", vector=[1.0, 0.0, 0.0, 0.0], settings=ON)

    assert ([one.code for one in between.degraded], len(between.facts)) == (["keyword-only"], 1)
    assert (after.degraded, after.engines["vector"], len(after.facts)) == ((), "hnsw", 1)


async def _ready(database: CypherDatabase, group_id: str) -> None:
    async with asyncio.timeout(20):
        while not ((index := await vectors.indexed(database, group_id)) and index.is_ready):  # noqa: ASYNC110 - the server does not tell when it is done
            await asyncio.sleep(0.01)


def _chance_fact(chance: random.Random, number: int) -> Planted:
    begun = day("2026-01-01") + timedelta(hours=chance.randint(0, 24 * 60))
    ended = begun + timedelta(hours=chance.randint(1, 24 * 60), microseconds=chance.choice([0, 500]))
    return Planted(
        text=f"probe {number}",
        valid_at=chance.choice([begun, begun, None]),
        invalid_at=chance.choice([ended, ended, None]),
    )


def _held_within(fact: Planted, window: TimeWindow) -> bool:
    began = fact.valid_at is None or fact.valid_at <= window.end
    return began and (fact.invalid_at is None or window.start < fact.invalid_at)
