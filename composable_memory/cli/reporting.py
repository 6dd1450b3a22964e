"""`cmem status`, `cmem backends list` and `cmem config show`."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass

from composable_memory.cli.documents import (
    BackendDocument,
    BackendsDocument,
    SettingDocument,
    SettingsDocument,
)
from composable_memory.cli.running import ExitCode, Place
from composable_memory.cli.screen import complain, say, tell_degraded, warn, write_json
from composable_memory.config import LoadedSettings, describe, load_settings
from composable_memory.plugins import FoundBackend, discover_backends
from composable_memory.runtime import open_memory
from composable_memory.tools import (
    DeepProbe,
    MemoryStatusReply,
    MemoryStatusRequest,
    ProviderStatus,
    memory_status,
)

__all__ = ["backends", "settings", "status"]


async def status(place: Place, *, deep: bool, strict: bool, as_json: bool) -> ExitCode:
    """Show the state of the memory; a deep look that finds it unusable fails."""
    async with open_memory(place.workspace, place.state_dir) as memory:
        reply = await memory_status(memory, MemoryStatusRequest(deep=deep))
    if as_json:
        write_json(reply.as_json())
    else:
        _show_status(reply)
    degraded = (*reply.unavailable, *(reply.probe.search.degraded if reply.probe else ()))
    tell_degraded(dict.fromkeys(degraded))
    if reply.probe and not reply.probe.search.ok:
        complain(reply.probe.search.error or "the memory cannot be searched")
        return ExitCode.FAILED
    return ExitCode.DEGRADED if strict and degraded else ExitCode.FINE


async def backends(place: Place, *, as_json: bool) -> ExitCode:
    """List the backends on offer, and those that are enabled although nobody offers them."""
    loaded = await asyncio.to_thread(load_settings, place.workspace)
    registry = await asyncio.to_thread(discover_backends)
    sections = loaded.settings.memory.sections
    enabled = {name for name, section in sections.items() if section.enabled}
    found = registry.backends
    listed = [_backend(one, enabled) for one in found]
    for name in sorted(enabled - {one.id for one in found}):
        problem = "it is enabled in the settings and no installed package provides it"
        listed.append(BackendDocument(id=name, origin="the settings", enabled=True, problem=problem))
    if as_json:
        write_json(BackendsDocument(backends=tuple(listed)).as_json())
    else:
        for one in listed:
            _show_backend(one)
    return ExitCode.FINE


async def settings(place: Place, *, with_origin: bool, as_json: bool) -> ExitCode:
    """Show the settings in force."""
    loaded = await asyncio.to_thread(load_settings, place.workspace)
    document = _settings(loaded)
    if as_json:
        write_json(document.as_json())
    else:
        _show_settings(document, with_origin=with_origin)
    for note in document.notes:
        warn(f"note: {note}")
    return ExitCode.FINE


def _show_status(reply: MemoryStatusReply) -> None:
    _show_fields("memory", reply.status)
    # The memory as a whole has the status of its primary, so a single backend has nothing to add.
    for name, one in reply.backends.items() if len(reply.backends) > 1 else ():
        say()
        _show_fields(f"backend {name}", one)
    if reply.probe:
        say()
        _show_probe(reply.probe)


def _show_fields(title: str, one: ProviderStatus) -> None:
    say(title, bold=True)
    rows = [
        row
        for name in ProviderStatus.model_fields
        for row in _rows(name.replace("_", " "), getattr(one, name))
    ]
    _show_rows(rows)


def _show_rows(rows: Sequence[tuple[str, str]]) -> None:
    width = max((len(label) for label, _ in rows), default=0)
    for label, value in rows:
        say(f"  {label.ljust(width)}  {value}")


def _rows(label: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield a line for each value; what is inside another is named after both."""
    match value:
        case None:
            yield label, "-"
        case bool():
            yield label, "yes" if value else "no"
        case Mapping() if value:
            for key, inner in value.items():
                yield from _rows(f"{label} {key}", inner)
        case list() | tuple() | Mapping():
            yield label, ", ".join(map(_short, value)) or "-"
        case _ if is_dataclass(value):
            for field in fields(value):
                yield from _rows(
                    f"{label} {field.name.rstrip('_').replace('_', ' ')}", getattr(value, field.name)
                )
        case _:
            yield label, str(value)


def _short(value: object) -> str:
    """Return one item of a list in a few words."""
    match value:
        case Mapping():
            return " ".join(f"{key}={inner}" for key, inner in value.items())
        case _ if is_dataclass(value):
            return " ".join(f"{field.name}={getattr(value, field.name)}" for field in fields(value))
        case _:
            return str(value)


def _show_probe(probe: DeepProbe) -> None:
    say("deep probe", bold=True)
    embedding, found = probe.embedding, probe.search
    _show_rows(
        [
            ("embedding", "works" if embedding.ok else f"does not work: {embedding.error}"),
            ("vector search", "works" if probe.vector else "does not work"),
            (
                "search",
                f"works, {found.result_count} results in {found.took_ms:.1f} ms, trace {found.trace_id}"
                if found.ok
                else f"does not work: {found.error}",
            ),
        ]
    )


def _backend(found: FoundBackend, enabled: set[str]) -> BackendDocument:
    spec = found.spec
    return BackendDocument(
        id=found.id,
        origin=found.origin,
        enabled=found.id in enabled,
        summary=spec.summary if spec else None,
        capabilities=tuple(sorted(spec.capabilities)) if spec else (),
        missing=found.missing,
        problem=found.problem,
    )


def _show_backend(one: BackendDocument) -> None:
    say(f"{one.id}  {'enabled' if one.enabled else 'not enabled'}", bold=True)
    rows = [
        ("summary", one.summary),
        ("origin", one.origin),
        ("can", ", ".join(one.capabilities)),
        ("missing", one.missing),
        ("problem", one.problem),
    ]
    _show_rows([(label, value) for label, value in rows if value])


def _settings(loaded: LoadedSettings) -> SettingsDocument:
    return SettingsDocument(
        settings=tuple(
            SettingDocument(key=row.key, value=row.value, origin=str(row.origin)) for row in describe(loaded)
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
