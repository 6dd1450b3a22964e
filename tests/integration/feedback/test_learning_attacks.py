"""Attacks on what is learnt: forged lines, wrong clocks, races, secrets, full disks, processes that die."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path

import pytest

from composable_memory import open_memory
from composable_memory.config.layers import load_settings
from composable_memory.errors import ConfigError
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.golden import GoldenPlace, GoldenQuestion
from composable_memory_feedback.logged.reading import BAD_LINES, WRITTEN_TWICE
from composable_memory_feedback.replay import PolicyChange
from composable_memory_feedback.weights import WeightTable
from tests.integration.embedders.loopback import Received, Reply, listening
from tests.integration.feedback.learners import Place, ask, judge, resealed, saying
from tests.unit.feedback.judged_queries import judgments

pytestmark = pytest.mark.security

ROOT = Path(__file__).parents[3]
HOUSES = os.pathsep.join(str(ROOT / folder) for folder in (".", "adapters", "feedback", "ops_logs"))
KEY = "sk-" + "abcdefghijklmnopqrstuvwx" + "1234567890"

KEEPS_ADOPTING = """
import asyncio, sys
from pathlib import Path
from tests.integration.feedback.learners import Place

async def main():
    async with Place(workspace=Path(sys.argv[1]), state=Path(sys.argv[2])).learning() as learning:
        tables = [await learning.weights.named(name) for name in ("equal", "sure=1,vague=0.1")]
        await learning.experiments.start(*tables)
        for turn in range(1000):
            await learning.weights.set({"sure": 0.5 + turn % 5 / 100})
            print(turn, flush=True)

asyncio.run(main())
"""

HAS_NO_ROOM = """
import asyncio, resource, signal, sys
from pathlib import Path
from composable_memory_feedback.errors import FeedbackError
from tests.integration.feedback.learners import Place, ask

async def main():
    async with Place(workspace=Path(sys.argv[1]), state=Path(sys.argv[2])).memory() as memory:
        await ask(memory, 7)
        await memory.ops_log.flush()
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
        try:
            await memory.learning.weights.set({"sure": 0.5})
        except FeedbackError as error:
            print(error)
        print(len((await memory.query("where is item 8?")).results), memory.weights.now.version)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print((await memory.learning.weights.set({"sure": 0.5})).version)

asyncio.run(main())
"""


def program(text: str, place: Place) -> Sequence[str]:
    return [sys.executable, "-c", text, str(place.workspace), str(place.state)]


def log_of(place: Place) -> Path:
    (log,) = (place.state / "ops-logs").glob("*.jsonl")
    return log


def content_of(folder: Path) -> bytes:
    return b"".join(one.read_bytes() for one in folder.iterdir())


# --- weights that change without consent --------------------------------------------------------------------


async def test_two_who_learn_adopt_a_proposal_once_and_one_way_back_is_enough(judged: Place) -> None:
    async with judged.learning() as one, judged.learning() as other:
        proposal = (await one.advising.advise()).proposal
        adopted = await one.weights.adopt_proposal(proposal, actor="loop")
        with pytest.raises(FeedbackError, match="v1 is active; advise again"):
            await other.weights.adopt_proposal(proposal, actor="loop")
        back = await other.weights.rollback()

    assert adopted.version == "v1"
    assert back.weights == one.context.base.weights


async def test_what_a_person_sets_while_a_proposal_is_checked_stands(judged: Place) -> None:
    async with judged.learning() as learning, judged.learning() as person:
        proposal = (await learning.advising.advise()).proposal
        chosen = await person.weights.set({"sure": 0.2, "vague": 0.9})
        with pytest.raises(FeedbackError, match="advise again"):
            await learning.weights.adopt_proposal(proposal, actor="loop")

        assert (await learning.weights.report()).table.weights == chosen.weights


async def test_of_two_who_adopt_over_the_same_weights_the_store_lets_one(judged: Place) -> None:
    async with judged.learning() as learning:
        await learning.weights.set({"sure": 0.2})
        adopting = learning.context.stored(
            lambda store: store.adopt(
                learning.context.base, base={}, actor="loop", at=judged.clock(), expected="settings"
            )
        )
        with pytest.raises(FeedbackError, match="activated v1"):
            await adopting

        assert [one.version for one in await learning.weights.history()] == ["v1"]


@pytest.mark.parametrize(
    "said",
    [
        "auto_apply: true",
        "llm: {base_url: 'http://example.com/v1'}",
        "llm: {api_key: stolen}",
        "transcripts_dir: /",
        "evaluations_per_hour: 1000",
        "retention_days: 1",
        "min_samples: 10",
        "min_intent_samples: 10",
        "min_weight: 0.001",
        "max_step: 1",
        "golden_tolerance: 0.9",
        "cool_down_hours: 0",
    ],
)
def test_the_file_of_a_workspace_neither_loosens_a_limit_nor_names_a_model(place: Place, said: str) -> None:
    file = place.workspace / ".composable-memory.yaml"
    file.write_text(f"memory:\n  feedback:\n    {said}\n", encoding="utf-8")

    with pytest.raises(ConfigError, match=r"memory\.feedback\.[a-z_.]+ .*a (file of the )?workspace may"):
        load_settings(place.workspace, environ={})


# --- a log that lies ----------------------------------------------------------------------------------------


async def test_lines_that_were_copied_do_not_make_more_evidence(place: Place) -> None:
    worse = PolicyChange(table=WeightTable.fixed({"sure": 0.1, "vague": 1.0}))
    async with place.memory() as memory:
        await judge(memory, range(6))
        await memory.ops_log.flush()
        log_of(place).write_bytes(log_of(place).read_bytes() * 3)
        run = await memory.learning.replay(worse)
        with pytest.raises(FeedbackError, match="6 of at least 10"):
            await memory.learning.gate(PolicyChange(), worse)

    # Each copy begins elsewhere than its first line says that it was written.
    assert (run.total, run.incomplete) == (6, {WRITTEN_TWICE: 12, BAD_LINES: 2})


@pytest.mark.parametrize("end_line", [0, 900_000_000_000_000_000])
async def test_a_forged_path_shows_the_model_no_file_that_is_no_memory(tmp_path: Path, end_line: int) -> None:
    (workspace := tmp_path / "notes").mkdir()
    (workspace / "MEMORY.md").write_text("The dock controller listens.\n", encoding="utf-8")
    (tmp_path / "private.md").write_text("nobody may see this\n", encoding="utf-8")
    place = Place(workspace=workspace, state=tmp_path / "state")
    async with listening(saying(judgments(0.9))) as server:
        config = {
            "memory": {
                "embedding": {"provider": "none"},
                "builtin": {"sync": {"on_search_wait_ms": 60_000}},
                "feedback": {"llm": {"base_url": f"{server.url}/v1"}},
            }
        }
        async with open_memory(workspace, place.state, config, environ={}, long_lived=False) as memory:
            await memory.query("dock controller")
            await memory.ops_log.flush()
            told = log_of(place).read_text(encoding="utf-8")
            told = told.replace('"paths":["MEMORY.md"]', '"paths":["../private.md"]')
            told = told.replace('"places":[0,1,0]', f'"places":[0,1,{end_line - 1}]')
            log_of(place).write_text(resealed(told), encoding="utf-8")
            run = await memory.learning.judging.evaluate(read=memory.text_of)

    (received,) = server.received
    assert [one.state for one in run.outcomes] == ["judged"]
    assert b"../private.md" in received.body
    assert b"nobody may see this" not in received.body


# --- clocks that jump ---------------------------------------------------------------------------------------


async def test_use_is_noticed_again_once_a_clock_that_ran_ahead_is_right(place: Place) -> None:
    async with place.memory() as memory:
        for days in (3650, -3650):
            place.clock.forward(days=days)
            await ask(memory, days)
            await memory.read_file(f"memory/item-{days}.md")

            assert await memory.learning.judging.gather() == 1


# --- an endpoint that will not judge ------------------------------------------------------------------------


async def test_queries_that_no_model_can_judge_do_not_use_up_the_quota_for_ever(place: Place) -> None:
    def answer(received: Received) -> Reply | Awaitable[Reply]:
        return saying("no" if b"item 99" in received.body else judgments(0.9))(received)

    async with listening(answer) as server:
        place = place.set(llm={"base_url": f"{server.url}/v1"}, evaluations_per_hour=2)
        async with place.memory() as memory:
            for number in (1, 99, 99):
                await ask(memory, number)
            states = []
            for _ in range(2):
                run = await memory.learning.judging.evaluate()
                states.append([one.state for one in run.outcomes])
                place.clock.forward(hours=2)

    assert states == [["failed", "failed"], ["judged", "failed"]]


# --- secrets ------------------------------------------------------------------------------------------------


async def test_no_secret_of_a_question_or_a_reason_is_kept(place: Place) -> None:
    question = GoldenQuestion(
        id=f"with {KEY}",
        question=f"where with {KEY} is item 7",
        expected=(GoldenPlace(path="memory/item-7.md"),),
    )
    async with place.memory() as memory:
        run = await memory.learning.golden.record(memory, [question])
        await memory.learning.weights.set({"sure": 1.0}, reason=f"since {KEY}")

    assert run.kept == 1
    assert KEY.encode() not in content_of(place.state / "feedback") + content_of(place.state / "ops-logs")


# --- disks and processes ------------------------------------------------------------------------------------


async def test_copies_in_a_log_take_the_place_of_no_query_of_an_experiment(place: Place) -> None:
    async with place.memory() as memory:
        learning = memory.learning
        tables = [await learning.weights.named(name) for name in ("equal", "sure=1,vague=0.1")]
        await learning.experiments.start(*tables, max_queries=3)
        await ask(memory, 7)
        await ask(memory, 8)
        await memory.ops_log.flush()
        log_of(place).write_bytes(log_of(place).read_bytes() * 2)
        await ask(memory, 9)
        status = await learning.experiments.status()

    assert status is not None
    assert (status.found.queries, status.is_over) == (3, True)


async def test_a_process_that_is_killed_while_it_adopts_leaves_weights_and_experiment_whole(
    place: Place,
) -> None:
    await asyncio.to_thread(_killed_after_some_lines, KEEPS_ADOPTING, place)

    async with place.memory() as memory:
        history = await memory.learning.weights.history(1000)
        weights = memory.weights.now
        stopped = await memory.learning.experiments.stop()

    assert weights.version == history[0].version
    assert [one.replaced for one in history] == [*(one.version for one in history[1:]), None]
    assert weights.experiment is not None
    assert (stopped.record.id, stopped.record.state) == (weights.experiment.id, "stopped")
    assert memory.weights.now.experiment is None


def _killed_after_some_lines(text: str, place: Place) -> None:
    environ = {**os.environ, "PYTHONPATH": HOUSES}
    with subprocess.Popen(program(text, place), stdout=subprocess.PIPE, env=environ) as running:
        assert running.stdout is not None
        for _ in range(3):
            assert running.stdout.readline()
        running.kill()


@pytest.mark.thorough
def test_without_room_on_the_disk_searches_go_on_and_learning_does_once_there_is_some(place: Place) -> None:
    run = subprocess.run(
        program(HAS_NO_ROOM, place),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": HOUSES},
        timeout=60,
        check=False,
    )

    problem, searched, adopted = run.stdout.splitlines()
    assert "the feedback store" in problem
    assert searched.startswith("4 fixed-")
    assert adopted == "v1"
    assert run.stderr == ""


@pytest.mark.usefixtures("permissions_bind")
async def test_a_folder_that_nobody_may_look_into_is_told_and_searches_go_on(place: Place) -> None:
    async with place.memory() as memory:
        await memory.learning.weights.set({"sure": 0.5})
    (place.state / "feedback").chmod(0)
    try:
        async with place.memory() as memory:
            response = await memory.query("where is item 7?")
    finally:
        (place.state / "feedback").chmod(0o700)

    assert len(response.results) == 4
    assert [one.backend_id for one in response.degraded] == ["weights"]
