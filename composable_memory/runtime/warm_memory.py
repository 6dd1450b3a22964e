"""A memory that stays open between short commands, for the next command that would open the same one."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

from composable_memory.config.layers import LoadedSettings, load_settings
from composable_memory.errors import ComposableMemoryError
from composable_memory.folder_identity import FolderIdentity
from composable_memory.interfaces import Capability, EmbedderServices, SupportsRefresh
from composable_memory.learning.active_weights import activate
from composable_memory.registry import Registry
from composable_memory.runtime.embedder_choice import plan_embedder
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory.state.folders import existing_folder, memory_id_of
from composable_memory.state.workspaces import identify
from composable_memory.supervision.resource import Resource, open_resource
from composable_memory_feedback.errors import FeedbackError
from composable_memory_ops_logs.quick_dataclass import dataclass

CLOSED = "closed"
CLOSING_ERRORS = (ComposableMemoryError, FeedbackError, OSError)
"""What closing a shared memory may raise; its users have their answers, and the log has the error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a short command opens a memory with."""

    workspace: Path
    state_dir: Path
    environ: Mapping[str, str]
    registry: Registry

    def settings(self) -> tuple[LoadedSettings, bool]:
        """Return the current settings, and whether all its backends can stay open; reads files.

        Raises:
            ConfigError: the workspace is not a folder, or a setting is invalid.
        """
        loaded = load_settings(
            existing_folder(self.workspace),
            environ=self.environ,
            state_dir=self.state_dir,
            registry=self.registry,
        )
        memory = loaded.settings.memory
        enabled = [self.registry.backend(id_) for id_, section in memory.sections.items() if section.enabled]
        return loaded, not memory.fallback_id and all(
            one and one.spec and Capability.REFRESH in one.spec.capabilities for one in enabled
        )

    def open(self, environ: Mapping[str, str] | None = None) -> AbstractAsyncContextManager[Memory]:
        """Open a memory for this command only."""
        return open_memory(
            self.workspace,
            self.state_dir,
            environ=self.environ if environ is None else environ,
            registry=self.registry,
            long_lived=False,
        )


class WarmMemory:
    """Keeps the last opened memory open, from the first `borrow` to `close`.

    It is lent to any command that would open an identical one now: same workspace, settings and environment
    variables read, all backends healthy. Otherwise another is opened and replaces it. Several commands may
    use it at once.
    """

    def __init__(self) -> None:
        self.opened = 0
        """How many times a memory had to be opened."""
        self._kept: _Open | None = None
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock for each requested memory: opening it only delays requests for the same one."""

    @asynccontextmanager
    async def borrow(self, request: Request) -> AsyncIterator[Memory]:
        """Yield a memory as `open_memory` would for a single command.

        Does not wait for its log: the log's thread writes at once, and readers of the log wait for that.

        Raises:
            ConfigError: the workspace is not a folder, or a setting is invalid.
        """
        loaded, all_can_refresh = await asyncio.to_thread(request.settings)
        if not all_can_refresh:
            self.opened += 1
            async with request.open() as memory:
                yield memory
            return
        wanted = repr((request.workspace, request.state_dir, loaded))
        async with AsyncExitStack() as stack:
            async with self._locks.setdefault(wanted, asyncio.Lock()):
                opened = self._kept
                if opened is not None:
                    await stack.enter_async_context(self._in_use(opened, tolerating=CLOSING_ERRORS))
                if opened is None or not await opened.is_current(request, loaded):
                    self.opened += 1
                    opened = await _Open.of(request)
                    await stack.enter_async_context(self._in_use(opened))
                    if opened.is_healthy():
                        before, self._kept = self._kept, opened
                        if before is not None:  # if nobody else is using it, this request closes it
                            await stack.enter_async_context(self._in_use(before, tolerating=CLOSING_ERRORS))
            yield opened.memory

    @asynccontextmanager
    async def _in_use(
        self, opened: "_Open", *, tolerating: tuple[type[Exception], ...] = ()
    ) -> AsyncIterator[None]:
        """Count a user of a memory during the block; the last one closes it, unless it is kept."""
        opened.users += 1
        try:
            yield
        finally:
            opened.users -= 1
            if opened is not self._kept:
                with suppress(*tolerating):
                    await opened.close_if_unused()

    async def close(self) -> None:
        """Close the memory once its last user is done."""
        before, self._kept = self._kept, None
        if before is not None:
            await before.close_if_unused()


class _Open:
    """An open memory, what it was opened with, and its number of users."""

    def __init__(
        self,
        request: Request,
        folder: FolderIdentity,
        environ: "_ReadEnvironment",
        resource: Resource[Memory],
    ) -> None:
        self.memory = resource.value
        self.users = 0
        self._refreshing = asyncio.Lock()
        self._request, self._folder, self._environ, self._resource = request, folder, environ, resource

    @classmethod
    async def of(cls, request: Request) -> "_Open":
        environ = _ReadEnvironment(request.environ)
        folder = await asyncio.to_thread(FolderIdentity.at, request.workspace)
        resource = await open_resource(partial(request.open, environ))
        environ.is_complete = True
        return cls(request, folder, environ, resource)

    def is_healthy(self) -> bool:
        """Return whether there is nothing wrong with it that reopening might fix."""
        memory, choice = self.memory, self.memory.embedder
        is_embedding = choice.embedder is not None or memory.settings.memory.embedding.provider == "none"
        breakers = memory.manager.status().custom["breakers"]
        return (
            is_embedding
            and not self._environ.has_late_reads
            and choice.is_local
            and choice.fallback is None
            and not memory.unavailable()
            and not memory.forgotten.pending
            and memory.context.remark is None
            and isinstance(breakers, dict)
            and {*breakers.values()} == {CLOSED}
        )

    async def is_current(self, request: Request, loaded: LoadedSettings) -> bool:
        """Return whether it is equivalent to a memory opened now."""
        if not self.is_healthy() or not await asyncio.to_thread(self._was_opened_alike, request, loaded):
            return False
        able = self.memory.manager.backends_with(Capability.REFRESH).values()
        try:
            async with self._refreshing:
                await activate(self.memory.context, self.memory.weights)
                return all([await one.refresh() for one in able if isinstance(one, SupportsRefresh)])
        except (ComposableMemoryError, FeedbackError):  # opening another one will report the reason
            return False

    def _was_opened_alike(self, request: Request, loaded: LoadedSettings) -> bool:
        memory, environ = self.memory, request.environ
        if (request.state_dir, existing_folder(request.workspace), loaded) != (
            self._request.state_dir,
            memory.workspace_dir,
            memory.loaded,
        ):
            return False
        # Not before: identifying a replaced folder warns only once.
        if FolderIdentity.at(memory.workspace_dir) != self._folder:
            return False
        settings, clock = memory.settings.memory, memory.context.clock
        services = EmbedderServices(
            state_dir=memory.state_dir, environ=environ, ops_log=memory.ops_log, clock=clock
        )
        plan = plan_embedder(loaded, memory.registry, services)
        if plan.first.passed_over != memory.embedder.considered:  # such as one whose model is available now
            return False
        here = identify(memory.state_dir, memory.workspace_dir, now=clock(), name=settings.id)
        return (
            memory_id_of(settings.agent_id, here.id) == memory.context.memory_id
            and all(environ.get(name) == value for name, value in self._environ.asked.items())
            and not memory.forgotten.is_unfinished(memory.manager.backends_with(Capability.FORGET))
        )

    async def close_if_unused(self) -> None:
        """Close it, unless someone is still using it and will."""
        if not self.users:
            await self._resource.close()


class _ReadEnvironment(Mapping[str, str]):
    """An environment that records what is read from it; None for variables that are not set.

    A variable first read after it `is_complete` is read for another command, whose own value may differ.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self.asked: dict[str, str | None] = {}
        self.is_complete = self.has_late_reads = False

    def __getitem__(self, name: str) -> str:
        if self.is_complete:
            self.has_late_reads |= name not in self.asked
        else:
            self.asked[name] = self._environ.get(name)
        return self._environ[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._environ)

    def __len__(self) -> int:
        return len(self._environ)
