"""`cmem status`, `cmem embedders list` and `cmem config show`."""

import asyncio
import os
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel, JsonValue

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import AsJson, Strict
from composable_memory.cli.output import (
    error,
    print_json,
    print_line,
    warn,
    warn_degraded,
    warn_notes,
)
from composable_memory.cli.render import format_setting, print_details, print_table
from composable_memory.config.layers import (
    LoadedSettings,
    default_state_dir,
    describe,
    load_settings,
    validate_backend_options,
)
from composable_memory.interfaces import EmbedderServices
from composable_memory.json_documents import document
from composable_memory.registry import Registry, discover_backends
from composable_memory.runtime.embedder_choice import EmbedderPlan, plan_embedder
from composable_memory.runtime.opening import require_log_to_learn
from composable_memory.tools.status import DeepProbe, MemoryStatusReply, MemoryStatusRequest, memory_status
from composable_memory.types import BatchStatus, FtsStatus, MemoryProviderStatus, VectorStatus
from composable_memory_ops_logs import OpsLog, utc_now
from composable_memory_ops_logs.plurals import counted

ROUTINE = frozenset(
    "backends cache composable db_path embeddingCache primary requested_provider revision source_counts"
    " weightsVersion".split()
)
"""Parts of a status that hardly anybody looks for."""

app = typer.Typer()
embedders = typer.Typer(help="Inspect the embedding providers.", no_args_is_help=True)
config = typer.Typer(help="Inspect the settings.", no_args_is_help=True)
app.add_typer(embedders, name="embedders")
app.add_typer(config, name="config")


# --- status -------------------------------------------------------------------------------------------------


@command(app, "status")
async def status(
    target: Target,
    *,
    deep: Annotated[
        bool,
        typer.Option(
            "--deep", help="Also try an embedding, the vector engine and a search; exit with 1 if one fails."
        ),
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Also show normal values: caches, counts, files."),
    ] = False,
    strict: Strict = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Show the status of the memory and of each backend."""
    reply, languages = await status_of(target, deep=deep)
    if as_json:
        print_json(reply.as_json())
    else:
        _print_status(reply, verbose=verbose)
    if languages:
        warn(f"hint: {languages}")
    degraded = (*reply.unavailable, *(reply.probe.search.degraded if reply.probe else ()))
    warn_degraded(dict.fromkeys(degraded))
    if reply.probe and (problems := _problems_of(reply.probe)):
        for problem in problems:
            error(problem)
        return ExitCode.FAILED
    return ExitCode.DEGRADED if strict and degraded else ExitCode.FINE


async def status_of(target: Target, *, deep: bool = False) -> tuple[MemoryStatusReply, str | None]:
    """Return the status, and a hint about languages that the embedding provider cannot read."""
    # A memory that has already served knows more about itself, such as that vectors can be searched.
    async with target.open(anew=True) as memory:
        warn_notes(memory.loaded)
        reply = await memory_status(memory, MemoryStatusRequest(deep=deep))
        return reply, await memory.language_hint()


def _problems_of(probe: DeepProbe) -> list[str]:
    """Return what makes the memory unusable or damaged."""
    search = probe.search
    failed = [] if search.ok else [search.error or "the memory cannot be searched"]
    return failed + [f"{backend_id}: {one}" for backend_id, found in probe.damage.items() for one in found]


def fields_of(status: MemoryProviderStatus) -> dict[str, object]:
    """Return the values of a status, by name."""
    return {one.name: getattr(status, one.name) for one in fields(status)}


def _print_status(reply: MemoryStatusReply, *, verbose: bool) -> None:
    shown = _shown if verbose else _shown_in_short
    print_details("memory", shown(reply.status))
    # The memory as a whole has the status of its primary, so a single backend has nothing to add.
    for name, one in reply.backends.items() if len(reply.backends) > 1 else ():
        print_line()
        print_details(f"backend {name}", shown(one))
    for lost in reply.unavailable:
        print_line()
        print_details(f"backend {lost.backend_id}  not open", {"missing": lost.reason})
    if log := reply.ops_log:
        print_line()
        counts = {"written": counted(log.written, "event"), "dropped": counted(log.dropped, "event")}
        print_details("ops log  could not be written in full", {**counts, "last error": log.last_error})
    if reply.probe:
        print_line()
        print_details("deep probe", _probe_rows(reply.probe))


def _shown(status: MemoryProviderStatus) -> dict[str, object]:
    return {**fields_of(status), "custom": _custom_of(status)}


def _custom_of(status: MemoryProviderStatus) -> Mapping[str, object]:
    """Return what else a backend reports, with the word for who chose the notes in a phrase."""
    match status.custom:
        case {"scope": {"chosenBy": "before" | "now" as when, **scope}}:
            return {**status.custom, "scope": {**scope, "chosen": when}}
    return status.custom


def _shown_in_short(status: MemoryProviderStatus) -> dict[str, object]:
    """Return the values of a status that are of interest while everything works, and all problems."""
    shown = {name: one for name, one in _shown(status).items() if not _is_routine(name, one)}
    custom = {name: one for name, one in _custom_of(status).items() if not _is_routine(name, one)}
    return {**shown, "custom": custom} if custom else shown


def _is_routine(name: str, value: object) -> bool:
    match value:
        case FtsStatus(available=True, error=None) | VectorStatus(load_error=None):
            return True
        case BatchStatus(last_error=None):
            return True
        case Mapping() if name == "breakers":
            return {*value.values()} == {"closed"}
    return name in ROUTINE or value is False or value in (None, (), [], {}, "")


def _probe_rows(probe: DeepProbe) -> dict[str, str]:
    embedding, found = probe.embedding, probe.search
    works = (
        f"works, {counted(found.result_count, 'result')} in {found.took_ms:.1f} ms, trace {found.trace_id}"
    )
    return {
        "embedding": "works" if embedding.ok else f"does not work: {embedding.error}",
        "vector search": "works" if probe.vector else "does not work",
        "search": works if found.ok else f"does not work: {found.error}",
        "stored data": "damaged, see below" if probe.damage else "as it was written",
    }


# --- embedders ----------------------------------------------------------------------------------------------


@command(embedders, "list")
async def embedders_list(target: Target, *, as_json: AsJson = False) -> None:
    """List all known embedding providers: which one is used, and what the others need."""
    registry = await asyncio.to_thread(discover_backends)
    loaded = await asyncio.to_thread(settings_of, target, registry)
    plan = await asyncio.to_thread(plan_embedder, loaded, registry, _embedder_services(target.state_dir))
    found = await asyncio.to_thread(_embedders_document, plan, loaded)  # imports all of them
    if as_json:
        print_json(found)
    else:
        _print_embedders(found)


def _embedder_services(state_dir: Path | None) -> EmbedderServices:
    return EmbedderServices(
        state_dir=state_dir or default_state_dir(os.environ),
        environ=os.environ,
        ops_log=OpsLog(None),
        clock=utc_now,
    )


def _embedders_document(plan: EmbedderPlan, loaded: LoadedSettings) -> dict[str, JsonValue]:
    """Return what the settings ask for, which provider is chosen, and all available ones. Blocks."""
    asked = loaded.settings.memory.embedding
    chosen = next((one.chosen for one in (plan.first, plan.fallback) if one and one.chosen), None)
    return document(
        provider=asked.provider,
        fallback=asked.fallback,
        chosen=chosen.id if chosen else None,
        reason=None if plan.first.chosen else plan.first.problem,
        embedders=[
            document(
                id=offer.id,
                origin=offer.found.origin,
                chosen=offer is chosen,
                local=offer.is_local,
                summary=offer.found.spec.summary if offer.found.spec else None,
                lacks=offer.lacks,
                missing=offer.found.missing,
                problem=offer.found.problem,
            )
            for offer in plan.offers
        ],
    )


def _print_embedders(found: Mapping[str, Any]) -> None:
    for one in found["embedders"]:
        about = {
            name: one[name] for name in ("summary", "origin", "lacks", "missing", "problem") if name in one
        }
        if one["local"]:
            about["stays"] = "on this machine"
        print_details(f"{one['id']}  {'chosen' if one['chosen'] else 'not chosen'}", about)
    if "reason" in found:
        warn(f"{found['provider']}: {found['reason']}")


# --- settings -----------------------------------------------------------------------------------------------


@command(config, "show")
async def config_show(
    target: Target,
    *,
    origin: Annotated[bool, typer.Option("--origin", help="Show where each value was set.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the effective settings, with secrets hidden."""
    registry = await asyncio.to_thread(discover_backends)
    loaded = await asyncio.to_thread(settings_of, target, registry)
    rows = describe(loaded, await asyncio.to_thread(_backend_options, loaded, registry))
    if as_json:
        settings = [document(key=one.key, value=one.value, origin=str(one.origin)) for one in rows]
        print_json(document(settings=settings, notes=loaded.notes))
    else:
        print_table(
            [(one.key, format_setting(one.value), f"({one.origin})")[: 3 if origin else 2] for one in rows]
        )
    warn_notes(loaded)


def settings_of(target: Target, registry: Registry) -> LoadedSettings:
    """Return the settings of a workspace. Reads files."""
    return load_settings(target.workspace, state_dir=target.state_dir, registry=registry)


def _backend_options(loaded: LoadedSettings, registry: Registry) -> dict[str, BaseModel]:
    """Return the backends' own settings, for those that a memory would open. Blocks.

    Raises:
        ConfigError: a key is unknown or its value is out of range.
    """
    require_log_to_learn(loaded)
    memory = loaded.settings.memory
    registry = registry.with_kinds(memory.kinds)
    plan_embedder(loaded, registry, _embedder_services(None))
    specs = [
        found.spec
        for id_, section in memory.sections.items()
        if (section.enabled or id_ == memory.fallback_id) and (found := registry.backend(id_)) and found.spec
    ]
    return {spec.id: validate_backend_options(memory, spec, loaded.origins) for spec in specs}
