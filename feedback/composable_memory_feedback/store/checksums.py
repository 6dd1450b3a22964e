"""A checksum for every row that nothing else can bring back.

SQLite notices a broken page, but not a bit that changed within a text. The checksums are kept by triggers of
each connection of ours, so no statement can forget them, and whatever else changes the file is noticed.
"""

from sqlite3 import Connection
from zlib import crc32

from composable_memory_feedback.store.codecs import ROWS

KEYS = {table: "number" if table == "weight_tables" else "id" for table in ROWS}
"""The tables whose rows have a checksum, with the column that tells their rows apart."""

_ADDED = {"judgements": "start_char"}
"""The last column of a table that earlier versions had without it; it counts where it is not 0.

So rows that were brought to this version keep the checksums that they were written with.
"""

_SUM = "INSERT INTO row_checksums SELECT '{table}', {key}, {checksum} FROM {table}"

# The plus takes the type of the column away, with which the index of `row_checksums` would not be used.
_CLEAR = "DELETE FROM row_checksums WHERE of_table = '{table}' AND row = +old.{key}"
_TRIGGER = "CREATE TEMP TRIGGER IF NOT EXISTS sum_{event}_{{table}} AFTER {event} ON main.{{table}}"
_SUM_NEW = f"{_SUM} WHERE {{key}} = new.{{key}}"

_KEEP = (
    f"{_TRIGGER.format(event='INSERT')} BEGIN {_CLEAR.replace('old.', 'new.')}; {_SUM_NEW}; END",
    f"{_TRIGGER.format(event='UPDATE')} BEGIN {_CLEAR}; {_SUM_NEW}; END",
    f"{_TRIGGER.format(event='DELETE')} BEGIN {_CLEAR}; END",
    """
    CREATE TEMP VIEW IF NOT EXISTS checked_{table} AS SELECT rowid AS place, * FROM main.{table}
    WHERE checked(
        {checksum}, (SELECT checksum FROM row_checksums WHERE of_table = '{table}' AND row = +{key})
    )
    """,
)

_DAMAGED = """
SELECT (
    SELECT count(*) FROM {table} LEFT JOIN row_checksums ON of_table = '{table}' AND row = +{key}
    WHERE checksum IS NOT {checksum}
) + (
    SELECT count(*) FROM row_checksums
    WHERE of_table = '{table}' AND row NOT IN (SELECT {key} FROM {table})
)
"""


def row_checksum(connection: Connection, table: str) -> str:
    """Return the expression for the checksum of a row, which this connection can calculate from then on."""
    connection.create_function("row_checksum", -1, _checksum)
    names = [row[0] for row in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))]
    # As bytes: what is no text any more could not be handed over.
    values = [f"iif(typeof({name}) = 'text', CAST({name} AS BLOB), {name})" for name in names]
    whole = f"row_checksum({', '.join(values)})"
    if names[-1:] != [_ADDED.get(table)]:
        return whole
    return f"iif({names[-1]} = 0, row_checksum({', '.join(values[:-1])}), {whole})"


def keep_checksums(connection: Connection) -> None:
    """Have a connection keep checksums of what it writes, and check what it reads from `checked_<table>`."""
    connection.create_function("checked", 2, _checked)
    connection.execute("BEGIN")
    for table in KEYS:
        checksum = row_checksum(connection, table)
        for statement in _KEEP:
            connection.execute(statement.format(table=table, key=KEYS[table], checksum=checksum))
    connection.execute("COMMIT")


def fill_checksums(connection: Connection) -> None:
    """Calculate all checksums anew, for tables of an earlier version."""
    connection.execute("DELETE FROM row_checksums")
    for table in KEYS:
        connection.execute(_filled(connection, _SUM, table))


def damaged_rows(connection: Connection) -> str | None:
    """Return in which tables rows are not as they were written, or gone; None where all are well."""
    damaged = []
    for table in KEYS:
        (count,) = connection.execute(_filled(connection, _DAMAGED, table)).fetchone()
        if count:
            damaged.append(f"{count} of {table.replace('_', ' ')}")
    return f"rows are not as they were written: {', '.join(damaged)}" if damaged else None


def _filled(connection: Connection, statement: str, table: str) -> str:
    return statement.format(table=table, key=KEYS[table], checksum=row_checksum(connection, table))


def _checksum(*values: object) -> int:
    return crc32(repr(values).encode())


def _checked(found: int, written: int | None) -> bool:
    if found != written:
        raise ValueError("the row is not as it was written")  # SQLite makes an error of the statement of it
    return True
