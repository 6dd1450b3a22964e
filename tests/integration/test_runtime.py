"""Opening a memory from its settings, with the real builtin backend."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory import open_memory
from composable_memory.config.settings import SettingsModel
from composable_memory.errors import BackendUnavailable, ConfigError
from composable_memory.interfaces import (
    BackendServices,
    BackendSpec,
    EmbedderAdapter,
    EmbedderServices,
    EmbedderSpec,
    MemorySearchManager,
)
from composable_memory.testing import in_memory
from composable_memory_ops_logs import OpsLogReader

KEYWORDS = {"memory": {"embedding": {"provider": "none"}}}


@asynccontextmanager
async def refuse(settings: object, services: BackendServices) -> AsyncIterator[MemorySearchManager]:
    raise BackendUnavailable("refusing", "no server", fix="start one")
    yield  # pragma: no cover - makes this a generator


REFUSING: BackendSpec = replace(in_memory.spec, id="refusing", open=refuse)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "memory").mkdir(parents=True)
    (folder / "MEMORY.md").write_text(
        "# Ports\n\nThe dock controller listens on port 8443.\n", encoding="utf-8"
    )
    (folder / "memory" / "2026-05-04.md").write_text(
        "# Decisions\n\nWe pay suppliers by the tenth of the month.\n", encoding="utf-8"
    )
    return folder


async def test_notes_are_found_with_their_lines(notes: Path, state_dir: Path) -> None:
    async with open_memory(notes, state_dir) as memory:
        report = await memory.sync()
        response = await memory.query("which port does the dock controller use?", max_results=10)

    assert (report.files_indexed, report.embeddings_pending) == (2, 0)
    best = response.results[0]
    assert (best.path, best.source_backend) == ("MEMORY.md", "builtin")
    assert best.start_line <= 3 <= best.end_line
    assert response.degraded == ()


async def test_a_question_in_other_words_is_answered_by_meaning(notes: Path, state_dir: Path) -> None:
    async with open_memory(notes, state_dir) as memory:
        await memory.sync()
        response = await memory.query("when are vendors' invoices settled?")

    assert response.results[0].path == "memory/2026-05-04.md"


async def test_without_an_embedder_keywords_serve_and_the_answer_says_so(
    notes: Path, state_dir: Path
) -> None:
    async with open_memory(notes, state_dir, KEYWORDS) as memory:
        await memory.sync()
        response = await memory.query("dock controller")

    assert response.results[0].path == "MEMORY.md"
    assert [one.code for one in response.degraded] == ["keyword-only"]
    assert "memory.embedding.provider" in response.degraded[0].reason


async def test_asking_before_the_first_sync_is_never_silently_empty(notes: Path, state_dir: Path) -> None:
    config = {"memory": {**KEYWORDS["memory"], "builtin": {"sync": {"onSearch": False}}}}
    async with open_memory(notes, state_dir, config) as memory:
        response = await memory.query("dock controller")

    assert response.results == ()
    assert "never-indexed" in {one.code for one in response.degraded}


async def test_the_trace_of_a_query_is_on_disk_after_closing(notes: Path, state_dir: Path) -> None:
    async with open_memory(notes, state_dir, KEYWORDS) as memory:
        await memory.sync()
        response = await memory.query("dock controller")
        folder = memory.ops_log_dir

    events = await asyncio.to_thread(OpsLogReader(folder).trace, response.trace_id)
    assert [event.action for event in events] == ["query.start", "query.backend_result", "query.merged"]


async def test_the_index_serves_the_next_process(notes: Path, state_dir: Path) -> None:
    async with open_memory(notes, state_dir, KEYWORDS) as memory:
        await memory.sync()
    async with open_memory(notes, state_dir, KEYWORDS) as memory:
        report = await memory.sync()
        response = await memory.query("dock controller")

    assert (report.files_indexed, report.files_unchanged) == (0, 2)
    assert len(response.results) == 1


async def test_two_workspaces_share_a_state_folder_without_mixing(
    notes: Path, state_dir: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "MEMORY.md").write_text("The dock controller is painted green.\n", encoding="utf-8")
    for workspace in (notes, other):
        async with open_memory(workspace, state_dir, KEYWORDS) as memory:
            await memory.sync()

    async with open_memory(other, state_dir, KEYWORDS) as memory:
        response = await memory.query("dock controller")

    assert ["green" in result.snippet for result in response.results] == [True]


async def test_a_backend_that_cannot_be_opened_is_named_in_every_answer(notes: Path, state_dir: Path) -> None:
    config = {"memory": {**KEYWORDS["memory"], "backends": {"refusing": {"enabled": True}}}}
    async with open_memory(notes, state_dir, config, backends=[REFUSING]) as memory:
        await memory.sync()
        response = await memory.query("dock controller")

    assert response.results
    assert ("refusing", "unavailable") in {(one.backend_id, one.code) for one in response.degraded}


async def test_a_provider_that_nobody_installed_is_named_with_where_it_was_set(
    notes: Path, state_dir: Path
) -> None:
    config = {"memory": {"embedding": {"provider": "wordlama"}}}

    with pytest.raises(ConfigError, match=r"provider \(from the caller\): 'wordlama' is not installed"):
        async with open_memory(notes, state_dir, config):
            pass


async def test_a_backend_spec_can_be_handed_in(notes: Path, state_dir: Path) -> None:
    config = {"memory": {**KEYWORDS["memory"], "backends": {"in-memory": {"enabled": True, "weight": 0.5}}}}
    async with open_memory(notes, state_dir, config, backends=[in_memory.spec]) as memory:
        await memory.sync()
        response = await memory.query("dock controller")

    assert {answer.backend_id for answer in response.answers} == {"builtin", "in-memory"}


async def test_backends_are_closed_when_a_later_one_cannot_be_opened(notes: Path, state_dir: Path) -> None:
    closed: list[str] = []

    @asynccontextmanager
    async def opening(settings: object, services: BackendServices) -> AsyncIterator[MemorySearchManager]:
        try:
            yield in_memory.InMemoryBackend()
        finally:
            closed.append("first")

    specs = [replace(in_memory.spec, id="first", open=opening), REFUSING]
    config = {
        "memory": {
            "builtin": {"enabled": False},
            "backend": "first",
            "backends": {"refusing": {"enabled": True}},
        }
    }
    async with open_memory(notes, state_dir, config, backends=specs) as memory:
        assert [one.backend_id for one in memory.unavailable()] == ["refusing"]

    assert closed == ["first"]


async def test_an_embedder_can_be_handed_in_and_stands_in_where_the_asked_one_has_no_key(
    notes: Path, state_dir: Path
) -> None:
    mine = EmbedderSpec(id="mine", summary="mine", settings=SettingsModel, open=opening_mine, local=True)
    config = {"memory": {"embedding": {"provider": "openai", "fallback": "mine"}}}
    async with open_memory(notes, state_dir, config, embedders=[mine], environ={}) as memory:
        await memory.sync()
        status, response = memory.status(), await memory.query("dock controller")

    assert (status.provider, status.requested_provider) == ("hash", "openai")
    assert status.fallback is not None
    assert status.fallback.from_ == "openai"
    assert "no API key" in str(status.fallback.reason)
    assert [one.id for one in memory.embedder.considered] == ["openai"]
    assert response.results


async def test_what_a_provider_may_be_told_is_checked_before_anything_opens(
    notes: Path, state_dir: Path
) -> None:
    config = {"memory": {"embedding": {"providers": {"openai": {"dimension": 512}}}}}

    with pytest.raises(ConfigError, match=r"unknown key; did you mean '.*openai\.dimensions'"):
        async with open_memory(notes, state_dir, config):
            pass


@asynccontextmanager
async def opening_mine(settings: SettingsModel, services: EmbedderServices) -> AsyncIterator[EmbedderAdapter]:
    yield in_memory.HashEmbedder()


async def test_a_workspace_that_is_no_folder_is_refused(tmp_path: Path, state_dir: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        async with open_memory(tmp_path / "nowhere", state_dir):
            pass


async def test_an_unknown_embedding_provider_is_refused_with_the_known_ones(
    notes: Path, state_dir: Path
) -> None:
    with pytest.raises(ConfigError, match=r"installed: .*wordllama"):
        async with open_memory(notes, state_dir, {"memory": {"embedding": {"provider": "nobody"}}}):
            pass
