"""One server process, with a guard that ends it when we are gone, however we ended.

The guard is a shell, the parent of the server. It reads from a pipe that only we hold: when we die, by
whatever signal, the pipe closes, and the guard stops the server in good order, waits for it and clears up.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

__all__ = ["GuardedProcess"]

STOP_S = 5.0
"""How long a server may take to write out what it holds; it needs about 0.1 s."""

# The server gets the lock as its standard input, and from then on nobody else has it: it is held exactly as
# long as the server lives.
GUARD = """
"$@" <&1 >&2 &
server=$!
exec >&2
read -r _
kill -TERM "$server"
wait "$server"
rm -rf "$0"
exit 0
"""


class GuardedProcess:
    """A server that holds a lock while it lives, and lives no longer than we do. All calls block."""

    def __init__(self, command: Sequence[str], *, lock: int, log: int, folder: Path) -> None:
        """Start it; `lock` and `log` are descriptors that it gets, `folder` is removed when it has ended.

        Raises:
            OSError: no process can be started.
        """
        self._folder = folder
        self._guard = subprocess.Popen(  # noqa: S603 - our own words and paths, and no shell expands them
            ["/bin/sh", "-c", GUARD, str(folder), *command],
            stdin=subprocess.PIPE,
            stdout=lock,
            stderr=log,
            cwd="/",
            start_new_session=True,  # so that Ctrl-C in a terminal is ours alone to act on
            umask=0o077,  # what the server writes is nobody else's to read, wherever its folder is
        )

    @property
    def guard_pid(self) -> int:
        """Return the process number of the guard, and of the group in which it and the server are."""
        return self._guard.pid

    def stop(self) -> None:
        """End the server, by force after some seconds, and leave nothing; calling it again does nothing."""
        if self._guard.stdin is None or self._guard.stdin.closed:
            return
        self._guard.stdin.close()
        try:
            ended = self._guard.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._kill()
            ended = self._guard.wait()
        if ended != 0:  # the guard was killed, so the server may live, and the folder be there
            self._end_group()
            shutil.rmtree(self._folder, ignore_errors=True)

    def _end_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._guard.pid, signal.SIGTERM)
            for _ in range(int(STOP_S / 0.01)):
                time.sleep(0.01)
                os.killpg(self._guard.pid, 0)
            self._kill()

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._guard.pid, signal.SIGKILL)
