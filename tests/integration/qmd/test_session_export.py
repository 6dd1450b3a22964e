"""Transcripts become Markdown files that QMD can index, and files of others are left alone."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from composable_memory import paths
from composable_memory.interfaces import BackendServices
from composable_memory_adapters.qmd.maintenance import session_export
from composable_memory_adapters.qmd.maintenance.session_export import (
    ExportReport,
    SessionExporter,
    export_sessions,
)
from composable_memory_adapters.qmd.settings import SessionExportSettings
from tests.full_disk import no_file_longer_than
from tests.integration.qmd.homes import home_in
from tests.variants import variants

NOW = datetime(2026, 3, 1, tzinfo=UTC)
SECRET = "sk-proj-" + "a1B2c3D4e5F6g7H8i9J0" * 2

Export = Callable[..., ExportReport]


@pytest.fixture
def sessions(tmp_path: Path) -> Path:
    folder = tmp_path / "sessions"
    folder.mkdir()
    return folder


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    return tmp_path / "exported"


@pytest.fixture
def export(sessions: Path, exported: Path) -> Export:
    def export(source: Path = sessions, *, retention_days: float | None = None) -> ExportReport:
        return export_sessions(source, exported, retention_days=retention_days, now=NOW)

    return export


def said(speaker: str, text: str) -> str:
    return json.dumps({"type": "message", "message": {"role": speaker, "content": text}}) + "\n"


def talk(folder: Path, name: str, *messages: str, age_days: float = 0.0) -> Path:
    """Write a transcript in which user and assistant take turns."""
    path = folder / name
    speakers = ("user", "assistant") * len(messages)
    path.write_text("".join(map(said, speakers, messages)), encoding="utf-8")
    moment = (NOW - timedelta(days=age_days)).timestamp()
    os.utime(path, (moment, moment))
    return path


def files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.md"))}


def left_behind(folder: Path) -> list[str]:
    """Return what is neither a file of a session nor the journal."""
    return [path.name for path in folder.iterdir() if path.suffix not in (".md", ".journal")]


# --- what is written ---


def test_a_transcript_becomes_a_heading_and_a_line_for_each_message(
    sessions: Path, exported: Path, export: Export
) -> None:
    talk(sessions, "main.jsonl", "Where is\nthe key?", "Under the mat.")

    assert export() == ExportReport(written=1)
    assert files(exported) == {
        "main.md": "# Session main\n\nUser: Where is the key?\nAssistant: Under the mat.\n"
    }


def test_a_transcript_without_words_says_so(sessions: Path, exported: Path, export: Export) -> None:
    (sessions / "main.jsonl").write_text('{"role": "tool", "content": "x"}\nnot json\n{"role": "us')
    export()

    assert files(exported) == {"main.md": "# Session main\n\n(empty)\n"}


def test_secrets_are_masked_in_messages_and_names(sessions: Path, exported: Path, export: Export) -> None:
    talk(sessions, f"{SECRET}.jsonl", f"my key is {SECRET}", "password:\nhunter2-hunter2")
    export()

    (text,) = files(exported).values()
    assert SECRET not in text
    assert "hunter2-hunter2" not in text


def test_nobody_else_may_read_what_is_written(sessions: Path, exported: Path, export: Export) -> None:
    talk(sessions, "main.jsonl", "Hello.")
    export()

    assert {path.stat().st_mode & 0o077 for path in (exported, *exported.iterdir())} == {0}


def test_a_line_that_is_too_long_to_hold_is_passed_over(
    sessions: Path, exported: Path, export: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_export, "MAX_LINE_BYTES", 200)
    talk(sessions, "main.jsonl", "Hello.", "x" * 5000, "Goodbye.")
    export()

    assert files(exported)["main.md"].splitlines()[2:] == ["User: Hello.", "User: Goodbye."]


# --- again ---


def test_what_did_not_change_is_not_written_again_even_after_a_restart(
    sessions: Path, exported: Path, export: Export
) -> None:
    talk(sessions, "main.jsonl", "Hello.")
    export()
    before = (exported / "main.md").stat()

    assert export() == ExportReport(unchanged=1)
    assert (exported / "main.md").stat() == before


def test_a_transcript_that_was_only_touched_is_read_once_and_not_written(
    sessions: Path, exported: Path, export: Export
) -> None:
    path = talk(sessions, "main.jsonl", "Hello.")
    export()
    before = (exported / "main.md").stat()
    os.utime(path, (1, 1))

    assert (export(), export()) == (ExportReport(unchanged=1), ExportReport(unchanged=1))
    assert (exported / "main.md").stat() == before


def test_a_transcript_that_grew_is_written_again(sessions: Path, exported: Path, export: Export) -> None:
    path = talk(sessions, "main.jsonl", "Hello.")
    export()
    with path.open("a") as file:
        file.write(said("assistant", "Good morning."))

    assert export() == ExportReport(written=1)
    assert "Good morning." in files(exported)["main.md"]


def test_the_file_of_a_transcript_that_is_gone_goes_too(
    sessions: Path, exported: Path, export: Export
) -> None:
    path = talk(sessions, "main.jsonl", "Hello.")
    export()
    path.unlink()

    assert export() == ExportReport(removed=1)
    assert files(exported) == {}


def test_transcripts_that_have_been_still_for_too_long_are_not_kept(
    sessions: Path, exported: Path, export: Export
) -> None:
    talk(sessions, "old.jsonl", "Hello.", age_days=31)
    talk(sessions, "new.jsonl", "Hello.", age_days=29)
    export()

    assert export(retention_days=30) == ExportReport(unchanged=1, removed=1)
    assert list(files(exported)) == ["new.md"]


def test_a_folder_of_transcripts_that_is_away_leaves_their_files(
    sessions: Path, exported: Path, export: Export
) -> None:
    talk(sessions, "main.jsonl", "Hello.")
    export()
    sessions.rename(sessions.with_name("unplugged"))

    assert export() == ExportReport()
    assert list(files(exported)) == ["main.md"]


def test_a_file_that_somebody_removed_is_written_again(
    sessions: Path, exported: Path, export: Export
) -> None:
    talk(sessions, "main.jsonl", "Hello.")
    export()
    (exported / "main.md").unlink()

    assert export() == ExportReport(written=1)
    assert list(files(exported)) == ["main.md"]


def test_files_of_an_earlier_recipe_are_made_anew(
    sessions: Path, exported: Path, export: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(sessions, "main.jsonl", "Hello.")
    with monkeypatch.context() as earlier:
        earlier.setattr(session_export, "masked_line", lambda text: text.replace("Hello", "Hush"))
        earlier.setattr(session_export, "RECIPE", "of old")
        export()

    assert export() == ExportReport(written=1)
    assert "Hello." in files(exported)["main.md"]


# --- files of others ---


def test_a_file_of_somebody_else_is_never_touched(sessions: Path, exported: Path, export: Export) -> None:
    exported.mkdir()
    (exported / "diary.md").write_text("Dear diary.")
    (exported / "main.md").write_text("My own notes on main.")
    path = talk(sessions, "main.jsonl", "Hello.")

    assert export() == ExportReport(written=1)
    path.unlink()
    assert export() == ExportReport(removed=1)
    assert files(exported) == {"diary.md": "Dear diary.", "main.md": "My own notes on main."}


def test_a_file_that_was_changed_by_hand_stays_and_another_is_written(
    sessions: Path, exported: Path, export: Export
) -> None:
    path = talk(sessions, "main.jsonl", "Hello.")
    export()
    (exported / "main.md").write_text("I have added something.")
    with path.open("a") as file:
        file.write(said("assistant", "Good morning."))

    report, again = export(), export()

    assert (report.written, len(report.problems)) == (1, 1)
    assert "main.md: somebody has changed it" in report.problems[0]
    assert again == ExportReport(unchanged=1)
    assert files(exported)["main.md"] == "I have added something."
    assert "Good morning." in files(exported)["main-2.md"]


def test_a_file_that_was_changed_by_hand_outlives_its_session(
    sessions: Path, exported: Path, export: Export
) -> None:
    path = talk(sessions, "main.jsonl", "Hello.")
    export()
    (exported / "main.md").write_text("Mine now.")
    path.unlink()

    assert "somebody has changed it" in export().problems[0]
    assert files(exported) == {"main.md": "Mine now."}
    assert export() == ExportReport()


def test_a_file_that_was_changed_and_changed_back_is_still_ours(
    sessions: Path, exported: Path, export: Export
) -> None:
    talk(sessions, "main.jsonl", "Hello.")
    export()
    (exported / "main.md").write_bytes((exported / "main.md").read_bytes())
    os.utime(exported / "main.md", (1, 1))

    assert export().problems == ()
    assert list(files(exported)) == ["main.md"]


def test_a_link_in_the_place_of_a_file_is_not_followed(
    sessions: Path, exported: Path, export: Export, tmp_path: Path
) -> None:
    precious = tmp_path / "precious.md"
    precious.write_text("Precious.")
    talk(sessions, "main.jsonl", "Hello.")
    exported.mkdir()
    (exported / "main.md").symlink_to(precious)
    export()

    assert precious.read_text() == "Precious."
    assert sorted(files(exported)) == ["main-2.md", "main.md"]


def test_two_agents_in_one_folder_keep_their_files_apart(
    tmp_path: Path, sessions: Path, exported: Path, export: Export
) -> None:
    others = tmp_path / "others"
    others.mkdir()
    mine, theirs = talk(sessions, "main.jsonl", "Mine."), talk(others, "main.jsonl", "Theirs.")
    export()
    export(others)

    assert {name: text.split()[-1] for name, text in files(exported).items()} == {
        "main.md": "Mine.",
        "main-2.md": "Theirs.",
    }
    assert (export(), export(others)) == (ExportReport(unchanged=1), ExportReport(unchanged=1))
    mine.unlink()
    assert (export(), export(others)) == (ExportReport(removed=1), ExportReport(unchanged=1))
    theirs.unlink()
    assert export(others) == ExportReport(removed=1)


def test_two_agents_who_begin_at_once_do_not_overwrite_each_other(
    tmp_path: Path, exported: Path, export: Export
) -> None:
    agents = [tmp_path / f"agent-{number}" for number in range(4)]
    for agent in agents:
        agent.mkdir()
        for number in range(10):
            talk(agent, f"{number}.jsonl", f"This is {agent.name}.")
    threads = [threading.Thread(target=export, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for agent in agents:
        export(agent)  # who met another at the same name in the same moment comes again

    texts = list(files(exported).values())
    assert {agent.name: sum(agent.name in text for text in texts) for agent in agents} == {
        agent.name: 10 for agent in agents
    }


# --- hostile transcripts ---


@pytest.mark.parametrize(
    "stem",
    [
        "..",
        ".hidden",
        "-rf",
        "a\nb",
        "a\\b",
        "*",
        "{MEMORY,memory}",
        "日誌",
        "with space ",
        "\x1b[31m",
        "é" * 120,
        "",
    ],
    ids=repr,
)
def test_any_name_of_a_transcript_gives_one_plain_name(
    sessions: Path, exported: Path, export: Export, stem: str
) -> None:
    talk(sessions, f"{stem}.jsonl", "Hello.")
    report = export()

    (name,) = files(exported)
    assert report == ExportReport(written=1)
    assert name.isprintable()
    assert name[0] not in ".- "
    assert not set(name) & set("\n\\*{}/")
    assert files(exported)[name].count("\n") == 3
    assert export() == ExportReport(unchanged=1)


def test_names_that_are_no_text_are_exported_too(sessions: Path, exported: Path, export: Export) -> None:
    name = os.fsdecode(b"caf\xe9.jsonl")
    talk(sessions, name, "Hello.")

    assert (export(), export()) == (ExportReport(written=1), ExportReport(unchanged=1))
    (sessions / name).unlink()
    assert export() == ExportReport(removed=1)


def test_names_that_become_alike_are_kept_apart(sessions: Path, exported: Path, export: Export) -> None:
    for name in ("a*b.jsonl", "a?b.jsonl", "a_b.jsonl"):
        talk(sessions, name, f"This is {name}.")
    export()

    assert len(files(exported)) == 3
    assert export() == ExportReport(unchanged=3)


def test_links_folders_and_pipes_among_the_transcripts_are_passed_over(
    sessions: Path, exported: Path, export: Export, tmp_path: Path
) -> None:
    elsewhere = talk(tmp_path, "elsewhere.jsonl", "A secret of somebody else.")
    (sessions / "link.jsonl").symlink_to(elsewhere)
    (sessions / "folder.jsonl").mkdir()
    os.mkfifo(sessions / "pipe.jsonl")

    assert export() == ExportReport()
    assert files(exported) == {}


def test_a_transcript_that_became_a_link_since_it_was_listed_is_a_problem(
    sessions: Path, exported: Path, export: Export, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = talk(tmp_path, "elsewhere.jsonl", "A secret of somebody else.")
    path = talk(sessions, "main.jsonl", "Hello.")
    listed: Any = vars(session_export)["stamp_of"]

    def swap(looked_at: Path) -> object:
        stamp = listed(looked_at)
        if looked_at == path and not path.is_symlink():
            path.unlink()
            path.symlink_to(elsewhere)
        return stamp

    monkeypatch.setattr(session_export, "stamp_of", swap)

    assert "session main.jsonl" in export().problems[0]
    assert files(exported) == {}


def test_a_transcript_that_is_too_large_is_a_problem_for_itself_alone(
    sessions: Path, exported: Path, export: Export
) -> None:
    talk(sessions, "main.jsonl", "Hello.")
    os.truncate(talk(sessions, "huge.jsonl", "Hello."), paths.MAX_FILE_BYTES + 1)

    report = export()

    assert (report.written, report.problems) == (1, ("session huge.jsonl: it is larger than 256 MB",))


# --- troubles of the disk ---


def test_a_folder_that_cannot_be_made_is_a_problem(sessions: Path, exported: Path, export: Export) -> None:
    talk(sessions, "main.jsonl", "Hello.")
    exported.write_text("I am a file.")

    (problem,) = export().problems

    assert str(exported) in problem


def test_a_journal_that_cannot_be_read_stops_the_export(
    sessions: Path, exported: Path, export: Export
) -> None:
    talk(sessions, "main.jsonl", "Hello.")
    export()
    (journal,) = exported.glob("*.journal")
    journal.unlink()
    journal.mkdir()
    talk(sessions, "main.jsonl", "Hello, world.")

    assert export().problems
    assert "world" not in files(exported)["main.md"]


def test_a_journal_with_torn_lines_still_tells_what_it_can(
    sessions: Path, exported: Path, export: Export
) -> None:
    path = talk(sessions, "main.jsonl", "Hello.")
    export()
    (journal,) = exported.glob("*.journal")
    with journal.open("ab") as file:
        file.write(b'{"name": "ma\xff\n\0\n{}\n{"name": "to')

    assert export() == ExportReport(unchanged=1)
    path.write_text(said("user", "Other words."))
    assert (export(), export()) == (ExportReport(written=1), ExportReport(unchanged=1))


def test_a_full_disk_costs_no_file_and_leaves_no_litter(
    sessions: Path, exported: Path, export: Export
) -> None:
    talk(sessions, "main.jsonl", "Hello.")
    export()
    talk(sessions, "main.jsonl", "Hello. " * 20_000)
    with no_file_longer_than(50_000):
        report = export()

    assert len(report.problems) == 1
    assert files(exported) == {"main.md": "# Session main\n\nUser: Hello.\n"}
    assert left_behind(exported) == []
    assert export() == ExportReport(written=1)
    assert list(files(exported)) == ["main.md"]


@pytest.mark.parametrize(
    ("step", "is_first"),
    variants([("touch", True), ("replace", True), ("replace", False), ("unlink", False)], ("replace", True)),
)
def test_killed_at_any_moment_the_next_export_knows_its_files(
    sessions: Path, exported: Path, export: Export, step: str, is_first: bool
) -> None:
    if not is_first:
        talk(sessions, "main.jsonl", "Hello.")
        export()
    talk(sessions, "main.jsonl", "Hello.", "Good morning.")
    killed = subprocess.run(
        [sys.executable, "-c", EXPORT_AND_DIE, step, str(sessions), str(exported)],
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    talk(sessions, "main.jsonl", "Hello.", "Good morning.", "What is new?")

    assert killed.returncode == -signal.SIGKILL
    assert export().problems == ()
    assert list(files(exported)) == ["main.md"]
    assert "What is new?" in files(exported)["main.md"]
    assert left_behind(exported) == []


EXPORT_AND_DIE = """
import os, signal, sys
from datetime import UTC, datetime
from pathlib import Path
from composable_memory_adapters.qmd.maintenance.session_export import export_sessions

step, *folders = sys.argv[1:]
setattr(Path, step, lambda *_args, **_options: os.kill(os.getpid(), signal.SIGKILL))
export_sessions(*map(Path, folders), retention_days=None, now=datetime.now(UTC))
"""


def test_an_export_that_is_not_wanted_any_more_stops_between_two_messages(
    sessions: Path, exported: Path
) -> None:
    for number in range(3):
        talk(sessions, f"{number}.jsonl", *["Hello."] * 10)
    answers = iter([False] * 15 + [True] * 99)

    report = export_sessions(
        sessions, exported, retention_days=None, now=NOW, is_cancelled=lambda: next(answers)
    )

    assert report == ExportReport(written=1)
    assert list(files(exported)) == ["0.md"]
    assert left_behind(exported) == []


def test_folders_that_are_named_relatively_are_below_the_state_folder(
    tmp_path: Path, services: BackendServices
) -> None:
    settings = SessionExportSettings(enabled=True, dir=Path("./talks"), export_dir=Path("./session-exports"))
    exporter = SessionExporter(settings, home=home_in(tmp_path / "qmd"), services=services)

    assert exporter.transcripts == services.state_dir / "talks"
    assert exporter.folder == services.state_dir / "session-exports"
