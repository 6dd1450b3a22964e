"""`cmem watch` as a process: what it tells, how it ends, and what it says to a service manager."""

import json
import os
import re
import select
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli_process import RunningCli, run_cli
from tests.variants import variants

LIMIT_S = 60
QUICK = "memory: {embedding: {provider: none}, builtin: {sync: {watchDebounceMs: 20}}}"

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends signals")


class Watch:
    """A running `cmem watch`."""

    def __init__(self, process: RunningCli, workspace: Path) -> None:
        self.process = process
        self.workspace = workspace

    def line(self) -> str:
        return self.process.stdout.readline()

    def document(self) -> dict[str, object]:
        document = json.loads(self.line())
        assert isinstance(document, dict)
        return document

    def write(self, path: str, text: str | bytes) -> None:
        """Put a note in its place whole, so that no sync can meet it between its beginning and its end."""
        draft = self.workspace.with_name("draft")
        draft.write_bytes(text if isinstance(text, bytes) else text.encode())
        draft.replace(self.workspace / path)

    def end(self, with_signal: signal.Signals = signal.SIGTERM) -> tuple[int, str, str]:
        """Send a signal; return the exit code and what else was written."""
        self.process.send_signal(with_signal)
        out, err = self.process.rest()
        return self.process.wait(), out, err


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    file = tmp_path / "config.yaml"
    file.write_text(QUICK, encoding="utf-8")
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(file))
    monkeypatch.setenv("NO_COLOR", "1")
    return file


@pytest.fixture
def place(workspace: Path, state_dir: Path, settings: Path) -> list[str]:
    return ["--workspace", str(workspace), "--state-dir", str(state_dir)]


@contextmanager
def watching(place: list[str], *options: str) -> Iterator[Watch]:
    with RunningCli("watch", *place, *options) as process:
        yield Watch(process, Path(place[1]))


def test_it_tells_of_every_sync_that_changed_something(place: list[str], workspace: Path) -> None:
    with watching(place) as watch:
        assert watch.line() == (
            f"Watching {workspace.resolve()}: 2 folders watched, with their subfolders. Stop with Ctrl-C.\n"
        )
        figures = r"\d+ files? indexed, 0 removed, \d+ chunks?, 0 embedded, 0 to embed, in \d+ ms\n"
        assert re.fullmatch(r"\d\d:\d\d:\d\d  builtin, boot: " + figures, watch.line())
        watch.write("memory/new.md", "The lighthouse is closed.")
        assert re.fullmatch(r"\d\d:\d\d:\d\d  builtin, watch: 1 " + figures[4:], watch.line())

        assert watch.end() == (0, "", "")


@pytest.mark.parametrize("with_signal", variants([signal.SIGINT, signal.SIGTERM], signal.SIGTERM))
def test_both_signals_end_it_well(place: list[str], with_signal: signal.Signals) -> None:
    with watching(place, "--json") as watch:
        watch.document()

        assert watch.end(with_signal) == (0, "", "")


def test_it_ends_when_a_workspace_in_the_home_folder_is_gone(
    place: list[str], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(workspace.parent))
    with RunningCli("watch", f"--workspace=~/{workspace.name}", *place[2:]) as process:
        assert process.stdout.readline()
        workspace.rename(workspace.with_name("elsewhere"))
        assert process.wait(LIMIT_S) == 0


def test_it_ends_when_the_state_folder_is_gone(place: list[str], state_dir: Path) -> None:
    with watching(place, "--json") as watch:
        watch.document()
        state_dir.rename(state_dir.with_name("elsewhere"))
        watch.write("memory/new.md", "The lighthouse is closed.")
        assert watch.process.wait(LIMIT_S) == 0

    assert not state_dir.exists()


def test_every_document_stands_on_a_line(place: list[str]) -> None:
    with watching(place, "--json") as watch:
        boot = watch.document()
        watch.write("memory/new.md", "The lighthouse is closed.")
        seen = watch.document()

    assert (boot["reason"], boot["embeddingsPending"], boot["problems"]) == ("boot", 0, [])
    assert (seen["reason"], seen["backend"], seen["filesIndexed"]) == ("watch", "builtin", 1)


def test_a_new_problem_is_told_once(place: list[str]) -> None:
    with watching(place, "--json") as watch:
        watch.document()
        watch.write("memory/broken.md", b"\xff no text")
        told = watch.document()
        watch.write("memory/new.md", "The lighthouse is closed.")
        watch.document()
        _, _, err = watch.end()

    assert told["problems"]
    assert err.count("problem:") == 1


@pytest.mark.thorough
def test_two_may_watch_the_same_notes(place: list[str]) -> None:
    with watching(place, "--json") as one, watching(place, "--json") as other:
        one.document()
        other.document()
        one.write("memory/new.md", "The lighthouse is closed.")

        (one_ended, one_told, one_err), (other_ended, other_told, other_err) = ended(one, other)

    assert (one_ended, other_ended, one_err, other_err) == (0, 0, "", "")
    assert one_told + other_told


def ended(*watches: Watch) -> list[tuple[int, str, str]]:
    """End all of them, when one has told of something."""
    streams = [watch.process.stdout.fileno() for watch in watches]
    assert select.select(streams, [], [], LIMIT_S)[0]
    return [watch.end() for watch in watches]


@pytest.mark.thorough
def test_nothing_is_missed_while_the_kernel_loses_events(place: list[str]) -> None:
    """The process is held up until the kernel's queue has overflowed; the one note comes after that."""
    limit = Path("/proc/sys/fs/inotify/max_queued_events")
    if not limit.exists() or int(limit.read_text(encoding="ascii")) > 20_000:
        pytest.skip("the queue of the kernel is too long, or another")
    with watching(place, "--json") as watch:
        watch.document()
        watch.process.send_signal(signal.SIGSTOP)
        for number in range(12_000):
            (watch.workspace / "memory" / f"n{number}.log").touch()
        (watch.workspace / "memory" / "deep").mkdir()
        watch.write("memory/deep/new.md", "The lighthouse is closed.")
        watch.process.send_signal(signal.SIGCONT)
        assert watch.document()["filesIndexed"] == 1
        watch.write("memory/deep/newer.md", "The harbour as well.")
        assert watch.document()["filesIndexed"] == 1


def test_where_nothing_would_follow_the_notes_it_fails(place: list[str], settings: Path) -> None:
    for text in ("{sync: {watch: false}}", "{enabled: false}"):
        settings.write_text(f"memory: {{embedding: {{provider: none}}, builtin: {text}}}", encoding="utf-8")

        run = run_cli("watch", *place)

        assert (run.returncode, run.stdout) == (1, "")
        assert "memory.builtin.sync.watch" in run.stderr
        assert "memory.builtin.sync.interval_minutes" in run.stderr


def test_without_a_watch_it_says_that_it_goes_by_the_interval(place: list[str], settings: Path) -> None:
    sync = "{sync: {watch: false, intervalMinutes: 5}}"
    settings.write_text(f"memory: {{embedding: {{provider: none}}, builtin: {sync}}}", encoding="utf-8")
    with watching(place) as watch:
        told = watch.line()
        assert [one for one in ("memory.builtin.sync.watch is off", "5 minutes") if one not in told] == []


def test_where_several_follow_the_notes_each_says_how(
    place: list[str], settings: Path, tmp_path: Path
) -> None:
    qmd = tmp_path / "qmd"
    qmd.write_text("#!/bin/sh\necho qmd 2.8.3\n", encoding="utf-8")
    qmd.chmod(0o755)
    section = f"{{command: {qmd}, daemon: {{enabled: false}}, update: {{on_boot: false}}}}"
    backends = f"{{builtin: , qmd: {section}}}"
    settings.write_text(f"memory: {{embedding: {{provider: none}}, backends: {backends}}}", encoding="utf-8")
    with watching(place) as watch:
        told = watch.line()
        assert [
            one for one in ("builtin: 2 folders", "qmd: not watched", "5 minutes") if one not in told
        ] == []


@pytest.mark.skipif(not hasattr(socket, "AF_UNIX"), reason="there is no such socket")
@pytest.mark.parametrize("is_abstract", [False, True])
def test_a_service_manager_hears_when_it_is_ready_and_when_it_ends(
    place: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_abstract: bool
) -> None:
    if is_abstract and sys.platform != "linux":
        pytest.skip("only Linux has sockets without a file")
    name = f"cmem-watch-{os.getpid()}" if is_abstract else str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{name}" if is_abstract else name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}" if is_abstract else name)
        manager.settimeout(LIMIT_S)
        with watching(place) as watch:
            assert manager.recv(100) == b"READY=1"
            assert watch.end()[0] == 0
            assert manager.recv(100) == b"STOPPING=1"
