"""The only module that uses asyncpg: connections to a server, transactions of a tenant, error translation."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import asyncpg

from composable_memory.errors import BackendError, BackendTimeout, BackendUnavailable, ConfigError
from composable_memory.supervision.backoff import RetryPolicy, Verdict, retry
from composable_memory_adapters.postgres import schema
from composable_memory_adapters.postgres.settings import PostgresSettings
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    Connection: TypeAlias = asyncpg.Connection[asyncpg.Record]
    Pool: TypeAlias = asyncpg.Pool[asyncpg.Record]
    Record: TypeAlias = asyncpg.Record
else:
    Connection = asyncpg.Connection
    Pool = asyncpg.Pool
    Record = asyncpg.Record

T = TypeVar("T")

APPLICATION = "composable-memory"
"""The application name of our connections on the server."""

IDLE_S = 60.0
"""Idle connections are closed after this time."""

AGAIN = RetryPolicy(tries=8, first_wait_s=0.1, max_wait_s=5.0)
"""How often a failed transaction is retried: a server restart takes about 5 s."""

WRITE_S = 300.0
"""Time limit of a statement that writes, including the wait for earlier writers."""

MARGIN_S = 30.0
"""Added to the server's own limit before a statement is abandoned: the network is down."""

OLDEST_PGVECTOR = (0, 7)
"""Earlier versions were not tested."""

EXTENSION = """
SELECT nspname, extversion, has_schema_privilege(pg_namespace.oid, 'USAGE')
FROM pg_extension JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector'
"""
IS_DIRECT = "SELECT 1 / (pg_backend_pid() = {})::int"
"""Fails if another server process than the connection names does the work, as behind a pooler."""

ENTERED = "SELECT version, name FROM schema_version LEFT JOIN workspaces ON tenant = $1"
"""A separate statement: Citus passes what accompanies a SET to its workers, which have no versions."""

NOT_SPREAD = """
SELECT format('%I.%I', $1::text, relname) AS name FROM pg_class
WHERE relnamespace = $1::text::regnamespace AND relkind = 'r' AND relname <> 'schema_version'
  AND relation_is_a_known_shard(oid) IS NOT TRUE AND oid NOT IN (SELECT logicalrelid FROM pg_dist_partition)
ORDER BY relname <> 'workspaces', relname
"""
SPREAD = "SELECT create_distributed_table($1::text::regclass, 'tenant')"
SPREAD_ALIKE = "SELECT create_reference_table($1::text::regclass)"
GRANTEES = """
SELECT DISTINCT rolname
FROM pg_class, aclexplode(relacl) AS given JOIN pg_roles ON pg_roles.oid = given.grantee
WHERE pg_class.oid = to_regclass($1::text) AND given.grantee <> relowner
"""
"""The roles that may use the tables, except their owner."""
OWNER = "SELECT pg_get_userbyid(relowner)::text FROM pg_class WHERE oid = to_regclass($1::text)"

SSL_MODES = ("disable", "allow", "prefer", "require", "verify-ca", "verify-full")
PARAMETERS = ("host", "port", "user", "password", "sslmode", "sslrootcert")

LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})

_GONE = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # raised when a connection dies while it is made
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
)
"""Errors of a server that does not answer, or has gone away."""

OF_A_CLUSTER = ("postmaster was shut down", "could not find valid entry for shard")
"""Messages of Citus, reported as internal errors, when a server shuts down or a shard is being split."""


class _PoolerBetween(Exception):
    """A pooler answered instead of the server, so prepared statements cannot be used."""


class WorkspaceGone(BackendUnavailable):
    """The workspace no longer has this number: the tables were recreated."""


_REPEATABLE = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
_NO_ENTRY = (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError)
_NOT_THERE = (asyncpg.UndefinedTableError, asyncpg.UndefinedColumnError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a server, and the user; its text has no password."""

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    database: str
    sslmode: str
    sslrootcert: str | None = None

    @classmethod
    def of(cls, url: str) -> "Address":
        """Parse a URL; a folder as the `host` parameter is that of the server's socket.

        Raises:
            ValueError: it is not a URL of a server; the message quotes only parameter names.
        """
        try:
            parts = urlsplit(url)
            given = dict(parse_qsl(parts.query))
            port = parts.port or int(given.get("port", 5432))
        except ValueError:  # its text may contain part of the password
            raise ValueError("its parts cannot be separated; write / # ? @ in a password as %2F …") from None
        if parts.scheme not in ("postgres", "postgresql"):
            raise ValueError("it has to begin with postgresql://")
        if unknown := sorted(given.keys() - {*PARAMETERS}):
            raise ValueError(
                f"{', '.join(unknown)} is not supported; the parameters are {', '.join(PARAMETERS)}"
            )
        if given.get("sslmode", "disable") not in SSL_MODES:
            raise ValueError(f"sslmode has to be one of {', '.join(SSL_MODES)}")
        host = given.get("host") or parts.hostname or "localhost"
        is_local = host in LOCAL_HOSTS or host.startswith("/")
        return cls(
            host=host,
            port=port,
            user=unquote(parts.username or "") or given.get("user", "postgres"),
            password=unquote(parts.password or "") or given.get("password", ""),
            database=unquote(parts.path.strip("/")) or "postgres",
            sslmode=given.get("sslmode", "disable" if is_local else "require"),
            sslrootcert=given.get("sslrootcert"),
        )

    def __str__(self) -> str:
        """Return the address without the password."""
        return f"{self.user}@{self.host}:{self.port}/{self.database}"

    def tls(self) -> ssl.SSLContext | Literal[False]:
        """Return the TLS configuration; reads files."""
        if self.sslmode == "disable":
            return False
        context = ssl.create_default_context(cafile=self.sslrootcert)
        if self.sslmode != "verify-full":
            context.check_hostname = False
            if self.sslmode != "verify-ca" and self.sslrootcert is None:
                context.verify_mode = ssl.CERT_NONE
        return context


def address_of(settings: PostgresSettings, environ: Mapping[str, str], backend_id: str) -> Address:
    """Return the address of the server in some settings.

    Raises:
        BackendUnavailable: the variable that should name it is not set.
        ConfigError: its URL cannot be used.
    """
    given = settings.url.get_secret_value() if settings.url else environ.get(settings.url_env, "")
    if not given:
        problem = f"the variable {settings.url_env} is not set"
        raise BackendUnavailable(backend_id, problem, fix="set it to the server's URL", operation="open")
    try:
        return Address.of(given)
    except ValueError as error:
        section = backend_id if backend_id == "postgres" else f"backends.{backend_id}"
        key = f"memory.{section}.{'url' if settings.url else 'url_env'}"
        raise ConfigError(key, f"the URL of the PostgreSQL server cannot be used: {error}") from None


class Server:
    """Connections to one server, opened when needed; `close` closes them.

    async with server.reading("search", tenant=5) as connection:
        await connection.fetch("SELECT … WHERE tenant = $1", 5)
    """

    def __init__(self, settings: PostgresSettings, address: Address, backend_id: str) -> None:
        self.schema = settings.schema_
        self.workspace = settings.workspace
        """The name under which notes are shared; None for the notes of a single folder."""
        self.address = address
        self._settings = settings
        self._id = backend_id
        self._pool: Pool | None = None
        self._opening = asyncio.Lock()
        self._is_closed = False
        self._is_checked = False
        self._is_pooled = False
        """Whether there is a pooler such as PgBouncer between this process and the server."""
        self._names: dict[int, str] = {}
        """The names of workspaces by their numbers, as looked up so far."""
        self._extension = "public"
        """The schema of pgvector."""

    async def close(self) -> None:
        """Close all connections, even those in use; a second call does nothing."""
        self._is_closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()

    def refuse_if_closed(self, operation: str) -> None:
        """Raise if it is closed.

        Raises:
            BackendUnavailable: it is closed.
        """
        if self._is_closed:
            raise BackendUnavailable(self._id, "it is closed", fix="open it again", operation=operation)

    async def again(self, call: Callable[[], Awaitable[T]]) -> T:
        """Await a call, and retry if the server goes away, for as long as a restart takes.

        A server that has never answered is probably down, not restarting, so there is no retry.
        """
        return await retry(call, judge=self._judge, policy=AGAIN)

    def _judge(self, error: Exception) -> Verdict:
        cause = error.__cause__
        return Verdict(may_pass=(self._is_checked and _is_gone(cause)) or isinstance(cause, _REPEATABLE))

    @asynccontextmanager
    async def reading(self, operation: str, *, tenant: int) -> AsyncIterator[Connection]:
        """Yield a read-only connection with one consistent snapshot of what belongs to a tenant.

        Raises:
            WorkspaceGone: the workspace no longer has the number that was looked up.
        """
        limit_s = self._settings.statement_timeout_ms / 1000
        async with (
            self._connection(operation, limit_s) as connection,
            connection.transaction(isolation="repeatable_read", readonly=True),
        ):
            await self._check(connection, operation)
            await self._enter(connection, tenant, limit_s, operation)
            yield connection

    async def read(self, operation: str, work: Callable[[Connection], Awaitable[T]], *, tenant: int) -> T:
        """Read something of a tenant; retry if the server goes away."""

        async def once() -> T:
            async with self.reading(operation, tenant=tenant) as connection:
                return await work(connection)

        return await self.again(once)

    async def write(self, operation: str, work: Callable[[Connection], Awaitable[T]], *, tenant: int) -> T:
        """Run `work` for a tenant in a transaction; start again if the server goes away.

        If a commit succeeded without confirmation, `work` runs again on its own changes and has to notice
        that.
        """

        async def once() -> T:
            async with self.writing(operation, tenant=tenant) as connection:
                return await work(connection)

        return await self.again(once)

    @asynccontextmanager
    async def writing(self, operation: str, *, tenant: int) -> AsyncIterator[Connection]:
        """Yield a connection for one transaction of a tenant, rolled back if the block raises."""
        async with self._connection(operation, WRITE_S) as connection, connection.transaction():
            await self._check(connection, operation)
            await self._enter(connection, tenant, WRITE_S, operation)
            yield connection

    async def listen(self, heard: Callable[..., None]) -> Connection | None:
        """Return a separate connection that calls `heard` for each notification, payload last.

        None behind a pooler, which does not pass notifications on.
        """
        if self._is_pooled:
            return None
        tls = await asyncio.to_thread(self.address.tls)
        with self._translated("listen", WRITE_S):
            connection: Connection = await asyncpg.connect(**self._place(), ssl=tls)
            with ExitStack() as stack:
                stack.callback(connection.terminate)
                await connection.add_listener("cmem", heard)
                stack.pop_all()
            return connection

    async def tenant(self, operation: str, workspace: str, *, is_new: bool = False) -> int | None:
        """Return the number of a workspace; None if it does not exist. With `is_new`, create it."""
        async with self._connection(operation) as connection, connection.transaction():
            await self._check(connection, operation)
            await connection.execute(f"SET LOCAL {self._search_path()}")
            quoted = await connection.fetchval("SELECT quote_literal($1)", workspace)
            await connection.execute(f"SET LOCAL cmem.workspace = {quoted}")  # as in `_enter`
            find = "SELECT tenant FROM workspaces WHERE name = $1"
            found = await connection.fetchval(find, workspace)
            if found is None and is_new:
                await connection.execute(
                    "INSERT INTO workspaces (name) VALUES ($1) ON CONFLICT DO NOTHING", workspace
                )
                found = await connection.fetchval(find, workspace)
            if found is None:
                return None
            self._names[int(found)] = workspace
            return int(found)

    async def migrate(self) -> schema.Migrated:
        """Create the tables or migrate them, and create the extension if necessary."""
        steps = await asyncio.to_thread(schema.migrations)
        async with self._connection("change its tables") as connection:
            try:
                with suppress(asyncpg.DuplicateObjectError, asyncpg.UniqueViolationError):
                    await connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
            except (asyncpg.FeatureNotSupportedError, asyncpg.UndefinedFileError) as error:
                problem = f"{self.address} has no pgvector"
                fix = "install its package where PostgreSQL runs, or enable it in your service"
                raise BackendUnavailable(self._id, problem, fix=fix, operation="change its tables") from error
            await self._prepare(connection)
            async with asyncio.timeout(schema.LONGEST_S):
                while True:
                    async with connection.transaction():
                        await connection.execute(f"SET LOCAL {self._search_path()}")
                        found = await schema.migrate(connection, self.schema, steps)
                    if found is not None:
                        break
                    await asyncio.sleep(schema.AGAIN_S)
        await self._grant_anew()
        return found

    async def distribute(self) -> int:
        """Distribute the tables over Citus servers by workspace; return how many were not yet."""
        async with self._connection("spread its tables") as connection:
            if not await connection.fetchval("SELECT count(*) FROM pg_extension WHERE extname = 'citus'"):
                fix = "run `CREATE EXTENSION citus` on every server and `citus_add_node` on this one"
                problem = f"{self.address} is not a Citus coordinator"
                raise BackendUnavailable(self._id, problem, fix=fix, operation="spread its tables")
            await self._check(connection, "spread its tables")
            # Otherwise the other servers do not learn whose rows may be seen, and show none.
            name = await connection.fetchval("SELECT quote_ident(current_database())")
            await connection.execute(f"ALTER DATABASE {name} SET citus.propagate_set_commands = 'local'")
            # While shards are hidden, each type look-up of the driver takes over a second.
            show = f"ALTER DATABASE {name} SET citus.show_shards_for_app_name_prefixes = '{APPLICATION}'"
            await connection.execute(show)
            tables = [row["name"] for row in await connection.fetch(NOT_SPREAD, self.schema)]
            for table in tables:
                spread = SPREAD_ALIKE if table.endswith(".workspaces") else SPREAD
                await connection.execute(spread, table, timeout=schema.LONGEST_S)
        await self._grant_anew()
        return len(tables)

    async def _grant_anew(self) -> None:
        """Let the roles that may use the tables use new ones as well, on all servers."""
        async with self._connection("grant rights") as connection:
            roles = await connection.fetch(GRANTEES, f"{self.schema}.notes")
        await self._forget()
        for role in roles:
            await self.grant(role["rolname"])

    @asynccontextmanager
    async def alone(self, operation: str) -> AsyncIterator[Connection]:
        """Yield a connection for long work on the tables outside a transaction; it is closed afterwards.

        Raises:
            BackendError: somebody else is doing such work, or there is a pooler.
        """
        try:
            async with self._connection(operation) as connection:
                if self._is_pooled:  # a pooler would give the lock and the settings to its next client
                    fix = "set --url-env to a variable with the URL of the server itself"
                    problem = f"{self.address} is a pooler, not the server"
                    raise BackendUnavailable(self._id, problem, fix=fix, operation=operation)
                await self._check(connection, operation)
                await connection.execute(f"SET statement_timeout = 0; SET {self._search_path()}")
                if not await connection.fetchval(f"SELECT pg_try_advisory_lock({schema.LOCK})"):
                    raise BackendError(
                        self._id, operation, "somebody else is changing its tables or indexes now"
                    )
                yield connection
                # Otherwise the server may hold it slightly longer than the connection lasts.
                await connection.execute(f"SELECT pg_advisory_unlock({schema.LOCK})")
        finally:
            await self._forget()

    async def version(self) -> int:
        """Return the version of the tables; 0 without tables."""
        async with self._connection("check its tables") as connection, connection.transaction():
            return await schema.version(connection, self.schema)

    async def grant(self, role: str) -> None:
        """Let a role use the tables; only their owner may change their version."""
        name = '"' + role.replace('"', '""') + '"'
        async with self._connection("grant rights") as connection:
            if self._extension != "public":
                await connection.execute(f'GRANT USAGE ON SCHEMA "{self._extension}" TO {name}')
            await connection.execute(
                f"GRANT USAGE ON SCHEMA {self.schema} TO {name};"
                f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {self.schema} TO {name};"
                f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA {self.schema} TO {name}"
            )
            versions = f"{self.schema}.schema_version"
            if await connection.fetchval(OWNER, versions) != role:
                await connection.execute(f"REVOKE INSERT, UPDATE, DELETE ON {versions} FROM {name}")

    async def facts(self) -> Mapping[str, str | bool]:
        """Return facts about the server: versions, and whether row-level security applies to us."""
        query = (
            "SELECT current_setting('server_version') AS server,"
            " coalesce((SELECT extversion FROM pg_extension WHERE extname = 'vector'), '') AS pgvector,"
            " (SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user) AS bypasses"
        )
        async with self._connection("check the server") as connection, connection.transaction():
            return dict(await connection.fetchrow(query) or {})

    # --- connections ----------------------------------------------------------------------------------------

    async def _enter(self, connection: Connection, tenant: int, limit_s: float, operation: str) -> None:
        """Limit a transaction to what belongs to a tenant."""
        # SET LOCAL, because a Citus coordinator passes it to its workers; it does not pass `set_config`.
        await connection.execute(
            f"SET LOCAL cmem.tenant = '{int(tenant)}';"
            f"SET LOCAL statement_timeout = {int(limit_s * 1000)}; SET LOCAL jit = off;"
            f"SET LOCAL {self._search_path()}"
        )
        version, name = await connection.fetchrow(ENTERED, tenant) or (0, None)
        if version != schema.VERSION:
            self._is_checked = False  # the next call says which
            problem, fix = "its tables now have another version", "upgrade composable-memory, or try again"
            raise BackendUnavailable(self._id, problem, fix=fix, operation=operation)
        if name != self._names.get(tenant):
            problem = "the tables were recreated"
            raise WorkspaceGone(self._id, problem, fix="run `cmem index`", operation=operation)

    def _search_path(self) -> str:
        return f'search_path = {self.schema}, "{self._extension}"'

    @asynccontextmanager
    async def _connection(self, operation: str, limit_s: float = WRITE_S) -> AsyncIterator[Connection]:
        self.refuse_if_closed(operation)
        with self._translated(operation, limit_s):
            limit = self._settings.connect_timeout_ms / 1000
            try:
                async with asyncio.timeout(max(limit, limit_s)):  # others may be using all connections
                    pool, connection = await self._acquired()
            except TimeoutError:
                raise OSError("no connection in time") from None
            try:
                yield connection
            finally:
                with suppress(Exception):  # the error that broke it is raised above
                    await pool.release(connection, timeout=limit)

    async def _check(self, connection: Connection, operation: str) -> None:
        """Raise unless the tables exist in the version this code knows."""
        if self._is_checked:
            return
        found = await schema.version(connection, self.schema)
        if found > schema.VERSION:
            problem = f"its tables are version {found}, but this program knows version {schema.VERSION}"
            raise BackendUnavailable(self._id, problem, fix="upgrade composable-memory", operation=operation)
        if found < schema.VERSION:
            what = f"its tables are of version {found}" if found else f"there are no tables in {self.schema}"
            fix = "`cmem postgres migrate`" if found else "`cmem postgres init`"
            raise BackendUnavailable(self._id, what, fix=f"run {fix}", operation=operation)
        self._is_checked = True

    async def _acquired(self) -> tuple[Pool, Connection]:
        pool = await self._opened()
        try:
            return pool, await pool.acquire()
        except _PoolerBetween:
            if not self._is_pooled:  # the first of several at once
                self._is_pooled = True
                await self._forget()
        return await self._acquired()

    async def _opened(self) -> Pool:
        async with self._opening:
            if self._pool is None:
                settings = self._settings
                tls = await asyncio.to_thread(self.address.tls)
                self._pool = await asyncpg.create_pool(
                    **self._place(),
                    ssl=tls,
                    min_size=0,
                    max_size=settings.connections,
                    max_inactive_connection_lifetime=IDLE_S,
                    command_timeout=WRITE_S + MARGIN_S,
                    init=self._prepare,
                    reset=_nothing_left,
                    # A pooler may run each transaction on another connection, without our prepared
                    # statements.
                    statement_cache_size=0 if self._is_pooled else 100,
                    server_settings={"application_name": APPLICATION},
                )
            return self._pool

    def _place(self) -> dict[str, Any]:
        address = self.address
        return {
            "host": address.host,
            "port": address.port,
            "user": address.user,
            "password": address.password,
            "database": address.database,
            "timeout": self._settings.connect_timeout_ms / 1000,
        }

    async def _forget(self) -> None:
        """Use new connections from now on: open ones do not know new types."""
        pool, self._pool = self._pool, None
        self._is_checked = False
        if pool is not None:
            pool.terminate()

    async def _prepare(self, connection: Connection) -> None:
        """Make a connection transfer vectors as bytes; without the extension, do nothing.

        Raises:
            BackendUnavailable: the extension is too old, or may not be used.
            _PoolerBetween: a pooler has answered.
        """
        if not self._is_pooled:
            try:
                await connection.execute(IS_DIRECT.format(connection.get_server_pid()))
            except asyncpg.DivisionByZeroError:
                raise _PoolerBetween from None
        async with connection.transaction():
            await self._teach(connection)

    async def _teach(self, connection: Connection) -> None:
        found = await connection.fetchrow(EXTENSION)
        if found is None:
            return
        place, version, may_use = found
        if not may_use:
            user = self.address.user
            problem = f"its pgvector {version} is in the schema {place}, which {user} may not use"
            fix = "ask its owner to run `cmem postgres init --grant-to`, or GRANT USAGE ON SCHEMA"
            raise BackendUnavailable(self._id, problem, fix=fix, operation="connect")
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_PGVECTOR:
            problem = f"its pgvector is {version}, but 0.7 is needed"
            fix = "install a newer one and run ALTER EXTENSION vector UPDATE"
            raise BackendUnavailable(self._id, problem, fix=fix, operation="connect")
        self._extension = place
        await connection.set_type_codec("vector", schema=place, encoder=bytes, decoder=bytes, format="binary")

    @contextmanager
    def _translated(self, operation: str, limit_s: float) -> "Iterator[None]":
        """Translate errors of the driver into ours."""
        try:
            yield
        except (*_GONE, asyncpg.PostgresError) as error:
            self.refuse_if_closed(operation)
            raise self._as_ours(error, operation, limit_s) from error

    def _as_ours(self, error: Exception, operation: str, limit_s: float) -> BackendError:
        told = str(error) or type(error).__name__
        if isinstance(error, asyncpg.QueryCanceledError):
            return BackendTimeout(self._id, operation, limit_s=limit_s, elapsed_s=limit_s)
        if isinstance(error, _NO_ENTRY):
            problem, fix = f"{self.address} refuses: {told}", "check the URL"
        elif isinstance(error, asyncpg.InsufficientPrivilegeError):
            problem = f"{self.address} refuses: {told}"
            fix = (
                "connect as the tables' owner (`--url-env`), or ask the owner to run `cmem postgres init "
                "--grant-to`"
            )
        elif isinstance(error, _NOT_THERE):
            self._is_checked = False  # the next call says which version they are
            problem, fix = f"its tables have changed ({told})", "upgrade composable-memory, or try again"
        elif _is_gone(error):
            problem, fix = f"{self.address} does not answer ({told})", "start it, or check the URL"
        else:
            return BackendError(self._id, operation, told)
        return BackendUnavailable(self._id, problem, fix=fix, operation=operation)


async def _nothing_left(_: Connection) -> None:
    """Skip the reset when a connection is released: our settings end with each transaction."""


def _is_gone(error: BaseException | None) -> bool:
    is_of_cluster = isinstance(error, asyncpg.InternalServerError)
    return isinstance(error, _GONE) or (is_of_cluster and any(one in str(error) for one in OF_A_CLUSTER))
