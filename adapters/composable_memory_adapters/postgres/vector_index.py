"""A vector index for each large workspace, which finds the nearest without comparing all.

Each workspace has its own: an index over all tenants finds little for a small one, and slows every writer.
Only the owner of the tables can make one.
"""

from collections.abc import Mapping, Sequence

from composable_memory.errors import ConfigError
from composable_memory_adapters.postgres import schema, writing
from composable_memory_adapters.postgres.server import Connection, Record, Server
from composable_memory_ops_logs.quick_dataclass import dataclass

INDEXED_ABOVE = 100_000
"""Vectors of a workspace: with fewer, comparing all takes no longer than the rest of a query."""

PGVECTOR = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
OLDEST_PGVECTOR = (0, 8)
"""Earlier versions stop before they have found as many as requested."""

MOST_NUMBERS = 4_000
"""pgvector cannot index longer vectors."""

EXISTING = """
SELECT relname, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE indrelid = 'vectors'::regclass AND starts_with(relname, 'nearest_')
"""
MADE_OF = f"""
SELECT coalesce(max(split_part(relname, '_', 4)::int), 0) FROM ({EXISTING}) AS found
WHERE indisvalid AND starts_with(relname, $1)
"""  # noqa: S608 - our own text
LAST_TENANT = "SELECT last_value FROM workspaces_tenant_seq"
ABOUT = """
SELECT name, space, (SELECT count(*) FROM vectors WHERE tenant = $1) AS vectors
FROM workspaces JOIN workspace_states ON workspace_states.tenant = $1 WHERE workspaces.tenant = $1
"""
ENTER = "SET LOCAL cmem.tenant = '{}'"
# IVFFlat, not HNSW: with notes in several languages a graph finds nothing near some questions. Vectors of
# another length, as while a workspace is embedded anew, are left out.
MAKE = """
CREATE INDEX CONCURRENTLY {name} ON vectors
USING ivfflat ((vector::halfvec({dims})) halfvec_ip_ops) WITH (lists = {lists})
WHERE tenant = {tenant} AND vector_dims(vector) = {dims}
"""
GROWN = 2
"""An index is remade when its workspace has this many times the vectors it was made from."""

DROP = "DROP INDEX CONCURRENTLY {name}"

MOST = 200
"""Neighbours that the index can be asked for; for more, all vectors are compared."""

MOST_PARTS = 1000
VECTORS_A_PART = 100
"""Minimum, up to `MOST_PARTS`."""

# pgvector refuses to build lists with less memory than it may need, mostly for a sample and the distances of
# each to each list. A server gives 64 MB by default; a thousand lists take about 250.
MEMORY = """
SELECT set_config('maintenance_work_mem', greatest(
  pg_size_bytes(current_setting('maintenance_work_mem')) / 1024, $1::bigint
) || 'kB', false)
"""
SAMPLED = 50
"""Vectors that pgvector samples for each list,"""
LEAST_SAMPLED = 10_000
"""and the minimum for all lists."""

LOOK = "SET LOCAL ivfflat.probes = 192; SET LOCAL ivfflat.iterative_scan = relaxed_order"
"""Lists to search; more are searched if these have too few."""

# More are fetched than wanted, since the index has rounded numbers. The statement names the workspace;
# otherwise the server does not see that the index applies.
NEAREST = """
SELECT nearest.id, cosine, passages.id FROM (
  SELECT id, hash, -(vector <#> $1) AS cosine FROM (
    SELECT id, hash, vector FROM vectors WHERE tenant = {tenant} AND vector_dims(vector) = {dims}
    ORDER BY vector::halfvec({dims}) <#> $1::vector::halfvec({dims}) LIMIT 2 * $2
  ) AS found ORDER BY vector <#> $1, id LIMIT $2
) AS nearest JOIN passages ON passages.tenant = {tenant} AND passages.hash = nearest.hash
ORDER BY cosine DESC, nearest.id, passages.id
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Indexed:
    """A workspace whose vectors have an index, just lost it, or cannot have one because of a `problem`."""

    workspace: str
    vectors: int
    is_new: bool
    is_gone: bool
    problem: str | None = None


async def made_of(connection: Connection, tenant: int, space: str | None) -> int:
    """Return how many vectors a workspace had when its index was made; 0 without an index."""
    return int(await connection.fetchval(MADE_OF, _prefix(tenant, space))) if space else 0


async def nearest(
    connection: Connection, tenant: int, space: str, direction: bytes, depth: int
) -> Sequence[Record]:
    """Return id, cosine and passage of the nearest vectors by the index, nearest first, a row per passage."""
    await connection.execute(LOOK)
    query = NEAREST.format(tenant=tenant, dims=writing.space_of(space).dims)
    rows: Sequence[Record] = await connection.fetch(query, direction, depth)
    return rows


async def keep_up(server: Server, *, above: int = INDEXED_ABOVE) -> Sequence[Indexed]:
    """Make an index for each workspace with more vectors than `above`; drop those with at most half as many.

    The index of a workspace that has doubled is remade, and the old one serves until then. Reads and writes
    continue meanwhile. A million vectors take minutes.

    Raises:
        BackendError: this role may not, somebody else is doing it, or there is a pooler.
        ConfigError: pgvector is too old.
    """
    indexed: list[Indexed] = []
    async with server.alone("index vectors") as connection:
        version = str(await connection.fetchval(PGVECTOR))
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_PGVECTOR:
            raise ConfigError("pgvector", f"it is {version}, but a vector index needs 0.8")
        names = dict(map(tuple, await connection.fetch(EXISTING)))
        for tenant in range(1, await connection.fetchval(LAST_TENANT) + 1):
            async with connection.transaction():
                await connection.execute(ENTER.format(tenant))
                about = await connection.fetchrow(ABOUT, tenant)
            if about is not None and about["space"]:
                own = {one: valid for one, valid in names.items() if one.startswith(f"nearest_{tenant}_")}
                if found := await _kept_up(connection, tenant, own, about, above=above):
                    indexed.append(found)
    return indexed


async def _kept_up(
    connection: Connection, tenant: int, names: Mapping[str, bool], about: Record, *, above: int
) -> Indexed | None:
    """Make or drop a workspace's index, given the names of those it has, some perhaps invalid."""
    workspace, space, vectors = about
    prefix, dims = _prefix(tenant, space), writing.space_of(space).dims
    whole = {int(one.removeprefix(prefix)): one for one in names if names[one] and one.startswith(prefix)}
    latest = max(whole, default=0)
    is_kept = latest > 0 and above // 2 < vectors <= max(above, GROWN * latest)
    is_wanted = vectors > above and not is_kept
    is_new = is_wanted and dims <= MOST_NUMBERS
    gone = sorted(names.keys() - ({whole[latest]} if is_kept else ()), key=names.__getitem__)

    async def drop(is_whole: bool) -> None:
        for one in gone:
            if names[one] is is_whole:
                await connection.execute(DROP.format(name=one), timeout=schema.LONGEST_S)

    await drop(is_whole=False)
    if is_new:
        parts = min(MOST_PARTS, vectors // VECTORS_A_PART + 1)
        await connection.execute(MEMORY, _memory_kb(parts, dims))
        make = MAKE.format(name=f"{prefix}{vectors}", tenant=tenant, dims=dims, lists=parts)
        await connection.execute(make, timeout=schema.LONGEST_S)
    await drop(is_whole=True)
    if gone or is_new:
        # Readers look for the index when the revision changes.
        async with connection.transaction():
            await connection.execute(ENTER.format(tenant))
            await connection.execute(writing.LOCK, tenant)
    if not (names or is_wanted):
        return None
    problem = f"each has {dims} numbers, and pgvector indexes {MOST_NUMBERS} at most"
    return Indexed(
        workspace=workspace,
        vectors=vectors,
        is_new=is_new,
        is_gone=bool(names) and not (is_kept or is_new),
        problem=problem if is_wanted and not is_new else None,
    )


def _memory_kb(parts: int, dims: int) -> int:
    """Return the memory that pgvector may need to build the lists, in kB, with a small margin."""
    vector = 2 * dims + 32
    sampled = max(SAMPLED * parts, LEAST_SAMPLED) * (4 * parts + vector)
    return (sampled + parts * (4 * parts + 4 * vector)) // 1_000


def _prefix(tenant: int, space: str) -> str:
    """Return the name prefix of indexes of these vectors; it is followed by the number of vectors indexed."""
    return f"nearest_{tenant}_{writing.space_of(space).dims}_"
