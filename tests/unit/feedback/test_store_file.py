"""The file of the feedback store: made, refused, damaged, closed."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.judgements import Judgement
from composable_memory_feedback.store import FeedbackStore
from composable_memory_feedback.store.database import Database
from composable_memory_feedback.store.schema import VERSION
from tests.unit.feedback.store_makers import NOON, evaluation, judgement, table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "feedback.db"


def execute(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement)


def test_file_and_folder_are_made_for_their_owner_alone(path: Path) -> None:
    with FeedbackStore.open(path) as store:
        store.set_mark("a", "b")
        modes = {one.name: one.stat().st_mode & 0o777 for one in path.parent.iterdir()}

    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert set(modes.values()) == {0o600}


def test_what_was_written_is_there_when_it_is_opened_again(path: Path) -> None:
    with FeedbackStore.open(path) as store:
        store.add([judgement()])

    with FeedbackStore.open(path) as store:
        assert store.judgements() == [judgement()]


def test_a_file_of_a_later_version_is_refused_and_left_as_it_is(path: Path) -> None:
    FeedbackStore.open(path).close()
    execute(path, f"PRAGMA user_version = {VERSION + 1}")
    before = path.read_bytes()

    with pytest.raises(
        FeedbackError, match=f"of version {VERSION + 1}, this program knows {VERSION}"
    ) as caught:
        FeedbackStore.open(path)

    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_the_database_of_another_program_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    execute(path, "CREATE TABLE chunks (id)")
    before = path.read_bytes()

    with pytest.raises(FeedbackError, match="belongs to another program"):
        FeedbackStore.open(path)

    assert path.read_bytes() == before


def test_a_file_that_is_no_database_is_named(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"not a database, though long enough to be looked at\n" * 40)

    with pytest.raises(FeedbackError, match=f"damaged.*{path}; move the file away"):
        FeedbackStore.open(path)


def test_damage_inside_is_told_when_it_is_met(path: Path) -> None:
    with FeedbackStore.open(path) as store:
        store.add([judgement(f"{n}.md", rationale="x" * 500) for n in range(200)])
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + b"\xff" * (len(content) // 2))

    with FeedbackStore.open(path) as store, pytest.raises(FeedbackError, match="damaged"):
        store.judgements()


def test_a_table_that_is_gone_is_damage(path: Path) -> None:
    FeedbackStore.open(path).close()
    execute(path, "DROP TABLE judgements")

    with FeedbackStore.open(path) as store, pytest.raises(FeedbackError, match=r"damaged.*no such table"):
        store.add([judgement()])


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE judgements SET kind = 'gossip'",
        "UPDATE judgements SET relevance = 7.5",
        "UPDATE judgements SET relevance = 'much'",
        "UPDATE judgements SET at = 'yesterday'",
    ],
)
def test_a_judgement_that_says_nonsense_is_an_error_of_ours(path: Path, damage: str) -> None:
    with FeedbackStore.open(path) as store:
        store.add([judgement()])
    execute(path, damage)

    with FeedbackStore.open(path) as store, pytest.raises(FeedbackError, match="a judgement cannot be read"):
        store.judgements()


def test_an_evaluation_that_says_nonsense_is_an_error_of_ours(path: Path) -> None:
    with FeedbackStore.open(path) as store:
        number = store.begin_evaluation(per_hour=1, now=NOON)
        assert number is not None
        store.finish_evaluation(number, evaluation())
    execute(path, "UPDATE evaluations SET detail = '{\"model\": 1}'")

    with (
        FeedbackStore.open(path) as store,
        pytest.raises(FeedbackError, match="the evaluation cannot be read"),
    ):
        store.evaluations()


@pytest.mark.parametrize("statement", ["UPDATE {} SET {} = 'else'", "DELETE FROM {}"])
@pytest.mark.parametrize(
    ("name", "column"), [("weight_changes", "actor"), ("weight_tables", "detail"), ("audits", "actor")]
)
def test_history_cannot_be_changed(path: Path, statement: str, name: str, column: str) -> None:
    with FeedbackStore.open(path) as store:
        store.adopt(table(), base={}, actor="cli", at=NOON)
        store.audit("weights.set", "cli", {}, NOON)

    with pytest.raises(sqlite3.IntegrityError, match=f"what stands in {name} is never changed"):
        execute(path, statement.format(name, column))


def test_a_folder_in_its_place_is_told(path: Path) -> None:
    path.mkdir(parents=True)

    with pytest.raises(FeedbackError, match=r"cannot be (read|opened)"):
        FeedbackStore.open(path)


def test_a_file_in_the_place_of_its_folder_is_told(path: Path) -> None:
    path.parent.write_text("here", encoding="utf-8")

    with pytest.raises(FeedbackError, match="cannot be opened"):
        FeedbackStore.open(path)


@pytest.mark.parametrize("strange", [judgement(backend="half \ud83d"), replace(judgement(), rank=2**70)])
def test_what_no_file_can_hold_is_refused_as_a_whole(path: Path, strange: Judgement) -> None:
    with FeedbackStore.open(path) as store:
        with pytest.raises(FeedbackError, match="refused a value"):
            store.add([judgement("b.md"), strange])

        assert store.judgements() == []


def test_a_new_file_that_another_holds_is_waited_for_within_the_limit(path: Path) -> None:
    path.parent.mkdir()
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(FeedbackError, match="keeps the feedback store busy"):
            Database.open(path, busy_timeout_s=0.05)

        holder.execute("ROLLBACK")
        Database.open(path, busy_timeout_s=0.05).close()


def test_a_closed_store_says_so_and_closes_twice(path: Path) -> None:
    store = FeedbackStore.open(path)
    store.close()
    store.close()

    with pytest.raises(FeedbackError, match="is closed"):
        store.current()
    with pytest.raises(FeedbackError, match="is closed"):
        store.set_mark("a", "b")
