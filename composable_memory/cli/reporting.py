"""`cmem status`, `cmem backends list`, `cmem embedders list` and `cmem config show`."""

import asyncio
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel

from composable_memory.cli.documents import (
    BackendDocument,
    BackendsDocument,
    EmbedderDocument,
    EmbeddersDocument,
    SettingDocument,
    SettingsDocument,
)
from composable_memory.cli.runner import ExitCode, Place
from composable_memory.cli.screen import complain, say, tell_degraded, warn, write_json
from composable_memory.cli.status_drawing import known_rows, show_fields, show_rows
from composable_memory.config.layers import (
    LoadedSettings,
    default_state_dir,
    describe,
    load_settings,
    validate_backend_options,
)
from composable_memory.config.settings import BackendSection
from composable_memory.errors import ConfigError
from composable_memory.interfaces import EmbedderServices
from composable_memory.runtime.embedder_choice import EmbedderPlan, plan_embedder
from composable_memory.runtime.opening import open_memory, require_log_to_learn
from composable_memory.runtime.registry import FoundBackend, discover_backends
from composable_memory.tools import (
    DeepProbe,
    MemoryStatusReply,
    MemoryStatusRequest,
    ProviderStatus,
    memory_status,
)
from composable_memory_ops_logs import OpsLog, utc_now

__all__ = ["backends", "embedders", "settings", "status"]


async def status(place: Place, *, deep: bool, strict: bool, as_json: bool) -> ExitCode:
    """Show the state of the memory; a deep look that finds it unusable or damaged fails."""
    async with open_memory(place.workspace, place.state_dir, long_lived=False) as memory:
        reply = await memory_status(memory, MemoryStatusRequest(deep=deep))
    if as_json:
        write_json(reply.as_json())
    else:
        _show_status(reply)
    degraded = (*reply.unavailable, *(reply.probe.search.degraded if reply.probe else ()))
    tell_degraded(dict.fromkeys(degraded))
    if reply.probe and (not reply.probe.search.ok or reply.probe.damage):
        if not reply.probe.search.ok:
            complain(reply.probe.search.error or "the memory cannot be searched")
        for backend_id, found in reply.probe.damage.items():
            for one in found:
                complain(f"{backend_id}: {one}")
        return ExitCode.FAILED
    return ExitCode.DEGRADED if strict and degraded else ExitCode.FINE


async def backends(place: Place, *, as_json: bool) -> ExitCode:
    """List the backends on offer and those that are enabled although nobody offers them; say how they are."""
    loaded = await asyncio.to_thread(load_settings, place.workspace)
    registry = await asyncio.to_thread(discover_backends)
    sections = loaded.settings.memory.sections
    enabled = {name for name, section in sections.items() if section.enabled}
    found = await asyncio.to_thread(tuple, registry.backends)  # looking at all of them imports them
    listed = [await asyncio.to_thread(_backend, one, loaded) for one in found]
    for name in sorted(enabled - {one.id for one in found}):
        problem = "it is enabled in the settings and no installed package provides it"
        listed.append(BackendDocument(id=name, origin="the settings", enabled=True, problem=problem))
    listed = _with_states(listed, await _states(place))
    if as_json:
        write_json(BackendsDocument(backends=tuple(listed)).as_json())
    else:
        for one in listed:
            if one is not listed[0]:
                say()
            _show_backend(one)
    return ExitCode.FINE


async def embedders(place: Place, *, as_json: bool) -> ExitCode:
    """List the embedding providers on offer, and say which one the settings lead to; opens none of them."""
    loaded = await asyncio.to_thread(load_settings, place.workspace)
    registry = await asyncio.to_thread(discover_backends)
    plan = await asyncio.to_thread(plan_embedder, loaded, registry, _embedder_services(place.state_dir))
    document = await asyncio.to_thread(_embedders, plan, loaded)  # looking at all of them imports them
    if as_json:
        write_json(document.as_json())
    else:
        _show_embedders(document)
    return ExitCode.FINE


def _embedder_services(state_dir: Path | None) -> EmbedderServices:
    return EmbedderServices(
        state_dir=state_dir or default_state_dir(os.environ),
        environ=os.environ,
        ops_log=OpsLog(None),
        clock=utc_now,
    )


async def settings(place: Place, *, with_origin: bool, as_json: bool) -> ExitCode:
    """Show the settings in force, checked as they are when a memory opens."""
    loaded = await asyncio.to_thread(load_settings, place.workspace)
    document = _settings(loaded, await asyncio.to_thread(_options_of_backends, loaded))
    if as_json:
        write_json(document.as_json())
    else:
        _show_settings(document, with_origin=with_origin)
    for note in document.notes:
        warn(f"note: {note}")
    return ExitCode.FINE


def _show_status(reply: MemoryStatusReply) -> None:
    show_fields("memory", reply.status)
    # The memory as a whole has the status of its primary, so a single backend has nothing to add.
    for name, one in reply.backends.items() if len(reply.backends) > 1 else ():
        say()
        show_fields(f"backend {name}", one)
    for lost in reply.unavailable:
        say()
        say(f"backend {lost.backend_id}  not open", bold=True)
        show_rows([("missing", lost.reason)])
    if reply.ops_log:
        say()
        say("ops log  not all of it could be written", bold=True)
        show_rows(
            [
                ("written", f"{reply.ops_log.written} events"),
                ("dropped", f"{reply.ops_log.dropped} events"),
                ("last error", reply.ops_log.last_error),
            ]
        )
    if reply.probe:
        say()
        _show_probe(reply.probe)


def _show_probe(probe: DeepProbe) -> None:
    say("deep probe", bold=True)
    embedding, found = probe.embedding, probe.search
    show_rows(
        [
            ("embedding", "works" if embedding.ok else f"does not work: {embedding.error}"),
            ("vector search", "works" if probe.vector else "does not work"),
            (
                "search",
                f"works, {found.result_count} results in {found.took_ms:.1f} ms, trace {found.trace_id}"
                if found.ok
                else f"does not work: {found.error}",
            ),
            ("stored data", "damaged, see below" if probe.damage else "as it was written"),
        ]
    )


async def _states(place: Place) -> Mapping[str, ProviderStatus]:
    """Return how the backends are that can be opened; a memory that cannot is a warning, the list goes on."""
    (reply,) = await asyncio.gather(_opened_status(place), return_exceptions=True)
    if isinstance(reply, MemoryStatusReply):
        for lost in reply.unavailable:
            warn(f"note: {lost.backend_id} cannot be opened: {lost.reason}")
        return reply.backends
    if not isinstance(reply, Exception):
        raise reply
    warn(f"note: the memory cannot be opened: {reply}")
    return {}


async def _opened_status(place: Place) -> MemoryStatusReply:
    async with open_memory(place.workspace, place.state_dir, long_lived=False) as memory:
        return await memory_status(memory, MemoryStatusRequest())


def _with_states(
    listed: Sequence[BackendDocument], states: Mapping[str, ProviderStatus]
) -> list[BackendDocument]:
    """Return the backends with what those that are open say; of several with one id the first is open."""
    first = {one.id: one for one in reversed(listed)}
    return [
        one.model_copy(update={"status": states.get(one.id)}) if first[one.id] is one else one
        for one in listed
    ]


def _backend(found: FoundBackend, loaded: LoadedSettings) -> BackendDocument:
    spec = found.spec
    memory = loaded.settings.memory
    section = memory.sections.get(found.id, BackendSection())
    lacks, problem = found.missing, found.problem
    if spec and not lacks:
        try:
            lacks = spec.lacks(validate_backend_options(section, spec, loaded.origins))
        except ConfigError as error:
            problem = str(error)
    return BackendDocument(
        id=found.id,
        origin=found.origin,
        enabled=section.enabled,
        stands_in_for=memory.backend if found.id == memory.stand_in else None,
        summary=spec.summary if spec else None,
        capabilities=tuple(sorted(spec.capabilities)) if spec else (),
        missing=lacks,
        problem=problem,
    )


def _show_backend(one: BackendDocument) -> None:
    role = f"stands in for {one.stands_in_for}" if one.stands_in_for else "not enabled"
    say(f"{one.id}  {'enabled' if one.enabled else role}", bold=True)
    rows = [
        ("summary", one.summary),
        ("origin", one.origin),
        ("can", ", ".join(one.capabilities)),
        ("missing", one.missing),
        ("problem", one.problem),
    ]
    told = [(label, value) for label, value in rows if value]
    show_rows([*told, *(known_rows(one.status) if one.status else ())])


def _embedders(plan: EmbedderPlan, loaded: LoadedSettings) -> EmbeddersDocument:
    asked = loaded.settings.memory.embedding
    taken = next((one.chosen for one in (plan.first, plan.fallback) if one and one.chosen), None)
    return EmbeddersDocument(
        provider=asked.provider,
        fallback=asked.fallback,
        chosen=taken.id if taken else None,
        reason=None if plan.first.chosen else plan.first.problem,
        embedders=tuple(
            EmbedderDocument(
                id=offer.id,
                origin=offer.found.origin,
                chosen=offer is taken,
                local=offer.is_local,
                summary=offer.found.spec.summary if offer.found.spec else None,
                lacks=offer.lacks,
                missing=offer.found.missing,
                problem=offer.found.problem,
            )
            for offer in plan.offers
        ),
    )


def _show_embedders(document: EmbeddersDocument) -> None:
    for one in document.embedders:
        say(f"{one.id}  {'chosen' if one.chosen else 'not chosen'}", bold=True)
        rows = [
            ("summary", one.summary),
            ("origin", one.origin),
            ("stays", "on this machine" if one.local else None),
            ("lacks", one.lacks),
            ("missing", one.missing),
            ("problem", one.problem),
        ]
        show_rows([(label, value) for label, value in rows if value])
    if document.reason:
        warn(f"{document.provider}: {document.reason}")


def _options_of_backends(loaded: LoadedSettings) -> dict[str, BaseModel]:
    """Return what only the backends know, of those that a memory would open.

    Raises:
        ConfigError: a key is unknown or its value is out of range.
    """
    require_log_to_learn(loaded)
    registry, memory = discover_backends(), loaded.settings.memory
    plan_embedder(loaded, registry, _embedder_services(None))
    specs = [
        found.spec
        for id_, section in memory.sections.items()
        if (section.enabled or id_ == memory.stand_in) and (found := registry.backend(id_)) and found.spec
    ]
    return {
        spec.id: validate_backend_options(memory.sections[spec.id], spec, loaded.origins) for spec in specs
    }


def _settings(loaded: LoadedSettings, options: Mapping[str, BaseModel]) -> SettingsDocument:
    return SettingsDocument(
        settings=tuple(
            SettingDocument(key=row.key, value=row.value, origin=str(row.origin))
            for row in describe(loaded, options)
        ),
        notes=loaded.notes,
    )


def _show_settings(document: SettingsDocument, *, with_origin: bool) -> None:
    width = max(len(row.key) for row in document.settings)
    for row in document.settings:
        origin = f"  ({row.origin})" if with_origin else ""
        say(f"{row.key.ljust(width)}  {_rendered(row.value)}{origin}")


def _rendered(value: object) -> str:
    """Return a value as a settings file would have it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
