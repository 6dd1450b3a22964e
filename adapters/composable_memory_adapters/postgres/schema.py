"""The tables of the PostgreSQL memory: numbered migrations, one transaction each, under one lock."""

import re
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Protocol

from composable_memory_ops_logs.quick_dataclass import dataclass

MIGRATIONS = Path(__file__).with_name("migrations")
LOCK = 0x636D656D
"""The advisory lock for changing tables and making indexes: the letters "cmem"."""

AGAIN_S = 0.1
"""How often to retry for that lock, each time in another transaction."""

COMMENT = re.compile("--.*")
STATEMENT = re.compile(r"(?:\$\$.*?\$\$|[^;$])+;", re.DOTALL)
"""One at a time, as Citus requires for statements that change distributed tables."""

FOR_CITUS = """
SET LOCAL citus.multi_shard_modify_mode = 'sequential'; SET LOCAL citus.show_shards_for_app_name_prefixes = ''
"""
"""Change its servers one after the other, and do not mistake a shard for a table."""

VERSION = 15
"""The version that this code reads and writes: the number of the last migration."""

LONGEST_S = 86_400.0
"""Time limit of a statement that changes tables: some rewrite everything on the server."""


class Session(Protocol):
    """The part of a connection that is needed here."""

    async def execute(self, query: str, /, *, timeout: float | None = None) -> object:  # noqa: ASYNC109
        """Run statements within this many seconds."""
        ...

    async def fetchval(self, query: str, /, *values: object) -> object:
        """Return the first value of the first row."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """The version of the tables before and after; 0 means no tables."""

    before: int
    after: int


def migrations() -> Sequence[Sequence[str]]:
    """Return the statements of each migration, in order; reads files."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(MIGRATIONS.glob("*.sql"))]
    return [STATEMENT.findall(COMMENT.sub("", text)) for text in texts]


async def version(session: Session, schema: str) -> int:
    """Return the version of the tables in a schema, 0 without tables."""
    table = f"{schema}.schema_version"
    if await session.fetchval("SELECT to_regclass($1)::text", table) is None:
        return 0
    found = await session.fetchval(f"SELECT version FROM {table}")  # noqa: S608 - the schema's name is checked
    return found if isinstance(found, int) else 0


async def migrate(session: Session, schema: str, steps: Sequence[Sequence[str]]) -> Migrated | None:
    """Create the tables or migrate them to this version, within the caller's transaction.

    Newer tables stay as they are. Does nothing and returns None if another process is doing it.
    """
    assert re.fullmatch("[a-z_][a-z0-9_]*", schema)
    await session.execute(f"SET LOCAL statement_timeout = {int(LONGEST_S * 1000)}; {FOR_CITUS}")
    # Do not wait for the lock: its holder may be making an index, which waits for all open transactions.
    if not await session.fetchval(f"SELECT pg_try_advisory_xact_lock({LOCK})"):
        return None
    before = await version(session, schema)
    if before == 0:
        await session.execute(
            f"CREATE SCHEMA IF NOT EXISTS {schema};"  # noqa: S608 - as above
            f"CREATE TABLE {schema}.schema_version (version int NOT NULL);"
            f"INSERT INTO {schema}.schema_version VALUES (0)"
        )
    if steps[before:]:  # others wait here before they read the version, and then see the new one
        await session.execute(f"LOCK TABLE {schema}.schema_version", timeout=LONGEST_S)
    for statement in chain.from_iterable(steps[before:]):
        await session.execute(statement, timeout=LONGEST_S)
    after = max(before, len(steps))
    await session.execute(f"UPDATE {schema}.schema_version SET version = {after}")  # noqa: S608
    return Migrated(before=before, after=after)
