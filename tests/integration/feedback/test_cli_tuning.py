"""`cmem replay`, `gate`, `eval` and `experiment` over a real log: what they print where, and how they end."""

import asyncio
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from composable_memory.cli import app
from composable_memory.learning import open_learning
from composable_memory.runtime.opening import open_memory
from composable_memory.state.workspaces import known_workspaces
from tests.cli_page import assert_documented
from tests.installed_packages import install
from tests.integration.feedback.learners import resealed
from tests.integration.feedback.two_backends import ENTRY_POINTS, WRONG, sure, vague

CONFIG = """
memory:
  backend: sure
  builtin: {enabled: false}
  embedding: {provider: none}
  backends: {sure: {enabled: true, weight: 0.5}, vague: {enabled: true, weight: 1.0}}
"""
BETTER, WORSE = "sure=1,vague=0.5", "sure=0.1,vague=1"
QUERIES = 12


async def ask(place: Mapping[str, Path], numbers: Sequence[int], *, judged: bool = True) -> None:
    """Ask for items, and say that the notes of them are what was wanted."""
    environ = {"COMPOSABLE_MEMORY_CONFIG": str(place["config"])}
    opened = open_memory(place["workspace"], place["state"], backends=(sure, vague), environ=environ)
    async with opened as memory:
        traces = [(await memory.query(f"where is item {number}?")).trace_id for number in numbers]
    async with open_learning(place["workspace"], state_dir=place["state"], environ=environ) as learning:
        for number, trace_id in zip(numbers, traces, strict=True) if judged else ():
            await learning.judging.judge(trace_id, f"memory/item-{number}.md", relevance=1.0, used=True)
            for name in WRONG:
                await learning.judging.judge(trace_id, f"memory/{name}-{number}.md", relevance=0.0)


class Cmem:
    """The command line on one memory of two backends."""

    def __init__(self, place: Mapping[str, Path], state: Path) -> None:
        self.place = {**place, "state": state}

    def __call__(self, *args: str) -> Result:
        where = ["--workspace", str(self.place["workspace"]), "--state-dir", str(self.place["state"])]
        return CliRunner().invoke(app, [*args, *where])

    def json(self, *args: str) -> dict[str, object]:
        document = json.loads(self(*args, "--json").stdout)
        assert_documented(args, document)
        assert isinstance(document, dict)
        return document

    def ask(self, *numbers: int, judged: bool = True) -> None:
        asyncio.run(ask(self.place, numbers, judged=judged))

    def tamper(self, was: str, now: str) -> None:
        """Change the first ranking in the log."""
        (log,) = (self.place["state"] / "ops-logs").glob("*.jsonl")
        lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
        at = next(number for number, line in enumerate(lines) if '"query.merged"' in line)
        assert was in lines[at]
        lines[at] = lines[at].replace(was, now, 1)
        log.write_text(resealed("".join(lines)), encoding="utf-8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Have a memory that was asked for twelve items, each of them judged."""
    folder = tmp_path_factory.mktemp("tuning")
    place = {"workspace": folder / "notes", "state": folder / "state", "config": folder / "config.yaml"}
    place["workspace"].mkdir()
    place["config"].write_text(CONFIG, encoding="utf-8")
    asyncio.run(ask(place, range(QUERIES)))
    return place


@pytest.fixture
def empty(place: Mapping[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cmem:
    install(tmp_path / "site", "two-backends", ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(place["config"]))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    return Cmem(place, tmp_path / "state")


@pytest.fixture
def cmem(place: Mapping[str, Path], empty: Cmem) -> Cmem:
    shutil.copytree(place["state"], empty.place["state"])
    return empty


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """Return golden questions: two with the right answers, and one that cannot be answered."""
    path = tmp_path / "questions.jsonl"
    rows = [
        {
            "id": f"q{number}",
            "question": f"where is item {number}?",
            "expect": [f"memory/item-{number}.md#L2"],
        }
        for number in (1, 2)
    ]
    rows.append({"id": "q3", "question": "where is item 3?", "expect": ["memory/elsewhere.md"]})
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def error(result: Result) -> str:
    """Return the one line of an error."""
    assert result.exit_code == 1
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("Error: "))
    return line


# --- replay -------------------------------------------------------------------------------------------------


def test_a_replay_without_a_change_proves_every_ranking(cmem: Cmem) -> None:
    result = cmem("replay")

    assert (result.exit_code, result.stderr) == (0, "")
    assert f"all {QUERIES} logged rankings matched" in result.stdout


def test_a_replay_fails_where_a_ranking_is_not_the_logged_one(cmem: Cmem) -> None:
    cmem.tamper(",0.9,0.9", ",0.8,0.9")  # score and calibrated score of a result

    result = cmem("replay")

    assert f"{QUERIES - 1} of {QUERIES} logged rankings" in result.stdout
    assert "`cmem logs show" in error(result)


def test_a_change_shows_who_moves_and_what_the_judgements_say(cmem: Cmem) -> None:
    result = cmem("replay", "--weights", BETTER, "--limit", "1")

    assert (result.exit_code, result.stderr) == (0, "")
    assert "With the weights sure 1.00, vague 0.50:" in result.stdout
    assert f"{QUERIES} of {QUERIES} rankings change in their top 10." in result.stdout
    assert re.search(
        r"general  nDCG 0\.\d+ -> 1\.000\n  up +3 +-> +1 +memory/item-\d+\.md:1-3 +?\[sure\]", result.stdout
    )
    assert f"{QUERIES - 1} more; --limit {QUERIES} shows all." in result.stdout
    assert re.search(r"all questions  \+0\.\d+ \(.*\)  better", result.stdout)


def test_a_replay_as_json_is_one_document(cmem: Cmem) -> None:
    document = cmem.json("replay", "--fusion", "rrf", "--drop", "vague", "--limit", "2", "-k", "3")

    assert document["change"] == {"fusion": "rrf", "dropped": ["vague"]}
    assert (document["k"], document["total"], document["reproduced"]) == (3, QUERIES, QUERIES)
    queries = document["queries"]
    assert isinstance(queries, list)
    assert len(queries) == 2
    assert {move["move"] for move in queries[0]["moves"]} == {"up", "in", "out"}


def test_a_change_of_queries_that_nobody_judged_says_how_to_judge_them(empty: Cmem) -> None:
    empty.ask(1, judged=False)

    result = empty("replay", "--weights", BETTER)

    assert result.exit_code == 0
    assert "cmem feedback evaluate" in result.stderr


def test_a_replay_of_nothing_fails(empty: Cmem) -> None:
    assert "the log has no query" in error(empty("replay"))


def test_only_a_backend_that_was_asked_can_be_dropped(cmem: Cmem) -> None:
    assert "sure, vague" in error(cmem("replay", "--drop", "vage"))


@pytest.mark.parametrize("option", ["--since", "--until"])
def test_a_time_that_is_none_is_bad_usage(cmem: Cmem, option: str) -> None:
    assert cmem("replay", option, "soonish").exit_code == 2


# --- gate ---------------------------------------------------------------------------------------------------


def test_a_gate_lets_the_better_weights_pass(cmem: Cmem) -> None:
    result = cmem("gate", "--candidate", BETTER)

    assert (result.exit_code, result.stderr) == (0, "")
    assert "candidate  sure 1.00, vague 0.50\n" in result.stdout
    assert "\nPassed: " in result.stdout


def test_a_gate_stops_worse_weights(cmem: Cmem) -> None:
    result = cmem("gate", "--baseline", BETTER, "--candidate", WORSE)

    assert result.exit_code == 1
    assert "\nNot passed: " in result.stdout


def test_a_gate_tolerates_what_it_is_told_to(cmem: Cmem) -> None:
    document = cmem.json("gate", "--baseline", BETTER, "--candidate", WORSE, "--tolerance", "0.6")

    assert (document["passed"], document["tolerance"], document["judgedQueries"]) == (True, 0.6, QUERIES)


def test_a_gate_fails_where_too_few_queries_are_judged(empty: Cmem) -> None:
    empty.ask(1, 2)

    assert "judged" in error(empty("gate", "--candidate", BETTER))


def test_another_folder_can_use_the_log_and_the_judgements_of_a_memory(cmem: Cmem, tmp_path: Path) -> None:
    elsewhere = tmp_path / "checkout"
    elsewhere.mkdir()

    def run(*args: str) -> Result:
        place = ("--workspace", str(elsewhere), "--state-dir", str(cmem.place["state"]))
        return CliRunner().invoke(app, [*args, *place, "--json"])

    (known,) = known_workspaces(cmem.place["state"])
    gate = ("gate", "--baseline", BETTER, "--candidate", WORSE)
    for name in (str(cmem.place["workspace"]), known.id):
        assert json.loads(run("replay", "--memory", name).stdout)["total"] == QUERIES
        assert json.loads(run(*gate, "--memory", name).stdout)["judgedQueries"] == QUERIES
    assert known_workspaces(cmem.place["state"]) == (known,)  # the folder became no memory of its own

    refused = run(*gate, "--memory", "nowhere")
    assert refused.exit_code == 1
    assert known.id in refused.stdout + refused.stderr


# --- experiment ---------------------------------------------------------------------------------------------


def test_without_an_experiment_the_status_says_how_to_start_one(empty: Cmem) -> None:
    result = empty("experiment", "status")

    assert (result.exit_code, result.stdout) == (0, "No experiment yet.\n")
    assert "cmem experiment start" in result.stderr
    assert empty.json("experiment", "status") == {"isRunning": False}


def test_an_experiment_tells_both_tables_and_who_won(cmem: Cmem) -> None:
    started = cmem("experiment", "start", "--b", BETTER)
    cmem.ask(20, 21)

    result = cmem("experiment", "status")

    assert started.exit_code == result.exit_code == 0
    assert "  b         sure 1.00, vague 0.50" in result.stdout
    assert "  queries   2: a won 0, b won 2, 0 tied" in result.stdout


def test_the_winner_of_an_experiment_can_be_adopted(cmem: Cmem) -> None:
    cmem("experiment", "start", "--b", BETTER, "--alpha", "0.5")
    cmem.ask(*range(20, 28))

    hint = cmem("experiment", "status").stderr
    document = cmem.json("experiment", "stop", "--adopt")

    assert "--adopt" in hint
    assert (document["state"], document["decision"]) == ("decided", "b")
    assert document["inForce"] == {"version": "v1", "weights": {"sure": 1.0, "vague": 0.5}, "byIntent": {}}


def test_an_experiment_that_told_nothing_can_be_stopped_and_not_adopted(cmem: Cmem) -> None:
    cmem("experiment", "start", "--b", BETTER)

    refused, stopped = cmem("experiment", "stop", "--adopt"), cmem("experiment", "stop")

    assert "b did not win" in error(refused)
    assert "stopped" in stopped.stdout.splitlines()[0]
    assert "Active weights: sure 0.50, vague 1.00." in stopped.stdout


def test_an_experiment_that_does_not_run_cannot_be_stopped(empty: Cmem) -> None:
    assert "cmem experiment start" in error(empty("experiment", "stop"))


def test_equal_tables_are_no_experiment(cmem: Cmem) -> None:
    assert "nothing to compare" in error(cmem("experiment", "start", "--b", "now"))


# --- eval ---------------------------------------------------------------------------------------------------


def test_golden_questions_tell_what_each_backend_reaches(empty: Cmem, questions: Path) -> None:
    result = empty("eval", str(questions), "--keep")

    assert result.exit_code == 0
    assert [line.split() for line in result.stdout.splitlines()[1:5]] == [
        ["recall", "MRR", "nDCG"],
        ["all", "together", "0.667", "0.222", "0.333"],
        ["sure", "0.667", "0.667", "0.667"],
        ["vague", "0.667", "0.222", "0.333"],
    ]
    assert "  q3  none found  where is item 3?" in result.stdout
    assert "Kept 3 questions" in result.stdout


def test_weights_in_force_that_rank_the_kept_answers_worse_fail(
    empty: Cmem, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "better.yaml"
    config.write_text(CONFIG.replace("weight: 0.5", "weight: 2.0"), encoding="utf-8")
    with monkeypatch.context() as patched:
        patched.setenv("COMPOSABLE_MEMORY_CONFIG", str(config))
        assert empty("eval", str(questions), "--keep").exit_code == 0

    result = empty("eval", str(questions), "--keep")

    assert "worse: q1, q2" in result.stdout
    assert "worse than then" in error(result)


def test_what_is_not_kept_is_no_floor(empty: Cmem, questions: Path) -> None:
    first = empty.json("eval", str(questions))
    second = empty.json("eval", str(questions), "--no-keep")

    assert (first["kept"], "floor" in second) == (0, False)


def test_a_line_that_is_no_question_is_named(empty: Cmem, questions: Path) -> None:
    questions.write_text(questions.read_text(encoding="utf-8") + "\n{}", encoding="utf-8")

    assert "line 4" in error(empty("eval", str(questions)))


def test_without_a_log_nothing_can_be_evaluated(
    empty: Cmem, questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "silent.yaml"
    config.write_text(f"{CONFIG}  ops_log: {{enabled: false}}", encoding="utf-8")
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(config))

    assert "ops_log" in error(empty("eval", str(questions)))


@pytest.mark.parametrize(
    "args",
    [
        ("replay", "--weights", "nope=0.5"),
        ("replay", "--weights", "sure=x"),
        ("gate", "--candidate", "nope=0.5"),
        ("gate", "--candidate", BETTER, "--baseline", "nope=1"),
        ("experiment", "start", "--b", "nope=0.5"),
        ("experiment", "start", "--b", BETTER, "--a", "nope=1"),
        ("weights", "diff", "now", "nope=1"),
        ("weights", "set", "nope=1"),
        ("backends", "test", "nope", "who?"),
    ],
    ids=" ".join,
)
def test_weights_that_are_none_and_backends_that_nobody_knows_are_bad_usage(
    empty: Cmem, args: tuple[str, ...]
) -> None:
    result = empty(*args)

    assert (result.exit_code, result.stdout) == (2, "")
    assert args[-1].partition("=")[0] in result.stderr or args[2] in result.stderr


def test_how_to_start_an_experiment_names_backends_that_are_enabled(cmem: Cmem) -> None:
    hint = cmem("experiment", "status").stderr

    assert "graphiti" not in hint
    assert "sure=" in hint
