"""`cmem reflect`: the pages of `bank/` from what the notes retain."""

from typing import Annotated

import typer
from pydantic import JsonValue

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import AsJson, Now, Strict, moment_of_now
from composable_memory.cli.output import counted, print_json, print_line, print_text, warn, warn_degraded
from composable_memory.errors import InvalidArgument
from composable_memory.json_documents import document
from composable_memory.reflect.report import Reflection

app = typer.Typer()


@command(app, "reflect", epilog="Example: cmem reflect --since 7d --yes")
async def reflect(
    target: Target,
    *,
    since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="TIME", help="Write only what is new since then: 2026-05-03, last week, or 7d."
        ),
    ] = None,
    core: Annotated[
        bool,
        typer.Option("--core", help="Add a section to MEMORY.md: the surest opinions, and whom to look up."),
    ] = False,
    llm: Annotated[
        bool, typer.Option("--llm", help="Have the language model of memory.feedback.llm write summaries.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Write the pages; without it, show the diff.")
    ] = False,
    now: Now = None,
    strict: Strict = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Propose pages on facts, opinions and entities from what the notes retain, as a diff.

    What people wrote into the pages stays.
    """
    moment = moment_of_now(now)
    async with target.open() as memory:
        try:
            found = await memory.reflect(since=since, core=core, llm=llm, now=moment)
        except InvalidArgument as error:
            raise typer.BadParameter(str(error), param_hint=f"--{error.argument}") from error
        if yes and found.pages:
            found = await memory.apply_reflection(found)
    if as_json:
        print_json(_document(found))
    else:
        _print(found)
    for one in found.dropped:
        warn(f"dropped: {one}")
    warn_degraded(found.degraded)
    return ExitCode.DEGRADED if strict and found.degraded else ExitCode.FINE


def _document(found: Reflection) -> dict[str, JsonValue]:
    pages = [
        {"path": page.path, "is_new": not page.before, "is_removed": not page.after, "diff": page.diff}
        for page in found.pages
    ]
    return document(found, pages=[document(**page) for page in pages])


def _print(found: Reflection) -> None:
    if not found.pages:
        print_line(f"Nothing to change: {counted(found.lines, 'retained line')} were read.")
    elif found.is_applied:
        for page in found.pages:
            print_line(f"{'removed' if not page.after else 'wrote'} {page.path}")
    else:
        print_text(found.diff)
        warn(f"hint: {counted(len(found.pages), 'page')} would change; --yes writes them")
