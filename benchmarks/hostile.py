"""What a memory meets at its worst: hostile notes, paths that lead out, and backends that lie."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from math import inf, nan
from pathlib import Path
from typing import Any, cast

from composable_memory.testing import FakeBackend, HangingBackend
from composable_memory.types import Degradation, MemorySearchResult, Origin, SearchAnswer, SearchOptions

# --- notes and paths ----------------------------------------------------------------------------------------

TEXTS: Mapping[str, bytes] = {
    "empty": b"",
    "blank": b" \n\t\n",
    "nul": b"keepsake\0keepsake\n",
    "bom": b"\xef\xbb\xbfkeepsake",
    "utf16": "keepsake über".encode("utf-16"),
    "latin1": b"keepsake \xe4\xf6\xfc",
    "half": b"keepsake \xe2\x82",
    "surrogate": b"keepsake \xed\xa0\x80",
    "cr": b"keepsake\rnext\r",
    "long-line": b"keepsake " * 100_000,
    "no-space": b"k" * 500_000,
    "lines": b"k\n" * 100_000,
    "deep": b"> " * 20_000 + b"keepsake",
    "heads": b"#" * 50_000 + b" keepsake",
    "ticks": b"`" * 100_000 + b" keepsake",
    "table": b"|" * 100_000,
    "links": b"[" * 50_000 + b"](" * 50_000,
    "escapes": b"keepsake \x1b]52;c;aGk=\x07\x1b[2J",
    "controls": bytes(range(1, 32)) + b" keepsake",
    "right-to-left": "keepsake \u202eevil".encode(),
    "accents": ("keepsake" + "\u0301" * 100_000).encode(),
    "emoji": ("👩‍👩‍👧‍👦" * 5_000).encode(),
    "chinese": ("港口的水泵" * 10_000).encode(),
    "yaml": b"---\nx: &a [*a]\n---\nkeepsake",
    "yaml-bomb": b"---\n" + b"a: &a [x,x,x]\nb: &b [*a,*a,*a]\n" * 1000 + b"---\n",
    "front": b"---\n" * 10_000,
    "html": b"<script>alert(1)</script> keepsake",
    "sql": b"'; DROP TABLE chunks; -- keepsake",
    "fts": b'" OR * NEAR( AND ) keepsake',
    "regex": b"(a+)+$ " + b"a" * 50_000,
    "secret": b"password: " + b"x" * 100_000,
}
NAMES = (
    *(
        b" ",
        b"a b",
        b"a\nb",
        b"a\tb",
        b"-n",
        b"--force",
        b"a#L1",
        b"a:1-2",
        b"a%23",
        b"a?",
        b"*",
        b"[a]",
        b"a'b",
    ),
    *(b'a"b', b"$(id)", b";ls", b"a\\b", b"\xff\xfe", "é".encode(), "e\u0301".encode(), "\u202emd".encode()),
    *("港".encode(), b"CON", b"x" * 250, b"a\x1b[2J", b".", b"a."),
)
TRICKS = """
{up} memory/{up} memory/../{up} ./{up} memory//../{up} {up}\0.md {up}#L1-L2 \0 .. .
{outside}/secret.md //{outside}/secret.md file://{outside}/secret.md ~/secret.md $HOME/secret.md
memory/link.md memory/relative.md memory/folder memory/folder/secret.md memory/twice/secret.md
memory/folder/../{up} memory\\..\\..\\outside\\secret.md memory/link.md#L1
%2e%2e/outside/secret.md ..%2foutside%2fsecret.md
memory/link.md:1-2 memory/../memory/folder/secret.md MEMORY.md/{up} sessions/{up} graphiti/{up}
/etc/passwd /proc/self/root/etc/passwd /proc/self/cwd/{up} memory/twice /dev/stdin
""".split()


def write_hostile(notes: Path) -> None:
    """Write what is hard to read, or to name, or is no file."""
    named = {name.encode(): text for name, text in TEXTS.items()} | dict.fromkeys(NAMES, b"keepsake")
    for name, text in named.items():
        with suppress(OSError):  # not every file system takes every name
            Path(os.fsdecode(os.fsencode(notes) + b"/" + name + b".md")).write_bytes(text)
    (notes / "dir.md").mkdir()
    os.mkfifo(notes / "pipe.md")
    links = {
        "loop": "loop.md",
        "gone": "nowhere.md",
        "passwd": "/etc/passwd",
        "zero": "/dev/zero",
        "up": "..",
    }
    for link, target in links.items():
        (notes / f"{link}.md").symlink_to(target)


def write_ways_out(notes: Path, outside: Path) -> None:
    """Write a note of somebody else, and links among the notes that lead to it."""
    outside.mkdir()
    (outside / "secret.md").write_text("of others", encoding="utf-8")
    links: dict[str, str | Path] = {
        "link.md": outside / "secret.md",
        "relative.md": "../../outside/secret.md",
        "folder": outside,
        "twice": notes / "folder",
    }
    for link, target in links.items():
        (notes / link).symlink_to(target)


def tricks(outside: Path) -> list[str]:
    """Return paths that try to lead to that note, or out of the workspace elsewhere."""
    return [one.format(up="../../outside/secret.md", outside=outside) for one in TRICKS]


# --- backends that lie --------------------------------------------------------------------------------------

Lie = Callable[[], Awaitable[object]]


class Liar(FakeBackend):
    """Answers with whatever it was told to."""

    def __init__(self, lie: Lie) -> None:
        super().__init__("liar")
        self._lie = lie

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        self.note_question(query, options)
        return cast("SearchAnswer", await self._lie())

    async def search(
        self, query: str, options: SearchOptions | None = None
    ) -> tuple[MemorySearchResult, ...]:
        return (await self.answer(query, options)).results


class Silent(HangingBackend):
    """Swallows every cancellation, and answers only when it is let go."""

    def __init__(self) -> None:
        super().__init__(backend_id="silent")
        self.release = asyncio.Event()
        self.let_go = asyncio.Event()

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemorySearchResult]:
        self.note_question(query, options)
        self.started.set()
        while not self.release.is_set():
            try:
                await self.release.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
        self.let_go.set()
        return [result()]


def result(**changes: object) -> MemorySearchResult:
    sound: dict[str, object] = {"path": "memory/lie.md", "start_line": 1, "end_line": 2, "score": 0.9}
    return MemorySearchResult(**cast("Any", {**sound, "snippet": "a lie about the dock", **changes}))


def says(*results: object, **changes: object) -> Lie:
    async def lie() -> object:
        return SearchAnswer(**cast("Any", {"results": results, **changes}))

    return lie


def gives(answer: object) -> Lie:
    async def lie() -> object:
        return answer

    return lie


def throws(error: BaseException) -> Lie:
    async def lie() -> object:
        raise error

    return lie


class Hostile(Mapping[str, object]):
    """A mapping that raises when it is looked into."""

    def __getitem__(self, key: str) -> object:
        raise RuntimeError("do not look")

    def __iter__(self) -> Any:
        raise RuntimeError("do not look")

    def __len__(self) -> int:
        raise RuntimeError("do not look")


class Foreign(BaseException):
    """An error of a stranger that is no `Exception`."""


UNREADABLE: dict[str, Lie] = {
    "nothing": gives(None),
    "a number": gives(5),
    "bare results": gives([result()]),
    "a dictionary": gives({"results": [result()]}),
    "results that are a number": says(results=5),
    "results that are None": says(results=None),
    "results that are a generator": says(results=(one for one in [result()])),
    "results that are a text": says(results="memory/lie.md"),
    "no results but texts": says("memory/lie.md", "memory/other.md"),
    "results that are dictionaries": says({"path": "memory/lie.md"}),
    "a score of -5": says(result(score=-5)),
    "a score of 7": says(result(score=7.0)),
    "a score of NaN": says(result(score=nan)),
    "an infinite score": says(result(score=inf)),
    "a score that is a text": says(result(score="high")),
    "a score that is None": says(result(score=None)),
    "a path that is None": says(result(path=None)),
    "an empty path": says(result(path="")),
    "a path with a NUL": says(result(path="memory/a\0.md")),
    "a path of half a surrogate pair": says(result(path="memory/\ud83d.md")),
    "a path out of the workspace": says(result(path="../../etc/passwd")),
    "a path that comes back out": says(result(path="memory/../../etc/passwd")),
    "a path of Windows that leads out": says(result(path="memory\\..\\..\\secrets.md")),
    "an absolute path": says(result(path="/etc/passwd")),
    "an absolute path of Windows": says(result(path="C:\\secrets.md")),
    "lines in words": says(result(start_line="one")),
    "lines the wrong way round": says(result(start_line=9, end_line=2)),
    "lines below nothing": says(result(start_line=-4, end_line=-1)),
    "a snippet that is None": says(result(snippet=None)),
    "a snippet of bytes": says(result(snippet=b"dock")),
    "a source that nobody knows": says(result(source="rumour")),
    "a source that is a list": says(result(source=["memory"])),
    "a citation that is a number": says(result(citation=5)),
    "an origin that is a text": says(result(origin="memory/a.md")),
    "an origin without lines": says(result(origin=Origin(path="a.md", start_line=cast("int", None)))),
    "metadata that is a list": says(result(metadata=["a"])),
    "metadata that raises": says(result(metadata=Hostile())),
    "metadata of half a surrogate pair": says(result(metadata={"a": "\ud83d", "\ud83d": 1})),
    "metadata of bytes that are no text": says(result(metadata={"a": b"\xff"})),
    "degraded that is a text": says(result(), degraded="all is well"),
    "degraded that holds a text": says(result(), degraded=("half of it",)),
    "degraded that is None": says(result(), degraded=None),
    "degraded of an unknown kind": says(
        result(), degraded=(Degradation(backend_id="liar", code=cast("Any", "tired"), reason="late"),)
    ),
    "degraded without a reason": says(
        result(), degraded=(Degradation(backend_id="liar", code="stale", reason=cast("str", None)),)
    ),
    "engines that are a text": says(result(), engines="vectors"),
    "legs that take no number of time": says(result(), legs={"vector": (0.0, nan)}),
    "legs that took less than nothing": says(result(), legs={"vector": (-1.0, 2.0)}),
    "legs without names": says(result(), legs={7: (0.0, 1.0)}),
    "countless legs": says(result(), legs={f"leg {n}": (0.0, 1.0) for n in range(1000)}),
    "an exception": throws(RuntimeError("boom")),
    "an exception that cannot be shown": throws(type("Shy", (Exception,), {"__str__": lambda _: 1 / 0})()),
    "out of memory": throws(MemoryError()),
    "a recursion without end": throws(RecursionError()),
    "its own cancellation": throws(asyncio.CancelledError()),
    "the end of the process": throws(SystemExit(3)),
    "the end of a generator": throws(GeneratorExit()),
    "an error that is no Exception": throws(Foreign("mine")),
    "a group of errors that are no Exceptions": throws(BaseExceptionGroup("mine", [Foreign("one")])),
    "a stop of an async iteration": throws(StopAsyncIteration()),
}

HARMLESS: dict[str, Lie] = {
    "a snippet without end": says(result(snippet="dock " * 100_000)),
    "a snippet of half a surrogate pair": says(result(snippet="the \ud83d dock")),
    "a score that is a bool": says(result(score=True)),
    "a cosine a little above 1": says(result(score=1.0000001)),
    "metadata that is no JSON": says(result(metadata={"a": object(), "b": nan})),
    "a list of results": says(results=[result()]),
    "more than it was asked for": says(*(result(start_line=n, end_line=n) for n in range(5_000))),
    "the same result many times": says(*[result()] * 50),
    "an empty answer": says(),
}
