"""Search modes that need models: what is done without them, at once and with the way out, and with them."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from composable_memory.interfaces import BackendServices
from composable_memory.testing import SEED_NOTES
from composable_memory.types import SearchAnswer
from tests.integration.qmd.conftest import OpenQmd, SettingsWith, opener, standing_of
from tests.models.make_minilm_gguf import make
from tests.notes import write_notes
from tests.variants import variants

READY_MADE = os.environ.get("COMPOSABLE_MEMORY_TEST_GGUF")
MODES = ["vsearch", "query"]


@pytest.fixture(autouse=True)
def _models_are_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)


@pytest.fixture(scope="session")
def minilm(tmp_path_factory: pytest.TempPathFactory, qmd_command: str) -> Path:
    """Return the file of a small real model that QMD can load."""
    return Path(READY_MADE) if READY_MADE else make(tmp_path_factory.mktemp("models") / "all-MiniLM.gguf")


def told(answer: SearchAnswer) -> list[tuple[str, str]]:
    return [(one.code, one.reason) for one in answer.degraded]


@asynccontextmanager
async def listening(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[str]]:
    """Lead whoever wants a model from the network to a listener; yields who came."""
    came: list[str] = []

    async def note(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append("somebody")
        writer.close()

    server = await asyncio.start_server(note, "127.0.0.1", 0)
    address = "http://{}:{}".format(*server.sockets[0].getsockname())
    for name in ("HF_ENDPOINT", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, address)
    monkeypatch.setenv("NODE_USE_ENV_PROXY", "1")
    async with server:
        yield came


# --- without models ---


@pytest.mark.parametrize("daemon", variants([False, True], False))
@pytest.mark.parametrize("mode", MODES)
async def test_without_models_words_are_searched_and_nobody_is_asked_for_a_model(
    open_memory: OpenQmd, monkeypatch: pytest.MonkeyPatch, mode: str, daemon: bool
) -> None:
    async with listening(monkeypatch) as came, open_memory(daemon=daemon, search_mode=mode) as memory:
        answer = await memory.answer("ferry timetable")
        probed = await memory.probe_embedding_availability()
        embedding = standing_of(memory)["embed"]

        assert answer.results[0].path == "memory/2026-03-02.md"
        assert answer.engines["mode"] == "search"
        (code, reason), *others = told(answer)
        assert (code, "`qmd pull`" in reason, others) == ("keyword-only", True, [])
        assert (probed.ok, probed.error) == (False, reason)
        assert not await memory.probe_vector_availability()
        assert "`qmd pull`" in str(embedding["problem"])
    assert came == []


@pytest.mark.parametrize("mode", variants(MODES, "query"))
async def test_where_ci_is_set_words_are_searched_and_the_way_out_is_told(
    open_memory: OpenQmd, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("CI", "true")
    async with open_memory(search_mode=mode) as memory:
        answer = await memory.answer("ferry timetable")

    assert answer.results[0].path == "memory/2026-03-02.md"
    ((code, reason),) = told(answer)
    assert (code, "CI is set" in reason) == ("keyword-only", True)


@pytest.mark.thorough
async def test_a_model_that_cannot_be_loaded_leaves_words_and_tells_why(
    open_memory: OpenQmd, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    async with open_memory(search_mode="vsearch", models={"embed": str(broken)}) as memory:
        answer = await memory.answer("ferry timetable")
        embedding = standing_of(memory)["embed"]

    assert answer.results[0].path == "memory/2026-03-02.md"
    assert [code for code, _ in told(answer)] == ["vectors-pending"]
    assert embedding["last"] is None
    assert embedding["problem"]


# --- with a small model ---


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of notes that are embedded once, for all that follow."""
    folder = tmp_path_factory.mktemp("embedded")
    (folder / "state").mkdir()
    write_notes(folder / "notes", SEED_NOTES)
    return folder


@pytest.fixture
def open_embedded(
    qmd_settings: SettingsWith, services: BackendServices, embedded: Path, minilm: Path
) -> OpenQmd:
    """Return what opens the memory of the embedded notes; the first embeds them."""
    handed = replace(services, workspace_dir=embedded / "notes", state_dir=embedded / "state")
    return partial(
        opener(qmd_settings, handed),
        sync=not any((embedded / "state").rglob("upkeep.json")),
        models={"embed": str(minilm)},
        limits={"timeout_ms": 60_000},
    )


@pytest.mark.parametrize("daemon", variants([False, True], False))
async def test_with_a_model_what_means_the_same_is_found(
    open_embedded: OpenQmd, minilm: Path, daemon: bool
) -> None:
    async with open_embedded(daemon=daemon, search_mode="vsearch") as memory:
        answer = await memory.answer("What does she pour into her hot beverage?")
        status = memory.status()

        assert (answer.engines, told(answer)) == (
            {"qmd": "daemon" if daemon else "process", "mode": "vsearch"},
            [],
        )
        assert "memory/people.md" in [one.path for one in answer.results[:3]]
        assert (status.model, status.vector and status.vector.available) == (str(minilm), True)
        assert (await memory.probe_embedding_availability()).ok
        assert await memory.probe_vector_availability()


@pytest.mark.thorough
async def test_without_the_models_that_widen_and_rank_likeness_and_words_are_searched(
    open_embedded: OpenQmd,
) -> None:
    async with open_embedded(search_mode="query") as memory:
        answer = await memory.answer("ferry timetable")
    async with open_embedded(sync=False, search_mode="query", rerank=False) as memory:
        content = await memory.answer("ferry timetable")

    assert (answer.results[0].path, answer.engines["mode"]) == ("memory/2026-03-02.md", "query")
    ((code, reason),) = told(answer)
    assert (code, "generate and rerank" in reason, "`qmd pull`" in reason) == ("engine-fallback", True, True)
    assert (content.results, told(content)) == (answer.results, [])
