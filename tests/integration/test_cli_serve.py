"""`cmem serve` as a process: the same answers as without it, whatever happens to it or to who asks."""

import asyncio
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.main import get_command

import composable_memory_start as start
from composable_memory.cli.command import command
from composable_memory.cli.command_server import CommandServer
from composable_memory.cli.options import AsJson
from composable_memory.config.layers import default_state_dir
from composable_memory.registry import discover_backends
from tests.cli_process import RunningCli, run_cli

LIMIT_S = 60
ALONE, IMPATIENT, ASKING = (
    [sys.executable, "-c", f"import sys; sys.argv[0] = 'cmem'; {program}"]
    for program in (
        "from composable_memory.cli import main; main()",
        "from composable_memory_start import main; main()",
        # Beside other tests a server may take longer than a user would wait for it.
        f"import composable_memory_start as one; one.CONNECT_S = one.SILENCE_S = {LIMIT_S}; one.main()",
    )
)
SETTINGS = "memory: {embedding: {provider: none}, builtin: {sync: {on_search_wait_ms: 60000}}}"
"""A search waits until it has seen all notes, however busy the machine is."""
PORT = "which extension has the harbour office?"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no Unix sockets")


class Place:
    """A workspace with its state folder and settings, and commands that are run there."""

    def __init__(self, workspace: Path, state_dir: Path, config: Path) -> None:
        self.workspace = workspace
        self.state_dir = state_dir
        self.config = config
        self.options = ["--workspace", str(workspace), "--state-dir", str(state_dir)]
        self.told: dict[str, Any] = {}

    @property
    def address(self) -> Path:
        return Path(start.address_of(str(self.state_dir), str(self.workspace)))

    def run(self, program: Sequence[str], *words: str, folder: Path | None = None) -> tuple[int, str, str]:
        """Run a command; return its exit code and what it printed, without what differs in every run."""
        done = subprocess.run(
            [*program, *words], capture_output=True, cwd=folder, timeout=LIMIT_S, check=False, text=True
        )
        return _outcome(done)

    def asked(self, *words: str) -> tuple[int, str, str]:
        return self.run(ASKING, *words, *self.options)

    def alone(self, *words: str) -> tuple[int, str, str]:
        return _outcome(run_cli(*words, *self.options))

    def counts(self) -> tuple[int, int]:
        """Return how many commands were answered, and how many declined."""
        self.told = json.loads(self.alone("serve", "status", "--json")[1])
        return self.told["answered"], self.told["declined"]

    def write(self, path: str, text: str) -> None:
        (self.workspace / path).write_text(text, encoding="utf-8")


def _outcome(done: "subprocess.CompletedProcess[str]") -> tuple[int, str, str]:
    return done.returncode, _settled(done.stdout), _settled(done.stderr)


def _settled(text: str) -> str:
    text = re.sub(r'("tookMs": )[\d.]+', r"\1T", text)
    text = re.sub(r"[\d.]+ ms\b", "T ms", text)
    return re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "TRACE", text)


@pytest.fixture
def place(workspace: Path, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    config = tmp_path / "config.yaml"
    config.write_text(SETTINGS, encoding="utf-8")
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(config))
    found = Place(workspace, state_dir, config)
    assert found.alone("index")[0] == 0
    return found


@contextmanager
def serving(place: Place) -> Iterator[RunningCli]:
    """Run a server; it answers when the block begins."""
    with RunningCli("serve", "--json", *place.options) as process:
        assert process.stdout.readline(), process.rest()
        yield process


@pytest.mark.parametrize(
    ("commands", "wrong_usage"),
    [
        pytest.param(
            [
                ["search", PORT],
                ["search", PORT, "--explain", "-n", "1"],
                ["search", PORT, "--text", "--strict"],
                ["search", "zebra crossing quantum"],
                ["pack", PORT],
                ["get", "MEMORY.md#L1-L2", "--json"],
                ["get", "memory/none.md"],
                ["get", "../outside.md", "--json"],
                ["status", "--deep", "--json"],
                ["search", PORT, "--json"],
                ["explain", "--why-not", "MEMORY.md"],
                ["explain", "last", "--json"],
                ["recall", "--since", "2026-01", "--json"],
            ],
            [["search", PORT, "--backend", "nobody"], ["status", "--help"]],
            id="one-of-each",
        ),
        pytest.param(
            [
                ["search", PORT, "--lines", "1"],
                ["search", "after:2026-01"],
                ["get", "MEMORY.md"],
                ["get", "MEMORY.md", "--from", "1", "--lines", "2"],
                ["status"],
                ["explain", "nosuchtrace"],
                ["recall"],
            ],
            [["search", " "], ["search"]],
            id="others",
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_a_server_answers_to_the_byte_what_the_command_alone_would(
    place: Place, commands: list[list[str]], wrong_usage: list[list[str]]
) -> None:
    with serving(place):
        for words in [*commands, *wrong_usage]:
            assert (words, place.asked(*words)) == (words, place.alone(*words))

        assert place.counts() == (len(commands), len(wrong_usage))
        assert place.told["opened"] == 1


def test_a_workspace_is_found_from_within_and_by_every_spelling_of_the_option(place: Place) -> None:
    state = f"--state-dir={place.state_dir}"
    folder = place.workspace.parent
    spellings: list[tuple[list[str], Path]] = [
        ([state], place.workspace),
        ([f"-w{place.workspace.name}", state], folder),
        ([f"--workspace={place.workspace.name}", "--state-dir", place.state_dir.name], folder),
    ]
    with serving(place):
        expected = place.alone("search", PORT)
        for words, cwd in spellings:
            assert place.run(ASKING, "search", PORT, *words, folder=cwd) == expected

        assert place.counts() == (len(spellings), 0), place.told


@pytest.mark.thorough
def test_a_terminal_gets_the_same_colours_links_and_width(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)

    def on_terminal(program: Sequence[str], *words: str) -> str:
        primary, secondary = pty.openpty()
        with os.fdopen(primary, "rb", buffering=0) as screen, os.fdopen(secondary, "wb") as inner:
            command = [*program, *words, *place.options]
            process = subprocess.Popen(command, stdout=inner, stderr=inner, stdin=subprocess.DEVNULL)
            inner.close()
            shown = bytearray()
            try:
                while piece := screen.read(65536):
                    shown += piece
            except OSError:  # how a terminal ends
                pass
            process.wait(timeout=LIMIT_S)
        return _settled(shown.decode())

    with serving(place):
        for words in (["search", PORT], ["status"], ["get", "MEMORY.md"]):
            assert on_terminal(ASKING, *words) == on_terminal(ALONE, *words)
        shown = on_terminal(ASKING, "search", PORT)
        assert "\x1b[" in shown
        assert f"\x1b]8;;{place.workspace.resolve().as_uri()}/" in shown
        assert "\x1b" not in place.asked("search", PORT)[1]
        monkeypatch.setenv("TERM", "dumb")
        assert "\x1b]8" not in on_terminal(ASKING, "search", PORT)

        assert place.counts() == (6, 0)


@pytest.mark.thorough
def test_fifty_at_once_are_answered_each_with_its_own(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "CONNECT_S", LIMIT_S)
    for number in range(50):
        place.write(
            f"memory/note-{number}.md", f"The locker of member{number} has the number {7000 + number}.\n"
        )
    answers: dict[int, str] = {}

    def ask(number: int) -> None:
        words = ["search", f"locker of member{number}", "-n", "1", *place.options]
        frames = start.exchange(str(place.address), start.request_of(words))
        answers[number] = b"".join(data for kind, data in frames if kind == start.OUT).decode()

    with serving(place):
        threads = [threading.Thread(target=ask, args=(number,), daemon=True) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_S)

    assert [number for number in range(50) if f"number {7000 + number}." not in answers[number]] == []


def test_notes_and_settings_count_as_soon_as_they_are_changed(place: Place) -> None:
    with serving(place):
        place.write("memory/lighthouse.md", "The lighthouse keeper is called Ulrike.\n")
        found = place.asked("search", "who keeps the lighthouse?")
        assert "Ulrike" in found[1]

        place.config.write_text(SETTINGS.replace("{embedding", "{query: {maxResults: 1}, embedding"), "utf-8")
        assert place.asked("search", "ferry", "--json") == place.alone("search", "ferry", "--json")
        place.config.write_text("memory: {no_such_key: 1}", "utf-8")
        failed = place.asked("search", PORT)
        assert (failed[0], failed) == (1, place.alone("search", PORT))

        assert place.counts() == (3, 0)
        assert place.told["opened"] == 2


@pytest.mark.thorough
def test_the_memory_that_stays_open_sees_each_change_of_notes_and_weights(place: Place) -> None:
    with serving(place):
        for number in range(4):
            place.write("memory/lighthouse.md", f"The lighthouse keeper is called keeper{number}.\n")
            assert f"keeper{number}" in place.asked("search", "who keeps the lighthouse?")[1]
        assert place.alone("weights", "set", "builtin=0.5")[0] == 0
        answer = place.asked("search", PORT, "--explain", "--json")
        assert answer == place.alone("search", PORT, "--explain", "--json")
        assert '"weight": 0.5' in answer[1]
        (place.workspace / "memory/lighthouse.md").unlink()
        assert "keeper" not in place.asked("search", "who keeps the lighthouse?")[1]

        assert place.counts() == (6, 0)
        assert place.told["opened"] == 1


def test_who_is_not_the_same_is_left_to_his_own_process(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    copy = tmp_path / "elsewhere" / "composable_memory_start.py"
    copy.parent.mkdir()
    copy.write_text(f"{Path(start.__file__).read_text('utf-8')}# of another version", "utf-8")
    with serving(place):
        expected = place.alone("search", PORT)
        assert place.run([sys.executable, str(copy)], "search", PORT, *place.options) == expected
        monkeypatch.setenv("TZ", "Asia/Tokyo")
        assert place.asked("search", PORT) == expected
        monkeypatch.delenv("TZ")
        monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", place.config.name)
        assert place.run(ASKING, "search", PORT, *place.options, folder=place.config.parent) == expected

        assert place.counts() == (0, 3)


def test_settings_in_the_environment_are_those_of_the_client(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(place):
        monkeypatch.setenv("COMPOSABLE_MEMORY__QUERY__MAX_RESULTS", "1")
        monkeypatch.setenv("COMPOSABLE_MEMORY_NOW", "2026-01-02T03:04:05")
        answer = place.asked("search", "ferry", "--json")
        assert answer == place.alone("search", "ferry", "--json")

        assert place.counts() == (1, 0)


def test_only_its_owner_can_reach_it(place: Place) -> None:
    with serving(place):
        folder = place.address.parent
        modes = [oct(one.stat().st_mode & 0o777) for one in (folder, place.address)]
        assert modes == ["0o700", "0o600"]
        folder.chmod(0o755)
        assert place.asked("search", PORT)[0] == 0
        with pytest.raises(PermissionError):
            start.address_of(str(place.state_dir), str(place.workspace))
        folder.chmod(0o700)

        assert place.counts() == (0, 0)


def test_what_is_too_large_or_never_ends_is_cut_off_and_others_are_served(place: Place) -> None:
    def until_closed(message: bytes) -> bytes:
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(LIMIT_S)
            client.connect(start.reachable(str(place.address)))
            client.sendall(message)
            received = b""
            try:
                while piece := client.recv(4096):
                    received += piece
            except ConnectionResetError:
                pass
            return received

    with serving(place):
        assert until_closed((start.MAX_REQUEST_BYTES + 1).to_bytes(4, "big")) == b""
        assert until_closed(b"\0\0\0\x09not\0whole") == b""
        assert until_closed(b"\0\0") == b""  # and then nothing more
        assert place.asked("search", PORT) == place.alone("search", PORT)

        assert place.counts() == (1, 0)


@pytest.mark.thorough
def test_a_client_that_goes_away_leaves_the_server_well(place: Place) -> None:
    with serving(place) as server:
        for _ in range(5):
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(start.reachable(str(place.address)))
                client.sendall(start.request_of(["status", "--deep", *place.options]))
        assert place.asked("search", PORT) == place.alone("search", PORT)
        server.send_signal(signal.SIGTERM)
        assert server.wait(LIMIT_S) == 0

    assert not place.address.exists()


async def test_the_command_of_a_client_that_goes_away_or_of_a_server_that_stops_is_cancelled(
    tmp_path: Path,
) -> None:
    app, begun, cancelled = typer.Typer(), asyncio.Event(), asyncio.Event()

    async def search(*, as_json: AsJson = False) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    command(app, "search")(search)
    commands = {"search": get_command(app)}
    registry = await asyncio.to_thread(discover_backends)
    server = CommandServer(tmp_path / "socket", commands, registry, asyncio.Event())
    await server.start()
    for leave in ("client", "server"):
        begun.clear()
        cancelled.clear()
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "socket"))
        writer.write(await asyncio.to_thread(start.request_of, ["search"]))
        async with asyncio.timeout(LIMIT_S):
            await begun.wait()
            if leave == "client":
                writer.close()
            else:
                await server.stop()
            await cancelled.wait()
            if leave == "server":
                assert set(await reader.read()) <= {*start.BEAT, 0}  # no answer
        writer.close()


def hang(client: socket.socket, ended: threading.Event) -> None:
    ended.wait(LIMIT_S)


def die_at_work(client: socket.socket, ended: threading.Event) -> None:
    client.sendall(start.BEAT + bytes(4) + start.OUT + (20).to_bytes(4, "big") + b"half")


@pytest.mark.parametrize("behave", [hang, die_at_work])
def test_without_a_whole_answer_the_command_is_run_as_if_there_were_no_server(
    place: Place, behave: Callable[[socket.socket, threading.Event], None]
) -> None:
    expected = place.alone("search", PORT)
    (place.state_dir / start.FOLDER).mkdir(mode=0o700)
    ended, met = threading.Event(), threading.Event()

    def serve(listening: socket.socket) -> None:
        client, _ = listening.accept()
        with client:
            met.set()
            client.recv(65536)
            behave(client, ended)

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(start.reachable(str(place.address)))
        listening.listen()
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        answer = place.run(IMPATIENT, "search", PORT, *place.options)
        ended.set()

    assert met.is_set()
    assert answer == expected


def test_a_command_that_no_server_answers_ends_with_its_code_and_what_it_did_in_the_log(place: Place) -> None:
    codes = [place.run(IMPATIENT, "search", *words, *place.options)[0] for words in ([PORT], ["--none"])]

    assert codes == [0, 2]
    assert PORT in place.alone("explain", "last", "--json")[1]


@pytest.mark.thorough
def test_a_killed_server_is_missed_by_nobody_and_replaced(place: Place) -> None:
    with serving(place) as server:
        server.kill()
        server.wait(LIMIT_S)
        assert place.address.exists()
        assert place.asked("search", PORT) == place.alone("search", PORT)
        assert place.asked("serve", "status")[0] == 1
    with serving(place):
        assert place.asked("search", PORT) == place.alone("search", PORT)
        assert place.counts() == (1, 0)


def test_one_server_at_a_time_in_the_background_until_it_is_stopped(place: Place) -> None:
    place.state_dir = place.state_dir / ("a path that is too long for a socket " * 4)
    place.options[-1] = str(place.state_dir)
    code, told, _ = place.asked("serve", "--background", "--json")
    try:
        assert (code, json.loads(told)["running"]) == (0, True)
        for again in ([], ["--background"]):
            code, _, problem = place.alone("serve", *again)
            assert (code, str(json.loads(told)["pid"]) in problem) == (1, True)
        assert place.asked("search", PORT)[0] == 0
        assert place.counts()[0] == 1
        process = json.loads(told)["pid"]
        os.kill(process, signal.SIGSTOP)
        code, _, problem = place.run(IMPATIENT, "serve", "status", *place.options)
        os.kill(process, signal.SIGCONT)
        assert (code, "does not answer" in problem) == (1, True)
    finally:
        assert place.alone("serve", "stop")[0] == 0
    assert place.alone("serve", "stop")[0] == 1


@pytest.mark.parametrize("name", ["state_dir", "workspace"])
def test_a_server_ends_when_its_folder_is_gone_and_does_not_make_it_again(place: Place, name: str) -> None:
    folder: Path = getattr(place, name)
    with serving(place) as server:
        folder.rename(folder.with_name("elsewhere"))
        assert server.wait(LIMIT_S) == 0
        assert str(folder) in server.rest()[1]

    assert not folder.exists()


@pytest.mark.thorough
def test_a_background_server_that_cannot_start_says_why(place: Place) -> None:
    place.config.write_text("memory: {no_such_key: 1}", encoding="utf-8")

    code, _, problem = place.asked("serve", "--background")

    assert (code, "no_such_key" in problem) == (1, True)


def test_the_state_folder_is_the_one_of_the_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variables in (
        {},
        {"XDG_STATE_HOME": "relative"},
        {"XDG_STATE_HOME": str(tmp_path)},
        {"COMPOSABLE_MEMORY_STATE_DIR": "~/kept"},
    ):
        with monkeypatch.context() as changed:
            changed.delenv("XDG_STATE_HOME")
            for name, value in variables.items():
                changed.setenv(name, value)
            wanted = default_state_dir(os.environ)
            assert Path(start.default_state_dir()).expanduser() == wanted.expanduser()


def test_asking_imports_nothing_of_ours_and_no_other_package() -> None:
    program = "import sys; import composable_memory_start; print(*sorted(sys.modules))"
    said = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True,
                          cwd=Path(start.__file__).parent)  # fmt: skip
    names = {one.partition(".")[0] for one in said.stdout.split()}

    assert names - sys.stdlib_module_names == {"__main__", "composable_memory_start"}
