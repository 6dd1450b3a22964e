"""The command line over the real parts: what it prints where, and with which exit code it ends."""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import apsw
import pytest
from typer.testing import CliRunner, Result

from composable_memory.cli import app
from composable_memory.cli.command_group import all_commands
from composable_memory.cli.commands import COMMANDS
from composable_memory.cli.demo import QUESTIONS
from composable_memory.types import MemoryProviderStatus
from tests.cli_page import assert_documented
from tests.installed_packages import install
from tests.notes import write_notes
from tests.variants import variants

PROGRAM = [sys.executable, "-m", "composable_memory.cli"]
FAULTY_PLUGIN = """
from contextlib import asynccontextmanager
from composable_memory.interfaces import BackendSpec
from composable_memory.config.settings import SettingsModel
from composable_memory.cli.plugin_api import Target, command
from composable_memory.testing.fakes import RaisingBackend
import typer

@asynccontextmanager
async def open_raising(settings, services):
    yield RaisingBackend(backend_id="raising")

@asynccontextmanager
async def open_exploding(settings, services):
    raise RuntimeError("nobody expected\\nthis")
    yield

def spec(name, summary, opener):
    return BackendSpec(id=name, summary=summary, settings=SettingsModel, open=opener)

crash = typer.Typer()

@command(crash, "now")
async def crash_now(target: Target):
    raise RuntimeError("nobody expected\\nthis")

raising = spec("raising", "Fails at every question.", open_raising)
exploding = spec("exploding", "Cannot be opened.", open_exploding)
"""
ENTRY_POINTS = """
[composable_memory.backends]
raising = faulty_plugin:raising
exploding = faulty_plugin:exploding
broken = no_such_module_anywhere:spec

[composable_memory.commands]
crash = faulty_plugin:crash
"""


class Cmem:
    """The command line on one workspace; words only, so that the tests need no vectors."""

    def __init__(self, workspace: Path, state_dir: Path, config: Path) -> None:
        self.workspace = workspace
        self.place = ["--workspace", str(workspace), "--state-dir", str(state_dir)]
        self.config = config
        self.configure("memory: {embedding: {provider: none}}")

    def configure(self, text: str) -> None:
        self.config.write_text(text, encoding="utf-8")

    def write(self, path: str, text: str) -> None:
        (self.workspace / path).write_text(text, encoding="utf-8")

    def __call__(self, *args: str, placed: bool = True) -> Result:
        return CliRunner().invoke(app, [*args, *(self.place if placed else [])])

    def json(self, *args: str) -> dict[str, object]:
        document = json.loads(self(*args, "--json").stdout)
        assert isinstance(document, dict)
        assert_documented(args, document)
        return document

    def process(self, *args: str, **options: Any) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*PROGRAM, *args, *self.place],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
        )  # fmt: skip


@pytest.fixture
def cmem(workspace: Path, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cmem:
    config = tmp_path / "config.yaml"
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(config))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    return Cmem(workspace, state_dir, config)


@pytest.fixture
def indexed(cmem: Cmem) -> Cmem:
    assert cmem("index").exit_code == 0
    return cmem


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a package with a backend that always fails, and one that cannot be imported."""
    folder = tmp_path / "site"
    install(folder, "faulty-plugin", ENTRY_POINTS, faulty_plugin=FAULTY_PLUGIN)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.fixture
def failing(cmem: Cmem, plugins: None) -> Cmem:
    """Have a memory whose only backend fails at every question."""
    cmem.configure("memory: {backend: raising, builtin: {enabled: false}}")
    return cmem


# --- index ------------------------------------------------------------------------------------------------


def test_index_says_what_it_did(cmem: Cmem) -> None:
    result = cmem("index")

    assert (result.exit_code, result.stderr) == (0, "")
    assert re.fullmatch(
        r"Indexed \d+ files \(0 unchanged, 0 removed\), \d+ chunks, 0 embedded, 0 to embed, in [\d.]+ s\.\n",
        result.stdout,
    )


def test_index_as_json_is_one_document(cmem: Cmem) -> None:
    first, second = cmem.json("index"), cmem.json("index")

    assert (first["reason"], first["filesUnchanged"]) == ("cli", 0)
    assert (second["filesIndexed"], second["filesUnchanged"]) == (0, first["filesIndexed"])


def test_index_with_force_builds_anew(indexed: Cmem) -> None:
    again = indexed.json("index", "--force")

    assert (again["filesUnchanged"], again["problems"]) == (0, [])


@pytest.fixture
def vault(cmem: Cmem) -> Path:
    """Have a vault of Obsidian for a workspace: notes anywhere, and much that is none."""
    shutil.rmtree(cmem.workspace)
    notes = {
        "Täglich/2026/Schlüssel und Tür.md": "The spare key hangs behind the boiler.",
        "Projects/Boat licence.org": "The boat licence expires in May.",
    }
    others = {
        ".obsidian/app.md": "key",
        "node_modules/x/README.md": "key",
        "board.canvas": "{}",
        "a b.png": "",
    }
    write_notes(cmem.workspace, notes | others)
    (cmem.workspace / "ladder.txt").write_bytes("The ladder is at Ørsted's.".encode("utf-16"))
    return cmem.workspace


def test_a_vault_is_all_notes_which_is_said_once_and_stays_so(cmem: Cmem, vault: Path) -> None:
    before = {path: path.read_bytes() for path in vault.rglob("*") if path.is_file()}
    os.mkfifo(vault / "pipe.md")
    first = cmem("index")
    assert "Indexed 3 files" in first.stdout
    assert ".canvas (1)" in first.stdout
    assert "memory.builtin.scope" in first.stderr
    assert cmem("index").stderr == ""
    assert re.search(r"chosen +before\n", cmem("status").stdout)

    (vault / "memory").mkdir()
    (vault / "memory" / "2026-05-01.md").write_text("Zebras sleep.", encoding="utf-8")
    cmem("index", "--force")
    for question, path in {
        "spare key": "Täglich/2026/Schlüssel und Tür.md",
        "boat licence": "Projects/Boat licence.org",
        "ladder Ørsted": "ladder.txt",
        "zebras": "memory/2026-05-01.md",
    }.items():
        found = json.loads(cmem("search", question, "--json").stdout)
        assert [one["path"] for one in found["results"]] == [path]
        assert cmem("get", found["results"][0]["citation"]).stdout.strip()
    assert cmem("get", ".obsidian/app.md").exit_code == 1
    status = json.loads(cmem("status", "--json").stdout)["status"]
    assert "did you mean" not in cmem("get", "pipe.md").stderr
    passed_over = {"folder of a tool": 2, ".canvas": 1, ".png": 1, "not a regular file": 1}
    assert status["custom"]["passedOver"] == cmem.json("index")["passedOver"] == passed_over
    assert status["custom"]["scope"] == {"notes": "folder", "chosenBy": "before"}
    assert {path: path.read_bytes() for path in before} == before

    cmem.configure("memory: {embedding: {provider: none}, builtin: {scope: memory}}")
    assert json.loads(cmem("index", "--json").stdout)["filesRemoved"] == 3


def test_notes_beside_a_memory_folder_are_said_to_be_left_out(cmem: Cmem, vault: Path) -> None:
    (vault / "memory").mkdir()
    (vault / "memory" / "2026-05-01.md").write_text("Zebras sleep.", encoding="utf-8")
    first = cmem("index")

    assert "Indexed 1 file " in first.stdout
    assert any(f"such as {one};" in first.stderr for one in ("ladder.txt", "Projects/Boat licence.org"))
    assert "memory.builtin.scope" in first.stderr
    assert cmem("index").stderr == ""


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_restored_vault_is_all_notes_as_before_also_where_it_has_a_memory_folder_by_now(
    cmem: Cmem, vault: Path, tmp_path: Path, is_indexed: bool
) -> None:
    cmem("index")
    cmem("remember", "Zebras sleep.")
    assert cmem("backup", str(tmp_path / "backup")).exit_code == 0
    there = Cmem(vault, tmp_path / "elsewhere", cmem.config)
    if is_indexed:
        assert there.json("index")["filesIndexed"] == 1

    assert there("restore", str(tmp_path / "backup")).exit_code == 0
    there("index")

    assert json.loads(there("status", "--json").stdout)["status"]["files"] == 4


def test_a_link_to_a_note_is_found_by_its_name_and_its_alias_and_read_as_text(
    cmem: Cmem, vault: Path
) -> None:
    (vault / "log.md").write_text("Met [[People/Tomasz Wolski|Tomek]] at the quay.", encoding="utf-8")
    cmem("index")
    for word, shown in (("Wolski", "Met People/Tomasz Wolski (Tomek) at"), ("Tomek", "Met Tomek at")):
        assert shown in cmem("search", word).stdout
        found = json.loads(cmem("search", word, "--json").stdout)["results"]
        assert [one["snippet"] for one in found] == ["Met [[People/Tomasz Wolski|Tomek]] at the quay."]


def test_the_name_that_links_write_leads_to_the_path_of_a_note(cmem: Cmem, vault: Path) -> None:
    for name in ("Schlüssel und Tür", "2026/schlüssel und tür"):
        result = cmem("get", name)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "did you mean 'Täglich/2026/Schlüssel und Tür.md'?" in result.stderr
        assert "readable are all notes in the workspace;" in result.stderr
    assert "did you mean 'Projects/Boat licence.org'?" in cmem("get", "Project/Boat license.org").stderr
    assert "did you mean" not in cmem("get", "und Tür").stderr
    assert "did you mean" not in cmem("get", "../Boat licence").stderr


def test_a_name_that_leads_to_no_note_leads_to_those_that_may_be_meant(cmem: Cmem, tmp_path: Path) -> None:
    (tmp_path / "team").mkdir()
    for path in (tmp_path / "team" / "Ferry times.md", cmem.workspace / "memory" / "boiler.md"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("A note.", encoding="utf-8")
    cmem.configure(f"memory: {{builtin: {{extra_paths: ['{tmp_path / 'team'}']}}}}")

    for wrong, right in (("boiler.md", "memory/boiler.md"), ("docs/Ferry times.md", "team/Ferry times.md")):
        refused = cmem("get", wrong)
        assert (refused.exit_code, f"{right}'?" in refused.stderr) == (1, True)


def test_the_workspace_may_be_named_as_an_extra_path(cmem: Cmem, vault: Path) -> None:
    (vault / "MEMORY.md").write_text("Zebras sleep.", encoding="utf-8")
    assert json.loads(cmem("index", "--json").stdout)["filesIndexed"] == 1

    cmem.configure("memory: {embedding: {provider: none}, builtin: {extra_paths: [.]}}")
    assert json.loads(cmem("index", "--json").stdout)["filesIndexed"] == 3


def test_extra_paths_are_the_choice_in_a_new_folder_and_are_added_where_all_of_it_was_notes(
    cmem: Cmem, vault: Path, tmp_path: Path
) -> None:
    def configure(scope: str) -> None:
        cmem.configure(
            f"memory: {{embedding: {{provider: none}}, builtin: {{scope: {scope}, extra_paths: [../team]}}}}"
        )

    def index() -> tuple[object, object, dict[str, str]]:
        done = cmem.json("index")
        status = json.loads(cmem("status", "--json").stdout)["status"]
        return done["filesIndexed"], done["filesRemoved"], status["custom"]["scope"]

    (vault.parent / "team").mkdir()
    (vault.parent / "team" / "plan.md").write_text("Zebras sleep.", encoding="utf-8")
    configure("auto")
    assert index() == (1, 0, {"notes": "memory", "chosenBy": "setting"})

    cmem.configure("memory: {embedding: {provider: none}}")
    assert index()[:2] == (3, 1)
    configure("auto")
    indexed, removed, scope = index()
    assert (indexed, removed) == (1, 0)
    assert (scope["notes"], scope["chosenBy"], "extra_paths" in scope["hint"]) == ("folder", "before", True)

    configure("memory")
    assert index() == (0, 3, {"notes": "memory", "chosenBy": "setting"})


def test_too_many_notes_are_refused_until_that_is_allowed(cmem: Cmem, vault: Path) -> None:
    for most, exit_code in ((2, 1), (3, 0)):
        cmem.configure(f"memory: {{embedding: {{provider: none}}, builtin: {{max_files: {most}}}}}")
        done = cmem("index")
        assert (done.exit_code, "memory.builtin.max_files" in done.stderr) == (exit_code, exit_code == 1)
    assert "boiler" in cmem("search", "spare key").stdout


def test_a_home_folder_is_not_taken_for_notes(
    cmem: Cmem, vault: Path, monkeypatch: pytest.MonkeyPatch, state_dir: Path
) -> None:
    for home in (vault, vault / "someone"):
        monkeypatch.setenv("HOME", str(home))
        refused = cmem("index")
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "memory.builtin.scope" in refused.stderr
        assert "memory.builtin.scope" in cmem("search", "key").stderr
        assert not list(state_dir.glob("memory/*"))

    cmem.configure("memory: {embedding: {provider: none}, builtin: {scope: folder}}")
    assert json.loads(cmem("index", "--json").stdout)["filesIndexed"] == 3


def test_index_shows_a_bar_on_a_terminal(cmem: Cmem) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*PROGRAM, "index", *cmem.place],
        stdout=subprocess.PIPE, stderr=theirs, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)

    seen = read_until_closed(ours)
    process.communicate(timeout=60)

    assert process.returncode == 0
    assert re.search(r"\d+:\d\d:\d\d", seen), "elapsed and remaining time"


# --- search -----------------------------------------------------------------------------------------------


def test_search_shows_score_place_backend_and_text(indexed: Cmem) -> None:
    result = indexed("search", "tomatoes shade cloth", "-n", "1")

    head, *text = result.stdout.splitlines()
    assert (result.exit_code, result.stderr.count("\n")) == (0, 1)
    assert re.fullmatch(r"\d+% memory/projects/greenhouse\.md:\d+-\d+ \[builtin\]", head)
    assert "  Tomatoes need shade cloth in July." in text


def test_search_as_json_has_the_documented_keys(indexed: Cmem) -> None:
    document = indexed.json("search", "tomatoes shade cloth")

    assert list(document) == ["traceId", "results", "backends", "degraded", "intent", "tookMs"]
    assert list(first_of(document["results"])) == [
        "path", "startLine", "endLine", "score", "snippet", "source", "citation", "sourceBackend",
        "highlights", "title",
    ]  # fmt: skip


def test_search_shows_as_much_of_a_result_as_is_wanted(indexed: Cmem) -> None:
    above, line = indexed("search", "shade cloth", "-n", "1", "--lines", "1").stdout.splitlines()[1:-1]
    hit = first_of(indexed.json("search", "shade cloth", "--lines", "1", "--text")["results"])
    whole = indexed("search", "shade cloth", "-n", "1", "--text").stdout

    assert line.replace("…", "").split() == "Tomatoes need shade cloth in July.".split()
    assert above == f"  {hit['title']}"
    assert hit["lines"] == ["Tomatoes need shade cloth in July."]
    assert str(hit["snippet"]).strip("…") in str(hit["text"])
    assert all(f"  {one}" in whole.splitlines() for one in str(hit["text"]).splitlines() if one)
    marks = cast("list[tuple[int, int]]", hit["highlights"])
    assert {str(hit["snippet"])[begin:end] for begin, end in marks} >= {"shade", "cloth"}


def test_a_terminal_shows_what_matches_in_colour(indexed: Cmem) -> None:
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    environ = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    process = subprocess.Popen(
        [*PROGRAM, "search", "shade cloth", *indexed.place],
        stdout=theirs, stderr=subprocess.DEVNULL, env={**environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(theirs)

    seen = read_until_closed(ours)
    process.communicate(timeout=60)

    assert re.search("\x1b\\[[0-9;]*mshade\x1b\\[0m \x1b", seen)


@pytest.mark.thorough
def test_a_terminal_of_any_width_shows_the_best_lines_and_where_they_are_cut(cmem: Cmem) -> None:
    pty, tty = pytest.importorskip("pty"), pytest.importorskip("termios")
    sentences = [f"Sentence {number} says nothing of it at all, in so many words." for number in range(9)]
    cmem.write("memory/long.md", "\n".join([*sentences, "The quagga lives in the zoo.", *sentences]))
    cmem("index")
    for width in (60, 80, 120):
        ours, theirs = pty.openpty()
        tty.tcsetwinsize(theirs, (40, width))
        environ = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
        process = subprocess.Popen(
            [*PROGRAM, "search", "quagga", "-n", "1", *cmem.place],
            stdout=theirs, stderr=subprocess.DEVNULL, env={**environ, "TERM": "xterm"},
        )  # fmt: skip
        os.close(theirs)
        seen = read_until_closed(ours)
        process.communicate(timeout=60)

        shown = re.sub("\x1b\\]8;;.*?\x1b\\\\|\x1b\\[[0-9;]*m", "", seen).split("\r\n")
        head, *lines = [line for line in shown if line.strip()]
        assert re.match(r"\d+% memory/long\.md:", head)
        assert all(len(line) <= width for line in (head, *lines))
        assert "…" in lines[0]
        assert "…" in lines[-1]
        assert any("quagga" in line for line in lines)
        assert len("".join(lines)) < len("\n".join(sentences))


def test_the_citation_is_a_field_and_not_in_the_snippet(indexed: Cmem) -> None:
    hit = first_of(indexed.json("search", "tomatoes shade cloth")["results"])

    assert re.fullmatch(r"memory/projects/greenhouse\.md#L\d+(-L\d+)?", str(hit["citation"]))
    assert "Source:" not in str(hit["snippet"])


def test_a_group_sees_no_citations(indexed: Cmem) -> None:
    hit = first_of(indexed.json("search", "tomatoes", "--session", "agent:main:x:group:1")["results"])

    assert "citation" not in hit


def test_search_returns_at_most_so_many(indexed: Cmem) -> None:
    results = indexed.json("search", "harbour ferry coffee", "-n", "2")["results"]

    assert isinstance(results, list)
    assert len(results) == 2


@pytest.mark.parametrize(
    "wrong",
    [
        [""],
        [" \n"],
        ["x", "-n", "0"],
        ["x", "--min-score", "1.5"],
        ["x", "--min-score", "-1"],
        ["x", "--since", "2026-09", "--until", "2026-01"],
        ["x", "--nope"],
        [],
    ],
    ids=str,
)
def test_bad_usage_ends_with_two(cmem: Cmem, wrong: Sequence[str]) -> None:
    result = cmem("search", *wrong)

    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr


def test_surplus_words_are_shown_in_quotes_and_a_short_trace_id_is_refused(cmem: Cmem) -> None:
    for args, told in (
        (("search", "spare", "key"), '"spare key"'),
        (("recall", "Ellen", "Smith"), '"Ellen Smith"'),
        (("status", "memory"), "no such argument: memory"),
        (("explain", "abc"), "'abc'"),
        (("logs", "ship"), "--to"),
    ):
        result = cmem(*args)
        assert (result.exit_code, result.stdout) == (2, ""), args
        assert told in result.stderr, args


def test_a_tag_that_no_note_has_is_named_with_the_nearest(cmem: Cmem) -> None:
    cmem.write("memory/trip.md", "---\ntags: [travel]\n---\nA trip to Graz. #journey\n")
    cmem("index")

    for args, nearest in ((("trip", "--tag", "travl"), "travel"), (("trip tag:journy",), "journey")):
        result = cmem("search", *args)
        assert result.exit_code == 0
        assert nearest in result.stderr
    assert "travel" not in cmem("search", "zebra", "--tag", "travel").stderr


@pytest.mark.parametrize(
    ("wrong", "nearest"),
    [
        (("trip", "--type", "meetng"), "meeting"),
        (("trip type:banana",), "banana"),
        (("trip", "--path", "memory/Projcts/*"), "memory/Projects"),
        (("trip", "--path", "memory/tripp.md"), "memory/trip.md"),
    ],
    ids=str,
)
def test_a_type_or_path_that_no_note_has_is_named_with_the_nearest(
    cmem: Cmem, wrong: Sequence[str], nearest: str
) -> None:
    cmem.write("memory/trip.md", "---\ntype: meeting\n---\nA trip to Graz.\n")
    (cmem.workspace / "memory" / "Projects").mkdir()
    cmem.write("memory/Projects/boat.md", "The boat needs paint.\n")
    cmem("index")

    result = cmem("search", *wrong)

    assert (result.exit_code, nearest in result.stderr) == (0, True)


@pytest.mark.parametrize(
    "right",
    [
        ("--type", "Meeting"),
        ("--type", "pdf"),
        ("--type", "opinion"),
        ("--path", "memory"),
        ("--path", "sessions/*"),
    ],
    ids=str,
)
def test_a_type_or_path_that_something_may_have_is_not_called_unknown(
    cmem: Cmem, right: Sequence[str]
) -> None:
    cmem.write("memory/trip.md", "---\ntype: meeting\n---\nA trip to Graz.\n")
    cmem("index")

    assert "nearest" not in cmem("search", '"zebra crossing"', *right).stderr


def test_an_unknown_backend_is_bad_usage_that_names_the_known_ones(indexed: Cmem) -> None:
    result = indexed("search", "x", "--backend", "bultin")

    assert result.exit_code == 2
    assert "known backends: builtin" in " ".join(result.stderr.split())


def test_a_search_without_matches_says_so(indexed: Cmem) -> None:
    result = indexed("search", "zyzzyva")

    assert (result.exit_code, result.stdout) == (0, "No matches.\n")


def test_a_session_that_may_not_search_is_told_so_and_not_to_index(cmem: Cmem, tmp_path: Path) -> None:
    qmd = tmp_path / "qmd"
    qmd.write_text("#!/bin/sh\necho qmd 2.8.3\n", encoding="utf-8")
    qmd.chmod(0o755)
    cmem.configure(f"memory: {{embedding: {{provider: none}}, backend: qmd, qmd: {{command: {qmd}}}}}")

    result = cmem("search", "tomatoes", "--session", "agent:main:telegram:group:1")

    assert (result.exit_code, result.stdout) == (0, "No matches.\n")
    assert "scope-denied: " in result.stderr
    assert "telegram" in result.stderr
    assert "hint:" not in result.stderr


@pytest.mark.parametrize("args", [["index"], ["search", "tomatoes"]], ids=str)
def test_a_folder_without_notes_is_told_what_a_note_is(
    cmem: Cmem, args: Sequence[str], tmp_path: Path
) -> None:
    cmem.workspace = tmp_path / "elsewhere"
    cmem.workspace.mkdir()
    cmem.place[1] = str(cmem.workspace)
    cmem("index")

    result = cmem(*args)

    assert result.exit_code == 0
    assert f"hint: no notes found in {cmem.workspace}; notes are MEMORY.md" in result.stderr


def test_a_folder_with_notes_gets_no_such_hint(indexed: Cmem) -> None:
    assert "no notes" not in indexed("search", "zyzzyva").stderr


@pytest.mark.parametrize("args", [["index"], ["get", "MEMORY.md"]], ids=str)
def test_an_index_that_cannot_be_opened_is_the_reason_given(
    cmem: Cmem, args: Sequence[str], tmp_path: Path
) -> None:
    in_the_way = tmp_path / "folder"
    in_the_way.mkdir()
    store = f"{{builtin: {{store: {{path: '{in_the_way}'}}}}}}"
    cmem.configure(f"memory: {store}")

    result = cmem(*args)

    assert result.exit_code == 1
    assert str(in_the_way) in result.stderr
    assert "does not support" not in result.stderr


@pytest.mark.parametrize(
    "change",
    variants(["'10 tomatoes'", "NULL", "CAST(x'ff' AS TEXT)"], "NULL"),
    ids=["a word", "nothing", "no text"],
)
def test_damage_is_named_alike_by_all_commands_and_mended_by_the_next_sync(
    cmem: Cmem, state_dir: Path, change: str
) -> None:
    cmem.configure("memory: {embedding: {provider: none}, builtin: {sync: {on_search: false}}}")
    cmem("index")
    (path,) = state_dir.rglob("main-*.sqlite")
    with closing(apsw.Connection(str(path))) as connection:
        [(note,)] = connection.execute(
            "SELECT path FROM chunks WHERE text LIKE '%tomatoes%' LIMIT 1"
        ).fetchall()
        connection.pragma("writable_schema", 1)
        connection.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, 'text TEXT NOT NULL', 'text TEXT')"
            " WHERE name = 'chunks'"
        )
    with closing(apsw.Connection(str(path))) as connection:
        connection.execute(f"UPDATE chunks SET text = {change} WHERE path = ?", (note,))
        connection.pragma("writable_schema", 1)
        connection.execute(
            "UPDATE sqlite_schema SET sql = replace(sql, 'text TEXT', 'text TEXT NOT NULL')"
            " WHERE name = 'chunks'"
        )

    search, deep = cmem("search", "tomatoes"), cmem("status", "--deep")
    shallow, index = cmem("status"), cmem("index")
    after = cmem("status", "--deep"), cmem("search", "tomatoes")

    assert (search.exit_code, deep.exit_code, index.exit_code) == (0, 1, 0)
    assert f"{note}:" not in search.stdout
    for told in (search.stderr, deep.stderr, shallow.stdout, index.stderr):
        assert str(note) in told or "integrity check" in told
    assert "`cmem index`" in deep.stderr
    assert [one.exit_code for one in after] == [0, 0]
    assert f"{note}:" in after[1].stdout
    assert "damaged" not in after[1].stderr


def test_a_process_that_may_open_few_files_says_so_and_fails(cmem: Cmem) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))

    with cmem.process("search", "tomatoes", preexec_fn=few) as process:
        _, stderr = process.communicate(timeout=60)

    assert process.returncode == 1
    assert "12 files" in stderr
    assert "Traceback" not in stderr


def test_degraded_answers_are_told_on_stderr(cmem: Cmem) -> None:
    result = cmem("search", "tomatoes")

    assert result.exit_code == 0
    assert re.search(r"^degraded: builtin: keyword-only: ", result.stderr, re.MULTILINE)
    assert "degraded" not in result.stdout


def test_strict_ends_a_degraded_answer_with_three(indexed: Cmem) -> None:
    assert indexed("search", "tomatoes", "--strict").exit_code == 3


@pytest.mark.parametrize(
    "args", [["search", "tomatoes"], ["search", "zyzzyva"], ["index"], ["status"]], ids=str
)
def test_json_is_one_document_even_where_the_answer_is_degraded(cmem: Cmem, args: Sequence[str]) -> None:
    result = cmem(*args, "--json")

    assert isinstance(json.loads(result.stdout), dict)
    assert result.stdout.endswith("}\n")


def test_explain_shows_how_each_result_came_to_its_place(indexed: Cmem) -> None:
    lines = indexed("search", "coffee keys harbour", "--explain", "-n", "1").stdout.splitlines()

    assert any(
        re.fullmatch(r"  raw \d\.\d{3}, calibrated \d\.\d{3}, weight 1, rank 1 in builtin", line)
        for line in lines
    )
    assert any(re.fullmatch(r"\d+ more below the last result; next \S+, \d\.\d{3}", line) for line in lines)


def test_explain_as_json_stands_beside_the_results(indexed: Cmem) -> None:
    document = indexed.json("search", "harbour ferry", "--explain", "-n", "2")

    explain = document["explain"]
    assert isinstance(explain, dict)
    assert len(explain["results"]) == len(document["results"])  # type: ignore[arg-type]
    assert list(explain["results"][0]) == [
        "backendId", "rawScore", "calibratedScore", "weight", "backendRank", "mergedWith", "support",
    ]  # fmt: skip


def test_the_name_of_a_note_cannot_look_like_another_result(cmem: Cmem) -> None:
    cmem.write("memory/one\n99% MEMORY.md:1-1 [builtin].md", "quagga \u202egnihton\n")
    cmem("index")

    shown = cmem("search", "quagga").stdout

    assert "\n99%" not in shown
    assert "\u202e" not in shown


def test_a_note_cannot_steer_the_terminal_or_the_style(cmem: Cmem) -> None:
    cmem.write(
        "memory/evil.md", "# Evil\n\nQuagga [bold red]loud[/bold red] \x1b[2J\x1b]0;title\x07 [/nope] end.\n"
    )
    cmem("index")

    shown = cmem("search", "quagga").stdout

    assert "[bold red]loud[/bold red]" in shown
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f]", shown)


def test_when_every_backend_fails_the_search_fails(failing: Cmem) -> None:
    result = failing("search", "anything")

    assert (result.exit_code, result.stdout) == (1, "")
    assert re.search(r"^Error: raising: .*it always fails$", result.stderr, re.MULTILINE)


def test_a_failed_search_as_json_still_tells_what_was_asked(failing: Cmem) -> None:
    result = failing("search", "anything", "--json")

    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (document["results"], document["degraded"][0]["code"]) == ([], "failed")
    assert "it always fails" in document["backends"][0]["error"]


# --- get --------------------------------------------------------------------------------------------------


# --- pack ---------------------------------------------------------------------------------------------------


def test_pack_writes_one_text_within_its_budget(indexed: Cmem) -> None:
    result = indexed("pack", "harbour ferry", "--max-chars", "300")

    assert result.exit_code == 0
    assert re.match(r"#1 \S+:\d+-\d+ \(score \d\.\d\d\)\n", result.stdout)
    assert len(result.stdout.rstrip("\n")) <= 300


def test_pack_as_json_names_the_sources_in_order(indexed: Cmem) -> None:
    document = json.loads(indexed("pack", "harbour ferry", "--max-tokens", "200", "--json").stdout)

    headings = re.findall(r"^#\d+ (\S+?):", document["pack"], re.MULTILINE)
    assert [one["path"] for one in document["sources"]] == headings
    assert 0 < document["tokens"] <= 200


@pytest.mark.parametrize("wrong", [("--tag", "harbor"), ("--type", "opnion"), ("--path", "MEMOR.md")])
def test_a_pack_without_matches_names_what_is_like_an_unknown_filter(
    indexed: Cmem, wrong: Sequence[str]
) -> None:
    (indexed.workspace / "memory" / "tagged.md").write_text("The ferry. #harbour\n", encoding="utf-8")
    near = {"--tag": "harbour", "--type": "opinion", "--path": "MEMORY.md"}[wrong[0]]

    result = indexed("pack", "ferry", *wrong)

    assert (result.exit_code, result.stdout) == (0, "No matches.\n")
    assert re.search(f"^hint: no note .*; nearest: {near}$", result.stderr, re.MULTILINE)
    assert f"nearest: {near}" in json.loads(indexed("pack", "ferry", *wrong, "--json").stdout)["warning"]
    assert indexed("pack", "ferry", wrong[0], "zzzzqq").stderr.rstrip().endswith(", nor one like it")


def test_a_pack_of_a_memory_that_fails_fails(failing: Cmem) -> None:
    result = failing("pack", "harbour")

    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.splitlines()[-1].startswith("Error: ")


def test_a_pack_has_one_budget(cmem: Cmem) -> None:
    result = cmem("pack", "harbour", "--max-chars", "9", "--max-tokens", "9")

    assert result.exit_code == 2
    assert "not both" in result.stderr


def test_get_writes_the_file_as_it_is(cmem: Cmem) -> None:
    result = cmem("get", "memory/projects/boat.md")

    assert result.stdout == (cmem.workspace / "memory/projects/boat.md").read_text(encoding="utf-8")


def test_get_writes_the_lines_that_were_asked_for(cmem: Cmem) -> None:
    assert cmem.json("get", "MEMORY.md", "--from", "3", "--lines", "1") == {
        "text": "The harbour office answers on extension 4417.",
        "path": "MEMORY.md",
    }


def test_get_outside_the_memory_fails_in_one_line(cmem: Cmem) -> None:
    result = cmem("get", "../config.yaml")

    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(r"Error: .+\n", result.stderr)


def test_a_missing_file_is_an_error_that_names_the_nearest(cmem: Cmem) -> None:
    (cmem.workspace / "memory" / "greenhouse.md").write_text("Tomatoes.\n", encoding="utf-8")

    result = cmem("get", "memory/grenhouse.md")
    as_json = cmem("get", "memory/grenhouse.md", "--json")

    assert (result.exit_code, result.stdout, as_json.exit_code) == (1, "", 1)
    assert "memory/greenhouse.md" in result.stderr
    assert json.loads(as_json.stdout)["code"] == "MEMORY_NOT_FOUND"


def test_lines_beyond_the_end_are_a_failure_and_blank_ones_are_none(cmem: Cmem) -> None:
    cmem.write("memory/short.md", "One.\n\nThree.\n")
    cmem.write("memory/empty.md", "")
    for args in (["memory/short.md", "--from", "4"], ["memory/short.md:4"], ["memory/short.md#L4-L9"]):
        result = cmem("get", *args)
        assert (result.exit_code, result.stdout) == (1, ""), args
        assert re.search(r"memory/short\.md: .*\b4\b.*\b3 lines", result.stderr), args
    assert cmem("get", "memory/short.md", "--lines", "900").exit_code == 0
    for args in (["memory/short.md:2"], ["memory/empty.md"]):
        result = cmem("get", *args)
        assert (result.exit_code, result.stdout) == (0, ""), args
        assert not re.search(r"\d", result.stderr.replace(args[0], "")), args


def test_lines_end_with_a_line_break(cmem: Cmem) -> None:
    cmem.write("memory/short.md", "One.\nTwo.")
    for args in (["memory/short.md", "--from", "1", "--lines", "1"], ["memory/short.md:1"]):
        assert cmem("get", *args).stdout == "One.\n", args
    assert cmem("get", "memory/short.md", "--from", "2").stdout == "Two.\n"
    assert cmem("get", "memory/short.md").stdout == "One.\nTwo."


def test_every_place_that_is_printed_can_be_read(indexed: Cmem) -> None:
    printed = indexed("search", "tomatoes shade cloth", "-n", "1").stdout.split()[1]
    hit = first_of(indexed.json("search", "tomatoes shade cloth", "-n", "1")["results"])
    lines = f"{hit['startLine']}:{hit['endLine']}"
    wanted = indexed("get", str(hit["path"]), "--from", str(hit["startLine"]), "--lines", "1").stdout

    for place in (
        printed,
        str(hit["citation"]),
        f"{hit['path']}:{lines}",
        f"{hit['path']}:{hit['startLine']}",
    ):
        result = indexed("get", place)
        assert (result.exit_code, result.stderr) == (0, ""), place
        assert result.stdout.splitlines()[0] == wanted.splitlines()[0], place

    whole = indexed("get", str(hit["path"])).stdout
    assert indexed("get", f"{hit['path']}:0:0").stdout == whole


@pytest.mark.parametrize("place", ["MEMORY.md:0", "MEMORY.md#L0", "MEMORY.md:0-3"])
def test_a_line_0_is_bad_usage(indexed: Cmem, place: str) -> None:
    result = indexed("get", place)

    assert (result.exit_code, result.stdout) == (2, "")
    assert "from 1" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    "args",
    [
        ("index", "--workspace", "~nobodyhere/x"),
        ("status", "--state-dir", "~nobodyhere/x"),
        ("mcp", "--workspace", "work=~nobodyhere/x"),
    ],
    ids=str,
)
def test_the_home_of_somebody_unknown_is_bad_usage(cmem: Cmem, args: Sequence[str]) -> None:
    result = cmem(*args, placed=False)

    assert result.exit_code == 2
    assert "~nobodyhere" in result.stderr


def test_lines_that_are_given_go_before_those_of_a_citation(indexed: Cmem) -> None:
    assert indexed("get", "MEMORY.md:1-2", "--from", "3", "--lines", "1").stdout == (
        indexed("get", "MEMORY.md", "--from", "3", "--lines", "1").stdout
    )
    assert indexed("get", "MEMORY.md#L3-L9", "--lines", "1").stdout == (
        indexed("get", "MEMORY.md", "--from", "3", "--lines", "1").stdout
    )


def test_config_refuses_what_a_search_refuses(cmem: Cmem) -> None:
    for wrong in (
        "memory: {builtin: {provider: x}}",
        "memory: {builtin: {chunking: {tokens: -5}}}",
        "memory: {embedding: {provider: none, providers: {openai: {modle: x}}}}",
        "memory: {embedding: {provider: no-such}}",
        "memory: {opsLog: {enabled: false}, feedback: {enabled: true}}",
    ):
        cmem.configure(wrong)
        shown, searched = cmem("config", "show"), cmem("search", "tomatoes")
        assert (shown.exit_code, searched.exit_code) == (1, 1), wrong
        assert shown.stderr == searched.stderr


# --- status -----------------------------------------------------------------------------------------------


def test_status_fits_on_a_screen_and_shows_what_does_not_work(indexed: Cmem) -> None:
    shown = indexed("status").stdout

    assert len(shown.splitlines()) <= 24
    assert re.search(r"^  files +[1-9]", shown, re.MULTILINE)
    assert re.search(r"^    search mode +keyword", shown, re.MULTILINE)
    assert " cache" not in shown


def test_status_shows_every_field(indexed: Cmem) -> None:
    shown = indexed("status", "--verbose").stdout

    for field in fields(MemoryProviderStatus):
        assert re.search(rf"^  {field.name.replace('_', ' ')}", shown, re.MULTILINE), field.name


def test_status_as_json_has_the_documented_keys(indexed: Cmem) -> None:
    document = indexed.json("status")

    assert list(document) == ["status", "backends", "unavailable"]
    assert first_of([document["status"]])["backend"] == "builtin"


def test_status_tells_of_a_log_that_cannot_be_written(indexed: Cmem, state_dir: Path) -> None:
    logs = state_dir / "ops-logs"
    shutil.rmtree(logs)
    logs.write_text("a file where the folder should be")

    document, shown = indexed.json("status"), indexed("status").stdout

    trouble = document["opsLog"]
    assert isinstance(trouble, dict)
    assert trouble["written"] == 0
    assert trouble["dropped"] > 0
    assert str(logs) in trouble["lastError"]
    assert str(logs) in shown


def test_a_deep_status_searches(indexed: Cmem) -> None:
    result = indexed("status", "--deep")

    assert result.exit_code == 0
    assert re.search(r"search +works, \d+ results in [\d.]+ ms, trace \S+", result.stdout)


def test_a_deep_status_of_an_unusable_memory_fails(failing: Cmem) -> None:
    shallow, deep = failing("status"), failing("status", "--deep")

    assert (shallow.exit_code, deep.exit_code) == (0, 1)
    assert "it always fails" in deep.stderr


def test_status_names_a_backend_that_could_not_be_opened(cmem: Cmem, plugins: None) -> None:
    cmem.configure("memory: {backends: {broken: {enabled: true}}}")

    result = cmem("status", "--strict")

    assert result.exit_code == 3
    assert "degraded: broken: unavailable: " in result.stderr


def test_status_says_what_a_primary_lacks_that_another_one_stands_in_for(cmem: Cmem, plugins: None) -> None:
    cmem.configure("memory: {backend: broken}")

    shown, strict = cmem("status"), cmem("status", "--strict")

    assert (shown.exit_code, strict.exit_code) == (0, 3)
    assert re.search(r"^  fallback\n    from +broken$", shown.stdout, re.MULTILINE)
    assert re.search(
        r"^    fallback\n +from +broken\n +to +builtin\n +reason +.+", shown.stdout, re.MULTILINE
    )
    assert re.search(
        r"^backend broken  not open\n  missing  .*cmem backends list", shown.stdout, re.MULTILINE
    )


# --- backends and config ----------------------------------------------------------------------------------


def test_backends_are_listed_with_what_they_can_do_and_where_they_come_from(cmem: Cmem) -> None:
    listed = {one["id"]: one for one in cmem.json("backends", "list")["backends"]}  # type: ignore[attr-defined]

    assert listed["builtin"]["enabled"] is True
    assert {"answer", "read-file", "sync"} <= set(listed["builtin"]["capabilities"])
    assert "composable-memory" in listed["builtin"]["origin"]


def test_backends_that_are_open_are_listed_with_their_state(indexed: Cmem) -> None:
    listed = {one["id"]: one for one in indexed.json("backends", "list")["backends"]}  # type: ignore[attr-defined]

    assert listed["builtin"]["status"]["files"] > 0
    assert "status" not in listed["graphiti"]
    assert re.search(r"^  files +\d+$", indexed("backends", "list").stdout, re.MULTILINE)


def test_the_backend_that_stands_in_is_listed_as_such(cmem: Cmem, plugins: None) -> None:
    cmem.configure("memory: {backend: raising}")

    listed = {one["id"]: one for one in cmem.json("backends", "list")["backends"]}  # type: ignore[attr-defined]
    assert (listed["builtin"]["enabled"], listed["builtin"]["standsInFor"]) == (False, "raising")
    assert listed["raising"]["status"]["custom"]["fallback"]["to"] == "builtin"
    assert "builtin  fallback for raising" in cmem("backends", "list").stdout


def test_a_memory_that_cannot_be_opened_does_not_stop_the_list(cmem: Cmem, plugins: None) -> None:
    cmem.configure("memory: {backends: {exploding: {}}}")

    result = cmem("backends", "list")

    assert result.exit_code == 0
    assert "exploding  enabled" in result.stdout
    assert "note: exploding cannot be opened" in result.stderr
    assert "nobody expected" in result.stderr


def test_a_plugin_that_cannot_be_imported_is_listed_with_its_error(cmem: Cmem, plugins: None) -> None:
    listed = {one["id"]: one for one in cmem.json("backends", "list")["backends"]}  # type: ignore[attr-defined]

    assert "no_such_module_anywhere" in listed["broken"]["problem"]
    assert listed["raising"]["summary"] == "Fails at every question."


def test_an_enabled_backend_that_nobody_offers_is_listed(cmem: Cmem) -> None:
    cmem.configure("memory: {backends: {atlantis: {enabled: true}}}")

    shown = cmem("backends", "list").stdout

    assert "atlantis  enabled" in shown
    assert "no installed package provides it" in shown


def test_embedders_are_listed_with_the_chosen_one_and_what_the_others_lack(
    cmem: Cmem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    cmem.configure("memory: {embedding: {provider: auto-remote}}")
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "VOYAGE_API_KEY", "MISTRAL_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    document = cmem.json("embedders", "list")
    listed = {one["id"]: one for one in document["embedders"]}  # type: ignore[attr-defined]

    assert (document["provider"], document["chosen"]) == ("auto-remote", "wordllama")
    assert [id_ for id_, one in listed.items() if one["chosen"]] == ["wordllama"]
    assert "model_path" in listed["local"]["lacks"]
    assert "no API key" in listed["openai"]["lacks"]
    assert listed["openai"]["local"] is False


def test_where_no_embedder_is_chosen_the_reason_is_shown(cmem: Cmem) -> None:
    cmem.configure("memory: {embedding: {provider: none}}")

    shown = cmem("embedders", "list")

    assert "wordllama  not chosen" in shown.stdout
    assert shown.stderr == "none: embedding is off (memory.embedding.provider: none)\n"


def test_an_index_without_the_provider_that_was_asked_for_says_so(
    cmem: Cmem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    cmem.configure("memory: {embedding: {provider: openai}}")

    result = cmem("index", "--strict")

    assert result.exit_code == 3
    assert "nothing is embedded" in result.stderr
    assert "OPENAI_API_KEY" in result.stderr


def test_keys_of_a_provider_are_shown_and_its_secrets_are_not(cmem: Cmem) -> None:
    cmem.configure("memory: {embedding: {providers: {openai: {apiKey: hush-hush-4711, dimensions: 512}}}}")

    shown = cmem("config", "show").stdout
    listed = cmem.json("embedders", "list")

    assert re.search(r"^memory\.embedding\.providers\.openai\.dimensions +512$", shown, re.MULTILINE)
    assert "hush-hush-4711" not in f"{shown} {listed}"


def test_config_shows_where_a_value_was_set(cmem: Cmem) -> None:
    cmem.configure("memory:\n  query:\n    maxResults: 9\n")

    shown = cmem("config", "show", "--origin").stdout

    assert re.search(
        rf"^memory\.query\.max_results +9 +\({re.escape(str(cmem.config))}:3\)$", shown, re.MULTILINE
    )
    assert re.search(r"^memory\.citations +auto +\(default\)$", shown, re.MULTILINE)


def test_config_hides_secrets(cmem: Cmem) -> None:
    cmem.configure("memory: {graphiti: {apiKey: hush-hush-4711}}")

    text, document = cmem("config", "show", "--origin"), cmem("config", "show", "--json")

    assert "api_key" in text.stdout.lower().replace("apikey", "api_key")
    assert "hush-hush-4711" not in text.output + document.output


def test_a_setting_that_cannot_be_used_fails_in_one_line(cmem: Cmem) -> None:
    cmem.configure("memory: {querry: {}}")

    result = cmem("search", "x")

    assert (result.exit_code, result.stdout) == (1, "")
    assert re.fullmatch(r"Error: .*querry.*\n", result.stderr)


def test_an_error_as_json_is_a_document_too(cmem: Cmem) -> None:
    cmem.configure("memory: {querry: {}}")

    assert "querry" in str(cmem.json("search", "x")["error"])


def test_a_workspace_that_is_not_there_fails_in_one_line(cmem: Cmem, tmp_path: Path) -> None:
    result = cmem("search", "x", "--workspace", str(tmp_path / "nowhere"), placed=False)

    assert result.exit_code == 1
    assert re.fullmatch(r"Error: .*nowhere.*\n", result.stderr)


# --- logs -------------------------------------------------------------------------------------------------


def test_damaged_lines_of_the_log_are_left_out_with_a_word(indexed: Cmem, state_dir: Path) -> None:
    (log,) = (state_dir / "ops-logs").glob("*.jsonl")
    indexed("search", "ferry")
    last = log.read_bytes().splitlines()[-1]
    with log.open("ab") as file:
        file.write(2 * (last[:-1] + b"\n"))

    shown = [indexed("logs", *args) for args in (("tail",), ("query",), ("show",), ("stats",))]

    assert [(one.exit_code, one.stderr.count(str(log.parent))) for one in shown] == [(0, 1)] * 4
    deep = indexed("status", "--deep")
    assert (deep.exit_code, deep.stderr.count(log.name.removesuffix(".jsonl"))) == (1, 1)


def test_the_trace_of_a_search_is_drawn(indexed: Cmem) -> None:
    trace = str(indexed.json("search", "harbour ferry")["traceId"])

    shown = indexed("logs", "show", trace[:8]).stdout

    assert shown.startswith(f"trace {trace}  ")
    assert "query harbour ferry" in shown
    assert re.search(
        r"^query\.backend_result builtin +\|.*█.*\| +[\d.]+ ms  candidates: \d+, weight 1",
        shown,
        re.MULTILINE,
    )
    assert re.search(r"^  \d\.\d{3} memory/\S+ \[builtin\]  raw ", shown, re.MULTILINE)


LEGS = ("query.changes", "query.keyword")


def test_a_trace_as_json_has_its_steps_and_events(indexed: Cmem) -> None:
    trace = str(indexed.json("search", "harbour ferry")["traceId"])

    document = indexed.json("logs", "show", trace)

    assert document["traceId"] == trace
    steps = [step["action"] for step in document["steps"] if step["action"].startswith("query.")]  # type: ignore[attr-defined]
    assert [step for step in steps if step not in LEGS] == [
        "query.start",
        "query.backend_result",
        "query.merged",
        "query.delivered",
    ]
    assert steps[2:4] == ["query.changes", "query.keyword"]
    assert len(document["steps"]) == len(document["events"]) + 2  # type: ignore[arg-type]


def test_the_last_query_needs_no_id(indexed: Cmem) -> None:
    indexed("search", "ferry timetable")
    shown = indexed.json("search", "tomatoes", "--json")

    assert indexed.json("logs", "show")["traceId"] == shown["traceId"]
    assert indexed.json("logs", "show", "last")["traceId"] == shown["traceId"]
    judged = indexed.json("feedback", "add", "last", "1", "-r", "1")
    assert judged["traceId"] == shown["traceId"]


def test_the_last_query_is_that_of_the_workspace_it_is_asked_in(indexed: Cmem, tmp_path: Path) -> None:
    here = indexed.json("search", "tomatoes", "--json")["traceId"]
    there = tmp_path / "other"
    (there / "memory").mkdir(parents=True)
    (there / "MEMORY.md").write_text("The hull is green.\n", encoding="utf-8")
    other = [*indexed.place[2:], "--workspace", str(there)]
    answer = indexed("search", "hull", "--json", *other, placed=False)
    asked = json.loads(answer.stdout)["traceId"]

    assert indexed.json("logs", "show")["traceId"] == here
    assert json.loads(indexed("logs", "show", "--json", *other, placed=False).stdout)["traceId"] == asked
    none = [*indexed.place[2:], "--workspace", str(tmp_path)]  # no workspace: the last of all
    assert json.loads(indexed("logs", "show", "--json", *none, placed=False).stdout)["traceId"] == asked


def test_the_probe_of_the_status_is_not_the_last_query(indexed: Cmem) -> None:
    asked = indexed.json("search", "ping", "--json")  # the words of the probe, asked by somebody
    probed = indexed.json("status", "--deep", "--json")["probe"]["search"]  # type: ignore[index]

    assert probed["traceId"] != asked["traceId"]
    assert indexed.json("logs", "show")["traceId"] == asked["traceId"]


def test_without_a_query_there_is_no_last(cmem: Cmem) -> None:
    result = cmem("logs", "show")

    assert result.exit_code == 1
    assert "cmem search" in result.stderr


@pytest.mark.parametrize("trace", ["00000000-0000", "ab"])
def test_a_trace_that_is_not_there_fails_in_one_line(indexed: Cmem, trace: str) -> None:
    result = indexed("logs", "show", trace)

    assert result.exit_code == 1
    assert re.fullmatch(r"Error: .+\n", result.stderr)


def test_the_tail_of_the_log_ends_with_the_last_event(indexed: Cmem) -> None:
    indexed("search", "harbour ferry")

    lines = indexed("logs", "tail", "-n", "2").stdout.splitlines()

    assert len(lines) == 2
    assert "query.delivered" in lines[-1]


def test_a_log_without_events_says_so(cmem: Cmem) -> None:
    assert cmem("logs", "tail").stdout == "No events.\n"


def test_events_are_queried_by_every_condition(indexed: Cmem) -> None:
    indexed("search", "harbour ferry", "--session", "agent:main:one")
    indexed("search", "harbour ferry", "--session", "agent:main:two")

    found = indexed.json(
        "logs", "query", "--action", "query.backend_result", "--backend", "builtin",
        "--session", "agent:main:two", "--since", "1h",
    )["events"]  # fmt: skip

    assert [(one["action"], one["backend"], one["sessionKey"]) for one in found] == [  # type: ignore[attr-defined]
        ("query.backend_result", "builtin", "agent:main:two")
    ]


def test_events_come_in_pages(indexed: Cmem) -> None:
    indexed("search", "harbour ferry")

    first = indexed("logs", "query", "--limit", "1")
    second = indexed.json("logs", "query", "--limit", "1", "--offset", "1")

    assert "--offset 1" in first.stderr
    assert first_of(second["events"])["action"] == "query.merged"


def test_events_before_a_time_are_not_those_of_today(indexed: Cmem) -> None:
    assert indexed.json("logs", "query", "--until", "2020-01-01T00:00:00Z")["events"] == []
    assert indexed.json("logs", "query", "--since", "yesterday", "--until", "2999-12-31")["events"]


def test_a_day_that_events_are_wanted_until_belongs_to_them(indexed: Cmem) -> None:
    today = datetime.now(UTC).astimezone().date()
    assert indexed.json("logs", "query", "--until", str(today))["events"]


@pytest.mark.parametrize(
    "wrong", [["--since", "soon"], ["--until", "2026-13-01"], ["--status", "bad"], ["-n", "0"]], ids=str
)
def test_a_condition_that_makes_no_sense_is_bad_usage(cmem: Cmem, wrong: Sequence[str]) -> None:
    assert cmem("logs", "query", *wrong).exit_code == 2


def test_following_the_log_ends_quietly_with_ctrl_c(indexed: Cmem) -> None:
    indexed("search", "harbour ferry")
    process = indexed.process("logs", "tail", "--follow", "--json", "-n", "1")
    assert process.stdout is not None
    shown = json.loads(process.stdout.readline())

    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=30)

    assert (process.returncode, stderr) == (130, "")
    assert shown["action"] == "query.delivered"


# --- demo -------------------------------------------------------------------------------------------------


def test_the_demo_answers_from_the_sample_and_cleans_up(cmem: Cmem) -> None:
    result = cmem("demo", "--json", placed=False)

    document = json.loads(result.stdout)
    assert result.exit_code == 0
    assert all(one["answer"]["results"][0]["citation"] for one in document["answers"])
    assert document["trace"]["traceId"] == document["answers"][-1]["answer"]["traceId"]
    assert not Path(document["workspace"]).exists()


def test_the_demo_shows_answers_citations_and_a_waterfall(cmem: Cmem) -> None:
    shown = cmem("demo", placed=False).stdout

    assert re.search(r"^  \d+% \S+#L\d+(-L\d+)? \[builtin\]$", shown, re.MULTILINE)
    assert re.search(r"^query\.backend_result builtin +\|.*█", shown, re.MULTILINE)


def test_the_demo_shows_the_line_that_answers(cmem: Cmem) -> None:
    shown = cmem("demo", placed=False).stdout
    answers = (
        "under the stairs",
        "medicine rides back",
        "52 km",
        "6.20 欧元",
        "九か所",
        "returns to Redis Streams",
    )

    below = re.split("|".join(map(re.escape, QUESTIONS)), shown)[1:]  # the trace names the last one again
    missing = [
        answer for text, answer in zip(below, answers, strict=False) if answer not in " ".join(text.split())
    ]
    assert (len(below), missing) == (len(answers) + 1, [])


def test_the_demo_leaves_the_sample_where_it_is_told_to(cmem: Cmem, tmp_path: Path) -> None:
    kept = tmp_path / "kept"

    first, second = (
        cmem("demo", "--keep", str(kept), placed=False),
        cmem("demo", "--keep", str(kept), placed=False),
    )

    assert (first.exit_code, second.exit_code) == (0, 1)
    assert (kept / "workspace" / "MEMORY.md").is_file()
    assert "not empty" in second.stderr


# --- the program itself -----------------------------------------------------------------------------------


def test_help_names_every_option_of_a_command_and_how_it_is_used(cmem: Cmem) -> None:
    for name, command in all_commands(app).items():
        for word, one in getattr(command, "commands", {"": command}).items():
            result = cmem(name, *filter(None, [word]), "--help", placed=False)
            shown = " ".join(result.stdout.split())

            assert result.exit_code == 0
            assert " ".join((one.help or "").split("\n")[0].split()[:6]) in shown
            assert (one.epilog or "")[:40] in shown
            options = {opt: param for param in one.params for opt in param.opts if opt.startswith("-")}
            for option, param in options.items():
                hidden = getattr(param, "hidden", False)
                assert bool(re.search(rf"{option}(?![\w-])", shown)) is not hidden, (name, word, option)


def test_help_lists_the_commands_and_loads_none_of_them(cmem: Cmem) -> None:
    shown = subprocess.run(
        [sys.executable, "-X", "importtime", *PROGRAM[1:], "--help"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip

    assert all(re.search(rf"^\W+{name} +\S", shown.stdout, re.MULTILINE) for name in COMMANDS)
    assert re.search("composable_memory.runtime|pydantic|asyncio", shown.stderr) is None


@pytest.mark.parametrize(
    "args", [["search"], ["pack"], ["get"], ["ingest", "--text"], ["search", "x", "--session"]], ids=" ".join
)
def test_an_argument_that_is_no_text_is_bad_usage(cmem: Cmem, args: list[str]) -> None:
    done = subprocess.run(
        [*map(os.fsencode, [*PROGRAM, *args]), b"d\xffck", *map(os.fsencode, cmem.place)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 2
    assert re.fullmatch(r"Error: .+\n", done.stderr)
    assert "UTF-8" in done.stderr
    assert "unexpected" not in done.stderr


def test_a_locale_without_the_letters_of_a_question_is_named(cmem: Cmem) -> None:
    environ = os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [*PROGRAM, "search", "Schlüssel", *cmem.place],
        capture_output=True, text=True, timeout=60, check=False, env=environ,
    )  # fmt: skip

    assert done.returncode == 2
    assert "LC_ALL" in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere names are text")
def test_a_folder_whose_name_is_no_text_is_a_workspace(cmem: Cmem, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"n\xf6tes")
    (folder / "memory").mkdir(parents=True)
    (folder / "memory" / "a.md").write_text("Tomatoes.\n", encoding="utf-8")
    done = subprocess.run(
        [*PROGRAM, "index", "-w", os.fsencode(folder), *cmem.place[2:]],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr


def test_a_reader_that_leaves_early_is_no_error_in_sight(indexed: Cmem) -> None:
    for _ in range(3):
        indexed("search", "harbour ferry")
    process = indexed.process("logs", "query", "--json")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None

    with process.stderr as stderr:
        assert "Traceback" not in stderr.read()
    process.wait(timeout=30)


def test_an_unexpected_error_is_told_in_one_line(cmem: Cmem, plugins: None) -> None:
    done = cmem.process("crash", "now")
    _, stderr = done.communicate(timeout=60)

    assert done.returncode == 1
    assert re.fullmatch(r"Error: unexpected RuntimeError: nobody expected this .+\n", stderr)


def test_a_search_loads_nothing_that_it_does_not_need(indexed: Cmem) -> None:
    heavy = ("mcp", "numpy", "pydantic_settings", "pytest", "rich", "wordllama")
    program = (
        "import sys; from composable_memory.cli import app\n"
        "try: app()\n"
        f"finally: print(*(name for name in {heavy!r} if name in sys.modules), file=sys.stderr)"
    )

    done = subprocess.run(
        [sys.executable, "-c", program, "search", "tomatoes", "--json", *indexed.place],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip

    assert done.stderr.splitlines()[-1] == ""


def first_of(items: object) -> dict[str, object]:
    assert isinstance(items, list)
    assert items
    assert isinstance(items[0], dict)
    return items[0]


def read_until_closed(descriptor: int) -> str:
    """Return what arrives at a pseudo-terminal until its other end is closed."""
    seen = b""
    while True:
        try:
            piece = os.read(descriptor, 4096)
        except OSError:  # Linux reports the closed end so
            break
        if not piece:
            break
        seen += piece
    os.close(descriptor)
    return seen.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("words", "known"),
    [("cmem sea", {"search"}), ("cmem logs s", {"ship", "show", "stats"}), ("cmem get --fr", {"--from"})],
)
def test_a_shell_completes_commands_and_options(words: str, known: set[str]) -> None:
    code = "import sys; sys.argv = ['cmem']; from composable_memory_start import main; main()"
    asked = {"_CMEM_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert {*done.stdout.split()} == known
