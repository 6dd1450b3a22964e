"""`cmem backends list`: which backends there are, and what they lack."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

import typer

from composable_memory.cli.backend_trials import backends
from composable_memory.cli.command import Target, command
from composable_memory.cli.options import AsJson
from composable_memory.cli.output import print_json, print_line, warn
from composable_memory.cli.render import print_details
from composable_memory.cli.status import fields_of, settings_of, status_of
from composable_memory.config.layers import LoadedSettings, validate_backend_options
from composable_memory.errors import ConfigError
from composable_memory.json_documents import document
from composable_memory.registry import FoundBackend, Registry, discover_backends
from composable_memory.types import MemoryProviderStatus
from composable_memory_ops_logs.quick_dataclass import dataclass

app = typer.Typer()
app.add_typer(backends, name="backends")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Backend:
    """A kind of backend; `missing` is what it lacks on this machine with the active settings.

    `problem` is why it cannot be loaded, or which of its settings cannot be used. `stands_in_for` is the one
    that it answers for where that one cannot; it is not enabled by itself then. `status` is what it says of
    itself if it could be opened.
    """

    id: str
    origin: str
    enabled: bool
    stands_in_for: str | None = None
    summary: str | None = None
    capabilities: tuple[str, ...] = ()
    missing: str | None = None
    problem: str | None = None
    status: MemoryProviderStatus | None = None


@command(backends, "list")
async def backends_list(target: Target, *, as_json: AsJson = False) -> None:
    """List all known backends: their origin, what they can do, and what they lack."""
    registry = await asyncio.to_thread(discover_backends)
    loaded = await asyncio.to_thread(settings_of, target, registry)
    registry = await asyncio.to_thread(registry.with_kinds, loaded.settings.memory.kinds)
    known = await asyncio.to_thread(_known_backends, loaded, registry)
    listed = _with_states(known, await _states(target))
    if as_json:
        print_json(document(backends=listed))
        return
    for number, one in enumerate(listed):
        if number:
            print_line()
        _print_backend(one)


def _known_backends(loaded: LoadedSettings, registry: Registry) -> list[_Backend]:
    """Return the backends on offer, and those that are enabled although nobody offers them. Blocks."""
    sections = loaded.settings.memory.sections
    listed = [_backend(one, loaded) for one in registry.backends]
    enabled = {name for name, section in sections.items() if section.enabled}
    problem = "it is enabled in the settings and no installed package provides it"
    return listed + [
        _Backend(id=name, origin="the settings", enabled=True, problem=problem)
        for name in sorted(enabled - {one.id for one in listed})
    ]


def _backend(found: FoundBackend, loaded: LoadedSettings) -> _Backend:
    spec = found.spec
    memory = loaded.settings.memory
    section = memory.section(found.id)
    lacks, problem = found.missing, found.problem
    if spec and not lacks:
        try:
            lacks = spec.lacks(validate_backend_options(memory, spec, loaded.origins))
        except ConfigError as unusable:
            problem = str(unusable)
    return _Backend(
        id=found.id,
        origin=found.origin,
        enabled=section.enabled,
        stands_in_for=memory.backend if found.id == memory.fallback_id else None,
        summary=spec.summary if spec else None,
        capabilities=tuple(sorted(spec.capabilities)) if spec else (),
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


def _with_states(listed: Sequence[_Backend], states: Mapping[str, MemoryProviderStatus]) -> list[_Backend]:
    """Return the backends with the status of those that are open; of several with one id the first is."""
    first = {one.id: one for one in reversed(listed)}
    return [replace(one, status=states.get(one.id)) if first[one.id] is one else one for one in listed]


def _print_backend(one: _Backend) -> None:
    role = f"stands in for {one.stands_in_for}" if one.stands_in_for else "not enabled"
    about = {"summary": one.summary, "origin": one.origin, "can": one.capabilities}
    about |= {"missing": one.missing, "problem": one.problem}
    known = fields_of(one.status) if one.status else {}
    in_short = ("provider", "model", "files", "chunks", "dirty", "db_path", "fallback", "custom")
    rows = [*about.items(), *((name, known.get(name)) for name in in_short)]
    print_details(
        f"{one.id}  {'enabled' if one.enabled else role}",
        {name: value for name, value in rows if value not in (None, (), {})},
    )
