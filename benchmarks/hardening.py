"""Treats a memory as badly as life does, and counts what was lost or silent.

    python -m benchmarks.hardening                     every trial, as often as said here: some hours
    python -m benchmarks.hardening kills --rounds 40   one of them

    kills       SIGKILL of indexers, ingesters, and commands beside an editor and a reader        (200)
    damage      each store's file with flipped bits, cut, zeroed, overwritten or emptied          (40)
    notes       notes with hostile names and contents                                             (all)
    paths       paths that lead out of the workspace, for `get` and for agents                    (all)
    liars       plug-ins that lie, flood, fail, or swallow their cancellation                     (all)
    cancel      calls cancelled at random moments, and what the memory answers afterwards         (400)
    processes   commands at once on one state folder, of one workspace and of as many             (8)
    size        one folder of many notes: indexed, unchanged, one change found                    (50,000)

Whatever is asked, the answer has to be as it was before, or something has to be said about it. `lost` counts
answers that were less, with a word about it; `wrong` whatever was silent, raised, or served and not true.
Prints a row for each trial and what was wrong, and exits with 1 if anything was.
"""

import argparse
import asyncio
import gzip
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
from typer.testing import CliRunner

from benchmarks import corruption, graph_kill_rounds, hostile, kill_rounds
from composable_memory import Memory, open_memory
from composable_memory.cli import app
from composable_memory.errors import ComposableMemoryError
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.testing import FloodBackend, HangingBackend, InMemoryBackend, RubbishBackend
from composable_memory.tools import read

QUESTION = "which relay does the harbour pump use"
IN_EVERY_NOTE = kill_rounds.IN_EVERY_NOTE
LIMIT_S = 300.0
"""So long a command, or an answer, may take before it counts as hung, also on a busy machine."""


@dataclass(slots=True, kw_only=True)
class Trial:
    """What a trial did, and all that was wrong."""

    name: str
    done: int = 0
    lost: int = 0
    remarks: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return a row of the table."""
        remarks = ", ".join(f"{count} {what}" for what, count in sorted(self.remarks.items()))
        return f"| {self.name} | {self.done} | {self.lost} | {len(self.wrong)} | {remarks} |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A command that has ended."""

    code: int
    out: str
    err: str
    raised: str = ""

    @property
    def data(self) -> Any:
        """Return what it printed as JSON; nothing if it printed none."""
        try:
            return json.loads(self.out)
        except ValueError:
            return {}

    @property
    def faults(self) -> list[str]:
        """Return what no user should see of a command."""
        is_shown = "Traceback" in self.err or "Traceback" in self.out or "unexpected" in self.err
        shown = [f"a traceback: {self.err[-300:]}"] if is_shown else []
        return shown + ([f"raised {self.raised}"] if self.raised else [])


@dataclass(frozen=True, slots=True)
class Place:
    """A workspace and a state folder of its own, and the command line over them."""

    root: Path
    state: Path
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def workspace(self) -> Path:
        return self.root / "notes"

    @property
    def notes(self) -> Path:
        return self.workspace / "memory"

    @property
    def environ(self) -> dict[str, str]:
        """Return the variables of a command: none of the user's own settings."""
        own = {f"COMPOSABLE_MEMORY__{name}": value for name, value in self.settings.items()}
        return {"XDG_CONFIG_HOME": str(self.root), **own}

    def arguments(self, *command: str) -> list[str]:
        where = ("--workspace", str(self.workspace), "--state-dir", str(self.state))
        if "--" in command:
            at = command.index("--")
            return [*command[:at], *where, *command[at:]]
        return [*command, *where]

    def run(self, *command: str) -> Ran:
        """Run a command in this process, which saves the second that a new one takes to begin."""
        ran = CliRunner().invoke(app, self.arguments(*command), env=self.environ)
        raised = "" if ran.exception is None or isinstance(ran.exception, SystemExit) else repr(ran.exception)
        return Ran(code=ran.exit_code, out=ran.stdout, err=ran.stderr, raised=raised)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command as a process."""
        return subprocess.Popen(
            [sys.executable, "-m", "composable_memory.cli", *self.arguments(*command)],
            env={**os.environ, **self.environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def write(self, number: int, chance: random.Random, lines: int = 20) -> None:
        """Write a note as an editor does: beside it, then in its place."""
        said = "\n".join(" ".join(chance.choices(corruption.WORDS, k=10)) for _ in range(lines))
        beside = self.notes / f".{number:05}.tmp"
        beside.write_text(
            f"# Note {number}, a {IN_EVERY_NOTE}\n\nThe harbour pump and relay of pier{number}.\n{said}",
            encoding="utf-8",
        )
        beside.replace(self.notes / f"{number:05}.md")

    def passages(self) -> set[tuple[object, ...]]:
        """Return all passages of the index."""
        (index,) = (self.state / "memory").glob("*.sqlite")
        with closing(apsw.Connection(str(index), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
            return set(connection.execute(kill_rounds.CONTENT))

    def differences(self) -> list[str]:
        """Return in what the index differs from one that was never disturbed."""
        with tempfile.TemporaryDirectory() as folder:
            other = Place(self.root, Path(folder), self.settings)
            fresh = other.run("index")
            found = self.passages() ^ other.passages()
        return [f"{len(found)} passages differ from a fresh index ({fresh.err})"] if found else []


@contextmanager
def place(notes: int, chance: random.Random, **settings: str) -> Iterator[Place]:
    """Make a place with notes."""
    with tempfile.TemporaryDirectory(prefix="cm-", ignore_cleanup_errors=True) as folder:
        made = Place(Path(folder), Path(folder, "state"), settings)
        made.notes.mkdir(parents=True)
        for number in range(notes):
            made.write(number, chance)
        yield made


# --- kills --------------------------------------------------------------------------------------------------


def kills(rounds: int, chance: random.Random) -> Trial:
    """Kill who syncs, rebuilds, embeds and ingests, and commands at random moments."""
    trial, each, seed = Trial(name="kills"), max(1, rounds // 5), chance.randrange(1000)
    kinds: list[tuple[str, Callable[[Path], Awaitable[Any]]]] = [
        (kind, lambda root, kind=kind: kill_rounds.run(root, rounds=each, notes=300, seed=seed, kind=kind))
        for kind in kill_rounds.KINDS
    ]
    kinds.append(("ingest", lambda r: graph_kill_rounds.run(r, kind="process", rounds=each, seed=seed)))
    for kind, run in kinds:
        with tempfile.TemporaryDirectory(prefix="cm-") as folder:
            tally = asyncio.run(run(Path(folder)))  # type: ignore[arg-type]
        trial.done += tally.rounds
        trial.remarks[f"killed while {kind}"] += tally.killed
        trial.wrong += tally.wrong
    with place(60, chance) as where:
        asyncio.run(_kill_commands(where, each, chance, trial))
    return trial


async def _kill_commands(where: Place, rounds: int, chance: random.Random, trial: Trial) -> None:
    await asyncio.to_thread(where.run, "index")
    trace = (await asyncio.to_thread(where.run, "search", QUESTION, "--weak", "--json")).data["traceId"]
    others = [asyncio.create_task(_edit(where)), asyncio.create_task(_read(where, trial))]
    acknowledged: dict[str, float] = {}
    whole_s = await _time_of(where)
    for number in range(rounds):
        relevance, which = round(chance.random(), 3), str(1 + number % 3)
        judge = ("feedback", "add", trace, which, "--relevance", str(relevance))
        weigh = ("weights", "set", f"builtin={1 - relevance / 2:.3f}")
        command = chance.choice([("index",), ("index", "--force"), ("search", QUESTION), judge, judge, weigh])
        process = where.start(*command)
        try:
            _, err = await asyncio.to_thread(process.communicate, None, chance.uniform(0, 1.5 * whole_s))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            await asyncio.to_thread(process.communicate)
            trial.remarks["killed commands"] += 1
            if command == judge:
                acknowledged.pop(which, None)  # nobody knows whether it was stored
        else:
            if process.returncode != 0:
                trial.wrong.append(f"round {number}, {' '.join(command)}: {err[-300:]}")
            elif command == judge:
                acknowledged[which] = relevance
        trial.done += 1
    for other in others:
        other.cancel()
    await asyncio.wait(others)
    trial.wrong += await asyncio.to_thread(_after_kills, where, acknowledged, trial)


async def _time_of(where: Place) -> float:
    began = time.monotonic()
    await asyncio.to_thread(where.start("index").communicate)
    return time.monotonic() - began


async def _edit(where: Place) -> None:
    chance = random.Random(1)
    while True:
        await asyncio.to_thread(where.write, chance.randrange(60), chance)
        await asyncio.sleep(0.05)


async def _read(where: Place, trial: Trial) -> None:
    place_of_it = {"state_dir": where.state, "environ": where.environ}
    async with open_memory(where.workspace, **place_of_it) as memory:  # type: ignore[arg-type]
        while True:
            answer = await memory.query(IN_EVERY_NOTE)
            trial.remarks["reads"] += 1
            if not answer.results:
                trial.wrong.append(f"a read found nothing: {answer.degraded}")
            await asyncio.sleep(0.1)


def _after_kills(where: Place, acknowledged: Mapping[str, float], trial: Trial) -> list[str]:
    last = where.run("index")
    wrong = last.faults + where.differences()
    lines = where.run("feedback", "export").out.splitlines()
    kept = {json.loads(line).get("detail", {}).get("relevance") for line in lines}
    trial.remarks["acknowledged judgements"] += len(acknowledged)
    gone = [one for one, relevance in acknowledged.items() if relevance not in kept]
    wrong += [f"the judgement of result {which} was acknowledged and is lost" for which in gone]
    if broken := sum(not _is_json(line) for line in _log_lines(where.state)):
        wrong.append(f"{broken} lines of the log are not whole")
    left = [path for path in where.state.rglob("*") if ".tmp" in path.name or path.name.startswith("next")]
    return wrong + [f"left lying: {path.relative_to(where.state)}" for path in left]


def _log_lines(state: Path) -> Iterator[bytes]:
    for file in (state / "ops-logs").glob("*.jsonl*"):
        data = file.read_bytes()
        yield from (gzip.decompress(data) if file.suffix == ".gz" else data).splitlines()


def _is_json(line: bytes) -> bool:
    with suppress(ValueError):
        json.loads(line)
        return True
    return False


# --- damage -------------------------------------------------------------------------------------------------

ANY_FILE = ("a bit of the file", "64 bits of the file", "cut short", "a page of zeros", "garbage", "emptied")
"""The kinds of damage that can be done to every file."""
FORGOTTEN = "the spare key lies under the third flowerpot"
GRAPH = {"GRAPHITI__ENABLED": "true"}
MAPPED = {"BUILTIN__STORE__VECTOR__ENGINE": "mapped"}
FRESH = "traceId queryId tookMs startedAt totalMs startMs durationMs at legs".split()
"""What differs from one answer to the next."""

Commands = Sequence[tuple[str, ...]]
FIND: Commands = [("search", "harbour pump relay", "-n", "20", "--json")]
FIND_FORGOTTEN: Commands = [("search", FORGOTTEN, "--json")]
LEARNT: Commands = [("feedback", "export"), ("weights", "show", "--json")]
FACTS: Commands = [("graph", "facts", "--json")]
STORES: Mapping[str, tuple[str, Mapping[str, str], Commands]] = {
    "judgements and weights": ("feedback/*.sqlite", {}, LEARNT),
    "vector file": ("memory/*-vectors", {}, FIND),
    "tombstones": ("forgotten/*/tombstones.jsonl", {}, FIND_FORGOTTEN),
    "key of tombstones": ("forgotten/*/key", {}, FIND_FORGOTTEN),
    "ops log": ("ops-logs/*.jsonl", {}, [("logs", "show", "{late}", "--json")]),
    "compressed log": ("ops-logs/*.gz", {}, [("logs", "show", "{early}", "--json")]),
    "registry": ("workspaces.sqlite", {}, [*FIND, *LEARNT]),
    "ledger": ("graphiti/episodes.sqlite", GRAPH, FACTS),
    "graph": ("graphiti/appendonlydir/*[bf]", GRAPH, FACTS),
}


def damage(rounds: int, chance: random.Random) -> Trial:
    """Damage a store's file; what is asked of it then is answered as before, or something is said."""
    trial = Trial(name="damage")
    for kind in corruption.KINDS:
        with tempfile.TemporaryDirectory(prefix="cm-") as folder:
            each = -(-rounds // len(corruption.KINDS))
            work = corruption.run(Path(folder), kind=kind, rounds=each, seed=chance.randrange(1000))
            tally = asyncio.run(work)
        trial.done += tally.rounds
        trial.remarks["index"] += tally.rounds
        trial.wrong += [f"index, {kind}: {fault}" for fault in tally.faults]
    with place(12, chance, **MAPPED) as where:
        traces = _fill_stores(where)
        shutil.copytree(where.state, where.root / "sound")
        for name, (pattern, settings, commands) in STORES.items():
            own = Place(where.root, where.state, {**MAPPED, **settings})
            asked = [tuple(word.format_map(traces) for word in command) for command in commands]
            sound = [_seen(own.run(*command)) for command in asked]
            for number in range(rounds):
                _put_back(where)
                file = max(where.state.glob(pattern), key=lambda one: one.stat().st_size)
                kind = ANY_FILE[number % len(ANY_FILE)]
                with suppress(ValueError):  # a file of less than a page has none to be zeroed
                    corruption.KINDS[kind](file, chance)
                trial.done += 1
                trial.remarks[name] += 1
                for fault in _damaged(own, asked, sound, trial):
                    trial.wrong.append(f"{name}, {kind}, round {number}: {fault}")
            print(f"{name} damaged {rounds} times, so far {len(trial.wrong)} wrong", file=sys.stderr)
    return trial


def _fill_stores(where: Place) -> dict[str, str]:
    """Have something in every store, and a note that says again what was forgotten; return two traces."""
    _write_keys(where)
    where.run("index")
    early = where.run("search", QUESTION, "--weak", "--json").data["traceId"]
    where.run("feedback", "add", early, "1", "--relevance", "0.75")
    where.run("weights", "set", "builtin=0.9")
    graph = Place(where.root, where.state, {**MAPPED, **GRAPH})
    for firm in ("Acme", "Lindholm Ferries", "Northwind"):
        graph.run("ingest", "--text", f"Alice Moreau works at {firm}.")
    graph.run("forget", "memory/keys.md#L1", "--yes")
    _write_keys(where)
    where.run("index")
    return {"early": early, "late": where.run("search", QUESTION, "--weak", "--json").data["traceId"]}


def _write_keys(where: Place) -> None:
    (where.notes / "keys.md").write_text(f"{FORGOTTEN}\n\nA ladder is in the shed.\n", encoding="utf-8")


def _put_back(where: Place) -> None:
    shutil.rmtree(where.state)
    shutil.copytree(where.root / "sound", where.state)


def _seen(ran: Ran) -> tuple[object, object]:
    """Return what a command says that lasts, and what it says of itself."""
    data = ran.data or ran.out.splitlines()[1:]  # the first line of an export says when it was made
    degraded = data.get("degraded") if isinstance(data, dict) else None
    return _lasting(data), (ran.code, ran.err, bool(degraded))


def _lasting(data: object) -> object:
    if isinstance(data, dict):
        return {name: _lasting(value) for name, value in data.items() if name not in FRESH}
    return [*map(_lasting, data)] if isinstance(data, list) else data


def _damaged(
    where: Place, asked: Commands, sound: Sequence[tuple[object, object]], trial: Trial
) -> Iterator[str]:
    deep = where.run("status", "--deep", "--json")
    yield from deep.faults
    is_told, is_lost = deep.code != 0, False
    for step in ("at once", "after an index"):
        for command, (before, said_before) in zip(asked, sound, strict=True):
            ran = where.run(*command)
            yield from ran.faults
            now, said = _seen(ran)
            is_told |= said != said_before
            is_lost = now != before
            if FORGOTTEN in ran.out.partition('"results"')[2]:
                yield f"what was forgotten is served {step}"
            if is_lost and not is_told:
                yield f"{' '.join(command)} answers {step} otherwise, without a word: {str(now)[:300]}"
        again = where.run("index", "--force", "--json")  # which reads again what was forgotten
        yield from again.faults
        is_told |= again.code != 0 or bool(again.err.strip())
    trial.lost += is_lost and is_told
    trial.remarks["told"] += is_told


# --- hostile notes and paths --------------------------------------------------------------------------------


def notes(_rounds: int, chance: random.Random) -> Trial:
    """Index hostile notes beside good ones: each is found, or named."""
    trial = Trial(name="notes")
    with place(5, chance) as where:
        hostile.write_hostile(where.notes)
        (where.notes / "inner").mkdir()
        hostile.write_ways_out(where.notes, where.root / "outside")
        trial.done = sum(1 for _ in where.notes.iterdir()) - 6
        ran, again = where.run("index", "--json"), where.run("index", "--json")
        found = where.run("search", IN_EVERY_NOTE, "-n", "50", "--json")
        plain = where.run("search", IN_EVERY_NOTE, "-n", "50")
        good = [where.run("search", f"pier{number}", "--weak", "--json") for number in range(5)]
        for one in (ran, again, found, plain, *good):
            trial.wrong += one.faults
        for number, one in enumerate(good):
            if f"memory/{number:05}.md" not in {hit["path"] for hit in one.data["results"]}:
                trial.wrong.append(f"the good note {number} is not found")
        if any(word in found.out + plain.out for word in ("root:", "\x1b", "of others")):
            trial.wrong.append("something came out that must not")
        named, passed_over = again.data["problems"], again.data["passedOver"]
        known = again.data["filesUnchanged"] - 5
        trial.remarks.update(indexed=known, named=len(named), **{"passed over": sum(passed_over.values())})
        if again.data["filesIndexed"]:
            trial.wrong.append(f"{again.data['filesIndexed']} notes are indexed anew each time")
        if known + len(named) + sum(passed_over.values()) < trial.done:
            trial.wrong.append(f"of {trial.done} notes some are passed over without a word: {again.out}")
    return trial


def paths(_rounds: int, chance: random.Random) -> Trial:
    """Ask for files outside the workspace by every trick, as a person and as an agent does."""
    trial = Trial(name="paths")
    with place(3, chance) as where:
        outside = where.root / "outside"
        hostile.write_ways_out(where.notes, outside)
        where.run("index")
        for trick in hostile.tricks(outside):
            trial.done += 1
            ran = where.run("get", "--", trick)
            trial.wrong += ran.faults
            if ran.code == 0 or ran.out.strip():
                trial.wrong.append(f"cmem get {trick!r}: {ran.code} {ran.out[:200]}")

        async def ask() -> None:
            async with open_memory(where.workspace, where.state, environ=where.environ) as memory:
                for trick in hostile.tricks(outside):
                    with suppress(ComposableMemoryError):
                        got = await read.memory_get(memory, read.MemoryGetRequest(path=trick))
                        if got.text:
                            trial.wrong.append(f"memory_get {trick!r}: {got.text[:200]}")

        asyncio.run(ask())
    return trial


# --- liars --------------------------------------------------------------------------------------------------


def liars(_rounds: int, _chance: random.Random) -> Trial:
    """Ask an honest memory beside a liar; the liar's failure is its own, and it is named."""
    trial = Trial(name="liars")
    honest = InMemoryBackend({"memory/dock.md": "The dock gate opens at six."}, backend_id="honest")

    async def ask(name: str, liar: Any, is_lie: bool) -> None:
        trial.done += 1
        patience = ComposableBackendEntry(
            id="liar", manager=liar, timeout_s=0.05 if is_hanging(liar) else LIMIT_S
        )
        manager = ComposableMemoryManager([ComposableBackendEntry(id="honest", manager=honest), patience])
        try:
            response = await asyncio.wait_for(manager.query("dock gate opens at six"), LIMIT_S)
        except BaseException as error:  # noqa: BLE001 - whatever comes out is a defect
            trial.wrong.append(f"{name}: raised {error!r}")
            return
        results, named = response.results, {one.backend_id for one in response.degraded}
        if "memory/dock.md" not in {one.path for one in results}:
            trial.wrong.append(f"{name}: the honest one is not heard")
        if not all(0.0 <= one.score <= 1.0 and ".." not in one.path for one in results) or len(results) > 6:
            trial.wrong.append(f"{name}: served {results}")
        if is_lie and "liar" not in named:
            trial.wrong.append(f"{name}: nobody is told")
        trial.remarks["named" if "liar" in named else "harmless"] += 1
        if isinstance(liar, hostile.Silent):
            liar.release.set()
            await liar.let_go.wait()

    def is_hanging(liar: object) -> bool:
        return isinstance(liar, HangingBackend)

    async def ask_all() -> None:
        for name, lie in hostile.UNREADABLE.items():
            await ask(name, hostile.Liar(lie), is_lie=True)
        for name, lie in hostile.HARMLESS.items():
            await ask(name, hostile.Liar(lie), is_lie=False)
        await ask("swallows its cancellation", hostile.Silent(), is_lie=True)
        await ask("hangs", HangingBackend(), is_lie=True)
        await ask("floods", FloodBackend(100_000), is_lie=False)
        await ask("one sound result among rubbish", RubbishBackend(), is_lie=True)

    asyncio.run(ask_all())
    return trial


# --- cancellations ------------------------------------------------------------------------------------------


def cancel(rounds: int, chance: random.Random) -> Trial:
    """Cancel calls at random moments; the memory has to answer afterwards, and to end."""
    trial = Trial(name="cancel")
    with place(60, chance) as where:
        for _ in range(-(-rounds // 50)):
            asyncio.run(_cancel_some(where, min(50, rounds - trial.done), chance, trial))
        where.run("index")
        trial.wrong += where.differences()
    return trial


async def _cancel_some(where: Place, count: int, chance: random.Random, trial: Trial) -> None:
    async with open_memory(where.workspace, where.state, environ=where.environ) as memory:
        await memory.sync()
        calls: Sequence[Callable[[Memory], Awaitable[object]]] = (
            lambda memory: memory.query(QUESTION),
            lambda memory: memory.sync(force=chance.random() < 0.3),
            lambda memory: memory.read_file("memory/00001.md"),
            lambda memory: memory.context_pack(QUESTION),
        )
        for _ in range(count):
            where.write(chance.randrange(60), chance)
            await _cancelled(chance.choice(calls)(memory), chance.uniform(0, 0.1))
            trial.done += 1
            answer = await asyncio.wait_for(memory.query(IN_EVERY_NOTE), LIMIT_S)
            if not answer.results:
                trial.wrong.append(f"call {trial.done}: no answer {answer.degraded}")

    async def use() -> None:
        async with open_memory(where.workspace, where.state, environ=where.environ) as memory:
            await memory.query(QUESTION)

    for _ in range(5):
        await _cancelled(use(), chance.uniform(0, 0.5))
        trial.remarks["openings cancelled"] += 1
    if left := len(asyncio.all_tasks()) - 1:
        trial.wrong.append(f"{left} tasks are left")


async def _cancelled(work: Awaitable[object], after_s: float) -> None:
    task = asyncio.ensure_future(work)
    await asyncio.sleep(after_s)
    task.cancel()
    with suppress(asyncio.CancelledError, ComposableMemoryError):
        await asyncio.wait_for(task, LIMIT_S)


# --- many processes, many notes -----------------------------------------------------------------------------


def processes(rounds: int, chance: random.Random) -> Trial:
    """Run commands at once on one state folder: of one workspace, then each of its own."""
    trial = Trial(name="processes")
    with place(200, chance) as where:
        _together([(where, ("index",))] * rounds, trial)
        trial.wrong += where.differences()
        trace = where.run("search", QUESTION, "--weak", "--json").data["traceId"]
        judge = ("feedback", "add", trace)
        _together([(where, (*judge, str(1 + n % 3), "-r", f"0.{n + 1}")) for n in range(rounds)], trial)
        kept = where.run("feedback", "export").out
        for which in range(min(3, rounds)):
            if not any(f"0.{n + 1}" in kept for n in range(which, rounds, 3)):
                trial.wrong.append(f"no judgement of result {which + 1} is kept")
        others = [Place(where.root / f"w{number}", where.state) for number in range(rounds)]
        for number, other in enumerate(others):
            other.notes.mkdir(parents=True)
            said = f"{IN_EVERY_NOTE} {number} is in drawer {number}."
            (other.notes / "2026-01-05.md").write_text(said, encoding="utf-8")
        _together([(other, ("index",)) for other in others], trial)
        _together([(other, ("remember", f"The key is in box {n}")) for n, other in enumerate(others)], trial)
        for number, other in enumerate(others):
            found = other.run("search", f"{IN_EVERY_NOTE} drawer", "--json").out
            found += other.run("search", "key box", "--json").out
            own, foreign = f"{number}.", [n for n in range(rounds) if n != number]
            if f"drawer {own}" not in found or f"box {number}" not in found:
                trial.wrong.append(f"workspace {number} has lost its own: {found[:300]}")
            if any(f"drawer {n}." in found or f"box {n}" in found for n in foreign):
                trial.wrong.append(f"workspace {number} answers of others: {found[:300]}")
    return trial


def _together(commands: Iterable[tuple[Place, tuple[str, ...]]], trial: Trial) -> None:
    started = [(command, where.start(*command)) for where, command in commands]
    for command, process in started:
        out, err = process.communicate()
        trial.done += 1
        if process.returncode != 0:
            trial.wrong.append(f"{' '.join(command)}: {process.returncode} {out[-200:]} {err[-200:]}")


def size(rounds: int, chance: random.Random) -> Trial:
    """Index many notes, and find the one that changed."""
    trial = Trial(name="size")
    with place(0, chance, EMBEDDING__PROVIDER="none") as where:
        for number in range(rounds):
            where.write(number, chance, lines=4)
        for word in ("indexed anew", "unchanged"):
            used_s = _children_cpu_s()
            _together([(where, ("index",))], trial)
            trial.remarks[f"s CPU, {word}"] = round(_children_cpu_s() - used_s)
        (where.notes / "00007.md").write_text("The lighthouse keeper hides sardines.", encoding="utf-8")
        _together([(where, ("index",))], trial)
        if "00007.md" not in where.run("search", "sardines of the keeper", "--json").out:
            trial.wrong.append("the changed note is not found")
        indexed = len({row[0] for row in where.passages()})
        trial.lost += rounds - indexed
        trial.wrong += [f"{indexed} of {rounds} notes are indexed"] if indexed < rounds else []
        trial.remarks["MB at most"] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    return trial


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


TRIALS: Mapping[str, tuple[Callable[[int, random.Random], Trial], int]] = {
    "kills": (kills, 200),
    "damage": (damage, 40),
    "notes": (notes, 1),
    "paths": (paths, 1),
    "liars": (liars, 1),
    "cancel": (cancel, 400),
    "processes": (processes, 8),
    "size": (size, 50_000),
}


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trial", nargs="*", choices=[[], *TRIALS], default=[])
    parser.add_argument("--rounds", type=int, help="how often, instead of the numbers above")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    wrong: list[str] = []
    print("| trial | done | lost, and said | wrong | remarks |\n|---|---|---|---|---|")
    for name in options.trial or TRIALS:
        run, rounds = TRIALS[name]
        trial = run(options.rounds or rounds, random.Random(options.seed))
        print(trial, flush=True)
        wrong += [f"{name}: {fault}" for fault in trial.wrong]
    print("", *wrong, sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
