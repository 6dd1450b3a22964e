"""One sync runs and one waits, whatever the number of those who ask."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from composable_memory.errors import BackendUnavailable
from composable_memory.supervision.single_flight import Flight, SingleFlight
from composable_memory.types import MemorySyncProgressUpdate, SyncReport


class Airport:
    """Flights that end when they are told to."""

    def __init__(self) -> None:
        self.flown: list[tuple[str, bool]] = []
        self.landings: asyncio.Queue[SyncReport | Exception] = asyncio.Queue()
        self.flights = SingleFlight(self.run, backend_id="test")

    async def run(self, flight: Flight) -> SyncReport:
        self.running = flight
        self.flown.append((flight.reason, flight.force))
        flight.tell(MemorySyncProgressUpdate(completed=len(self.flown), total=9))
        outcome = await self.landings.get()
        if isinstance(outcome, Exception):
            raise outcome
        return replace(outcome, reason=flight.reason)


async def until_airborne(airport: Airport, count: int) -> None:
    while len(airport.flown) < count:  # noqa: ASYNC110 - the loop only has to go round
        await asyncio.sleep(0)


async def test_whoever_comes_while_a_sync_runs_shares_the_next_one() -> None:
    airport = Airport()
    first = asyncio.create_task(airport.flights.join("manual"))
    await until_airborne(airport, 1)
    later = [
        asyncio.create_task(airport.flights.join(reason, force=force))
        for reason, force in (("search", False), ("cli", True), ("search", False))
    ]
    await asyncio.sleep(0)
    for _ in range(2):
        airport.landings.put_nowait(SyncReport(reason=""))

    assert (await first).reason == "manual"
    assert {(await task).reason for task in later} == {"search+cli"}
    assert airport.flown == [("manual", False), ("search+cli", True)]


async def test_a_running_sync_knows_when_somebody_asks_for_another() -> None:
    airport = Airport()
    first = asyncio.create_task(airport.flights.join("manual"))
    await until_airborne(airport, 1)
    running = airport.running
    assert not running.has_successor

    later = asyncio.create_task(airport.flights.join("search"))
    await asyncio.sleep(0)
    assert running.has_successor

    airport.landings.put_nowait(SyncReport(reason=""))
    await first
    await until_airborne(airport, 2)
    assert airport.running is not running
    assert not airport.running.has_successor
    airport.landings.put_nowait(SyncReport(reason=""))
    await later


async def test_every_caller_is_told_the_progress() -> None:
    airport = Airport()
    told: tuple[list[Any], list[Any]] = ([], [])
    joined = [asyncio.create_task(airport.flights.join("cli", progress=one.append)) for one in told]
    await until_airborne(airport, 1)
    airport.landings.put_nowait(SyncReport(reason=""))
    await asyncio.gather(*joined)

    assert told[0] == told[1] == [MemorySyncProgressUpdate(completed=1, total=9)]


async def test_a_caller_who_leaves_does_not_stop_the_sync_of_the_others() -> None:
    airport = Airport()
    leaving, staying = (asyncio.create_task(airport.flights.join("cli")) for _ in range(2))
    await until_airborne(airport, 1)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    airport.landings.put_nowait(SyncReport(reason=""))

    assert (await staying).reason == "cli"


async def test_a_sync_that_fails_does_not_spoil_the_next() -> None:
    airport = Airport()
    first = asyncio.create_task(airport.flights.join("cli"))
    await until_airborne(airport, 1)
    second = asyncio.create_task(airport.flights.join("watch"))
    airport.landings.put_nowait(ZeroDivisionError())
    airport.landings.put_nowait(SyncReport(reason=""))

    with pytest.raises(ZeroDivisionError):
        await first
    assert (await second).reason == "watch"
    assert airport.flights.current is None


async def test_what_the_last_sync_raised_is_known_until_one_goes_well() -> None:
    airport = Airport()
    for outcome in (problem := ZeroDivisionError(), SyncReport(reason="")):
        flight = airport.flights.start("watch")
        airport.landings.put_nowait(outcome)

        assert await airport.flights.attempt("watch") is (outcome is not problem)
        assert airport.flights.failure is (problem if outcome is problem else None)
        assert flight.notes_indexed.done()  # who waits for the notes does not wait for ever


async def test_closing_turns_away_those_who_wait() -> None:
    airport = Airport()
    joined = [asyncio.create_task(airport.flights.join("cli"))]
    await until_airborne(airport, 1)
    joined.append(asyncio.create_task(airport.flights.join("watch")))
    await asyncio.sleep(0)
    await airport.flights.close()

    for task in joined:
        with pytest.raises(BackendUnavailable, match="it is closed"):
            await task
    with pytest.raises(BackendUnavailable):
        airport.flights.start("cli")


@pytest.mark.parametrize(("reasons", "is_watched"), [(["watch"], True), (["watch", "manual"], False)])
async def test_a_sync_looks_only_where_a_watch_has_told_unless_somebody_asks_who_was_not_told(
    reasons: list[str], is_watched: bool
) -> None:
    airport = Airport()
    asked = [asyncio.create_task(airport.flights.attempt(reason)) for reason in reasons]
    told = airport.flights.start("search", is_watched=True)
    await until_airborne(airport, 1)
    airport.landings.put_nowait(SyncReport(reason=""))
    await asyncio.gather(*asked)

    assert airport.running is told
    assert told.is_watched is is_watched
