"""Notes and paths that are hard on who reads them: the good notes are found, and nothing from outside."""

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from composable_memory import Memory, open_memory
from composable_memory.errors import ComposableMemoryError

pytestmark = pytest.mark.security

CONFIG = {
    "embedding": {"provider": "none"},
    "ops_log": {"enabled": False},
    "builtin": {"sync": {"watch": False}},
}
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
/etc/passwd /proc/self/root/etc/passwd /dev/stdin
""".split()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with a workspace of a good note and, beside it, a note of somebody else."""
    for path, text in (
        ("ws/memory/good.md", "The keepsake is in the drawer."),
        ("outside/secret.md", "of others"),
    ):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    return tmp_path


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


@pytest.fixture
async def memory(root: Path) -> AsyncIterator[Memory]:
    async with open_memory(root / "ws", root / "state", CONFIG, environ={}, long_lived=False) as memory:
        yield memory


async def test_the_good_notes_among_hostile_ones_are_found(root: Path, memory: Memory) -> None:
    write_hostile(root / "ws" / "memory")

    await memory.sync()
    again = await memory.sync()
    answer = await memory.query("keepsake in the drawer", max_results=50)

    assert again.files_indexed == 0
    assert answer.results[0].path == "memory/good.md"
    assert not any("root:" in one.snippet for one in answer.results)


async def test_no_trick_reads_a_file_outside(root: Path, memory: Memory) -> None:
    notes, outside = root / "ws" / "memory", root / "outside"
    links: dict[str, str | Path] = {
        "link.md": outside / "secret.md",
        "relative.md": "../../outside/secret.md",
        "folder": outside,
    }
    for link, target in (links | {"twice": notes / "folder"}).items():
        (notes / link).symlink_to(target)
    await memory.sync()

    for trick in TRICKS:
        path = trick.format(up="../../outside/secret.md", outside=outside)
        try:
            text = (await memory.read_file(path)).text
        except ComposableMemoryError:
            continue
        assert not text, path
    assert not (await memory.query("of others")).results
