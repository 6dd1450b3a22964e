"""`cmem remember`: retains a sentence in the note of the day."""

import sys
from typing import Annotated

import typer

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import AsJson, Strict
from composable_memory.cli.output import print_json, print_line, warn, warn_degraded
from composable_memory.json_documents import document
from composable_memory.retain.retained_lines import MemoryType

app = typer.Typer()


@command(
    app, "remember", epilog='Example: cmem remember "Prefers short replies." --type opinion --entity Peter'
)
async def remember(
    target: Target,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="One sentence that can stand alone; - reads it from stdin.")
    ],
    *,
    kind: Annotated[
        MemoryType | None,
        typer.Option("--type", help="What it is; default: opinion where a confidence is given, else world."),
    ] = None,
    entity: Annotated[
        list[str] | None,
        typer.Option("--entity", metavar="NAME", help="Who or what it is about; repeatable."),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option("--confidence", metavar="C", min=0, max=1, help="How sure it is, from 0 to 1."),
    ] = None,
    tag: Annotated[list[str] | None, typer.Option("--tag", metavar="TAG", help="A tag; repeatable.")] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="KEY", help="The conversation it comes from.")
    ] = None,
    strict: Strict = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Write a fact, an experience or an opinion into the note of the day."""
    said = _read_stdin() if text == "-" else text
    async with target.open() as memory:
        done = await memory.remember(
            said,
            type=kind,
            entities=entity or (),
            confidence=confidence,
            tags=tag or (),
            session_key=session,
        )
        degraded = (*memory.unavailable(), *done.degraded)
    if as_json:
        print_json(document(done))
    else:
        known = "Known already, nothing was written: " if done.duplicate_of else ""
        print_line(f"{known}{done.citation}", bold=True)
        print_line(f"  {done.line}")
    for warning in done.warnings:
        warn(f"warning: {warning}")
    warn_degraded(degraded)
    return ExitCode.DEGRADED if strict and degraded else ExitCode.FINE


def _read_stdin() -> str:
    return sys.stdin.buffer.read().decode("utf-8-sig", "replace")
