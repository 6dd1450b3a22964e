"""Judging with everything real: an endpoint on loopback, the client, and the store in its file."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from composable_memory_feedback.chat import ChatClient, ChatEndpoint
from composable_memory_feedback.judgements import backend_days
from composable_memory_feedback.judging import Evaluator
from composable_memory_feedback.store.store import FeedbackStore
from tests.integration.embedders.loopback import Answerer, Received, Reply, listening
from tests.unit.feedback.judged_queries import NOW, hit, judgments, logged_query

QUERY = logged_query(hit("a.md"), hit("b.md", backend="qmd"))


def says(text: str) -> Answerer:
    choice = {"message": {"content": text}, "finish_reason": "stop"}
    return lambda received: Reply.of({"choices": [choice], "usage": {"prompt_tokens": 900}})


@asynccontextmanager
async def judging(
    answer: Answerer, folder: Path, *, per_hour: int = 20
) -> AsyncIterator[tuple[Evaluator, FeedbackStore]]:
    store = await asyncio.to_thread(FeedbackStore.open, folder / "feedback.db", clock=lambda: NOW)
    try:
        async with listening(answer) as server:
            client = ChatClient(ChatEndpoint(base_url=f"{server.url}/v1", model="m"))
            async with client:
                yield Evaluator(client, store, per_hour=per_hour, clock=lambda: NOW), store
    finally:
        await asyncio.to_thread(store.close)


async def test_a_judged_query_is_found_in_the_store(tmp_path: Path) -> None:
    async with judging(says(judgments(0.9, 0.2)), tmp_path) as (evaluator, store):
        outcome = await evaluator.evaluate(QUERY, texts={}, answer=None)
        kept, evaluations, days = await asyncio.to_thread(
            lambda: (store.judgements(), store.evaluations(), backend_days(store.judgements()))
        )

    assert tuple(kept) == outcome.judgements
    assert evaluations == [outcome.evaluation]
    assert {day.backend: day.precision for day in days} == {"builtin": 1.0, "qmd": 0.0}


async def test_no_answer_can_rest_on_what_was_not_shown(tmp_path: Path) -> None:
    hits = (hit("found.md"), hit("b.md", backend="qmd"))
    texts = {"found.md:1:4": "the boat is in Bergen"}
    async with judging(says(judgments(0.9, 0.9)), tmp_path) as (evaluator, _):
        outcome = await evaluator.evaluate(QUERY, texts=texts, answer="In Bergen.", hits=hits)

    told = [(one.path, one.rank, one.was_used) for one in outcome.judgements]
    assert told == [("found.md", 3, False), ("b.md", 2, True)]


async def test_a_query_that_is_judged_again_is_not_judged_twice(tmp_path: Path) -> None:
    async with judging(says(judgments(0.9, 0.2)), tmp_path) as (evaluator, store):
        for _ in range(2):
            await evaluator.evaluate(QUERY, texts={}, answer=None)
        kept = await asyncio.to_thread(store.judgements)

    assert len(kept) == 2


async def test_evaluations_at_once_never_exceed_the_quota(tmp_path: Path) -> None:
    async with judging(says(judgments(0.9, 0.2)), tmp_path, per_hour=3) as (evaluator, _):
        outcomes = await asyncio.gather(*(evaluator.evaluate(QUERY, texts={}, answer=None) for _ in range(5)))

    assert sorted(one.state for one in outcomes) == ["judged"] * 3 + ["quota-used-up"] * 2


async def test_a_hostile_endpoint_leaves_no_judgements(tmp_path: Path) -> None:
    def garbage(received: Received) -> Reply:
        return Reply(body=b'{"choices":' + b"[" * 50_000)

    async with judging(garbage, tmp_path) as (evaluator, store):
        outcome = await evaluator.evaluate(QUERY, texts={}, answer=None)
        kept, evaluations = await asyncio.to_thread(lambda: (store.judgements(), store.evaluations()))

    assert (outcome.state, kept) == ("failed", [])
    assert "not a chat completion" in str(evaluations[0].error)
