"""`cmem backends list`: which backends there are, and what they lack."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import typer
from pydantic import JsonValue

from composable_memory.cli.backend_trials import backends
from composable_memory.cli.command import Target, command
from composable_memory.cli.options import AsJson
from composable_memory.cli.output import print_json, print_line, warn
from composable_memory.cli.render import print_details
from composable_memory.cli.status import settings_of, status_of
from composable_memory.config.layers import LoadedSettings, validate_backend_options
from composable_memory.errors import ConfigError
from composable_memory.json_documents import document
from composable_memory.registry import FoundBackend, Registry, discover_backends
from composable_memory.types import MemoryProviderStatus

app = typer.Typer()
app.add_typer(backends, name="backends")


@command(backends, "list")
async def backends_list(target: Target, *, as_json: AsJson = False) -> None:
    """List all known backends: their origin, what they can do, and what they lack."""
    registry = await asyncio.to_thread(discover_backends)
    loaded = await asyncio.to_thread(settings_of, target, registry)
    registry = await asyncio.to_thread(registry.with_kinds, loaded.settings.memory.kinds)
    known = await asyncio.to_thread(_known_backends, loaded, registry)
    listed = [*_with_states(known, {**await _states(target)})]
    if as_json:
        print_json({"backends": listed})
        return
    for number, one in enumerate(listed):
        if number:
            print_line()
        _print_backend(one)


def _known_backends(loaded: LoadedSettings, registry: Registry) -> list[dict[str, JsonValue]]:
    """Return as JSON the backends on offer, and those that are enabled though nobody offers them. Blocks."""
    sections = loaded.settings.memory.sections
    listed = [_backend_document(one, loaded) for one in registry.backends]
    enabled = {name for name, section in sections.items() if section.enabled}
    problem = "it is enabled in the settings and no installed package provides it"
    return listed + [
        document(id=name, origin="the settings", enabled=True, capabilities=(), problem=problem)
        for name in sorted(enabled - {one["id"] for one in listed})
    ]


def _backend_document(found: FoundBackend, loaded: LoadedSettings) -> dict[str, JsonValue]:
    """Return a kind of backend as JSON; `missing` is what it lacks on this machine with the active settings.

    `problem` is why it cannot be loaded, or which of its settings cannot be used. `standsInFor` is the one
    that it answers for where that one cannot; it is not enabled by itself then.
    """
    spec = found.spec
    memory = loaded.settings.memory
    lacks, problem = found.missing, found.problem
    if spec and not lacks:
        try:
            lacks = spec.lacks(validate_backend_options(memory, spec, loaded.origins))
        except ConfigError as unusable:
            problem = str(unusable)
    return document(
        id=found.id,
        origin=found.origin,
        enabled=memory.section(found.id).enabled,
        stands_in_for=memory.backend if found.id == memory.fallback_id else None,
        summary=spec.summary if spec else None,
        capabilities=sorted(spec.capabilities) if spec else (),
        missing=lacks,
        problem=problem,
    )


async def _states(target: Target) -> Mapping[str, MemoryProviderStatus]:
    """Return the status of the backends that can be opened; warn of one that cannot."""
    (reply,) = await asyncio.gather(status_of(target), return_exceptions=True)
    if isinstance(reply, tuple):
        state, _ = reply
        for lost in state.unavailable:
            warn(f"note: {lost.backend_id} cannot be opened: {lost.reason}")
        return state.backends
    if not isinstance(reply, Exception):
        raise reply
    warn(f"note: the memory cannot be opened: {reply}")
    return {}


def _with_states(
    listed: Iterable[dict[str, JsonValue]], states: dict[str, MemoryProviderStatus]
) -> Iterator[dict[str, JsonValue]]:
    """Yield the backends with the status of those that are open; of several with one id the first is."""
    for one in listed:
        yield one | document(status=states.pop(str(one["id"]), None))


def _print_backend(one: Mapping[str, Any]) -> None:
    role = f"stands in for {one['standsInFor']}" if "standsInFor" in one else "not enabled"
    about = {"summary": one.get("summary"), "origin": one["origin"], "can": one["capabilities"]}
    about |= {"missing": one.get("missing"), "problem": one.get("problem")}
    known = one.get("status", {})
    in_short = ("provider", "model", "files", "chunks", "dirty", "dbPath", "fallback", "custom")
    rows = [*about.items(), *((name, known.get(name)) for name in in_short)]
    print_details(
        f"{one['id']}  {'enabled' if one['enabled'] else role}",
        {name: value for name, value in rows if value not in (None, [], {})},
    )
