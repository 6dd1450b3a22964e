"""What the first commands of a new user make in his home is for him alone, whatever his umask is."""

import os
import stat
from pathlib import Path

import pytest

from tests.cli_process import run_cli

COMMANDS = (
    ("index",),
    ("search", "where is the mill?"),
    ("remember", "The mill stands in Graz."),
    ("recall", "mill"),
    ("feedback", "add", "last", "1", "--relevance", "1"),
    ("forget", "mill stands", "--yes"),
    ("backup", "~/backups/of/today"),
)


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
@pytest.mark.parametrize("state", [".local/state/composable-memory", "far/away/state"])
def test_every_folder_and_file_of_a_first_run_is_closed_to_others(tmp_path: Path, state: str) -> None:
    home, notes = tmp_path / "user", tmp_path / "notes"
    (notes / "memory").mkdir(parents=True)
    (notes / "memory" / "2026-03-01.md").write_text("The mill was built in 1620.\n")
    home.mkdir(mode=0o700)
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "COMPOSABLE_"))},
        "HOME": str(home),
        "COMPOSABLE_MEMORY_STATE_DIR": str(home / state),
    }
    before = os.umask(0o022)
    try:
        for command in COMMANDS:
            done = run_cli(*command, folder=notes, environ=environ)
            assert done.returncode == 0, done.stderr
    finally:
        os.umask(before)

    made = [one for one in home.rglob("*") if not one.is_symlink()]
    assert {"today", "feedback", "ops-logs", "memory"} <= {one.name for one in made}
    assert [str(one) for one in made if stat.S_IMODE(one.stat().st_mode) & 0o077] == []
