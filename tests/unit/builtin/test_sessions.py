"""What a transcript says: which lines count, what is masked, which may be read, when it has grown enough."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from composable_memory.errors import MemoryPathError
from composable_memory.paths import Reading
from composable_memory_adapters.builtin.notes.changed_notes import Drafter, FileState
from composable_memory_adapters.builtin.notes.documents import cut_document
from composable_memory_adapters.builtin.notes.note_files import ScannedFile, ScanReport, scan
from composable_memory_adapters.builtin.notes.sessions import (
    TRANSCRIPT_RECIPE,
    Transcript,
    growth_limits,
    has_grown_enough,
    is_transcript_path,
    read_transcript,
    resolve_transcript,
)
from composable_memory_adapters.builtin.settings import ChunkingSettings, SessionDeltaSettings

Read = Callable[..., Transcript]

KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nQ==\n-----END RSA PRIVATE KEY-----"


def line(role: str, content: object, **fields: object) -> str:
    return json.dumps({"type": "message", **fields, "message": {"role": role, "content": content}})


def said(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return Path(os.path.realpath(tmp_path)) / "talk.jsonl"


@pytest.fixture
def read(path: Path) -> Read:
    def read(*lines: str | bytes, end: bytes = b"\n") -> Transcript:
        data = [part.encode() if isinstance(part, str) else part for part in lines]
        path.write_bytes(b"\n".join(data) + end)
        return read_transcript(str(path))

    return read


# --- which lines count ---


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"type": "message", "message": {"role": "user", "content": "hello"}}, "User: hello"),
        ({"type": "message", "message": {"role": "assistant", "content": said("hi")}}, "Assistant: hi"),
        ({"type": "user", "message": {"role": "user", "content": "hello"}}, "User: hello"),
        ({"type": "assistant", "message": {"role": "assistant", "content": said("hi")}}, "Assistant: hi"),
        ({"role": "user", "content": "hello"}, "User: hello"),
        ({"type": "message", "role": "assistant", "content": said("hi")}, "Assistant: hi"),
        (
            {
                "type": "response_item",
                "payload": {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "a"}],
                },
            },
            "User: a",
        ),
        ({"role": "assistant", "content": [{"type": "output_text", "text": "b"}]}, "Assistant: b"),
        ({"role": "user", "content": " a\n\n b\t\u2003c "}, "User: a b c"),
        (
            {"role": "user", "content": [*said("one"), {"type": "image", "data": "x"}, *said("two")]},
            "User: one two",
        ),
        # what is no message, or says nothing
        ({"type": "session", "id": "1"}, ""),
        ({"type": "summary", "role": "user", "content": "no"}, ""),
        ({"role": "system", "content": "no"}, ""),
        ({"role": "toolResult", "content": said("no")}, ""),
        ({"role": "user", "content": " \n "}, ""),
        ({"role": "user", "content": [{"type": "tool_result", "content": "no"}]}, ""),
        ({"role": "user", "content": [{"type": "thinking", "thinking": "no"}]}, ""),
        ({"role": "user"}, ""),
        ({"role": ["user"], "content": "no"}, ""),
        ({"role": "user", "content": {"text": "no"}}, ""),
        ({"role": "user", "content": [None, 1, "no", {"type": ["text"], "text": "no"}]}, ""),
        ({"role": "user", "content": [{"type": "text", "text": 7}]}, ""),
        ({"type": ["message"], "role": "user", "content": "no"}, ""),
        (["role"], ""),
        ("role", ""),
    ],
)
def test_messages_of_all_kinds_of_agents_are_understood(read: Read, record: object, expected: str) -> None:
    assert read(json.dumps(record)).text == expected


@pytest.mark.parametrize(
    "noise",
    [
        b'{"role": "user", "content": "half',
        b'{"role": "user", "content": "a\xff\xfe',
        b'\0\0\0"role"',
        b'"role": ' + b"[" * 200_000,
        b'{"role": ' * 100_000,
        b'{"role": "user", "content": ' + b"9" * 10_000 + b"}",
        b'{"role": "user", "role": "system", "content": "x"}',
        b'{"role": "tool", "content": "' + b"x" * 20_000_000 + b'"}',
        b"",
        b"\r",
    ],
    ids=range(10),
)
def test_a_line_that_cannot_be_read_does_not_stop_the_rest(read: Read, noise: bytes) -> None:
    transcript = read(line("user", "before"), noise, line("assistant", "after"))

    assert transcript.text == "User: before\nAssistant: after"
    assert transcript.lines == [1, 3]


def test_a_long_line_is_read_and_an_endless_one_passed_over(read: Read) -> None:
    transcript = read(
        line("user", "x" * 10_000_000), line("user", "x" * 17_000_000), line("assistant", "after")
    )

    assert len(transcript.text) == len("User: \nAssistant: after") + 10_000_000
    assert transcript.lines == [1, 3]


def test_a_last_line_without_an_end_counts_when_it_is_whole(read: Read) -> None:
    assert read(line("user", "a"), line("user", "b"), end=b"").lines == [1, 2]
    assert read(line("user", "a"), line("user", "b")[:-1], end=b"").lines == [1]


def test_equal_lines_are_all_kept(read: Read) -> None:
    assert read(*[line("user", "again")] * 3).lines == [1, 2, 3]


def test_what_no_database_could_keep_is_replaced(read: Read) -> None:
    transcript = read(
        '{"role": "user", "content": "a\\u0000b \\ud83d c"}', b'{"role": "user", "content": "d\xff"}'
    )

    assert transcript.text == "User: a b ? c\nUser: d\ufffd"
    assert transcript.reading == Reading.IN_PART


def test_a_byte_order_mark_and_carriage_returns_are_no_text(read: Read) -> None:
    assert read(b"\xef\xbb\xbf" + line("user", "a").encode() + b"\r", line("user", "b")).lines == [1, 2]


def test_an_empty_transcript_says_nothing(read: Read) -> None:
    transcript = read(end=b"")

    assert (transcript.text, transcript.lines, transcript.excerpt(1, 5)) == ("", [], "")
    assert cut_document(transcript, ChunkingSettings()) == []


# --- secrets ---


def test_secrets_are_masked_before_lines_are_joined(read: Read) -> None:
    """A private key is known by its lines."""
    text = read(line("user", f"mine is\n{KEY}\nok")).text

    assert text == "User: mine is -----BEGIN RSA PRIVATE KEY----- …redacted… -----END RSA PRIVATE KEY----- ok"


def test_secrets_are_masked_that_only_stand_beside_their_name_once_lines_are_joined(read: Read) -> None:
    assert read(line("user", "password\n\n\n:\n\n\nhunter2")).text == "User: password : ***"


def test_a_secret_in_the_next_block_of_a_message_is_masked(read: Read) -> None:
    assert read(line("user", [*said("my password:"), *said("hunter2")])).text == "User: my password: ***"


# --- lines ---


def test_chunks_bear_the_lines_of_the_file(read: Read) -> None:
    noise = '{"type": "noise"}'
    transcript = read(
        noise, line("user", "a" * 90), noise, noise, line("user", "b" * 90), line("user", "c" * 50)
    )
    chunks = cut_document(transcript, ChunkingSettings(tokens=40, overlap=0))

    assert [(chunk.start_line, chunk.end_line) for chunk in chunks] == [(2, 2), (5, 6)]


@pytest.mark.parametrize(
    ("from_line", "lines", "expected"),
    [
        (None, None, "a c d"),
        (0, 0, "a c d"),
        (1, 1, ""),
        (2, 1, "a"),
        (3, None, "c d"),
        (2, 3, "a c"),
        (None, 4, "a c"),
        (-5, 2, "a"),
        (4, -1, "c"),
        (9, 9, ""),
    ],
)
def test_an_excerpt_is_asked_for_in_lines_of_the_file(
    read: Read, from_line: int | None, lines: int | None, expected: str
) -> None:
    transcript = read("{}", line("user", "a"), "{}", line("user", "c"), line("user", "d"))

    found = transcript.excerpt(from_line, lines)
    assert found == "\n".join(f"User: {word}" for word in expected.split())


# --- growth ---


@pytest.mark.parametrize("reason", ["search", "watch", "interval", "session-delta", "search+watch"])
def test_a_sync_that_comes_by_itself_is_patient(reason: str) -> None:
    limits = SessionDeltaSettings()

    assert growth_limits(reason, limits) is limits


@pytest.mark.parametrize("reason", ["manual", "cli", "boot", "session-start", "search+manual", ""])
def test_any_other_sync_is_not(reason: str) -> None:
    assert growth_limits(reason, SessionDeltaSettings()) is None


def test_without_limits_no_sync_is_patient() -> None:
    assert growth_limits("search", SessionDeltaSettings(delta_bytes=0, delta_messages=0)) is None


@pytest.mark.parametrize(
    ("delta_bytes", "delta_messages", "added", "expected"),
    [
        (100, 3, b"x\n" * 2, False),
        (100, 3, b"x\n" * 3, True),
        (100, 3, b"x" * 99, False),
        (100, 3, b"x" * 100, True),
        (0, 3, b"x" * 500, False),
        (0, 3, b"x\n" * 3, True),
        (100, 0, b"\n" * 99, False),
        (100, 0, b"\n" * 100, True),
        (10**6, 2, b"x" * 70_000 + b"\n" + b"x" * 70_000 + b"\n", True),
        (10**6, 3, b"x" * 70_000 + b"\n" + b"x" * 70_000 + b"\n", False),
    ],
)
def test_either_limit_lets_a_transcript_be_read_again(
    path: Path, delta_bytes: int, delta_messages: int, added: bytes, expected: bool
) -> None:
    path.write_bytes(b"old\n" * 50 + added)
    limits = SessionDeltaSettings(delta_bytes=delta_bytes, delta_messages=delta_messages)

    grown = has_grown_enough(str(path), known_size=200, size=200 + len(added), limits=limits)
    assert grown is expected


@pytest.mark.parametrize(
    ("known_size", "data"), [(8, b"old\n"), (8, b"new\nnew\n"), (8, b"new line of another file\n")]
)
def test_a_transcript_that_was_replaced_is_read_again(path: Path, known_size: int, data: bytes) -> None:
    path.write_bytes(data)
    limits = SessionDeltaSettings()

    assert has_grown_enough(str(path), known_size=known_size, size=len(data), limits=limits)


def test_a_transcript_that_cannot_be_looked_at_is_read_so_that_the_reason_is_told(path: Path) -> None:
    assert has_grown_enough(str(path), known_size=1, size=2, limits=SessionDeltaSettings())


def changes(recipe: str, *, any_cut: bool = False) -> int:
    found = ScannedFile("sessions/a.jsonl", "a.jsonl", 1, 2, 3, 4, 5, "sessions")
    known = {found.key: FileState(1, 2, recipe, "hash", "sessions")}
    report = ScanReport(files=(found,), unreadable={}, sources=("sessions",))
    drafter = Drafter(chunking=ChunkingSettings(), keywords=True, any_cut=any_cut)
    return len(drafter.changed(report, known))


def test_a_transcript_that_was_read_by_older_rules_is_read_again() -> None:
    recipe = f"{TRANSCRIPT_RECIPE}/{Drafter(chunking=ChunkingSettings(), keywords=True).recipe}"

    assert changes(recipe) == 0
    assert changes(recipe.replace("redaction-", "redaction-0")) == 1
    assert changes(recipe.replace("redaction-", "redaction-0"), any_cut=True) == 1
    assert changes(recipe.replace("markdown-", "markdown-0"), any_cut=True) == 0


# --- which files ---


def test_transcripts_are_the_regular_jsonl_files_of_one_folder(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    (folder / "deeper").mkdir(parents=True)
    for name in ("b.jsonl", "a.jsonl", "c.json", "d.jsonl.bak", "deeper/e.jsonl"):
        (folder / name).write_text("{}", encoding="utf-8")
    (folder / "link.jsonl").symlink_to(folder / "a.jsonl")
    report = scan(tmp_path, sources=["sessions"], transcripts=folder)

    assert [file.key for file in report.files] == ["sessions/a.jsonl", "sessions/b.jsonl"]
    assert {file.source for file in report.files} == {"sessions"}
    assert (report.unreadable, report.remarks) == ({}, ())


def test_no_folder_is_fine_and_one_that_cannot_be_listed_is_reported(tmp_path: Path) -> None:
    missing = scan(tmp_path, sources=["sessions"], transcripts=tmp_path / "none")
    (tmp_path / "file").write_text("", encoding="utf-8")
    broken = scan(tmp_path, sources=["sessions"], transcripts=tmp_path / "file")

    assert (missing.files, missing.unreadable, missing.remarks) == ((), {}, ())
    assert "cannot be listed (Not a directory)" in broken.unreadable["sessions"]
    assert not broken.covers("sessions/a.jsonl", "sessions")


def test_of_a_source_that_nobody_wants_nothing_exists(tmp_path: Path) -> None:
    report = scan(tmp_path / "none", sources=["memory"], transcripts=tmp_path)

    assert report.files == ()
    assert not report.covers("memory/a.md")
    assert report.covers("sessions/a.jsonl", "sessions")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("sessions/a.jsonl", True),
        (" ./sessions//a.jsonl ", True),
        ("sessions/a.log", True),
        ("sessions", True),
        ("sessions/a.md", False),
        ("memory/sessions/a.jsonl", False),
        ("MEMORY.md", False),
        ("", False),
    ],
)
def test_paths_of_transcripts_are_told_from_those_of_notes(path: str, expected: bool) -> None:
    assert is_transcript_path(path) is expected


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("sessions", r"only transcripts \(.jsonl\) can be read"),
        ("sessions/a.log", r"only transcripts \(.jsonl\) can be read"),
        ("sessions/../a.jsonl", "outside the folder"),
        ("sessions/deeper/a.jsonl", "directly in their folder"),
        ("sessions/a\0.jsonl", "NUL"),
        ("sessions/\ud800.jsonl", "not valid Unicode"),
        ("sessions/link.jsonl", "it is a symbolic link"),
        ("sessions/folder.jsonl", "it is a folder"),
        ("sessions/" + "x" * 300 + ".jsonl", "it cannot be accessed"),
    ],
)
def test_nothing_but_transcripts_can_be_read(tmp_path: Path, path: str, problem: str) -> None:
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "talk.jsonl")
    (tmp_path / "folder.jsonl").mkdir()

    with pytest.raises(MemoryPathError, match=rf"{problem}.*; readable are sessions/\*.jsonl"):
        resolve_transcript(path, tmp_path)


def test_without_the_source_no_transcript_can_be_read() -> None:
    with pytest.raises(MemoryPathError, match="no source of this memory; add 'sessions' to its `sources`"):
        resolve_transcript("sessions/a.jsonl", None)


def test_a_folder_that_is_a_link_is_followed_for_its_owner_chose_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    expected = Path(os.path.realpath(tmp_path)) / "real" / "a.jsonl"
    assert resolve_transcript("sessions/a.jsonl", tmp_path / "link") == expected
