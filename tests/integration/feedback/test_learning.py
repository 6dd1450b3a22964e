"""Judgements of an open memory: what somebody says, what use implies, and what a language model thinks."""

import asyncio
import gc
import math
from collections.abc import Sequence

import pytest

from composable_memory import open_memory
from composable_memory.errors import ConfigError
from composable_memory.learning.logged import queries_of
from composable_memory.runtime.factory import SharedMemory
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.judgements import Judgement, JudgementKind
from composable_memory_ops_logs import OpsLogError
from tests.integration.embedders.loopback import listening
from tests.integration.feedback.learners import Place, ask, judge, saying
from tests.integration.test_standing_in import REFUSING
from tests.unit.feedback.judged_queries import judgments

SHOWN = ["memory/around-7.md", "memory/beside-7.md", "memory/item-7.md", "memory/other-7.md"]


async def kept(place: Place) -> Sequence[Judgement]:
    async with place.learning() as learning:
        return await learning.context.stored_if_any(lambda store: store.judgements()) or ()


# --- what somebody says -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["3", "03", "memory/item-7.md", "memory/item-7.md#L1-L3"])
async def test_a_result_is_judged_by_its_rank_its_path_or_its_citation(place: Place, name: str) -> None:
    async with place.memory() as memory:
        trace_id = await ask(memory, 7)
        judged = await memory.learning.judging.judge(trace_id[:6], name, relevance=0.8, used=True, by="me")

    assert (judged.trace_id, judged.path, judged.rank) == (trace_id, "memory/item-7.md", 3)
    assert (judged.backend, judged.kind, judged.relevance) == ("sure", JudgementKind.EXPLICIT, 0.8)
    assert await kept(place) == [judged]


async def test_what_was_not_shown_is_refused_with_what_was(place: Place) -> None:
    cited = "memory/item-7.md#L"
    names = [
        "0",
        "5",
        "-1",
        "",
        "memory",
        "memory/item-8.md",
        f"{cited}2",
        "٣",
        "9" * 5000,
        cited + "9" * 5000,
    ]
    async with place.memory() as memory:
        trace_id, learning = await ask(memory, 7), memory.learning
        for name in names:
            with pytest.raises(FeedbackError, match="it showed 1: memory/around-7"):
                await learning.judging.judge(trace_id, name, relevance=1.0)

    assert place.store is None


async def test_a_relevance_that_is_none_is_refused(place: Place) -> None:
    async with place.memory() as memory:
        trace_id, learning = await ask(memory, 7), memory.learning
        for relevance in (-0.1, 1.1, math.nan, math.inf):
            with pytest.raises(FeedbackError, match="no relevance"):
                await learning.judging.judge(trace_id, "1", relevance=relevance)


async def test_an_unknown_trace_is_refused(place: Place) -> None:
    async with place.memory() as memory:
        await ask(memory, 7)
        with pytest.raises(FeedbackError, match="no such query: ffff0000"):
            await memory.learning.judging.judge("ffff0000", "1", relevance=1.0)


@pytest.mark.parametrize("prefix", ["", "a"])
async def test_too_little_of_a_trace_id_names_no_query(place: Place, prefix: str) -> None:
    async with place.memory() as memory:
        await ask(memory, 7)
        with pytest.raises((FeedbackError, OpsLogError)):
            await memory.learning.judging.judge(prefix, "1", relevance=1.0)


async def test_who_judges_again_replaces_what_he_said(place: Place) -> None:
    async with place.memory() as memory:
        trace_id = await ask(memory, 7)
        for relevance in (1.0, 0.25):
            await memory.learning.judging.judge(trace_id, "1", relevance=relevance)

    assert [one.relevance for one in await kept(place)] == [0.25]


async def test_the_later_word_counts_though_the_clock_was_put_back(place: Place) -> None:
    async with place.memory() as memory:
        trace_id = await ask(memory, 7)
        place.clock.forward(days=3)
        await memory.learning.judging.judge(trace_id, "1", relevance=1.0)
        place.clock.forward(days=-3)
        await memory.learning.judging.judge(trace_id, "1", relevance=0.0)

    assert [one.relevance for one in await kept(place)] == [0.0]


async def test_what_a_stand_in_answered_is_no_credit_to_anybody(place: Place) -> None:
    (place.workspace / "MEMORY.md").write_text("The dock controller listens.\n", encoding="utf-8")
    config = {
        "memory": {
            "backend": "first",
            "embedding": {"provider": "none"},
            "builtin": {"sync": {"onSearchWaitMs": 60_000}},
        }
    }
    async with open_memory(
        place.workspace, place.state, config, backends=[REFUSING], environ={}, long_lived=False
    ) as memory:
        response = await memory.query("dock controller")
        judged = await memory.learning.judging.judge(response.trace_id, "1", relevance=1.0)
        stats = await memory.learning.judging.stats()

    assert (judged.path, judged.backend) == ("MEMORY.md", None)
    assert (stats.judged_queries, stats.days) == (1, ())


# --- what use implies ---------------------------------------------------------------------------------------


async def test_a_result_that_is_read_after_the_search_was_opened(place: Place) -> None:
    async with place.memory() as memory:
        await ask(memory, 7)
        await memory.read_file("memory/item-7.md")

        assert await memory.learning.judging.gather() == 1

    (opened,) = await kept(place)
    assert (opened.kind, opened.path, opened.rank) == (JudgementKind.OPENED, "memory/item-7.md", 3)
    assert (opened.backend, opened.relevance, opened.was_used) == ("sure", 1.0, True)


async def test_what_an_answer_quotes_was_of_use(place: Place) -> None:
    async with place.memory() as memory:
        trace_id = await ask(memory, 7)
        quoted = memory.record_answer(trace_id, "It stands in memory/item-7.md#L1-L3, I think.")
        await memory.learning.judging.gather()

    assert quoted == 1
    assert [(one.kind, one.path) for one in await kept(place)] == [(JudgementKind.QUOTED, "memory/item-7.md")]


async def test_what_an_answer_quotes_of_a_context_pack_was_of_use(place: Place) -> None:
    async with place.memory() as memory:
        pack = await memory.context_pack("where is item 7?")
        memory.record_answer(pack.trace_id, "It stands in memory/item-7.md#L1-L3, I think.")
        await memory.learning.judging.gather()

    assert [one.kind for one in await kept(place)] == [JudgementKind.QUOTED]


async def test_use_of_a_memory_in_the_hands_of_several_is_gathered(place: Place) -> None:
    async def release(shared: SharedMemory) -> None:
        pass

    async with place.memory() as memory:
        shared = SharedMemory.of(memory, release)
        response = await shared.query("where is item 7?")
        await shared.read_file("memory/item-7.md")

        assert await memory.learning.judging.gather() == 1
        assert memory.record_answer(response.trace_id, "See memory/item-7.md#L1-L3.") == 1


async def test_an_answer_to_a_search_that_nobody_knows_is_of_no_account(place: Place) -> None:
    async with place.memory() as memory:
        assert memory.record_answer("0" * 32, "It stands in memory/item-7.md#L1-L3.") == 0


async def test_gathering_again_adds_nothing(place: Place) -> None:
    async with place.memory() as memory:
        await ask(memory, 7)
        await memory.read_file("memory/item-7.md")

        assert [await memory.learning.judging.gather() for _ in range(3)] == [1, 0, 0]


async def test_reading_for_the_judge_is_not_use(place: Place) -> None:
    async with place.memory() as memory:
        await ask(memory, 7)
        await memory.text_of("memory/item-7.md", 1, 3)

        assert await memory.learning.judging.gather() == 0


async def test_a_memory_that_learnt_nothing_leaves_no_feedback_file(place: Place) -> None:
    async with place.memory(long_lived=True) as memory:
        await ask(memory, 7)
        learning = memory.learning
        await learning.judging.gather()
        await learning.judging.stats()
        await learning.weights.report()
        await learning.weights.history()
        await learning.advising.advise()
        await learning.experiments.status()
        await learning.judging.evaluate()

    assert place.store is None


# --- what a language model thinks ---------------------------------------------------------------------------


async def test_a_query_is_judged_over_http(place: Place) -> None:
    async with listening(saying(judgments(0.9, 0.1), prompt_tokens=900)) as server:
        place = place.set(llm={"base_url": f"{server.url}/v1", "model": "m", "api_key": "sesame"})
        async with place.memory() as memory:
            await ask(memory, 7)
            run = await memory.learning.judging.evaluate(read=memory.text_of)
            stats = await memory.learning.judging.stats()

    (received,) = server.received
    assert (received.path, received.headers["authorization"]) == ("/v1/chat/completions", "Bearer sesame")
    assert "All of memory/item-7.md." in received.body.decode()
    assert [one.state for one in run.outcomes] == ["judged"]
    assert (run.left, run.stopped) == (0, None)
    assert (stats.evaluations, stats.input_tokens, stats.quota_left) == (1, 900, 19)
    assert "sesame" not in "".join(
        one.read_text(encoding="utf-8") for one in memory.ops_log_dir.glob("*.jsonl")
    )


async def test_a_judged_query_is_not_judged_again(place: Place) -> None:
    async with listening(saying(judgments(0.9, 0.1))) as server:
        place = place.set(llm={"base_url": f"{server.url}/v1"})
        async with place.memory() as memory:
            await ask(memory, 7)
            await memory.learning.judging.evaluate()
            again = await memory.learning.judging.evaluate()

    assert (again.outcomes, again.stopped) == ((), "no query is left to judge")
    assert len(server.received) == 1


async def test_two_who_judge_at_once_share_the_quota(place: Place) -> None:
    async with listening(saying(judgments(0.9))) as server:
        place = place.set(llm={"base_url": f"{server.url}/v1"}, evaluations_per_hour=3)
        async with place.memory() as memory, place.learning() as other:
            for number in range(4):
                await ask(memory, number)
            runs = await asyncio.gather(memory.learning.judging.evaluate(), other.judging.evaluate())

    assert len(server.received) == 3
    assert sum(len(one.outcomes) for one in runs) == 3
    assert any("hour" in (one.stopped or "") for one in runs)


async def test_the_quota_comes_back_with_the_hour(place: Place) -> None:
    async with listening(saying(judgments(0.9))) as server:
        place = place.set(llm={"base_url": f"{server.url}/v1"}, evaluations_per_hour=1)
        async with place.memory() as memory:
            await ask(memory, 1)
            await ask(memory, 2)
            runs = [await memory.learning.judging.evaluate() for _ in range(2)]
            place.clock.forward(minutes=61)
            runs.append(await memory.learning.judging.evaluate())

    assert [(len(one.outcomes), one.left) for one in runs] == [(1, 1), (0, 1), (1, 0)]


async def test_without_an_endpoint_the_setting_that_is_missing_is_told(place: Place) -> None:
    async with place.memory() as memory:
        await ask(memory, 7)
        run = await memory.learning.judging.evaluate()

    assert (run.left, run.outcomes) == (1, ())
    assert "no language model is set: memory.feedback.llm.base_url" in str(run.stopped)


async def test_an_endpoint_that_fails_is_told_and_nothing_is_judged(place: Place) -> None:
    async with listening(saying("I would rather not.")) as server:
        place = place.set(llm={"base_url": f"{server.url}/v1"})
        async with place.memory() as memory:
            await ask(memory, 7)
            run = await memory.learning.judging.evaluate()
            stats = await memory.learning.judging.stats()

    assert [one.state for one in run.outcomes] == ["failed"]
    assert (run.left, stats.failed_evaluations, stats.kinds) == (1, 1, {})


# --- without a log, with a damaged store, and after the end -------------------------------------------------


async def test_without_a_log_nothing_can_be_learnt_and_that_is_said(place: Place) -> None:
    place = Place(workspace=place.workspace, state=place.state, log=False)
    async with place.memory() as memory:
        trace_id, learning = await ask(memory, 7), memory.learning
        for asked in (
            learning.judging.judge(trace_id, "1", relevance=1.0),
            learning.judging.gather(),
            learning.judging.evaluate(),
            learning.advising.advise(),
            queries_of(learning.context),
        ):
            with pytest.raises(FeedbackError, match=r"memory\.ops_log\.enabled is false"):
                await asked


async def test_learning_without_a_log_is_a_contradiction_in_the_settings(place: Place) -> None:
    place = Place(workspace=place.workspace, state=place.state, log=False, feedback={"enabled": True})
    with pytest.raises(ConfigError, match=r"memory\.feedback\.enabled.*memory\.ops_log\.enabled is false"):
        async with place.memory():
            pass


async def test_with_a_damaged_store_a_search_answers_and_says_so(place: Place) -> None:
    async with place.memory() as memory:
        await judge(memory, [7])
    assert place.store is not None
    place.store.write_bytes(b"this is no database, and it is longer than a header" * 100)

    async with place.memory(long_lived=True) as memory:
        response = await memory.query("where is item 7?")
        assert (await memory.learning.judging.stats()).judged_queries == 0

    assert [one.path for one in response.results] == SHOWN
    (lost,) = response.degraded
    assert (lost.backend_id, lost.code) == ("feedback", "unavailable")
    (aside,) = place.store.parent.glob("*.damaged-*")
    assert aside.name in lost.reason
    async with place.memory() as memory:
        assert (await memory.query("where is item 7?")).degraded == ()


async def test_what_a_closed_memory_is_asked_to_learn_is_refused_and_opens_nothing(place: Place) -> None:
    async with place.memory() as memory:
        await judge(memory, [7])
        learning = memory.learning

    with pytest.raises(FeedbackError, match="the memory is closed"):
        await learning.weights.report()


async def test_a_caller_who_leaves_while_the_store_opens_leaves_nothing_open(place: Place) -> None:
    async with place.learning() as learning:
        storing = asyncio.create_task(learning.weights.set({"sure": 0.9}))
        for _ in range(3):
            await asyncio.sleep(0)
        storing.cancel()
        await asyncio.wait([storing])

    # What went on in threads ends here; a store that nobody closed would be told when it is collected.
    await asyncio.get_running_loop().shutdown_default_executor()
    gc.collect()
