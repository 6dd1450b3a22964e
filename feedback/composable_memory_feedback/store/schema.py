"""The tables of the feedback store, as the steps by which a file becomes one of the present version."""

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
