"""What every part of learning works with: one memory's settings, log, store, and id."""

import asyncio
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from composable_memory.config.layers import LoadedSettings, validate_backend_options
from composable_memory.config.settings import FeedbackSettings
from composable_memory.errors import BackendError, ConfigError
from composable_memory.forget.tombstones import Forgotten
from composable_memory.interfaces import Clock, FeedbackServices, HideForgotten, hide_nothing
from composable_memory.registry import Registry
from composable_memory.state.folders import (
    OPS_LOG_FOLDER,
    feedback_store_of,
    feedback_stores,
    judged_elsewhere_of,
    memory_id_of,
)
from composable_memory.state.ops_log import keep_traces
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.weights import WeightTable
from composable_memory_ops_logs import OpsLog
from composable_memory_ops_logs.quick_dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from composable_memory_feedback.store.store import FeedbackStore


T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class LearningContext:
    """The log and the store of one memory; both are read and written in threads.

    The store is opened when first needed, so that a memory that learns nothing creates no file.
    """

    memory_id: str
    settings: FeedbackSettings
    base: WeightTable
    backends: tuple[str, ...]
    """The ids of the enabled backends, in their order."""
    ops_log: OpsLog
    log_dir: Path | None
    store_path: Path
    clock: Clock
    hide: HideForgotten = hide_nothing
    """Blanks what was forgotten in the workspace; reads a file."""
    open_shared: "Callable[[], FeedbackStore] | None" = None
    """Opens the store shared by several memories, if the settings name one."""
    _store: "FeedbackStore | None" = None
    _remark: str | None = None
    _is_closed: bool = False
    _opening: Lock = field(default_factory=Lock)

    @classmethod
    def of(
        cls,
        loaded: LoadedSettings,
        *,
        registry: Registry,
        environ: Mapping[str, str],
        workspace_id: str,
        state_dir: Path,
        ops_log: OpsLog,
        clock: Clock,
    ) -> "LearningContext":
        """Return the context of the memory of a workspace.

        Raises:
            ConfigError: the settings name a backend that cannot store what is learnt.
        """
        memory = loaded.settings.memory
        memory_id = memory_id_of(memory.agent_id, workspace_id)
        enabled = {id_: section.weight for id_, section in memory.sections.items() if section.enabled}
        return cls(
            memory_id=memory_id,
            settings=memory.feedback,
            base=WeightTable.fixed(enabled, made_at=clock()),
            backends=tuple(enabled),
            ops_log=ops_log,
            log_dir=state_dir / OPS_LOG_FOLDER if memory.ops_log.enabled else None,
            store_path=feedback_store_of(state_dir, memory_id),
            clock=clock,
            hide=Forgotten(state_dir, workspace_id).hide,
            open_shared=_shared(
                loaded,
                registry,
                FeedbackServices(
                    backend_id=memory.feedback.backend or "",
                    workspace_id=workspace_id,
                    environ=environ,
                    clock=clock,
                    keep_traces=partial(keep_traces, judged_elsewhere_of(state_dir, memory_id)),
                ),
            ),
        )

    async def stored(self, work: "Callable[[FeedbackStore], T]") -> T:
        """Return `work(store)`, called in a thread.

        Raises:
            FeedbackError: the store cannot be opened, read or written, or is closed for good.
        """
        return await asyncio.to_thread(lambda: work(self._open()))

    async def stored_if_any(self, work: "Callable[[FeedbackStore], T]") -> T | None:
        """Return `work(store)`, called in a thread; None if nothing was ever stored."""
        return await asyncio.to_thread(lambda: work(self._open()) if self._is_there() else None)

    @property
    def remark(self) -> str | None:
        """Return what the user must know about the store, such as what was salvaged of a damaged one."""
        return self._remark if self._store is None else self._store.remark

    async def pause(self, seconds: float) -> None:
        """Sleep, but wake up when a change of a shared store is reported."""
        store = self._store
        if self.open_shared is None or store is None:
            await asyncio.sleep(seconds)
        else:
            await asyncio.to_thread(store.wait_for_change, seconds)

    async def close(self) -> None:
        """Close the store for good."""

        def close() -> None:
            with self._opening:
                self._is_closed = True
                store, self._store = self._store, None
            if store is not None:
                self._remark = store.remark
                store.close()

        await asyncio.to_thread(close)

    # All of this runs in threads: a cancelled caller must not leave a store that is never closed.

    def _is_there(self) -> bool:
        if self._store is not None or self._is_closed or self.open_shared is not None:
            return True
        try:
            feedback_stores(self.store_path.parent.parent)
            return self.store_path.exists()
        except OSError:  # an unreadable folder; opening the store will report it
            return True

    def _open(self) -> "FeedbackStore":
        # Imported here: most commands find no store, and need not load it.
        from composable_memory_feedback.store.store import FeedbackStore

        with self._opening:
            if self._is_closed:
                raise FeedbackError(
                    "learning has stopped", subject="the memory is closed", advice="open it again"
                )
            if self._store is None and self.open_shared is not None:
                self._store = self.open_shared()
            elif self._store is None:
                feedback_stores(self.store_path.parent.parent)
                self._store = FeedbackStore.open(self.store_path, clock=self.clock)
            return self._store


def _shared(
    loaded: LoadedSettings, registry: Registry, services: FeedbackServices
) -> "Callable[[], FeedbackStore] | None":
    """Return a function that opens the shared store of the settings; None if each memory has its own file."""
    memory, key = loaded.settings.memory, "memory.feedback.backend"
    backend_id = memory.feedback.backend
    if backend_id is None:
        return None
    offered = registry.with_kinds(memory.kinds).backend(backend_id)
    if offered is None or offered.spec is None or offered.missing or offered.spec.open_feedback is None:
        problem = (offered.problem or offered.missing) if offered else "there is no backend with this id"
        raise ConfigError(key, f"{backend_id}: {problem or 'it does not store what is learnt'}")
    open_feedback = offered.spec.open_feedback
    options = validate_backend_options(memory, offered.spec, loaded.origins)

    def opened() -> "FeedbackStore":
        try:
            return open_feedback(options, services)
        except (BackendError, ConfigError) as error:
            raise FeedbackError(str(error), subject=backend_id, advice=f"see {key}") from error

    return opened
