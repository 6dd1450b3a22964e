"""`cmem backends test`: what a foreign memory answers, what is read from it, and what is dropped."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from composable_memory.cli import app

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
    assert shown["results"][0]["path"] == "away/memory/projects/greenhouse.md"
    assert shown["tookMs"] > 0


def test_what_was_dropped_is_told(tried: Any) -> None:
    result = tried("other-shape", "--json", results="answer.rows")
    assert (result.exit_code, json.loads(result.stdout)["results"]) == (1, [])
    assert "2 of its results have no text" in result.stderr


def test_a_failure_is_told(tried: Any) -> None:
    assert "the database is locked" in tried("no-start").stderr
    unknown = tried(backend="nobody")
    assert (unknown.exit_code, "away" in unknown.stderr) == (1, True)
