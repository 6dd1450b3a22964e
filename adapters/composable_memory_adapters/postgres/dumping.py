"""Copies all workspaces to one file with `pg_dump`, which handles tables, privileges and sequences."""

import asyncio
import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path

from composable_memory.errors import BackendError, BackendUnavailable, ConfigError
from composable_memory.supervision.run_command import run_command
from composable_memory_adapters.postgres import schema
from composable_memory_adapters.postgres.server import Address, Server
from composable_memory_ops_logs.private_files import replacing

PROGRAM = "pg_dump"
OPERATION = "back up"


async def dump(server: Server, file: Path, *, backend_id: str, environ: Mapping[str, str]) -> int:
    """Copy the tables to a new file that only its owner may read, and return its size in bytes.

    Raises:
        BackendError: `pg_dump` is missing or fails; no file is left.
        ConfigError: the file exists, there are no tables, or the role does not see all rows.
    """
    if await asyncio.to_thread(file.exists):
        raise ConfigError("FILE", f"{file} already exists; choose a new file")
    if not await server.version():
        raise ConfigError("schema", f"there are no tables in {server.schema} at {server.address}")
    if not (await server.facts())["bypasses"]:
        problem = f"{server.address.user} cannot see the rows of all workspaces; use a role that can"
        raise ConfigError("--url-env", problem)
    program = await asyncio.to_thread(shutil.which, PROGRAM, path=environ.get("PATH"))
    if program is None:
        problem, fix = (
            f"{PROGRAM} was not found",
            "install PostgreSQL's client programs, not older than the server",
        )
        raise BackendUnavailable(backend_id, problem, fix=fix, operation=OPERATION)
    options = ["--format=custom", "--no-password", f"--schema={server.schema}"]
    async with AsyncExitStack() as stack:
        block = replacing(file, survives="power cut")
        scratch = await asyncio.to_thread(block.__enter__)
        stack.push_async_exit(lambda *raised: asyncio.to_thread(block.__exit__, *raised))
        reply = await run_command(
            [program, *options, f"--file={scratch}"],
            owner=backend_id,
            operation=OPERATION,
            environ={**environ, **_variables(server.address)},
            cwd=file.parent,
            timeout_s=schema.LONGEST_S,
        )
        if reply.code:
            raise BackendError(backend_id, OPERATION, reply.stderr.strip() or f"{PROGRAM}: {reply.code}")
        return (await asyncio.to_thread(scratch.stat)).st_size


def _variables(address: Address) -> dict[str, str]:
    """Return the server's address as environment variables; a password must not be in a command line."""
    roots = address.sslrootcert or ("system" if address.sslmode == "verify-full" else "")
    return {
        "PGHOST": address.host,
        "PGPORT": str(address.port),
        "PGUSER": address.user,
        "PGPASSWORD": address.password,
        "PGDATABASE": address.database,
        "PGSSLMODE": address.sslmode,
        **({"PGSSLROOTCERT": roots} if roots else {}),
    }
