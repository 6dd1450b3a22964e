"""`cmem backends test` and `add`: what a foreign memory answers, and how it gets into the user's settings."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from composable_memory.cli import app
from tests.integration.external.real_servers import reference_server

SERVER = Path(__file__).with_name("notes_server.py")


@pytest.fixture
def tried(workspace: Path, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that asks the server of a section."""

    def run(fault: str = "", *options: str, backend: str = "away", **section: Any) -> Result:
        own = {"kind": "mcp", "command": [sys.executable, str(SERVER), fault], **section}
        config = {"embedding": {"provider": "none"}, "backends": {"builtin": {}, "away": own}}
        (tmp_path / "own.yaml").write_text(json.dumps({"memory": config}), encoding="utf-8")
        monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(tmp_path / "own.yaml"))
        places = ["--workspace", str(workspace), "--state-dir", str(state_dir)]
        return CliRunner().invoke(app, ["backends", "test", backend, "irrigation timer", *places, *options])

    return run


def test_the_raw_answer_and_what_is_read_from_it_are_shown(tried: Any) -> None:
    shown = json.loads(tried("", "--json").stdout)
    assert shown["raw"]["results"][0]["file"] == "memory/projects/greenhouse.md"
    assert shown["results"][0]["path"] == "away://memory/projects/greenhouse.md"
    assert shown["tookMs"] > 0


def test_what_was_dropped_is_told(tried: Any) -> None:
    result = tried("other-shape", "--json", results="answer.rows")
    assert (result.exit_code, json.loads(result.stdout)["results"]) == (1, [])
    assert "2 of its results have no recognisable text" in result.stderr


def test_a_failure_is_told(tried: Any) -> None:
    assert "the database is locked" in tried("no-start").stderr
    unknown = tried(backend="nobody")
    assert (unknown.exit_code, "away" in unknown.stderr) == (2, True)  # as of any wrong name


OWN = "# my settings\nmemory:\n  embedding: {provider: none}\n"


@pytest.fixture
def added(workspace: Path, state_dir: Path, own_file: Path) -> Any:
    """Return a function that adds the server as `away` to the user's settings."""

    def run(
        fault: str = "", *options: str, question: str = "irrigation timer", answer: str = "y\n"
    ) -> Result:
        command = shlex.join([sys.executable, str(SERVER), fault])
        places = ["--workspace", str(workspace), "--state-dir", str(state_dir)]
        words = ["backends", "add", "away", "--command", command, "--question", question, *places, *options]
        return CliRunner().invoke(app, words, input=answer)

    return run


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the user's own settings file is."""
    file = tmp_path / "own" / "config.yaml"
    file.parent.mkdir()
    file.write_text(OWN, encoding="utf-8")
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(file))
    return file


def test_a_server_is_added_with_all_that_was_found_out(
    added: Any, own_file: Path, workspace: Path, state_dir: Path
) -> None:
    result = added("", "--env", "MARK=HOME")
    assert (result.exit_code, "away://memory/projects/greenhouse.md" in result.stdout) == (0, True)
    after = own_file.read_text(encoding="utf-8")
    assert [line for line in OWN.splitlines() if line not in after.splitlines()] == []
    section = yaml.safe_load(after)["workspaces"][str(workspace.resolve())]["backends"]["away"]
    assert (section["search_tool"], section["results"], section["env"]) == (
        "search_notes",
        "results",
        {"MARK": "HOME"},
    )
    assert section["arguments"] == {"query": "{query}", "limit": "{limit}"}
    assert section["map"] == {"text": "content", "path": "file", "score": "score", "start_line": "line"}
    places = ["--workspace", str(workspace), "--state-dir", str(state_dir)]
    asked = CliRunner().invoke(app, ["backends", "test", "away", "irrigation timer", *places, "--json"])
    assert json.loads(asked.stdout)["results"][0]["path"] == "away://memory/projects/greenhouse.md"
    again = added()
    assert (again.exit_code != 0, own_file.read_text(encoding="utf-8")) == (True, after)


@pytest.mark.thorough
def test_it_is_added_for_this_workspace_alone_or_for_all(
    added: Any, own_file: Path, workspace: Path, state_dir: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()

    def shown(folder: Path) -> dict[str, str]:
        words = ["config", "show", "--json", "--workspace", str(folder), "--state-dir", str(state_dir)]
        rows = json.loads(CliRunner().invoke(app, words).stdout)["settings"]
        return {row["key"]: row["origin"] for row in rows if row["key"].startswith("memory.backends.away.")}

    assert added("", "--yes").exit_code == 0
    lines = own_file.read_text(encoding="utf-8").splitlines()
    origin = shown(workspace)["memory.backends.away.kind"]
    file, _, line = origin.rpartition(":")
    assert (file, lines[int(line) - 1].strip()) == (str(own_file), "kind: mcp")
    assert shown(other) == {}
    assert added("", "--yes").exit_code != 0  # it is there already

    own_file.write_text(OWN, encoding="utf-8")
    assert added("", "--yes", "--all-workspaces").exit_code == 0
    assert shown(other).keys() == shown(workspace).keys() != set()
    assert added("", "--yes").exit_code != 0  # it is there already


def test_a_server_that_finds_single_words_only_is_added_as_such(
    added: Any, own_file: Path, workspace: Path
) -> None:
    assert added("one-word", "--yes").exit_code == 0
    after = yaml.safe_load(own_file.read_text(encoding="utf-8"))
    section = after["workspaces"][str(workspace.resolve())]["backends"]["away"]
    assert (section["ask_by"], section["search_tool"]) == ("words", "search_notes")


@pytest.mark.needs("mcp-servers")
@pytest.mark.thorough
def test_results_of_a_server_with_the_tools_of_the_reference_server_are_read_whole(
    own_file: Path, workspace: Path, state_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section, environ = reference_server(tmp_path, {"Harbour": "The pump was replaced in May.\nIt is deep."})
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    variables = [f"--env={name}={name}" for name in environ]
    words = ["backends", "add", "graph", "--command", shlex.join(section["command"]), *variables]
    places = ["--workspace", str(workspace), "--state-dir", str(state_dir)]
    added = CliRunner().invoke(app, [*words, "--question", "pump replaced", "--yes", *places])
    assert (added.exit_code, "open_nodes" in own_file.read_text(encoding="utf-8")) == (0, True)
    whole = CliRunner().invoke(app, ["get", "graph://Harbour", *places])
    assert "It is deep." in whole.stdout


def test_nothing_is_added_without_a_yes_or_without_results(added: Any, own_file: Path) -> None:
    assert added(answer="n\n").exit_code == 1
    assert added("no-start").exit_code == 1
    assert added(question="zeppelin", answer="").exit_code == 1
    assert added("", "--env", "MARK").exit_code == 2
    assert own_file.read_text(encoding="utf-8") == OWN


def test_lines_to_paste_are_shown_where_the_file_cannot_be_edited(added: Any, own_file: Path) -> None:
    text = "memory: {embedding: {provider: none}}\n"
    own_file.write_text(text, encoding="utf-8")
    result = added("", "--yes", "--all-workspaces")
    assert (result.exit_code, own_file.read_text(encoding="utf-8")) == (1, text)
    assert "search_tool: search_notes" in result.stdout
