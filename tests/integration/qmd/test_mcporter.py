"""QMD through mcporter: the real two of them where they are installed, and a command that misbehaves."""

import asyncio
import json
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory_adapters.qmd.installation import find_command
from composable_memory_adapters.qmd.settings import McporterSettings
from composable_memory_adapters.qmd.transport.mcporter import Mcporter, lacking
from composable_memory_adapters.qmd.types import Home, Installation, SearchRequest, SubSearch
from tests.integration.graphiti.processes import eventually, is_running
from tests.integration.qmd.homes import PATIENCE_S, QUESTION, furnish, home_in, update

HIT = {
    "docid": "#0325e9",
    "file": "notes/a b.md",
    "score": 1,
    "line": 3,
    "snippet": "3: @@ -2,1 @@\n4: the latch",
}
NOBODY = Installation(command=("qmd",), version="2.8.3")
USELESS = {"imports": [], "mcpServers": {"qmd": {"command": "false", "args": ["mcp"]}}}


# --- the real thing -----------------------------------------------------------------------------------------


@pytest.fixture
def installation(qmd_command: str) -> Installation:
    return Installation(command=find_command(qmd_command, os.environ), version="2.8.3")


@pytest.fixture
async def home(installation: Installation, tmp_path: Path) -> Home:
    home = furnish(tmp_path / "state")
    await update(installation, home)
    node = Path(installation.command[0]).parent  # mcporter needs one as well
    return replace(home, environ={**home.environ, "PATH": f"{node}{os.pathsep}{home.environ['PATH']}"})


@pytest.fixture
def real(mcporter_command: str, installation: Installation, home: Home) -> Mcporter:
    """Return a way to ask the real QMD through the real mcporter, without its daemon."""
    return Mcporter(McporterSettings(command=mcporter_command), installation, home)


@asynccontextmanager
async def warm(mcporter: Mcporter) -> AsyncIterator[Mcporter]:
    """Yield `mcporter` with its daemon running, and close it."""
    mcporter.start()
    try:
        await eventually(lambda: mcporter.is_warm)
        yield mcporter
    finally:
        await mcporter.close()


def servers_of(home: Home) -> list[int]:
    """Return the processes of QMD that serve a home, by the folder that they were started in."""
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and _serves(folder, home)
    ]


def _serves(folder: Path, home: Home) -> bool:
    try:
        is_there = (folder / "cwd").readlink() == home.root
        return is_there and (folder / "cmdline").read_bytes().endswith(b"\0mcp\0")
    except OSError:
        return False


async def test_a_question_is_answered_from_the_index_of_this_memory(real: Mcporter) -> None:
    (hit,) = await real.ask(QUESTION, timeout_s=PATIENCE_S)

    assert (hit.collection, hit.path, hit.line, hit.start_line) == ("notes", "gateway.md", 1, 1)
    assert hit.snippet.startswith("# Gateway\n\nThe rate limit of the gateway")


@pytest.mark.thorough
async def test_what_is_not_there_is_not_found(real: Mcporter) -> None:
    request = SearchRequest(
        text="zebra", collections=("notes",), limit=5, searches=(SubSearch(kind="lex", text="zebra"),)
    )

    assert await real.ask(request, timeout_s=PATIENCE_S) == []


@pytest.mark.thorough
async def test_what_qmd_refuses_is_refused_in_its_own_words(real: Mcporter) -> None:
    request = SearchRequest(
        text='"', collections=("notes",), limit=5, searches=(SubSearch(kind="lex", text='gate"way'),)
    )

    with pytest.raises(BackendRejected, match="unmatched double quote"):
        await real.ask(request, timeout_s=PATIENCE_S)


@pytest.mark.thorough
async def test_a_server_of_the_same_name_in_the_users_configuration_is_passed_over(
    real: Mcporter, home: Home
) -> None:
    theirs = Path(home.environ["HOME"]) / ".mcporter" / "mcporter.json"
    theirs.parent.mkdir()
    theirs.write_text(json.dumps(USELESS))

    assert len(await real.ask(QUESTION, timeout_s=PATIENCE_S)) == 1


@pytest.mark.thorough
async def test_a_configuration_that_the_command_names_decides_who_is_asked(
    mcporter_command: str, installation: Installation, home: Home, tmp_path: Path
) -> None:
    program, *options = installation.command
    server = {"command": program, "args": [*options, "mcp"]}
    theirs = tmp_path / "theirs.json"
    theirs.write_text(json.dumps({"imports": [], "mcpServers": {"my.notes": server}}))
    command = f"{mcporter_command} --config {shlex.quote(str(theirs))}"
    mcporter = Mcporter(McporterSettings(command=command, server_name="my.notes"), NOBODY, home)

    assert len(await mcporter.ask(QUESTION, timeout_s=PATIENCE_S)) == 1
    assert not (home.root / "mcporter.json").exists()


@pytest.mark.thorough
async def test_a_server_that_does_not_start_is_unavailable(
    mcporter_command: str, home: Home, tmp_path: Path
) -> None:
    (tmp_path / "theirs.json").write_text(json.dumps(USELESS))
    command = f"{mcporter_command} --config {tmp_path / 'theirs.json'}"
    mcporter = Mcporter(McporterSettings(command=command), NOBODY, home)

    with pytest.raises(BackendUnavailable, match="could not ask the server 'qmd'"):
        await mcporter.ask(QUESTION, timeout_s=PATIENCE_S)


@pytest.mark.thorough
async def test_a_server_that_nobody_knows_is_unavailable(
    mcporter_command: str, home: Home, tmp_path: Path
) -> None:
    (tmp_path / "theirs.json").write_text(json.dumps(USELESS))
    command = f"{mcporter_command} --config {tmp_path / 'theirs.json'}"
    mcporter = Mcporter(McporterSettings(command=command, server_name="notes"), NOBODY, home)

    with pytest.raises(BackendUnavailable, match="Unknown MCP server 'notes'"):
        await mcporter.ask(QUESTION, timeout_s=PATIENCE_S)


@pytest.mark.thorough
async def test_a_question_without_the_daemon_leaves_nothing_behind(real: Mcporter, home: Home) -> None:
    await real.ask(QUESTION, timeout_s=PATIENCE_S)

    await eventually(lambda: servers_of(home) == [])
    assert not (Path(home.environ["HOME"]) / ".mcporter" / "daemon").exists()


@pytest.mark.thorough
async def test_the_daemon_keeps_one_server_for_all_questions(real: Mcporter, home: Home) -> None:
    async with warm(real):
        answers = [await real.ask(QUESTION, timeout_s=PATIENCE_S) for _ in range(2)]

        assert [len(hits) for hits in answers] == [1, 1]
        assert len(servers_of(home)) == 1


@pytest.mark.thorough
async def test_closing_ends_the_daemon_and_the_server_in_it(real: Mcporter, home: Home) -> None:
    async with warm(real):
        await real.ask(QUESTION, timeout_s=PATIENCE_S)
        (server,) = servers_of(home)

    await eventually(lambda: not is_running(server))
    assert not real.is_warm


@pytest.mark.thorough
async def test_a_server_that_was_killed_is_started_again_by_the_next_question(
    real: Mcporter, home: Home
) -> None:
    async with warm(real):
        await real.ask(QUESTION, timeout_s=PATIENCE_S)
        os.kill(servers_of(home)[0], signal.SIGKILL)

        assert len(await real.ask(QUESTION, timeout_s=PATIENCE_S)) == 1


# --- a command that misbehaves ------------------------------------------------------------------------------

Faulty = Callable[..., Mcporter]


@pytest.fixture
def faulty(tmp_path: Path) -> Faulty:
    """Return what makes a way to ask by a command of some lines of Python; `argv` are its arguments."""

    def making(*lines: str) -> Mcporter:
        script = tmp_path / "mcporter"
        script.write_text("\n".join(("import json, os, sys, time", "argv = sys.argv[1:]", *lines)))
        command = shlex.join([sys.executable, "-IS", str(script)])
        return Mcporter(McporterSettings(command=command), NOBODY, home_in(tmp_path))

    return making


def says(value: object) -> str:
    """Return the line of Python that prints a value as JSON."""
    return f"print({json.dumps(value, indent=2)!r})"


@contextmanager
def raises(error: type[BackendError], message: str) -> Iterator[None]:
    """Expect this very class of error, with these words in it."""
    with pytest.raises(error, match=message) as raised:
        yield
    assert type(raised.value) is error


@pytest.mark.parametrize(
    "answer", [[HIT], {"results": [HIT]}, {"content": [], "structuredContent": {"results": [HIT]}}]
)
async def test_results_are_found_in_every_form_that_mcporter_has_given_them(
    faulty: Faulty, answer: object
) -> None:
    (hit,) = await faulty(says(answer)).ask(QUESTION, timeout_s=PATIENCE_S)

    assert (hit.collection, hit.path, hit.snippet) == ("notes", "a b.md", "the latch")


async def test_noise_around_the_answer_does_not_matter(faulty: Faulty) -> None:
    noisy = faulty("print('[mcporter] [1/3] warming up {}')", says({"results": [HIT]}), "print('[done]')")

    assert len(await noisy.ask(QUESTION, timeout_s=PATIENCE_S)) == 1


async def test_qmd_is_asked_by_its_tool_of_today(faulty: Faulty, tmp_path: Path) -> None:
    recording = faulty("open('asked.json', 'w').write(json.dumps(argv))", says({"results": []}))

    await recording.ask(QUESTION, timeout_s=PATIENCE_S)
    await recording.close()

    asked = json.loads((tmp_path / "asked.json").read_text())
    assert asked[asked.index("--tool") + 1] == "query"
    assert json.loads(asked[asked.index("--args") + 1]) == {
        "searches": [{"type": "lex", "query": "gateway"}],
        "rerank": False,
        "collections": ["notes"],
        "limit": 5,
        "candidateLimit": 40,
    }


async def test_a_question_that_qmd_is_to_widen_is_handed_over_whole(faulty: Faulty, tmp_path: Path) -> None:
    recording = faulty("open('asked.json', 'w').write(json.dumps(argv))", says({"results": []}))

    await recording.ask(
        SearchRequest(text="who has the key?", collections=("notes",), limit=5, expand=True),
        timeout_s=PATIENCE_S,
    )

    asked = json.loads((tmp_path / "asked.json").read_text())
    arguments = json.loads(asked[asked.index("--args") + 1])
    assert (arguments["query"], "searches" in arguments, "rerank" in arguments) == (
        "who has the key?",
        False,
        False,
    )


async def test_a_server_without_the_tool_is_no_qmd_of_today(faulty: Faulty) -> None:
    failed = {"server": "qmd", "tool": "query", "error": "MCP error -32602: Tool query not found"}

    with raises(BackendUnavailable, "has no tool `query`.*version 2.1 or newer"):
        await faulty(says(failed), "sys.exit(1)").ask(QUESTION, timeout_s=PATIENCE_S)


@pytest.mark.parametrize("code", [0, 1])
async def test_an_error_of_the_tool_is_a_refusal(faulty: Faulty, code: int) -> None:
    failed = {"content": [{"type": "text", "text": "Error: the moon is full"}], "isError": True}

    with raises(BackendRejected, "the moon is full"):
        await faulty(says(failed), f"sys.exit({code})").ask(QUESTION, timeout_s=PATIENCE_S)


async def test_a_busy_index_is_not_taken_for_a_refusal(faulty: Faulty) -> None:
    failed = {"content": [{"type": "text", "text": "SqliteError: database is locked"}], "isError": True}

    with raises(BackendUnavailable, "busy"):
        await faulty(says(failed), "sys.exit(1)").ask(QUESTION, timeout_s=PATIENCE_S)


@pytest.mark.parametrize(
    "line", ["", "print('all well')", 'print(\'{"results": [{"file": \')', "print('{\"results\": 7}')"]
)
async def test_an_answer_that_cannot_be_read_is_garbled(faulty: Faulty, line: str) -> None:
    with raises(BackendGarbled, "expected"):
        await faulty(line).ask(QUESTION, timeout_s=PATIENCE_S)


async def test_a_failure_without_json_is_told_by_its_last_line(faulty: Faulty) -> None:
    with raises(BackendUnavailable, r"could not ask the server 'qmd' \(no such flag\)"):
        await faulty("sys.exit('usage:\\nno such flag')").ask(QUESTION, timeout_s=PATIENCE_S)


async def test_a_crash_is_told_by_its_signal(faulty: Faulty) -> None:
    with raises(BackendUnavailable, "SIGKILL"):
        await faulty("os.kill(os.getpid(), 9)").ask(QUESTION, timeout_s=PATIENCE_S)


async def test_a_hang_ends_at_the_limit(faulty: Faulty) -> None:
    with raises(BackendTimeout, "limit 0.5 s"):
        await faulty("time.sleep(600)").ask(QUESTION, timeout_s=0.5)


async def test_a_command_that_is_not_there_tells_the_line_that_installs_it(tmp_path: Path) -> None:
    mcporter = Mcporter(McporterSettings(command="mcporter-of-nobody"), NOBODY, home_in(tmp_path))

    with raises(BackendUnavailable, "`mcporter-of-nobody` cannot be started.*npm install -g mcporter"):
        await mcporter.ask(QUESTION, timeout_s=PATIENCE_S)


@pytest.mark.parametrize("command", ["mcporter 'call", " "])
async def test_a_command_that_is_none_is_named(tmp_path: Path, command: str) -> None:
    mcporter = Mcporter(McporterSettings(command=command), NOBODY, home_in(tmp_path))

    with raises(BackendUnavailable, "cannot be read.*correct `memory.qmd.mcporter.command`"):
        await mcporter.ask(QUESTION, timeout_s=PATIENCE_S)


def test_what_is_lacking_is_known_before_anything_is_started(tmp_path: Path) -> None:
    told = lacking(McporterSettings(), {"PATH": str(tmp_path)})

    assert told is not None
    assert "`mcporter`" in told
    assert "`npm install -g mcporter`" in told
    assert lacking(McporterSettings(command=sys.executable), {"PATH": ""}) is None


# --- its daemon ---------------------------------------------------------------------------------------------

DAEMON = (
    "if 'daemon' in argv:",
    "    folder = os.path.join(os.environ['MCPORTER_DAEMON_DIR'], 'daemon')",
    "    os.makedirs(folder)",
    "    with open('pid', 'w') as note: note.write(str(os.getpid()))",
    "    open(os.path.join(folder, 'daemon-1.json'), 'w').close()",
    "    time.sleep(600)",
)
"""The lines of a command that has a daemon."""


def daemon_folders(folder: Path) -> list[Path]:
    return list(folder.glob("mcporter-*"))


async def test_a_daemon_that_does_not_start_leaves_questions_to_servers_of_their_own(faulty: Faulty) -> None:
    mcporter = faulty("if 'daemon' in argv: sys.exit('no socket')", says({"results": [HIT]}))

    mcporter.start()
    await eventually(lambda: mcporter.problem == "no socket")

    assert len(await mcporter.ask(QUESTION, timeout_s=PATIENCE_S)) == 1
    await mcporter.close()


async def test_a_question_never_starts_a_daemon_that_nobody_would_end(faulty: Faulty, tmp_path: Path) -> None:
    mcporter = faulty(
        *DAEMON,
        "if 'MCPORTER_DAEMON_DIR' not in os.environ:",
        "    assert os.environ['MCPORTER_DISABLE_KEEPALIVE'] == '*'",
        says({"results": []}),
    )

    assert await mcporter.ask(QUESTION, timeout_s=PATIENCE_S) == []
    async with warm(mcporter):
        assert await mcporter.ask(QUESTION, timeout_s=PATIENCE_S) == []
    assert await mcporter.ask(QUESTION, timeout_s=PATIENCE_S) == []


async def test_a_daemon_is_not_started_where_the_settings_want_none(tmp_path: Path) -> None:
    settings = McporterSettings(command="mcporter-of-nobody", start_daemon=False)
    mcporter = Mcporter(settings, NOBODY, home_in(tmp_path))

    mcporter.start()

    assert len(asyncio.all_tasks()) == 1


async def test_a_daemon_that_hangs_is_ended_after_some_questions_without_an_answer(
    faulty: Faulty, tmp_path: Path
) -> None:
    mcporter = faulty(*DAEMON, "time.sleep(600)")

    async with warm(mcporter):
        daemon = int((tmp_path / "pid").read_text())
        for _ in range(3):
            with raises(BackendTimeout, "no answer"):
                await mcporter.ask(QUESTION, timeout_s=0.2)
        await eventually(lambda: not mcporter.is_warm)

        assert not is_running(daemon)


async def test_closing_leaves_no_folder_however_early_it_comes(
    faulty: Faulty, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    for turns in range(8):
        mcporter = faulty(*DAEMON)
        mcporter.start()
        for _ in range(turns):
            await asyncio.sleep(0)
        await mcporter.close()

    assert daemon_folders(tmp_path) == []


async def test_closing_twice_and_without_a_daemon_is_fine(faulty: Faulty) -> None:
    mcporter = faulty(*DAEMON)

    await mcporter.close()
    async with warm(mcporter):
        await mcporter.close()

    assert not mcporter.is_warm
