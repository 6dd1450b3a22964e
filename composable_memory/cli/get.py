"""`cmem get`."""

from typing import Annotated

import typer

from composable_memory.citations import read_citation
from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import AsJson, complete_notes
from composable_memory.cli.output import error, print_json, print_text, warn
from composable_memory.errors import InvalidArgument
from composable_memory.tools.read import MemoryGetRequest, memory_get

app = typer.Typer()


@command(app, "get")
async def get(
    target: Target,
    path: Annotated[
        str,
        typer.Argument(
            metavar="PATH",
            help="The file as a search prints it, or a citation with line numbers.",
            autocompletion=complete_notes,
        ),
    ],
    *,
    from_line: Annotated[
        int | None, typer.Option("--from", metavar="N", min=1, help="The first line.")
    ] = None,
    lines: Annotated[
        int | None, typer.Option("--lines", metavar="N", min=1, help="How many lines to show.")
    ] = None,
    as_json: AsJson = False,
) -> ExitCode:
    """Show a memory file, or some of its lines."""
    request = MemoryGetRequest(path=path, from_=from_line, lines=lines)
    async with target.open() as memory:
        try:
            reply = await memory_get(memory, request)
        except InvalidArgument as problem:
            raise typer.BadParameter(str(problem), param_hint="PATH") from problem
    if as_json:
        print_json(reply.as_json())
    if reply.error is not None:
        error(reply.error)
        return ExitCode.FAILED
    cited = read_citation(path)
    first = from_line or (cited.start_line if cited else 0)
    if not as_json:
        is_open = (first or lines) and reply.text and not reply.text.endswith("\n")
        print_text(f"{reply.text}\n" if is_open else reply.text)
    if reply.warning:
        warn(f"{reply.path}: {reply.warning}")
    return ExitCode.FAILED if reply.is_past_end else ExitCode.FINE
