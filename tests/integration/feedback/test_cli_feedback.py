"""`cmem feedback`, `weights` and `advise` over a real log and store: what they print, and how they end."""

import asyncio
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from composable_memory.cli import app
from composable_memory.learning import open_learning
from composable_memory.runtime.opening import open_memory
from tests.cli_page import assert_documented
from tests.installed_packages import install
from tests.integration.feedback.two_backends import ENTRY_POINTS, WRONG, sure, vague

CONFIG = """
memory:
  backend: sure
  builtin: {enabled: false}
  embedding: {provider: none}
  feedback: {min_samples: 10, llm: {base_url: "URL"}}
  backends: {sure: {enabled: true, weight: 0.75}, vague: {enabled: true, weight: 1.0}}
"""
NO_MODEL = CONFIG.replace(', llm: {base_url: "URL"}', "")
QUERIES = 24
NO_JUDGEMENTS = (
    "hint: no judgements yet: run `cmem feedback evaluate`, or `cmem feedback add TRACE_ID 1 --relevance 1`\n"
)


class Cmem:
    """The command line on one memory of two backends."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.state, self.config = folder / "notes", folder / "state", folder / "config.yaml"
        self.environ = {"COMPOSABLE_MEMORY_CONFIG": str(self.config)}

    def __call__(self, *args: str) -> Result:
        place = ["--workspace", str(self.workspace), "--state-dir", str(self.state)]
        return CliRunner().invoke(app, [*args, *place])

    def json(self, *args: str) -> dict[str, Any]:
        document = json.loads(self(*args, "--json").stdout)
        assert_documented(args, document)
        assert isinstance(document, dict)
        return document

    def said(self, *args: str) -> str:
        """Return what a command that ends well says."""
        result = self(*args)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    def configure(self, text: str) -> None:
        self.config.write_text(text, encoding="utf-8")

    async def ask(self, numbers: Sequence[int], *, judged: bool) -> str:
        """Ask for items, say that the notes of them were what was wanted, and return the last trace id."""
        place = {"state_dir": self.state, "environ": self.environ}
        async with open_memory(self.workspace, backends=(sure, vague), **place) as memory:  # type: ignore[arg-type]
            traces = [(await memory.query(f"where is item {number}?")).trace_id for number in numbers]
        async with open_learning(self.workspace, **place) as learning:  # type: ignore[arg-type]
            for number, trace_id in zip(numbers, traces, strict=True) if judged else ():
                await learning.judging.judge(trace_id, f"memory/item-{number}.md", relevance=1.0, used=True)
                for name in WRONG:
                    await learning.judging.judge(trace_id, f"memory/{name}-{number}.md", relevance=0.0)
        return traces[-1]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Cmem:
    """Have a memory with wrong weights, in which every answer was judged."""
    cmem = Cmem(tmp_path_factory.mktemp("learning"))
    cmem.workspace.mkdir()
    cmem.configure(NO_MODEL)
    asyncio.run(cmem.ask(range(QUERIES), judged=True))
    return cmem


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cmem:
    """Have a memory that nobody has asked anything."""
    install(tmp_path / "site", "two-backends", ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path / "site")
    cmem = Cmem(tmp_path)
    cmem.workspace.mkdir()
    cmem.configure(NO_MODEL)
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(cmem.config))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    return cmem


@pytest.fixture
def cmem(original: Cmem, empty: Cmem) -> Cmem:
    shutil.rmtree(empty.workspace)
    shutil.copytree(original.state, empty.state)
    empty.workspace = original.workspace  # by which the log and the store know the memory
    return empty


@pytest.fixture
def asked(empty: Cmem) -> tuple[Cmem, str]:
    """Have a memory with one question in its log, and the id of its trace."""
    return empty, asyncio.run(empty.ask([7], judged=False))


def error(result: Result) -> str:
    """Return the one line of an error."""
    assert result.exit_code == 1
    (line,) = (line for line in result.stderr.splitlines() if line.startswith("Error: "))
    return line


def usage_error(result: Result) -> str:
    """Return what a refusal says, without the frame around it."""
    assert result.exit_code == 2
    return " ".join(re.sub(r"[^\x20-\x7e\n]", "", result.stderr).split())


# --- feedback add -------------------------------------------------------------------------------------------


def test_a_result_is_judged_by_its_place(asked: tuple[Cmem, str]) -> None:
    cmem, trace_id = asked

    result = cmem("feedback", "add", trace_id[:8], "2", "--relevance", "0.8", "--used")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        f"Judged result 2 of trace {trace_id[:8]}: 0.80, used\n  memory/beside-7.md:1-3 [vague]\n"
    )


def test_a_judgement_as_json_is_one_document(asked: tuple[Cmem, str]) -> None:
    cmem, trace_id = asked

    document = cmem.json("feedback", "add", trace_id, "memory/item-7.md")

    assert document.pop("at")
    assert document.pop("queryId")
    assert document == {
        "traceId": trace_id,
        "path": "memory/item-7.md",
        "startLine": 1,
        "endLine": 3,
        "rank": 3,
        "backend": "sure",
        "intent": document["intent"],
        "kind": "explicit",
        "relevance": 1.0,
        "wasUsed": False,
    }


def test_a_result_that_was_not_shown_is_refused_with_those_that_were(asked: tuple[Cmem, str]) -> None:
    cmem, trace_id = asked

    assert "it showed 1: memory/around-7.md:1-3" in error(cmem("feedback", "add", trace_id, "9"))


def test_an_unknown_trace_is_refused(empty: Cmem) -> None:
    assert "no such query: 12345678" in error(empty("feedback", "add", "12345678", "1"))


@pytest.mark.parametrize("relevance", ["1.5", "-0.1", "nan", "much"])
def test_a_relevance_that_is_none_is_bad_usage(empty: Cmem, relevance: str) -> None:
    usage_error(empty("feedback", "add", "12345678", "1", f"--relevance={relevance}"))


# --- feedback evaluate --------------------------------------------------------------------------------------


@contextmanager
def model(answer: Callable[[], tuple[int, str]]) -> Iterator[str]:
    """Have an endpoint that says what `answer` returns, status and text; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            status, text = answer()
            body = {
                "choices": [{"message": {"content": text}}],
                "usage": {"prompt_tokens": 900, "completion_tokens": 45},
            }
            raw = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def verdicts() -> tuple[int, str]:
    given = [
        {
            "resultIndex": number,
            "relevanceScore": score,
            "wasUsed": False,
            "rationale": "x",
        }
        for number, score in enumerate((0.1, 0.2, 0.9))
    ]
    return 200, json.dumps({"judgments": given})


def test_an_evaluation_tells_each_query_and_what_it_cost(asked: tuple[Cmem, str]) -> None:
    cmem, trace_id = asked
    with model(verdicts) as url:
        cmem.configure(CONFIG.replace("URL", url))
        result = cmem("feedback", "evaluate", "--since", "1h")

    assert (result.exit_code, result.stderr) == (0, "")
    first, *rest = result.stdout.splitlines()
    assert first == (
        f"judged  {trace_id[:8]}  precision 0.33  relevance 0.40  used 0     945 tokens  where is item 7?"
    )
    assert rest[0] == "Judged 1 query, 3 results; mean precision 0.33."
    assert re.fullmatch(r"Cost: 900 tokens in, 45 out, \d+\.\d s\.", rest[1])
    assert rest[2] == "Signals of use: 0 new."


def test_an_evaluation_as_json_is_one_document(asked: tuple[Cmem, str]) -> None:
    cmem, trace_id = asked
    with model(verdicts) as url:
        cmem.configure(CONFIG.replace("URL", url))
        document = cmem.json("feedback", "evaluate")

    (query,) = document.pop("queries")
    assert (query["state"], query["traceId"], query["judged"]) == ("judged", trace_id, 3)
    assert document == {
        "signals": 0,
        "judged": 1,
        "failed": 0,
        "judgements": 3,
        "precision": pytest.approx(1 / 3),
        "inputTokens": 900,
        "outputTokens": 45,
        "left": 0,
    }


def test_a_model_that_says_rubbish_fails_with_the_reason(asked: tuple[Cmem, str]) -> None:
    cmem, _ = asked
    with model(lambda: (200, "I like it")) as url:
        cmem.configure(CONFIG.replace("URL", url))
        result = cmem("feedback", "evaluate")

    assert "no query could be judged" in error(result)
    assert "Judged 0 queries, 0 results; 1 failed." in result.stdout
    assert "1 query is left to judge." in result.stdout


def test_without_a_model_the_setting_that_is_missing_is_named(asked: tuple[Cmem, str]) -> None:
    cmem, _ = asked

    result = cmem("feedback", "evaluate")

    assert result.exit_code == 0
    assert "memory.feedback.llm.base_url" in result.stderr


def test_what_the_advice_would_show_is_judged_in_the_place_of_what_was_shown(cmem: Cmem) -> None:
    judged = cmem("feedback", "evaluate", "--advice")

    assert (judged.exit_code, "left to judge" in judged.stdout) == (0, False)
    assert "is judged" in judged.stderr


def test_without_a_log_an_evaluation_says_so(empty: Cmem) -> None:
    empty.configure(NO_MODEL + "  ops_log: {enabled: false}\n")

    assert "memory.ops_log.enabled is false" in error(empty("feedback", "evaluate"))


# --- feedback stats and plot --------------------------------------------------------------------------------


def test_stats_tell_the_quality_of_each_backend(cmem: Cmem) -> None:
    told = cmem.said("feedback", "stats")

    assert f"Judgements  {4 * QUERIES} explicit; {QUERIES} judged queries\n" in told
    assert "Weights     those of the settings: sure 0.75, vague 1.00\n" in told
    assert re.search(rf"\nsure     all +{QUERIES} +0\.50 +0\.50  {QUERIES} of {2 * QUERIES}\n", told)


def test_stats_of_nothing_say_what_brings_some(empty: Cmem) -> None:
    result = empty("feedback", "stats")

    assert (result.exit_code, result.stderr) == (0, NO_JUDGEMENTS)
    assert "Judgements  none; 0 judged queries" in result.stdout


def test_stats_as_json_hold_the_days(cmem: Cmem) -> None:
    document = cmem.json("feedback", "stats")

    assert document["judgements"] == {"explicit": 4 * QUERIES}
    assert {day["backend"] for day in document["days"]} == {"sure", "vague"}
    assert "waiting" not in document


def test_a_plot_without_a_file_is_drawn_in_the_terminal(cmem: Cmem) -> None:
    told = cmem.said("feedback", "plot")

    assert re.search(r"^  sure +[▁▂▃▄▅▆▇█]{48} +0\.75 +0\.75 +0\.75$", told, re.MULTILINE)
    assert "Quality of results by day  (mean relevance, judged)" in told


def test_a_plot_as_json_holds_the_points(cmem: Cmem) -> None:
    charts = cmem.json("feedback", "plot")["charts"]

    weights = charts[0]
    assert {one["name"]: one["points"][0]["value"] for one in weights["series"]} == {
        "sure": 0.75,
        "vague": 1.0,
    }


@pytest.mark.skipif(not find_spec("matplotlib"), reason="needs the extra plots")
def test_a_plot_is_written_into_the_file(cmem: Cmem, tmp_path: Path) -> None:
    told = cmem.said("feedback", "plot", "--output", str(tmp_path / "a.PNG"))

    assert told == f"Wrote 2 charts to {tmp_path / 'a.PNG'}.\n"
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")


def test_a_plot_into_another_kind_of_file_is_bad_usage(empty: Cmem) -> None:
    assert "ends in neither .png nor .svg" in usage_error(empty("feedback", "plot", "--output", "a.jpg"))


def test_a_plot_without_matplotlib_says_how_to_install_it(
    cmem: Cmem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    # What the option was called before goes on working.
    told = error(cmem("feedback", "plot", "--out", str(tmp_path / "a.svg")))

    assert "`pip install 'composable-memory[plots]'`" in told
    assert not (tmp_path / "a.svg").exists()


# --- weights ------------------------------------------------------------------------------------------------


def test_weights_that_are_set_are_shown_beside_those_of_the_settings(empty: Cmem) -> None:
    changed = empty.said("weights", "set", "sure=0.8", "--reason", "it knows more")
    shown = empty.said("weights", "show")

    assert re.fullmatch(
        r"Weights v1, active since [-\d]+ [\d:]+\nbackend  weight\nsure +0\.80\nvague +1\.00\n", changed
    )
    assert shown.splitlines()[1:] == [
        "it knows more",
        "backend  weight  settings",
        "sure       0.80      0.75",
        "vague      1.00      1.00",
    ]


def test_weights_for_one_kind_of_question_have_a_column(empty: Cmem) -> None:
    told = empty.said("weights", "set", "sure=2,vague=0.125", "--intent", "time")

    assert told.splitlines()[1:] == [
        "backend   all   time",
        "sure     0.75   2.00",
        "vague    1.00  0.125",
    ]


def test_weights_as_json_are_one_document(empty: Cmem) -> None:
    empty.said("weights", "set", "sure=0.8")

    document = empty.json("weights", "show")

    assert document.pop("since")
    settings = document.pop("settings")
    assert settings["weights"] == {"sure": 0.75, "vague": 1.0}
    assert document == {
        "table": {"version": "v1", "weights": {"sure": 0.8, "vague": 1.0}, "byIntent": {}},
        "reason": "set by hand",
    }


@pytest.mark.parametrize("word", ["sure", "sure=-1", "sure=nan", "=1", "stranger=1", ","])
def test_what_is_no_weight_is_bad_usage(empty: Cmem, word: str) -> None:
    assert "WEIGHT" in usage_error(empty("weights", "set", word))


def test_setting_every_weight_to_nothing_is_refused(empty: Cmem) -> None:
    assert "every weight is 0" in error(empty("weights", "set", "sure=0", "vague=0"))


def test_the_history_tells_who_changed_what_and_why(empty: Cmem) -> None:
    empty.said("weights", "set", "sure=0.8", "--reason", "a try")
    empty.said("weights", "rollback")

    head, *lines = empty.said("weights", "history").splitlines()

    assert head.split() == ["when", "version", "by", "change", "expected", "gain", "weights"]
    assert [line[18:].split()[:3] for line in lines if line[0] != " "] == [
        ["settings", "cli", lines[0].split()[4]],
        ["v1", "cli", "adopt"],
    ]
    assert lines[-2].endswith("sure 0.80, vague 1.00")
    assert lines[-1].strip() == "a try"


def test_a_history_of_nothing_says_so(empty: Cmem) -> None:
    result = empty("weights", "history")

    assert (result.exit_code, result.stdout.count("\n")) == (0, 1)
    assert "`cmem advise`" in result.stderr


def test_a_rollback_puts_a_named_version_in_force(empty: Cmem) -> None:
    for weight in ("0.6", "0.7", "0.8"):
        empty.said("weights", "set", f"sure={weight}")

    told = empty.said("weights", "rollback", "v1")

    assert told.startswith("Weights v1, active since ")
    assert re.search(r"sure +0\.60\n", told)


def test_a_rollback_to_a_version_that_never_was_names_those_that_were(empty: Cmem) -> None:
    empty.said("weights", "set", "sure=0.8")

    assert "v1" in error(empty("weights", "rollback", "v9"))


def test_a_table_that_the_settings_overtook_is_told(empty: Cmem) -> None:
    empty.said("weights", "set", "sure=0.8")
    empty.configure(NO_MODEL.replace("0.75", "0.6"))

    result = empty("weights", "show")

    assert "v1 is not used" in result.stderr
    assert "sure 0.60" in " ".join(result.stdout.split())


def test_a_difference_is_shown_with_the_heaviest_as_one(empty: Cmem) -> None:
    told = empty.said("weights", "diff", "settings", "equal")

    assert told.splitlines() == [
        "questions  backend  settings  equal  change",
        "all        sure         0.75   1.00   +0.25",
        "all        vague        1.00   1.00       -",
        "The heaviest weight is shown as 1.",
    ]


def test_tables_of_the_same_proportions_are_said_to_rank_alike(empty: Cmem) -> None:
    assert "They rank alike" in empty.said("weights", "diff", "now", "sure=1.5,vague=2")
    assert empty.json("weights", "diff", "now", "sure=1.5,vague=2")["ranksAlike"] is True


def test_a_table_that_nobody_knows_is_refused(empty: Cmem) -> None:
    assert "v7" in error(empty("weights", "diff", "now", "v7"))


# --- advise -------------------------------------------------------------------------------------------------


def test_an_advice_tells_weights_and_gain_and_changes_nothing(cmem: Cmem) -> None:
    told = cmem.said("advise")

    assert told.startswith(
        f"Advice of the statistical advisor, from {QUERIES} judged queries with a relevant result\n"
    )
    assert re.search(r"^all +sure +0\.75 +0\.95$", told, re.MULTILINE)
    assert re.search(
        r"^Expected gain in nDCG: \+0\.\d{3} \(\+0\.\d{3} \.\. \+0\.\d{3}\)$", told, re.MULTILINE
    )
    assert "--apply" in told
    assert "Objections" not in told
    assert cmem.json("weights", "history") == {"changes": []}


def test_an_advice_is_adopted_where_that_is_asked_for(cmem: Cmem) -> None:
    document = cmem.json("advise", "--apply")

    assert (document["allowed"], document["applied"]) == (True, "v1")
    (change,) = cmem.json("weights", "history")["changes"]
    assert change["weights"] == document["proposal"]["suggested"]["weights"]
    assert change["gain"] == document["proposal"]["gain"]


def test_an_advice_with_objections_is_not_adopted(empty: Cmem) -> None:
    asyncio.run(empty.ask(range(8), judged=True))

    result = empty("advise", "--apply")

    assert "the weights are unchanged" in error(result)
    assert "Objections:\n  - 8 judged queries of 10; judge 2 more\n" in result.stdout
    assert empty.json("weights", "history") == {"changes": []}


def test_an_advice_from_nothing_says_what_is_missing(empty: Cmem) -> None:
    result = empty("advise", "--apply")

    assert result.exit_code == 1
    assert "the weights are unchanged" in result.stderr
    assert "hint: no judged queries yet" in result.stderr
    assert empty("advise").exit_code == 0


def test_a_model_that_proposes_rubbish_changes_nothing(cmem: Cmem) -> None:
    with model(lambda: (200, '{"weights": {"sure": 10000, "vague": -1}}')) as url:
        cmem.configure(CONFIG.replace("URL", url))
        result = cmem("advise", "--llm", "--apply")

    assert "the weights are unchanged: refused: the weight of" in error(result)
    assert cmem.json("weights", "history") == {"changes": []}
