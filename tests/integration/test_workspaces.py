"""A folder is known again: moved, copied, replaced, on another device, under a name, by many at once."""

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from composable_memory.cli import app
from composable_memory.errors import ConfigError
from composable_memory.runtime.opening import open_memory
from composable_memory.state.folders import feedback_store_of, workspace_hash
from composable_memory.state.workspaces import (
    WorkspaceIdentity,
    adopt,
    forget,
    identify,
    keep_note_scope,
    known_workspaces,
)
from composable_memory.types import Degradation
from composable_memory_feedback.store.store import FeedbackStore

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    return folder


def of(state: Path, folder: Path, name: str | None = None) -> WorkspaceIdentity:
    folder.mkdir(exist_ok=True)
    return identify(state, folder, now=NOW, name=name)


def test_a_folder_is_the_same_workspace_each_time_and_behind_a_link(state: Path, tmp_path: Path) -> None:
    first = of(state, tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "a")

    assert of(state, tmp_path / "a") == first == of(state, tmp_path / "link")
    assert [one.id for one in known_workspaces(state)] == [first.id]


def test_a_folder_that_was_moved_is_the_same_workspace(state: Path, tmp_path: Path) -> None:
    before = of(state, tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "b")

    assert of(state, tmp_path / "b").id == before.id
    (known,) = known_workspaces(state)
    assert known.path == tmp_path / "b"
    assert known.is_there


def test_a_copy_is_another_workspace(state: Path, tmp_path: Path) -> None:
    before = of(state, tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    copy = of(state, tmp_path / "b")

    assert copy.id != before.id
    assert copy.instead_of is None
    assert of(state, tmp_path / "a").id == before.id


def test_another_folder_at_the_path_is_another_workspace_and_says_so_once(
    state: Path, tmp_path: Path
) -> None:
    before = of(state, tmp_path / "a")
    (tmp_path / "a").rename(tmp_path / "moved")
    after = of(state, tmp_path / "a")

    assert after.id != before.id
    assert after.instead_of == before.id
    assert of(state, tmp_path / "a") == WorkspaceIdentity(id=after.id)
    assert of(state, tmp_path / "moved").id == before.id


def test_a_folder_with_the_inode_of_a_removed_one_is_another_workspace(state: Path, tmp_path: Path) -> None:
    """File systems on disks hand out the inode of what was removed at once, those in memory do not."""
    folder = tmp_path / "a"
    removed = of(state, folder)
    folder.rmdir()
    folder.mkdir()
    rewrite(state, f"UPDATE folders SET inode = '{folder.stat().st_ino}'")

    assert of(state, folder).id != removed.id


def test_a_folder_is_the_same_after_its_disk_got_another_number(state: Path, tmp_path: Path) -> None:
    before = of(state, tmp_path / "a")
    rewrite(state, "UPDATE folders SET device = device + 7")

    assert of(state, tmp_path / "a").id == before.id
    (tmp_path / "a").rename(tmp_path / "b")
    assert of(state, tmp_path / "b").id == before.id


def test_a_snapshot_of_the_disk_is_another_workspace(state: Path, tmp_path: Path) -> None:
    """Inode and birth time are those of the original, the device and the path are not."""
    before = of(state, tmp_path / "a")
    rewrite(state, "UPDATE folders SET device = device + 7")
    (tmp_path / "a").rename(tmp_path / "snapshot")

    assert of(state, tmp_path / "snapshot").id != before.id


def test_without_birth_times_a_folder_is_known_at_its_path_alone(state: Path, tmp_path: Path) -> None:
    before = of(state, tmp_path / "a")
    rewrite(state, "UPDATE folders SET birth = NULL, inode = inode + 1")
    assert of(state, tmp_path / "a").id == before.id

    rewrite(state, "UPDATE folders SET birth = NULL")
    (tmp_path / "a").rename(tmp_path / "b")
    assert of(state, tmp_path / "b").id != before.id


def test_a_name_is_that_workspace_in_any_folder_and_keeps_what_the_folder_had(
    state: Path, tmp_path: Path
) -> None:
    before = of(state, tmp_path / "a")
    named = of(state, tmp_path / "a", "teamnotes")
    elsewhere = of(state, tmp_path / "clone", "teamnotes")

    assert named.id == before.id == elsewhere.id
    assert of(state, tmp_path / "fresh", "other").id == "other"
    assert of(state, tmp_path / "a", "third").id == "third"
    assert of(state, tmp_path / "a").id == before.id


def test_a_state_folder_from_before_calls_a_workspace_by_its_path(state: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    (state / "memory").mkdir()
    (state / "memory" / f"main-{workspace_hash(folder)}.sqlite").touch()

    assert of(state, folder) == WorkspaceIdentity(id=workspace_hash(folder), inherits=True)
    folder.rename(tmp_path / "moved")
    assert of(state, folder).id != workspace_hash(folder)
    assert of(state, tmp_path / "moved").id == workspace_hash(folder)
    assert of(state, tmp_path / "moved").inherits


@pytest.mark.parametrize("folder", ["connect", "hooks", "log-shipping", "models", "serve", "trusted"])
def test_what_commands_keep_before_there_is_a_workspace_is_nothing_from_before(
    state: Path, tmp_path: Path, folder: str
) -> None:
    (state / folder).mkdir()
    (tmp_path / "a").mkdir()

    assert of(state, tmp_path / "a").id != workspace_hash(tmp_path / "a")


def test_nobody_inherits_alone_what_two_have_used(state: Path, tmp_path: Path) -> None:
    (state / "memory").mkdir()
    for name in "ab":
        (tmp_path / name).mkdir()
        (state / "memory" / f"main-{workspace_hash(tmp_path / name)}.sqlite").touch()

    found = [of(state, tmp_path / name) for name in "ab"]

    assert [one.id for one in found] == [workspace_hash(tmp_path / name) for name in "ab"]
    assert not any(one.inherits for one in found)


def test_a_folder_can_be_made_a_known_workspace(state: Path, tmp_path: Path) -> None:
    before = of(state, tmp_path / "a")
    (tmp_path / "a").rmdir()
    new = of(state, tmp_path / "b")

    adopt(state, tmp_path / "b", before.id, now=NOW)

    assert of(state, tmp_path / "b").id == before.id
    assert {one.id: one.is_there for one in known_workspaces(state)} == {before.id: True, new.id: False}


def test_the_last_use_is_noted(state: Path, tmp_path: Path) -> None:
    of(state, tmp_path / "a")
    identify(state, tmp_path / "a", now=NOW + timedelta(days=2))

    assert known_workspaces(state)[0].used_at == NOW + timedelta(days=2)


@pytest.mark.thorough
def test_eight_processes_that_meet_a_folder_at_once_agree_on_it(state: Path, tmp_path: Path) -> None:
    program = """
import sys
from datetime import datetime, UTC
from pathlib import Path
from composable_memory.state.workspaces import identify
state, *folders = map(Path, sys.argv[1:])
sys.stdin.readline()
print([identify(state, folder, now=datetime.now(UTC)).id for folder in folders])
"""
    folders = [tmp_path / name for name in "abcd"]
    for folder in folders:
        folder.mkdir()
    command = [sys.executable, "-c", program, *map(str, (state, *folders))]
    running = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(8)
    ]
    for one in running:
        assert one.stdin is not None
        one.stdin.write("\n")
        one.stdin.flush()
    told = {one.communicate()[0] for one in running}

    assert len(told) == 1
    assert len(set(json.loads(told.pop().replace("'", '"')))) == 4
    assert len(known_workspaces(state)) == 4
    assert (state / "workspaces.sqlite").stat().st_mode & 0o777 == 0o600


@pytest.mark.usefixtures("permissions_bind")
def test_a_state_folder_that_cannot_be_written_is_said(state: Path, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    state.chmod(0o500)
    try:
        with pytest.raises(ConfigError, match="cannot be used"):
            of(state, tmp_path / "a")
    finally:
        state.chmod(0o700)


def test_a_damaged_registry_is_said_and_left_as_it_is(state: Path, tmp_path: Path) -> None:
    (state / "workspaces.sqlite").write_bytes(b"no database" * 1000)

    with pytest.raises(ConfigError, match="move it away"):
        of(state, tmp_path / "a")
    assert (state / "workspaces.sqlite").read_bytes() == b"no database" * 1000


def test_a_registry_that_was_emptied_is_said_and_no_workspace_begins_anew(
    state: Path, tmp_path: Path
) -> None:
    (tmp_path / "notes").mkdir()

    async def index() -> tuple[Degradation, ...]:
        async with open_memory(tmp_path / "notes", state, environ={}, long_lived=False) as memory:
            await memory.sync()
            return (await memory.query("kayak")).degraded

    assert not asyncio.run(index())
    (state / "workspaces.sqlite").write_bytes(b"")

    with pytest.raises(ConfigError, match=r"empty.*move it away"):
        asyncio.run(index())
    assert (state / "workspaces.sqlite").read_bytes() == b""
    (state / "workspaces.sqlite").unlink()
    assert any("cmem workspace adopt" in one.reason for one in asyncio.run(index()))
    assert not asyncio.run(index())


def test_the_first_answer_tells_that_another_folder_took_the_place(tmp_path: Path) -> None:
    notes, state = tmp_path / "notes", tmp_path / "state"

    async def told() -> bool:
        async with open_memory(notes, state, environ={}, long_lived=False) as memory:
            degraded = (await memory.query("kayak")).degraded
            return any("cmem workspace adopt" in one.reason for one in degraded)

    notes.mkdir()
    seen = [asyncio.run(told())]
    notes.rename(tmp_path / "old")
    notes.mkdir()
    seen += [asyncio.run(told()) for _ in range(2)]

    assert seen == [False, True, False]


def test_prune_forgets_a_folder_that_was_only_looked_at_long_ago(state: Path, tmp_path: Path) -> None:
    for name in ("looked-at", "kept", "chosen", "recent"):
        of(state, tmp_path / name)
    of(state, tmp_path / "named", name="team")
    ids = {one.path.name: one.id for one in known_workspaces(state)}
    (state / "feedback").mkdir()
    FeedbackStore.open(feedback_store_of(state, f"main-{ids['kept']}")).close()
    keep_note_scope(state, ids["chosen"], "folder")
    now = datetime.now(UTC)
    times = {name: now - timedelta(days=1 if name == "recent" else 62) for name in ids}
    for name, at in times.items():
        rewrite(state, f"UPDATE workspaces SET used_at = {at.timestamp()} WHERE id = '{ids[name]}'")

    def prune(*options: str) -> object:
        shown = CliRunner().invoke(app, ["workspace", "prune", "--json", "--state-dir", str(state), *options])
        return json.loads(shown.stdout)["workspaces"]

    assert prune() == [ids["looked-at"]] == prune("--yes")
    assert prune() == []
    assert {one.path.name for one in known_workspaces(state)} == {"kept", "chosen", "recent", "named"}
    assert of(state, tmp_path / "looked-at").id not in ids.values()


def test_a_workspace_that_is_used_meanwhile_is_not_forgotten(state: Path, tmp_path: Path) -> None:
    before = of(state, tmp_path / "a")
    seen = known_workspaces(state)
    identify(state, tmp_path / "a", now=NOW + timedelta(days=1))
    forget(state, seen)

    assert of(state, tmp_path / "a").id == before.id


def rewrite(state: Path, statement: str) -> None:
    """Change what the registry holds, as another machine or disk would have made it."""
    with sqlite3.connect(state / "workspaces.sqlite") as registry:
        registry.execute(statement)
    registry.close()
