"""Opens a memory from its settings: the only place that wires the parts together."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from importlib import import_module
from pathlib import Path

from composable_memory.config.layers import LoadedSettings, default_state_dir, load_settings
from composable_memory.config.settings import MemorySettings, Settings
from composable_memory.errors import BackendError, ComposableMemoryError, ConfigError, require
from composable_memory.forget.tombstones import Forgotten
from composable_memory.interfaces import (
    BackendServices,
    BackendSpec,
    Capability,
    Clock,
    EmbedderServices,
    EmbedderSpec,
)
from composable_memory.learning.active_weights import activate, follow_weights
from composable_memory.learning.context import LearningContext
from composable_memory.query.fusion import Dedup, Fusion
from composable_memory.query.intent import parse_query_intent
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.ranking import LiveWeights, MergePolicy
from composable_memory.recall.retained_notes import RetainedNotes
from composable_memory.registry import Registry, discover_backends, load_extractor
from composable_memory.runtime.backends import BackendOpener, OpenBackends
from composable_memory.runtime.embedder_choice import choose_embedder
from composable_memory.runtime.memory import Memory
from composable_memory.state.folders import existing_folder, make_state_folder
from composable_memory.state.ops_log import open_ops_log
from composable_memory.state.workspaces import WorkspaceIdentity, identify
from composable_memory.time.local_time import LOCAL_TIME
from composable_memory.types import Degradation, SearchOptions
from composable_memory_feedback.errors import FeedbackError
from composable_memory_ops_logs import trace, utc_now

log = logging.getLogger(__name__)

NOW_VARIABLE = "COMPOSABLE_MEMORY_NOW"
"""An ISO time: the caller's clock, so that "yesterday" means the same in every run."""


@asynccontextmanager
async def open_memory(
    workspace: str | Path = ".",
    state_dir: str | Path | None = None,
    config: Mapping[str, object] | Settings | None = None,
    *,
    backends: Sequence[BackendSpec] = (),
    embedders: Sequence[EmbedderSpec] = (),
    registry: Registry | None = None,
    environ: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    long_lived: bool = True,
) -> AsyncIterator[Memory]:
    """Open the memory of a workspace; leaving the block closes everything.

    `workspace` is the folder with the notes. `state_dir` holds indexes and logs; it defaults to
    `COMPOSABLE_MEMORY_STATE_DIR` or the user's state folder. `config` overrides the settings files, with the
    same keys. `backends` and `embedders` add to those installed as plug-ins; a given `registry` already has
    them. A backend that cannot be opened is named in `degraded` of every answer; the others serve. With
    `long_lived` false the notes are not watched in the background, which suits a single command.

    Raises:
        ConfigError: the workspace is not a folder, or a setting is invalid.
        InvalidArgument: an argument has the wrong type.
    """
    require("workspace", workspace, str | os.PathLike, "a path")
    require("state_dir", state_dir, str | os.PathLike | None, "a path")
    require("config", config, Mapping | Settings | None, "a mapping or Settings")
    environ = os.environ if environ is None else environ
    folder = await asyncio.to_thread(existing_folder, Path(workspace))
    state_path = Path(state_dir or default_state_dir(environ))
    if registry is None:
        registry = await asyncio.to_thread(partial(discover_backends, backends, embedders=embedders))
    loaded = await asyncio.to_thread(
        partial(
            load_settings, folder, overrides=config, environ=environ, state_dir=state_path, registry=registry
        )
    )
    registry = await asyncio.to_thread(registry.with_kinds, loaded.settings.memory.kinds)
    require_log_to_learn(loaded)
    state = await asyncio.to_thread(make_state_folder, state_path)
    now = clock or utc_now
    identity = await asyncio.to_thread(identify, state, folder, now=now(), name=loaded.settings.memory.id)
    async with AsyncExitStack() as stack:
        ops_log = open_ops_log(loaded.settings.memory, state_dir=state, clock=now)
        await stack.enter_async_context(ops_log)
        if loaded.settings.memory.ops_log.otel:
            telemetry = await asyncio.to_thread(import_module, "composable_memory.state.telemetry")
            await stack.enter_async_context(telemetry.send_telemetry(ops_log))
        forgotten = Forgotten(state, identity.id)
        with trace():
            embedding = EmbedderServices(state_dir=state, environ=environ, ops_log=ops_log, clock=now)
            choice = await choose_embedder(loaded, registry, embedding, stack)
            services = BackendServices(
                workspace_dir=folder,
                state_dir=state,
                agent_id=loaded.settings.memory.agent_id,
                workspace_id=identity.id,
                ops_log=ops_log,
                clock=now,
                embedder=choice.embedder,
                embedder_problem=choice.problem,
                embedder_fallback=choice.fallback,
                embedder_is_local=choice.is_local,
                requested_embedder=loaded.settings.memory.embedding.provider,
                is_long_lived=long_lived,
                load_extractor=load_extractor,
                inherits=identity.inherits,
                hide=forgotten.hide,
                forgotten=forgotten.digest,
                environ=environ,
            )
            opener = BackendOpener(loaded=loaded, registry=registry, services=services)
            backends_open = await opener.open_all(stack)
        context = await asyncio.to_thread(
            LearningContext.of,
            loaded,
            registry=registry,
            environ=environ,
            workspace_id=identity.id,
            state_dir=state,
            ops_log=ops_log,
            clock=now,
        )
        live = LiveWeights(context.base)
        stack.push_async_callback(context.close)
        unavailable = (
            *_warn_of_new_workspace(identity, folder, state),
            *await _load_learnt_weights(context, live),
        )
        asked_at = parse_iso_time(environ[NOW_VARIABLE], NOW_VARIABLE) if environ.get(NOW_VARIABLE) else None
        manager = _compose(
            backends_open, loaded.settings.memory, context, live, unavailable, asked_at, forgotten
        )
        manager.require_usable("open")  # binds it to this event loop
        stack.push_async_callback(_close, manager)
        memory = Memory(
            manager=manager,
            loaded=loaded,
            registry=registry,
            workspace_dir=folder,
            state_dir=state,
            ops_log=ops_log,
            forgotten=forgotten,
            embedder=choice,
            pair=backends_open.pair,
            context=context,
            weights=live,
            notes=RetainedNotes(forgotten),
        )
        if await asyncio.to_thread(forgotten.is_unfinished, manager.backends_with(Capability.FORGET)):
            with suppress(ComposableMemoryError):  # the status reports it, and the next opening tries again
                await memory.continue_forgetting()
        if long_lived:
            await stack.enter_async_context(await _in_background(memory))
        yield memory


async def _close(manager: ComposableMemoryManager) -> None:
    """Close all backends; an error is only logged, since the answers have been given."""
    try:
        await manager.close()
    except BackendError as error:
        log.warning("%s", error)


async def _in_background(memory: Memory) -> AbstractAsyncContextManager[None]:
    """Return what runs while a memory is open: following the weights, or learning if that is enabled."""
    if not memory.settings.memory.feedback.enabled:
        return follow_weights(memory.context, partial(activate, memory.context, memory.weights))
    background = await asyncio.to_thread(import_module, "composable_memory.learning.loop")
    learning: AbstractAsyncContextManager[None] = background.learn_in_background(
        memory.learning, memory.text_of
    )
    return learning


def require_log_to_learn(loaded: LoadedSettings) -> None:
    """Refuse learning without a log.

    Raises:
        ConfigError: learning is on and the log is off.
    """
    memory, key = loaded.settings.memory, "memory.feedback.enabled"
    if memory.feedback.enabled and not memory.ops_log.enabled:
        problem = "learning needs the log, but memory.ops_log.enabled is false; set both to true or to false"
        origin = loaded.origins.get(key)
        raise ConfigError(key, problem, origin=str(origin) if origin else None)


def _warn_of_new_workspace(
    identity: WorkspaceIdentity, folder: Path, state_dir: Path
) -> tuple[Degradation, ...]:
    """Warn about a new workspace if its data may be kept under another one's id."""
    if identity.instead_of is not None:
        reason = (
            f"{folder} is not the same folder as before, so it starts as a new workspace; if it replaces "
            f"the old one, `cmem workspace adopt {identity.instead_of}` gives it the old data"
        )
    elif identity.begins_anew:
        reason = (
            f"{state_dir} has lost its register of workspaces, so {folder} starts as a new one; "
            "`cmem workspace list` shows what is stored, and `cmem workspace adopt` reconnects it"
        )
    else:
        return ()
    return (Degradation(backend_id="workspace", code="unavailable", reason=reason),)


async def _load_learnt_weights(context: LearningContext, live: LiveWeights) -> tuple[Degradation, ...]:
    """Activate the learnt weights; record the reason if they cannot be read."""
    try:
        await activate(context, live)
    except FeedbackError as error:
        live.problem = f"the settings' weights are used, because the learnt ones cannot be read: {error}"
        return ()
    if context.remark:
        return (Degradation(backend_id="feedback", code="unavailable", reason=context.remark),)
    return ()


def _compose(
    backends: OpenBackends,
    memory: MemorySettings,
    context: LearningContext,
    weights: LiveWeights,
    unavailable: Sequence[Degradation],
    asked_at: datetime | None,
    forgotten: Forgotten,
) -> ComposableMemoryManager:
    """Return the composite of the backends that are open."""
    query = memory.query
    open_ids = {entry.id for entry in backends.entries}
    return ComposableMemoryManager(
        backends.entries,
        primary=memory.primary if memory.primary in open_ids else None,
        intent_parser=parse_query_intent,
        ops_log=context.ops_log,
        policy=MergePolicy(
            fusion=Fusion(query.fusion), dedup=Dedup(query.dedup), depth=query.depth, rrf_k=query.rrf_k
        ),
        defaults=SearchOptions(max_results=query.max_results, min_score=query.min_score),
        unavailable=(*backends.unavailable, *unavailable),
        weights=weights,
        memory_id=context.memory_id,
        clock=context.clock,
        now=asked_at,
        forgotten=forgotten,
    )


def parse_iso_time(text: str, name: str) -> datetime:
    """Parse an ISO time; without a time zone it is local time.

    Raises:
        ConfigError: it is not a time.
    """
    try:
        moment = datetime.fromisoformat(text.strip())
        if moment.tzinfo is None:
            moment.astimezone()  # raises at the edges of the calendar
            moment = moment.replace(tzinfo=LOCAL_TIME)
        return moment
    except (ValueError, OverflowError) as error:
        raise ConfigError(name, f"{text!r} is not a time; write 2026-05-03 or 2026-05-03T14:00") from error
