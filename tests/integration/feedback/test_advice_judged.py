"""Results that were found and not shown: somebody judges them, or a model those that an advice would show."""

from collections.abc import Sequence

import pytest

from composable_memory import Memory
from composable_memory_feedback.judgements import Judgement, JudgementKind
from composable_memory_feedback.weights import WeightTable
from tests.integration.embedders.loopback import listening
from tests.integration.feedback.learners import START, Place, saying
from tests.unit.feedback.judged_queries import judgments

ADVISED = WeightTable.fixed({"sure": 1.0, "vague": 0.3}, made_at=START)
"""Shows item and around, in the place of around and beside."""


async def ask(memory: Memory, number: int) -> str:
    """Ask for an item so that two of the four notes are shown, and return the trace id."""
    response = await memory.query(f"where is item {number}?", max_results=2)
    assert [one.path for one in response.results] == [
        f"memory/{name}-{number}.md" for name in ("around", "beside")
    ]
    return response.trace_id


async def kept(memory: Memory, kind: JudgementKind) -> Sequence[Judgement]:
    judgements = await memory.context.stored_if_any(lambda store: store.judgements()) or ()
    return [one for one in judgements if one.kind is kind]


# --- by hand ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lines", ["#L1-L3", ":1-3", ":1:3"])
async def test_what_was_found_and_not_shown_is_judged_by_its_lines(place: Place, lines: str) -> None:
    async with place.memory() as memory:
        judged = await memory.learning.judging.judge(
            await ask(memory, 7), f"memory/item-7.md{lines}", relevance=0.8
        )

        assert await kept(memory, JudgementKind.EXPLICIT) == [judged]

    assert (judged.path, judged.rank, judged.backend) == ("memory/item-7.md", 3, "sure")


# --- by a model ---------------------------------------------------------------------------------------------


async def test_a_model_judges_what_the_advice_would_show_and_nothing_else(place: Place) -> None:
    async with listening(saying(judgments(0.9))) as server:
        place = place.set(llm={"base_url": f"{server.url}/v1"})
        async with place.memory() as memory:
            await memory.learning.judging.judge(await ask(memory, 7), "1", relevance=0.0)
            run = await memory.learning.judging.evaluate(read=memory.text_of, advice=ADVISED)
            again = await memory.learning.judging.evaluate(read=memory.text_of, advice=ADVISED)
            (judged,) = await kept(memory, JudgementKind.MODEL)

    (received,) = server.received
    asked = received.body.decode()
    assert "All of memory/item-7.md." in asked
    assert not [name for name in ("around", "beside", "other") if f"{name}-7" in asked]
    assert ([one.state for one in run.outcomes], run.left) == (["judged"], 0)
    assert (judged.path, judged.rank, judged.backend) == ("memory/item-7.md", 3, "sure")
    assert judged.relevance == 0.9
    assert (again.outcomes, again.left) == ((), 0)
    assert again.stopped == "everything that judged queries would show with this advice is judged"


async def test_what_was_shown_and_nobody_judged_keeps_its_place(place: Place) -> None:
    async with listening(saying(judgments(0.9, 0.1))) as server:
        place = place.set(llm={"base_url": f"{server.url}/v1"})
        async with place.memory() as memory:
            await memory.learning.judging.judge(await ask(memory, 7), "2", relevance=0.0)
            await memory.learning.judging.evaluate(read=memory.text_of, advice=ADVISED)
            judged = await kept(memory, JudgementKind.MODEL)

    assert {(one.path, one.rank, one.relevance) for one in judged} == {
        ("memory/item-7.md", 3, 0.9),
        ("memory/around-7.md", 1, 0.1),
    }


async def test_an_advice_is_judged_within_the_quota(place: Place) -> None:
    async with listening(saying(judgments(0.9))) as server:
        place = place.set(llm={"base_url": f"{server.url}/v1"}, evaluations_per_hour=1)
        async with place.memory() as memory:
            for number in range(2):
                await memory.learning.judging.judge(await ask(memory, number), "1", relevance=0.0)
            run = await memory.learning.judging.evaluate(read=memory.text_of, advice=ADVISED)

    (received,) = server.received
    assert "memory/item-1.md" in received.body.decode()  # the latest first
    assert (len(run.outcomes), run.left) == (1, 1)
    assert "hour" in (run.stopped or "")


async def test_queries_that_nobody_judged_are_left_to_the_usual_evaluation(place: Place) -> None:
    async with listening(saying(judgments(0.9))) as server:
        place = place.set(llm={"base_url": f"{server.url}/v1"})
        async with place.memory() as memory:
            await ask(memory, 6)
            await ask(memory, 7)
            await memory.read_file("memory/around-7.md")
            run = await memory.learning.judging.evaluate(read=memory.text_of, advice=ADVISED)

    assert (run.signals, run.outcomes, run.left) == (1, (), 0)
    assert not server.received
