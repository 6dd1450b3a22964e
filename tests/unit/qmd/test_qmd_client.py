"""QMD is asked over the fastest transport that works, within one deadline."""

import asyncio
from collections.abc import Sequence

import pytest

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory_adapters.qmd.transport.qmd_client import QmdClient, SearchReply
from composable_memory_adapters.qmd.types import Hit, SearchRequest, SubSearch, TransportName

REQUEST = SearchRequest(
    text="gateway", collections=("notes",), limit=5, searches=(SubSearch(kind="lex", text="gateway"),)
)
EXPANDING = SearchRequest(text="gateway", collections=("notes",), limit=5, expand=True)

REJECTED = BackendRejected("qmd", "search", status="500", body="no such thing")
TIMED_OUT = BackendTimeout("qmd", "search", limit_s=1.0, elapsed_s=1.0)
PASSING = [
    BackendUnavailable("qmd", "it is not running", fix="start it", operation="search"),
    BackendGarbled("qmd", "search", excerpt="<html>", expected="JSON"),
    REJECTED,
    TIMED_OUT,
]


def hit(path: str) -> Hit:
    return Hit(collection="notes", path=path, line=1, start_line=1, line_count=1, snippet="", score=1.0)


class FakeTransport:
    """Answers with one hit of its name, or as it is told; keeps what it was asked, and for how long."""

    def __init__(
        self,
        name: TransportName,
        *,
        error: BackendError | None = None,
        takes_s: float = 0.0,
        is_up: bool = True,
    ) -> None:
        self.name = name
        self.is_up = is_up
        self.hits = [hit(name)]
        self.error = error
        self.takes_s = takes_s
        self.asked: list[SearchRequest] = []
        self.limits_s: list[float] = []
        self.was_asked = asyncio.Event()

    async def ask(self, request: SearchRequest, *, timeout_s: float) -> Sequence[Hit]:
        self.asked.append(request)
        self.limits_s.append(timeout_s)
        self.was_asked.set()
        await asyncio.sleep(min(self.takes_s, timeout_s))
        if self.takes_s > timeout_s:
            raise BackendTimeout("qmd", "search", limit_s=timeout_s, elapsed_s=timeout_s)
        if self.error is not None:
            raise self.error
        return self.hits


async def test_the_daemon_that_is_up_is_asked_and_no_process_is_started() -> None:
    process, daemon = FakeTransport("process"), FakeTransport("daemon")

    found = await QmdClient(process, fast=daemon).ask(REQUEST, timeout_s=4.0)

    assert found == SearchReply(hits=daemon.hits, transport="daemon")
    assert (daemon.asked, process.asked) == ([REQUEST], [])


async def test_a_daemon_that_is_not_up_is_not_asked() -> None:
    process, daemon = FakeTransport("process"), FakeTransport("daemon", is_up=False)

    found = await QmdClient(process, fast=daemon).ask(REQUEST, timeout_s=4.0)

    assert found == SearchReply(hits=process.hits, transport="process")
    assert daemon.asked == []


async def test_without_a_quick_way_a_process_has_all_the_time() -> None:
    process = FakeTransport("process")

    found = await QmdClient(process).ask(REQUEST, timeout_s=60.0)

    assert found == SearchReply(hits=process.hits, transport="process")
    assert process.limits_s == [pytest.approx(60.0, abs=5.0)]


@pytest.mark.parametrize("error", PASSING, ids=lambda error: type(error).__name__)
async def test_a_process_answers_for_a_daemon_that_fails_and_the_detour_is_told(error: BackendError) -> None:
    process, daemon = FakeTransport("process"), FakeTransport("daemon", error=error)

    client = QmdClient(process, fast=daemon)
    found = await client.ask(REQUEST, timeout_s=4.0)

    assert (found, client.fast_error) == (SearchReply(hits=process.hits, transport="process"), error)
    assert process.asked == [REQUEST]


async def test_what_both_refuse_is_refused_in_the_words_of_the_process() -> None:
    because = BackendRejected("qmd", "search", status="exit code 1", body="unmatched quote")
    process, daemon = FakeTransport("process", error=because), FakeTransport("daemon", error=REJECTED)

    with pytest.raises(BackendRejected) as raised:
        await QmdClient(process, fast=daemon).ask(REQUEST, timeout_s=4.0)

    assert raised.value is because


async def test_the_daemon_gets_half_of_the_time_and_a_process_what_is_left() -> None:
    process, daemon = FakeTransport("process"), FakeTransport("daemon", takes_s=60.0)

    client = QmdClient(process, fast=daemon)
    found = await client.ask(REQUEST, timeout_s=1.0)

    assert (found.transport, type(client.fast_error)) == ("process", BackendTimeout)
    assert daemon.limits_s == [0.5]
    assert 0.0 < process.limits_s[0] <= 0.5


async def test_time_that_a_failing_daemon_did_not_need_is_left_to_the_process() -> None:
    process, daemon = FakeTransport("process"), FakeTransport("daemon", error=PASSING[0])

    await QmdClient(process, fast=daemon).ask(REQUEST, timeout_s=60.0)

    assert process.limits_s == [pytest.approx(60.0, abs=5.0)]


async def test_a_question_that_needs_models_waits_for_the_daemon_that_has_them_loaded() -> None:
    process, daemon = FakeTransport("process"), FakeTransport("daemon", takes_s=60.0)

    with pytest.raises(BackendTimeout):
        await QmdClient(process, fast=daemon).ask(EXPANDING, timeout_s=0.05)

    assert (daemon.limits_s, process.asked) == ([0.05], [])


async def test_a_question_that_needs_models_goes_to_a_process_when_the_daemon_is_gone() -> None:
    process, daemon = FakeTransport("process"), FakeTransport("daemon", error=PASSING[0])

    found = await QmdClient(process, fast=daemon).ask(EXPANDING, timeout_s=4.0)

    assert found == SearchReply(hits=process.hits, transport="process")


async def test_the_error_of_the_last_way_is_raised() -> None:
    process, daemon = FakeTransport("process", error=PASSING[1]), FakeTransport("daemon", error=PASSING[0])

    with pytest.raises(BackendGarbled) as raised:
        await QmdClient(process, fast=daemon).ask(REQUEST, timeout_s=4.0)

    assert raised.value is PASSING[1]


async def test_cancelling_a_question_does_not_lead_to_another_way() -> None:
    process, daemon = FakeTransport("process"), FakeTransport("daemon", takes_s=60.0)
    asking = asyncio.create_task(QmdClient(process, fast=daemon).ask(REQUEST, timeout_s=120.0))
    await daemon.was_asked.wait()

    asking.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asking
    assert process.asked == []


async def test_it_says_which_way_the_next_question_takes_and_why_not_the_quick_one() -> None:
    process, daemon = FakeTransport("process"), FakeTransport("daemon")
    client = QmdClient(process, fast=daemon)
    before = (client.transport, client.fast_error)
    daemon.error = TIMED_OUT
    await client.ask(REQUEST, timeout_s=4.0)
    failed = (client.transport, client.fast_error)
    daemon.error = None
    await client.ask(REQUEST, timeout_s=4.0)

    assert (before, failed) == (("daemon", None), ("process", TIMED_OUT))
    assert (client.transport, client.fast_error) == ("daemon", None)
