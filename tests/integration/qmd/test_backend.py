"""The QMD memory from end to end: what it finds by either way, who may ask, and how it follows the files."""

import asyncio
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from composable_memory import open_memory as open_composite
from composable_memory.citations import cite
from composable_memory.errors import MemoryPathError
from composable_memory.interfaces import BackendServices
from composable_memory.supervision.file_lock import file_lock
from composable_memory.testing import SEED_QUESTIONS, SeedQuestion
from composable_memory.types import SearchAnswer, SearchOptions
from composable_memory_adapters.qmd.backend import QmdMemory, open_qmd
from composable_memory_ops_logs import utc_now
from tests.integration.qmd.conftest import OpenQmd, SettingsWith, standing_of
from tests.variants import variants

PATIENCE_S = 60.0
QUESTIONS = [question.query for question in SEED_QUESTIONS]
NEWS = "The lighthouse keeper has a parrot called Bosun.\n"


def codes(answer: SearchAnswer) -> list[str]:
    return [one.code for one in answer.degraded]


def paths(answer: SearchAnswer) -> list[str]:
    return list(dict.fromkeys(one.path for one in answer.results))


async def until_found(memory: QmdMemory, query: str, path: str) -> SearchAnswer:
    """Ask until a file is found."""
    async with asyncio.timeout(PATIENCE_S):
        while path not in paths(answer := await memory.answer(query)):  # noqa: ASYNC110 - files tell nobody
            await asyncio.sleep(0.05)
    return answer


def lock_of_updates(state_dir: Path) -> Path:
    return state_dir / "agents" / "main" / "qmd-notes" / "update.lock"


# --- what is found ---


@pytest.mark.parametrize("way", variants(["daemon", "process"], "process"))
async def test_questions_are_answered_from_the_notes(open_memory: OpenQmd, way: str) -> None:
    async with open_memory(daemon=way == "daemon") as memory:
        answers = {question.query: await memory.answer(question.query) for question in SEED_QUESTIONS}

    assert [one.query for one in SEED_QUESTIONS if not is_answered(one, answers[one.query])] == []
    assert {(answer.engines["qmd"], codes(answer) == []) for answer in answers.values()} == {(way, True)}


def is_answered(question: SeedQuestion, answer: SearchAnswer) -> bool:
    return any(question.answer in one.snippet for one in answer.results[:3])


@pytest.mark.thorough
async def test_a_daemon_and_a_process_find_the_same_in_the_same_order(open_memory: OpenQmd) -> None:
    asked = [*QUESTIONS, "coffee", "who keeps the keys of the boat?", 'say "ferry', "-ferry boat"]
    async with open_memory(daemon=True) as memory:
        by_daemon = [await memory.answer(query) for query in asked]
    async with open_memory(daemon=False, sync=False) as memory:
        by_process = [await memory.answer(query) for query in asked]

    assert [one.results for one in by_daemon] == [one.results for one in by_process]
    assert all(one.results for one in by_daemon)


async def test_a_single_command_uses_the_daemon_of_a_memory_that_stays_open(
    open_memory: OpenQmd, qmd_settings: SettingsWith, services: BackendServices
) -> None:
    command = replace(services, clock=utc_now, is_long_lived=False)
    async with open_memory(daemon=True) as staying, open_qmd(qmd_settings(), command) as memory:
        answer = await memory.answer("ferry timetable")

        assert answer == await staying.answer("ferry timetable")
        assert answer.engines["qmd"] == "daemon"
        assert standing_of(memory)["daemon"]["pid"] == standing_of(staying)["daemon"]["pid"]


@pytest.mark.parametrize(
    "query", variants(["京都红叶", "秋天去京都看什么？", "酒店的预订号码是多少"], "秋天去京都看什么？")
)
async def test_chinese_questions_find_the_chinese_note(open_memory: OpenQmd, query: str) -> None:
    async with open_memory() as memory:
        answer = await memory.answer(query)

    assert answer.results[0].path == "memory/旅行.md"


@pytest.mark.thorough
async def test_a_japanese_question_finds_the_japanese_note(open_memory: OpenQmd, workspace: Path) -> None:
    (workspace / "memory" / "港.md").write_text("フェリーの時刻表は朝六時四十分です。\n", encoding="utf-8")
    async with open_memory() as memory:
        answer = await memory.answer("フェリーの時刻表は何時ですか")

    assert answer.results[0].path == "memory/港.md"


async def test_lines_and_snippet_are_those_of_the_file(open_memory: OpenQmd, workspace: Path) -> None:
    async with open_memory() as memory:
        result = (await memory.search("irrigation timer"))[0]
    lines = (workspace / result.path).read_text(encoding="utf-8").splitlines()

    assert result.snippet.splitlines() == lines[result.start_line - 1 : result.end_line]
    assert result.metadata["collection"] == "memory-dir"


@pytest.mark.thorough
async def test_a_least_score_leaves_out_what_lies_below_but_not_what_has_every_word(
    open_memory: OpenQmd,
) -> None:
    async with open_memory() as memory:
        everything = await memory.search("ferry harbour pump relay")
        chosen = await memory.search("ferry harbour pump relay", SearchOptions(min_score=0.99))
        exact = await memory.search("QX-7781-B", SearchOptions(min_score=0.99))

    assert everything
    assert chosen == ()
    assert [one.path for one in exact] == ["memory/2026-03-05.md"]


@pytest.mark.thorough
async def test_the_settings_may_allow_fewer_results_than_are_asked_for(open_memory: OpenQmd) -> None:
    async with open_memory(limits={"max_results": 2}) as memory:
        assert len(await memory.search("harbour ferry pump keys")) == 2
        assert len(await memory.search("harbour ferry pump keys", SearchOptions(max_results=1))) == 1


# --- files outside the workspace ---


@pytest.mark.thorough
async def test_a_file_elsewhere_is_found_cited_and_read_by_the_same_name(
    open_memory: OpenQmd, tmp_path: Path
) -> None:
    plan = tmp_path / "Team Papers" / "deep" / "plan.md"
    plan.parent.mkdir(parents=True)
    plan.write_text(f"# Plan\n\n{NEWS}", encoding="utf-8")
    (tmp_path / "Team Papers" / "secret.txt").write_text(NEWS, encoding="utf-8")
    async with open_memory(paths=[str(tmp_path / "Team Papers")]) as memory:
        (result,) = await memory.search("parrot Bosun")
        read = await memory.read_file(result.path, from_line=3)
        with pytest.raises(MemoryPathError):
            await memory.read_file("qmd/team-papers/secret.txt")
        with pytest.raises(MemoryPathError):
            await memory.read_file("qmd/team-papers/../secret.md")

    assert result.path == "qmd/team-papers/deep/plan.md"
    assert read.text.strip() == NEWS.strip()
    (cited,) = cite([result], mode="on", session_key=None)
    assert cited.citation == f"{result.path}#L{result.start_line}-L{result.end_line}"


@pytest.mark.thorough
async def test_a_folder_that_is_missing_is_told_and_found_by_a_later_sync(
    open_memory: OpenQmd, tmp_path: Path
) -> None:
    late = tmp_path / "late"
    async with open_memory(paths=[str(late)]) as memory:
        before = await memory.answer("parrot")
        late.mkdir()
        (late / "bird.md").write_text(NEWS, encoding="utf-8")
        await memory.sync()
        after = await memory.answer("parrot")

    assert (codes(before), paths(before)) == (["unreadable-files"], [])
    assert "does not exist" in before.degraded[0].reason
    assert (codes(after), paths(after)) == ([], ["qmd/late/bird.md"])


@pytest.mark.thorough
async def test_a_hit_of_both_memories_on_the_same_lines_is_one_result(
    workspace: Path, state_dir: Path, qmd_command: str
) -> None:
    config = {
        "memory": {
            "backends": {"builtin": {}, "qmd": {"command": qmd_command, "limits": {"timeout_ms": 60_000}}},
            "embedding": {"provider": "none"},
        }
    }
    async with open_composite(workspace, state_dir, config, long_lived=False) as memory:
        await memory.sync()
        response = await memory.query("irrigation timer")

    assert {answer.backend_id: bool(answer.results) for answer in response.answers} == {
        "builtin": True,
        "qmd": True,
    }
    assert len({(one.path, one.start_line, one.end_line) for one in response.results}) == len(
        response.results
    )
    assert response.results[0].path == "memory/projects/greenhouse.md"
    assert len(response.attributions[0].merged_with) == 1


# --- who may ask ---


async def test_a_group_is_told_that_it_may_not_search_and_gets_nothing(open_memory: OpenQmd) -> None:
    async with open_memory() as memory:
        for key in ("agent:main:telegram:group:-100", "agent:main:slack:channel:c1"):
            answer = await memory.answer("ferry timetable", SearchOptions(session_key=key))

            assert (answer.results, codes(answer)) == ((), ["scope-denied"]), key
            assert "may not search here" in answer.degraded[0].reason
            assert "memory.qmd.scope" in answer.degraded[0].reason


@pytest.mark.parametrize(
    "session_key", variants([None, " ", "agent:main:main", "agent:main:telegram:direct:7"], None)
)
async def test_who_is_alone_with_the_agent_or_at_the_command_line_may_search(
    open_memory: OpenQmd, session_key: str | None
) -> None:
    async with open_memory() as memory:
        answer = await memory.answer("ferry timetable", SearchOptions(session_key=session_key))

    assert answer.results
    assert codes(answer) == []


# --- following the files ---


@pytest.mark.thorough
async def test_a_single_command_finds_a_new_note_at_once(open_memory: OpenQmd, workspace: Path) -> None:
    async with open_memory():
        pass
    (workspace / "memory" / "bird.md").write_text(NEWS, encoding="utf-8")
    async with open_memory(sync=False) as memory:
        answer = await memory.answer("parrot Bosun")

    assert (paths(answer), codes(answer)) == (["memory/bird.md"], [])


async def test_a_memory_that_stays_open_finds_a_new_note_without_waiting_for_the_clock(
    open_memory: OpenQmd, workspace: Path
) -> None:
    async with open_memory(daemon=True) as memory:
        (workspace / "memory" / "bird.md").write_text(NEWS, encoding="utf-8")
        await until_found(memory, "parrot Bosun", "memory/bird.md")

        assert standing_of(memory)["update"]["next"] is None


@pytest.mark.thorough
async def test_a_note_that_is_gone_is_not_found_any_more(open_memory: OpenQmd, workspace: Path) -> None:
    async with open_memory() as memory:
        (workspace / "memory" / "projects" / "greenhouse.md").unlink()
        answer = await memory.answer("irrigation timer")

    assert "memory/projects/greenhouse.md" not in paths(answer)


async def test_a_note_dated_in_the_future_does_not_leave_the_index_behind(
    open_memory: OpenQmd, workspace: Path
) -> None:
    note = workspace / "memory" / "bird.md"
    note.write_text(NEWS, encoding="utf-8")
    os.utime(note, (time.time() + 86_400.0,) * 2)
    async with open_memory() as memory:
        updated = standing_of(memory)["update"]["last"]
        answer = await memory.answer("parrot Bosun")

        assert (paths(answer), codes(answer)) == (["memory/bird.md"], [])
        assert (memory.status().dirty, standing_of(memory)["update"]["last"]) == (False, updated)


async def test_a_memory_without_any_folder_says_so(open_memory: OpenQmd) -> None:
    async with open_memory(daemon=False, include_default_memory=False) as memory:
        answer = await memory.answer("ferry")

    assert (answer.results, codes(answer)) == ((), ["disabled"])
    assert "memory.qmd.paths" in answer.degraded[0].reason


@pytest.mark.thorough
async def test_before_the_first_update_the_way_out_is_told(
    open_memory: OpenQmd, services: BackendServices
) -> None:
    lock = file_lock(lock_of_updates(services.state_dir), owner="qmd", patience_s=0.0)
    async with open_memory(sync=False, limits={"timeout_ms": 12_000}) as memory, lock:
        before = await memory.answer("ferry timetable")
    async with open_memory(sync=False) as memory:
        after = await memory.answer("ferry timetable")

    assert (before.results, codes(before)) == ((), ["never-indexed"])
    assert "cmem index" in before.degraded[0].reason
    assert (bool(after.results), codes(after)) == (True, [])


@pytest.mark.thorough
async def test_an_index_that_cannot_follow_answers_and_tells_that_it_is_behind(
    open_memory: OpenQmd, services: BackendServices, workspace: Path
) -> None:
    lock = file_lock(lock_of_updates(services.state_dir), owner="qmd", patience_s=0.0)
    async with open_memory(limits={"timeout_ms": 12_000}) as memory, lock:
        (workspace / "memory" / "bird.md").write_text(NEWS, encoding="utf-8")
        answer = await memory.answer("ferry timetable")
        is_dirty = memory.status().dirty

    assert (answer.results[0].path, codes(answer), is_dirty) == ("memory/2026-03-02.md", ["stale"], True)
    assert "cmem index" in answer.degraded[0].reason


@pytest.mark.thorough
async def test_a_note_in_a_folder_that_is_not_there_yet_is_found(
    open_memory: OpenQmd, services: BackendServices, tmp_path: Path
) -> None:
    async with open_memory() as memory:
        (tmp_path / "workspace" / "memory" / "new" / "deep").mkdir(parents=True)
        (tmp_path / "workspace" / "memory" / "new" / "deep" / "bird.md").write_text(NEWS, encoding="utf-8")
        answer = await memory.answer("parrot Bosun")

    assert paths(answer) == ["memory/new/deep/bird.md"]


# --- sessions ---


def say(services: BackendServices, name: str, text: str) -> None:
    folder = services.state_dir / "agents" / "main" / "sessions"
    folder.mkdir(parents=True, exist_ok=True)
    line = json.dumps({"role": "user", "content": text})
    (folder / f"{name}.jsonl").write_text(line + "\n", encoding="utf-8")


async def test_what_was_said_in_a_session_is_found_and_read(
    open_memory: OpenQmd, services: BackendServices
) -> None:
    say(services, "one", NEWS)
    async with open_memory(sessions={"enabled": True}) as memory:
        (result,) = await memory.search("parrot Bosun")
        read = await memory.read_file(result.path)

        assert (result.source, result.path) == ("sessions", "qmd/sessions/one.md")
        assert "Bosun" in read.text
        assert {one.source: one.files for one in memory.status().source_counts}["sessions"] == 1


async def test_an_export_does_not_leave_the_index_behind(
    open_memory: OpenQmd, services: BackendServices
) -> None:
    say(services, "one", NEWS)
    async with open_memory(sessions={"enabled": True}) as memory:
        updated = standing_of(memory)["update"]["last"]
        answer = await memory.answer("parrot")

        assert (codes(answer), memory.status().dirty) == ([], False)
        assert standing_of(memory)["update"]["last"] == updated


@pytest.mark.thorough
async def test_a_new_session_is_found_by_a_single_command(
    open_memory: OpenQmd, services: BackendServices
) -> None:
    async with open_memory(sessions={"enabled": True}) as memory:
        say(services, "one", NEWS)
        answer = await memory.answer("parrot")

    assert paths(answer) == ["qmd/sessions/one.md"]


# --- what it says of itself ---


async def test_the_status_tells_version_way_collections_index_and_updates(
    open_memory: OpenQmd, services: BackendServices, workspace: Path
) -> None:
    async with open_memory(daemon=True) as memory:
        status = memory.status()
        told: dict[str, Any] = dict(standing_of(memory))
    files = {one["name"]: one["files"] for one in told["collections"]}
    daemon, index = told["daemon"], told["index"]

    assert (status.backend, status.provider, status.model) == ("qmd", "qmd", None)
    assert (status.files, status.dirty, status.workspace_dir) == (9, False, str(workspace))
    assert (status.sources, files) == (("memory",), {"memory-root": 1, "memory-dir": 8, "bank-dir": 0})
    assert str(told["version"]).startswith("2.")
    assert (told["mode"], told["way"], told["problems"]) == ("search", "daemon", [])
    assert (daemon["state"], daemon["problem"]) == ("running", None)
    assert str(daemon["address"]).startswith("/")
    assert (index["file"], index["bytes"] > 0) == (status.db_path, True)
    assert Path(index["file"]).is_relative_to(services.state_dir)
    assert {model["role"]: model["file"] for model in told["models"]} == dict.fromkeys(
        ["embed", "generate", "rerank"]
    )
    assert (told["update"]["failures"], told["update"]["problem"]) == (0, None)
    assert told["update"]["last"] is not None
    assert told["embed"] == {"last": None, "problem": None}


async def test_the_status_of_one_who_never_updated_counts_nothing(open_memory: OpenQmd) -> None:
    async with open_memory(sync=False) as memory:
        status = memory.status()
        told: dict[str, Any] = dict(standing_of(memory))

    assert (status.files, status.dirty) == (None, True)
    assert (told["way"], told["daemon"]["state"], told["update"]["last"]) == ("process", "off", None)


async def test_without_vectors_the_probes_say_so(open_memory: OpenQmd) -> None:
    async with open_memory() as memory:
        probed = await memory.probe_embedding_availability()

        assert (probed.ok, probed.error) == (False, "the search mode `search` uses no vectors")
        assert not await memory.probe_vector_availability()


async def test_after_a_refresh_a_single_command_looks_at_files_daemon_and_upkeep_anew(
    open_memory: OpenQmd, qmd_settings: SettingsWith, services: BackendServices
) -> None:
    command = replace(services, clock=utc_now, is_long_lived=False)
    async with open_qmd(qmd_settings(), command) as memory:
        await memory.sync()
        assert paths(await memory.answer("parrot")) == []
        (services.workspace_dir / "memory" / "keeper.md").write_text(NEWS, encoding="utf-8")
        assert await memory.refresh()
        assert paths(await memory.answer("parrot")) == ["memory/keeper.md"]
        async with open_memory(daemon=True, sync=False):
            assert await memory.refresh()
            assert (await memory.answer("parrot")).engines["qmd"] == "daemon"
        assert not await memory.refresh()
