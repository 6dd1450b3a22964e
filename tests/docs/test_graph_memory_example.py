"""The example of the graph memory runs, and answers a question of a time with what held then."""

import runpy
from pathlib import Path

import pytest

pytest.importorskip("falkordb")

EXAMPLES = Path(__file__).parents[2] / "examples"
QUESTIONS = ("Where does Nadia work?", "Where did Nadia work as of February 2026?")


def test_the_example_of_the_graph_memory_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "graph_memory.py"), run_name="__main__")

    lines = capsys.readouterr().out.splitlines()
    now, then = (lines[lines.index(question) + 1] for question in QUESTIONS)
    assert "Tidegate Robotics. (since 2026-03-02)" in now
    assert "Lanternwheel. (2026-01-05 to 2026-03-02; no longer holds)" in then
    assert '  n0["Nadia Ferris"]' in lines
