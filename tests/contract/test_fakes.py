"""The faulty parts fail in the way that they are named after, and no other."""

import asyncio
import os
import subprocess
import sys
from math import isnan

import pytest

from composable_memory.content import EmbedderInput
from composable_memory.errors import BackendError, EmbedderUnavailable
from composable_memory.interfaces import EmbedderAdapter, MemorySearchManager
from composable_memory.testing import (
    FailingEmbedder,
    FlakyBackend,
    FloodBackend,
    HangingBackend,
    RaisingBackend,
    RubbishBackend,
    SlowBackend,
)
from composable_memory.types import MemorySearchResult, SearchOptions

FAULTY = [
    FlakyBackend(1),
    FloodBackend(),
    HangingBackend(),
    RaisingBackend(),
    RubbishBackend(),
    SlowBackend(0.0),
]


@pytest.mark.parametrize("fake", FAULTY, ids=lambda fake: type(fake).__name__)
def test_a_faulty_memory_looks_like_a_memory(fake: MemorySearchManager) -> None:
    assert isinstance(fake, MemorySearchManager)
    assert fake.status().backend


async def test_a_hanging_memory_waits_until_it_is_cancelled() -> None:
    memory = HangingBackend()
    waiting = asyncio.create_task(memory.search("ferry"))
    await asyncio.wait_for(memory.started.wait(), timeout=5)

    waiting.cancel()
    await asyncio.wait([waiting])

    assert waiting.cancelled()
    assert memory.cancelled == 1
    assert memory.asked == [("ferry", SearchOptions())]


async def test_a_raising_memory_raises_what_it_was_given() -> None:
    error = OSError("the disk is on fire")

    with pytest.raises(OSError, match="on fire"):
        await RaisingBackend(error).search("ferry")


async def test_a_flaky_memory_fails_a_few_times_and_then_answers() -> None:
    memory = FlakyBackend(2)

    for _ in range(2):
        with pytest.raises(BackendError):
            await memory.search("ferry")

    assert await memory.search("ferry")
    assert len(memory.asked) == 3


async def test_a_slow_memory_answers_after_its_delay() -> None:
    searching = asyncio.create_task(SlowBackend(0.01).search("ferry"))
    await asyncio.sleep(0)

    assert not searching.done()
    assert await searching


async def test_a_flood_is_sorted_and_larger_than_what_was_asked_for() -> None:
    results = await FloodBackend(500).search("ferry", SearchOptions(max_results=3))

    assert len(results) == 500
    assert [hit.score for hit in results] == sorted((hit.score for hit in results), reverse=True)


async def test_rubbish_holds_one_sound_result_among_many_that_are_not() -> None:
    results = await RubbishBackend().search("ferry")

    readable = [hit for hit in results if isinstance(hit, MemorySearchResult)]
    assert len(readable) < len(results)
    assert any(isinstance(hit.score, float) and isnan(hit.score) for hit in readable)
    assert (readable[0].path, readable[0].score) == ("memory/good.md", 0.5)


@pytest.mark.parametrize("answer", [None, 7, "text"])
async def test_rubbish_may_be_anything(answer: object) -> None:
    assert await RubbishBackend(answer).search("ferry") is answer


async def test_a_failing_embedder_fails_always_or_as_often_as_it_is_told() -> None:
    always, once = FailingEmbedder(), FailingEmbedder(1)
    text = EmbedderInput(text="ferry")

    assert isinstance(always, EmbedderAdapter)
    for embedder in (always, always, once):
        with pytest.raises(EmbedderUnavailable):
            await embedder.embed_batch([text])
    assert any(await once.embed(text))


def test_without_pytest_there_are_fakes_and_the_contracts_say_what_to_install() -> None:
    program = (
        "import sys; sys.modules['pytest'] = None\n"
        "from composable_memory.testing import InMemoryBackend\n"
        "print(InMemoryBackend.__name__)\n"
        "from composable_memory.testing import BackendContract"
    )

    run = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert run.returncode == 1
    assert run.stdout == "InMemoryBackend\n"
    assert "pip install pytest" in run.stderr
