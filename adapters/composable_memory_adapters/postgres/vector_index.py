"""An index of the vectors of each large workspace, by which the nearest are found without comparing all.

Each has one of its own: one over all tenants finds little of what a small one has, and slows every writer.
Only the owner of the tables can make it.
"""

from collections.abc import Mapping, Sequence

from composable_memory.errors import ConfigError
from composable_memory_adapters.postgres import schema, writing
from composable_memory_adapters.postgres.server import Connection, Record, Server
from composable_memory_ops_logs.quick_dataclass import dataclass

INDEXED_ABOVE = 100_000
"""Vectors of a workspace: comparing fewer takes no longer than all else of a question."""

PGVECTOR = "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
OLDEST_PGVECTOR = (0, 8)
"""Earlier ones stop before they have found as many as were asked for."""

MOST_NUMBERS = 4_000
"""Of longer vectors pgvector makes no index."""

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
# Parted by what is alike, and no graph (HNSW): of notes in several languages a graph finds nothing near some
# questions. Vectors of another length, as of a workspace that is embedded anew, do not come into it.
MAKE = """
CREATE INDEX CONCURRENTLY {name} ON vectors
USING ivfflat ((vector::halfvec({dims})) halfvec_ip_ops) WITH (lists = {lists})
WHERE tenant = {tenant} AND vector_dims(vector) = {dims}
"""
GROWN = 2
"""An index is made anew when its workspace has so many times the vectors that were parted for it."""

DROP = "DROP INDEX CONCURRENTLY {name}"

MOST = 200
"""So many neighbours are looked for by the index; who wants more compares all."""

MOST_PARTS = 1000
VECTORS_A_PART = 100
"""At least, until there are so many parts."""

# pgvector refuses to part vectors with less memory than it may need for that, mostly for a sample with
# the distance of each to each part. By default a server gives 64 MB; a thousand parts take some 250.
MEMORY = """
SELECT set_config('maintenance_work_mem', greatest(
  pg_size_bytes(current_setting('maintenance_work_mem')) / 1024, $1::bigint
) || 'kB', false)
"""
SAMPLED = 50
"""Of each part pgvector looks at so many vectors,"""
LEAST_SAMPLED = 10_000
"""and at no fewer of all."""

LOOK = "SET LOCAL ivfflat.probes = 192; SET LOCAL ivfflat.iterative_scan = relaxed_order"
"""In so many parts, and in further ones where these hold too few."""

# More are fetched than wanted, since the index has rounded numbers. The statement names the workspace: else
# the server does not see that the index is of it.
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
    """A workspace whose vectors have an index, had one until now, or cannot have one for a `problem`."""

    workspace: str
    vectors: int
    is_new: bool
    is_gone: bool
    problem: str | None = None


async def made_of(connection: Connection, tenant: int, space: str | None) -> int:
    """Return how many vectors a workspace had when their index was made; 0 where it has none."""
    return int(await connection.fetchval(MADE_OF, _prefix(tenant, space))) if space else 0


async def nearest(
    connection: Connection, tenant: int, space: str, direction: bytes, depth: int
) -> Sequence[Record]:
    """Return of the nearest vectors by the index id, cosine, and each passage that has it; nearest first."""
    await connection.execute(LOOK)
    query = NEAREST.format(tenant=tenant, dims=writing.space_of(space).dims)
    rows: Sequence[Record] = await connection.fetch(query, direction, depth)
    return rows


async def keep_up(server: Server, *, above: int = INDEXED_ABOVE) -> Sequence[Indexed]:
    """Make an index for each workspace with more vectors than `above`; drop those of half as many and fewer.

    One of a workspace that has doubled since is made anew, and serves until then. Those who ask and write go
    on meanwhile. A million vectors take minutes.

    Raises:
        BackendError: this role may not, somebody else is at it, or a pooler is in between.
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
    """Make or drop the index of a workspace that has those of some names, of which not all may be whole."""
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
        # Whoever has another revision than before looks for the index.
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
    """Return how much pgvector may need to part vectors, and a little more."""
    vector = 2 * dims + 32
    sampled = max(SAMPLED * parts, LEAST_SAMPLED) * (4 * parts + vector)
    return (sampled + parts * (4 * parts + 4 * vector)) // 1_000


def _prefix(tenant: int, space: str) -> str:
    """Return how the names of indexes of these vectors begin; behind it stands how many they were made of."""
    return f"nearest_{tenant}_{writing.space_of(space).dims}_"
