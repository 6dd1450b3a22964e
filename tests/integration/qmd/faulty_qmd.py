"""A command that stands in for `qmd` and fails as it is told to.

`install` puts a copy of this file into a folder; `FaultyQmd.will` tells it, by a file beside it, what to do
from then on. Without a fault it is the real QMD, if `real` or the variable FAULTY_QMD_REAL names its command,
or else a small QMD of its own, which finds words in the files that its last `update` has seen. As it runs by
itself, it needs nothing of ours.
"""

import fcntl
import json
import os
import re
import resource
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import quote
from zlib import crc32

import yaml

__all__ = ["FAULTS", "FaultyQmd", "install"]

ORDERS = "orders.json"
CALLS = "calls.jsonl"
REAL = "FAULTY_QMD_REAL"
VERSION = "2.8.3"
DRIP_S = 0.02
NOISE = "[1/3] loading {backend}\nggml_cuda_init: no devices [0]\n\x1b[?25l⠋ warming up… [\n"
"""What models and drivers print among the answers; brackets that never close are the worst of it."""

Words = Sequence[str]
Seen = dict[str, dict[str, str]]
"""Collection to path to text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyQmd:
    """A double of QMD in a folder, from the side of a test."""

    folder: Path

    @property
    def command(self) -> str:
        """Return the command, as the settings of the QMD memory take it."""
        return shlex.join([sys.executable, str(self.folder / "qmd")])

    def will(self, fault: str, *, on: Words = ("query",), times: int | None = None) -> None:
        """Fail from now on when one of these commands is called, a number of times or always."""
        if fault not in FAULTS:
            raise ValueError(f"{fault!r} is none of {', '.join(FAULTS)}")
        already = sum(call["fault"] is not None for call in self._calls())
        until = None if times is None else already + times
        self._order({"fault": fault, "on": list(on), "until": until})

    def be_well(self) -> None:
        """Do from now on what QMD does."""
        self._order({})

    def calls(self, command: str) -> int:
        """Return how often a command has been called."""
        return sum(call["command"] == command for call in self._calls())

    def _order(self, order: Mapping[str, object]) -> None:
        kept = json.loads((self.folder / ORDERS).read_text(encoding="utf-8"))["real"]
        _write(self.folder / ORDERS, {**order, "real": kept})

    def _calls(self) -> list[dict[str, object]]:
        return _calls_in((self.folder / CALLS).read_text(encoding="utf-8"))


def install(folder: Path, *, real: Words = ()) -> FaultyQmd:
    """Put the double into a folder; `real` are the words of the command that it stands in for."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "qmd").write_bytes(Path(__file__).read_bytes())
    (folder / CALLS).touch()
    _write(folder / ORDERS, {"real": list(real)})
    return FaultyQmd(folder=folder)


def _write(file: Path, value: object) -> None:
    fresh = file.with_suffix(".fresh")
    fresh.write_text(json.dumps(value), encoding="utf-8")
    fresh.replace(file)


def _calls_in(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


# --- the command -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What a command writes, and its exit code."""

    stdout: str = ""
    stderr: str = ""
    code: int = 0

    def write(self) -> NoReturn:
        """Write it all and end."""
        _put(sys.stdout.fileno(), self.stdout)
        _put(sys.stderr.fileno(), self.stderr)
        os._exit(self.code)


def main(words: list[str]) -> None:
    """Do what the words say, or fail as ordered."""
    folder = Path(__file__).parent
    orders = json.loads((folder / ORDERS).read_text(encoding="utf-8"))
    real = orders["real"] or shlex.split(os.environ.get(REAL, ""))
    command = _command_in(words)
    fault = _note_call(folder / CALLS, command, orders)
    if fault is not None:
        FAULTS[fault](lambda: _forwarded([*real, *words]) if real else _answered(command, words))
    if real:
        os.execvp(real[0], [*real, *words])
    if command == "mcp":
        _serve()
    _answered(command, words).write()


def _command_in(words: Words) -> str:
    rest = words[2:] if words[:1] == ["--index"] else words
    return rest[0] if rest else "help"


def _note_call(file: Path, command: str, orders: Mapping[str, object]) -> str | None:
    """Write a call down, and return the fault that is due, if one is."""
    with file.open("r+", encoding="utf-8") as calls:
        fcntl.flock(calls, fcntl.LOCK_EX)
        failed = sum(call["fault"] is not None for call in _calls_in(calls.read()))
        on, until, fault = orders.get("on", []), orders.get("until"), orders.get("fault")
        is_due = isinstance(on, list) and command in on and (not isinstance(until, int) or failed < until)
        due = str(fault) if fault is not None and is_due else None
        calls.write(json.dumps({"command": command, "fault": due}) + "\n")
    return due


def _forwarded(words: Words) -> Output:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return Output(stdout=done.stdout, stderr=done.stderr, code=done.returncode)


def _put(descriptor: int, text: str) -> None:
    left = text.encode("utf-8", "surrogateescape")
    while left:
        left = left[os.write(descriptor, left) :]


# --- faults ------------------------------------------------------------------------------------------------

Well = Callable[[], Output]
"""Gives what a QMD without faults would write."""


def _changed(change: Callable[[str], str]) -> Callable[[Well], NoReturn]:
    def failing(well: Well) -> NoReturn:
        output = well()
        Output(stdout=change(output.stdout), stderr=output.stderr, code=output.code).write()

    return failing


def _dying(message: str, code: int = 1) -> Callable[[Well], NoReturn]:
    return lambda _well: Output(stderr=f"{message}\n", code=code).write()


def _as_object(stdout: str) -> str:
    return json.dumps({"results": json.loads(stdout)})


def _with_nuls(stdout: str) -> str:
    middle = len(stdout) // 2
    return f"\0{stdout[:middle]}\0{stdout[middle:]}\0"


def _on_stderr(well: Well) -> NoReturn:
    Output(stderr=well().stdout).write()


def _hang(_well: Well) -> NoReturn:
    while True:
        time.sleep(600)


def _crash(_well: Well) -> NoReturn:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError("a signal that ends us")


def _flood(_well: Well) -> NoReturn:
    while True:
        _put(sys.stdout.fileno(), NOISE * 1000)


def _drip(well: Well) -> NoReturn:
    for byte in well().stdout.encode():
        os.write(sys.stdout.fileno(), bytes([byte]))
        time.sleep(DRIP_S)
    os._exit(0)


FAULTS: dict[str, Callable[[Well], NoReturn]] = {
    "crash": _crash,
    "drip": _drip,
    "empty": lambda _well: Output().write(),
    "enotdir": _dying("Error: ENOTDIR: not a directory, open '/notes/a\0b.md'"),
    "flood": _flood,
    "hang": _hang,
    "locked": _dying("SqliteError: database is locked\n    at Database.exec (wrappers.js:9:14)"),
    "long": _changed(lambda stdout: "llama_model_loader: kv 7\n" * 8000 + stdout),  # 200 kB
    "noise": _changed(lambda stdout: f"{NOISE}{stdout}{NOISE}"),
    "nul": _changed(_with_nuls),
    "object": _changed(_as_object),
    "stderr-only": _on_stderr,
    "truncated": _changed(lambda stdout: stdout[: len(stdout) * 2 // 3]),
    "unknown-collection": _dying("Collection not found: x"),
    "unknown-option": _dying("error: unknown option '--json'"),
}
"""What it can be told to do instead of answering."""


# --- a small QMD of its own --------------------------------------------------------------------------------


def _answered(command: str, words: Words) -> Output:
    if command == "--version":
        return Output(stdout=f"qmd {VERSION} (faulty)\n")
    if command == "update":
        return _updated()
    if command == "embed":
        return Output(stdout="✓ All content hashes already have embeddings.\n")
    if command in ("query", "search", "vsearch"):
        return _found(words)
    return Output(stderr=f"Unknown command: {command}\n", code=1)


def _updated() -> Output:
    before, now = _seen(), _on_disk()
    reports = [f"Updating {len(now)} collection(s)..."]
    for number, (name, files) in enumerate(now.items(), start=1):
        known = before.get(name, {})
        new, same = len(files.keys() - known.keys()), len(files.items() & known.items())
        reports += [f"\n[{number}/{len(now)}] {name} (**/*.md)"]
        counts = f"{new} new, {len(files) - new - same} updated, {same} unchanged"
        reports += [f"\nIndexed: {counts}, {len(known.keys() - files.keys())} removed"]
    index = Path(os.environ["INDEX_PATH"])
    index.parent.mkdir(parents=True, exist_ok=True)
    _write(index, now)
    return Output(stdout="\n".join((*reports, "\n✓ All collections updated.\n")))


def _seen() -> Seen:
    try:
        seen: Seen = json.loads(Path(os.environ["INDEX_PATH"]).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return seen


def _on_disk() -> Seen:
    config = yaml.safe_load((Path(os.environ["QMD_CONFIG_DIR"]) / "index.yml").read_text(encoding="utf-8"))
    collections = (config or {}).get("collections") or {}
    return {name: _texts_in(Path(one["path"]), one["pattern"]) for name, one in collections.items()}


def _texts_in(folder: Path, pattern: str) -> dict[str, str]:
    files = {file for one in _expanded(pattern) for file in folder.glob(one) if file.is_file()}
    texts = {file.relative_to(folder).as_posix(): file.read_text("utf-8", "replace") for file in files}
    return {path: text for path, text in sorted(texts.items()) if text and "/." not in f"/{path}"}


def _expanded(pattern: str) -> Iterator[str]:
    """Yield the globs of a pattern that may have one pair of braces, or commas outside of it."""
    if (braces := re.search(r"\{([^}]*)\}", pattern)) is None:
        yield from (one.strip() for one in pattern.split(","))
        return
    for choice in braces[1].split(","):
        yield pattern[: braces.start()] + choice + pattern[braces.end() :]


def _found(words: Words) -> Output:
    wanted = [words[at + 1] for at, word in enumerate(words) if word == "-c"]
    seen = _seen()
    if unknown := [name for name in wanted if name not in seen]:
        return Output(stderr=f"Collection not found: {unknown[0]}\n", code=1)
    searches = [line.partition(": ")[2] or line for line in words[-1].splitlines()]
    limit = int(words[words.index("-n") + 1]) if "-n" in words else 20
    hits = _hits(searches, {name: seen[name] for name in wanted or seen})[:limit]
    return Output(stdout=json.dumps(hits, ensure_ascii=False, indent=2) + "\n")


def _hits(searches: Words, seen: Seen) -> list[dict[str, object]]:
    """Return the documents that hold all words of a search; the first of the searches counts twice."""
    scores: dict[tuple[str, str], float] = {}
    for number, search in enumerate(searches):
        for rank, place in enumerate(_holding(_terms(search), seen), start=1):
            scores[place] = scores.get(place, 0.0) + (1.0 if number else 2.0) / (60 + rank)
    places = sorted(scores, key=lambda place: -scores[place])
    terms = _terms(searches[0])
    return [_hit(place, seen, terms, 1 / rank) for rank, place in enumerate(places, start=1)]


def _terms(search: str) -> list[str]:
    return re.findall(r"\w+", search.casefold())


def _holding(terms: Words, seen: Seen) -> list[tuple[str, str]]:
    counts = {
        (name, path): [f"{path} {text}".casefold().count(term) for term in terms]
        for name, files in seen.items()
        for path, text in files.items()
    }
    holding = [place for place, found in counts.items() if found and all(found)]
    return sorted(holding, key=lambda place: -sum(counts[place]))


def _hit(place: tuple[str, str], seen: Seen, terms: Words, score: float) -> dict[str, object]:
    name, path = place
    lines = seen[name][path].split("\n")
    best = max(range(len(lines)), key=lambda at: sum(term in lines[at].casefold() for term in terms))
    first, last = max(0, best - 1), min(len(lines), best + 4)
    header = f"@@ -{first + 1},{last - first} @@ ({first} before, {len(lines) - last} after)\n"
    return {
        "docid": f"#{crc32(path.encode()) % 16**6:06x}",
        "score": round(score, 2),
        "file": f"qmd://{name}/{path}",
        "line": best + 1,
        "title": lines[0].lstrip("# ") or path,
        "snippet": header + "\n".join(lines[first:last])[:300],
    }


class _SocketServer(ThreadingHTTPServer):
    """Listens on a Unix socket, as QMD's server is told to."""

    address_family = socket.AF_UNIX

    def server_bind(self) -> None:
        self.socket.bind(self.server_address)

    def get_request(self) -> tuple[socket.socket, object]:
        accepted, _ = self.socket.accept()
        return accepted, ("us", 0)


def _serve() -> NoReturn:
    address: Any = os.environ["COMPOSABLE_MEMORY_QMD_SOCKET"]  # a path: the base class knows only hosts
    server = _SocketServer(address, _Server)
    _put(sys.stderr.fileno(), "QMD MCP server listening on http://socket.invalid/mcp\n")
    server.serve_forever()
    raise AssertionError("a server that a signal ends")


class _Server(BaseHTTPRequestHandler):
    """Answers `/health` and `/query` as QMD's server does."""

    def do_GET(self) -> None:
        self._answer({"status": "ok", "uptime": 1})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        seen = {name: files for name, files in _seen().items() if name in asked["collections"]}
        hits = _hits([one["query"] for one in asked["searches"]], seen)[: asked["limit"]]
        for hit in hits:
            hit["file"] = "qmd://" + quote(str(hit["file"]).removeprefix("qmd://"))
        self._answer({"results": hits})

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base's
        """Write no log."""

    def _answer(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    main(sys.argv[1:])
