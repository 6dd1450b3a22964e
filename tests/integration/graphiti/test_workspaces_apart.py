"""Facts are their workspace's: two with notes of equal names see, end and cite nothing of each other."""

import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from composable_memory.cli import app
from composable_memory.state.folders import workspace_hash

pytest.importorskip("falkordb")

NOTE = "memory/2026-01-05.md"
STATE_BEFORE = Path(__file__).with_name("state_before_workspaces.tar.xz")
"""State folders of the version before workspaces were told apart; the folders of the notes are A and B.

`sole` was used by A alone, which has judged a result; in `mixed` B has ended what A had told.
"""
FOLDERS_BEFORE = {"A": "1874b57f", "B": "a10e4696"}

Cmem = Callable[..., str]


@pytest.fixture
def cmem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cmem:
    """Return the command line on a workspace of `tmp_path`, with a graph and a state folder for all."""
    monkeypatch.setenv("COMPOSABLE_MEMORY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COMPOSABLE_MEMORY__GRAPHITI__ENABLED", "true")
    monkeypatch.setenv("COMPOSABLE_MEMORY__EMBEDDING__PROVIDER", "none")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("NO_COLOR", "1")

    def run(workspace: str, *args: str, code: int = 0) -> str:
        place = () if workspace == "-" else ("-w", str(tmp_path / workspace))
        result = CliRunner().invoke(app, [*args, *place])
        assert result.exit_code == code, result.output
        return result.output if code else result.stdout

    return run


def write(folder: Path, text: str) -> None:
    (folder / NOTE).parent.mkdir(parents=True, exist_ok=True)
    (folder / NOTE).write_text(f"{text}\n", encoding="utf-8")


@pytest.fixture
def two(tmp_path: Path, cmem: Cmem) -> tuple[Path, Path]:
    """Return two workspaces with a note of the same name, each of them ingested."""
    write(tmp_path / "A", "Alice Moreau works at Acme.")
    write(tmp_path / "B", "Carla Diaz works at Globex.")
    for name in "AB":
        assert "1 stored" in cmem(name, "ingest", str(tmp_path / name / NOTE))
    return tmp_path / "A", tmp_path / "B"


def facts(cmem: Cmem, workspace: str) -> str:
    return cmem(workspace, "graph", "facts")


def test_a_fact_is_found_in_its_own_workspace_alone(cmem: Cmem, two: tuple[Path, Path]) -> None:
    for name, own, other in (("A", "Acme", "Globex"), ("B", "Globex", "Acme")):
        found = cmem(name, "search", "--backend", "graphiti", "who works at Acme or Globex?")
        assert own in found
        assert other not in found
        assert f"from {NOTE}#L1" in found
        assert other not in cmem(name, "graph", "entities")
    (two[0].parent / "empty").mkdir()
    assert "never-indexed" in cmem("empty", "search", "--backend", "graphiti", "Acme", "--strict", code=3)


def test_no_workspace_ends_what_another_says(cmem: Cmem, two: tuple[Path, Path]) -> None:
    for text in ("Carla Diaz works at Initech.", "Carla Diaz lives in Porto."):
        write(two[1], text)
        cmem("B", "ingest", str(two[1] / NOTE))

    assert "Alice Moreau works at Acme. (since 2026-01-05)" in facts(cmem, "A")


def test_a_folder_keeps_its_facts_when_it_is_moved_and_a_copy_has_none(
    cmem: Cmem, two: tuple[Path, Path]
) -> None:
    shutil.copytree(two[0], two[0].with_name("copy"))
    two[0].rename(two[0].with_name("moved"))

    assert "Acme" in facts(cmem, "moved")
    assert "Acme" not in facts(cmem, "copy")


@pytest.mark.thorough
def test_a_restored_folder_is_told_how_it_gets_its_facts_back(cmem: Cmem, two: tuple[Path, Path]) -> None:
    shutil.copytree(two[0], two[0].with_name("backup"))
    shutil.rmtree(two[0])
    shutil.move(two[0].with_name("backup"), two[0])
    lost = CliRunner().invoke(app, ["search", "Acme", "-w", str(two[0])])
    told = lost.output.partition("cmem workspace adopt ")[2].split("`")[0]

    assert "Acme" not in facts(cmem, "A")
    cmem("A", "workspace", "adopt", told)
    assert "Acme" in facts(cmem, "A")


def test_what_is_shared_by_name_tells_whose_it_is(
    cmem: Cmem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSABLE_MEMORY__GRAPHITI__GROUP", "team")
    write(tmp_path / "A", "Alice Moreau works at Acme.")
    write(tmp_path / "B", "Carla Diaz works at Globex.")
    for name in "ABAB":
        cmem(name, "ingest", str(tmp_path / name / NOTE))

    found = cmem("B", "search", "--backend", "graphiti", "where does Alice Moreau work?")
    listed = facts(cmem, "B")
    cited = found.partition("  from ")[2].split("\n")[0]

    assert "Alice Moreau works at Acme. (since 2026-01-05)" in found
    assert cited.startswith("graphiti/team/")
    assert cited.endswith(f"/{NOTE}#L1")
    for path in (cited, cited.partition("#")[0]):
        assert cmem("B", "get", path).strip() == "Alice Moreau works at Acme."
    assert f"from {NOTE}#L1" in listed
    assert "Carla Diaz works at Globex. (since 2026-01-05)" in listed


@pytest.mark.thorough
def test_what_is_said_no_more_ends_in_a_shared_group_for_its_own_workspace(
    cmem: Cmem, two: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSABLE_MEMORY__GRAPHITI__GROUP", "team")
    for name in "AB":
        cmem(name, "ingest", str(two[0].with_name(name) / NOTE))
    write(two[0], "Nothing of note happened.")
    cmem("A", "ingest", str(two[0] / NOTE))
    current = cmem("A", "graph", "facts", "--current")

    assert "Alice" not in current
    assert "Carla Diaz works at Globex." in current


@pytest.mark.thorough
def test_another_workspace_leaves_waiting_episodes_to_their_own(cmem: Cmem, two: tuple[Path, Path]) -> None:
    write(two[0], "Alice Moreau lives in Lyon.")
    cmem("A", "ingest", "--no-wait", str(two[0] / NOTE))

    assert "wait" not in cmem("B", "search", "Globex")
    cmem("B", "index")
    assert "Lyon" not in facts(cmem, "A")
    cmem("A", "index")
    assert "Lyon" in facts(cmem, "A")


def test_a_named_workspace_has_its_facts_in_every_clone_and_a_clone_cannot_name_itself(
    cmem: Cmem, two: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSABLE_MEMORY__ID", "diary")
    assert "Alice" in facts(cmem, "A")
    (tmp_path / "clone").mkdir()
    assert "Alice" in facts(cmem, "clone")
    assert "memory.id" in cmem("B", "workspace", "adopt", "diary", code=1)

    monkeypatch.delenv("COMPOSABLE_MEMORY__ID")
    (tmp_path / "thief").mkdir()
    (tmp_path / "thief" / ".composable-memory.yaml").write_text("memory: {id: diary}\n", encoding="utf-8")
    assert "memory.id" in cmem("thief", "graph", "facts", code=1)


# --- what an earlier version has left -----------------------------------------------------------------------


def restored(which: str, tmp_path: Path) -> None:
    """Restore a state folder, and call its files by where the notes are now."""
    write(tmp_path / "A", "Alice Moreau works at Acme.")
    write(tmp_path / "B", "Carla Diaz works at Globex.")
    with tarfile.open(STATE_BEFORE) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / which).rename(tmp_path / "state")
    for name, before in FOLDERS_BEFORE.items():
        now = workspace_hash(tmp_path / name)
        for file in (tmp_path / "state" / "memory").glob(f"*-{before}.sqlite"):
            file.rename(file.with_name(file.name.replace(before, now)))
        for log in (tmp_path / "state" / "ops-logs").iterdir():
            log.write_text(log.read_text().replace(before, now))


def test_who_alone_used_the_state_folder_keeps_all_of_it(cmem: Cmem, tmp_path: Path) -> None:
    restored("sole", tmp_path)

    timeline = cmem("A", "graph", "timeline", "Alice Moreau")
    assert "since 2026-01-05          Alice Moreau works at Acme." in timeline
    assert "graphiti/main/" in timeline
    assert f"from {NOTE}#L1" in timeline
    assert "1 judged query" in cmem("A", "feedback", "stats")
    assert "1 known" in cmem("A", "ingest", str(tmp_path / "A" / NOTE))
    assert "Alice" not in facts(cmem, "B")
    (tmp_path / "A").rename(tmp_path / "moved")
    assert "Alice" in facts(cmem, "moved")
    assert "1 judged query" in cmem("moved", "feedback", "stats")


def test_what_was_mixed_up_goes_to_the_workspaces_whose_notes_say_it(cmem: Cmem, tmp_path: Path) -> None:
    restored("mixed", tmp_path)
    assert "setAside" in cmem("A", "status", "--json")
    for name in "AB":
        cmem(name, "index")

    for name, own, other in (("A", "Alice Moreau works at Acme.", "Carla"), ("B", "Carla Diaz", "Alice")):
        listed = facts(cmem, name)
        assert f"{own}" in listed
        assert other not in listed
        assert "since 2026-01-05" in listed
    assert "setAside" not in cmem("A", "status", "--json")


def test_what_no_note_proves_is_set_aside_until_its_owner_says_so(cmem: Cmem, tmp_path: Path) -> None:
    restored("mixed", tmp_path)
    write(tmp_path / "B", "Something else.")
    cmem("B", "index")

    assert "Carla" not in facts(cmem, "B")
    assert "1 in group main" in cmem("B", "status", "--json")
    assert '"episodes": 0' in cmem("B", "graph", "adopt", "--json")
    assert '"episodes": 1' in cmem("B", "graph", "adopt", "--all", "--json")
    assert "Carla Diaz works at Globex." in facts(cmem, "B")


@pytest.mark.parametrize("which", ["sole", "mixed"])
def test_who_names_the_former_group_goes_on_in_it(
    cmem: Cmem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    monkeypatch.setenv("COMPOSABLE_MEMORY__GRAPHITI__GROUP", "main")
    restored(which, tmp_path)
    name, who = (
        ("A", "Alice Moreau works at Acme.") if which == "sole" else ("B", "Carla Diaz works at Globex.")
    )

    assert "1 known" in cmem(name, "ingest", str(tmp_path / name / NOTE))
    assert who in cmem(name, "graph", "facts", "--current")
    write(tmp_path / name, "Nothing of note happened.")
    cmem(name, "ingest", str(tmp_path / name / NOTE))
    assert who not in cmem(name, "graph", "facts", "--current")


# --- cmem workspace -----------------------------------------------------------------------------------------


def test_the_list_tells_what_is_kept_and_prune_removes_what_can_be_made_anew(
    cmem: Cmem, two: tuple[Path, Path], tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    cmem("empty", "status")
    cmem("A", "index")
    cmem("B", "index")
    shutil.rmtree(two[1])
    listed = cmem("-", "workspace", "list")
    shown = cmem("-", "workspace", "prune", "--json")

    assert listed.count("(gone)") == 1
    assert "facts" in listed
    assert '"removed": false' in shown
    assert shown.count('"kind": "index"') == 1
    assert '"kind": "facts"' not in shown

    cmem("-", "workspace", "prune", "--yes")
    after = cmem("-", "workspace", "list")
    assert after.count("index") == 1
    assert after.count("facts") == 2
    assert '"stores": []' in cmem("-", "workspace", "prune", "--json")
    assert "Alice" in facts(cmem, "A")


@pytest.mark.thorough
def test_adopt_refuses_what_would_mix_two_memories(cmem: Cmem, two: tuple[Path, Path]) -> None:
    listed = cmem("-", "workspace", "list").splitlines()
    ids = {line.split("/")[-1]: line.split()[0] for line in listed if not line.startswith(" ")}

    assert "still workspace" in cmem("B", "workspace", "adopt", ids["A"], code=1)
    assert "known: " in cmem("B", "workspace", "adopt", "unknown", code=1)
    shutil.rmtree(two[0])
    assert "facts of its own" in cmem("B", "workspace", "adopt", ids["A"], code=1)
    cmem("B", "workspace", "adopt", "--force", ids["A"])
    assert "Alice" in facts(cmem, "B")
    assert "Carla" not in facts(cmem, "B")
