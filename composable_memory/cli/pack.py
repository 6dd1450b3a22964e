"""`cmem pack`."""

from typing import Annotated

import typer

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import AsJson, Query, SearchFlags, Strict, check_names
from composable_memory.cli.output import (
    error,
    print_json,
    print_line,
    print_text,
    warn_degraded,
)
from composable_memory.cli.search import SEE_WEAK, fields_of, warn_of_nothing
from composable_memory.tools.context_pack import MemoryContextPackRequest, memory_context_pack

app = typer.Typer()


@command(
    app, "pack", epilog='Example: cmem pack "who has the spare key?" --max-tokens 500 --workspace ~/notes'
)
async def pack(
    target: Target,
    query: Query,
    *,
    max_chars: Annotated[
        int | None,
        typer.Option(
            "--max-chars", metavar="N", min=1, help="The most characters to return.", show_default="2000"
        ),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            metavar="N",
            min=1,
            help="The most tokens to return, approximately; instead of --max-chars.",
        ),
    ] = None,
    asked: SearchFlags,
    strict: Strict = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Combine the best notes and facts into one text, with their sources."""
    wanted = fields_of(query, asked)
    if max_chars is not None and max_tokens is not None:
        raise typer.BadParameter("give this or --max-chars, not both", param_hint="--max-tokens")
    request = MemoryContextPackRequest(query=query, max_chars=max_chars, max_tokens=max_tokens, **wanted)
    async with target.open() as memory:
        check_names(memory, request.backends or ())
        reply = await memory_context_pack(memory, request)
        status = memory.status()
    if as_json:
        print_json(reply.as_json())
    elif reply.pack:
        print_text(f"{reply.pack}\n")
    elif not reply.unavailable:
        told = f"{reply.warning}; {SEE_WEAK}" if reply.weak else "no matches."
        print_line((f"{reply.warning}." if reply.is_too_small else told).capitalize())
    warn_degraded(reply.degraded or ())
    weak, hint = reply.warning if reply.weak else None, None if reply.is_too_small else reply.warning
    warn_of_nothing(bool(reply.pack), weak, hint, status, as_json=as_json)
    if reply.unavailable:
        error(reply.error or "the memory cannot be searched")
        return ExitCode.FAILED
    return ExitCode.DEGRADED if strict and reply.degraded else ExitCode.FINE
