"""Golden questions in the feedback store, each with all candidates of the time when it was asked."""

from collections.abc import Iterable
from sqlite3 import Connection

from composable_memory_feedback.golden import GoldenQuestion, GoldenRecord
from composable_memory_feedback.store.codecs import Codec, Kept, logged_query_of, logged_query_text

__all__ = ["QUESTIONS", "clear_golden", "put_golden", "read_golden"]

QUESTIONS = Codec(what="golden question", model=Kept[GoldenQuestion])

_PUT = "INSERT INTO golden (question, query) VALUES (?, ?)"

_SELECT = "SELECT question, query FROM checked_golden ORDER BY id"

_CLEAR = "DELETE FROM golden"


def put_golden(connection: Connection, records: Iterable[GoldenRecord]) -> None:
    """Keep records in the place of all that were kept before."""
    clear_golden(connection)
    connection.executemany(
        _PUT, [(QUESTIONS.write(one.question), logged_query_text(one.query)) for one in records]
    )


def read_golden(connection: Connection) -> list[GoldenRecord]:
    """Return the records in the order in which they were put."""
    return [
        GoldenRecord(question=QUESTIONS.read(row["question"]), query=logged_query_of(row["query"]))
        for row in connection.execute(_SELECT)
    ]


def clear_golden(connection: Connection) -> None:
    """Keep no golden questions any more."""
    connection.execute(_CLEAR)
