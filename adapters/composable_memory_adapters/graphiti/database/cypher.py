"""What every graph database behind the memory does: take Cypher and values, return rows of plain values."""

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
"""One row of an answer, by the names after RETURN; times come as ISO texts."""


LOADING_S = 30.0
"""How long a server may take to read what it keeps on the disk, and to build its indexes."""


class CutOff(BackendUnavailable):
    """The connection broke while a statement was under way: nobody knows whether it was done."""


class ConnectionLost(Exception):
    """The connection broke; `was_sent` says whether the server may have got the command."""

    def __init__(self, cause: Exception, *, was_sent: bool) -> None:
        super().__init__(str(cause))
        self.was_sent = was_sent


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """How to reach a server, and as whom."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)


def without_options(url: str) -> str:
    """Return the address alone, which holds no secrets."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")


class ServerHandle:
    """A server that others run."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address

    @property
    def name(self) -> str:
        """Return what messages call it, without secrets."""
        return without_options(self._address.url)

    async def address(self) -> ServerAddress:
        """Return the address of a server that runs; start it if that is ours to do."""
        return self._address

    async def reason(self) -> Reason | None:
        """Return why the server ended, if that can be known: the log of others is not ours to read."""
        return None

    async def close(self) -> None:
        """Stop what was started here."""


class CypherDatabase(Protocol):
    """A place for graphs in the schema of graphiti-core.

    In FalkorDB each group has a graph of its own, named like it; in Neo4j all groups share one database. So
    conditions name the group too: `$group_id` stands for the `group_id` of the call. Times are handed over as
    aware datetimes; FalkorDB stores them as ISO texts in UTC, Neo4j as times. A time from an answer is a text
    in both. Every call raises a `BackendError`: what failed, and what to do.
    """

    @property
    def kind(self) -> DatabaseKind:
        """Return whose dialect it speaks."""
        ...

    async def read(self, group_id: str, cypher: str, **parameters: object) -> list[Row]:
        """Run a statement that changes nothing; a group without a graph has no rows."""
        ...

    async def write(self, group_id: str, cypher: str, **parameters: object) -> list[Row]:
        """Run a statement that may change the graph; when it returns the change is kept."""
        ...

    async def groups(self) -> Sequence[str]:
        """Return the ids of all groups that have a graph."""
        ...

    def describe(self) -> Mapping[str, str]:
        """Return what is known of the server, such as its kind, version and address without secrets."""
        ...

    async def health(self) -> Health:
        """Return whether it answers; never raises for one that is down."""
        ...

    async def close(self) -> None:
        """Close connections, and stop what was started; calling it again does nothing."""
        ...


NUMBERS = frozenset({bool, float, int})
AS_THEY_ARE = NUMBERS | {str, type(None)}
"""Types that need no look: a vector has hundreds of them."""


BATCH = 500
"""Records in one statement: FalkorDB takes a statement as one text, which must not grow without bound."""


def batches(items: Iterable[T], size: int = BATCH) -> Iterator[list[T]]:
    """Yield the items in lists of at most `size`."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def iso(moment: datetime) -> str:
    """Return a time in UTC as the text that graphs hold, which sorts like the time."""
    return in_utc(moment).isoformat()


def moment_in(value: object) -> datetime | None:
    """Return the time, in UTC, that a value of a row is; None for what is none."""
    try:
        return in_utc(datetime.fromisoformat(value)) if isinstance(value, str) and value else None
    except (ValueError, OverflowError):
        return None


def text_in(value: object) -> str:
    """Return the text that a value of a row is; the empty one for what is none."""
    return value if isinstance(value, str) else ""


def texts_in(value: object) -> list[str]:
    """Return the texts in a value of a row."""
    return [one for one in value if isinstance(one, str)] if isinstance(value, list | tuple) else []


def real_in(value: object) -> float | None:
    """Return the number that a value of a row is; None for what is none."""
    return float(value) if isinstance(value, int | float) else None


def number_in(row: Row, name: str) -> int:
    """Return a whole number of a row; 0 if there is none."""
    value = row.get(name)
    return value if isinstance(value, int) else 0


def plain(value: object) -> object:
    """Return a value as a statement can hold it: times as texts, texts without what cannot be stored."""
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
    """Return values by name as a statement can hold them."""
    return {str(name): plain(value) for name, value in values.items()}


def readable(value: object) -> object:
    """Return a value of an answer in plain types: times as texts, nodes and facts as their properties."""
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
    # Half of a surrogate pair, as JSON may hold, has no form in UTF-8.
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
