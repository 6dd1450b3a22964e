"""`cmem backends`: lists them with what they lack, asks one, and adds one to the user's own settings."""

import asyncio
import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Literal, NamedTuple

import typer
from pydantic import JsonValue

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import AsJson, check_names
from composable_memory.cli.output import error, print_json, print_line, warn, warn_degraded
from composable_memory.cli.render import print_details
from composable_memory.cli.status import settings_of, status_of
from composable_memory.cli.user_settings import text_of
from composable_memory.config.layers import (
    LoadedSettings,
    default_state_dir,
    user_config_path,
    validate_backend_options,
)
from composable_memory.config.section_text import UnsafeEdit, as_yaml, with_section
from composable_memory.connect.edits import Edit, write
from composable_memory.errors import BackendError, ConfigError
from composable_memory.interfaces import Capability, SupportsRawAnswer
from composable_memory.json_documents import document
from composable_memory.registry import FoundBackend, Registry, discover_backends
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory.state.folders import make_state_folder
from composable_memory.types import MemoryProviderStatus, MemorySearchResult, QueryResponse
from composable_memory_ops_logs.plurals import counted

MOST_RAW = 4_000
"""How many characters of a raw answer to show."""

app = typer.Typer()
backends = typer.Typer(help="List backends, test one, or add one.", no_args_is_help=True)
app.add_typer(backends, name="backends")


@command(backends, "list")
async def backends_list(target: Target, *, as_json: AsJson = False) -> None:
    """List all known backends: where they come from, what they can do, and what is missing."""
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
    """Return as JSON the available backends, and those that are enabled but not installed. Blocks."""
    sections = loaded.settings.memory.sections
    listed = [_backend_document(one, loaded) for one in registry.backends]
    enabled = {name for name, section in sections.items() if section.enabled}
    problem = "it is enabled in the settings, but no installed package provides it"
    return listed + [
        document(id=name, origin="the settings", enabled=True, capabilities=(), problem=problem)
        for name in sorted(enabled - {one["id"] for one in listed})
    ]


def _backend_document(found: FoundBackend, loaded: LoadedSettings) -> dict[str, JsonValue]:
    """Return a kind of backend as JSON; `missing` is what it lacks on this machine with the active settings.

    `problem` is why it cannot be loaded, or which of its settings are invalid. `standsInFor` is the backend
    whose fallback it is; it is not enabled by itself then.
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
    """Return the status of the backends that can be opened; warn if one cannot."""
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
    """Yield the backends with the status of those that are open; of several with one id only the first is."""
    for one in listed:
        yield one | document(status=states.pop(str(one["id"]), None))


def _print_backend(one: Mapping[str, Any]) -> None:
    role = f"fallback for {one['standsInFor']}" if "standsInFor" in one else "not enabled"
    about = {"summary": one.get("summary"), "origin": one["origin"], "can": one["capabilities"]}
    about |= {"missing": one.get("missing"), "problem": one.get("problem")}
    known = one.get("status", {})
    in_short = ("provider", "model", "files", "chunks", "dirty", "dbPath", "fallback", "custom")
    rows = [*about.items(), *((name, known.get(name)) for name in in_short)]
    print_details(
        f"{one['id']}  {'enabled' if one['enabled'] else role}",
        {name: value for name, value in rows if value not in (None, [], {})},
    )


# --- trying and adding one ----------------------------------------------------------------------------------


@command(backends, "test", epilog='Example: cmem backends test wiki "when was the pump replaced?"')
async def backends_test(
    target: Target,
    backend_id: Annotated[str, typer.Argument(metavar="ID", help="The backend to ask.")],
    query: Annotated[str, typer.Argument(metavar="QUESTION", help="The question to ask it.")],
    *,
    as_json: AsJson = False,
) -> ExitCode:
    """Query one backend: its raw answer, what is read from it, how long it took, and what was dropped."""
    async with target.open() as memory:
        if lost := _why_lost(memory, backend_id):
            error(lost)
            return ExitCode.FAILED
        check_names(memory, (backend_id,), "ID")
        raw, problem = await _raw_answer(memory, backend_id, query)
        response, took_ms = await _answer(memory, backend_id, query)
    if as_json:
        results = [document(one) for one in response.results]
        found = document(
            raw=raw, problem=problem, results=results, degraded=response.degraded, took_ms=round(took_ms, 1)
        )
        print_json(found)
    else:
        if raw is not None:
            shown = raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False, indent=2)
            print_line(f"Raw answer ({len(shown):,} characters):")
            print_line(shown[:MOST_RAW] + ("…" if len(shown) > MOST_RAW else ""))
            print_line()
        _print_results(response, took_ms)
    if problem:
        error(problem)
    warn_degraded(response.degraded)
    return ExitCode.FAILED if problem or not response.results else ExitCode.FINE


@command(
    backends,
    "add",
    epilog="Example: cmem backends add graph --preset graphiti-mcp --url http://localhost:8000/mcp",
)
async def backends_add(
    target: Target,
    backend_id: Annotated[str, typer.Argument(metavar="ID", help="The name you give it.")],
    *,
    kind: Annotated[Literal["mcp", "http"], typer.Option("--kind", help="Its kind.")] = "mcp",
    start: Annotated[
        str | None, typer.Option("--command", metavar="COMMAND", help="The command that starts the server.")
    ] = None,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="Its address.")] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", metavar="NAME", help="Use the known settings of this memory.")
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            metavar="NAME=VARIABLE",
            help="A variable or header of the server, and the environment variable that holds its value; "
            "repeatable.",
        ),
    ] = None,
    more: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=JSON", help="Another key for its section; repeatable."),
    ] = None,
    question: Annotated[
        str | None,
        typer.Option(
            "--question", metavar="TEXT", help="The question to try it with; if unset, you are asked for one."
        ),
    ] = None,
    all_workspaces: Annotated[
        bool, typer.Option("--all-workspaces", help="Add it for all your workspaces, not just this one.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Add an external memory: ask it a question, show what it finds, and add it to your own settings file.

    If no preset fits, the rest, such as which of its tools searches, is detected.
    It is added for this workspace only, and the rest of the file stays as it is. `--env` takes the names of
    variables, never values.
    """
    variables = dict(_pair(one, "--env") for one in env or ())
    section: dict[str, JsonValue] = {"kind": kind}
    section |= {"preset": preset} if preset else {}
    section |= {"command": [*shlex.split(start)]} if start else {}
    section |= {"url": url} if url else {}
    section |= {"env" if kind == "mcp" else "headers_env": dict(variables)} if variables else {}
    section |= {name: _json(value) for name, value in (_pair(one, "--set") for one in more or ())}
    file = await asyncio.to_thread(user_config_path(os.environ).resolve)  # it may be a link
    before = await asyncio.to_thread(text_of, file)
    folder = None if all_workspaces else await asyncio.to_thread(target.path(target.workspace).resolve)
    await asyncio.to_thread(
        _entered, before, file, backend_id, section, folder
    )  # report what is impossible first
    if question is None and as_json:
        raise typer.BadParameter("--json needs a --question")
    question = question or typer.prompt("A question it can answer", err=True)
    trial = await _tried(target, backend_id, section, question)
    if not (isinstance(trial, str) or trial.response.results or preset or "ask_by" in section):
        by_words = await _tried(target, backend_id, {**section, "ask_by": "words"}, question)
        if not isinstance(by_words, str) and by_words.response.results:
            trial = by_words
    if isinstance(trial, str):
        error(trial)
        return ExitCode.FAILED
    response, took_ms = trial.response, trial.took_ms
    section = section if preset else {**trial.found, **trial.section}
    after = None
    if response.results:
        after = await asyncio.to_thread(_entered, before, file, backend_id, section, folder)
    if not as_json:
        _print_results(response, took_ms)
        place = f"workspaces, {folder}, backends" if folder else "memory.backends"
        print_line(f"For {file}, under {place}:", bold=True)
        print_line(as_yaml(backend_id, section))
    warn_degraded(response.degraded)
    is_done = after is not None and (yes or not as_json)
    if is_done:
        if not yes:
            typer.confirm("Write this?", abort=True, err=True)
        state = await asyncio.to_thread(make_state_folder, target.state_dir or default_state_dir(os.environ))
        await asyncio.to_thread(write, Edit(path=file, before=before, after=after), state, is_private=True)
    if as_json:
        results = [document(one) for one in response.results]
        print_json(document(section=section, results=results, written=is_done))
    elif is_done:
        print_line(f"{backend_id} is added, for {folder or 'all your workspaces'}.")
    if not response.results:
        advice = "correct what failed" if response.degraded else "ask another question"
        error(f"{backend_id}: nothing was found, so it is not added; {advice}")
    elif after is None:
        warn(f"{file} cannot be changed safely; add these lines yourself")
    return ExitCode.FAILED if after is None else ExitCode.FINE


class _Trial(NamedTuple):
    """The answer of a backend with a section, and the settings that it detected by itself."""

    section: Mapping[str, JsonValue]
    found: Mapping[str, JsonValue]
    response: QueryResponse
    took_ms: float


async def _tried(
    target: Target, backend_id: str, section: Mapping[str, JsonValue], question: str
) -> _Trial | str:
    """Ask a question; return the outcome, or why the backend cannot be opened."""
    config = {"backends": {backend_id: section}}
    async with open_memory(target.workspace, target.state_dir, config, long_lived=False) as memory:
        if lost := _why_lost(memory, backend_id):
            return lost
        found = await _found_settings(memory, backend_id, question)
        response, took_ms = await _answer(memory, backend_id, question)
    return _Trial(section, found, response, took_ms)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, mark, value = text.partition("=")
    if not (name and mark and value):
        raise typer.BadParameter(f"{option} takes NAME=VALUE, not {text!r}")
    return name, value


def _json(text: str) -> JsonValue:
    try:
        value: JsonValue = json.loads(text)
    except ValueError:
        return text
    return value


def _entered(
    text: str | None, file: Path, backend_id: str, section: Mapping[str, JsonValue], workspace: Path | None
) -> str | None:
    """Return the text of the settings file with one more backend; None if that is not safe.

    Raises:
        ConfigError: the file cannot be read, or already has the backend.
    """
    try:
        return with_section(text or "", file, backend_id, section, workspace)
    except UnsafeEdit:
        return None


async def _found_settings(memory: Memory, backend_id: str, query: str) -> Mapping[str, JsonValue]:
    backend = memory.manager.backends_with(Capability.RAW_ANSWER).get(backend_id)
    if not isinstance(backend, SupportsRawAnswer):
        return {}
    try:
        return await backend.found_settings(query)
    except BackendError:  # the answer shown next will report it
        return {}


def _why_lost(memory: Memory, backend_id: str) -> str | None:
    """Return why a backend could not be opened."""
    lost = next((one for one in memory.unavailable() if one.backend_id == backend_id), None)
    return f"{backend_id}: {lost.reason}" if lost else None


async def _answer(memory: Memory, backend_id: str, query: str) -> tuple[QueryResponse, float]:
    """Return the answer of one backend, and how many milliseconds it took."""
    started = perf_counter()
    response = await memory.query(query, backends=[backend_id], min_score=0.0)
    return response, (perf_counter() - started) * 1000


async def _raw_answer(memory: Memory, backend_id: str, query: str) -> tuple[JsonValue, str | None]:
    """Return the backend's raw answer, or None if it cannot show it; and its failure, if any."""
    backend = memory.manager.backends_with(Capability.RAW_ANSWER).get(backend_id)
    if not isinstance(backend, SupportsRawAnswer):
        return None, None
    try:
        return await backend.raw_answer(query), None
    except BackendError as failed:
        return None, str(failed)


def _print_results(response: QueryResponse, took_ms: float) -> None:
    print_line(f"{counted(len(response.results), 'result')} in {took_ms:.0f} ms:")
    for one in response.results:
        _print_result(one)


def _print_result(one: MemorySearchResult) -> None:
    known = document(one, snippet=None, text=None, score=None, highlights=None, source_backend=None)
    print_line(f"{one.score:.2f}  {one.citation or one.path}")
    print_details("", {name: value for name, value in known.items() if value not in (0, "", [], {})})
    print_line(f"  {one.snippet}")
    print_line()
