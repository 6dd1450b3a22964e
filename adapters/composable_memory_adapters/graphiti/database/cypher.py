"""The interface of every graph database behind the memory: Cypher and values in, rows of plain values out."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import date, datetime
from itertools import islice
from typing import Literal, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

from composable_memory.content import Health
from composable_memory.errors import BackendUnavailable
from composable_memory_adapters.graphiti.database.requirements import Reason
from composable_memory_adapters.graphiti.observed_times import in_utc
from composable_memory_ops_logs.quick_dataclass import dataclass

DatabaseKind = Literal["falkordb", "neo4j"]
T = TypeVar("T")
Row: TypeAlias = Mapping[str, object]
"""One row of an answer, by the names after RETURN; times are ISO strings."""


LOADING_S = 30.0
"""The longest time a server may take to load its data from disk and build its indexes, in seconds."""


class CutOff(BackendUnavailable):
    """The connection broke during a statement: whether it took effect is unknown."""


class ConnectionLost(Exception):
    """The connection broke; `was_sent` says whether the server may have received the command."""

    def __init__(self, cause: Exception, *, was_sent: bool) -> None:
        super().__init__(str(cause))
        self.was_sent = was_sent


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """The address and credentials of a server."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)


def without_options(url: str) -> str:
    """Return only the address, which has no secrets."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")


class ServerHandle:
    """A server that others run."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address

    @property
    def name(self) -> str:
        """Return its name for messages, without secrets."""
        return without_options(self._address.url)

    async def address(self) -> ServerAddress:
        """Return the address of a running server; start it if it is ours."""
        return self._address

    async def reason(self) -> Reason | None:
        """Return why the server ended, if known: we do not read the log of a server that others run."""
        return None

    async def close(self) -> None:
        """Stop what was started here."""


class CypherDatabase(Protocol):
    """A database of graphs in the schema of graphiti-core.

    In FalkorDB each group has its own graph, named after it; in Neo4j all groups share one database. So
    conditions name the group too: `$group_id` stands for the `group_id` of the call. Pass times as aware
    datetimes; FalkorDB stores them as ISO strings in UTC, Neo4j as times. Both return times as strings. Every
    call raises a `BackendError` that says what failed and what to do.
    """

    @property
    def kind(self) -> DatabaseKind:
        """Return the kind of database, which decides the dialect."""
        ...

    async def read(self, group_id: str, cypher: str, **parameters: object) -> list[Row]:
        """Run a read-only statement; a group without a graph has no rows."""
        ...

    async def write(self, group_id: str, cypher: str, **parameters: object) -> list[Row]:
        """Run a statement that may change the graph; when it returns, the change is durable."""
        ...

    async def groups(self) -> Sequence[str]:
        """Return the ids of all groups that have a graph."""
        ...

    def describe(self) -> Mapping[str, str]:
        """Return facts about the server, such as kind, version and address, without secrets."""
        ...

    async def health(self) -> Health:
        """Return whether it answers; never raises if it is down."""
        ...

    async def close(self) -> None:
        """Close connections, and stop what was started; calling it again does nothing."""
        ...


NUMBERS = frozenset({bool, float, int})
AS_THEY_ARE = NUMBERS | {str, type(None)}
"""Types that need no conversion: a vector has hundreds of them."""


BATCH = 500
"""Records per statement: FalkorDB takes a statement as one text, whose size must stay bounded."""


def batches(items: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def iso(moment: datetime) -> str:
    """Return a time as ISO text in UTC, as stored in graphs; it sorts like the time."""
    return in_utc(moment).isoformat()


def moment_in(value: object) -> datetime | None:
    """Return a row's value as a time in UTC; None if it is not one."""
    try:
        return in_utc(datetime.fromisoformat(value)) if isinstance(value, str) and value else None
    except (ValueError, OverflowError):
        return None


def text_in(value: object) -> str:
    """Return a row's value as text; empty if it is not text."""
    return value if isinstance(value, str) else ""


def texts_in(value: object) -> list[str]:
    """Return the texts in a row's value."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list | tuple) else []


def real_in(value: object) -> float | None:
    """Return a row's value as a float; None if it is not a number."""
    return float(value) if isinstance(value, int | float) else None


def number_in(row: Row, name: str) -> int:
    """Return an integer of a row; 0 if there is none."""
    value = row.get(name)
    return value if isinstance(value, int) else 0


def plain(value: object) -> object:
    """Convert a value for a statement: times become text, and text loses what cannot be stored."""
    if type(value) in NUMBERS:
        return value
    match value:
        case str():
            return _clean(value)
        case datetime():
            return iso(value)
        case date():
            return value.isoformat()
        case Mapping():
            return plain_map(value)
        case bytes():
            raise TypeError("a graph cannot store bytes")
        case Iterable():
            return [item if type(item) in NUMBERS else plain(item) for item in value]
        case _:
            return value


def plain_map(values: Mapping[str, object]) -> dict[str, object]:
    """Convert a mapping of values for a statement."""
    return {str(name): plain(value) for name, value in values.items()}


def readable(value: object) -> object:
    """Convert a value of an answer to plain types: times become text, nodes and facts their properties."""
    if type(value) in AS_THEY_ARE:
        return value
    properties = getattr(value, "properties", None)
    if isinstance(properties, dict):
        return readable(properties)
    match value:
        case Mapping():
            return {str(name): readable(item) for name, item in value.items()}
        case list() | tuple():
            return [item if type(item) in AS_THEY_ARE else readable(item) for item in value]
        case datetime():
            return iso(value)
        case date():
            return value.isoformat()
        case _:
            return value


def _clean(text: str) -> str:
    if "\0" in text:
        text = text.replace("\0", "")
    # A lone surrogate, which JSON allows, cannot be encoded as UTF-8.
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
