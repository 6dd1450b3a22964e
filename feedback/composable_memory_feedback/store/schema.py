"""The tables of the feedback store, and a checksum for every row that nothing else can bring back.

SQLite notices a broken page, but not a bit that changed within a text. The checksums are kept by triggers of
each connection of ours, so no statement can forget them, and whatever else changes the file is noticed.
"""

from sqlite3 import Connection
from zlib import crc32

from composable_memory_feedback.store.codecs import ROWS

APPLICATION_ID = 0x434D4662
"""Marks a file as a feedback store ("CMFb"), so that the database of another program is left alone."""

_JUDGEMENTS_TABLE = """
    CREATE TABLE judgements (
        id INTEGER PRIMARY KEY,
        trace_id TEXT NOT NULL,
        query_id TEXT NOT NULL,
        path TEXT NOT NULL,
        start_line INTEGER NOT NULL,
        end_line INTEGER NOT NULL,
        kind TEXT NOT NULL,
        judge TEXT NOT NULL,
        at TEXT NOT NULL,
        rank INTEGER NOT NULL,
        backend TEXT,
        intent TEXT NOT NULL,
        relevance REAL NOT NULL,
        was_used INTEGER NOT NULL,
        rationale TEXT NOT NULL,
        {column} UNIQUE (trace_id, query_id, path, start_line, end_line, {within} kind, judge)
    )
"""
_JUDGEMENTS = (
    _JUDGEMENTS_TABLE.format(column="", within=""),
    "CREATE INDEX judgements_by_time ON judgements (at)",
)

_JUDGEMENTS_OF_PIECES = (
    "ALTER TABLE judgements RENAME TO old_judgements",
    _JUDGEMENTS_TABLE.format(column="start_char INTEGER NOT NULL DEFAULT 0,", within="start_char,"),
    "INSERT INTO judgements SELECT *, 0 FROM old_judgements",
    "DROP TABLE old_judgements",
    "CREATE INDEX judgements_by_time ON judgements (at)",
)

_EVALUATIONS = (
    """
    CREATE TABLE evaluations (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        reserved_at TEXT NOT NULL,
        at TEXT,
        detail TEXT
    )
    """,
    "CREATE INDEX evaluations_by_reservation ON evaluations (reserved_at)",
)

_WEIGHTS = (
    """
    CREATE TABLE weight_tables (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        version TEXT NOT NULL UNIQUE,
        replaced TEXT,
        detail TEXT NOT NULL
    )
    """,
    """
    CREATE TABLE weight_changes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        version TEXT REFERENCES weight_tables (version),
        replaced TEXT,
        at TEXT NOT NULL,
        actor TEXT NOT NULL,
        action TEXT NOT NULL,
        reason TEXT NOT NULL,
        base TEXT NOT NULL,
        gain TEXT
    )
    """,
)

_EXPERIMENTS = (
    """
    CREATE TABLE experiments (
        id TEXT PRIMARY KEY,
        memory TEXT,
        state TEXT NOT NULL,
        started_at TEXT NOT NULL,
        detail TEXT NOT NULL
    )
    """,
    """
    CREATE UNIQUE INDEX one_running_experiment ON experiments (coalesce(memory, ''))
    WHERE state = 'running'
    """,
    """
    CREATE TABLE outcomes (
        id INTEGER PRIMARY KEY,
        experiment_id TEXT NOT NULL,
        trace_id TEXT NOT NULL,
        query_id TEXT NOT NULL,
        at TEXT NOT NULL,
        a REAL NOT NULL,
        b REAL NOT NULL,
        UNIQUE (experiment_id, trace_id, query_id)
    )
    """,
    """
    CREATE TABLE golden (
        id INTEGER PRIMARY KEY,
        question TEXT NOT NULL,
        query TEXT NOT NULL
    )
    """,
)

_MARKS = ("CREATE TABLE marks (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",)

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


def _append_only(table: str) -> tuple[str, ...]:
    return tuple(
        f"""
        CREATE TRIGGER {table}_{event.lower()} BEFORE {event} ON {table}
        BEGIN SELECT RAISE(ABORT, 'what stands in {table} is never changed'); END
        """
        for event in ("UPDATE", "DELETE")
    )


MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        *_JUDGEMENTS,
        *_EVALUATIONS,
        *_WEIGHTS,
        *_EXPERIMENTS,
        *_MARKS,
        *_append_only("weight_tables"),
        *_append_only("weight_changes"),
    ),
    (
        """
        CREATE TABLE row_checksums (
            of_table TEXT NOT NULL,
            row NOT NULL,
            checksum INTEGER NOT NULL,
            PRIMARY KEY (of_table, row)
        ) WITHOUT ROWID
        """,
    ),
    _JUDGEMENTS_OF_PIECES,
    tuple(f"DROP TABLE IF EXISTS {one}" for one in ("backend_queries", "shadows", "audits")),
)
"""The statements that lead from each version to the next; the last drops what only earlier ones made."""

CHECKSUMS_SINCE = 2
"""The version since which rows have checksums."""

VERSION = len(MIGRATIONS)


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
    return f"rows have been altered: {', '.join(damaged)}" if damaged else None


def _filled(connection: Connection, statement: str, table: str) -> str:
    return statement.format(table=table, key=KEYS[table], checksum=row_checksum(connection, table))


def _checksum(*values: object) -> int:
    return crc32(repr(values).encode())


def _checked(found: int, written: int | None) -> bool:
    if found != written:
        raise ValueError("the row has been altered")  # SQLite makes an error of the statement of it
    return True
