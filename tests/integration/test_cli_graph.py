"""`cmem ingest` and `cmem graph`: what they read, what they print where, and how they end."""

import json
import re
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from composable_memory.cli import app
from tests.cli_page import assert_documented
from tests.installed_packages import install
from tests.integration.remembering_backend import STORES

ENTRY_POINTS = """
[composable_memory.backends]
remembering = tests.integration.remembering_backend:spec
"""
ESCAPE = "\x1b[2J"


class Cmem:
    """The command line on one workspace, with a memory of facts and nothing else."""

    def __init__(self, workspace: Path, state_dir: Path, config: Path) -> None:
        self.workspace = workspace
        self.state_dir = state_dir
        self.config = config
        self.configure("{backend: remembering, builtin: {enabled: false}, embedding: {provider: none}}")

    def configure(self, memory: str) -> None:
        self.config.write_text(f"memory: {memory}", encoding="utf-8")

    def write(self, path: str, text: str | bytes) -> Path:
        target = self.workspace / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text.encode() if isinstance(text, str) else text)
        return target

    def __call__(self, *args: str, stdin: str | bytes | None = None) -> Result:
        place = ["--workspace", str(self.workspace), "--state-dir", str(self.state_dir)]
        return CliRunner().invoke(app, [*args, *place], input=stdin)

    def json(self, *args: str, stdin: str | None = None) -> dict[str, object]:
        document = json.loads(self(*args, "--json", stdin=stdin).stdout)
        assert_documented(args, document)
        assert isinstance(document, dict)
        return document

    def listed(self, *args: str) -> list[dict[str, object]]:
        """Return what a command of `cmem graph` lists."""
        (listed,) = self.json("graph", *args).values()
        assert isinstance(listed, list)
        return listed


@pytest.fixture
def cmem(tmp_path: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Cmem:
    install(tmp_path / "site", "remembering", ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path / "site")
    config = tmp_path / "config.yaml"
    monkeypatch.setenv("COMPOSABLE_MEMORY_CONFIG", str(config))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    workspace = tmp_path / "notes"
    workspace.mkdir()
    return Cmem(workspace, state_dir, config)


@pytest.fixture
def told(cmem: Cmem) -> Cmem:
    """Have a graph in which somebody has changed her workplace."""
    cmem.write("memory/2026-01-05.md", "# Work\nAlice works at Acme.\n")
    cmem.write("memory/2026-03-01.md", "# Work\nAlice works at Beacon. Bob works at Acme.\n")
    assert cmem("ingest", "memory").exit_code == 0
    return cmem


def test_the_facts_of_a_primary_with_a_fallback_are_listed(told: Cmem) -> None:
    told.configure("{backend: remembering, embedding: {provider: none}}")
    listed = told("graph", "facts")

    assert (listed.exit_code, "remembering/main/f1" in listed.stdout) == (0, True)


def test_forgetting_points_to_the_episode_of_a_text_that_is_in_no_note(told: Cmem) -> None:
    assert told("ingest", "--text", "Dora works at Delta.").exit_code == 0

    assert "`cmem graph forget`" in told("forget", "Dora works at Delta").stderr
    assert "`cmem graph forget`" not in told("forget", "memory/2026-01-05.md#L2").stderr


# --- ingest: what is read ---------------------------------------------------------------------------------


def test_ingest_says_what_became_of_the_files(cmem: Cmem) -> None:
    cmem.write("MEMORY.md", "Alice works at Acme.\n")
    cmem.write("memory/2026-03-01.md", "Bob works at Beacon.\n\n# Then\nCleo works at Acme.\n")

    result = cmem("ingest", "MEMORY.md", "memory/")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(
        "Ingested 2 files, 3 episodes: 3 stored, 0 known, 0 pending, 0 failed; 0 entities, 3 facts, in "
    )


def test_ingest_as_json_is_one_document(cmem: Cmem) -> None:
    cmem.write("MEMORY.md", "Alice works at Acme.\n")

    document = cmem.json("ingest", "MEMORY.md")

    assert document.pop("tookMs")
    assert document == {
        "files": 1,
        "contents": 1,
        "passedOver": [],
        "backends": {
            "remembering": {"stored": 1, "known": 0, "pending": 0, "failed": 0, "entities": 0, "facts": 1}
        },
        "warnings": [],
        "problems": [],
    }


def test_ingesting_again_changes_nothing(told: Cmem) -> None:
    again = told.json("ingest", "memory")

    assert again["backends"] == {
        "remembering": {"stored": 0, "known": 2, "pending": 0, "failed": 0, "entities": 0, "facts": 0}
    }


def test_what_vanished_from_a_file_holds_no_more(told: Cmem) -> None:
    told.write("memory/2026-03-01.md", "")

    assert told("ingest", "memory").exit_code == 0
    assert "No facts." in told("graph", "facts", "--current").stdout


def test_ingest_reads_notes_and_transcripts_of_a_folder_and_nothing_else(cmem: Cmem) -> None:
    for name in ("a.md", "b.MARKDOWN", "deep/er/c.txt", "d.jsonl", "e.py", ".git/f.md", ".g.md"):
        cmem.write(name, '{"role": "user", "content": "Alice works at Acme."}\n')

    assert cmem.json("ingest", ".")["files"] == 4


def test_a_file_that_is_named_may_have_any_ending(cmem: Cmem) -> None:
    cmem.write("notes.org", "Alice works at Acme.")

    assert cmem("ingest", "notes.org").exit_code == 0


def test_what_cannot_be_read_is_named_and_the_rest_goes_on(cmem: Cmem) -> None:
    cmem.write("a.md", b"\0\1")
    cmem.write("b.md", "Где стоит мельница?".encode("koi8-r"))
    cmem.write("c.md", "Alice works at Acme.")

    result = cmem("ingest", "a.md", "b.md", "c.md", "gone.md", "--strict")

    assert result.exit_code == 3
    named = [line.split(": ")[:2] for line in result.stderr.splitlines()]
    assert named == [["passed over", name] for name in ("gone.md", "a.md", "b.md")]


def test_notes_in_other_encodings_are_read(cmem: Cmem) -> None:
    cmem.write("memory/2026-01-05.md", "Müller works at Acme.".encode("cp1252"))
    cmem.write("memory/2026-01-06.md", "Bob works at Acme.".encode("utf-16"))

    assert cmem("ingest", "memory").exit_code == 0
    assert {"Müller", "Bob"} <= {str(one["source"]) for one in cmem.listed("facts")}


def test_ingest_fails_if_nothing_could_be_read(cmem: Cmem) -> None:
    result = cmem("ingest", "gone.md")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "Error: nothing could be ingested" in result.stderr


def test_an_emptied_file_is_read_all_the_same(cmem: Cmem) -> None:
    cmem.write("MEMORY.md", "")

    assert cmem("ingest", "MEMORY.md").exit_code == 0


def test_a_folder_without_notes_is_named(cmem: Cmem) -> None:
    (cmem.workspace / "empty").mkdir()

    result = cmem("ingest", "empty")

    assert result.exit_code == 1
    assert "passed over: empty: it holds no file ending in .md, .markdown, .txt, .jsonl" in result.stderr


def test_a_link_that_leads_out_of_the_workspace_is_not_followed(cmem: Cmem, tmp_path: Path) -> None:
    (tmp_path / "secret.md").write_text("Eve works at Evil.", encoding="utf-8")
    (cmem.workspace / "link.md").symlink_to(tmp_path / "secret.md")
    cmem.write("a.md", "Alice works at Acme.")

    assert cmem.json("ingest", ".")["files"] == 1
    assert "outside the workspace" in cmem("ingest", "link.md").stderr
    assert "outside the workspace" in cmem("ingest", "../secret.md").stderr


def test_a_file_outside_can_be_named_in_full_and_is_shown_below_home(cmem: Cmem, tmp_path: Path) -> None:
    for place in (tmp_path / "home" / "diary.md", tmp_path / "diary.md"):
        place.write_text("Alice works at Acme.", encoding="utf-8")

    assert cmem("ingest", str(tmp_path / "diary.md"), str(tmp_path / "home" / "diary.md")).exit_code == 0

    shown = cmem("graph", "episodes").stdout
    assert "  ~/diary.md#L1  1 fact" in shown
    assert f"  {tmp_path / 'diary.md'}#L1  1 fact" in shown


# --- ingest: texts ----------------------------------------------------------------------------------------


def test_a_text_can_be_given_with_what_is_known_of_it(cmem: Cmem) -> None:
    result = cmem(
        "ingest", "--text", "Alice works at Acme.", "--observed-at", "2026-02-03", "--title", "Call"
    )

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Ingested 1 episode: 1 stored")
    assert "Alice works at Acme (since 2026-02-03)" in cmem("graph", "facts").stdout


@pytest.mark.parametrize("asked", ["--stdin", "-"])
def test_a_text_can_come_on_stdin(cmem: Cmem, asked: str) -> None:
    assert cmem("ingest", asked, stdin="Ana: Bob works at Acme.\nBen: Oh, since when?\n").exit_code == 0

    (episode, *_) = STORES[cmem.state_dir].episodes.values()
    assert (episode.metadata, episode.origin) == ({"speaker": "Ana"}, None)


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("a.md", "--text", "x"),
        ("--text", "x", "--stdin"),
        ("a.md", "-"),
        ("--text", "  "),
        ("--stdin",),
        ("a.md", "--observed-at", "yesterday"),
        ("",),
        ("a.md", "--backend", "nobody"),
    ],
)
def test_what_cannot_be_meant_is_bad_usage(cmem: Cmem, args: tuple[str, ...]) -> None:
    assert cmem("ingest", *args, stdin="").exit_code == 2


def test_stdin_that_is_no_text_is_bad_usage(cmem: Cmem) -> None:
    result = cmem("ingest", "-", stdin=b"caf\xe9")

    assert result.exit_code == 2
    assert "it is not UTF-8 (byte 3)" in result.stderr


# --- ingest: what became of it ----------------------------------------------------------------------------


def test_what_waits_or_failed_is_told_and_counts_as_degraded(cmem: Cmem) -> None:
    cmem.write("a.md", "# A\nAlice works at Acme.\n# B\nlater\n# C\nnever\n")

    result = cmem("ingest", "a.md", "--strict")

    assert result.exit_code == 3
    assert "1 stored, 0 known, 1 pending, 1 failed" in result.stdout
    assert "problem: a.md: it is refused" in result.stderr
    assert "hint: what is pending is kept and retried" in result.stderr


def test_ingest_fails_if_every_content_was_refused(cmem: Cmem) -> None:
    result = cmem("ingest", "--text", "never")

    assert result.exit_code == 1


def test_equal_warnings_are_told_once(cmem: Cmem) -> None:
    cmem.write("a.md", "# A\none\n# B\ntwo\n")

    assert cmem("ingest", "a.md").stderr == "warning: extract.nothing: no fact was found (2 times)\n"


def test_without_waiting_it_is_enough_that_contents_are_safe(cmem: Cmem) -> None:
    cmem("ingest", "--text", "Alice works at Acme.", "--no-wait")
    cmem("ingest", "--text", "Bob works at Acme.")

    assert STORES[cmem.state_dir].waits == [False, True]


@pytest.mark.parametrize("args", [("ingest", "--text", "x"), ("graph", "facts")])
def test_without_a_memory_of_facts_it_is_said_how_to_get_one(cmem: Cmem, args: tuple[str, ...]) -> None:
    cmem.configure("{embedding: {provider: none}}")

    result = cmem(*args)

    assert result.exit_code == 1
    assert "memory.graphiti.enabled" in result.stderr


# --- graph ------------------------------------------------------------------------------------------------


def test_facts_are_told_with_their_time_their_origin_and_what_get_shows_them_under(told: Cmem) -> None:
    assert told("graph", "facts", "--about", "ALICE").stdout.splitlines() == [
        "Alice works at Beacon (since 2026-03-01)",
        "  from memory/2026-03-01.md#L2",
        "  remembering/main/f1",
        "Alice works at Acme (2026-01-05 to 2026-03-01; no longer holds)",
        "  from memory/2026-01-05.md#L2",
        "  remembering/main/f0",
    ]


def test_facts_can_be_asked_for_as_of_a_day(told: Cmem) -> None:
    facts = told.listed("facts", "--about", "Alice", "--as-of", "2026-02-28")

    assert [(one["text"], one["current"]) for one in facts] == [("Alice works at Acme", False)]


def test_a_day_counts_up_to_its_end(told: Cmem) -> None:
    result = told("graph", "facts", "--about", "Alice", "--as-of", "2026-03-01")

    assert result.stdout.startswith("Alice works at Beacon")


def test_a_day_that_is_none_is_bad_usage(told: Cmem) -> None:
    assert told("graph", "facts", "--as-of", "2026-02-31").exit_code == 2


def test_current_facts_are_those_that_still_hold(told: Cmem) -> None:
    facts = told.listed("facts", "--current", "-n", "1")

    assert [one["target"] for one in facts] == ["Beacon"]


def test_a_fact_as_json_has_all_that_is_known_of_it(told: Cmem) -> None:
    (fact, *_) = told.listed("facts", "--about", "Beacon")

    assert fact == {
        "id": "f1",
        "groupId": "main",
        "path": "remembering/main/f1",
        "text": "Alice works at Beacon",
        "relation": "WORKS_AT",
        "source": "Alice",
        "target": "Beacon",
        "current": True,
        "validAt": "2026-03-01T00:00:00Z",
        "createdAt": "2026-03-01T00:00:00Z",
        "confidence": 0.9,
        "episodes": ["00000000-0000-0000-0000-000000000001"],
        "origins": [{"path": "memory/2026-03-01.md", "startLine": 2, "endLine": 2}],
    }


def test_a_timeline_goes_from_the_first_to_the_last(told: Cmem) -> None:
    lines = told("graph", "timeline", "Alice").stdout.splitlines()

    assert lines[::2] == [
        "2026-01-05 to 2026-03-01  Alice works at Acme",
        "since 2026-03-01          Alice works at Beacon",
    ]


def test_entities_are_told_with_how_much_is_known_of_them(told: Cmem) -> None:
    assert told("graph", "entities", "ac").stdout.splitlines() == [
        "Acme  organization  2 facts",
        "  id-Acme in main",
        "Beacon  1 fact",
        "  id-Beacon in main",
    ]


def test_episodes_are_told_with_what_they_say(told: Cmem) -> None:
    assert told("graph", "episodes", "-n", "1").stdout.splitlines() == [
        "2026-03-01  memory/2026-03-01.md#L2  2 facts",
        "  Alice works at Beacon. Bob works at Acme.",
        "  remembering/main/00000000-0000-0000-0000-000000000001",
    ]


@pytest.mark.parametrize(
    "args",
    [("facts",), ("entities",), ("episodes",), ("timeline", "Alice"), ("export",)],
    ids=lambda args: args[0],
)
def test_an_empty_graph_says_what_to_do(cmem: Cmem, args: tuple[str, ...]) -> None:
    result = cmem("graph", *args)

    assert result.exit_code == 0
    assert "`cmem ingest MEMORY.md memory/` reads notes into it" in result.stderr


def test_somebody_unknown_is_no_empty_graph(told: Cmem) -> None:
    result = told("graph", "facts", "--about", "Zoe")

    assert (result.stdout, result.exit_code) == ("No facts.\n", 0)
    assert result.stderr == "hint: `cmem graph entities` lists known entities\n"


@pytest.mark.parametrize("args", [("facts",), ("entities",), ("episodes",), ("timeline", "Eve"), ("export",)])
def test_no_name_can_steer_the_terminal(cmem: Cmem, args: tuple[str, ...]) -> None:
    cmem("ingest", "--text", f"{ESCAPE}Eve works at {ESCAPE}Evil")

    for extra in ((), ("--json",)):
        assert "\x1b" not in cmem("graph", *args, *extra).output


# --- forget -----------------------------------------------------------------------------------------------

EPISODE = "remembering/main/00000000-0000-0000-0000-000000000000"
OTHER = "remembering/main/00000000-0000-0000-0000-000000000001"


def test_forget_shows_the_episode_and_asks(told: Cmem) -> None:
    result = told("graph", "forget", EPISODE, stdin="y\n")

    assert result.exit_code == 0
    assert "2026-01-05  memory/2026-01-05.md#L2  1 fact\n  Alice works at Acme." in result.stdout
    assert "Forget it permanently?" in result.stderr
    assert "with 0 entities and 1 fact" in result.stdout
    assert "2026-01-05" not in told("graph", "facts").stdout


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_forget_needs_a_yes(told: Cmem, answer: str) -> None:
    assert told("graph", "forget", EPISODE, stdin=answer).exit_code == 1
    assert "2026-01-05" in told("graph", "facts").stdout


def test_forget_does_not_ask_with_yes_or_for_json(told: Cmem) -> None:
    assert told("graph", "forget", OTHER, "--yes").exit_code == 0
    assert told.json("graph", "forget", EPISODE) == {
        "episodeId": EPISODE.rpartition("/")[2],
        "facts": 1,
        "entities": 0,
    }


def test_the_id_of_a_content_will_do_as_well(told: Cmem) -> None:
    (content_id, *_) = STORES[told.state_dir].episodes

    assert told("graph", "forget", content_id, "--yes").exit_code == 0


def test_an_episode_that_is_not_there_cannot_be_forgotten(told: Cmem) -> None:
    result = told("graph", "forget", "nothing", "--yes")

    assert result.exit_code == 1
    assert "there is no episode nothing" in result.stderr


def test_it_is_not_asked_whether_to_forget_an_episode_that_is_not_there(told: Cmem) -> None:
    result = told("graph", "forget", "nothing", stdin="y\n")

    assert (result.exit_code, result.stdout) == (1, "")
    assert "no such episode" in result.stderr
    assert "for good" not in result.stderr


# --- export -----------------------------------------------------------------------------------------------


def test_export_writes_json_unless_told_otherwise(told: Cmem) -> None:
    document = json.loads(told("graph", "export", "Alice").stdout)

    assert (document["entity"], document["depth"], len(document["facts"])) == ("Alice", 1, 2)


def test_export_as_mermaid_writes_a_diagram(told: Cmem) -> None:
    lines = told("graph", "export", "Alice", "--format", "mermaid").stdout.splitlines()

    assert lines[:2] == ["graph LR", '  n0["Alice"]']
    assert '  n0 -.->|"works at<br/>2026-01-05 to 2026-03-01#59; no longer holds"| n1' in lines


@pytest.mark.parametrize(
    ("name", "start"), [("a.html", "<!DOCTYPE html>"), ("a.mmd", "graph LR"), ("a.json", "{")]
)
def test_the_end_of_the_file_says_what_is_written(told: Cmem, tmp_path: Path, name: str, start: str) -> None:
    result = told("graph", "export", "Alice", "--output", str(tmp_path / name))

    assert result.stdout == f"Wrote 3 entities and 2 facts to {tmp_path / name}.\n"
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(start)


@pytest.mark.parametrize("name", ["a.png", "a.svg", "a", "a.txt"])
def test_a_file_of_no_known_format_is_refused_with_the_formats(told: Cmem, tmp_path: Path, name: str) -> None:
    result = told("graph", "export", "-o", str(tmp_path / name))

    assert result.exit_code == 2
    assert all(one in result.stderr for one in (".json", ".mmd", ".html"))
    assert not (tmp_path / name).exists()
    assert told("graph", "export", "-o", str(tmp_path / name), "--format", "json").exit_code == 0


def test_export_with_json_names_the_file_it_wrote(told: Cmem, tmp_path: Path) -> None:
    document = told.json("graph", "export", "--output", str(tmp_path / "a.html"))

    assert document["output"] == str(tmp_path / "a.html")
    assert len(document["facts"]) == 3  # type: ignore[arg-type]


def test_a_picture_and_a_document_cannot_both_go_to_stdout(told: Cmem) -> None:
    assert told("graph", "export", "--format", "html", "--json").exit_code == 2


def test_a_file_that_cannot_be_written_is_an_error(told: Cmem, tmp_path: Path) -> None:
    result = told("graph", "export", "--output", str(tmp_path / "gone" / "a.html"))

    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")


# --- with the graph itself --------------------------------------------------------------------------------

HAS_GRAPH = find_spec("falkordb") and find_spec("graphiti_core")
REAL = (
    "{backend: graphiti, builtin: {enabled: false}, graphiti: {enabled: true}, embedding: {provider: none}}"
)


def with_a_real_graph(test: Callable[..., None]) -> Callable[..., None]:
    """Run a test where the graph can be had; what its packages find deprecated in each other is theirs."""
    quiet = pytest.mark.filterwarnings("ignore:Support for class-based:DeprecationWarning")
    skipped = pytest.mark.skipif(not HAS_GRAPH, reason="the extra graphiti is not installed")
    marked: Callable[..., None] = quiet(skipped(test))
    return marked


@pytest.fixture
def graph(cmem: Cmem, move_neighbour_in: Callable[[Path, Path], None]) -> Cmem:
    """Have a real graph of a person who moved."""
    move_neighbour_in(cmem.workspace, cmem.state_dir)
    cmem.configure(REAL)
    cmem.write("memory/2026-01-05.md", "# Work\nAlice Moreau works at Acme.\n")
    cmem.write("memory/2026-03-01.md", "# Work\nAlice Moreau works at Beacon Labs.\n")
    assert cmem("ingest", "memory").exit_code == 0
    return cmem


@with_a_real_graph
def test_a_real_graph_tells_what_held_when_and_where_it_is_from(graph: Cmem) -> None:
    lines = graph("graph", "timeline", "alice moreau").stdout.splitlines()

    assert [line[:24] for line in lines[::2]] == ["2026-01-05 to 2026-03-01", "since 2026-03-01        "]
    assert [line.rpartition("from ")[2] for line in lines[1::2]] == [
        "memory/2026-01-05.md#L2",
        "memory/2026-03-01.md#L2",
    ]


@with_a_real_graph
def test_get_shows_a_fact_of_a_real_graph_under_the_path_that_is_told(graph: Cmem) -> None:
    (fact,) = graph.listed("facts", "--as-of", "2026-02-01")

    shown = graph("get", str(fact["path"])).stdout
    assert "Acme" in shown
    assert "memory/2026-01-05.md#L2" in shown


@with_a_real_graph
def test_a_real_episode_that_is_forgotten_does_not_come_back(graph: Cmem) -> None:
    (latest, _) = graph.listed("episodes")

    assert graph("graph", "forget", str(latest["path"]), "--yes").exit_code == 0
    assert graph("ingest", "memory").exit_code == 0
    assert "Beacon" not in graph("graph", "facts").stdout


@with_a_real_graph
def test_what_vanished_from_a_note_ends_in_a_real_graph(graph: Cmem) -> None:
    graph.write("memory/2026-03-01.md", "")

    assert graph("ingest", "memory").exit_code == 0
    assert "Beacon" not in graph("graph", "facts", "--current").stdout
    assert "Beacon" in graph("graph", "facts").stdout


@with_a_real_graph
def test_a_real_graph_can_be_looked_at(graph: Cmem, tmp_path: Path) -> None:
    page = tmp_path / "alice.html"

    assert graph("graph", "export", "Alice Moreau", "--output", str(page)).exit_code == 0
    assert {"Acme", "Beacon Labs"} <= set(re.findall(r'"name": "([^"]+)"', page.read_text(encoding="utf-8")))
