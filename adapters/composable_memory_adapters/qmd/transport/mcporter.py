"""Sends requests to QMD through mcporter, a command that calls the tools of MCP servers.

mcporter gets our configuration, in which `server_name` is this memory's own QMD. A server with that name in
the user's configuration is ignored: it would search the user's own index, and for unknown collections QMD
finds nothing, without any error. mcporter's import of editors' configurations is turned off too. Users who
want another configuration name it in the command: with `mcporter --config FILE`, only that file decides which
server is used. A command in it is started here, with the environment of this memory's QMD and so with its
index; a URL in it may be anywhere, and queries go there.

mcporter's daemon keeps a server, and the models in it, loaded between requests. It runs as our child in its
own folder, because one detached by mcporter would outlive us. While ours does not run, each request starts
its own server.
"""

import asyncio
import json
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory.supervision.run_command import Reply, run_command
from composable_memory.supervision.tasks import until_done
from composable_memory.types import JsonValue
from composable_memory_adapters.qmd.installation import command_words
from composable_memory_adapters.qmd.settings import McporterSettings
from composable_memory_adapters.qmd.transport.replies import (
    SEARCH,
    TOOL,
    UNKNOWN_COLLECTION,
    arguments_of,
    decoded,
    error_text,
    has_failed,
    hits_of,
    refusal,
    results_in,
)
from composable_memory_adapters.qmd.types import (
    BACKEND_ID,
    Hit,
    Home,
    Installation,
    SearchRequest,
    TransportName,
)
from composable_memory_ops_logs.private_files import replace_file

CONFIG = "mcporter.json"
INSTALL = "install it with `npm install -g mcporter`, or set `memory.qmd.mcporter.command` to where it is"

SPARE_S = 10.0
"""Added to mcporter's own limit: it must not time out, because it then detaches a daemon of its own."""

IDLE_MS = 1_800_000
"""A daemon without requests ends after this time, and its models with it; the next request restarts it."""

DAEMON_LIFE_S = 30 * 86_400.0
RESTART_S = 60.0
"""Minimum time between two starts of the daemon."""

POLL_S = 0.05
MAX_TIMEOUTS = 3
"""After this many timeouts in a row, the daemon is assumed to hang, and is ended."""

MAX_VALUES = 1000
"""Limit of lines in noisy output that are tried as the beginning of an answer."""

_ANSWER = re.compile(r"^[\[{]", re.MULTILINE)
_NO_TOOL = re.compile(r"tool \S+ not found|unknown tool", re.IGNORECASE)


def lacking(settings: McporterSettings, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return what is missing to start mcporter and how to get it, or None; reads the disk."""
    try:
        words = _words(settings, environ)
    except BackendUnavailable as error:
        return f"{error.missing}; {error.fix}"
    if shutil.which(words[0], path=environ.get("PATH")) is None:
        return f"the command `{words[0]}` was not found; {INSTALL}"
    return None


class Mcporter:
    """Implements `Transport`. Requests may run concurrently; `start` is for memories that stay open."""

    name: TransportName = "mcporter"
    is_up = True

    def __init__(self, settings: McporterSettings, installation: Installation, home: Home) -> None:
        self._settings = settings
        self._installation = installation
        self._home = home
        self._wants_daemon = False
        self._daemon: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._daemon_dir: Path | None = None
        self._timeouts = 0
        self._problem: str | None = None

    @property
    def is_warm(self) -> bool:
        """Return whether mcporter's daemon is running, so that a request need not start a server."""
        return self._daemon_dir is not None

    @property
    def problem(self) -> str | None:
        """Return why mcporter's daemon is not running although it should, if that is known."""
        return None if self.is_warm else self._problem

    def start(self) -> None:
        """Start mcporter's daemon in the background, if the settings want one; no request waits for it."""
        self._wants_daemon = self._settings.start_daemon
        self._revive_daemon()

    async def ask(self, request: SearchRequest, *, timeout_s: float) -> Sequence[Hit]:
        """Return the documents that match, best first; see `Transport`."""
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
                operation=SEARCH,
                has_grace=False,  # otherwise the answer would come after the deadline
            )
        except BackendTimeout:
            self._note_timeout(daemon_dir)
            raise
        except BackendUnavailable as error:
            raise _unavailable(error.missing, INSTALL) from error
        self._timeouts = 0
        return _hits_in(reply, self._settings.server_name)

    async def close(self) -> None:
        """Stop mcporter's daemon and the server in it; a second call does nothing."""
        self._wants_daemon = False
        if self._daemon is not None:
            self._daemon.cancel()
            await asyncio.wait([self._daemon])

    # --- the daemon -----------------------------------------------------------------------------------------

    def _revive_daemon(self) -> None:
        now = asyncio.get_running_loop().time()
        is_gone = self._daemon is None or self._daemon.done()
        if self._wants_daemon and is_gone and now >= self._not_before:
            self._not_before = now + RESTART_S
            self._daemon = asyncio.create_task(self._run_daemon(), name="qmd-mcporter")

    async def _run_daemon(self) -> None:
        """Run the daemon until it ends or this is cancelled."""
        making = asyncio.ensure_future(asyncio.to_thread(_new_folder))
        cancelled = await until_done(making)
        folder = making.result()
        if cancelled is not None:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
            raise cancelled
        announcing = asyncio.create_task(self._announce(folder), name="qmd-mcporter-announce")
        try:
            reply = await run_command(
                [*await self._command(), "daemon", "start", "--foreground"],
                environ=self._environ(folder),
                cwd=self._home.root,
                timeout_s=DAEMON_LIFE_S,
                owner=BACKEND_ID,
                operation="start mcporter's daemon",
                overflow="keep-end",
            )
            self._problem = _last_line(reply.stderr) or _last_line(reply.stdout)
        except (BackendError, OSError) as error:
            self._problem = str(error)
        finally:
            announcing.cancel()
            self._daemon_dir = None
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _announce(self, folder: Path) -> None:
        """Route requests to the daemon as soon as it has recorded where it listens."""
        while not await asyncio.to_thread(_is_listening, folder):  # noqa: ASYNC110 - it notifies nobody
            await asyncio.sleep(POLL_S)
        self._daemon_dir = folder

    def _note_timeout(self, daemon_dir: Path | None) -> None:
        # A single timeout may be due to a model that is loading, which ending the daemon would unload.
        self._timeouts += daemon_dir is not None
        if self._timeouts >= MAX_TIMEOUTS and self._daemon is not None:
            self._timeouts = 0
            self._daemon.cancel()

    # --- how it is started ----------------------------------------------------------------------------------

    async def _command(self) -> list[str]:
        """Return the words that start mcporter, with our configuration unless they name another."""
        words = _words(self._settings, self._home.environ)
        if any(word.partition("=")[0] == "--config" for word in words):
            return words
        file = self._home.root / CONFIG
        await asyncio.to_thread(_write_if_changed, file, json.dumps(self._config(), indent=2) + "\n")
        return [*words, "--config", str(file)]

    def _config(self) -> dict[str, JsonValue]:
        program, *options = self._installation.command
        server: dict[str, JsonValue] = {
            "command": program,
            "args": [*options, "--index", "index", "mcp"],
            "cwd": str(self._home.root),
        }
        servers: dict[str, JsonValue] = {self._settings.server_name: server}
        return {"imports": [], "daemonIdleTimeoutMs": IDLE_MS, "mcpServers": servers}

    def _environ(self, daemon_dir: Path | None) -> dict[str, str]:
        """Return QMD's environment, which its server inherits, and whether mcporter should use its daemon."""
        if daemon_dir is None:
            return {**self._home.environ, "MCPORTER_DISABLE_KEEPALIVE": "*"}
        kept = {"MCPORTER_KEEPALIVE": self._settings.server_name, "MCPORTER_DAEMON_DIR": str(daemon_dir)}
        return {**self._home.environ, **kept}


def _new_folder() -> Path:
    """Return a new folder for a daemon that listens on a socket in it."""
    # Below the state folder, the path could be too long for a socket.
    return Path(tempfile.mkdtemp(prefix="mcporter-"))


def _is_listening(folder: Path) -> bool:
    return any(folder.glob("daemon/daemon-*.json"))


def _words(settings: McporterSettings, environ: Mapping[str, str]) -> list[str]:
    return command_words(settings.command, environ, setting="memory.qmd.mcporter.command")


def _write_if_changed(file: Path, text: str) -> None:
    # A daemon restarts if its configuration is newer than itself, so a correct one is left unchanged.
    try:
        if file.exists() and file.read_text(encoding="utf-8", errors="replace") == text:
            return
        replace_file(file, text.encode(), survives="kill")
    except OSError as error:
        what = f"its configuration {file} cannot be written ({error.strerror})"
        raise _unavailable(what, "check that folder") from error


def _call(server: str, request: SearchRequest, timeout_s: float) -> list[str]:
    limit_ms = round((timeout_s + SPARE_S) * 1000)
    arguments = json.dumps(arguments_of(request))
    tool = ["--server", server, "--tool", TOOL]
    return ["call", *tool, "--args", arguments, "--output", "json", "--timeout", str(limit_ms)]


# --- what it prints -----------------------------------------------------------------------------------------


def _hits_in(reply: Reply, server: str) -> list[Hit]:
    """Return the hits in mcporter's output, whatever is printed around them.

    Raises:
        BackendError: the tool failed, could not be called, or its answer cannot be parsed.
    """
    answers = (one for one in _values_in(reply.stdout) if results_in(one) is not None or has_failed(one))
    answer = next(answers, None)
    if reply.code != 0 or has_failed(answer):
        raise _failure(reply, answer, server)
    if answer is None:
        raise BackendGarbled(
            BACKEND_ID,
            SEARCH,
            excerpt=reply.stdout.strip() or f"nothing on stdout; stderr: {reply.stderr.strip() or 'nothing'}",
            expected=f"the results of the tool `{TOOL}` from mcporter",
        )
    return hits_of(results_in(answer), encoded=False)


def _values_in(stdout: str) -> Iterator[object]:
    """Yield the JSON values that begin a line."""
    return decoded(stdout, (match.start() for match in islice(_ANSWER.finditer(stdout), MAX_VALUES)))


def _failure(reply: Reply, answer: object, server: str) -> BackendError:
    """Return why a call failed: QMD rejected it, or mcporter could not reach QMD."""
    failed = answer if isinstance(answer, dict) else {}
    printed = _last_line(reply.stderr) or _last_line(reply.stdout)
    message = error_text(failed) or printed or "it printed nothing"
    if _NO_TOOL.search(message):
        what = f"the server {server!r} has no tool `{TOOL}` ({message})"
        return _unavailable(what, "set `memory.qmd.mcporter.server_name` to a QMD of version 2.1 or newer")
    error = refusal(reply.code or 1, "", message)
    is_known = not isinstance(error, BackendRejected) or error.status == UNKNOWN_COLLECTION
    if is_known or failed.get("isError"):
        return error
    what = f"mcporter could not ask the server {server!r} ({message})"
    return _unavailable(what, f"try `mcporter list {shlex.quote(server)}` with the same `--config`")


def _last_line(text: str) -> str | None:
    """Return the last line of a text that is not blank, or None."""
    return text.strip().rpartition("\n")[2] or None


def _unavailable(what: str, fix: str) -> BackendUnavailable:
    return BackendUnavailable(BACKEND_ID, what, fix=fix, operation=SEARCH)
