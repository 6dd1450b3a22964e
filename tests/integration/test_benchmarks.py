"""Benchmarks run as programs of their own over a small set, and print what they are to print."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
NOTES = {
    "harbour": "The harbour gate is painted green.",
    "bakery": "The bakery opens at six in the morning.",
    "ferry": "The ferry to the island leaves at noon.",
    "garden": "Tomatoes in the garden need water twice a day.",
}
QUESTIONS = {
    "harbour": "What colour is the harbour gate?",
    "bakery": "When does the bakery open?",
    "ferry": "When does the ferry leave for the island?",
    "garden": "How often do the tomatoes need water?",
}


@pytest.fixture
def small_set(tmp_path: Path) -> Path:
    """Return a folder with one set of four notes and four questions."""
    memory = tmp_path / "town" / "ws" / "memory"
    memory.mkdir(parents=True)
    for name, text in NOTES.items():
        (memory / f"{name}.md").write_text(f"{text}\n", encoding="utf-8")
    rows = [
        {"conv": "ws", "category_name": "plain", "question": text, "qrels": [[f"memory/{name}.md", 1]]}
        for name, text in QUESTIONS.items()
    ]
    lines = "".join(f"{json.dumps(row)}\n" for row in rows)
    (tmp_path / "town" / "queries.jsonl").write_text(lines, encoding="utf-8")
    return tmp_path / "town"


def rows_of(script: str, *arguments: str) -> list[Sequence[str]]:
    """Return the cells of each row of the table that a benchmark prints."""
    asked = [sys.executable, str(BENCHMARKS / script), *arguments]
    done = subprocess.run(asked, check=True, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_a_federation_finds_what_one_index_finds(small_set: Path) -> None:
    rows = rows_of("federation.py", str(small_set), "--shares", "50", "--seeds", "2")

    whole, *split = rows
    assert whole[:3] == ["town", "4", "one index"]
    assert float(whole[4]) == 1.0
    assert [(row[2], row[3]) for row in split] == [
        ("builtin + builtin, 50:50", fusion) for fusion in ("weighted", "rrf", "convex")
    ]
    assert all(float(row[6]) == 1.0 for row in split)  # each note is in one of the two


@pytest.mark.thorough
def test_a_question_about_something_else_is_recognised(small_set: Path) -> None:
    other = small_set.parent / "jsquad"
    small_set.rename(other)

    rows = rows_of("weak_answers.py", "--data", str(other.parent), "--ways", "keywords", "--fit")

    by_set = {row[1]: row[2:] for row in rows[:3]}
    assert by_set.keys() == {"jsquad", "vault", "**all sets**"}
    assert by_set["jsquad"][0].startswith("0 of 2 ")  # half of the notes are left out, with their questions
    assert by_set["vault"][0].startswith("0 of ")
    assert [row[0] for row in rows[-4:]] == ["keywords"] * 4
