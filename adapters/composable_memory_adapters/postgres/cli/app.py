"""`cmem postgres`: make the tables, bring them up to date, say how the server is and whose notes it has."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from composable_memory.cli.plugin_api import AsJson, Target, command, counted, print_json, print_line, warn
from composable_memory.config.layers import load_settings, validate_backend_options
from composable_memory.errors import ConfigError
from composable_memory.json_documents import document
from composable_memory.registry import discover_backends
from composable_memory.state.workspaces import identify
from composable_memory.supervision.resource import closing
from composable_memory_adapters.postgres import PostgresSettings, schema, spec, vector_index, writing
from composable_memory_adapters.postgres.cli import postgres as command_spec
from composable_memory_adapters.postgres.dumping import dump
from composable_memory_adapters.postgres.schema import Migrated
from composable_memory_adapters.postgres.server import Server, address_of
from composable_memory_adapters.postgres.snapshot import read_state
from composable_memory_ops_logs import utc_now

postgres = typer.Typer(help=command_spec.summary, no_args_is_help=True)

Which = Annotated[
    str | None,
    typer.Option("--backend", metavar="ID", help="The backend; default: the one in PostgreSQL."),
]
UrlEnv = Annotated[
    str | None,
    typer.Option(
        "--url-env",
        metavar="NAME",
        help="The environment variable with the URL for the tables' owner; default: as in the settings.",
    ),
]


@command(postgres, "init", epilog="Example: cmem postgres init --url-env ADMIN_URL --grant-to team")
async def init(
    target: Target,
    *,
    grant_to: Annotated[
        str | None,
        typer.Option(
            "--grant-to", metavar="ROLE", help="Grant this role read and write access to the tables."
        ),
    ] = None,
    url_env: UrlEnv = None,
    backend: Which = None,
    as_json: AsJson = False,
) -> None:
    """Create the extension and the tables, or bring them up to date."""
    async with opened_server(target, backend, url_env) as server:
        found = await server.migrate()
        if grant_to:
            await server.grant(grant_to)
    _print_migrated(found, server, as_json=as_json)


@command(postgres, "migrate", epilog="Example: cmem postgres migrate --url-env ADMIN_URL")
async def migrate(
    target: Target, *, url_env: UrlEnv = None, backend: Which = None, as_json: AsJson = False
) -> None:
    """Bring the tables up to date with this version."""
    async with opened_server(target, backend, url_env) as server:
        if not await server.version():
            problem = f"there are no tables in {server.schema}; run `cmem postgres init`"
            raise ConfigError("schema", problem)
        found = await server.migrate()
    _print_migrated(found, server, as_json=as_json)


@command(postgres, "distribute", epilog="Example: cmem postgres distribute --url-env ADMIN_URL")
async def distribute(
    target: Target, *, url_env: UrlEnv = None, backend: Which = None, as_json: AsJson = False
) -> None:
    """Distribute the tables over a Citus cluster; repeat after an upgrade."""
    async with opened_server(target, backend, url_env) as server:
        spread = await server.distribute()
    if as_json:
        print_json(document(address=str(server.address), schema=server.schema, spread=spread))
    else:
        print_line(f"{counted(spread, 'table')} of {server.schema} newly distributed from {server.address}.")


@command(postgres, "index", epilog="Example: cmem postgres index --url-env ADMIN_URL")
async def index(
    target: Target,
    *,
    above: Annotated[
        int,
        typer.Option("--above", min=1, help="The number of vectors up to which a workspace needs no index."),
    ] = vector_index.INDEXED_ABOVE,
    url_env: UrlEnv = None,
    backend: Which = None,
    as_json: AsJson = False,
) -> None:
    """Create a vector index for each large workspace, and drop those of small ones."""
    async with opened_server(target, backend, url_env) as server:
        indexed = await vector_index.keep_up(server, above=above)
    if as_json:
        print_json(document(address=str(server.address), schema=server.schema, indexed=indexed))
        return
    for one in indexed:
        has = "has no index any more" if one.is_gone else "has an index now" if one.is_new else "has an index"
        has = f"can have no index: {one.problem}" if one.problem else has
        print_line(f"The workspace {one.workspace!r}, of {counted(one.vectors, 'vector')}, {has}.")
    if not indexed:
        print_line(f"No workspace has more than {counted(above, 'vector')}.")


@command(postgres, "status", epilog="Example: cmem postgres status --json")
async def status(
    target: Target, *, url_env: UrlEnv = None, backend: Which = None, as_json: AsJson = False
) -> None:
    """Show whether the server answers, its version and the tables' version, and who can see what."""
    async with opened_server(target, backend, url_env) as server:
        facts = await server.facts()
        version = await server.version()
        found = await _found(target, server) if version == schema.VERSION else None
    if as_json:
        about = document(address=str(server.address), schema=server.schema, tables=version)
        about |= document(workspace=document(**found) if found else None)
        print_json(about | document(known=schema.VERSION, **facts))
    else:
        vectors = facts["pgvector"] or "missing"
        print_line(f"{server.address} answers: PostgreSQL {facts['server']}, pgvector {vectors}.")
        print_line(
            f"The tables in {server.schema} are version {version}; this program knows {schema.VERSION}."
        )
        if found:
            by = f"an index, made of {found['indexed_vectors']}" if found["vector_index"] else "comparing all"
            passages = counted(int(found["passages"]), "passage")
            print_line(f"The workspace {found['name']!r} has {passages}; vectors by {by}.")
            if found["has_outgrown_index"]:
                warn("hint: it has grown since; ask the tables' owner to run `cmem postgres index`")
    if facts["bypasses"]:
        warn("this role bypasses row-level security; connect the memory as a role that does not")


@command(postgres, "backup", epilog="Example: cmem postgres backup ~/team.dump --url-env ADMIN_URL")
async def backup(
    target: Target,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, for `pg_restore`.")],
    *,
    url_env: UrlEnv = None,
    backend: Which = None,
    as_json: AsJson = False,
) -> None:
    """Copy the tables, with all workspaces, to a file by `pg_dump`; needs a role that sees all rows."""
    backend_id, _ = await asyncio.to_thread(settings_of, target, backend)
    path = target.path(file)
    async with opened_server(target, backend, url_env) as server:
        size = await dump(server, path, backend_id=backend_id, environ=os.environ)
    if as_json:
        print_json(document(address=str(server.address), schema=server.schema, file=path, bytes=size))
    else:
        print_line(f"Copied {server.schema} at {server.address} to {path}, {size:,} bytes.")


@command(postgres, "owners", epilog="Example: cmem postgres owners --json")
async def owners(target: Target, *, backend: Which = None, as_json: AsJson = False) -> None:
    """List the folders that have contributed notes to the workspace."""
    async with opened_server(target, backend, None) as server:
        workspace, tenant = await tenant_of(target, server)
        found = await server.read("list owners", partial(writing.owners, tenant=tenant), tenant=tenant)
    if as_json:
        print_json(document(workspace=workspace, owners=[document(**asdict(one)) for one in found]))
        return
    for one in found:
        print_line(
            f"{one.name}: {counted(one.notes, 'note')}, {one.alone} of them only from here; latest from"
            f" {one.latest.astimezone():%Y-%m-%d}"
        )
    if not found:
        print_line(f"Nobody has contributed notes to {workspace!r}.")


@command(postgres, "leave", epilog="Example: cmem postgres leave oldlaptop:1f2e3d4c --yes")
async def leave(
    target: Target,
    owner: Annotated[
        str, typer.Argument(metavar="OWNER", help="The owner, as listed by `cmem postgres owners`.")
    ],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only show what would go.")] = False,
    backend: Which = None,
    as_json: AsJson = False,
) -> None:
    """Remove from the server what a folder contributed that no longer syncs; its own files stay."""
    async with opened_server(target, backend, None) as server:
        workspace, tenant = await tenant_of(target, server)
        found = await server.read("list owners", partial(writing.owners, tenant=tenant), tenant=tenant)
        known = {one.name: one for one in found}
        if owner not in known:
            names = ", ".join(known) or "nobody"
            raise ConfigError("OWNER", f"{owner!r} has contributed nothing to {workspace!r}; {names} has")
        if yes:
            remove = partial(writing.remove_owner, tenant=tenant, owner=owner)
            await server.write("remove an owner", remove, tenant=tenant)
    gone = known[owner]
    if as_json:
        print_json(document(workspace=workspace, owner=owner, notes=gone.alone, is_removed=yes))
    elif yes:
        print_line(f"Removed {counted(gone.alone, 'note')} of {owner} from {workspace!r}.")
    else:
        print_line(f"{counted(gone.alone, 'note')} of {owner} would go from {workspace!r}.")
        warn("hint: nothing was removed; add --yes to remove them")


async def _found(target: Target, server: Server) -> dict[str, str | int] | None:
    """Return name and size of the workspace; None if it does not exist."""
    try:
        name, tenant = await tenant_of(target, server)
    except ConfigError:  # or there is no state folder, since nothing was indexed here yet
        return None
    look = partial(read_state, tenant=tenant, known=None)
    state = await server.read("check the workspace", look, tenant=tenant)
    return {
        "name": name,
        "passages": state.passages,
        "vector_index": state.indexed > 0,
        "indexed_vectors": state.indexed,
        "has_outgrown_index": 0 < state.indexed < state.passages / vector_index.GROWN,
    }


async def tenant_of(target: Target, server: Server) -> tuple[str, int]:
    """Return the name of the workspace and its number.

    Raises:
        ConfigError: it is not on the server.
    """
    workspace = server.workspace
    if workspace is None:
        workspace = await asyncio.to_thread(own_workspace, target)
    tenant = await server.tenant("find the workspace", workspace)
    if tenant is None:
        raise ConfigError("workspace", f"the server has no workspace named {workspace!r}")
    return workspace, tenant


def own_workspace(target: Target) -> str:
    """Return the id of the folder's workspace."""
    loaded = load_settings(target.path(target.workspace), state_dir=target.state_dir)
    folder = target.path(target.workspace)
    return identify(target.state_folder(), folder, now=utc_now(), name=loaded.settings.memory.id).id


@asynccontextmanager
async def opened_server(target: Target, backend: str | None, url_env: str | None) -> AsyncIterator[Server]:
    """Yield the server of a backend of this kind in the settings."""
    backend_id, settings = await asyncio.to_thread(settings_of, target, backend)
    if url_env:
        settings = settings.model_copy(update={"url": None, "url_env": url_env})
    address = address_of(settings, os.environ, backend_id)
    async with closing(Server(settings, address, backend_id)) as server:
        yield server


def settings_of(target: Target, backend: str | None) -> tuple[str, PostgresSettings]:
    """Return id and settings of the PostgreSQL backend; reads files.

    Raises:
        ConfigError: there is none with this id, or several and no id is given.
    """
    registry = discover_backends()
    loaded = load_settings(target.path(target.workspace), state_dir=target.state_dir, registry=registry)
    memory = loaded.settings.memory
    kinds = {spec.id: spec.id} | memory.kinds
    ids = [id_ for id_ in memory.sections if kinds.get(id_) == spec.id and memory.section(id_).enabled]
    if backend is None and len(ids) > 1:
        raise ConfigError("--backend", f"there are several; name one of {', '.join(ids)}")
    if backend is not None and backend not in ids:
        raise ConfigError("--backend", f"no enabled backend {backend!r} is in PostgreSQL")
    backend_id = backend or (ids[0] if ids else spec.id)
    offered = registry.with_kinds(memory.kinds).backend(backend_id)
    if offered is None or offered.spec is None or offered.missing:
        problem = (offered.problem or offered.missing) if offered else "reinstall composable-memory"
        raise ConfigError("memory.backend", f"{backend_id}: {problem}")
    settings = validate_backend_options(memory, offered.spec, loaded.origins)
    assert isinstance(settings, PostgresSettings)
    return backend_id, settings


def _print_migrated(found: Migrated, server: Server, *, as_json: bool) -> None:
    if as_json:
        print_json(document(schema=server.schema, before=found.before, after=found.after))
    elif found.before == found.after:
        print_line(f"The tables in {server.schema} are of version {found.after} already.")
    else:
        print_line(f"The tables in {server.schema} are of version {found.after} now, at {server.address}.")
