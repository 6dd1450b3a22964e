"""Runs the command line as a process without the second that a new Python needs to import it."""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Self

__all__ = ["RunningCli", "run_cli"]

LIMIT_S = 120
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    [
        "composable_memory.cli.commands",
        "composable_memory.cli.plugin_api",
        "composable_memory.cli.search",
        "composable_memory.cli.serve",
        "composable_memory.http_server.app",
        "composable_memory.http_server.listening",
        "composable_memory.runtime.opening",
        "composable_memory_adapters.builtin.backend",
        "composable_memory_adapters.embedders.wordllama",
        "tests.loaded_vectors",
    ]
)


def run_cli(
    *args: str,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    text: str = "",
) -> "subprocess.CompletedProcess[str]":
    """Run `cmem` in a process forked where its modules and word vectors are loaded; `text` is its stdin.

    All else is as in a process of its own: the streams, the folder, the variables, and how it ends.
    """
    with tempfile.TemporaryDirectory() as streams:
        paths = [Path(streams, name) for name in ("stdin", "stdout", "stderr")]
        for path, content in zip(paths, (text, "", ""), strict=True):
            path.write_text(content, encoding="utf-8")
        process = _PROCESSES.Process(
            target=_run, args=(args, paths, str(folder or Path.cwd()), dict(environ or os.environ))
        )
        process.start()
        process.join(LIMIT_S)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(args, LIMIT_S)
        printed, problems = (path.read_text(encoding="utf-8") for path in paths[1:])
        return subprocess.CompletedProcess(args, process.exitcode, printed, problems)


class RunningCli:
    """A command that runs until it is told to end, forked as by `run_cli`: `subprocess.Popen` in short.

    Its streams are pipes. The end of the block kills it.
    """

    stdin: IO[str]
    stdout: IO[str]
    stderr: IO[str]

    def __init__(self, *args: str, environ: Mapping[str, str] | None = None) -> None:
        theirs, ours = [], []
        for number in range(3):
            reader, writer = _PROCESSES.Pipe(duplex=False)
            theirs.append(writer if number else reader)
            ours.append(reader if number else writer)
        self._process = _PROCESSES.Process(
            target=_run, args=(args, theirs, str(Path.cwd()), dict(environ or os.environ))
        )
        self._process.start()
        self.stdin, self.stdout, self.stderr = (
            os.fdopen(os.dup(one.fileno()), mode, encoding="utf-8")
            for one, mode in zip(ours, "wrr", strict=True)
        )
        for one in (*theirs, *ours):
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._process.join()
        with suppress(BrokenPipeError):
            self.stdin.close()
        self.stdout.close()
        self.stderr.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, None while it runs."""
        return self._process.exitcode

    def wait(self, timeout: float = LIMIT_S) -> int:
        """Return the exit code once it has ended."""
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        self._process.kill()

    def rest(self) -> tuple[str, str]:
        """Return what it still writes to stdout and stderr until it ends, with no more input."""
        self.stdin.close()
        self.wait()
        return self.stdout.read(), self.stderr.read()


def _run(
    args: Sequence[str], streams: Sequence[Path | Connection], folder: str, environ: Mapping[str, str]
) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    for number, stream in enumerate(streams):
        if isinstance(stream, Path):
            opened = os.open(stream, os.O_RDWR)
            os.dup2(opened, number)
            os.close(opened)
        else:
            os.dup2(stream.fileno(), number)
            stream.close()
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", closefd=False) for number, mode in enumerate("rww")
    )
    sys.argv = ["cmem", *args]
    from composable_memory.cli import main

    main()
