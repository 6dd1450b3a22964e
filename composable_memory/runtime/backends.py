"""Opens the backends that the settings enable, and makes each an entry of the composite."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from composable_memory.config.layers import LoadedSettings, validate_backend_options
from composable_memory.config.settings import BackendSection
from composable_memory.errors import (
    BackendError,
    BackendUnavailable,
    ComposableMemoryError,
    ConfigError,
)
from composable_memory.interfaces import BackendServices, BackendSpec, Capability, MemorySearchManager
from composable_memory.query.calibration import Calibration
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.registry import Registry, check_capabilities
from composable_memory.supervision.deadline import CLOSE_TIMEOUT_S, deadline
from composable_memory.types import Degradation, QueryIntent
from composable_memory_ops_logs import BackendDegraded, BackendOpened
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from composable_memory.runtime.failover import FallbackMemoryManager

log = logging.getLogger(__name__)

OPEN_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenBackends:
    """The entries of the open backends, and the enabled backends that could not be opened.

    `pair` is the primary with its fallback, if there is one; together they have one entry.
    """

    entries: tuple[ComposableBackendEntry, ...]
    unavailable: tuple[Degradation, ...]
    pair: "FallbackMemoryManager | None" = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendOpener:
    """Opens backends according to the settings, with the services that the memory provides to them."""

    loaded: LoadedSettings
    registry: Registry
    services: BackendServices

    async def open_all(self, stack: AsyncExitStack) -> OpenBackends:
        """Open every enabled backend; `stack` closes them in reverse order.

        Raises:
            ConfigError: a setting of a backend is invalid.
        """
        memory = self.loaded.settings.memory
        enabled = [id_ for id_, section in memory.sections.items() if section.enabled]
        # The first access to a spec imports it, which must not happen on the event loop.
        await asyncio.to_thread(lambda: [*map(self.registry.backend, {*enabled, memory.fallback_id or ""})])
        entries: list[ComposableBackendEntry] = []
        unavailable: list[Degradation] = []
        pair = self._pair(memory.backend, memory.fallback_id) if memory.fallback_id else None
        for backend_id in enabled:
            paired = pair if backend_id == memory.backend else None
            try:
                async with deadline(backend_id, "open", OPEN_TIMEOUT_S):
                    manager = await stack.enter_async_context(
                        self._log_close_errors(backend_id, paired or self.opened(backend_id))
                    )
            except ConfigError:
                raise
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in must not stop others
                unavailable.append(self._failure(backend_id, error))
            else:
                entries.append(self._entry(backend_id, manager, memory.fallback_id if paired else None))
        return OpenBackends(entries=tuple(entries), unavailable=tuple(unavailable), pair=pair)

    @asynccontextmanager
    async def _log_close_errors(
        self, backend_id: str, opening: AbstractAsyncContextManager[MemorySearchManager]
    ) -> AsyncIterator[MemorySearchManager]:
        """Open a backend; an error while closing it is only logged, since the answers have been given."""
        manager = await opening.__aenter__()
        try:
            yield manager
        finally:
            try:
                async with deadline(backend_id, "close", CLOSE_TIMEOUT_S):
                    await opening.__aexit__(None, None, None)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - a plug-in may raise anything
                log.warning("%s", self._failure(backend_id, error, "close").reason)

    @asynccontextmanager
    async def opened(self, backend_id: str) -> AsyncIterator[MemorySearchManager]:
        """Open one backend; leaving the block closes it.

        Raises:
            BackendError: it cannot be opened.
            ConfigError: one of its settings is invalid.
        """
        spec = self._spec(backend_id)
        options = validate_backend_options(self.loaded.settings.memory, spec, self.loaded.origins)
        async with spec.open(options, replace(self.services, backend_id=backend_id)) as manager:
            check_capabilities(manager, spec)
            opened = BackendOpened(what=spec.summary, capabilities=sorted(spec.capabilities))
            self.services.ops_log.emit(opened, backend=backend_id)
            yield manager

    def _pair(self, primary_id: str, fallback_id: str) -> "FallbackMemoryManager":
        """Return a primary with its fallback, neither of them open yet; validate the settings of both."""
        # Imported here: most memories have no fallback.
        from composable_memory.runtime.failover import FailoverMember, FallbackMemoryManager

        for backend_id in (primary_id, fallback_id):
            if spec := self._offered(backend_id):
                validate_backend_options(self.loaded.settings.memory, spec, self.loaded.origins)
        primary, fallback = (
            FailoverMember(
                id=backend_id,
                open=partial(self.opened, backend_id),
                timeout_s=self._timeout_s(backend_id),
                # A primary that is not installed yet is assumed to have the capabilities of its fallback.
                capabilities=self._capabilities(backend_id if self._offered(backend_id) else fallback_id),
            )
            for backend_id in (primary_id, fallback_id)
        )
        return FallbackMemoryManager(
            primary, fallback, ops_log=self.services.ops_log, clock=self.services.clock
        )

    def _entry(
        self, backend_id: str, manager: MemorySearchManager, fallback_id: str | None
    ) -> ComposableBackendEntry:
        """Return the entry of an open backend; with a fallback, its deadline is the sum of both deadlines."""
        section, spec = self._section(backend_id), self._offered(backend_id)
        return ComposableBackendEntry(
            id=backend_id,
            manager=manager,
            weight=section.weight,
            condition=_condition(section, spec),
            timeout_s=self._timeout_s(backend_id) + (self._timeout_s(fallback_id) if fallback_id else 0.0),
            calibration=Calibration(section.calibration),
            capabilities=None if fallback_id else self._capabilities(backend_id),
        )

    def _section(self, backend_id: str) -> BackendSection:
        return self.loaded.settings.memory.section(backend_id)

    def _timeout_s(self, backend_id: str) -> float:
        return (self._section(backend_id).timeout_ms or self.loaded.settings.memory.query.timeout_ms) / 1000

    def _capabilities(self, backend_id: str) -> frozenset[Capability]:
        spec = self._offered(backend_id)
        return spec.capabilities if spec else frozenset()

    def _offered(self, backend_id: str) -> BackendSpec | None:
        found = self.registry.backend(backend_id)
        return found.spec if found else None

    def _spec(self, backend_id: str) -> BackendSpec:
        found = self.registry.backend(backend_id)
        if found is None:
            raise BackendUnavailable(
                backend_id,
                "it is enabled in the settings, but no installed package provides it",
                fix="install the package that provides it, or disable it",
            )
        if found.spec is None:
            problem = found.problem or "it could not be loaded"
            raise BackendUnavailable(backend_id, problem, fix="run `cmem backends list`")
        if found.missing:
            raise BackendUnavailable(backend_id, found.missing, fix="see `cmem backends list`")
        return found.spec

    def _failure(
        self, backend_id: str, error: Exception | SystemExit, operation: Literal["open", "close"] = "open"
    ) -> Degradation:
        if not isinstance(error, ComposableMemoryError):
            error = BackendError(backend_id, operation, f"it raised {type(error).__name__}: {error}")
        self.services.ops_log.emit(
            BackendDegraded(what=backend_id, level="unavailable", reason=str(error)),
            status="failure",
            backend=backend_id,
        )
        return Degradation(backend_id=backend_id, code="unavailable", reason=str(error))


def _condition(section: BackendSection, spec: BackendSpec | None) -> Callable[[QueryIntent], bool] | None:
    """Return the condition for asking a backend, from its settings or else its spec; None to always ask."""
    wanted = section.condition
    if wanted is None:
        return spec.condition if spec else None
    return (lambda intent: any(_NAMED_IN[kind](intent) for kind in wanted)) if wanted else None


_NAMED_IN: Mapping[str, Callable[[QueryIntent], tuple[object, ...]]] = {
    "entities": lambda intent: intent.entities,
    "topics": lambda intent: intent.topics,
    "times": lambda intent: intent.time_hints,
}
"""The parts of an intent that a condition may ask for."""
