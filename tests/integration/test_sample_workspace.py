"""The sample workspace: its questions name real lines, and the product finds most of them out of the box."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from composable_memory import open_memory
from composable_memory.types import MemorySearchResult

EXAMPLES = Path(__file__).parents[2] / "examples"
WORKSPACE = EXAMPLES / "workspace"
QUESTIONS: list[Mapping[str, Any]] = [
    json.loads(line) for line in (EXAMPLES / "questions.jsonl").read_text(encoding="utf-8").splitlines()
]
LITERAL = {"identifier", "table", "decision", "keyword", "code"}


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["id"])
def test_every_expected_line_holds_its_needle(question: Mapping[str, Any]) -> None:
    for place in question["expect"]:
        lines = (WORKSPACE / place["path"]).read_text(encoding="utf-8").split("\n")
        assert place["needle"] in lines[place["line"] - 1]


async def test_most_questions_are_answered_within_six_results(state_dir: Path) -> None:
    async with open_memory(WORKSPACE, state_dir) as memory:
        report = await memory.sync()
        found = {
            question["id"]: _holds(question, (await memory.query(question["question"])).results)
            for question in QUESTIONS
        }

    assert report.problems == ()
    assert [one["id"] for one in QUESTIONS if one["kind"] in LITERAL and not found[one["id"]]] == []
    assert sum(found.values()) >= 32


def _holds(question: Mapping[str, Any], results: tuple[MemorySearchResult, ...]) -> bool:
    return any(
        place["path"] == result.path and result.start_line <= place["line"] <= result.end_line
        for place in question["expect"]
        for result in results
    )
