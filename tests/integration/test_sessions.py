"""Transcripts as a second source of the index: found, searched, opened, followed, and never in clear."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from composable_memory.errors import MemoryPathError
from composable_memory.interfaces import BackendServices
from composable_memory.testing import HashEmbedder
from composable_memory.types import MemoryFileSlice
from composable_memory_adapters.builtin.backend import BuiltinMemory, open_builtin
from composable_memory_adapters.builtin.notes import sessions
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_ops_logs import MemorySink
from composable_memory_ops_logs.line_format import event_to_wire, to_line

pytestmark = pytest.mark.security

LONG_AGO = 1_600_000_000
SECRETS = (
    "hunter2",
    "swordfish9",
    "ghp_abcdefghijklmnopqrstuvwxyz012345",
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
)


def said(role: str, text: str) -> str:
    content = [{"type": "text", "text": text}]
    return json.dumps({"type": "message", "message": {"role": role, "content": content}})


TALK = [
    json.dumps({"type": "session", "version": 3}),
    said("user", "Where is the lighthouse?"),
    json.dumps({"type": "message", "message": {"role": "toolResult", "content": "the tool says lantern"}}),
    said("assistant", "The lighthouse stands\non the northern pier."),
    said("user", "Thanks."),
]


@pytest.fixture
def folder(state_dir: Path) -> Path:
    folder = state_dir / "agents" / "main" / "sessions"
    folder.mkdir(parents=True)
    return folder


def write(folder: Path, name: str, lines: list[str], *, at: int = LONG_AGO) -> Path:
    target = folder / name
    target.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    os.utime(target, (at, at))
    return target


def append(path: Path, *lines: str, at: int = LONG_AGO + 10) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
    os.utime(path, (at, at))


def put_a_file_in_place_of(folder: Path) -> None:
    folder.rename(folder.with_name("moved"))
    folder.write_text("", encoding="utf-8")


@asynccontextmanager
async def opened(services: BackendServices, **options: object) -> AsyncIterator[BuiltinMemory]:
    both = {"sources": ["memory", "sessions"], "sync": {"onSearch": False, "watch": False}}
    async with open_builtin(BuiltinSettings.model_validate({**both, **options}), services) as memory:
        yield memory


def limits(**delta: int) -> dict[str, object]:
    return {"sync": {"onSearch": False, "watch": False, "sessions": delta}}


async def paths(memory: BuiltinMemory, query: str) -> set[str]:
    return {hit.path for hit in await memory.search(query)}


def stored(memory: BuiltinMemory, source: str) -> int:
    connection = apsw.Connection(memory.status().db_path or "", flags=apsw.SQLITE_OPEN_READONLY)
    count = connection.execute("SELECT count(*) FROM chunks WHERE source = ?", (source,)).get
    connection.close()
    return int(count)


# --- found and read ---


async def test_a_transcript_is_found_by_what_was_said_with_the_lines_of_its_file(
    services: BackendServices, folder: Path
) -> None:
    write(folder, "talk.jsonl", TALK)
    async with opened(services) as memory:
        report = await memory.sync()
        (hit,) = await memory.search("lighthouse pier")

    assert report.problems == ()
    assert (hit.path, hit.source) == ("sessions/talk.jsonl", "sessions")
    assert (hit.start_line, hit.end_line) == (2, 5)
    assert hit.snippet.startswith("User: Where is the lighthouse?\nAssistant: The lighthouse stands on the")
    assert "lantern" not in hit.snippet


async def test_what_an_agent_was_told_out_of_its_memory_is_not_said(
    services: BackendServices, folder: Path
) -> None:
    told = "<relevant-memories>\n1. The lantern glass is green.\n</relevant-memories>"
    write(
        folder, "talk.jsonl", [said("user", f"{told}\nWhich lighthouse?"), said("assistant", "The old one.")]
    )
    async with opened(services, sources=["sessions"]) as memory:
        await memory.sync()

        (hit,) = await memory.search("lighthouse")
        text = (await memory.read_file("sessions/talk.jsonl")).text

    assert hit.snippet == text == "User: Which lighthouse?\nAssistant: The old one."


async def test_notes_and_transcripts_answer_together(services: BackendServices, folder: Path) -> None:
    write(folder, "talk.jsonl", [said("user", "the pump relay clicks")])
    async with opened(services) as memory:
        await memory.sync()

        assert await paths(memory, "pump relay") >= {"sessions/talk.jsonl", "memory/2026-03-05.md"}


async def test_a_hit_can_be_opened_by_its_lines(services: BackendServices, folder: Path) -> None:
    write(folder, "talk.jsonl", TALK)
    async with opened(services, chunking={"tokens": 15, "overlap": 0}) as memory:
        await memory.sync()
        (hit,) = await memory.search("northern pier")
        count = hit.end_line - hit.start_line + 1
        part = await memory.read_file(hit.path, from_line=hit.start_line, lines=count)
        whole = await memory.read_file(hit.path)

    said_there = "Assistant: The lighthouse stands on the northern pier."
    assert part == MemoryFileSlice(text=said_there, path="sessions/talk.jsonl")
    assert whole.text == f"User: Where is the lighthouse?\n{said_there}\nUser: Thanks."


async def test_a_transcript_that_is_not_there_has_no_text(services: BackendServices) -> None:
    async with opened(services) as memory:
        expected = MemoryFileSlice(text="", path="sessions/none.jsonl")
        assert await memory.read_file("sessions/none.jsonl") == expected


@pytest.mark.parametrize("path", ["sessions/../talk.jsonl", "sessions/a/b.jsonl", "sessions/link.jsonl"])
async def test_nothing_else_is_read(services: BackendServices, folder: Path, path: str) -> None:
    (folder / "link.jsonl").symlink_to(write(folder.parent, "talk.jsonl", TALK))
    async with opened(services) as memory:
        with pytest.raises(MemoryPathError, match=r"readable are sessions/\*.jsonl"):
            await memory.read_file(path)


async def test_without_the_source_transcripts_are_neither_indexed_nor_read(
    services: BackendServices, folder: Path
) -> None:
    write(folder, "talk.jsonl", TALK)
    async with opened(services, sources=["memory"]) as memory:
        await memory.sync()

        assert await paths(memory, "lighthouse") == set()
        with pytest.raises(MemoryPathError, match="add 'sessions' to its `sources`"):
            await memory.read_file("sessions/talk.jsonl")


async def test_transcripts_alone_are_a_memory(services: BackendServices, folder: Path) -> None:
    write(folder, "talk.jsonl", TALK)
    async with opened(services, sources=["sessions"]) as memory:
        report = await memory.sync()

        assert report.files_indexed == 1
        assert await paths(memory, "pump relay lighthouse") == {"sessions/talk.jsonl"}


async def test_the_folder_of_another_agent_can_be_named(services: BackendServices, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    write(tmp_path / "elsewhere", "x.jsonl", [json.dumps({"role": "user", "content": "the lighthouse"})])
    async with opened(services, sessions={"folder": str(tmp_path / "elsewhere")}) as memory:
        await memory.sync()

        assert await paths(memory, "lighthouse") == {"sessions/x.jsonl"}


# --- never in clear ---


async def test_no_secret_reaches_the_index_the_embedder_or_the_log(
    services: BackendServices, folder: Path, events: MemorySink
) -> None:
    hunter, word, token, body = SECRETS
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"
    lines = [f"lighthouse password: {hunter}", f"the password is {word}.", f"push with {token}", key]
    write(folder, "talk.jsonl", [said("user", text) for text in lines])
    embedder = HashEmbedder()
    async with opened(replace(services, embedder=embedder)) as memory:
        await memory.sync()
        hits = await memory.search("lighthouse password")
        text = (await memory.read_file("sessions/talk.jsonl")).text
        file = Path(memory.status().db_path or "")
    kept = b"".join(part.read_bytes() for part in file.parent.iterdir()).decode("utf-8", "replace")
    logged = b"".join(to_line(event_to_wire(event)) for event in events.events).decode()

    assert "lighthouse password: ***" in hits[0].snippet
    for place in (kept, logged, text, *embedder.texts, *(hit.snippet for hit in hits)):
        assert [secret for secret in SECRETS if secret in place] == []


async def test_better_rules_read_old_transcripts_anew(
    services: BackendServices, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(folder, "talk.jsonl", TALK)
    async with opened(services) as memory:
        await memory.sync()
        connection = apsw.Connection(memory.status().db_path or "")
        older = sessions.TRANSCRIPT_RECIPE.replace("redaction-", "redaction-0")
        connection.execute(
            "UPDATE files SET chunker = replace(chunker, ?, ?)", (sessions.TRANSCRIPT_RECIPE, older)
        )
        connection.close()

        assert (await memory.sync(reason="search")).files_indexed == 1
        assert (await memory.sync(reason="search")).files_indexed == 0


# --- followed ---


async def test_an_unchanged_transcript_is_left_alone(services: BackendServices, folder: Path) -> None:
    write(folder, "talk.jsonl", TALK)
    async with opened(services, sources=["sessions"]) as memory:
        await memory.sync()
        report = await memory.sync()

    assert (report.files_indexed, report.files_unchanged, report.chunks_written) == (0, 1, 0)


async def test_growth_only_writes_what_is_new(services: BackendServices, folder: Path) -> None:
    path = write(
        folder, "talk.jsonl", [said("user", f"remark {number:03} {'x' * 60}") for number in range(40)]
    )
    small = {"chunking": {"tokens": 20, "overlap": 0}, "sources": ["sessions"]}
    async with opened(services, **small) as memory:
        first = await memory.sync()
        append(path, said("user", "lighthouse"))
        second = await memory.sync()

    assert (first.chunks_written, second.chunks_written) == (40, 1)


@pytest.mark.parametrize("reason", ["search", "watch", "interval", "session-delta"])
async def test_a_little_growth_waits_for_a_sync_that_was_asked_for(
    services: BackendServices, folder: Path, reason: str
) -> None:
    path = write(folder, "talk.jsonl", TALK)
    async with opened(services) as memory:
        await memory.sync()
        append(path, said("user", "and the windmill?"))
        await memory.sync(reason=reason)
        assert await paths(memory, "windmill") == set()
        await memory.sync(reason="session-start")

        assert await paths(memory, "windmill") == {"sessions/talk.jsonl"}


@pytest.mark.parametrize(
    "delta", [{"deltaMessages": 2}, {"deltaBytes": 80}, {"deltaBytes": 0, "deltaMessages": 2}]
)
async def test_growth_past_a_limit_does_not_wait(
    services: BackendServices, folder: Path, delta: dict[str, int]
) -> None:
    path = write(folder, "talk.jsonl", TALK)
    async with opened(services, **limits(**delta)) as memory:
        await memory.sync()
        append(path, said("user", "and the windmill?"), said("assistant", "Far off."))
        await memory.sync(reason="search")

        assert await paths(memory, "windmill") == {"sessions/talk.jsonl"}


async def test_without_limits_nothing_waits(services: BackendServices, folder: Path) -> None:
    path = write(folder, "talk.jsonl", TALK)
    async with opened(services, **limits(deltaBytes=0, deltaMessages=0)) as memory:
        await memory.sync()
        append(path, said("user", "and the windmill?"))
        await memory.sync(reason="watch")

        assert await paths(memory, "windmill") == {"sessions/talk.jsonl"}


async def test_a_new_and_a_shorter_transcript_do_not_wait(services: BackendServices, folder: Path) -> None:
    path = write(folder, "talk.jsonl", TALK)
    async with opened(services) as memory:
        await memory.sync()
        write(folder, "talk.jsonl", [said("user", "only the windmill")], at=LONG_AGO + 10)
        write(folder, "new.jsonl", [said("user", "a windmill as well")])
        await memory.sync(reason="watch")

        assert await paths(memory, "windmill") == {"sessions/talk.jsonl", "sessions/new.jsonl"}
        assert await paths(memory, "lighthouse") == set()
    assert path.exists()


async def test_what_was_written_while_nobody_looked_is_found_at_the_next_start(
    services: BackendServices, folder: Path
) -> None:
    path = write(folder, "talk.jsonl", TALK)
    async with opened(services) as memory:
        await memory.sync()
    append(path, said("user", "and the windmill?"))
    write(folder, "new.jsonl", [said("user", "a windmill as well")])
    async with opened(services) as memory:
        await memory.sync(reason="boot")

        assert await paths(memory, "windmill") == {"sessions/talk.jsonl", "sessions/new.jsonl"}


async def test_a_transcript_that_is_gone_leaves_the_index(services: BackendServices, folder: Path) -> None:
    path = write(folder, "talk.jsonl", TALK)
    async with opened(services) as memory:
        await memory.sync()
        path.unlink()
        report = await memory.sync(reason="watch")

        assert report.files_removed == 1
        assert stored(memory, "sessions") == 0


async def test_a_folder_that_cannot_be_listed_keeps_its_rows(services: BackendServices, folder: Path) -> None:
    write(folder, "talk.jsonl", TALK)
    async with opened(services) as memory:
        await memory.sync()
        put_a_file_in_place_of(folder)
        report = await memory.sync()

        assert "cannot be listed" in report.problems[0]
        assert await paths(memory, "lighthouse") == {"sessions/talk.jsonl"}


async def test_no_folder_is_no_problem(services: BackendServices) -> None:
    async with opened(services) as memory:
        assert (await memory.sync()).problems == ()


async def test_taking_the_source_away_takes_its_rows_away(services: BackendServices, folder: Path) -> None:
    write(folder, "talk.jsonl", TALK)
    async with opened(services) as memory:
        await memory.sync()
    async with opened(services, sources=["memory"]) as memory:
        assert stored(memory, "sessions") > 0
        await memory.sync(reason="watch")

        assert (stored(memory, "sessions"), stored(memory, "memory") > 0) == (0, True)


@pytest.mark.parametrize(("reason", "force"), [("watch", False), ("manual", True)])
async def test_a_watch_and_a_rebuild_keep_the_transcripts(
    services: BackendServices, folder: Path, reason: str, force: bool
) -> None:
    write(folder, "talk.jsonl", TALK)
    async with opened(services) as memory:
        await memory.sync()
        before = stored(memory, "sessions")
        await memory.sync(reason=reason, force=force)

        assert stored(memory, "sessions") == before > 0
        assert await paths(memory, "lighthouse") == {"sessions/talk.jsonl"}


async def test_a_sync_of_a_long_transcript_leaves_the_loop_free(
    services: BackendServices, folder: Path
) -> None:
    write(folder, "talk.jsonl", [said("user", f"remark {number} " * 50) for number in range(500)])
    async with opened(services, sources=["sessions"]) as memory:
        syncing = asyncio.create_task(memory.sync())
        turns = 0
        while not syncing.done():
            turns += 1
            await asyncio.sleep(0)

    assert turns > 10
    assert syncing.result().files_indexed == 1
