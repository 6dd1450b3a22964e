"""A day in the life of an agent: it remembers, searches, forgets, compacts, is killed, and starts again.

`COMPOSABLE_MEMORY_TEST_SESSIONS=30` runs the whole day, `COMPOSABLE_MEMORY_TEST_SEED` another one.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.mcp_server_process import running
from tests.integration.test_forgetting import files_with

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.security
pytest.importorskip("falkordb")

SESSIONS = int(os.environ.get("COMPOSABLE_MEMORY_TEST_SESSIONS", "6"))
SEED = int(os.environ.get("COMPOSABLE_MEMORY_TEST_SEED", "20260310"))
START = datetime(2026, 3, 10, 9, 30, tzinfo=UTC)
PATIENCE_S = 120.0
CANARY = "quokkafern"
TEA = f"I prefer {CANARY} tea in the morning."
SETTINGS = {
    "embedding": {"provider": "none"},
    "hooks": {"auto_capture": True, "deadline_ms": 60_000},  # on a busy machine 5 s are not enough
}

KILLER = """
import os, signal, sys, threading

left = [0]
CHANGES = {"os.rename", "os.remove", "os.link", "os.truncate", "os.mkdir", "fcntl.flock", "shutil.rmtree"}

def die():
    os.kill(os.getpid(), signal.SIGKILL)

def count(event, args):
    writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
    if left[0] and (writes or event in CHANGES):
        left[0] -= 1
        if not left[0]:
            die()

def arm(changes, delay_s):
    left[0] = changes
    if delay_s:
        threading.Timer(delay_s, die).start()

sys.addaudithook(count)
"""
"""Kills its own process before the n-th change of a file, or after a time, which is for what SQLite does."""

HOOK = f"""{KILLER}
import json, runpy
arm(*json.loads(sys.argv.pop(1)))
runpy.run_module('composable_memory.cli', run_name='__main__', alter_sys=True)
"""
AGENT = f"""{KILLER}
import asyncio, json
from datetime import datetime
from composable_memory import open_memory
from composable_memory.errors import InvalidArgument

async def do(memory, now, what, text):
    if what == "remember":
        done = await memory.remember(text, now=now)
        late = [one for one in done.degraded if (one.backend_id, one.code) == ("graphiti", "timeout")]
        if late:  # the machine is busy: the line comes in when all that waits is worked off
            await memory.sync()
            assert [one for one in await memory.facts_of().episodes(limit=10_000) if text in one.text]
        return [done.line, done.duplicate_of, [str(one) for one in done.degraded if one not in late]]
    if what == "forget":
        try:
            plan = await memory.plan_forgetting(text)
        except InvalidArgument:  # there is no such line any more
            return [0, True]
        return [len(plan.lines), (await memory.forget(plan)).is_done]
    response = await memory.query(text)
    if response.results:
        await memory.learning.judging.judge(response.trace_id, "1", relevance=1.0)
    # A fact of the graph whose line has moved in its note is told by itself.
    lines = [one for one in response.results if text in one.text and one.path.startswith("memory/")]
    recalled = (await memory.recall(text.split()[0], now=now, max_results=200)).items
    return [len(lines), len([one for one in recalled if one.kind != "passage" and text in one.content])]

async def main(workspace, state, now, settings):
    settings = json.loads(settings)
    async with open_memory(workspace, state, {{"memory": settings}}, long_lived=False) as memory:
        print("open", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            what, text, deadly = json.loads(line)
            arm(*deadly)
            print(json.dumps(await do(memory, datetime.fromisoformat(now), what, text)), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
SAFE = (0, 0.0)


class Killed(Exception):
    """The process was killed before it acknowledged what it was asked."""


class Agent:
    """A process that has the memory open, and says what came of each thing it is told to do."""

    def __init__(self, day: "Day") -> None:
        settings = {**SETTINGS, "graphiti": {"enabled": day.has_graph}}
        command = [
            sys.executable,
            "-c",
            AGENT,
            str(day.workspace),
            str(day.state),
            day.now,
            json.dumps(settings),
        ]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=day.errors, text=True
        )
        self._day = day
        assert self._line() == "open\n"

    def __call__(self, what: str, text: str, deadly: tuple[int, float] = SAFE) -> list[Any]:
        assert self.process.stdin is not None
        self._day.log(f"{what} {text!r} {deadly}")
        self.process.stdin.write(f"{json.dumps([what, text, deadly])}\n")
        self.process.stdin.flush()
        answer = self._line()
        if not answer:
            assert self.process.wait(PATIENCE_S) == -signal.SIGKILL
            raise Killed
        reply: list[Any] = json.loads(answer)
        self._day.log(f"  {reply}")
        return reply

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.stdout.close()

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_S) == 0

    def _line(self) -> str:
        assert self.process.stdout is not None
        watch = threading.Timer(PATIENCE_S, self.process.kill)
        watch.start()
        try:
            return self.process.stdout.readline()
        finally:
            watch.cancel()


class Day:
    """The workspace, what was acknowledged in it, and what is to be in no file any more."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.workspace, self.state = folder / "notes", folder / "state"
        (self.workspace / "memory").mkdir(parents=True)
        self.state.mkdir()
        (self.workspace / "memory" / "2026-03-01.md").write_text(f"# Tea\n\n{TEA}\n", "utf-8")
        self.config = folder / "config.yaml"
        self.config.write_text(json.dumps({"memory": SETTINGS}), "utf-8")
        self.errors = (folder / "errors.txt").open("w", encoding="utf-8")
        self.folder, self.chance, self.session = folder, random.Random(seed), 0
        self.known: dict[str, str] = {}  # the name that stands in no other line, and the line
        self.ids: dict[str, str] = {}
        self.names: set[str] = set()
        self.spoken: dict[str, str] = {}
        self.forgotten: dict[str, str] = {}
        self.doubtful: list[tuple[str, str]] = []  # what was not acknowledged, and is to be done again
        self.steps: list[str] = []

    @property
    def has_graph(self) -> bool:
        return self.session % 5 == 0 or self.session == SESSIONS - 1

    @property
    def now(self) -> str:
        return (START + timedelta(hours=8 * self.session)).isoformat()

    def log(self, step: str) -> None:
        self.steps.append(f"{self.session}: {step}")

    def name(self) -> str:
        """Return a name that nobody else has."""
        name = "".join(self.chance.choices(("ba", "ko", "ri", "mu", "ze", "tal", "nor", "vi"), k=5))
        if name in self.names:
            return self.name()
        self.names.add(name)
        return name

    def line(self) -> str:
        verb = self.chance.choice(("repaired", "painted", "sold", "measured", "borrowed", "cleaned"))
        thing = self.chance.choice(("anchor", "ladder", "lantern", "kettle", "violin", "saddle"))
        return f"{self.name().title()} {verb} the {thing} of {self.name().title()} in {self.name().title()}."

    def deadly(self) -> tuple[int, float]:
        if self.chance.random() < 0.6:
            return (self.chance.randint(1, 14), 0.0)
        return (0, self.chance.uniform(0.001, 0.08))

    # --- what an agent does -------------------------------------------------------------------------------

    def remember(
        self, agent: Agent, text: str, deadly: tuple[int, float] = SAFE, *, again: bool = False
    ) -> None:
        line, duplicate_of, degraded = agent("remember", text, deadly)
        assert again or duplicate_of is None
        assert (text in line, degraded) == (True, [])
        self.keep(text, line.split()[-1])

    def keep(self, text: str, line_id: str) -> None:
        self.known[(name := text.split()[0].lower())] = text
        self.ids[name] = line_id

    def forget(
        self, agent: Agent, name: str, deadly: tuple[int, float] = SAFE, *, again: bool = False
    ) -> None:
        lines, is_done = agent("forget", self.ids[name], deadly)
        assert is_done
        assert again or lines
        self.forgotten[name] = self.known.pop(name)

    def settle(self, agent: Agent, deadly: tuple[int, float] | None = None) -> None:
        """Do what was not acknowledged; without a kill it was tried before, and may be done."""
        while self.doubtful:
            what, text = self.doubtful[0]
            do = self.remember if what == "remember" else self.forget
            do(agent, text, deadly or SAFE, again=deadly is None)
            del self.doubtful[0]

    def hook(self, name: str, event: str, deadly: tuple[int, float] = SAFE, **more: object) -> str | None:
        """Call a hook as Claude Code does; return what it says, None where it was killed."""
        self.log(f"hook {name} {deadly} {more}")
        said = {"hook_event_name": event, "session_id": f"s{self.session}", "cwd": str(self.workspace)}
        environ = {
            **{one: value for one, value in os.environ.items() if one != "CLAUDE_PROJECT_DIR"},
            "COMPOSABLE_MEMORY_NOW": self.now,
            "TZ": "UTC",
        }
        done = subprocess.run(
            [sys.executable, "-c", HOOK, json.dumps(deadly), "hook", name, "--strict", "-w",
             str(self.workspace), "--state-dir", str(self.state)],
            input=json.dumps({**said, "transcript_path": str(self.transcript), **more}),
            env=environ, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        if done.returncode == -signal.SIGKILL and deadly != SAFE:
            return None
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    @property
    def transcript(self) -> Path:
        return self.folder / f"s{self.session}.jsonl"

    def says(self, role: str, text: str) -> None:
        message = {"role": role, "content": text, "usage": {"input_tokens": 190_000}}
        with self.transcript.open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps({'type': role, 'message': message})}\n")

    def talk(self, *, deadly: bool) -> None:
        """A turn with what was recalled in it, its end, a compaction, and the end of the session."""
        recap = self.hook("session-start", "SessionStart") or ""
        told = self.hook(
            "prompt", "UserPromptSubmit", prompt=f"Which {CANARY} tea do I prefer in the morning?"
        )
        assert told
        block = json.loads(told)["hookSpecificOutput"]["additionalContext"]
        assert CANARY in block
        text = self.line()
        self.says("user", f"{recap}\n{block}\nPlease remember that {text}")
        self.says("assistant", "I prefer green tea, too; my name is Claude.")
        calls = [("compaction", "Stop"), ("compaction", "PreCompact"), ("session-end", "SessionEnd")]
        doomed = self.chance.randrange(3) if deadly else None
        for number, (name, event) in enumerate(calls):
            if number == doomed:
                self.hook(name, event, self.deadly())
            self.hook(name, event)
        self.spoken[text.split()[0].lower()] = text

    async def serve(self) -> None:
        """Remember and forget over MCP, with a server that is killed meanwhile."""
        doubted = {name for _, name in self.doubtful}
        text, doomed = self.line(), self.chance.choice([one for one in self.known if one not in doubted])
        calls: list[tuple[str, Mapping[str, object]]] = [
            ("memory_remember", {"text": text}),
            ("memory_search", {"query": self.known[doomed]}),
            ("memory_forget", {"target": self.known[doomed]}),
        ]
        at, delay_s = self.chance.randrange(3), self.chance.uniform(0.0, 0.05)
        self.log(f"mcp {calls} killed in {at} after {delay_s:.3f} s")
        killed = threading.Event()
        with running(self.workspace, self.state) as server:

            def kill() -> None:
                killed.set()
                server.process.kill()

            try:
                async with server.client() as client:
                    for number, (name, given) in enumerate(calls):
                        if number == at:
                            threading.Timer(delay_s, kill).start()
                        reply = await asyncio.wait_for(client.call_tool(name, dict(given)), PATIENCE_S)
                        found = json.loads(reply.content[0].text)  # type: ignore[union-attr]
                        self.log(f"  {found}")
                        if name == "memory_remember":
                            assert "warning" not in found
                            self.keep(text, f"^{found['id']}")
                        if name == "memory_forget":
                            token = {"token": found["token"]}
                            done = await asyncio.wait_for(client.call_tool(name, token), PATIENCE_S)
                            self.log(f"  {done.content[0].text}")  # type: ignore[union-attr]
                            self.forgotten[doomed] = self.known.pop(doomed)
            except Exception as problem:  # a group of whatever a lost connection is
                if not killed.is_set():
                    raise
                self.log(f"  killed: {type(problem).__name__}")
        if text not in self.known.values():
            self.doubtful.append(("remember", text))
        if doomed in self.known:
            self.doubtful.append(("forget", doomed))

    # --- what must be true ----------------------------------------------------------------------------------

    def check_files(self) -> None:
        """Look into every file of ours; nobody has the memory open."""
        notes = [one.read_text("utf-8") for one in (self.workspace / "memory").glob("*.md")]
        days = [one.read_text("utf-8") for one in (self.workspace / "memory").glob("????-??-??.md")]
        for line in self.known.values():
            assert sum(text.count(line) for text in notes) == 1, line
        for line in self.spoken.values():
            assert sum(text.count(line) for text in days) == 1, line
        assert sum(text.count(CANARY) for text in notes) == 1, "what was injected was captured"
        assert not [text for text in days if "Claude" in text], "what the agent said was captured"
        but = [one for one in self.state.rglob("*") if "graph" in str(one) and not self.has_graph]
        words = {word for line in self.forgotten.values() for word in line.lower().rstrip(".").split()[-3::2]}
        left = files_with(words, self.workspace, self.state, but=but)
        # The first name was asked for by itself, which may stay in the log of queries: it tells nothing.
        but += (self.state / "ops-logs").iterdir()
        left |= files_with(self.forgotten, self.workspace, self.state, but=but)
        assert left == set(), "forgotten, and still there"
        bare = [one for one in self.workspace.rglob("*") if one.is_file() and not one.read_bytes().strip()]
        assert not bare, "a torn note"

    def check_found(self, agent: Agent, count: int) -> None:
        names = [*self.known]
        for name in self.chance.sample(names, min(count, len(names))):
            assert agent("search", self.known[name]) == [1, 1], self.known[name]
        for name in self.chance.sample([*self.forgotten], min(2, len(self.forgotten))):
            # Its words in another order: the line itself would be in the log of queries again.
            assert agent("search", f"{name[:4]} was forgotten")[0] == 0


def live(day: Day) -> None:
    """Live one session: work, be killed in it, come back, and look whether all is as it was acknowledged."""
    agent = Agent(day)
    try:
        for _ in range(2):
            day.remember(agent, day.line())
        day.check_found(agent, 1)
        if len(day.known) > 4:
            day.forget(agent, day.chance.choice([*day.known]))
        day.doubtful = [
            day.chance.choice([("remember", day.line()), ("forget", day.chance.choice([*day.known]))])
        ]
        if day.chance.random() < 0.8:
            day.settle(agent, day.deadly())
    except Killed:
        day.log("  killed")
    finally:
        agent.kill()
    if day.session % 3 == 1:
        asyncio.run(day.serve())
    else:
        day.talk(deadly=day.session % 3 == 2)
    day.log("starts again")
    agent = Agent(day)
    try:
        day.settle(agent)
        day.check_found(agent, 10_000 if day.session == SESSIONS - 1 else 2)
        agent.leave()
    finally:
        agent.kill()
    day.check_files()


@pytest.mark.thorough
@pytest.mark.timeout(60 + 60 * SESSIONS)
def test_a_day_in_the_life_of_an_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, move_neighbour_in: Callable[[Path, Path], None]
) -> None:
    day = Day(tmp_path, SEED)
    move_neighbour_in(day.workspace, day.state)
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(day.config))
    try:
        for day.session in range(SESSIONS):
            live(day)
    except BaseException as problem:
        problem.add_note("\n".join([f"COMPOSABLE_MEMORY_TEST_SEED={SEED}", *day.steps[-40:]]))
        raise
    finally:
        day.errors.close()
    assert day.forgotten
    assert len(day.known) + len(day.spoken) > SESSIONS
