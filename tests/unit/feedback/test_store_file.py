"""The file of the feedback store: made, refused, damaged, closed."""

import random
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.golden import GoldenQuestion, GoldenRecord
from composable_memory_feedback.store.database import Database
from composable_memory_feedback.store.entries import VERSION
from composable_memory_feedback.store.salvage import MOST_CHECKED_BYTES, copies_of
from composable_memory_feedback.store.store import FeedbackStore
from tests.unit.feedback.store_makers import DAY, NOON, judgement, logged_query, table
from tests.variants import variants


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

    with pytest.raises(FeedbackError, match=f"version {VERSION + 1}, .* {VERSION}") as caught:
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


def test_a_file_that_is_no_database_is_put_aside_and_told(path: Path) -> None:
    path.parent.mkdir()
    content = b"not a database, though long enough to be looked at\n" * 40
    path.write_bytes(content)

    with FeedbackStore.open(path) as store:
        assert store.judgements() == []
        assert store.remark is not None
        (aside,) = path.parent.glob("*.damaged-*")
        assert aside.name in store.remark

    assert aside.read_bytes() == content
    with FeedbackStore.open(path) as store:
        assert store.remark is None


def test_a_file_that_was_emptied_is_told_also_where_there_is_no_copy(path: Path) -> None:
    with FeedbackStore.open(path) as store:
        assert store.remark is None, "a first use is no damage"
        store.set_mark("a", "b")
    path.write_bytes(b"")

    with FeedbackStore.open(path) as store:
        assert "empty" in (store.remark or "")
        assert store.add([judgement()]) == 1


def test_a_table_that_is_gone_is_damage_and_comes_back_from_the_copy(path: Path) -> None:
    with FeedbackStore.open(path) as store:
        store.adopt(table(0.25), base={}, actor="cli", at=NOON)
    execute(path, "DROP TABLE entries")

    with FeedbackStore.open(path) as store:
        assert "entries is gone" in (store.remark or "")
        assert store.add([judgement()]) == 1
        assert [one.version for one in store.history()] == ["v1"], "the copy has it"


def _flip(content: bytes, seed: int = 7) -> bytes:
    """Change one byte of 64, by a fixed choice."""
    chosen = random.Random(seed)
    return bytes(byte ^ 0xFF if chosen.random() < 1 / 64 else byte for byte in content)


CORRUPTIONS: dict[str, Callable[[bytes], bytes]] = {
    "flipped": _flip,
    "flipped in the names of tables": lambda content: _flip(content, seed=0),
    "truncated": lambda content: content[: len(content) * 2 // 3],
    "zero page": lambda content: content[: 5 * 4096] + bytes(4096) + content[6 * 4096 :],
    "zero first page": lambda content: bytes(4096) + content[4096:],
    "garbage": lambda content: bytes(random.Random(3).randbytes(len(content))),
    "half garbage": lambda content: content[: len(content) // 2] + b"\xff" * (len(content) // 2),
    "empty": lambda content: b"",
}


def filled(path: Path) -> None:
    """Make a store with a copy of its first day, and words of a second day in it."""
    for day in range(2):
        with FeedbackStore.open(path, clock=lambda day=day: NOON + day * DAY) as store:  # type: ignore[misc]
            store.set_mark("day", str(day))
            store.add(
                [judgement(f"{day}-{at}.md", rationale="why " * 40, query=f"q{at}") for at in range(100)]
            )
            store.adopt(table(0.25 + day), base={}, actor="cli", at=NOON)
            if day == 0:
                store.copy_into(path.with_name(f"{path.name}.{NOON:%Y-%m-%d}.copy"))


@pytest.mark.parametrize("kind", variants(CORRUPTIONS, "flipped", "truncated", "empty"))
def test_damage_is_seen_when_the_store_is_opened_and_what_can_be_read_is_saved(path: Path, kind: str) -> None:
    filled(path)
    path.write_bytes(CORRUPTIONS[kind](path.read_bytes()))

    with FeedbackStore.open(path) as store:
        saved = store.judgements()
        assert store.remark is not None
        assert {one.path for one in saved} >= {f"0-{at}.md" for at in range(100)}, "the copy has these"
        assert store.current() is not None
        assert store.add([judgement("new.md")]) == 1
    (aside,) = path.parent.glob("*.damaged-????-??-??")
    assert aside.stat().st_mode & 0o777 == 0o600
    with FeedbackStore.open(path) as store:
        assert store.remark is None
        assert len(store.judgements()) == len(saved) + 1


def test_rows_beside_a_page_that_is_gone_are_saved_without_any_copy(path: Path) -> None:
    with FeedbackStore.open(path) as store:
        store.add([judgement(f"{n}.md", rationale="x" * 500) for n in range(200)])
    content = path.read_bytes()
    page = content.index(b'"path":"100.md"') // 4096
    path.write_bytes(content[: page * 4096] + bytes(4096) + content[(page + 1) * 4096 :])

    with FeedbackStore.open(path) as store:
        saved = store.judgements()

    assert 180 <= len(saved) < 200
    places = [int(one.path.removesuffix(".md")) for one in saved]
    assert places == sorted(places)


def test_another_who_has_the_file_open_goes_on_with_what_was_saved(path: Path) -> None:
    filled(path)
    with FeedbackStore.open(path) as beside:
        beside.mark("day")
        for companion in ("-wal", "-shm"):
            path.with_name(path.name + companion).unlink(missing_ok=True)
        path.write_bytes(b"garbage" * 1000)
        with FeedbackStore.open(path) as store:
            store.set_mark("day", "saved")

        assert beside.mark("day") == "saved"
        beside.add([judgement("new.md")])
    with FeedbackStore.open(path) as store:
        assert judgement("new.md") in store.judgements()


def test_a_copy_a_day_is_kept_and_the_oldest_go(path: Path) -> None:
    for day in range(5):
        with FeedbackStore.open(path, clock=lambda day=day: NOON + day * DAY) as store:  # type: ignore[misc]
            for at in range(2):
                store.add([judgement(f"{day}-{at}.md")])

    copies = copies_of(path)
    assert [one.name[-15:-5] for one in copies] == [f"{NOON + day * DAY:%Y-%m-%d}" for day in (2, 3, 4)]
    assert {one.stat().st_mode & 0o777 for one in copies} == {0o600}
    with FeedbackStore.open(copies[-1]) as copy:
        assert len(copy.judgements()) == 8, "from before the first word of its day"


def test_weights_put_in_force_after_the_copy_of_the_day_outlive_the_file(path: Path) -> None:
    with FeedbackStore.open(path, clock=lambda: NOON) as store:
        store.add([judgement()])
    with FeedbackStore.open(path, clock=lambda: NOON + DAY) as store:
        store.add([judgement("b.md")])
        adopted = store.adopt(table(), base={}, actor="Ada", at=NOON)
    path.write_bytes(b"no database " * 1_000)

    with FeedbackStore.open(path, clock=lambda: NOON + DAY) as store:
        stored = store.current()
        assert stored is not None
        assert stored.table == adopted
        store.rollback("settings", actor="Ada", at=NOON + DAY)
    path.write_bytes(b"no database " * 1_000)

    with FeedbackStore.open(path, clock=lambda: NOON + DAY) as store:
        assert [one.action for one in store.history()] == ["reset", "adopt"]


def test_that_no_copy_can_be_kept_stops_nobody_and_is_told(path: Path) -> None:
    path = path.with_name(f"{'f' * 220}.sqlite")  # a file beside it would have too long a name
    with FeedbackStore.open(path, clock=lambda: NOON) as store:
        store.add([judgement()])
    with FeedbackStore.open(path, clock=lambda: NOON + DAY) as store:
        assert store.add([judgement("b.md")]) == 1
        assert "copy" in (store.remark or "")


# --- rows that are not as they were written -------------------------------------------------------------


def change(path: Path, written: bytes, found: bytes) -> None:
    """Change bytes in a file as a fault of the disk does, all that SQLite looks at left whole."""
    content = path.read_bytes()
    assert written in content
    path.write_bytes(content.replace(written, found))


def golden_records(*questions: str) -> list[GoldenRecord]:
    return [
        GoldenRecord(question=GoldenQuestion(id=one, question=one, expected=()), query=logged_query())
        for one in questions
    ]


def with_much_learnt(path: Path) -> None:
    """Make a store with some of everything in it, and no copy of it yet."""
    with FeedbackStore.open(path, clock=lambda: NOON) as store:
        store.add([judgement("a.md", rationale="it names the key"), judgement("b.md")])
        store.adopt(table(0.25, reason="it is better"), base={}, actor="cli", at=NOON)
        store.put_golden(golden_records("where is the key?", "who has it?"))
    for copy in copies_of(path):
        copy.unlink()


DAMAGED_ROWS = {
    "judgements": (b"it names the key", b"it names the kex"),
    "a text that is none any more": (b"it names the key", b"it names the ke\xff"),
    "weight_changes": (b"it is better", b"it is bitter"),
    "golden": (b"where is the key?", b"where is the kez?"),
}


@pytest.mark.parametrize("kind", DAMAGED_ROWS)
def test_a_row_that_changed_is_set_aside_and_told_or_comes_back_from_the_copy(path: Path, kind: str) -> None:
    with_much_learnt(path)
    table_of = "judgements" if kind not in ("weight_changes", "golden") else kind
    change(path, *DAMAGED_ROWS[kind])
    with FeedbackStore.open(path, clock=lambda: NOON) as store:
        found = (len(store.judgements()), len(store.history()), len(store.golden()))
        assert found == tuple(
            n - (table_of == name) for name, n in (("judgements", 2), ("weight_changes", 1), ("golden", 2))
        )
        told = store.remark or ""
    assert table_of.replace("_", " ") in told
    assert next(path.parent.glob("*.damaged-*")).name in told

    for one in path.parent.iterdir():
        one.unlink()
    with_much_learnt(path)
    with FeedbackStore.open(path) as store:
        before = (store.judgements(), store.history(), store.golden())
    with FeedbackStore.open(path, clock=lambda: NOON + DAY) as store:
        store.add([judgement("b.md", relevance=0.0)])  # the copy has an earlier word, which must not return
        store.put_golden(store.golden()[:1])
    change(path, *DAMAGED_ROWS[kind])
    with FeedbackStore.open(path, clock=lambda: NOON + DAY) as store:
        assert store.judgements() == [before[0][0], judgement("b.md", relevance=0.0)]
        assert (store.history(), store.golden()) == (before[1], before[2][:1])
        assert "nothing is lost" in (store.remark or "")


@pytest.mark.parametrize("kind", ["x'6b'", "CAST(x'6bff' AS TEXT)"], ids=["bytes", "broken text"])
def test_a_row_whose_kind_is_damaged_is_told_in_text_that_can_be_printed(path: Path, kind: str) -> None:
    with FeedbackStore.open(path) as store:
        store.set_mark("day", "1")
        store.add([judgement()])
    execute(path, f"UPDATE entries SET kind = {kind} WHERE kind = 'judgements'")

    with FeedbackStore.open(path) as store:
        assert b"could be read" in (store.remark or "").encode()
        assert (store.mark("day"), store.judgements()) == ("1", [])


def test_forgetting_leaves_nothing_in_a_damaged_file_that_was_put_aside(path: Path) -> None:
    with FeedbackStore.open(path) as store:
        store.add([judgement("a.md", rationale="Ada is at home"), judgement("b.md", rationale="it fits")])
    change(path, b"it fits", b"it fitz")

    with FeedbackStore.open(path) as store:
        assert "is kept as" in (store.remark or "")
        store.mask(lambda text: text.replace("Ada", "[...]"))

        assert [one.rationale for one in store.judgements()] == ["[...] is at home"]
        assert [one.name for one in path.parent.iterdir() if b"Ada" in one.read_bytes()] == []


def test_a_row_that_changes_while_the_store_is_open_is_never_used(path: Path) -> None:
    with_much_learnt(path)
    with FeedbackStore.open(path) as store, FeedbackStore.open(path) as beside:
        execute(path, "UPDATE entries SET detail = replace(detail, '1.0', '0.5') WHERE key LIKE '%a.md%'")
        with pytest.raises(FeedbackError, match="damaged"):
            store.judgements()
        for one in (store, beside):
            assert [found.path for found in one.judgements()] == ["b.md"]
        assert "judgements" in (store.remark or "")


@pytest.mark.thorough
def test_a_large_store_is_looked_through_before_the_copy_of_a_day(path: Path) -> None:
    with FeedbackStore.open(path, clock=lambda: NOON) as store:
        store.add([judgement("a.md", rationale="it names the key")])
        store.add([judgement(f"{n}.md", rationale="why " * 250) for n in range(5000)])
    assert path.stat().st_size > MOST_CHECKED_BYTES
    change(path, b"it names the key", b"it names the kex")

    with FeedbackStore.open(path, clock=lambda: NOON + DAY) as store:
        assert store.remark is None, "not at every opening"
        store.set_mark("a", "b")
        assert "not all of judgements could be read" in (store.remark or "")
        assert len(store.judgements()) == 5000


def test_which_piece_was_judged_is_in_the_checksum(path: Path) -> None:
    with FeedbackStore.open(path) as store:
        store.add([replace(judgement(f"{at}.md"), start_char=at) for at in (0, 1280)])

    for before, after in ((0, 640), (1280, 0)):
        places = (f"'\"start_char\":{one}}}'" for one in (before, after))
        execute(path, f"UPDATE entries SET detail = replace(detail, {', '.join(places)})")
    with FeedbackStore.open(path) as store:
        assert store.judgements() == []
        assert "not all of judgements could be read" in (store.remark or "")


@pytest.mark.parametrize("statement", ["UPDATE entries SET detail = '{}'", "DELETE FROM entries"])
def test_history_cannot_be_changed(path: Path, statement: str) -> None:
    with FeedbackStore.open(path) as store:
        store.adopt(table(), base={}, actor="cli", at=NOON)

    with pytest.raises(sqlite3.IntegrityError, match="the history of weights is never changed"):
        execute(path, statement)


def test_a_folder_in_its_place_is_told(path: Path) -> None:
    path.mkdir(parents=True)

    with pytest.raises(FeedbackError, match=r"cannot be (read|opened)"):
        FeedbackStore.open(path)


def test_a_file_in_the_place_of_its_folder_is_told(path: Path) -> None:
    path.parent.write_text("here", encoding="utf-8")

    with pytest.raises(FeedbackError, match="cannot be opened"):
        FeedbackStore.open(path)


def test_a_store_that_another_holds_is_waited_for_within_the_limit(path: Path) -> None:
    FeedbackStore.open(path).close()
    execute(path, "PRAGMA journal_mode = DELETE")  # so that opening it has to write
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
