"""What an agent retains is one line of the day's note, found at once, whoever else writes the note."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from composable_memory import open_memory
from composable_memory.errors import BackendError, InvalidArgument, MemoryPathError, NoteNotWritten
from composable_memory.interfaces import BackendServices, BackendSpec, Capability, ProgressCallback
from composable_memory.retain.note_file import NoteFile
from composable_memory.retain.retained_lines import RetainedLine, retained_lines
from composable_memory.supervision.file_lock import hold_lock
from composable_memory.testing.in_memory import InMemoryBackend, InMemorySettings
from composable_memory.types import SyncReport
from composable_memory_ops_logs import OpsLogReader
from tests.full_disk import no_file_longer_than
from tests.rounds import rounds
from tests.variants import variants

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOTE = "memory/2026-03-01.md"
LINES = rounds(25, explore=500)
"""How many lines each process retains beside an editor."""

WRITER = """
import asyncio, sys
from datetime import UTC, datetime
from composable_memory import open_memory

async def main(workspace, state, name, count):
    async with open_memory(workspace, state, long_lived=False) as memory:
        for number in range(count):
            text = f"{name} saw ship {number} come in."
            done = await memory.remember(text, now=datetime(2026, 3, 1, tzinfo=UTC))
            assert done.duplicate_of is None, done
            print(done.id, flush=True)

asyncio.run(main(*sys.argv[1:4], int(sys.argv[4])))
"""
SAME = """
import asyncio, sys
from datetime import UTC, datetime
from composable_memory import open_memory

async def main(workspace, state):
    async with open_memory(workspace, state, long_lived=False) as memory:
        now = datetime(2026, 3, 1, tzinfo=UTC)
        done = await asyncio.gather(*(memory.remember("Ann saw a ship.", now=now) for _ in range(10)))
        assert len(await memory.search("ship")) == 1
        for one in done:
            print(one.id, "known" if one.duplicate_of else "new")

asyncio.run(main(*sys.argv[1:]))
"""
EDITOR = """
import os, sys, time
note, stop = sys.argv[1:]
saved = 0
while not os.path.exists(stop):
    time.sleep(0.1)
    with open(note) as file:
        read = file.read()
    new = read.replace("# Ships", f"# Ships\\n\\nThe editor wrote line {saved}.", 1)
    with open(note) as file:
        if not read or file.read() != read:
            continue
    if saved % 2:
        with open(note, "w") as file:
            file.write(new)
    else:
        with open(note + "~", "w") as file:
            file.write(new)
        os.replace(note + "~", note)
    saved += 1
print(saved)
"""
"""Saves a line of its own again and again, by both ways in which editors do, unless the note has changed."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    return tmp_path / "notes"


def lines_of(folder: Path, path: str = NOTE) -> list[RetainedLine]:
    return list(retained_lines((folder / path).read_text(encoding="utf-8")))


def files_in(*folders: Path) -> list[Path]:
    return [path for folder in folders for path in folder.rglob("*") if path.is_file()]


async def test_a_line_is_in_the_note_of_the_day_and_found_at_once(folder: Path, state_dir: Path) -> None:
    async with open_memory(folder, state_dir) as memory:
        done = await memory.remember(
            "Prefers short replies in chat.",
            entities=["Peter", "Ellen Smith"],
            confidence=0.9,
            tags=["#style"],
            now=NOW,
        )
        (found, *_) = await memory.search("short replies")

    assert (folder / NOTE).read_text(encoding="utf-8") == f"## Retain\n{done.line}\n"
    assert (
        done.line == f"- O(c=0.9) @Peter @[[Ellen Smith]]: Prefers short replies in chat. #style ^{done.id}"
    )
    assert (done.path, done.citation, done.degraded) == (NOTE, f"{NOTE}#L2", ())
    assert found.path == NOTE
    assert done.line in found.text


@pytest.mark.thorough
def test_two_processes_and_an_editor_lose_no_line_and_tear_none(folder: Path, state_dir: Path) -> None:
    (folder / NOTE).parent.mkdir()
    (folder / NOTE).write_text("# Ships\n\n## Retain\n", encoding="utf-8")
    names = ("Ann", "Bob")
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(folder), str(state_dir), name, str(LINES)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    editor = subprocess.Popen(
        [sys.executable, "-c", EDITOR, str(folder / NOTE), str(folder / "stop")],
        stdout=subprocess.PIPE,
        text=True,
    )

    told = [id_ for one in writers for id_ in one.communicate(timeout=600)[0].split()]
    (folder / "stop").touch()
    saved = int(editor.communicate(timeout=60)[0])

    assert [one.returncode for one in (*writers, editor)] == [0, 0, 0]
    text = (folder / NOTE).read_text(encoding="utf-8")
    wanted = [f"{name} saw ship {number} come in." for name in names for number in range(LINES)]
    assert Counter(one.text for one in retained_lines(text)) == Counter(wanted)
    assert sorted(told) == sorted(one.id or "" for one in retained_lines(text))
    assert Counter(row for row in text.split("\n") if row.startswith("The editor")) == Counter(
        f"The editor wrote line {number}." for number in range(saved)
    )
    assert saved > 0
    assert {row.split(" ")[0] for row in text.split("\n")} == {"#", "##", "-", "The", ""}


async def test_what_is_known_is_not_written_again(folder: Path, state_dir: Path) -> None:
    (folder / "MEMORY.md").write_text(
        "# About\n\n- Peter is allergic to nuts.\n\nHe sits in room 12. Peter has a blue desk.\n",
        encoding="utf-8",
    )
    async with open_memory(folder, state_dir) as memory:
        first = await memory.remember("Peter prefers short replies.", now=NOW)
        same = await memory.remember("prefers  short replies", entities=["Peter"], now=NOW)
        later = await memory.remember("Peter prefers short replies!", now=NOW + timedelta(days=3))
        plain = await memory.remember("Peter is allergic to nuts", now=NOW)
        second = await memory.remember("Peter has a blue desk.", now=NOW)
        other = await memory.remember("Peter is allergic to gluten.", now=NOW)

    assert [one.duplicate_of for one in (first, same, later, plain, second, other)] == [
        None,
        first.citation,
        first.citation,
        "MEMORY.md#L3",
        "MEMORY.md#L5",
        None,
    ]
    assert (same.id, same.line) == (first.id, first.line)
    assert [one.text for one in lines_of(folder)] == [
        "Peter prefers short replies.",
        "Peter is allergic to gluten.",
    ]


async def test_what_is_of_a_day_or_has_changed_since_is_not_known(folder: Path, state_dir: Path) -> None:
    days = [NOW + timedelta(days=number) for number in range(3)]
    async with open_memory(folder, state_dir) as memory:
        runs = [await memory.remember("Went running.", type="experience", now=day) for day in days[:2]]
        tomorrow = [await memory.remember("Peter comes tomorrow.", now=day) for day in days[:2]]
        moves = [
            await memory.remember(f"Peter lives in {city}.", now=day)
            for city, day in zip(("Porto", "Lisbon", "Porto"), days, strict=True)
        ]

    assert {one.duplicate_of for one in (*runs, *tomorrow, *moves)} == {None}


async def test_what_was_contradicted_meanwhile_is_written_again(folder: Path, state_dir: Path) -> None:
    (folder / "memory").mkdir(exist_ok=True)
    (folder / "memory" / "people.md").write_text("Alice Moreau works at Acme.\n", encoding="utf-8")
    async with open_memory(folder, state_dir) as memory:
        said = [
            await memory.remember(f"Alice Moreau works at {firm}.", now=NOW)
            for firm in ("Acme", "Beacon Labs", "Beacon Labs", "Acme", "Acme", "Beacon Labs")
        ]

    assert [one.duplicate_of is not None for one in said] == [True, False, True, False, True, False]


async def test_an_opinion_of_another_day_or_another_confidence_is_evidence(
    folder: Path, state_dir: Path
) -> None:
    said = ((0.9, 0), (0.9, 0), (None, 0), (0.5, 0), (0.9, 1), (0.9, 1))
    async with open_memory(folder, state_dir) as memory:
        done = [
            await memory.remember(
                "Prefers tea.",
                type="opinion",
                entities=["Peter"],
                confidence=sure,
                now=NOW + timedelta(days=day),
            )
            for sure, day in said
        ]
        pages = await memory.reflect(now=NOW + timedelta(days=2))

    assert [one.duplicate_of is None for one in done] == [True, False, False, True, True, False]
    (opinions,) = (page for page in pages.pages if page.path == "bank/opinions.md")
    assert f"^{done[4].id}" in opinions.after


@pytest.mark.thorough
async def test_the_same_sentence_is_stored_once_however_many_remember_it_at_a_time(
    folder: Path, state_dir: Path
) -> None:
    processes = [
        await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", SAME, str(folder), str(state_dir)), stdout=subprocess.PIPE
        )
        for _ in range(2)
    ]
    told = await asyncio.wait_for(asyncio.gather(*(one.communicate() for one in processes)), 120)

    (line,) = lines_of(folder)
    ids = [tuple(row.split()) for out, _ in told for row in out.decode().splitlines()]
    assert Counter(ids) == {(line.id, "new"): 1, (line.id, "known"): 19}


async def test_the_day_is_that_of_the_one_who_asks(folder: Path, state_dir: Path) -> None:
    async with open_memory(folder, state_dir) as memory:
        done = await memory.remember("It is late.", now=NOW.astimezone(timezone(timedelta(hours=13))))

    assert done.path == "memory/2026-03-02.md"


async def test_no_secret_reaches_the_note_the_log_or_an_error(folder: Path, state_dir: Path) -> None:
    key = "sk-abcdefghijklmnopqrstuvwxyz0123456789"
    async with open_memory(folder, state_dir) as memory:
        masked = await memory.remember(f"The key of the shop is {key}.", now=NOW)
        with pytest.raises(InvalidArgument) as refused:
            await memory.remember(key, now=NOW)

    assert masked.warnings
    assert key not in str(refused.value)
    assert [path for path in files_in(folder, state_dir) if key.encode() in path.read_bytes()] == []


async def test_what_is_no_sentence_is_refused(folder: Path, state_dir: Path) -> None:
    async with open_memory(folder, state_dir) as memory:
        for wrong in (
            {"text": " \n"},
            {"text": "---"},
            {"text": "x" * 1001},
            {"type": "fact"},
            {"confidence": 1.5},
            {"confidence": float("nan")},
            {"entities": ["[[]]"]},
            {"tags": ["two words"]},
            {"now": datetime(2026, 3, 1)},  # noqa: DTZ001 - just that is refused
        ):
            with pytest.raises(InvalidArgument):
                await memory.remember(**{"text": "Peter came.", "now": NOW, **wrong})  # type: ignore[arg-type]

    assert not (folder / "memory").exists()


async def test_no_text_breaks_the_note(folder: Path, state_dir: Path) -> None:
    texts = [
        "# Heading\n## Retain\n- W: another ^abc",
        "---\ntitle: x\n---",
        "<!-- hidden",
        "```\ncode",
        "see #general",
        "look at ^up",
        "zero\x00 bell\x07 line\u2028end",
        "half \ud83d pair",
        "@Bob: hello",
    ]
    async with open_memory(folder, state_dir) as memory:
        done = [await memory.remember(text, now=NOW) for text in texts]

    lines = lines_of(folder)
    assert [one.id for one in lines] == [one.id for one in done]
    assert all(line.tags == () for line in lines)
    assert (folder / NOTE).read_text(encoding="utf-8").count("\n") == len(texts) + 1


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b"## Retain\nLINE\n"),
        (b"# Day\nno newline", b"# Day\nno newline\n\n## Retain\nLINE\n"),
        (b"# Day\r\nWindows\r\n", b"# Day\r\nWindows\r\n\r\n## Retain\r\nLINE\r\n"),
        (b"\xef\xbb\xbf# Day\n", b"\xef\xbb\xbf# Day\n\n## Retain\nLINE\n"),
        (b"---\ntitle: Day\n---\n", b"---\ntitle: Day\n---\n\n## Retain\nLINE\n"),
        (b"```sh\nls\n", b"```sh\nls\n```\n\n## Retain\nLINE\n"),
        (b"<!-- todo\n", b"<!-- todo\n-->\n\n## Retain\nLINE\n"),
        (b"## Retain\n- W: a\n\n## Later\nb\n", b"## Retain\n- W: a\nLINE\n\n## Later\nb\n"),
        (b"## Retain\ntext\n", b"## Retain\ntext\n\nLINE\n"),
        (b"caf\xe9\n", b"caf\xe9\n\n## Retain\nLINE\n"),
    ],
)
async def test_what_is_in_a_note_stays_as_it_is(
    folder: Path, state_dir: Path, before: bytes, after: bytes
) -> None:
    (folder / NOTE).parent.mkdir()
    (folder / NOTE).write_bytes(before)
    (folder / NOTE).chmod(0o640)
    async with open_memory(folder, state_dir) as memory:
        done = await memory.remember("Peter came.", now=NOW)

    assert (folder / NOTE).read_bytes() == after.replace(b"LINE", done.line.encode())
    assert (folder / NOTE).stat().st_mode & 0o777 == 0o640
    assert lines_of_bytes(folder)[done.start_line - 1] == done.line


def lines_of_bytes(folder: Path) -> list[str]:
    return (folder / NOTE).read_bytes().decode("utf-8", "replace").replace("\r", "").split("\n")


async def test_a_note_that_cannot_be_changed_is_left_alone(
    folder: Path, state_dir: Path, tmp_path: Path
) -> None:
    note = folder / NOTE
    note.parent.mkdir()
    (tmp_path / "elsewhere.md").write_text("mine\n")

    def a_link() -> None:
        note.symlink_to(tmp_path / "elsewhere.md")

    def read_only() -> None:
        note.unlink()
        note.write_text("mine\n")
        note.chmod(0o444)

    def in_utf_16() -> None:
        note.chmod(0o644)
        note.write_bytes("mine".encode("utf-16"))

    def a_folder() -> None:
        note.unlink()
        note.mkdir()

    def in_no_folder() -> None:
        note.rmdir()
        note.parent.rmdir()
        note.parent.write_text("a file")

    async with open_memory(folder, state_dir) as memory:
        for prepare in (a_link, read_only, in_utf_16, a_folder, in_no_folder):
            prepare()
            with pytest.raises(NoteNotWritten):
                await memory.remember("Peter came.", now=NOW)

    assert (tmp_path / "elsewhere.md").read_text() == "mine\n"


@pytest.mark.skipif(sys.platform != "linux", reason="Python knows extended attributes on Linux alone")
async def test_the_tags_of_a_note_and_the_files_of_others_stay(folder: Path, state_dir: Path) -> None:
    (folder / NOTE).parent.mkdir()
    (folder / NOTE).write_text("# Day\n", "utf-8")
    try:
        os.setxattr(folder / NOTE, "user.xdg.tags", b"red")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    theirs = folder / NOTE.replace("2026", ".2026").replace(".md", ".of-a-person!.new")
    theirs.touch()
    async with open_memory(folder, state_dir) as memory:
        await memory.remember("Peter came.", now=NOW)

    assert os.getxattr(folder / NOTE, "user.xdg.tags") == b"red"
    assert await asyncio.to_thread(theirs.exists)


async def test_nothing_is_written_where_the_workspace_was_moved_away(folder: Path, state_dir: Path) -> None:
    async with open_memory(folder, state_dir) as memory:
        await asyncio.to_thread(folder.rename, folder.with_name("moved"))
        with pytest.raises(NoteNotWritten, match="no longer exists"):
            await memory.remember("Peter came.", now=NOW)

    assert not await asyncio.to_thread(folder.exists)


async def test_a_lock_that_others_hold_ends_the_wait(folder: Path) -> None:
    (folder / "memory").mkdir()
    async with AsyncExitStack() as stack:
        note = await stack.enter_async_context(NoteFile(folder, NOTE, patience_s=0.1))
        lock = ExitStack()
        await asyncio.to_thread(lock.enter_context, hold_lock(folder / "memory"))
        with pytest.raises(NoteNotWritten):
            await note.change(lambda text: f"{text}more\n")
        assert not (folder / NOTE).exists()
        lock.close()
        await note.change(lambda text: text or "more\n")

    assert (folder / NOTE).read_text() == "more\n"


async def test_a_full_disk_leaves_no_empty_note(folder: Path) -> None:
    async with NoteFile(folder, NOTE) as note:
        with no_file_longer_than(20), pytest.raises(NoteNotWritten):
            await note.change(lambda text: f"{text}{'more ' * 9}\n")

    assert files_in(folder) == []


async def test_remembering_is_logged_without_what_it_says(folder: Path, state_dir: Path) -> None:
    async with open_memory(folder, state_dir) as memory:
        done = await memory.remember("Peter is allergic to peanuts.", now=NOW)
        log = memory.ops_log_dir
    events = await asyncio.to_thread(OpsLogReader(log).trace, done.trace_id)

    (event,) = (one for one in events if one.action == "memory.remembered")
    assert isinstance(event.detail, Mapping)
    assert event.detail["id"] == done.id
    assert "peanuts" not in json.dumps([str(one.detail) for one in events])


async def test_the_other_notes_of_a_folder_stay_notes(folder: Path, state_dir: Path) -> None:
    (folder / "ships.md").write_text("The ferry leaves at nine.\n", encoding="utf-8")
    async with open_memory(folder, state_dir, long_lived=False) as memory:
        await memory.remember("Peter came.", now=NOW)
    async with open_memory(folder, state_dir, long_lived=False) as memory:
        assert (await memory.search("ferry"))[0].path == "ships.md"
        assert (await memory.search("Peter"))[0].path == NOTE


async def test_a_line_is_read_by_its_id_wherever_it_stands(folder: Path, state_dir: Path) -> None:
    async with open_memory(folder, state_dir) as memory:
        done = await memory.remember("Peter prefers tea.", now=NOW)
        text = (folder / NOTE).read_text()
        (folder / NOTE).write_text(f"# A day\n\nWords above.\n\n{text}")
        below = await memory.read_file(f"^{done.id}")
        (folder / NOTE).write_text("# A day\n")
        (folder / "memory" / "people.md").write_text(text.replace("tea", "green tea"))
        moved = await memory.read_file(f"^{done.id}")
        with pytest.raises(MemoryPathError):
            await memory.read_file("^nosuchid")

    assert (below.path, below.text) == (NOTE, done.line)
    assert (moved.path, moved.text) == ("memory/people.md", done.line.replace("tea", "green tea"))


@pytest.mark.parametrize("number", variants(range(rounds(3, explore=40)), 0))
def test_what_was_acknowledged_outlives_a_kill(folder: Path, state_dir: Path, number: int) -> None:
    told: list[str] = []
    for name in ("Ann", "Bob"):
        command = [sys.executable, "-c", WRITER, str(folder), str(state_dir), name, "1000"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            told += [writer.stdout.readline().strip() for _ in range(number + 2)]
            writer.send_signal(signal.SIGKILL)
            told += writer.stdout.read().split()

    text = (folder / NOTE).read_text(encoding="utf-8")
    lines = list(retained_lines(text))
    assert Counter(told) <= Counter(one.id or "" for one in lines)
    assert len({one.text for one in lines}) == len(lines) <= len(told) + 2  # one each, not yet acknowledged
    assert text == "## Retain\n" + "".join(f"- W: {one.text} ^{one.id}\n" for one in lines)
    assert [path.name for path in (folder / "memory").iterdir() if path.suffix == ".md"] == ["2026-03-01.md"]


class _BrokenIndex(InMemoryBackend):
    """An index whose every sync fails."""

    async def sync(
        self, *, reason: str = "manual", force: bool = False, progress: ProgressCallback | None = None
    ) -> SyncReport:
        raise BackendError(self.id, "sync", "the disk is full")


@asynccontextmanager
async def open_broken(settings: InMemorySettings, services: BackendServices) -> AsyncIterator[_BrokenIndex]:
    yield _BrokenIndex(settings.notes)


async def test_a_line_is_safe_though_an_index_does_not_take_it(folder: Path, state_dir: Path) -> None:
    broken = BackendSpec(
        id="broken",
        summary="Cannot be synced.",
        settings=InMemorySettings,
        open=open_broken,
        capabilities=frozenset({Capability.SYNC}),
    )
    async with open_memory(
        folder, state_dir, {"memory": {"broken": {"enabled": True}}}, backends=[broken]
    ) as memory:
        done = await memory.remember("Anna prefers coffee.", now=NOW)

    assert [(one.backend_id, one.code) for one in done.degraded] == [("broken", "failed")]
    assert [one.id for one in lines_of(folder)] == [done.id]
