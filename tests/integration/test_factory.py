"""Managers that are shared: the same for the same request, made once, forgotten when closed or failed."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from composable_memory import (
    MemorySearchManagers,
    close_all_memory_search_managers,
    get_memory_search_manager,
    resolve_memory_backend_config,
)
from composable_memory.config.settings import Settings
from composable_memory.errors import BackendError, BackendUnavailable, ConfigError
from composable_memory.interfaces import (
    BackendServices,
    BackendSpec,
    DeclaresCapabilities,
    MemorySearchManager,
    QueryOrchestrator,
    SupportsSync,
)
from composable_memory.runtime.factory import SharedMemory
from composable_memory.testing import InMemoryBackend, InMemorySettings
from composable_memory.testing.in_memory import IN_MEMORY_CAPABILITIES
from composable_memory_adapters.qmd import spec as qmd_spec

KEYWORDS: Mapping[str, object] = {"memory": {"embedding": {"provider": "none"}}}


class Tale:
    """A backend for tests that notes how often it was opened and closed, and can hold up or fail."""

    def __init__(self) -> None:
        self.opened = 0
        self.closed = 0
        self.long_lived: list[bool] = []
        self.is_opening = asyncio.Event()
        self.may_open = asyncio.Event()
        self.may_open.set()
        self.trouble: Exception | None = None
        self.trouble_at_end: Exception | None = None
        self.spec = BackendSpec(
            id="tale",
            summary="Notes in memory, for tests.",
            settings=InMemorySettings,
            open=self.open,
            capabilities=IN_MEMORY_CAPABILITIES,
        )

    @asynccontextmanager
    async def open(
        self, settings: InMemorySettings, services: BackendServices
    ) -> AsyncIterator[MemorySearchManager]:
        self.is_opening.set()
        await self.may_open.wait()
        if self.trouble is not None:
            raise self.trouble
        self.opened += 1
        self.long_lived.append(services.is_long_lived)
        try:
            yield InMemoryBackend(settings.notes)
        finally:
            self.closed += 1
        if self.trouble_at_end is not None:
            raise self.trouble_at_end


class Asking:
    """Asks one set of managers for memories of one workspace, of the backend `tale` alone."""

    def __init__(self, managers: MemorySearchManagers, workspace: Path, state_dir: Path, tale: Tale) -> None:
        self.managers = managers
        self.workspace = workspace
        self.state_dir = state_dir
        self.tale = tale

    async def result(self, weight: float = 1.0, *, status: bool = False, agent_id: str = "main") -> object:
        return await self.managers.get(
            tale_only(weight),
            agent_id,
            "status" if status else "default",
            workspace=self.workspace,
            state_dir=self.state_dir,
            environ={},
            backends=[self.tale.spec],
        )

    async def manager(
        self, weight: float = 1.0, *, status: bool = False, agent_id: str = "main"
    ) -> SharedMemory:
        return opened(await self.result(weight, status=status, agent_id=agent_id))


def tale_only(weight: float = 1.0) -> dict[str, object]:
    return {
        "builtin": {"enabled": False},
        "embedding": {"provider": "none"},
        "backends": {"tale": {"enabled": True, "weight": weight}},
    }


def opened(result: object) -> SharedMemory:
    manager = getattr(result, "manager", None)
    assert isinstance(manager, SharedMemory), result
    return manager


def error(result: object) -> str:
    message = getattr(result, "error", None)
    assert getattr(result, "manager", None) is None
    assert isinstance(message, str)
    return message


@pytest.fixture
def tale() -> Tale:
    return Tale()


@pytest.fixture
async def asking(workspace: Path, state_dir: Path, tale: Tale) -> AsyncIterator[Asking]:
    async with MemorySearchManagers() as managers:
        yield Asking(managers, workspace, state_dir, tale)


async def test_a_manager_searches_reads_syncs_and_tells_its_status(workspace: Path, state_dir: Path) -> None:
    result = await get_memory_search_manager(KEYWORDS, workspace=workspace, state_dir=state_dir)
    manager = opened(result)
    report = await manager.sync()
    hits = await manager.search("ferry timetable Lindholm crossing")
    pack = await manager.context_pack("harbour office extension")
    read = await manager.read_file("MEMORY.md", from_line=1, lines=1)
    status = manager.status()
    await close_all_memory_search_managers()

    assert result.error is None
    assert report.files_indexed == 9
    assert "06:40" in hits[0].snippet
    assert "4417" in pack.pack
    assert read.text == "# Lasting notes"
    assert status.backend == "builtin"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_manager_keeps_the_promises_of_a_memory(asking: Asking) -> None:
    manager = await asking.manager()

    for promise in (MemorySearchManager, SupportsSync, QueryOrchestrator, DeclaresCapabilities):
        assert isinstance(manager, promise)
    assert manager.capabilities == IN_MEMORY_CAPABILITIES


async def test_the_same_request_gets_the_same_manager(asking: Asking, tale: Tale) -> None:
    one, other = await asking.manager(), await asking.manager()

    assert one is other
    assert (tale.opened, len(asking.managers)) == (1, 1)


async def test_other_settings_agents_and_workspaces_have_managers_of_their_own(
    asking: Asking, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    managers = [
        await asking.manager(),
        await asking.manager(weight=0.5),
        await asking.manager(agent_id="second"),
    ]
    asking.workspace = elsewhere
    managers.append(await asking.manager())
    asking.state_dir = elsewhere
    managers.append(await asking.manager())

    assert len(set(managers)) == len(asking.managers) == 5
    assert [one.settings.memory.agent_id for one in managers[1:3]] == ["main", "second"]


async def test_secrets_tell_settings_apart_and_are_not_kept_in_the_open(asking: Asking) -> None:
    async def manager(key: str) -> SharedMemory:
        providers = {"providers": {"openai": {"apiKey": key}}, "provider": "none"}
        return opened(
            await asking.managers.get(
                {**tale_only(), "embedding": providers},
                workspace=asking.workspace,
                state_dir=asking.state_dir,
                environ={},
                backends=[asking.tale.spec],
            )
        )

    assert await manager("sk-one") is not await manager("sk-two")
    assert await manager("sk-one") is await manager("sk-one")


async def test_another_folder_at_the_same_path_gets_a_manager_of_its_own(
    asking: Asking, workspace: Path
) -> None:
    before = await asking.manager()
    await asyncio.to_thread(workspace.rename, workspace.with_name("moved"))
    await asyncio.to_thread(workspace.mkdir)

    assert await asking.manager() is not before


async def test_a_workspace_may_be_named_in_other_words(asking: Asking) -> None:
    one = await asking.manager()
    asking.workspace = asking.workspace / "memory" / ".."

    assert await asking.manager() is one


async def test_concurrent_requests_share_one_opening(asking: Asking, tale: Tale) -> None:
    managers = await asyncio.gather(*(asking.manager() for _ in range(8)))

    assert len(set(managers)) == 1
    assert tale.opened == 1


async def test_one_that_gives_up_does_not_hurt_the_others(asking: Asking, tale: Tale) -> None:
    tale.may_open.clear()
    impatient, patient = asyncio.create_task(asking.manager()), asyncio.create_task(asking.manager())
    await tale.is_opening.wait()
    impatient.cancel()
    await asyncio.wait([impatient])
    tale.may_open.set()

    assert await patient is await asking.manager()
    assert impatient.cancelled()
    assert tale.opened == 1


async def test_closing_it_closes_it_for_all_and_the_next_gets_a_new_one(asking: Asking, tale: Tale) -> None:
    old, same = await asking.manager(), await asking.manager()
    await asyncio.gather(old.close(), same.close())
    await old.close()
    forgotten = len(asking.managers)
    new = await asking.manager()
    await old.close()

    assert new is not old
    assert (tale.opened, tale.closed, forgotten) == (2, 1, 0)
    assert await new.search("ferry")
    with pytest.raises(BackendUnavailable):
        await old.search("ferry")


async def test_one_that_could_not_be_opened_is_told_and_tried_again(asking: Asking, tale: Tale) -> None:
    tale.trouble = BackendError("tale", "open", "the book is lost")
    first = error(await asking.result())
    left = len(asking.managers)
    tale.trouble = None

    assert "the book is lost" in first
    assert left == 0
    assert await (await asking.manager()).search("ferry")


async def test_what_a_stranger_raises_is_told_as_well(asking: Asking, tale: Tale) -> None:
    tale.trouble = ZeroDivisionError("a stranger's fault")

    assert "ZeroDivisionError: a stranger's fault" in error(await asking.result())


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"memory": {"bakend": "builtin"}}, "did you mean 'memory.backend'"),
        ({"memory": "builtin"}, "expected keys and values below it"),
        ({"builtin": {"enabled": False}}, "none is enabled"),
    ],
    ids=["unknown key", "no section", "nothing enabled"],
)
async def test_settings_that_cannot_be_used_are_told(
    workspace: Path, state_dir: Path, config: Mapping[str, object], told: str
) -> None:
    async with MemorySearchManagers() as managers:
        result = await managers.get(config, workspace=workspace, state_dir=state_dir, environ={})

        assert told in error(result)
        assert len(managers) == 0


async def test_an_agent_that_could_not_be_a_file_is_told(asking: Asking) -> None:
    assert "memory.agent_id" in error(await asking.result(agent_id="../other"))


async def test_a_manager_for_a_look_is_the_callers_own_and_does_nothing_in_the_background(
    asking: Asking, tale: Tale
) -> None:
    shared = await asking.manager()
    one, other = await asking.manager(status=True), await asking.manager(status=True)
    await one.close()

    assert len({shared, one, other}) == 3
    assert tale.long_lived == [True, False, False]
    assert tale.closed == 1
    assert await other.search("ferry")


async def test_a_look_that_is_given_up_leaves_nothing(asking: Asking, tale: Tale) -> None:
    tale.may_open.clear()
    looking = asyncio.create_task(asking.manager(status=True))
    await tale.is_opening.wait()
    looking.cancel()
    await asyncio.wait([looking])

    assert looking.cancelled()
    assert len(asking.managers) == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_closing_all_closes_what_is_open_and_what_is_about_to_be(asking: Asking, tale: Tale) -> None:
    await asking.manager()
    await asking.manager(status=True)
    tale.may_open.clear()
    tale.is_opening.clear()
    opening = asyncio.create_task(asking.result(weight=0.5))
    await tale.is_opening.wait()
    await asking.managers.close_all()

    assert "closed while it opened" in error(await opening)
    assert (tale.opened, tale.closed, len(asking.managers)) == (2, 2, 0)
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_one_that_cannot_be_closed_does_not_keep_the_others_open(
    workspace: Path, state_dir: Path, tale: Tale, caplog: pytest.LogCaptureFixture
) -> None:
    managers = MemorySearchManagers()
    asking = Asking(managers, workspace, state_dir, tale)
    await asyncio.gather(asking.manager(), asking.manager(weight=0.5))
    tale.trouble_at_end = BackendError("tale", "close", "the cover is torn")

    await managers.close_all()

    assert (tale.closed, len(managers)) == (2, 0)
    assert all("the cover is torn" in one for one in caplog.messages)
    assert len(caplog.messages) == 2


async def test_a_close_that_is_cancelled_closes_all_the_same(asking: Asking, tale: Tale) -> None:
    manager = await asking.manager()
    closing = asyncio.create_task(manager.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    await manager.close()

    assert (tale.closed, len(asking.managers)) == (1, 0)


def test_each_event_loop_has_managers_of_its_own(workspace: Path, state_dir: Path, tale: Tale) -> None:
    async def use() -> Sequence[object]:
        result = await get_memory_search_manager(
            tale_only(), workspace=workspace, state_dir=state_dir, backends=[tale.spec]
        )
        return await opened(result).search("ferry")

    assert asyncio.run(use()) == asyncio.run(use()) != []
    assert (tale.opened, tale.closed) == (2, 2)


def test_the_backend_is_the_builtin_index_unless_told() -> None:
    resolved = resolve_memory_backend_config(None)

    assert (resolved.backend, resolved.citations, resolved.qmd) == ("builtin", "auto", None)


@pytest.mark.parametrize(
    "config",
    [
        {"memory": {"backend": "qmd", "citations": "always", "qmd": {"includeDefaultMemory": False}}},
        {"backend": "qmd", "citations": True, "backends": {"qmd": {"include_default_memory": False}}},
        {
            "agents": {},
            "memory": {"backend": "qmd", "citations": "on", "qmd": {"includeDefaultMemory": False}},
        },
        Settings.model_validate(
            {"memory": {"backend": "qmd", "citations": "on", "qmd": {"include_default_memory": False}}}
        ),
    ],
    ids=["file", "without the root key", "among other things", "settings"],
)
def test_qmd_is_resolved_with_its_defaults(config: Mapping[str, object] | Settings) -> None:
    resolved = resolve_memory_backend_config(config, "second", backends=[qmd_spec])

    assert (resolved.backend, resolved.citations) == ("qmd", "on")
    assert resolved.qmd is not None
    assert resolved.qmd["include_default_memory"] is False
    assert resolved.qmd["command"] == "qmd"


def test_a_config_that_cannot_be_used_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"memory\.citations"):
        resolve_memory_backend_config({"citations": "sometimes"})
    with pytest.raises(ConfigError, match=r"memory\.agent_id"):
        resolve_memory_backend_config({}, "../other")
