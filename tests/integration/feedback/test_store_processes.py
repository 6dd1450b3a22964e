"""Several processes on one feedback store: they open it, share its quota and see what others changed."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.store.database import Database
from composable_memory_feedback.store.store import FeedbackStore
from tests.unit.feedback.store_makers import NOON, judgement, table

ROOT = Path(__file__).parents[3]
HOUSES = os.pathsep.join(str(ROOT / folder) for folder in ("feedback", "ops_logs", "."))

TAKE_ALL = """
import sys
from pathlib import Path
from composable_memory_feedback.store.store import FeedbackStore
from tests.unit.feedback.store_makers import NOON

print("ready", flush=True)
sys.stdin.readline()
with FeedbackStore.open(Path(sys.argv[1])) as store:
    print(sum(store.begin_evaluation(per_hour=20, now=NOON) for _ in range(15)))
"""

ADOPT = """
import sys
from pathlib import Path
from composable_memory_feedback.store.store import FeedbackStore
from tests.unit.feedback.store_makers import NOON, table

print("ready", flush=True)
sys.stdin.readline()
with FeedbackStore.open(Path(sys.argv[1])) as store:
    for _ in range(5):
        print(store.adopt(table(0.8), base={}, actor="other", at=NOON).version)
"""

DIE_WRITING = """
import os, sys
from pathlib import Path
from composable_memory_feedback.store.database import Database
from composable_memory_feedback.store.entries import Entry

with Database.open(Path(sys.argv[1])).writing() as entries:
    entries.put([Entry("marks", "half", "", "done")])
    os._exit(9)
"""

DIE_WITH_A_JOURNAL = """
import os, sqlite3, sys

connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = DELETE")
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN IMMEDIATE")
rows = [("half", "x"), *((f"{n}", "y" * 900) for n in range(99))]
insert = "INSERT INTO entries (kind, key, at, detail, checksum) VALUES ('marks', ?, '', ?, 0)"
connection.executemany(insert, rows)
os._exit(9)
"""


def run_together(program: str, path: Path, count: int) -> list[str]:
    """Start processes, let them go at the same moment once all are ready, and return what each printed."""
    running = [_start(program, path) for _ in range(count)]
    try:
        for one in running:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in running:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        said = [one.communicate(timeout=60) for one in running]
    finally:
        for one in running:
            one.kill()
            one.communicate()
    assert [(one.returncode, errors) for one, (_, errors) in zip(running, said, strict=True)] == [
        (0, "")
    ] * count
    return [out for out, _ in said]


def _start(program: str, path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": HOUSES},
    )


def words(texts: Sequence[str]) -> list[str]:
    return [word for text in texts for word in text.split()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "feedback" / "feedback.db"


@pytest.mark.thorough
def test_processes_that_make_the_file_together_never_exceed_the_quota(path: Path) -> None:
    granted = words(run_together(TAKE_ALL, path, 3))

    assert sum(map(int, granted)) == 20


@pytest.mark.thorough
def test_processes_that_adopt_together_get_versions_of_their_own(path: Path) -> None:
    with FeedbackStore.open(path) as store:
        mark = store.change_mark()
        versions = words(run_together(ADOPT, path, 2))

        assert sorted(versions, key=lambda one: int(one[1:])) == [f"v{n}" for n in range(1, 11)]
        assert store.change_mark() > mark, "it sees what others changed"
        assert [one.replaced for one in reversed(store.history())] == [None, *(f"v{n}" for n in range(1, 10))]
        current = store.current()
        assert current is not None
        assert current.version == "v10"


def test_a_process_that_dies_while_writing_leaves_nothing_half(path: Path) -> None:
    with FeedbackStore.open(path) as store:
        store.add([judgement()])
        run = subprocess.run(
            [sys.executable, "-c", DIE_WRITING, str(path)],
            env={**os.environ, "PYTHONPATH": HOUSES},
            capture_output=True,
            check=False,
            timeout=60,
        )

        assert (run.returncode, run.stderr) == (9, b"")
        assert store.mark("half") is None
        store.set_mark("half", "whole")
        assert store.judgements() == [judgement()]


def test_two_open_stores_see_each_other(path: Path) -> None:
    with FeedbackStore.open(path) as one, FeedbackStore.open(path) as other:
        mark = other.change_mark()
        one.adopt(table(), base={}, actor="one", at=NOON)
        assert other.change_mark() > mark
        assert other.current() == one.current()


def test_a_store_that_others_keep_busy_says_so_in_time(path: Path) -> None:
    holder = Database.open(path)
    with FeedbackStore.open(path, busy_timeout_s=0.05) as waiting:
        with holder.writing():
            assert waiting.mark("a") is None, "reading goes on"
            with pytest.raises(FeedbackError, match="keeps the feedback store busy"):
                waiting.set_mark("a", "b")

        waiting.set_mark("a", "c")
        assert waiting.mark("a") == "c"
    holder.close()


@pytest.mark.skipif(sys.platform != "linux", reason="the library in use is looked up in /proc")
def test_what_was_acknowledged_beside_an_open_reader_survives_a_power_cut(path: Path, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    statements = (
        "from tests.unit.feedback.store_makers import NOON, judgement, table\n"
        "assert store.adopt(table(0.25), base={}, actor='cli', at=NOON).version == 'v1'\n"
        "assert store.add([judgement()]) == 1\n"
    )
    run = subprocess.run(
        [sys.executable, "-m", "tests.integration.feedback.power_cut", str(path), str(disk), statements],
        env={**os.environ, "PYTHONPATH": HOUSES},
        cwd=ROOT,
        capture_output=True,
        check=False,
        timeout=60,
    )

    assert (run.returncode, run.stderr) == (0, b"")
    with FeedbackStore.open(disk / path.name) as store:
        current = store.current()
        assert current is not None
        assert current.table is not None
        assert current.table["builtin"] == 0.25
        assert store.judgements() == [judgement()]


def test_a_store_that_a_power_cut_left_half_made_is_opened(path: Path) -> None:
    FeedbackStore.open(path).close()
    run = subprocess.run(
        [sys.executable, "-c", DIE_WITH_A_JOURNAL, str(path)],
        capture_output=True,
        check=False,
        timeout=60,
    )

    assert (run.returncode, run.stderr) == (9, b"")
    assert path.with_name(f"{path.name}-journal").exists()
    with FeedbackStore.open(path) as store:
        assert store.mark("half") is None
