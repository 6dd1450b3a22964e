"""`cmem trust`: shows what the settings file of a workspace asks for, and records the user's consent."""

import asyncio
import os
from pathlib import Path
from typing import Annotated

import typer
from pydantic_core import to_jsonable_python

from composable_memory.cli.command import ExitCode, command
from composable_memory.cli.options import AsJson, StateDir
from composable_memory.cli.output import error, print_json, print_line, warn
from composable_memory.cli.render import format_setting, print_table
from composable_memory.config.layers import checked_settings, default_state_dir, user_config_path
from composable_memory.config.settings_files import (
    WORKSPACE_FILES,
    WorkspaceFile,
    find_workspace_file,
    give_consent,
    revoke_consent,
)
from composable_memory.config.trees import names_variables
from composable_memory.config.trust import Request
from composable_memory.config.validation import hide, hides, is_secret
from composable_memory.json_documents import document
from composable_memory.registry import Registry, discover_backends
from composable_memory.state.folders import existing_folder, make_state_folder
from composable_memory.types import JsonValue
from composable_memory_ops_logs import redact_value, utc_now

app = typer.Typer()


@command(app, "trust", epilog="Example: cmem trust ~/projects/api")
async def trust(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", file_okay=False, show_default="the current folder", help="The workspace."
        ),
    ] = Path(),
    *,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    revoke: Annotated[bool, typer.Option("--revoke", help="Stop trusting the file.")] = False,
    state_dir: StateDir = None,
    as_json: AsJson = False,
) -> ExitCode:
    """Show what a workspace's settings file asks for that needs your consent, and allow it.

    You consent to the file as it is now: if it changes, for example by a pull, you have to consent again.
    """
    workspace = await asyncio.to_thread(existing_folder, folder)
    state = await asyncio.to_thread(make_state_folder, state_dir or default_state_dir(os.environ))
    revoked = await asyncio.to_thread(revoke_consent, workspace, WORKSPACE_FILES, state) if revoke else ()
    registry = await asyncio.to_thread(discover_backends)
    found = await asyncio.to_thread(_find, workspace, state, registry)
    if revoke and not revoked:
        error(f"no settings file of {workspace} was trusted, so nothing was revoked")
    if not as_json:
        _print(found, workspace, revoked)
    is_new = found is not None and not found.is_trusted and not revoke and (yes or not as_json)
    if found is not None and is_new:
        checked_settings(found.said.tree, registry)  # do not ask consent for an invalid file
        if not yes:
            typer.confirm("Trust this file as it is now?", abort=True, err=True)
        await asyncio.to_thread(give_consent, found.file, state, now=utc_now())
        if not as_json:
            print_line("Trusted. The programs and files it names are not checked; `--revoke` undoes this.")
    is_trusted = found is None or is_new or found.is_trusted
    if as_json:
        print_json(_document(found, workspace, revoked, is_trusted=is_trusted))
    return ExitCode.FINE if (revoked if revoke else is_trusted) else ExitCode.FAILED


def _find(workspace: Path, state_dir: Path, registry: Registry) -> WorkspaceFile | None:
    own_file = user_config_path(os.environ)
    return find_workspace_file(workspace, registry, own_file=own_file, state_dir=state_dir)


def _print(found: WorkspaceFile | None, workspace: Path, revoked: tuple[str, ...]) -> None:
    for name in revoked:
        print_line(f"{workspace / name} is no longer trusted.")
    if found is None:
        print_line(f"{workspace} has no settings file that needs trust.")
        return
    for note in found.said.notes:
        warn(f"note: {note}")
    if not found.requests:
        print_line(f"{found.file.path} asks for nothing that needs your trust.")
        return
    state = "you do not trust it"
    if found.consent:
        state = "you trust it" if found.is_trusted else "it changed since you trusted it"
    print_line(
        f"{found.file.path} asks for more than a workspace may set on its own, and {state}:", bold=True
    )
    rows = [(one.key, format_setting(_value(one)), f"line {one.leaf.origin.line}") for one in found.requests]
    print_table(rows, indent=2)


def _document(
    found: WorkspaceFile | None, workspace: Path, revoked: tuple[str, ...], *, is_trusted: bool
) -> dict[str, JsonValue]:
    consent = found.consent if found else None
    asks = [
        document(key=one.key, value=_value(one), line=one.leaf.origin.line, problem=one.problem)
        for one in (found.requests if found else ())
    ]
    return document(
        workspace=workspace,
        file=found.file.path if found else None,
        trusted=is_trusted,
        changed_since=consent.given_at if consent and not consent.is_current else None,
        asks=asks,
        notes=found.said.notes if found else (),
        revoked=revoked,
    )


def _value(asked: Request) -> JsonValue:
    last = asked.key.rpartition(".")[2]
    is_name = names_variables(asked.key) or (last.endswith("_env") and is_secret(last.removesuffix("_env")))
    hidden = not is_name and any(map(hides, asked.key.split(".")))
    shown: JsonValue = redact_value(to_jsonable_python(hide(asked.leaf.value, hidden=hidden), fallback=str))
    return shown
