"""Handing contents to an open memory, and finding the one that keeps facts."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from composable_memory.config.layers import LoadedSettings
from composable_memory.config.settings import Settings
from composable_memory.content import IngestReport, MemoryContentObject
from composable_memory.errors import BackendError, ConfigError
from composable_memory.forget.tombstones import Forgotten
from composable_memory.interfaces import BackendSpec, Capability, MemorySearchManager
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.ranking import LiveWeights
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.registry import Found, Offers, Registry
from composable_memory.runtime.memory import Memory
from composable_memory.testing.in_memory import FakeBackend, InMemoryBackend, InMemorySettings
from composable_memory.testing.in_memory import spec as in_memory_spec
from composable_memory.types import Degradation, MemorySearchResult, SearchOptions
from composable_memory_ops_logs import OpsLog
from tests.learning_contexts import idle_context

CONTENTS = [MemoryContentObject(id=str(number), kind="message", text="hello") for number in range(3)]


class Taking(FakeBackend):
    """Takes contents, or raises what it was made with."""

    capabilities = frozenset({Capability.INGEST})

    def __init__(self, backend_id: str, error: Exception | None = None) -> None:
        super().__init__(backend_id)
        self.error = error
        self.taken: list[tuple[str | None, int, bool]] = []

    async def search(self, query: str, options: SearchOptions | None = None) -> list[MemorySearchResult]:
        del query, options
        return []

    async def ingest(self, contents: Sequence[MemoryContentObject], *, wait: bool = True) -> IngestReport:
        return self._take(None, contents, wait)

    async def ingest_source(
        self, path: str, contents: Sequence[MemoryContentObject], *, wait: bool = True
    ) -> IngestReport:
        return self._take(path, contents, wait)

    def _take(self, path: str | None, contents: Sequence[MemoryContentObject], wait: bool) -> IngestReport:
        if self.error is not None:
            raise self.error
        self.taken.append((path, len(contents), wait))
        return IngestReport(run_id="1", stored=len(contents))


TAKER = BackendSpec(
    id="taker",
    summary="takes contents",
    settings=InMemorySettings,
    open=in_memory_spec.open,
    capabilities=frozenset({Capability.INGEST}),
)


def a_memory(*backends: MemorySearchManager, unavailable: tuple[Degradation, ...] = ()) -> Memory:
    entries = [ComposableBackendEntry(id=getattr(one, "id", "notes"), manager=one) for one in backends]
    ops_log = OpsLog(None)
    return Memory(
        manager=ComposableMemoryManager(entries, ops_log=ops_log, unavailable=unavailable),
        loaded=LoadedSettings(settings=Settings()),
        registry=Registry(backends=Offers([Found(id="taker", origin="here", spec=TAKER)])),
        workspace_dir=Path(),
        state_dir=Path(),
        ops_log=ops_log,
        forgotten=Forgotten(Path(), "nobody"),
        context=idle_context(ops_log),
        weights=LiveWeights({}),
    )


async def test_contents_go_to_every_backend_that_takes_them() -> None:
    one, other = Taking("one"), Taking("other")

    reports = await a_memory(InMemoryBackend(backend_id="notes"), one, other).ingest(CONTENTS, wait=False)

    assert {backend_id: report.stored for backend_id, report in reports.items()} == {"one": 3, "other": 3}
    assert one.taken == other.taken == [(None, 3, False)]


async def test_contents_of_a_source_go_to_the_named_backend_alone() -> None:
    one, other = Taking("one"), Taking("other")

    await a_memory(one, other).ingest_source("memory/a.md", CONTENTS, backend="other")

    assert (one.taken, other.taken) == ([], [("memory/a.md", 3, True)])


async def test_one_backend_that_fails_has_a_report_that_says_so() -> None:
    broken = Taking("broken", BackendError("broken", "ingest", "the disk is full"))

    reports = await a_memory(Taking("one"), broken).ingest(CONTENTS)

    assert reports["one"].ok
    assert reports["broken"].failed == 3
    assert "the disk is full" in reports["broken"].problems[0]


async def test_when_all_fail_the_first_error_is_raised() -> None:
    broken = Taking("broken", BackendError("broken", "ingest", "the disk is full"))

    with pytest.raises(BackendError, match="the disk is full"):
        await a_memory(broken).ingest(CONTENTS)


async def test_where_nobody_takes_contents_the_setting_to_make_is_named() -> None:
    with pytest.raises(ConfigError, match=r"memory\.taker\.enabled.*set it to true"):
        await a_memory(InMemoryBackend()).ingest(CONTENTS)


async def test_where_the_one_that_would_take_them_is_not_open_the_reason_is_named() -> None:
    lost = Degradation(backend_id="taker", code="unavailable", reason="pip install it")

    with pytest.raises(ConfigError, match="taker: pip install it") as refused:
        await a_memory(InMemoryBackend(), unavailable=(lost,)).ingest(CONTENTS)

    assert "set it to true" not in str(refused.value)


async def test_a_backend_that_does_not_take_contents_is_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="'notes' is no open backend that takes contents; one is"):
        await a_memory(InMemoryBackend(backend_id="notes"), Taking("one")).ingest(CONTENTS, backend="notes")


def test_where_nobody_keeps_facts_the_setting_to_make_is_named() -> None:
    with pytest.raises(ConfigError, match="no open backend keeps facts"):
        a_memory(InMemoryBackend()).facts_of()
