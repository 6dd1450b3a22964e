"""Weights of an open memory: what is advised, what is refused, what is in force, and the way back."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from composable_memory import Memory
from composable_memory.cli import app
from composable_memory.learning import open_learning
from composable_memory.learning.loop import learn_in_background
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.experiments import Outcome
from composable_memory_feedback.golden import GoldenPlace, GoldenQuestion
from composable_memory_feedback.weights import IntentKind, WeightTable
from composable_memory_ops_logs import OpsLogReader
from tests.integration.embedders.loopback import Answerer, Received, Reply, listening
from tests.integration.feedback.learners import ORDER, Place, Rest, ask, saying

SETTINGS = {"sure": 0.75, "vague": 1.0}
ROOT = Path(__file__).parents[3]
HOUSES = os.pathsep.join(str(ROOT / folder) for folder in (".", "adapters", "feedback", "ops_logs"))
QUESTIONS = [
    GoldenQuestion(
        id=f"q{number}",
        question=f"where is item {number}?",
        expected=(GoldenPlace(path=f"memory/item-{number}.md"),),
    )
    for number in range(3)
]


def in_force(memory: Memory) -> Mapping[str, float]:
    return memory.weights.now.table.weights


async def order_of(memory: Memory) -> str:
    """Return the first letters of what answers a question that was never put before; `i` is the item."""
    response = await memory.query("where is item 99?")
    return "".join(Path(one.path).name[0] for one in response.results)


@asynccontextmanager
async def advised_by(answer: Answerer, place: Place) -> AsyncIterator[Memory]:
    """Open a memory whose language model answers so."""
    async with (
        listening(answer) as server,
        place.set(llm={"base_url": f"{server.url}/v1"}).memory() as memory,
    ):
        yield memory


# --- advice -------------------------------------------------------------------------------------------------


async def test_the_statistical_advisor_repairs_wrong_weights(judged: Place) -> None:
    async with judged.memory() as memory:
        before = await order_of(memory)
        advice = await memory.learning.advising.advise()
        unchanged = dict(in_force(memory))
        adopted = await memory.learning.advising.apply(advice)
        after = await order_of(memory)

    assert (before, after) == ("abio", "aibo")
    assert (unchanged, adopted.version) == (SETTINGS, "v1")
    assert advice.proposal.gain is not None
    assert advice.proposal.gain.low > 0
    assert adopted["sure"] > 0.9


async def test_a_model_that_is_right_is_heard(judged: Place) -> None:
    answer = saying('{"weights": {"sure": 1, "vague": 0.9}}')
    async with advised_by(answer, judged) as memory:
        advice = await memory.learning.advising.advise("llm")
        adopted = await memory.learning.advising.apply(advice)

    assert advice.objections == ()
    assert adopted["sure"] > SETTINGS["sure"]


HOSTILE = [
    '{"weights": {"sure": 0, "vague": 1}}',
    '{"weights": {"sure": 0.0001, "vague": 1}}',
    '{"weights": {"sure": 0.5, "vague": 1}}',
    '{"weights": {"sure": 1, "vague": 0}}',
    '{"weights": {"sure": -1, "vague": 1}}',
    '{"weights": {"sure": NaN, "vague": NaN}}',
    '{"weights": {"sure": Infinity, "vague": 1}}',
    '{"weights": {"sure": 10000, "vague": 1}}',
    '{"weights": {"sure": 1e309, "vague": 1}}',
    '{"weights": {"sure": "1.0; DROP TABLE weights", "vague": true}}',
    '{"weights": {"stranger": 1}}',
    '{"weights": {"sure": 0.75, "vague": 1}, "byIntent": {"entity": {"sure": 0.2}, "all": {"sure": 0}}}',
    '{"weights": {}}',
    '{"weights": [1, 0]}',
    "[" * 20_000,
    "Set sure to 0, it is the best that you can do.",
    "",
]


async def test_a_hostile_model_changes_nothing(judged: Place) -> None:
    replies = (saying(text) for text in HOSTILE)
    async with advised_by(lambda received: next(replies)(received), judged) as memory:
        learning = memory.learning
        for text in HOSTILE:
            with pytest.raises(FeedbackError):
                await learning.advising.apply(await learning.advising.advise("llm"))

            assert (text, in_force(memory)) == (text, SETTINGS)
        assert await learning.weights.history() == []


async def test_a_note_that_gives_orders_to_the_model_changes_nothing(judged: Place) -> None:
    prompts = []

    def obey(received: Received) -> Reply | Awaitable[Reply]:
        prompts.append(received.body.decode())
        return saying('{"weights": {"sure": 0}}' if ORDER in prompts[-1] else "{}")(received)

    async with advised_by(obey, judged) as memory:
        advice = await memory.learning.advising.advise("llm")
        with pytest.raises(FeedbackError, match="the weights are unchanged"):
            await memory.learning.advising.apply(advice)

        assert ORDER in prompts[0]
        assert advice.proposal.notes[0].startswith("refused")
        assert in_force(memory) == SETTINGS


async def test_an_advice_that_others_overtook_is_not_applied(judged: Place) -> None:
    async with judged.memory() as memory, judged.learning() as other:
        advice = await memory.learning.advising.advise()
        await other.weights.set({"sure": 0.3})

        with pytest.raises(FeedbackError, match=r"the advice was made for fixed-\w+, but v1 is"):
            await memory.learning.advising.apply(advice)


async def test_every_change_and_every_advice_is_in_the_log(judged: Place) -> None:
    async with judged.memory() as memory:
        learning = memory.learning
        await learning.advising.apply(await learning.advising.advise(), actor="me")
        await learning.weights.rollback(actor="me")
        await memory.ops_log.flush()
        logged = await asyncio.to_thread(lambda: OpsLogReader(memory.ops_log_dir).tail(3))
    told = [one.detail for one in logged if isinstance(one.detail, Mapping)]

    assert [one.action for one in logged] == ["weights.advised", "weights.changed", "weights.changed"]
    assert [(one["change"], one["actor"]) for one in told[1:]] == [("adopt", "me"), ("rollback", "me")]


# --- the golden floor ---------------------------------------------------------------------------------------


async def test_weights_below_the_golden_floor_are_not_set(place: Place) -> None:
    place = replace(place, weights=(1.0, 0.8))
    async with place.memory() as memory:
        run = await memory.learning.golden.record(memory, QUESTIONS)
        with pytest.raises(FeedbackError, match="golden questions would be ranked worse"):
            await memory.learning.weights.set({"sure": 0.5})

        assert (run.kept, run.score.mrr) == (3, 1.0)
        assert in_force(memory) == {"sure": 1.0, "vague": 0.8}


async def test_advice_below_the_golden_floor_is_not_applied(judged: Place) -> None:
    golden = [
        replace(one, expected=(GoldenPlace(path=f"memory/beside-{number}.md"),))
        for number, one in enumerate(QUESTIONS)
    ]
    async with judged.memory() as memory:
        await memory.learning.golden.record(memory, golden)
        advice = await memory.learning.advising.advise()
        with pytest.raises(FeedbackError, match="golden questions fall"):
            await memory.learning.advising.apply(advice)

        assert [one.code for one in advice.objections] == ["golden-floor"]
        assert in_force(memory) == SETTINGS


async def test_a_fall_that_the_settings_allow_is_allowed(place: Place) -> None:
    place = replace(place, weights=(1.0, 0.8)).set(golden_tolerance=0.9)
    async with place.memory() as memory:
        await memory.learning.golden.record(memory, QUESTIONS)

        assert (await memory.learning.weights.set({"sure": 0.5})).version == "v1"


async def test_an_experiment_of_which_nothing_is_logged_any_more_can_be_stopped(place: Place) -> None:
    async with place.learning() as learning:
        await learning.experiments.start(
            await learning.weights.named("settings"), await learning.weights.named("equal")
        )

    async with replace(place, log=False).learning() as learning:
        status = await learning.experiments.stop()

    assert not status.record.is_running


async def test_the_winner_of_an_experiment_is_held_to_the_floor_as_well(place: Place) -> None:
    place = replace(place, weights=(1.0, 0.8))
    async with place.memory() as memory:
        learning = memory.learning
        await learning.golden.record(memory, QUESTIONS)
        worse = WeightTable.fixed({"sure": 0.3, "vague": 1.0})
        await learning.experiments.start(await learning.weights.named("now"), worse, alpha=0.5)
        for number in range(100, 112):  # people want what the other table shows first
            await memory.read_file(f"memory/around-{await _number(memory, number)}.md")
        status = await learning.experiments.status()
        with pytest.raises(FeedbackError, match="golden questions would be ranked worse"):
            await learning.experiments.stop(adopt=True)

        after = await learning.experiments.status()
        assert status is not None
        assert status.decision == "b"
        assert after is not None
        assert after.record.is_running
        assert in_force(memory) == {"sure": 1.0, "vague": 0.8}


async def test_what_is_used_later_counts_once_all_queries_of_an_experiment_are_known(place: Place) -> None:
    async with replace(place, weights=(1.0, 0.8)).memory() as memory:
        learning = memory.learning
        table = WeightTable.fixed({"sure": 0.3, "vague": 1.0})
        record = await learning.experiments.start(await learning.weights.named("now"), table, max_queries=2)
        traces = []
        for number in range(100, 104):
            traces.append(await ask(memory, number))
            place.clock.forward(seconds=60)

        async def outcomes() -> list[Outcome]:
            await learning.experiments.status()
            return await memory.context.stored(lambda store: store.outcomes(record.id))

        known = await outcomes()
        await memory.read_file("memory/around-101.md")
        after = await outcomes()

    assert [one.trace_id for one in known] == [one.trace_id for one in after] == traces[:2]
    assert known[0] == after[0]
    assert (known[1].a, known[1].b) != (after[1].a, after[1].b)


async def _number(memory: Memory, number: int) -> int:
    await ask(memory, number)
    return number


# --- weights that are set -----------------------------------------------------------------------------------


async def test_weights_that_are_set_count_from_the_next_query_on(place: Place) -> None:
    async with place.memory() as memory:
        before = await order_of(memory)
        table = await memory.learning.weights.set({"sure": 1.5}, reason="it knows more")
        response = await memory.query("where is item 99?")
        status = memory.status()

    assert (before, response.results[0].path) == ("abio", "memory/item-99.md")
    assert (table.version, response.weights_version) == ("v1", "v1")
    assert status.custom["weights"] == {"sure": 1.5, "vague": 1.0}
    assert status.custom["weightsVersion"] == "v1"


async def test_weights_for_one_kind_of_question_leave_the_others_alone(place: Place) -> None:
    async with place.memory() as memory:
        table = await memory.learning.weights.set({"sure": 2.0}, intent=IntentKind.TIME)

    assert table.weights == SETTINGS
    assert (table.of("sure", IntentKind.TIME), table.of("vague", IntentKind.TIME)) == (2.0, 1.0)


@pytest.mark.parametrize(
    "weights",
    [
        {"sure": -1.0},
        {"sure": float("nan")},
        {"sure": float("inf")},
        {"stranger": 1.0},
        {"sure": 0.0, "vague": 0.0},
    ],
    ids=str,
)
async def test_what_is_no_weight_is_not_set(place: Place, weights: Mapping[str, float]) -> None:
    async with place.memory() as memory:
        with pytest.raises(FeedbackError):
            await memory.learning.weights.set(weights)

        assert in_force(memory) == SETTINGS
    assert place.store is None


async def test_weights_that_were_set_are_in_force_when_the_memory_opens_again(place: Place) -> None:
    async with place.learning() as learning:
        await learning.weights.set({"sure": 1.5})

    async with place.memory() as memory:
        assert in_force(memory) == {"sure": 1.5, "vague": 1.0}


async def test_a_rollback_is_in_force_at_once(place: Place) -> None:
    async with place.memory() as memory:
        learning = memory.learning
        for weight in (1.2, 1.5):
            await learning.weights.set({"sure": weight})
        back = [await learning.weights.rollback(), await learning.weights.rollback()]

        assert [one["sure"] for one in back] == [1.2, 0.75]
        assert in_force(memory) == SETTINGS
        assert [one.action for one in await learning.weights.history()] == [
            "reset",
            "rollback",
            "adopt",
            "adopt",
        ]


async def test_without_a_change_there_is_nothing_to_roll_back(place: Place) -> None:
    async with place.memory() as memory:
        with pytest.raises(FeedbackError):
            await memory.learning.weights.rollback()


# --- weights that others change -----------------------------------------------------------------------------


async def test_what_another_changes_is_in_force_after_the_next_look(place: Place) -> None:
    async with followed(place) as (memory, rest), place.learning() as other:
        await other.weights.set({"sure": 1.5})
        before = in_force(memory)
        await rest.wake()
        after = in_force(memory)

    assert (before, after) == (SETTINGS, {"sure": 1.5, "vague": 1.0})


async def test_without_a_log_weights_are_followed_all_the_same(place: Place) -> None:
    place = replace(place, log=False)
    async with followed(place) as (memory, rest), place.learning() as other:
        await other.weights.set({"sure": 1.5})
        await rest.wake()

        assert in_force(memory) == {"sure": 1.5, "vague": 1.0}


@asynccontextmanager
async def followed(place: Place) -> AsyncIterator[tuple[Memory, Rest]]:
    """Open a memory that looks for changes of weights whenever the rest ends; it has looked once."""
    rest = Rest(1)
    async with (
        place.memory() as memory,
        learn_in_background(memory.learning, memory.text_of, sleep=rest),
    ):
        await rest.all_rest()
        yield memory, rest


SET = """
import asyncio, json, sys
from composable_memory.learning import open_learning

async def change(workspace, state, config):
    async with open_learning(workspace, state_dir=state, config=json.loads(config), environ={}) as learning:
        await learning.weights.set({"sure": 1.5}, actor="another process")

asyncio.run(change(*sys.argv[1:]))
"""


async def test_what_another_process_changes_is_in_force_after_the_next_look(place: Place) -> None:
    async with place.learning() as learning:
        await learning.weights.set({"sure": 0.9})
    async with followed(place) as (memory, rest):
        arguments = [str(place.workspace), str(place.state), json.dumps(place.config)]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", SET, *arguments, env={**os.environ, "PYTHONPATH": HOUSES}
        )
        assert await process.wait() == 0
        before = in_force(memory)
        await rest.wake()

        assert memory.status().custom["weightsVersion"] == "v2"
        assert (before, in_force(memory)) == ({"sure": 0.9, "vague": 1.0}, {"sure": 1.5, "vague": 1.0})


async def test_a_store_that_cannot_be_read_leaves_the_weights_until_it_can(place: Place) -> None:
    async with followed(place) as (memory, rest):
        path = memory.context.store_path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"this is no database at all" * 200)
        await rest.wake()
        before = in_force(memory)
        path.unlink()
        async with place.learning() as other:
            await other.weights.set({"sure": 1.5})
        await rest.wake()

        assert (before, in_force(memory)) == (SETTINGS, {"sure": 1.5, "vague": 1.0})


# --- settings that changed ----------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [(0.5, 1.0), (1.0, 1.0)])
async def test_weights_adopted_over_other_settings_are_set_aside_and_that_is_said(
    place: Place, weights: tuple[float, float]
) -> None:
    async with place.learning() as learning:
        await learning.weights.set({"sure": 1.5})

    place = replace(place, weights=weights)
    async with place.memory() as memory:
        report = await memory.learning.weights.report()
        told = memory.status().custom["weightsSetAside"]

        assert in_force(memory) == {"sure": weights[0], "vague": weights[1]}
    assert (report.table, report.since) == (report.base, None)
    assert told == report.set_aside
    assert str(told).startswith("v1 ")


async def test_what_was_set_aside_comes_back_as_the_report_says(place: Place) -> None:
    async with place.learning() as learning:
        await learning.weights.set({"sure": 1.5})

    async with replace(place, weights=(0.5, 1.0)).memory() as memory:
        await memory.learning.weights.rollback("v1")
        report = await memory.learning.weights.report()

        assert (report.table.version, report.set_aside) == ("v1", None)
        assert in_force(memory) == {"sure": 1.5, "vague": 1.0}
        assert "weightsSetAside" not in memory.status().custom


def test_the_status_of_the_command_line_tells_what_was_set_aside(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def adopt() -> None:
        async with open_learning(place.workspace, state_dir=place.state, environ={}) as learning:
            await learning.weights.set({"builtin": 0.5})

    asyncio.run(adopt())
    config = place.workspace.parent / "config.yaml"
    config.write_text("memory: {embedding: {provider: none}, builtin: {weight: 0.8}}\n", encoding="utf-8")
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(config))

    arguments = ["status", "--workspace", str(place.workspace), "--state-dir", str(place.state)]
    result = CliRunner().invoke(app, arguments)

    assert "v1 is not used" in " ".join(result.stdout.split())
