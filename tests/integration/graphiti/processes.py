"""Processes around a private graph server: another one that uses it, and what can be seen of the server."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[3]
HOUSES = (ROOT, ROOT / "adapters", ROOT / "feedback", ROOT / "ops_logs")
PATIENCE_S = 20.0
GROUP = "g"

PROGRAM = """
import asyncio, json, sys
from pathlib import Path
from composable_memory_adapters.graphiti.database_store import open_database
from composable_memory_adapters.graphiti.settings import GraphitiSettings

async def main():
    async with open_database(GraphitiSettings(), data_dir=Path(sys.argv[1])) as database:
        while line := await asyncio.to_thread(sys.stdin.readline):
            what, cypher = json.loads(line)
            print(json.dumps(await getattr(database, what)("g", cypher)), flush=True)

asyncio.run(main())
"""


class OtherProcess:
    """A process that has the database of a folder open, and asks it what it is told to ask."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def read(self, cypher: str) -> object:
        return await self._ask("read", cypher)

    async def write(self, cypher: str) -> object:
        return await self._ask("write", cypher)

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()

    async def leave(self) -> None:
        """Let it close its database, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert await asyncio.wait_for(self._process.wait(), PATIENCE_S) == 0

    async def _ask(self, what: str, cypher: str) -> object:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, cypher]).encode() + b"\n")
        return json.loads(await asyncio.wait_for(self._process.stdout.readline(), PATIENCE_S))


@asynccontextmanager
async def other_process(data_dir: Path) -> AsyncIterator[OtherProcess]:
    """Run a process that opens the database of a folder."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        PROGRAM,
        str(data_dir),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, HOUSES))},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield OtherProcess(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        # Its transport ends when both pipes do.
        await process.communicate()


def noted(data_dir: Path) -> tuple[Path, int]:
    """Return the socket of the folder's server, and the process number of its guard."""
    record = json.loads((data_dir / "server.json").read_text(encoding="utf-8"))
    return Path(record["address"]), record["pid"]


def server_pid(data_dir: Path) -> int:
    """Ask the folder's server for its process number."""
    return int(told(data_dir, "INFO server").partition("process_id:")[2].split()[0])


def told(data_dir: Path, command: str) -> str:
    """Return what the folder's server answers to a command, in its own format."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(PATIENCE_S)
        line.connect(str(noted(data_dir)[0]))
        line.sendall(f"{command}\r\n".encode())
        return line.recv(65536).decode()


def is_running(pid: int) -> bool:
    """Say whether a process is there, and not only its exit code."""
    try:
        os.kill(pid, 0)
        after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self").exists()
    return after_name.split()[0] != "Z"


def children() -> set[str]:
    """Return the processes that are ours, those that ended and were not waited for among them."""
    found: set[str] = set()
    for task in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread of ours may end meanwhile
            found.update(task.read_text(encoding="ascii").split())
    return found


def kill_server(data_dir: Path, *, by: signal.Signals = signal.SIGKILL) -> None:
    """Kill the folder's server the hard way, or let it crash."""
    os.kill(server_pid(data_dir), by)


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is so; processes that end tell nobody."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.005)
