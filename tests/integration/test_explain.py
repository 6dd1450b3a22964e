"""Why a note came up or not, held against what the log has of the search."""

import json
import re
from pathlib import Path
from random import Random

import pytest
from typer.testing import CliRunner

from composable_memory import open_memory
from composable_memory.cli import app
from composable_memory.tools.explain import MemoryExplainRequest, memory_explain
from composable_memory.tools.search import MemorySearchRequest, query_cited
from composable_memory.types import BackendAnswer
from tests.integration.test_sample_workspace import QUESTIONS, WORKSPACE


def cmem(workspace: Path, state_dir: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, [*arguments, "-w", str(workspace), "--state-dir", str(state_dir)])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.thorough
async def test_any_note_is_explained_as_the_search_went(state_dir: Path) -> None:
    random = Random(7)
    notes = sorted(str(one.relative_to(WORKSPACE)) for one in WORKSPACE.glob("memory/**/*.md"))
    verdicts = set()
    async with open_memory(WORKSPACE, state_dir) as memory:
        await memory.sync()
        for _ in range(50):
            question, path = random.choice(QUESTIONS)["question"], random.choice(notes)
            response = await memory.query(question)
            reply = await memory_explain(memory, MemoryExplainRequest(trace_id=response.trace_id, path=path))
            why = str(reply.as_json()["why"])
            places = [number for number, one in enumerate(response.results, 1) if one.path == path]
            ranks = _ranks(response.answers, path)
            if places:
                verdicts.add("result")
                assert why.startswith(f"it is result {places[0]} of {len(response.results)}")
            elif any(one.result.path == path for one in response.dropped):
                verdicts.add("dropped")
                assert "was left out" in why
            elif ranks:
                verdicts.add("candidate")
                assert f"number {ranks[0]} of " in why
            else:
                verdicts.add("none")
                best = await memory.query(f"{question} path:{path}", min_score=0.0)
                found = best.answers[0].results
                assert "have changed since" not in why, why
                assert ("has a word of the question" in why) == (not found), why

    assert {"result", "candidate", "none"} <= verdicts


def _ranks(answers: tuple[BackendAnswer, ...], path: str) -> list[int]:
    return [rank for one in answers for rank, hit in enumerate(one.results, 1) if hit.path == path]


async def test_a_result_that_matches_too_little_to_be_shown_is_told_as_such(
    workspace: Path, state_dir: Path
) -> None:
    (workspace / "memory" / "dock.md").write_text("# Dock\n\nThe dock listens on port 8443.\n")
    async with open_memory(workspace, state_dir) as memory:
        await memory.sync()
        response = await query_cited(memory, MemorySearchRequest(query="which port does the dock listen on?"))
        weak = [one.result.path for one in response.dropped if one.reason == "weak"]
        whys = {}
        for path in (response.results[0].path, weak[-1]):
            request = MemoryExplainRequest(trace_id=response.trace_id, path=path)
            whys[path] = str((await memory_explain(memory, request)).as_json()["why"])

    shown, unshown = whys.values()
    assert "not shown" not in shown
    assert unshown.startswith("it is result")
    assert "not shown" in unshown


def test_the_last_search_is_explained_in_words(workspace: Path, state_dir: Path) -> None:
    (workspace / "memory" / "dock.md").write_text("# Dock\n\nThe dock listens on port 8443.\n")
    cmem(workspace, state_dir, "search", "which port does the dock listen on?")

    told = cmem(workspace, state_dir, "explain")
    again = json.loads(cmem(workspace, state_dir, "explain", "last", "--json"))
    why = cmem(workspace, state_dir, "explain", "--why-not", "memory/dock.md#L3")

    assert "1." in told
    assert re.search(r"matches .*dock 0\.\d", told)
    assert again["query"] == "which port does the dock listen on?"
    assert {"dock", "port"} <= set(again["results"][0]["matched"])
    assert again["results"][0]["byWords"] > 0.5
    given = {one["word"]: one["score"] for one in again["results"][0]["words"]}
    assert given.keys() >= {"dock", "port"}
    assert sum(given.values()) == pytest.approx(again["results"][0]["byWords"], abs=0.01)
    assert {"changes", "keyword"} <= again["backends"][0]["legs"].keys()
    assert "it is result 1 of" in why


def test_an_answer_that_was_not_shown_is_explained_as_such(workspace: Path, state_dir: Path) -> None:
    cmem(workspace, state_dir, "index")  # with all vectors, for something to match weakly
    cmem(workspace, state_dir, "search", "heron quay lantern")
    unshown = cmem(workspace, state_dir, "explain")
    rows = json.loads(cmem(workspace, state_dir, "explain", "--json"))
    cmem(workspace, state_dir, "search", "heron quay lantern", "--weak")
    shown = cmem(workspace, state_dir, "explain")

    assert rows["hidden"] == [number for number, _ in enumerate(rows["results"], 1)] != []
    assert unshown.count("matches weakly, so it was not shown") == len(rows["results"])
    assert "not shown" not in shown


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("memory/nothing.md", "no such file"),
        ("../elsewhere.md", ": it cannot be read: it is outside"),
        ("memory/late.md", "changed"),
    ],
)
def test_what_was_no_candidate_is_looked_up(workspace: Path, state_dir: Path, place: str, said: str) -> None:
    cmem(workspace, state_dir, "search", "heron quay lantern")
    (workspace / "memory" / "late.md").write_text("The heron on the quay lit a lantern.\n")
    cmem(workspace, state_dir, "index")

    assert said in cmem(workspace, state_dir, "explain", "--why-not", place)


def test_a_trace_of_another_workspace_is_refused(workspace: Path, state_dir: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    (other / "memory").mkdir(parents=True)
    (other / "memory" / "one.md").write_text("Ann keeps bees.\n")
    found = json.loads(cmem(other, state_dir, "search", "bees", "--json"))
    asked = ["explain", found["traceId"], "-w", str(workspace), "--state-dir", str(state_dir)]

    done = CliRunner().invoke(app, asked)

    assert done.exit_code == 1
    assert "not a search of this memory" in done.output


def test_statistics_tell_of_speed_and_failures(workspace: Path, state_dir: Path) -> None:
    questions = ["tomatoes", "harbour keys", "coffee"]
    took = [json.loads(cmem(workspace, state_dir, "search", one, "--json"))["tookMs"] for one in questions]

    told = json.loads(cmem(workspace, state_dir, "logs", "stats", "--json"))["backends"]
    shown = cmem(workspace, state_dir, "logs", "stats")
    none = cmem(workspace, state_dir, "logs", "stats", "--since", "2099-01-01")

    assert [one["backend"] for one in told] == ["builtin", "all together"]
    assert {one["queries"] for one in told} == {3}
    assert told[1]["p50Ms"] == pytest.approx(sorted(took)[1], abs=0.06)
    assert told[1]["course"] == pytest.approx(took, abs=0.06)
    assert {one["failed"] for one in told} == {0.0}
    assert "builtin" in shown
    assert none == "No queries.\n"
