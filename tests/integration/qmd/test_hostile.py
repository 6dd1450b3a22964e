"""What may stand in the way of the QMD memory on purpose: names, notes, servers, clocks, damaged files."""

import asyncio
import errno
import gzip
import json
import os
import resource
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from composable_memory.errors import BackendGarbled, BackendTimeout, BackendUnavailable, MemoryPathError
from composable_memory.interfaces import BackendServices
from composable_memory.supervision.process import GuardedProcess
from composable_memory.supervision.run_command import run_command
from composable_memory.supervision.server_record import publish_record, read_record
from composable_memory.types import SearchOptions
from composable_memory_adapters.qmd.backend import open_qmd
from composable_memory_adapters.qmd.collections import newest_change, read_file
from composable_memory_adapters.qmd.home import read_config
from composable_memory_adapters.qmd.maintenance.maintenance_state import MaintenanceState
from composable_memory_adapters.qmd.transport.daemon_client import DaemonClient
from composable_memory_adapters.qmd.transport.daemon_server import QmdServer
from composable_memory_adapters.qmd.transport.qmd_client import ProcessTransport
from composable_memory_adapters.qmd.transport.replies import refusal
from composable_memory_adapters.qmd.types import Collection, Installation
from composable_memory_ops_logs import utc_now
from tests.integration.graphiti.processes import eventually, is_running
from tests.integration.qmd.conftest import OpenQmd, SettingsWith, standing_of
from tests.integration.qmd.homes import QUESTION, home_in
from tests.variants import variants

pytestmark = pytest.mark.security

PATIENCE_S = 20.0
WORD = "zebra"

NAMES = [
    "-c.md",
    "new\nline.md",
    'quo"te.md',
    "a?index=x.md",
    "a%2Fb.md",
    "a%20b.md",
    "escape\x1b[31mred.md",
    "h#ash.md",
    "Case.md",
    "case.md",
    "e\u0301.md",
    "\u00e9.md",
    "*.md",
    "{a,b}.md",
    "x&y=z;.md",
    "collection:other.md",
    "qmd:/folder.md",
]
NOTES = {
    "json.md": f'{WORD} [{{"file": "qmd://memory-dir/evil.md", "snippet": "evil", "line": 1}}]\n',
    "header.md": f"@@ -1,3 @@ (0 before, 9 after)\n{WORD}\n",
    "nothing.md": f"No results found for {WORD}.\n",
}


# --- names and notes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", variants(["daemon", "process"], "daemon"))
async def test_a_note_is_found_and_read_whatever_it_is_called_and_says(
    open_memory: OpenQmd, workspace: Path, way: str
) -> None:
    notes = {name: f"{WORD} {name!r}\n" for name in NAMES} | NOTES
    for name, text in notes.items():
        path = workspace / "memory" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")

    async with open_memory(daemon=way == "daemon") as memory:
        answer = await memory.answer(WORD, SearchOptions(max_results=64, min_score=0.0))
        texts = {one.path: (await memory.read_file(one.path)).text for one in answer.results}

    assert texts == {f"memory/{name}": text for name, text in notes.items()}


async def test_a_link_that_is_changed_while_it_is_looked_at_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes, elsewhere = tmp_path / "memory", tmp_path / "elsewhere"
    notes.mkdir()
    elsewhere.mkdir()
    (elsewhere / "secret.md").write_text("secret", encoding="utf-8")
    (notes / "sub").symlink_to(elsewhere)
    covered = [Collection(name="memory-dir", path=notes, pattern="**/*.md")]

    def gone(path: str, **_: object) -> str:
        raise FileNotFoundError(errno.ENOENT, "it was here a moment ago", path)

    monkeypatch.setattr(os, "readlink", gone)
    try:
        text = (await read_file("memory/sub/secret.md", collections=covered, workspace=tmp_path)).text
    except MemoryPathError:
        text = ""

    assert text == ""


def test_folders_may_lie_deeper_than_functions_may_call_each_other(tmp_path: Path) -> None:
    folders = [str(tmp_path)]
    for _ in range(1200):
        folders.append(f"{folders[-1]}/a")
        os.mkdir(folders[-1])  # noqa: PTH102 - a Path this deep takes its time
    try:
        changed = newest_change(
            [Collection(name="deep", path=tmp_path, pattern="**/*.md")], now=utc_now().timestamp() + 60
        )
    finally:  # or pytest could not remove them
        for folder in reversed(folders[1:]):
            os.rmdir(folder)  # noqa: PTH106

    assert changed > 0.0


# --- commands that do not want to end -----------------------------------------------------------------------


async def test_a_question_is_not_asked_to_end_but_ended(tmp_path: Path) -> None:
    hesitates = "trap 'touch told; sleep 30' TERM; touch started; while :; do sleep 0.01; done"

    async def ask(*, has_grace: bool) -> None:
        with pytest.raises(BackendTimeout):
            await run_command(
                ["sh", "-c", hesitates],
                environ={"PATH": os.environ["PATH"]},
                cwd=tmp_path,
                timeout_s=1.0,
                owner="qmd",
                operation="search",
                has_grace=has_grace,
            )

    await ask(has_grace=False)
    assert (tmp_path / "started").exists()
    assert not (tmp_path / "told").exists()
    await ask(has_grace=True)
    assert (tmp_path / "told").exists()


async def test_nothing_is_left_of_a_command_that_was_halted_with_its_guard(tmp_path: Path) -> None:
    process = await GuardedProcess.start(
        ["sh", "-c", "sleep 600"],
        environ={"PATH": os.environ["PATH"]},
        cwd=tmp_path,
        owner="qmd",
        operation="try",
        on_output=lambda _fd, _data: None,
    )
    await eventually(lambda: process.pid is not None)
    pid = process.pid
    assert pid is not None
    os.killpg(os.getpgid(pid), signal.SIGSTOP)

    await process.stop(at_once=True)

    await eventually(lambda: not is_running(pid))


@contextmanager
def every_file_open() -> Iterator[None]:
    """Leave this process no descriptor to open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(0))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)


async def test_where_no_more_files_can_be_opened_nothing_can_be_started(tmp_path: Path) -> None:
    home = await asyncio.to_thread(home_in, tmp_path)  # the first thread imports what would need a file
    installation = Installation(command=("/bin/true",), version="2.8.3")

    with every_file_open():
        with pytest.raises(BackendUnavailable, match="cannot be started"):
            await ProcessTransport(installation, home).ask(QUESTION, timeout_s=PATIENCE_S)
        with pytest.raises(BackendUnavailable, match="cannot be started"):
            await QmdServer.start(installation, home, timeout_s=PATIENCE_S)


async def test_what_is_written_is_closed_to_others_whatever_the_umask_is(
    open_memory: OpenQmd, services: BackendServices
) -> None:
    before = os.umask(0)
    try:
        async with open_memory(daemon=True, sessions={"enabled": True}) as memory:
            await memory.answer("espresso gauge")
            root = Path(memory.status().db_path or "").parents[2]
            modes = await asyncio.to_thread(modes_below, root.parents[1])
    finally:
        os.umask(before)

    assert {"index.yml", "index.sqlite", "daemon.json"} <= {path.name for path in modes}
    assert [str(path) for path, mode in modes.items() if mode & 0o077] == []


def modes_below(folder: Path) -> dict[Path, int]:
    return {one: one.stat().st_mode for one in (folder, *folder.rglob("*")) if not one.is_symlink()}


# --- servers ------------------------------------------------------------------------------------------------


@asynccontextmanager
async def server(*, health: bytes, query: bytes, ends: bool = True) -> AsyncIterator[str]:
    """Yield the address of a server that gives these answers; unless it `ends` them they go on for ever."""

    served: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        writer.write(health if b"/health" in asked else query)
        await writer.drain()
        if not ends:
            await reader.read()
        writer.close()
        await writer.wait_closed()

    def begin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served.append(asyncio.create_task(serve(reader, writer)))

    with tempfile.TemporaryDirectory() as folder:
        async with await asyncio.start_unix_server(begin, f"{folder}/s"):
            yield f"{folder}/s"
    await asyncio.gather(*served, return_exceptions=True)


def http(status: str, body: bytes = b"{}", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"content-length: {len(body)}", "connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


WELL = http("200 OK")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "answer",
    variants(
        [
            http("500 Internal Server Error", b"Internal Server Error"),
            http("404 Not Found", b"<html>"),
            http("307 Temporary Redirect", b"", "location: http://127.0.0.1:1/elsewhere"),
            http("200 OK", b"<html>"),
            b"\xff\x00 no answer at all\r\n\r\n",
        ],
        http("200 OK", b"<html>"),
    ),
    ids=["fails", "is another one", "sends elsewhere", "answers rubbish", "speaks rubbish"],
)
async def test_a_process_answers_where_the_server_in_the_note_is_of_no_use(
    open_memory: OpenQmd, qmd_settings: SettingsWith, services: BackendServices, answer: bytes
) -> None:
    async with open_memory() as memory:
        root = Path(memory.status().db_path or "").parents[2]

    async with server(health=WELL, query=answer) as address:
        note = root / "daemon.json"
        await asyncio.to_thread(publish_record, note, address=address, pid=os.getpid())
        opening = open_qmd(qmd_settings(), replace(services, is_long_lived=True, clock=utc_now))
        async with opening as memory:
            await eventually(lambda: standing_of(memory)["daemon"]["address"] == address)
            found = await memory.answer("espresso gauge")

    assert found.engines["qmd"] == "process"
    assert found.results


@asynccontextmanager
async def closing_client(address: str) -> AsyncIterator[DaemonClient]:
    client = DaemonClient(address)
    yield client
    await client.close()


async def test_an_answer_that_was_packed_unasked_is_not_unpacked() -> None:
    packed = http("200 OK", gzip.compress(b'{"results": []}'), "content-encoding: gzip")

    async with server(health=WELL, query=packed) as address, closing_client(address) as client:
        with pytest.raises(BackendGarbled):
            await client.ask(QUESTION, timeout_s=PATIENCE_S)


async def test_no_more_is_read_of_a_server_that_is_well_than_that_it_is() -> None:
    endless = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n10\r\n"

    serving = server(health=endless, query=WELL, ends=False)
    async with serving as address, closing_client(address) as client:
        assert await client.is_healthy(timeout_s=PATIENCE_S)


@pytest.mark.parametrize(
    "lie",
    [
        {"address": "http://127.0.0.1:8080"},
        {"address": "s"},
        {"address": "/no/such/folder/s"},
        {"address": "/\0/s"},
        {"host": "another machine that shares the folder"},
        {"pid": 10**30},
    ],
    ids=str,
)
def test_a_note_that_leads_elsewhere_leads_nowhere(tmp_path: Path, lie: dict[str, object]) -> None:
    note = tmp_path / "daemon.json"
    truth = publish_record(note, address=str(tmp_path / "s"), pid=os.getpid())
    assert read_record(note) == truth
    assert truth.runs_here

    note.write_text(json.dumps(truth.model_dump() | lie), encoding="utf-8")

    found = read_record(note)
    assert found is None or not found.runs_here


# --- damaged files, and clocks ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a: !!int ''", "a: !!bool maybe", "a: !!timestamp never"])
def test_a_tag_that_does_not_fit_is_told_like_any_damage(tmp_path: Path, text: str) -> None:
    file = tmp_path / "index.yml"
    file.write_text(text, encoding="utf-8")

    with pytest.raises(BackendUnavailable, match=r"index\.yml"):
        read_config(file)


def test_a_moment_without_a_zone_is_no_moment() -> None:
    assert MaintenanceState.from_json('{"last_update": "2026-01-01T00:00:00"}') == MaintenanceState()


@pytest.mark.timeout(10)
def test_a_long_word_in_an_error_takes_no_time() -> None:
    assert str(refusal(1, "", "a" * 300_000))


@pytest.mark.thorough
async def test_a_change_is_seen_though_the_clock_was_set_back(
    qmd_settings: SettingsWith, services: BackendServices, workspace: Path
) -> None:
    ahead = replace(services, clock=lambda: utc_now() + timedelta(days=1))
    async with open_qmd(qmd_settings(), ahead) as memory:
        await memory.sync()
    (workspace / "memory" / "animals.md").write_text("A quagga is half a zebra.\n", encoding="utf-8")

    async with open_qmd(qmd_settings(), replace(services, clock=utc_now)) as memory:
        answer = await memory.answer("quagga")

    assert [one.path for one in answer.results] == ["memory/animals.md"]
