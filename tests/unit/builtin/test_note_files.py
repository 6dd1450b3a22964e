"""Which notes are found, and how they are read."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from composable_memory.errors import BackendError
from composable_memory.paths import Reading
from composable_memory_adapters.builtin.notes.note_files import ScanReport, read_note, scan

Write = Callable[..., Path]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


@pytest.fixture
def write(root: Path) -> Write:
    def write(path: str, data: bytes = b"text") -> Path:
        target = root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return target

    return write


def keys(report: ScanReport) -> list[str]:
    return [file.key for file in report.files]


def test_notes_are_found_in_a_stable_order(root: Path, write: Write) -> None:
    for path in (
        "memory/b.md",
        "memory/a/z.md",
        "memory/a.md",
        "memory.md",
        "MEMORY.md",
        "memory/.hidden/x.md",
    ):
        write(path)

    expected = [
        "MEMORY.md",
        "memory.md",
        "memory/.hidden/x.md",
        "memory/a.md",
        "memory/a/z.md",
        "memory/b.md",
    ]
    assert keys(scan(root)) == expected


def test_what_ends_as_a_note_counts_in_small_letters_or_capitals(root: Path, write: Write) -> None:
    notes = ["a.MD", "b.txt", "c.markdown", "d.mdx", "e.rst", "f.Org"]
    for path in (*(f"memory/{one}" for one in notes), "memory/md", "memory/g.png", "notes.md", "README.md"):
        write(path)

    assert keys(scan(root)) == [f"memory/{one}" for one in notes]


def test_of_a_whole_folder_what_is_hidden_of_tools_or_a_state_folder_is_left_out(
    root: Path, write: Write
) -> None:
    notes = ["Täglich/Schlüssel und Tür.md", "a.txt", "memory/b.md"]
    others = [".obsidian/a.md", ".trash/b.md", "x/.hidden.md", "node_modules/c.md", "d.canvas", "x/e f.png"]
    for path in (*notes, *others, "state/exported.md", "state/workspaces.sqlite"):
        write(path)

    (root / "link.md").symlink_to(root / "a.txt")
    report = scan(root, [Path()], most=3)
    assert sorted(keys(report)) == notes
    assert report.passed_over == {
        "hidden": 2,
        "folder of a tool": 2,
        "state folder": 1,
        ".canvas": 1,
        ".png": 1,
        "symbolic link": 1,
    }
    with pytest.raises(BackendError, match="max_files"):
        scan(root, [Path()], most=2)


def test_of_a_whole_folder_what_git_ignores_is_left_out_but_for_the_memory_of_an_agent(
    root: Path, write: Write
) -> None:
    write(".gitignore", b"/drafts/\n*.log.md\nmemory\n!keep.log.md\nMEMORY.md\n")
    write("docs/.gitignore", b"secret.md\n")
    notes = ["MEMORY.md", "docs/a.md", "keep.log.md", "memory/secret.log.md", "secret.md"]
    for path in (*notes, "drafts/a.md", "drafts/b.md", "b.log.md", "docs/secret.md", "docs/c.log.md"):
        write(path)
    everything = scan(root, [Path()])
    assert sorted(keys(everything)) == notes
    assert everything.passed_over == {"ignored by .gitignore": 4, "hidden": 2}

    # What a setting names is not left out, and only a whole folder has what is ignored.
    assert keys(scan(root, [Path(), Path("drafts")]))[-2:] == ["drafts/a.md", "drafts/b.md"]
    assert "docs/secret.md" in keys(scan(root, [Path("docs")]))


def test_a_gitignore_that_cannot_be_read_is_named(root: Path, write: Write) -> None:
    (root / ".gitignore").symlink_to(write("a.md"))
    report = scan(root, [Path()])

    assert keys(report) == ["a.md"]
    assert [*report.unreadable] == [".gitignore"]


def test_most_reasons_for_passing_over_are_listed_and_all_are_counted(root: Path, write: Write) -> None:
    for number in range(30):
        write(f"memory/x.{number}")
    write("memory/LICENSE")
    write("memory/y.0")

    passed = scan(root, most=1).passed_over
    assert (passed[".0"], passed["other"], sum(passed.values())) == (2, 11, 32)


def test_text_in_utf_16_is_read_by_its_mark(write: Write) -> None:
    for number, encoding in enumerate(("utf-16-le", "utf-16-be", "utf-8-sig")):
        mark = "" if encoding == "utf-8-sig" else "\ufeff"
        note = read_note(str(write(f"memory/{number}.md", f"{mark}Schlüssel 你好\n".encode(encoding))))
        assert (note.text, note.reading) == ("Schlüssel 你好\n", Reading.WHOLE)

    assert read_note(str(write("memory/odd.md", b"\xff\xfea\0b"))).reading == Reading.IN_PART


@pytest.mark.parametrize("folder", [".git", "node_modules", ".venv", "__pycache__"])
def test_folders_of_tools_are_left_out(root: Path, write: Write, folder: str) -> None:
    write(f"memory/{folder}/a.md")

    assert keys(scan(root)) == []


def test_links_are_not_followed(root: Path, write: Write, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.md").write_text("text", encoding="utf-8")
    write("memory/b.md")
    (root / "memory" / "link.md").symlink_to(outside / "a.md")
    (root / "memory" / "folder").symlink_to(outside)
    (root / "memory" / "loop").symlink_to(root / "memory")

    report = scan(root)

    assert keys(report) == ["memory/b.md"]
    assert report.remarks == ()


def test_a_memory_folder_that_is_a_link_is_remarked(root: Path, tmp_path: Path) -> None:
    (root / "memory").symlink_to(tmp_path)

    report = scan(root)

    assert keys(report) == []
    assert "memory is a symbolic link" in report.remarks[0]


def test_extra_folders_and_files_are_found_under_their_relative_names(root: Path, tmp_path: Path) -> None:
    (tmp_path / "team" / "sub").mkdir(parents=True)
    for path in ("team/sub/a.md", "team/b.png", "one.md", "two.png"):
        (tmp_path / path).write_text(path, encoding="utf-8")

    report = scan(root, [tmp_path / "team", Path("../one.md"), Path("../two.png")])

    assert keys(report) == ["../team/sub/a.md", "../one.md"]


def test_an_extra_path_that_is_missing_is_remarked(root: Path) -> None:
    assert scan(root, [Path("nowhere")]).remarks == ("extra path nowhere does not exist",)


def test_a_file_that_is_reached_twice_is_listed_once(root: Path, write: Write) -> None:
    write("memory/a.md")
    os.link(root / "memory" / "a.md", root / "memory" / "b.md")

    assert keys(scan(root, [Path("memory"), Path("memory/a.md")])) == ["memory/a.md"]


def test_a_name_that_is_not_unicode_is_remarked(root: Path, write: Write) -> None:
    write("memory/a.md")
    try:
        Path(os.fsdecode(os.fsencode(root / "memory") + b"/\xff.md")).write_text("text", encoding="utf-8")
    except OSError:
        pytest.skip("this file system refuses such names")

    report = scan(root)

    assert keys(report) == ["memory/a.md"]
    assert "not valid Unicode" in report.remarks[0]


def test_a_workspace_that_is_missing_says_nothing_about_its_notes(root: Path) -> None:
    report = scan(root / "nowhere")

    assert keys(report) == []
    assert not report.covers("memory/a.md")
    assert "does not exist" in report.unreadable[""]


def test_a_workspace_that_cannot_be_looked_at_says_nothing_about_its_notes(root: Path) -> None:
    report = scan(root / ("x" * 300))

    assert not report.covers("memory/a.md")
    assert "File name too long" in report.unreadable[""]


def test_what_lies_in_an_unreadable_folder_is_not_taken_for_gone() -> None:
    report = ScanReport(files=(), unreadable={"memory/private": "Permission denied"})

    assert not report.covers("memory/private/a.md")
    assert not report.covers("memory/private")
    assert report.covers("memory/private.md")
    assert report.covers("memory/a.md")


def test_a_scan_names_time_and_size(root: Path, write: Write) -> None:
    note = write("memory/a.md", b"12345")
    os.utime(note, ns=(1, 1_700_000_000_123_456_789))

    (file,) = scan(root).files

    assert (file.path, file.mtime_ns, file.size) == (str(note), 1_700_000_000_123_456_789, 5)


@pytest.mark.parametrize(
    ("data", "text", "reading"),
    [
        (b"plain", "plain", Reading.WHOLE),
        (b"\xef\xbb\xbfmarked", "marked", Reading.WHOLE),
        ("Zoë 明".encode(), "Zoë 明", Reading.WHOLE),
        (b"caf\xe9", "café", Reading.AS_WESTERN),
        (b"\xef\xbb\xbfcaf\xe9", "café", Reading.AS_WESTERN),
        ("„schön“ — 3 €\n".encode("cp1252"), "„schön“ — 3 €\n", Reading.AS_WESTERN),
        ("Größe\n".encode("latin-1") + "Größe 明\n".encode(), "Größe\nGröße 明\n", Reading.AS_WESTERN),
        ("Где стоит красная мельница?".encode("koi8-r"), "", Reading.NO_TEXT),
        ("The mill.".encode("utf-16-le"), "", Reading.NO_TEXT),
        (b"\x7fELF\2\0\0\0\xff\xfe", "", Reading.NO_TEXT),
        (b"a note that a crash has cut off\0\0", "a note that a crash has cut off\0\0", Reading.WHOLE),
        (b"a\r\nb", "a\r\nb", Reading.WHOLE),
        (b"", "", Reading.WHOLE),
    ],
)
def test_a_note_is_read_whatever_its_bytes(write: Write, data: bytes, text: str, reading: Reading) -> None:
    note = read_note(str(write("memory/a.md", data)))

    assert (note.text, note.reading, note.size) == (text, reading, len(data))


def test_a_note_that_was_written_just_now_is_not_settled(write: Write) -> None:
    path = write("memory/a.md")
    assert not read_note(str(path)).settled

    os.utime(path, (1, 1))
    assert read_note(str(path)).settled


def test_where_times_are_whole_seconds_a_note_settles_after_two_of_them(write: Write) -> None:
    path = write("memory/a.md")
    this_second = int(time.time() - 0.05)
    os.utime(path, (this_second, this_second))
    assert not read_note(str(path)).settled

    os.utime(path, (this_second - 3, this_second - 3))
    assert read_note(str(path)).settled


def test_a_link_in_the_place_of_a_note_is_not_read(root: Path, write: Write) -> None:
    target = write("memory/a.md")
    (root / "memory" / "link.md").symlink_to(target)

    with pytest.raises(FileNotFoundError, match="link"):
        read_note(str(root / "memory" / "link.md"))


def test_a_pipe_in_the_place_of_a_note_does_not_hold_the_reader(root: Path) -> None:
    os.mkfifo(root / "pipe.md")

    with pytest.raises(OSError, match="not a regular file"):
        read_note(str(root / "pipe.md"))


def test_a_note_beyond_all_measure_is_refused(root: Path) -> None:
    with (root / "huge.md").open("wb") as file:
        file.truncate(300 * 1024 * 1024)  # takes no room on the disk

    with pytest.raises(OSError, match="larger than 256 MB"):
        read_note(str(root / "huge.md"))


def test_a_folder_that_has_become_a_link_leads_nowhere(root: Path, write: Write) -> None:
    write("elsewhere/x.md", b"not for you")
    (root / "memory").mkdir()
    (root / "memory" / "sub").symlink_to(root / "elsewhere")

    with pytest.raises(FileNotFoundError, match="link"):
        read_note(str(root / "memory" / "sub" / "x.md"))
