"""A server over HTTP in a process of its own."""

import os
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import httpx
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from composable_memory.testing import SEED_NOTES
from composable_memory_ops_logs.quick_dataclass import dataclass
from tests.cli_process import RunningCli, run_cli
from tests.integration.mcp_calls import WORDS_ONLY
from tests.notes import write_notes

MCP = ("mcp", "--http", "--port", "0")
RESIDENT = ("serve", *MCP[1:])
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A server of its own process."""

    process: RunningCli
    url: str
    token: Path

    @property
    def state_dir(self) -> Path:
        return self.token.parent

    @property
    def workspace(self) -> Path:
        """Where `running_for_many` puts it."""
        return self.state_dir.parent / "workspace"

    @property
    def auth(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.token.read_text(encoding='ascii')}"}

    @asynccontextmanager
    async def client(self, **headers: str) -> AsyncIterator[Client]:
        async with (
            httpx2.AsyncClient(headers={**self.auth, **headers}, timeout=60) as http,
            Client(streamable_http_client(self.url, http_client=http)) as client,
        ):
            yield client

    def post(self, body: bytes = b"{}", **headers: str) -> httpx.Response:
        return httpx.post(self.url, content=body, headers={**JSON, **self.auth, **headers}, timeout=30)

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))

    def sockets(self) -> int:
        found = 0
        for one in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                found += str(one.readlink()).startswith("socket:")
        return found

    def children(self) -> str:
        tasks = Path(f"/proc/{self.process.pid}/task")
        found = ""
        for one in tasks.iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
                found += (one / "children").read_text()
        return found


@contextmanager
def running(
    workspace: Path | str,
    state_dir: Path,
    *options: str,
    command: Sequence[str] = MCP,
    env: Mapping[str, str] | None = None,
) -> Iterator[Running]:
    place = ["-w", str(workspace), "--state-dir", str(state_dir)]
    with RunningCli(*command, *place, *options, environ=env) as process:
        told = next(line for line in process.stderr if "http://" in line)
        url = next(word.rstrip(";") for word in told.split() if word.startswith("http://"))
        yield Running(process=process, url=url, token=state_dir / "mcp-token")


@contextmanager
def running_for_many(folder: Path, command: Sequence[str]) -> Iterator[Running]:
    """Run a server over the seeded notes, indexed, for tests that do not mind what others asked it."""
    workspace, state_dir, home = folder / "workspace", folder / "state", folder / "home"
    write_notes(workspace, SEED_NOTES)
    state_dir.mkdir()
    home.mkdir()
    config = folder / "config.yaml"
    config.write_text(WORDS_ONLY, encoding="utf-8")
    outer = {name: value for name, value in os.environ.items() if not name.startswith(("COMPOSABLE", "XDG_"))}
    env = {**outer, "HOME": str(home), "COMPOSABLE_MEMORY_CONFIG": str(config)}
    place = ["-w", str(workspace), "--state-dir", str(state_dir)]
    assert run_cli("index", *place, environ=env).returncode == 0
    with running(workspace, state_dir, command=command, env=env) as server:
        yield server
