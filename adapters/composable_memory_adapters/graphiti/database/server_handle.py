"""Handles of FalkorDB servers: one that runs in a process of ours, or one at an address."""

import asyncio
from dataclasses import field
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from composable_memory_adapters.graphiti.database.exit_diagnosis import Reason
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:  # what it is made of is not on every system
    from composable_memory_adapters.graphiti.database.server import PrivateServer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    """How to reach a server, and as whom."""

    url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)


class ServerHandle(Protocol):
    """A server, started here or run by others."""

    @property
    def name(self) -> str:
        """Return what messages call it, without secrets."""
        ...

    async def address(self) -> ServerAddress:
        """Return the address of a server that runs; start it if that is ours to do."""
        ...

    async def reason(self) -> Reason | None:
        """Return why the server ended, if that can be known."""
        ...

    async def close(self) -> None:
        """Stop what was started."""
        ...


class PrivateServerHandle:
    """A server that we start, or that another process of this machine has started for the same folder."""

    def __init__(self, server: "PrivateServer") -> None:
        self._server = server

    @property
    def name(self) -> str:
        """Return the folder of the server."""
        return f"the server of {self._server.data_dir}"

    async def address(self) -> ServerAddress:
        """Return the socket of the server that has the folder now."""
        return ServerAddress(url=f"unix://{await asyncio.to_thread(self._server.address)}")

    async def reason(self) -> Reason | None:
        """Return what the log of a server of ours tells."""
        return await asyncio.to_thread(self._server.reason)

    async def close(self) -> None:
        """Stop the server, if it is ours, also when the caller is cancelled meanwhile."""
        await asyncio.to_thread(self._server.close)


class RemoteServerHandle:
    """A server that others run."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address

    @property
    def name(self) -> str:
        """Return its address without options."""
        return without_options(self._address.url)

    async def address(self) -> ServerAddress:
        """Return the address that was given."""
        return self._address

    async def reason(self) -> Reason | None:
        """Return None: its log is not ours to read."""
        return None

    async def close(self) -> None:
        """Do nothing: it is not ours."""


def without_options(url: str) -> str:
    """Return the address alone, which holds no secrets."""
    parts = urlsplit(url)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{parts.port}" if parts.port else "")
