"""Puts questions to mcporter, and keeps its daemon running for who stays open."""

import asyncio
import json
import os
import secrets
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from composable_memory.errors import BackendError, BackendTimeout, BackendUnavailable
from composable_memory.supervision.command import run_command
from composable_memory.types import JsonValue
from composable_memory_adapters.qmd.runtime.index_config import replace_file
from composable_memory_adapters.qmd.settings import McporterSettings
from composable_memory_adapters.qmd.transport.mcporter.answers import (
    OPERATION,
    TOOL,
    hits_in,
    last_line,
    unavailable,
)
from composable_memory_adapters.qmd.values import (
    BACKEND_ID,
    CANDIDATES,
    Hit,
    Home,
    Installation,
    SearchRequest,
)

__all__ = ["Mcporter", "lacking"]

CONFIG = "mcporter.json"
INSTALL = "install it with `npm install -g mcporter`, or set `memory.qmd.mcporter.command` to where it is"

SPARE_S = 10.0
"""How much later than us mcporter would give up. It must not, as it would then detach a daemon of its own."""

IDLE_MS = 1_800_000
"""A daemon that nobody asks ends after so long, and its models with it; a question starts it again."""

DAEMON_LIFE_S = 30 * 86_400.0
RESTART_S = 60.0
"""How long after its start a daemon that has ended is not started again."""

LOOK_AGAIN_S = 0.05
MOST_TIMEOUTS = 3
"""After so many questions in a row without an answer, the daemon is taken to hang, and is ended."""


def lacking(settings: McporterSettings, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return what is missing to start mcporter and how to get it, or None; looks at the disk."""
    try:
        words = _words(settings.command)
    except BackendUnavailable as error:
        return f"{error.missing}; {error.fix}"
    if shutil.which(words[0], path=environ.get("PATH")) is None:
        return f"the command `{words[0]}` is not there; {INSTALL}"
    return None


class Mcporter:
    """Keeps `Searcher`. Questions that come at once run side by side; `start` is for who stays open."""

    def __init__(self, settings: McporterSettings, installation: Installation, home: Home) -> None:
        self._settings = settings
        self._installation = installation
        self._home = home
        self._wants_daemon = False
        self._serving: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._daemon_dir: Path | None = None
        self._timeouts = 0
        self._problem: str | None = None

    @property
    def is_warm(self) -> bool:
        """Say whether mcporter's daemon runs, so that a question need not start a server."""
        return self._daemon_dir is not None

    @property
    def problem(self) -> str | None:
        """Return why mcporter's daemon does not run although it should, as far as that is known."""
        return None if self.is_warm else self._problem

    def start(self) -> None:
        """Start mcporter's daemon in the background, if the settings want one; no question waits for it."""
        self._wants_daemon = self._settings.start_daemon
        self._revive_daemon()

    async def ask(self, request: SearchRequest, *, timeout_s: float) -> Sequence[Hit]:
        """Return the documents that answer, best first; see `Searcher`."""
        self._revive_daemon()
        daemon_dir = self._daemon_dir
        command = await self._command()
        try:
            reply = await run_command(
                [*command, *_call(self._settings.server_name, request, timeout_s)],
                environ=self._environ(daemon_dir),
                cwd=self._home.root,
                timeout_s=timeout_s,
                owner=BACKEND_ID,
                operation=OPERATION,
                has_grace=False,  # or the answer would be later than it may be
            )
        except BackendTimeout:
            self._note_timeout(daemon_dir)
            raise
        except BackendUnavailable as error:
            raise unavailable(error.missing, INSTALL) from error
        self._timeouts = 0
        return hits_in(reply, self._settings.server_name)

    async def close(self) -> None:
        """End mcporter's daemon and the server in it; calling it again does nothing."""
        self._wants_daemon = False
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.wait([self._serving])

    # --- the daemon -----------------------------------------------------------------------------------------

    def _revive_daemon(self) -> None:
        now = asyncio.get_running_loop().time()
        is_gone = self._serving is None or self._serving.done()
        if self._wants_daemon and is_gone and now >= self._not_before:
            self._not_before = now + RESTART_S
            self._serving = asyncio.create_task(self._serve(), name="qmd-mcporter")

    async def _serve(self) -> None:
        """Run the daemon until it ends or this is cancelled."""
        folder = await asyncio.to_thread(_fresh_folder)
        announcing = asyncio.create_task(self._announce(folder), name="qmd-mcporter-announce")
        try:
            await asyncio.to_thread(folder.mkdir, mode=0o700)
            reply = await run_command(
                [*await self._command(), "daemon", "start", "--foreground"],
                environ=self._environ(folder),
                cwd=self._home.root,
                timeout_s=DAEMON_LIFE_S,
                owner=BACKEND_ID,
                operation="start mcporter's daemon",
                overflow="keep-end",
            )
            self._problem = last_line(reply.stderr) or last_line(reply.stdout)
        except (BackendError, OSError) as error:
            self._problem = str(error)
        finally:
            announcing.cancel()
            self._daemon_dir = None
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _announce(self, folder: Path) -> None:
        """Let questions go to the daemon as soon as it has written down where it listens."""
        while not await asyncio.to_thread(_is_listening, folder):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(LOOK_AGAIN_S)
        self._daemon_dir = folder

    def _note_timeout(self, daemon_dir: Path | None) -> None:
        # One question without an answer may be waiting for a model, which ending the daemon would unload.
        self._timeouts += daemon_dir is not None
        if self._timeouts >= MOST_TIMEOUTS and self._serving is not None:
            self._timeouts = 0
            self._serving.cancel()

    # --- how it is started ----------------------------------------------------------------------------------

    async def _command(self) -> list[str]:
        """Return the words that start mcporter, with our configuration unless they name another."""
        words = _words(self._settings.command)
        if any(word.partition("=")[0] == "--config" for word in words):
            return words
        file = self._home.root / CONFIG
        await asyncio.to_thread(_keep_written, file, self._config())
        return [*words, "--config", str(file)]

    def _config(self) -> str:
        program, *options = self._installation.command
        server: dict[str, JsonValue] = {
            "command": program,
            "args": [*options, "--index", "index", "mcp"],
            "cwd": str(self._home.root),
        }
        config: dict[str, JsonValue] = {
            "imports": [],
            "daemonIdleTimeoutMs": IDLE_MS,
            "mcpServers": {self._settings.server_name: server},
        }
        return json.dumps(config, indent=2) + "\n"

    def _environ(self, daemon_dir: Path | None) -> dict[str, str]:
        """Return QMD's environment, which its server inherits, and whether the daemon is to be asked."""
        if daemon_dir is None:
            return {**self._home.environ, "MCPORTER_DISABLE_KEEPALIVE": "*"}
        kept = {"MCPORTER_KEEPALIVE": self._settings.server_name, "MCPORTER_DAEMON_DIR": str(daemon_dir)}
        return {**self._home.environ, **kept}


def _fresh_folder() -> Path:
    """Return a folder that is not there yet, for a daemon that listens on a socket in it."""
    # Below the folder of the state, its name could be too long for a socket.
    return Path(tempfile.gettempdir(), f"mcporter-{secrets.token_hex(6)}")


def _is_listening(folder: Path) -> bool:
    return any(folder.glob("daemon/daemon-*.json"))


def _words(command: str) -> list[str]:
    """Return the words of a command as a shell would take them, with the user's folder for `~`.

    Raises:
        BackendUnavailable: it is no command.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise _unreadable(command, str(error)) from error
    if not words or "\0" in command:
        raise _unreadable(command, "it names nothing")
    expanded = os.path.expanduser  # leaves alone what it cannot expand, where that of a Path raises
    return [expanded(word) for word in words]


def _keep_written(file: Path, text: str) -> None:
    # A daemon with a newer configuration than it knows starts anew; so what is right is left alone.
    try:
        if file.exists() and file.read_text(encoding="utf-8", errors="replace") == text:
            return
        replace_file(file, text)
    except OSError as error:
        what = f"its configuration {file} cannot be written ({error.strerror})"
        raise unavailable(what, "look at that folder") from error


def _call(server: str, request: SearchRequest, timeout_s: float) -> list[str]:
    given_up_ms = round((timeout_s + SPARE_S) * 1000)
    arguments = json.dumps(_arguments(request))
    tool = ["--server", server, "--tool", TOOL]
    return ["call", *tool, "--args", arguments, "--output", "json", "--timeout", str(given_up_ms)]


def _arguments(request: SearchRequest) -> dict[str, JsonValue]:
    what: dict[str, JsonValue] = {"query": request.text}
    if not request.expand:
        searches: list[JsonValue] = [{"type": one.kind, "query": one.text} for one in request.searches]
        what = {"searches": searches, "rerank": False}
    return {
        **what,
        "collections": list(request.collections),
        "limit": request.limit,
        "candidateLimit": max(CANDIDATES, request.limit),
    }


def _unreadable(command: str, problem: str) -> BackendUnavailable:
    what = f"its command {command!r} cannot be read ({problem})"
    return unavailable(what, "correct `memory.qmd.mcporter.command`")
