"""`cmem backup` and `restore`, `cmem feedback export` and `import`, over a real log and store."""

import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from composable_memory.cli import app
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.judgements import backend_days
from composable_memory_feedback.store.store import FeedbackStore
from composable_memory_ops_logs import OpsLogReader
from composable_memory_ops_logs.retention import Retention
from tests.installed_packages import install
from tests.integration.feedback.keeping_backend import ENTRY_POINTS, WORDS
from tests.integration.feedback.test_cli_feedback import NO_MODEL, QUERIES, Cmem, original
from tests.integration.feedback.test_store_processes import HOUSES
from tests.integration.feedback.two_backends import ENTRY_POINTS as TWO_BACKENDS
from tests.unit.feedback.store_makers import HOUR, NOON, judgement, table

__all__ = ["original"]

KEEPING = NO_MODEL.replace("weight: 1.0}}", "weight: 1.0}, keeping: {enabled: true}}")


class Place:
    """A memory with its own folders and settings."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.state, self.config = folder / "notes", folder / "state", folder / "config.yaml"
        self.workspace.mkdir(parents=True, exist_ok=True)

    def __call__(self, *args: str) -> Result:
        place = ["--workspace", str(self.workspace), "--state-dir", str(self.state)]
        environ = {"COMPOSABLE_MEMORY_CONFIG": str(self.config)}
        return CliRunner().invoke(app, [*args, *place], env=environ)

    def said(self, *args: str) -> str:
        result = self(*args)
        assert (result.exit_code, result.stderr) == (0, "")
        return result.stdout

    def failed(self, *args: str) -> str:
        result = self(*args)
        assert result.exit_code == 1
        return result.stderr

    @property
    def store(self) -> Path:
        return next((self.state / "feedback").glob("*.sqlite"))


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "two-backends", TWO_BACKENDS + ENTRY_POINTS)
    monkeypatch.syspath_prepend(tmp_path / "site")


@pytest.fixture
def judged(original: Cmem, plugins: None, tmp_path: Path) -> Place:
    """Return a memory in which every answer was judged, with weights set and words kept."""
    place = Place(tmp_path / "judged")
    place.workspace = original.workspace
    shutil.copytree(original.state, place.state)
    place.config.write_text(KEEPING, encoding="utf-8")
    place.said("weights", "set", "sure=0.5")
    (place.state / WORDS).write_text("said once\n", encoding="utf-8")
    return place


@pytest.fixture
def other(judged: Place, tmp_path: Path) -> Place:
    """Return an empty memory of another workspace with the same settings."""
    place = Place(tmp_path / "other")
    place.config.write_bytes(judged.config.read_bytes())
    return place


def lines_of(place: Place) -> list[str]:
    return place.said("feedback", "export").splitlines()[1:]


# --- export and import


def test_what_is_exported_is_the_same_after_an_import(judged: Place, other: Place, tmp_path: Path) -> None:
    file = tmp_path / "judged.jsonl"
    document = json.loads(judged.said("feedback", "export", "--output", str(file), "--json"))

    assert document["rows"]["judgements"] == 4 * QUERIES
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert judged.said("feedback", "export", "--output", "-").splitlines()[1:] == lines_of(judged)
    first = json.loads(other.said("feedback", "import", str(file), "--json"))
    second = json.loads(other.said("feedback", "import", str(file), "--json"))

    assert (first["added"], first["known"]) == (document["rows"], {})
    assert (second["added"], second["known"]) == ({}, document["rows"])
    assert lines_of(other) == lines_of(judged)


def test_an_import_with_bad_lines_names_them_and_changes_nothing(
    judged: Place, other: Place, tmp_path: Path
) -> None:
    head, *lines = judged.said("feedback", "export").splitlines()
    wrong = json.loads(lines[-1])
    wrong["detail"]["relevance"] = 7
    broken = [head, *lines, json.dumps(wrong), "no json", '{"kind":"gossip"}']
    file = tmp_path / "broken.jsonl"
    file.write_text("\n".join(broken), encoding="utf-8")

    said = other.failed("feedback", "import", str(file))

    for number in (len(lines) + 2, len(lines) + 3, len(lines) + 4):
        assert f"line {number}: " in said
    assert lines_of(other) == []


@pytest.mark.parametrize(
    "head", ["", "{}", '{"format":"composable-memory-feedback","version":4}', '{"format":"else","version":1}']
)
def test_what_is_no_export_or_of_a_later_version_is_refused(other: Place, tmp_path: Path, head: str) -> None:
    file = tmp_path / "strange.jsonl"
    file.write_text(f"{head}\n", encoding="utf-8")

    assert "line 1" in other.failed("feedback", "import", str(file))


def test_what_a_store_has_stays_and_another_history_of_weights_is_left_out(
    judged: Place, other: Place, tmp_path: Path
) -> None:
    file = tmp_path / "judged.jsonl"
    judged.said("feedback", "export", "--output", str(file))
    other.said("weights", "set", "sure=0.25")
    before = other.said("weights", "history", "--json")

    result = other("feedback", "import", str(file))

    assert result.exit_code == 0
    assert "history of weights" in result.stderr
    assert other.said("weights", "history", "--json") == before
    assert len(lines_of(other)) > QUERIES


def test_the_word_that_stands_is_not_replaced_by_an_imported_one(tmp_path: Path) -> None:
    lines: list[bytes] = []
    with FeedbackStore.open(tmp_path / "one.db") as one:
        one.add([judgement(relevance=0.0, at=NOON + HOUR), judgement("b.md")])
        one.export(lines.append, memory="m")
    with FeedbackStore.open(tmp_path / "two.db") as two:
        two.add([judgement(relevance=1.0)])
        found = two.import_(lines, memory="m")

        assert (found.added["judgements"], found.known["judgements"]) == (1, 1)
        assert two.judgements() == [judgement(relevance=1.0), judgement("b.md")]
        assert backend_days(two.judgements())[0].results == 2


# --- backup and restore


def test_a_backup_restores_all_that_cannot_be_rebuilt(judged: Place, other: Place, tmp_path: Path) -> None:
    folder = tmp_path / "backups" / "first"
    document = json.loads(judged.said("backup", str(folder), "--json"))

    assert document["parts"]["feedback"]["judgements"] == 4 * QUERIES
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()} == {0o600}
    other.said("restore", str(folder))

    assert lines_of(other) == lines_of(judged)
    assert (other.state / WORDS).read_text(encoding="utf-8") == "said once\n"
    replayed = json.loads(other.said("replay", "--weights", "equal", "--json"))
    assert (replayed["total"], replayed["reproduced"]) == (QUERIES, QUERIES), "the judged queries are known"
    assert replayed["judged"]["queries"] == QUERIES


def test_restored_traces_stay_in_the_log_each_line_once(judged: Place, other: Place, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    judged.said("backup", str(first))
    judged.said("search", "where is the pot?")
    judged.said("feedback", "add", "last", "1", "--relevance", "1")
    judged.said("backup", str(second))

    for folder in (first, second):
        other.said("restore", str(folder), "--force")
        close_files_of_a_month_ago(other.state / "ops-logs")
    judged.said("restore", str(second), "--force")

    lines = (second / "traces.jsonl").read_text(encoding="utf-8").splitlines()
    wanted = {json.loads(line)["id"] for line in lines}
    for place in (judged, other):
        there = Counter(event.id for event in OpsLogReader(place.state / "ops-logs").events())
        assert {one: there[one] for one in wanted} == dict.fromkeys(wanted, 1)


def test_a_backup_is_also_restored_into_another_workspace_of_the_state_folder(
    judged: Place, tmp_path: Path
) -> None:
    folder, beside = tmp_path / "backup", Place(tmp_path / "beside")
    beside.state, beside.config = judged.state, judged.config
    judged.said("backup", str(folder))
    lines = (folder / "traces.jsonl").read_text(encoding="utf-8").splitlines()
    wanted = {json.loads(line)["id"] for line in lines}
    for _ in range(2):
        beside.said("restore", str(folder), "--force")

    for place in (judged, beside):
        replayed = json.loads(place.said("replay", "--weights", "equal", "--json"))
        assert (replayed["total"], replayed["judged"]["queries"]) == (QUERIES, QUERIES)
    there = Counter(event.id for event in OpsLogReader(judged.state / "ops-logs").events())
    assert {one: there[one] for one in wanted} == dict.fromkeys(wanted, 2), "once for each"


def test_of_traces_that_are_no_events_the_others_are_restored(
    judged: Place, other: Place, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    judged.said("backup", str(folder))
    traces, manifest = folder / "traces.jsonl", folder / "manifest.json"
    before = traces.read_bytes()
    wanted = {json.loads(line)["id"] for line in before.splitlines()}
    absurd = [b"[" * 200_000, b'{"ts": "../../2026", "id": "x"}', b"[1]", b'{"ts": ' + b"9" * 5000 + b"}"]
    traces.write_bytes(b"\n".join([*absurd, before]))
    was, now = (hashlib.sha256(data).hexdigest() for data in (before, traces.read_bytes()))
    manifest.write_text(manifest.read_text().replace(was, now))

    other.said("restore", str(folder), "--force")

    there = {event.id for event in OpsLogReader(other.state / "ops-logs").events()}
    assert wanted <= there


def close_files_of_a_month_ago(directory: Path) -> None:
    retention = Retention(directory, retention_days=365, max_bytes=10**9, most_open=10**9)
    for _ in retention.apply(datetime.now(UTC) + timedelta(days=32)):
        pass


def test_settings_are_restored_where_there_are_none_or_others_may_be_replaced(
    other: Place, tmp_path: Path
) -> None:
    folder, shared = tmp_path / "backup", other.workspace / ".composable-memory.yaml"
    shared.write_text("memory: {query: {max_results: 4}}\n", encoding="utf-8")
    other.config.write_text(NO_MODEL, encoding="utf-8")
    other.said("weights", "set", "sure=0.5")
    other.said("backup", str(folder))
    shutil.rmtree(other.state)
    other.config.write_text("{}", encoding="utf-8")
    shared.unlink()

    assert str(other.config) in other.failed("restore", str(folder))
    assert not shared.exists()
    other.said("restore", str(folder), "--force")

    assert other.config.read_text(encoding="utf-8") == NO_MODEL
    assert "max_results" in shared.read_text(encoding="utf-8")
    assert "0.50" in other.said("weights", "show")


def test_what_is_there_is_replaced_only_if_that_is_asked_for(
    judged: Place, other: Place, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    judged.said("backup", str(folder))
    other.said("weights", "set", "sure=0.1")
    before = lines_of(other)

    assert str(other.store) in other.failed("restore", str(folder))
    assert (lines_of(other), (other.state / WORDS).exists()) == (before, False)

    for _ in range(2):
        other.said("restore", str(folder), "--force")
        assert lines_of(other) == lines_of(judged)


def test_a_restore_that_fails_in_a_later_part_leaves_settings_and_judgements_as_they_were(
    judged: Place, other: Place, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    judged.said("backup", str(folder))
    (judged.state / WORDS).write_text("said since\n", encoding="utf-8")
    (other.state / WORDS).mkdir(parents=True)  # which no file can be written over
    before = other.config.read_bytes() + b"# mine\n"
    other.config.write_bytes(before)

    other.failed("restore", str(folder), "--force")

    assert other.config.read_bytes() == before
    assert lines_of(other) == []


def test_a_restore_that_one_of_two_backends_refuses_says_which_has_taken_its_part(
    judged: Place, other: Place, tmp_path: Path
) -> None:
    folder, more = tmp_path / "backup", f"more-{WORDS}"
    both = KEEPING.replace(
        "keeping: {enabled: true}", "keeping: {enabled: true}, keeping_more: {enabled: true}"
    )
    for place in (judged, other):
        place.config.write_text(both, encoding="utf-8")
    (judged.state / more).write_text("said twice\n", encoding="utf-8")
    judged.said("backup", str(folder))
    (other.state / more).mkdir(parents=True)  # which no file can be written over
    before = other.config.read_bytes() + b"# mine\n"
    other.config.write_bytes(before)

    told = other.failed("restore", str(folder), "--force")

    assert told.count("'keeping_more' failed to restore") == 1
    assert str(other.state / more) in told, "what was wrong"
    assert "not undone: keeping;" in told
    assert "--force" in told
    assert (other.state / WORDS).read_text(encoding="utf-8") == "said once\n"
    assert (other.config.read_bytes(), lines_of(other)) == (before, [])

    (other.state / more).rmdir()
    other.said("restore", str(folder), "--force")
    assert (other.state / more).read_text(encoding="utf-8") == "said twice\n"
    assert lines_of(other) == lines_of(judged)


def test_a_backup_goes_nowhere_where_something_is(judged: Place, tmp_path: Path) -> None:
    folder = tmp_path / "full"
    folder.mkdir()
    (folder / "mine.txt").write_text("here", encoding="utf-8")

    assert str(folder) in judged.failed("backup", str(folder))
    assert [path.name for path in folder.iterdir()] == ["mine.txt"]


def test_a_backup_that_a_backend_cannot_make_is_none(judged: Place, tmp_path: Path) -> None:
    (judged.state / WORDS).unlink()
    folder = tmp_path / "backups" / "first"

    judged.failed("backup", str(folder))

    assert list(folder.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("damage", "name"),
    [
        ("changed", "traces.jsonl"),
        ("changed", "manifest.json"),
        ("missing", "feedback.sqlite"),
        ("added", "more"),
    ],
)
def test_a_backup_that_is_not_whole_is_refused_by_name(
    judged: Place, other: Place, tmp_path: Path, damage: str, name: str
) -> None:
    folder = tmp_path / "backup"
    judged.said("backup", str(folder))
    path = folder / name
    if damage == "missing":
        path.unlink()
    else:
        with path.open("ab") as file:
            file.write(b"x")

    assert path.name in other.failed("restore", str(folder))
    assert not (other.state / WORDS).exists()
    assert lines_of(other) == []


WRITE_PAIRS = """
import sys
from pathlib import Path
from composable_memory_feedback.store.store import FeedbackStore
from tests.unit.feedback.store_makers import judgement

with FeedbackStore.open(Path(sys.argv[1])) as store:
    print("ready", flush=True)
    for number in range(100_000):
        store.add([judgement(f"{number}-{one}.md", query=f"p{number}") for one in "ab"])
"""


@pytest.mark.thorough
def test_a_backup_beside_a_process_that_writes_is_of_one_moment(
    judged: Place, other: Place, tmp_path: Path
) -> None:
    folder = tmp_path / "backup"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITE_PAIRS, str(judged.store)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": HOUSES},
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        judged.said("backup", str(folder))
        assert writer.poll() is None, "it was writing all the while"
    finally:
        writer.kill()
        writer.communicate()
    other.said("restore", str(folder))

    with FeedbackStore.open(other.store) as store:
        pairs = [one for one in store.judgements() if one.query_id.startswith("p")]
        days = {day.day: day.results for day in backend_days(store.judgements())}
    assert len(pairs) % 2 == 0
    assert days.get(NOON.date(), 0) == len(pairs)


def test_an_open_store_goes_on_with_what_was_restored(tmp_path: Path) -> None:
    with FeedbackStore.open(tmp_path / "one.db") as one:
        one.adopt(table(0.25), base={}, actor="cli", at=NOON)
        one.copy_into(tmp_path / "copy.db")
    with FeedbackStore.open(tmp_path / "two.db") as two, FeedbackStore.open(tmp_path / "two.db") as beside:
        beside.add([judgement()])
        mark = beside.change_mark()
        two.restore_from(tmp_path / "copy.db", memory="m", was="m")

        assert beside.change_mark() != mark
        assert beside.judgements() == []
        current = beside.current()
        assert current is not None
        assert current.table is not None
        assert current.table["builtin"] == 0.25


def test_what_is_no_store_is_not_restored(tmp_path: Path) -> None:
    (tmp_path / "copy.db").write_bytes(b"not a database, though long enough to be looked at\n" * 40)
    with FeedbackStore.open(tmp_path / "one.db") as one:
        one.add([judgement()])
        with pytest.raises(FeedbackError, match=r"copy\.db"):
            one.restore_from(tmp_path / "copy.db", memory="m", was="m")

        assert one.judgements() == [judgement()]
