"""Runs the command line as a process without the half second that a new Python needs to import it."""

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["run_cli"]

LIMIT_S = 120
_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(
    [
        "composable_memory.cli.commands",
        "composable_memory.cli.plugin_api",
        "composable_memory.runtime.opening",
        "composable_memory_adapters.builtin.backend",
        "composable_memory_adapters.embedders.wordllama",
    ]
)


def run_cli(
    *args: str,
    folder: Path | None = None,
    environ: Mapping[str, str] | None = None,
    text: str = "",
) -> "subprocess.CompletedProcess[str]":
    """Run `cmem` in a process that is forked where its modules are loaded; `text` is its stdin.

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


def _run(args: Sequence[str], streams: Sequence[Path], folder: str, environ: Mapping[str, str]) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    for number, path in enumerate(streams):
        opened = os.open(path, os.O_RDWR)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, encoding="utf-8", closefd=False) for number, mode in enumerate("rww")
    )
    sys.argv = ["cmem", *args]
    from composable_memory.cli import main

    main()
