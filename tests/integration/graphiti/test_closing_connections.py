"""Connections to a graph server, closed at every moment: none is left open, and no call is left waiting."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from contextlib import asynccontextmanager, suppress
from functools import partial
from types import coroutine
from typing import Any

import pytest

from composable_memory.errors import BackendError, BackendUnavailable
from composable_memory_adapters.graphiti.database.cypher import CutOff, ServerAddress, ServerHandle
from composable_memory_adapters.graphiti.database.falkor import FalkorDatabase

pytest.importorskip("falkordb")

PATIENCE_S = 30.0
CONNECTIONS = 16
CALLS = 20
"""More than there are connections."""
NOTHING = b"*0\r\n"


class HoldingServer:
    """Speaks as much of the protocol as the client needs, and answers about graphs when it is allowed to."""

    def __init__(self) -> None:
        self.address = ServerAddress(url="")
        self.answers = asyncio.Event()
        self.asked = asyncio.Semaphore(0)
        self.connections: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer every command with an empty list until the client leaves."""
        task = asyncio.current_task()
        assert task is not None
        self.connections.add(task)
        with suppress(ConnectionError):
            while head := await reader.readline():
                words = [await reader.readline() for _ in range(2 * int(head[1:]))][1::2]
                if words[0] != b"MODULE\r\n":
                    self.asked.release()
                    await self.answers.wait()
                writer.write(NOTHING)
        writer.close()

    async def is_left(self) -> None:
        """Return when the client has closed all connections that it ever made."""
        self.answers.set()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self.connections)


@asynccontextmanager
async def holding() -> AsyncIterator[HoldingServer]:
    held = HoldingServer()
    async with await asyncio.start_server(held.serve, "127.0.0.1") as server:
        held.address = ServerAddress(url=f"falkor://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        yield held


async def interrupted(call: Coroutine[Any, Any, object], at: int, interrupt: Callable[[], object]) -> None:
    """Run a call, and interrupt it when it waits for the `at`-th time."""
    await driven(call, at, interrupt)


@coroutine
def driven(
    call: Coroutine[Any, Any, object], at: int, interrupt: Callable[[], object]
) -> Generator[Any, Any, None]:
    waits = 0
    go_on = partial(call.send, None)
    while True:
        try:
            awaited = go_on()
        except StopIteration:
            return
        waits += 1
        if waits == at:
            interrupt()
        try:
            go_on = partial(call.send, (yield awaited))
        except BaseException as error:  # noqa: BLE001 - whatever the task was told
            go_on = partial(call.throw, error)


async def is_interrupted(at: int, *, is_cancelled: bool) -> bool:
    """Close a database when a call waits for the `at`-th time; return whether it waited so often."""
    loop = asyncio.get_running_loop()
    closing: list[asyncio.Task[None]] = []

    def interrupt() -> None:
        closing.append(loop.create_task(database.close()))
        if is_cancelled:
            loop.call_soon(call.cancel)

    async with holding() as server:
        server.answers.set()
        database = FalkorDatabase(ServerHandle(server.address))
        call = loop.create_task(interrupted(database.groups(), at, interrupt))
        async with asyncio.timeout(PATIENCE_S):
            with suppress(BackendError, asyncio.CancelledError):
                await call
            await asyncio.gather(*closing, database.close())
        await server.is_left()
        return bool(closing)


@pytest.mark.parametrize("is_cancelled", [False, True])
async def test_closing_wherever_a_call_waits_leaves_no_connection(is_cancelled: bool) -> None:
    at = 1
    while await is_interrupted(at, is_cancelled=is_cancelled):
        at += 1
    assert at > 3


async def test_closing_ends_calls_that_wait_for_an_answer_or_for_a_connection() -> None:
    async with holding() as server:
        database = FalkorDatabase(ServerHandle(server.address))
        calls = [asyncio.ensure_future(database.groups()) for _ in range(CALLS)]
        async with asyncio.timeout(PATIENCE_S):
            for _ in range(CONNECTIONS):
                await server.asked.acquire()
            await database.close()
            ends = await asyncio.gather(*calls, return_exceptions=True)
        await server.is_left()

    assert {type(end) for end in ends} <= {BackendUnavailable, CutOff}


async def test_a_server_that_gives_its_address_after_closing_is_not_connected_to() -> None:
    class LateServer(ServerHandle):
        def __init__(self, address: ServerAddress) -> None:
            super().__init__(address)
            self.is_asked = asyncio.Semaphore(0)
            self.answers = asyncio.Semaphore(0)

        async def address(self) -> ServerAddress:
            self.is_asked.release()
            await self.answers.acquire()
            return await super().address()

    for times in (0, 1):  # how often the address is given before
        async with holding() as server:
            server.answers.set()
            late = LateServer(server.address)
            database = FalkorDatabase(late)
            call = asyncio.ensure_future(database.groups())
            async with asyncio.timeout(PATIENCE_S):
                for _ in range(times):
                    await late.is_asked.acquire()
                    late.answers.release()
                await late.is_asked.acquire()
                await database.close()
                late.answers.release()
                with pytest.raises(BackendUnavailable, match="closed"):
                    await call
            await server.is_left()
            assert not server.connections
