"""A store of an earlier layout, as its own program wrote it: converted when it is opened, whole and once.

`layout_4/` holds such a file and an export of it.
"""

import lzma
import os
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from zlib import crc32

import pytest

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.experiments import Experiment, Outcome
from composable_memory_feedback.golden import GoldenPlace, GoldenQuestion, GoldenRecord
from composable_memory_feedback.judgements import JudgementKind
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.store.salvage import MOST_CHECKED_BYTES, damage_in
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_feedback.weights import IntentKind, WeightChange
from tests.unit.feedback.store_makers import HOUR, NOON, evaluation, judgement, logged_query, table
from tests.variants import variants

WRITTEN = Path(__file__).with_name("layout_4")
JUDGED = [
    judgement("a.md", rationale="it names the key", relevance=0.1 + 0.2),
    judgement(
        "c d/鑰匙.md",
        backend=None,
        intent=IntentKind.TIME,
        at=NOON + HOUR,
        rationale='"quoted", \n\t\x01 🗝',
    ),
    judgement("a.md", rationale="it names the key", relevance=1 / 3, query="q2"),
    replace(judgement("a.md", query="q2"), start_char=1280),
    judgement("b.md", kind=JudgementKind.EXPLICIT, by="Ada", relevance=0.25),
]
FIRST = replace(table(0.25, reason="it is better"), version="v1")
SECOND, THIRD = replace(table(0.75), version="v2"), replace(table(1 / 3), version="v3")
GAIN = Interval(mean=0.1, low=-1 / 3, high=0.7)
BASE = {"builtin": 0.1 + 0.2}


def change(hours: int, actor: str, **values: object) -> WeightChange:
    made = {"table": None, "action": "adopt", "reason": "it answers better", "base": {}, **values}
    return WeightChange(at=NOON + timedelta(hours=hours), actor=actor, **made)  # type: ignore[arg-type]


HISTORY = [
    change(0, "cli", table=FIRST, reason="it is better", base=BASE, gain=GAIN),
    change(1, "Ada", table=SECOND, replaced="v1"),
    change(2, "Ada", table=FIRST, action="rollback", reason="back from v2 to v1", replaced="v2"),
    change(3, "Ada", action="reset", reason="back from v1 to settings", replaced="v1"),
    change(4, "auto", table=THIRD),
]
GOLDEN = [
    GoldenRecord(
        question=GoldenQuestion(id=id_, question=question, expected=(GoldenPlace(path="a.md", line=3),)),
        query=logged_query(id_),
    )
    for id_, question in (("z", "where is the key?"), ("a", "who has it?"))
]
DECIDED = Experiment(
    id="e1",
    a=table(),
    b=table(0.1 + 0.2),
    started_at=NOON,
    memory="home",
    state="decided",
    ended_at=NOON + HOUR,
    reason="enough",
    winner="a",
)
RUNNING = Experiment(id="e2", a=table(), b=table(0.5), started_at=NOON + HOUR, memory="home")
OUTCOMES = [
    Outcome(experiment_id="e1", trace_id="t1", query_id=query, at=NOON, a=a, b=b)
    for query, a, b in (("q1", 0.0, 1 / 3), ("q2", 2.0, 0.0))
]


def held_by(store: FeedbackStore) -> tuple[object, ...]:
    """Return all that the store holds, but for the mark."""
    history = store.history()[::-1]
    return (
        store.judgements(),
        store.evaluations(),
        history,
        store.golden(),
        store.experiments(),
        store.outcomes("e1"),
    )


ALL = (JUDGED, [evaluation()], HISTORY, GOLDEN, [DECIDED, RUNNING], OUTCOMES)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "feedback.db"
    path.write_bytes(lzma.decompress((WRITTEN / "feedback.sqlite.xz").read_bytes()))
    return path


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for one in statements:
            connection.execute(one)


def spoil(path: Path, written: bytes, found: bytes) -> None:
    content = path.read_bytes()
    assert written in content
    path.write_bytes(content.replace(written, found))


def test_all_of_it_is_there_when_it_is_opened_and_opened_again(path: Path) -> None:
    for _ in range(2):
        with FeedbackStore.open(path) as store:
            assert (store.remark, store.mark("day")) == (None, "1")
            assert held_by(store) == ALL
            assert store.table("v2") == SECOND
            assert store.running_experiment("home") == RUNNING
    assert [*path.parent.glob("*.damaged*")] == []


def test_it_goes_on_from_where_it_was(path: Path) -> None:
    with FeedbackStore.open(path) as store:
        assert store.add([JUDGED[0], judgement("new.md")]) == 1
        assert store.judgements() == [*JUDGED, judgement("new.md")]
        assert store.adopt(table(), base={}, actor="cli", at=NOON).version == "v4"
        assert store.record_outcomes([replace(OUTCOMES[0], experiment_id="e2")])
        with pytest.raises(FeedbackError, match="another experiment is running: e2"):
            store.start_experiment(replace(RUNNING, id="e3"))


DAMAGE = {
    "judgements": (b"it names the key", b"it names the kex"),
    "a text that is none any more": (b"it names the key", b"it names the ke\xff"),
    "weight changes": (b"back from v2 to v1", b"back from v2 to v9"),
    "golden": (b"where is the key?", b"where is the kez?"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_row_that_changed_is_not_converted_and_told_or_comes_back_from_the_copy(
    path: Path, kind: str
) -> None:
    before = path.read_bytes()
    spoil(path, *DAMAGE[kind])
    changed = path.read_bytes()
    named = kind if kind in ("weight changes", "golden") else "judgements"

    with FeedbackStore.open(path, clock=lambda: NOON) as store:
        assert f"not all of {named} could be read" in (store.remark or "")
        (aside,) = path.parent.glob("*.damaged-*")
        assert aside.read_bytes() == changed
        left = held_by(store)
        assert sum(one != other for one, other in zip(left, ALL, strict=True)) == 1

    path.write_bytes(changed)
    path.with_name(f"{path.name}.{NOON:%Y-%m-%d}.copy").write_bytes(before)
    with FeedbackStore.open(path, clock=lambda: NOON) as store:
        assert "nothing is lost" in (store.remark or "")
        assert (held_by(store), store.mark("day")) == (ALL, "1")


def test_a_row_that_changes_after_the_conversion_comes_back_from_a_copy_of_before(path: Path) -> None:
    path.with_name(f"{path.name}.{NOON:%Y-%m-%d}.copy").write_bytes(path.read_bytes())
    FeedbackStore.open(path).close()
    spoil(path, b"where is the key?", b"where is the kez?")

    with FeedbackStore.open(path, clock=lambda: NOON) as store:
        assert "nothing is lost" in (store.remark or "")
        assert held_by(store) == ALL


def test_of_a_file_that_is_no_database_any_more_all_comes_back_from_the_copy(path: Path) -> None:
    path.with_name(f"{path.name}.{NOON:%Y-%m-%d}.copy").write_bytes(path.read_bytes())
    path.write_bytes(b"no database " * 1_000)

    with FeedbackStore.open(path) as store:
        assert held_by(store) == ALL


@pytest.mark.parametrize("name", ["judgements", "weight_tables", "marks", "row_checksums"])
def test_a_table_that_is_gone_is_damage_and_the_others_are_saved(path: Path, name: str) -> None:
    execute(path, f"DROP TABLE {name}")

    with FeedbackStore.open(path) as store:
        assert f"{name} is gone" in (store.remark or "")
        assert store.golden() == GOLDEN
        assert store.experiments() == [DECIDED, RUNNING]


def grow(path: Path, count: int) -> None:
    """Add judgements as the program of that layout did."""
    with closing(sqlite3.connect(path)) as connection, connection:
        for id_ in range(1000, 1000 + count):
            row = (id_, "t", "q", f"{id_}.md", 1, 9, "model", "", f"{NOON:%Y-%m-%dT%X}.000000+00:00")
            row += (1, None, "general", 0.5, 0, "why " * 40)  # type: ignore[assignment]
            connection.execute(f"INSERT INTO judgements VALUES ({'?, ' * 15} 0)", row)
            raw = tuple(one.encode() if isinstance(one, str) else one for one in row)
            checksum = crc32(repr(raw).encode())
            connection.execute("INSERT INTO row_checksums VALUES ('judgements', ?, ?)", (id_, checksum))


CONVERT_AND_DIE = """
import resource, signal, sys
from pathlib import Path
from composable_memory_feedback.store.store import FeedbackStore

signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
FeedbackStore.open(Path(sys.argv[1]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit of sizes there")
@pytest.mark.parametrize("written_kb", variants([40, 400, 800, 1200], 800))
def test_a_process_that_dies_while_it_converts_leaves_all_to_the_next_one(
    path: Path, written_kb: int
) -> None:
    grow(path, 2000)
    root = Path(__file__).parents[3]
    folders = os.pathsep.join(str(root / one) for one in ("feedback", "ops_logs"))
    run = subprocess.run(
        [sys.executable, "-c", CONVERT_AND_DIE, str(path), str(written_kb * 1024)],
        env={**os.environ, "PYTHONPATH": folders},
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (run.returncode, run.stderr) == (-signal.SIGXFSZ, b"")

    with FeedbackStore.open(path) as store:
        assert store.remark is None
        assert len(store.judgements()) == len(JUDGED) + 2000
        assert held_by(store)[1:] == ALL[1:]


@pytest.mark.thorough
def test_damage_to_a_large_file_is_seen_before_it_is_converted(path: Path) -> None:
    grow(path, 20_000)
    assert path.stat().st_size > MOST_CHECKED_BYTES
    spoil(path, b"it names the key", b"it names the kex")

    with FeedbackStore.open(path) as store:
        assert "not all of judgements could be read" in (store.remark or "")
        assert len(store.judgements()) == 20_000 + len(JUDGED) - 2


def test_a_backup_of_it_is_restored(path: Path, tmp_path: Path) -> None:
    with FeedbackStore.open(tmp_path / "new.db") as store, FeedbackStore.open(tmp_path / "new.db") as beside:
        store.add([judgement("other.md")])
        beside.judgements()
        store.restore_from(path, memory="here", was="home")

        assert held_by(beside)[:4] == ALL[:4]
        assert beside.running_experiment("here") == replace(RUNNING, memory="here")


def test_of_a_damaged_backup_nothing_is_restored(path: Path, tmp_path: Path) -> None:
    spoil(path, *DAMAGE["judgements"])
    with FeedbackStore.open(tmp_path / "new.db") as store:
        store.add([judgement("own.md")])

        with pytest.raises(FeedbackError, match=f"an entry has been altered.*{path.name}"):
            store.restore_from(path, memory="here", was="home")

        assert (store.judgements(), store.golden(), store.remark) == ([judgement("own.md")], [], None)


def test_a_file_that_is_converted_meanwhile_is_not_taken_for_damaged(path: Path) -> None:
    grow(path, 2000)
    found: list[str | None] = []
    with ThreadPoolExecutor(1) as pool:
        opened = pool.submit(FeedbackStore.open, path)
        while not opened.done():
            found.append(damage_in(path))
    with opened.result() as store:
        assert {*found, store.remark} == {None}


def test_an_export_of_it_is_imported_once(tmp_path: Path) -> None:
    lines = (WRITTEN / "export.jsonl").read_bytes().splitlines(keepends=True)
    counts = {"judgements": 5, "evaluations": 1, "weight_changes": 5}
    counts |= {"golden": 2, "experiments": 2, "outcomes": 2}
    with FeedbackStore.open(tmp_path / "new.db") as store:
        first, second = (store.import_(lines, memory="home") for _ in range(2))

        assert (first.added, first.known, second.added, second.known) == (counts, {}, {}, counts)
        assert first.left_out == second.left_out == ()
        assert held_by(store) == ALL


def test_an_export_of_when_days_were_kept_is_imported_without_them(tmp_path: Path) -> None:
    head, *lines = (WRITTEN / "export.jsonl").read_bytes().splitlines(keepends=True)
    day = b'{"table":"backend_queries","backend":"builtin","day":"2026-03-01","intent":"topic"}\n'
    with FeedbackStore.open(tmp_path / "new.db") as store:
        store.import_([head, day, *lines], memory="home")

        assert held_by(store) == ALL


@pytest.mark.parametrize("line", [b"[]", b"5", b'{"table":"weight_tables","version":[],"detail":"{}"}'])
def test_a_line_that_is_no_row_is_refused(tmp_path: Path, line: bytes) -> None:
    head = (WRITTEN / "export.jsonl").read_bytes().splitlines()[0]
    with (
        FeedbackStore.open(tmp_path / "new.db") as store,
        pytest.raises(FeedbackError, match="a line cannot be read: line 2: "),
    ):
        store.import_([head, line], memory="home")


COLUMNS = (
    "id, trace_id, query_id, path, start_line, end_line, kind, judge, at, rank, backend, intent, relevance, "
    "was_used, rationale"
)
WITHOUT_PIECES = (
    """
    DELETE FROM row_checksums
    WHERE of_table = 'judgements' AND row IN (SELECT id FROM judgements WHERE start_char > 0)
    """,
    f"CREATE TABLE before AS SELECT {COLUMNS} FROM judgements WHERE start_char = 0",
    "DROP TABLE judgements",
    "ALTER TABLE before RENAME TO judgements",
)
UNUSED = tuple(
    f"CREATE TABLE {one} (id INTEGER PRIMARY KEY)" for one in ("backend_queries", "shadows", "audits")
)
MADE_EARLIER = {
    3: UNUSED,
    2: (*UNUSED, *WITHOUT_PIECES),
    1: (*UNUSED, *WITHOUT_PIECES, "DROP TABLE row_checksums"),
}
"""What the later versions changed, undone."""


@pytest.mark.parametrize("version", MADE_EARLIER)
def test_a_file_of_a_version_before_is_converted_as_well(path: Path, version: int) -> None:
    judged = [one for one in JUDGED if not one.start_char or version > 2]
    execute(path, *MADE_EARLIER[version], f"PRAGMA user_version = {version}")

    for _ in range(2):
        with FeedbackStore.open(path) as store:
            assert store.remark is None
            assert held_by(store) == (judged, *ALL[1:])


@pytest.mark.parametrize("version", [2, 3])
def test_a_row_that_changed_in_a_file_of_a_version_before_is_not_converted(path: Path, version: int) -> None:
    execute(path, *MADE_EARLIER[version], f"PRAGMA user_version = {version}", "VACUUM")
    spoil(path, *DAMAGE["golden"])

    with FeedbackStore.open(path) as store:
        assert "not all of golden could be read" in (store.remark or "")
        assert held_by(store)[4:] == ALL[4:]


def test_an_export_of_the_first_format_is_imported(tmp_path: Path) -> None:
    head, *lines = (WRITTEN / "export.jsonl").read_bytes().splitlines(keepends=True)
    with FeedbackStore.open(tmp_path / "new.db") as store:
        store.import_([head.replace(b'"version":2', b'"version":1'), *lines], memory="home")

        assert held_by(store) == ALL
