"""A primary from the settings and the builtin index that stands in for it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from composable_memory import Memory, open_memory
from composable_memory.config.layers import load_settings
from composable_memory.content import MemoryContentObject
from composable_memory.errors import BackendUnavailable, ConfigError
from composable_memory.interfaces import BackendServices, BackendSpec, Capability, MemorySearchManager
from composable_memory.registry import discover_backends
from composable_memory.runtime.backends import BackendOpener, OpenBackends
from composable_memory.testing.fakes import RaisingBackend
from composable_memory.testing.in_memory import InMemoryBackend
from composable_memory.testing.in_memory import spec as in_memory
from composable_memory.types import QueryIntent, QueryResponse, TimeHint
from tests.integration import remembering_backend
from tests.integration.qmd.faulty_qmd import install

PATIENT = {"sync": {"onSearchWaitMs": 60_000}}  # the first question of an index has it made
KEYWORDS = {"embedding": {"provider": "none"}, "builtin": PATIENT}
QUESTION = "dock controller"


def a_spec(id_: str, make: Callable[[], MemorySearchManager], **fields: object) -> BackendSpec:
    @asynccontextmanager
    async def opened(settings: object, services: BackendServices) -> AsyncIterator[MemorySearchManager]:
        yield make()

    return replace(in_memory, id=id_, open=opened, **fields)  # type: ignore[arg-type]


def refuse() -> MemorySearchManager:
    raise BackendUnavailable("first", "the tool is not installed", fix="run `get tool`")


WORKING = a_spec(
    "first", lambda: InMemoryBackend({"x.md": "The dock controller is blue."}, backend_id="first")
)
FAILING = a_spec("first", lambda: RaisingBackend(backend_id="first"))
REFUSING = a_spec("first", refuse)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "MEMORY.md").write_text("The dock controller listens on port 8443.\n", encoding="utf-8")
    return folder


async def asked(
    notes: Path, state_dir: Path, spec: BackendSpec | None, **said: object
) -> tuple[QueryResponse, Memory]:
    """Open a memory whose primary is called `first`, and ask it."""
    config = {"memory": {**KEYWORDS, "backend": "first", **said}}
    async with open_memory(notes, state_dir, config, backends=[spec] if spec else []) as memory:
        response = await memory.query(QUESTION)
    return response, memory


def told(response: QueryResponse) -> set[tuple[str, str]]:
    return {(one.backend_id, one.code) for one in response.degraded}


def indexes(state_dir: Path) -> list[Path]:
    return list(state_dir.rglob("memory/*.sqlite"))


async def test_a_primary_that_works_is_asked_alone_and_nothing_is_indexed_twice(
    notes: Path, state_dir: Path
) -> None:
    response, memory = await asked(notes, state_dir, WORKING)

    assert [one.backend_id for one in response.answers] == ["first"]
    assert [one.path for one in response.results] == ["x.md"]
    assert (response.degraded, memory.unavailable()) == ((), ())
    assert await asyncio.to_thread(indexes, state_dir) == []


@pytest.mark.parametrize("spec", [FAILING, REFUSING, None], ids=["failing", "refusing", "not installed"])
async def test_the_index_answers_for_a_primary_that_cannot(
    notes: Path, state_dir: Path, spec: BackendSpec | None
) -> None:
    response, _ = await asked(notes, state_dir, spec)

    assert [one.path for one in response.results] == ["MEMORY.md"]
    assert [one.backend_id for one in response.answers] == ["first"]
    assert ("first", "fallback") in told(response)


async def test_the_index_answers_for_a_qmd_that_crashes(notes: Path, state_dir: Path, tmp_path: Path) -> None:
    qmd = await asyncio.to_thread(install, tmp_path / "faulty")
    patient = {"command": qmd.command, "limits": {"timeout_ms": 20_000}}
    config = {"memory": {**KEYWORDS, "backend": "qmd", "qmd": patient}}
    async with open_memory(notes, state_dir, config, long_lived=False) as memory:
        well = await memory.query(QUESTION)
        qmd.will("crash")
        ill = await memory.query(QUESTION)
        status = memory.status()

    assert [(one.path, one.source_backend) for one in well.results] == [("MEMORY.md", "qmd")]
    assert [(one.path, one.metadata["answered_by"]) for one in ill.results] == [("MEMORY.md", "builtin")]
    assert (told(well), ("qmd", "fallback") in told(ill)) == (set(), True)
    assert (status.backend, status.fallback and status.fallback.from_) == ("builtin", "qmd")


async def test_what_could_not_be_opened_is_told_with_what_to_do(notes: Path, state_dir: Path) -> None:
    config = {"memory": {**KEYWORDS, "backend": "first"}}
    async with open_memory(notes, state_dir, config, backends=[REFUSING]) as memory:
        (lost,) = memory.unavailable()
        status = memory.status()

    assert (lost.backend_id, lost.code) == ("first", "unavailable")
    assert "run `get tool`" in lost.reason
    fallback = status.custom["fallback"]
    assert isinstance(fallback, Mapping)
    assert (fallback["from"], fallback["to"], fallback["reason"]) == ("first", "builtin", lost.reason)


async def test_an_index_that_is_wanted_anyway_is_asked_at_the_same_time(notes: Path, state_dir: Path) -> None:
    response, _ = await asked(notes, state_dir, WORKING, builtin={**PATIENT, "enabled": True})

    assert {one.backend_id for one in response.answers} == {"builtin", "first"}
    assert {one.path for one in response.results} == {"x.md", "MEMORY.md"}


@pytest.mark.parametrize("said", [{"fallback": "none"}, {"builtin": {"enabled": False}}], ids=str)
async def test_nobody_stands_in_where_the_settings_want_none(
    notes: Path, state_dir: Path, said: dict[str, object]
) -> None:
    response, memory = await asked(notes, state_dir, REFUSING, **said)

    assert response.results == ()
    assert ("first", "unavailable") in told(response)
    assert memory.pair is None


async def test_settings_of_the_stand_in_are_checked_before_it_is_needed(notes: Path, state_dir: Path) -> None:
    with pytest.raises(ConfigError, match=r"memory\.builtin\.chunking\.tokens"):
        await asked(notes, state_dir, WORKING, builtin={"chunking": {"tokens": "many"}})


async def test_settings_of_a_primary_with_a_stand_in_are_checked(notes: Path, state_dir: Path) -> None:
    with pytest.raises(ConfigError, match=r"memory\.first\.colour.*unknown key"):
        await asked(notes, state_dir, REFUSING, backends={"first": {"colour": "red"}})


async def test_what_only_the_primary_can_do_is_done_by_it(notes: Path, state_dir: Path) -> None:
    config = {"memory": {**KEYWORDS, "backend": "remembering"}}
    content = MemoryContentObject(id="a", kind="message", text="Alice works at Acme.")
    async with open_memory(notes, state_dir, config, backends=[remembering_backend.spec]) as memory:
        reports = await memory.ingest([content])
        facts = await memory.facts_of().facts()

    assert [reports["remembering"].stored, len(facts)] == [1, 1]


async def test_who_cannot_be_opened_is_named_where_only_it_could_do_something(
    notes: Path, state_dir: Path
) -> None:
    taking = replace(REFUSING, capabilities=frozenset({Capability.INGEST}))
    config = {"memory": {**KEYWORDS, "backend": "first"}}
    async with open_memory(notes, state_dir, config, backends=[taking]) as memory:
        with pytest.raises(ConfigError, match=r"no open backend takes contents \(first: .*get tool"):
            await memory.ingest([])


# --- entries ----------------------------------------------------------------------------------------------


async def opened(services: BackendServices, spec: BackendSpec, **said: object) -> OpenBackends:
    """Return the entries of a memory whose backend `first` has the section `said`, already closed again."""
    config = {**KEYWORDS, "backends": {"first": said}, "builtin": {"timeout_ms": 300}}
    config |= {"backend": "first"} if said.pop("primary", True) else {"builtin": {"enabled": False}}
    loaded = await asyncio.to_thread(load_settings, services.workspace_dir, overrides=config, environ={})
    registry = await asyncio.to_thread(discover_backends, [spec])
    async with AsyncExitStack() as stack:
        return await BackendOpener(loaded=loaded, registry=registry, services=services).open_all(stack)


async def test_the_deadline_of_a_pair_is_long_enough_for_both(services: BackendServices) -> None:
    backends = await opened(services, WORKING, timeout_ms=1200, weight=0.5)

    (entry,) = backends.entries
    assert (entry.id, entry.timeout_s, entry.weight) == ("first", 1.5, 0.5)
    assert entry.manager is backends.pair


async def test_a_backend_without_a_stand_in_has_its_own_deadline(services: BackendServices) -> None:
    backends = await opened(services, WORKING, primary=False, timeout_ms=1200)

    assert [(one.id, one.timeout_s) for one in backends.entries] == [("first", 1.2)]
    assert backends.pair is None


ENTITIES, TOPICS = QueryIntent(entities=("Ada",)), QueryIntent(topics=("ports",))
TIMES = QueryIntent(time_hints=(TimeHint(phrase="today", type="day"),))


def names_a_topic(intent: QueryIntent) -> bool:
    return bool(intent.topics)


@pytest.mark.parametrize(
    ("section", "own", "met"),
    [
        ({}, None, None),
        ({}, names_a_topic, [False, True, False, False]),
        ({"condition": []}, names_a_topic, None),
        ({"condition": ["entities"]}, names_a_topic, [True, False, False, False]),
        ({"condition": ["times"]}, None, [False, False, True, False]),
        ({"condition": ["topics", "times"]}, None, [False, True, True, False]),
    ],
)
@pytest.mark.parametrize("primary", [True, False])
async def test_a_backend_is_asked_on_the_condition_of_its_section_or_else_of_its_spec(
    services: BackendServices,
    section: dict[str, object],
    own: Callable[[QueryIntent], bool] | None,
    met: list[bool] | None,
    primary: bool,
) -> None:
    spec = replace(WORKING, condition=own)
    backends = await opened(services, spec, primary=primary, **section)

    condition = backends.entries[0].condition
    assert (condition and [condition(one) for one in (ENTITIES, TOPICS, TIMES, QueryIntent())]) == met
