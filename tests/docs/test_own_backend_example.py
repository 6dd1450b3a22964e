"""The example of a memory made of parts runs, and finds what it was told."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_example_of_an_own_backend_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "own_backend.py"), run_name="__main__")

    shown = capsys.readouterr().out
    assert "charging racks" in shown
    assert "Nadia: I moved from Millrace" in shown
