"""Memories shared by all callers that ask for the same one: opened once, cached, and closed together."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import fields
from hashlib import sha256
from pathlib import Path
from typing import Literal, Self

from pydantic import SecretStr

from composable_memory.config.aliases import ResolvedMemoryBackendConfig
from composable_memory.config.layers import (
    checked_settings,
    default_state_dir,
    load_settings,
    validate_backend_options,
)
from composable_memory.config.settings import Settings
from composable_memory.config.trees import Origin, tree_of
from composable_memory.config.validation import place_sections
from composable_memory.errors import BackendError, BackendUnavailable, ComposableMemoryError, ConfigError
from composable_memory.interfaces import BackendSpec, Capability
from composable_memory.registry import discover_backends
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory.state.folders import existing_folder
from composable_memory.supervision.deadline import BoundedCalls, Failure
from composable_memory.supervision.resource import LazyResource, Once
from composable_memory.types import SearchAnswer, SearchOptions
from composable_memory_ops_logs.quick_dataclass import dataclass

OPEN_TIMEOUT_S = 600.0
CLOSE_TIMEOUT_S = 60.0

_CALLER = Origin(layer="override")

Purpose = Literal["default", "status"]
"""What a manager is wanted for: to be kept, or just to read its status."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedMemory(Memory):
    """A memory, and `MemorySearchManager`, with several users: closing it closes it for all of them."""

    closing: Once[None]

    @classmethod
    def of(
        cls, memory: Memory, release: Callable[["SharedMemory"], Coroutine[object, object, None]]
    ) -> "SharedMemory":
        """Share `memory`, which `release` closes."""
        parts = {field.name: getattr(memory, field.name) for field in fields(memory)}
        closing: Once[None] = Once(lambda: release(shared), name="close shared memory")
        shared = cls(**parts, closing=closing)
        return shared

    @property
    def capabilities(self) -> frozenset[Capability]:
        """Return the capabilities of the backends."""
        return self.manager.capabilities

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Search, and list what is missing from the answer."""
        return await self.manager.answer(query, options)

    async def close(self) -> None:
        """Close it for all users; calling it again does nothing.

        Cancelling a call stops the waiting, not the closing.
        """
        await self.closing()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchManagerResult:
    """A manager, or the reason why there is none."""

    manager: SharedMemory | None = None
    error: str | None = None


def resolve_memory_backend_config(
    config: Mapping[str, object] | Settings | None,
    agent_id: str = "main",
    *,
    backends: Sequence[BackendSpec] = (),
) -> ResolvedMemoryBackendConfig:
    """Return the backend settings in `config`, with defaults filled in; reads no settings file.

    `config` has the shape of a settings file, with or without the root key `memory`; other root keys are
    ignored. `backends` adds backends that are not installed as plug-ins.

    Imports the installed backends: call it in a thread when an event loop is running.

    Raises:
        ConfigError: a key is unknown, or a value is out of range.
    """
    registry = discover_backends(backends)
    tree = place_sections(tree_of(_overrides(config, agent_id), _CALLER), registry.backends.ids)
    memory = checked_settings(tree, registry).memory
    registry = registry.with_kinds(memory.kinds)
    options: dict[str, Mapping[str, object]] = {}
    for backend_id, section in memory.sections.items():
        if section.enabled:
            found = registry.backend(backend_id)
            own = validate_backend_options(memory, found.spec) if found and found.spec else None
            options[backend_id] = own.model_dump(mode="json") if own else dict(section.options)
    return ResolvedMemoryBackendConfig.of(memory, options)


class MemorySearchManagers:
    """The open managers, by agent, workspace, state folder and settings.

    Concurrent requests for the same manager share one opening, which continues if one of the callers gives
    up. A manager that was closed, by anyone, or failed to open, is forgotten and opened anew for the next
    caller. Leaving this as an async context manager closes all. Use from one event loop only.
    """

    def __init__(self) -> None:
        self._places: dict[object, _Place] = {}
        self._calls = BoundedCalls()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close_all()

    def __len__(self) -> int:
        """Return how many are open or opening."""
        return len(self._places)

    async def get(
        self,
        config: Mapping[str, object] | Settings | None = None,
        agent_id: str = "main",
        purpose: Purpose = "default",
        *,
        workspace: str | Path = ".",
        state_dir: str | Path | None = None,
        environ: Mapping[str, str] | None = None,
        backends: Sequence[BackendSpec] = (),
    ) -> SearchManagerResult:
        """Return the manager for these settings; see `get_memory_search_manager`."""
        try:
            request = _Request(
                overrides=_overrides(config, agent_id),
                workspace=Path(workspace),
                state_dir=None if state_dir is None else Path(state_dir),
                environ=environ,
                backends=tuple(backends),
                is_long_lived=purpose != "status",
            )
            key = await asyncio.to_thread(request.key)
        except ComposableMemoryError as error:
            return SearchManagerResult(error=str(error))
        if purpose == "status":
            key = object()
        async with AsyncExitStack() as stack:
            if purpose == "status":  # not shared
                stack.push_async_callback(self._close, key)
            outcome = await self._wait_for(key, request)
            stack.pop_all()
        if isinstance(outcome, Failure):
            return SearchManagerResult(error=outcome.reason)
        return SearchManagerResult(manager=outcome)

    async def close_all(self) -> None:
        """Close all that are open or opening; others may be opened afterwards.

        Raises:
            BackendError: one of them failed to close; the others are closed.
        """
        closing = [
            self._calls.run("memory", "close", self._close(key), CLOSE_TIMEOUT_S) for key in self._places
        ]
        outcomes = await asyncio.gather(*closing)
        failures = [outcome.reason for outcome in outcomes if isinstance(outcome, Failure)]
        if failures:
            raise BackendError("memory", "close", "; ".join(failures))

    async def _wait_for(self, key: object, request: "_Request") -> SharedMemory | Failure:
        place = self._places.get(key)
        if place is None:
            resource = LazyResource(lambda: self._open(key, request), limit_s=OPEN_TIMEOUT_S)
            place = self._places[key] = _Place(resource)
        place.waiting += 1
        try:
            return await self._calls.run("memory", "open", place.resource.get(), None)
        finally:
            place.waiting -= 1
            self._forget_if_idle(key)

    @asynccontextmanager
    async def _open(self, key: object, request: "_Request") -> AsyncIterator[SharedMemory]:
        async with request.open() as memory:
            if not memory.manager.backend_ids:
                raise _nothing_open(memory)
            yield SharedMemory.of(memory, lambda shared: self._close(key, shared))

    async def _close(self, key: object, shared: SharedMemory | None = None) -> None:
        """Close the manager with this key; with `shared`, only if it is still that one."""
        place = self._places.get(key)
        if place is None or (shared is not None and place.resource.value is not shared):
            return
        try:
            await place.resource.close()
        finally:
            self._forget_if_idle(key)

    def _forget_if_idle(self, key: object) -> None:
        place = self._places.get(key)
        if place is not None and place.resource.is_idle and not place.waiting:
            del self._places[key]


async def get_memory_search_manager(
    config: Mapping[str, object] | Settings | None = None,
    agent_id: str = "main",
    purpose: Purpose = "default",
    *,
    workspace: str | Path = ".",
    state_dir: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    backends: Sequence[BackendSpec] = (),
) -> SearchManagerResult:
    """Return the memory of an agent; callers on one event loop that ask for the same memory share it.

    `config` overrides the settings files, with the same keys; root keys other than `memory` are ignored.
    `agent_id` overrides the agent of the settings. The rest is as for `open_memory`. Closing the manager
    closes it for all callers. With purpose `status`, the manager is the caller's own to close, and does
    nothing in the background.

    If something goes wrong, `error` says what and there is no manager; the next call tries again.
    """
    return await _managers_of_this_loop().get(
        config,
        agent_id,
        purpose,
        workspace=workspace,
        state_dir=state_dir,
        environ=environ,
        backends=backends,
    )


async def close_all_memory_search_managers() -> None:
    """Close every manager that `get_memory_search_manager` opened on this event loop.

    Raises:
        BackendError: one of them failed to close; the others are closed.
    """
    await _managers_of_this_loop().close_all()


@dataclass(slots=True)
class _Place:
    """One manager, and how many callers are waiting for it."""

    resource: LazyResource[SharedMemory]
    waiting: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """A request for a memory."""

    overrides: Mapping[str, object]
    workspace: Path
    state_dir: Path | None
    environ: Mapping[str, str] | None
    backends: tuple[BackendSpec, ...]
    is_long_lived: bool

    def key(self) -> object:
        """Return a key that is equal for requests for the same memory. Reads files."""
        environ = os.environ if self.environ is None else self.environ
        state_dir = self.state_dir or default_state_dir(environ)
        loaded = load_settings(
            self.workspace,
            overrides=self.overrides,
            environ=environ,
            state_dir=state_dir,
            registry=discover_backends(self.backends),
        )
        folder = existing_folder(self.workspace)
        seen = folder.stat()  # a replaced folder at the same path is another workspace
        return (
            loaded.settings.memory.agent_id,
            (folder, seen.st_dev, seen.st_ino),
            state_dir.expanduser().resolve(),
            _digest(loaded.settings.model_dump()),
            _digest(self.environ),
            self.backends,
        )

    def open(self) -> AbstractAsyncContextManager[Memory]:
        return open_memory(
            self.workspace,
            self.state_dir,
            self.overrides,
            backends=self.backends,
            environ=self.environ,
            long_lived=self.is_long_lived,
        )


_managers: dict[asyncio.AbstractEventLoop, MemorySearchManagers] = {}
"""A manager lives on the event loop that opened it, so each loop has its own."""


def _managers_of_this_loop() -> MemorySearchManagers:
    for loop in [one for one in list(_managers) if one.is_closed()]:
        _managers.pop(loop, None)
    return _managers.setdefault(asyncio.get_running_loop(), MemorySearchManagers())


def _overrides(config: Mapping[str, object] | Settings | None, agent_id: str) -> dict[str, object]:
    """Return the content of `memory` in `config`, with the requested agent."""
    data = config.model_dump(exclude_unset=True) if isinstance(config, Settings) else config or {}
    below = (data["memory"] or {}) if "memory" in data else data
    if not isinstance(below, Mapping):
        raise ConfigError("memory", "expected keys and values below it", origin=str(_CALLER))
    given = {name: value for name, value in below.items() if name not in ("agentId", "agent_id")}
    return {**given, "agent_id": agent_id}


def _digest(value: object) -> str:
    """Return a short text that is equal for equal values, and does not reveal secrets."""
    text = json.dumps(value, sort_keys=True, default=_plain)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _plain(value: object) -> str:
    return value.get_secret_value() if isinstance(value, SecretStr) else str(value)


def _nothing_open(memory: Memory) -> BackendUnavailable:
    reasons = "; ".join(one.reason for one in memory.unavailable()) or "none is enabled"
    return BackendUnavailable("memory", f"no backend is open ({reasons})", fix="run `cmem backends list`")
