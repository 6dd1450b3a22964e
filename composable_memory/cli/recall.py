"""`cmem recall` and `cmem reflect`: what is known about an entity or a time, and pages of it in `bank/`."""

from collections.abc import Iterator
from typing import Annotated

import typer
from pydantic import JsonValue

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import AsJson, MaxResults, Now, Since, Strict, Until, moment_of_now
from composable_memory.cli.output import (
    columns,
    one_line,
    print_json,
    print_line,
    print_text,
    warn,
    warn_degraded,
    warn_if_empty,
)
from composable_memory.errors import InvalidArgument
from composable_memory.json_documents import document
from composable_memory.recall.items import DEFAULT_MAX_ITEMS, RECALL_KINDS, Recall, RecalledItem
from composable_memory.reflect.report import Reflection
from composable_memory_ops_logs.plurals import counted

MOST_LINES = 3
"""Lines of the terminal for the text of one item."""

app = typer.Typer()


@command(app, "recall", epilog='Example: cmem recall "Ellen Smith" --type opinion; cmem recall --since 7d')
async def recall(
    target: Target,
    entity: Annotated[
        str | None,
        typer.Argument(
            metavar="ENTITY",
            help="A person or thing; default: anything, in the given time.",
            show_default=False,
        ),
    ] = None,
    *,
    since: Since = None,
    until: Until = None,
    type_: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="TYPE", help=f"Only {', '.join(RECALL_KINDS)}; repeatable."),
    ] = None,
    query: Annotated[
        str | None, typer.Option("--query", metavar="TEXT", help="Only items with most of these words.")
    ] = None,
    max_results: MaxResults = None,
    now: Now = None,
    strict: Strict = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Show what is known about somebody or something, or about a time: retained lines, facts, and passages.

    Without an entity or a time, shows the latest.
    """
    moment = moment_of_now(now)
    async with target.open() as memory:
        try:
            found = await memory.recall(
                entity,
                since=since,
                until=until,
                types=tuple(type_ or ()),
                query=query,
                max_results=max_results or DEFAULT_MAX_ITEMS,
                now=moment,
            )
        except InvalidArgument as error:
            option = {"types": "--type", "entity": "ENTITY"}.get(error.argument, f"--{error.argument}")
            raise typer.BadParameter(str(error), param_hint=option) from error
        status = memory.status()
    if as_json:
        print_json(document(found))
    else:
        print_recall(found)
    warn_degraded(found.degraded)
    if not found.items:
        warn_if_empty(status)
    return ExitCode.DEGRADED if strict and found.degraded else ExitCode.FINE


def print_recall(found: Recall) -> None:
    """Print what was found, or else what was searched for and similar known names."""
    if not found.items:
        print_line(f"Nothing is known{_asked_for(found)}.")
        print_line(
            f"  {counted(found.lines, 'retained line')} in {counted(found.notes, 'note')} were read", dim=True
        )
    if found.nearest:
        print_line(f"  similar known names: {', '.join(found.nearest)}")
    if found.items and found.is_renamed:
        *others, last = found.names
        names = f"{', '.join(others)} and {last}" if others else last
        warn(f"note: {found.entity!r} was taken to mean {names}")
    for item in found.items:
        print_line(" ".join(_headed(item)))
        gone = "(gone)" if item.source_gone else None
        place = " ".join(part for part in (item.source, gone, item.id and f"^{item.id}") if part)
        if place:
            print_line(f"  {place}", dim=True)
    if found.total > len(found.items):
        print_line(f"{len(found.items)} of {found.total}; --max-results shows more", dim=True)


def _asked_for(found: Recall) -> str:
    parts = [
        (" of {}", found.entity and repr(found.entity)),
        (" since {}", found.since and found.since.isoformat(timespec="minutes")),
        (" until {}", found.until and found.until.isoformat(timespec="minutes")),
        (" of type {}", " or ".join(found.types)),
        (" with the words {}", found.query and repr(found.query)),
    ]
    return "".join(words.format(value) for words, value in parts if value)


def _headed(item: RecalledItem) -> Iterator[str]:
    """Yield the parts of an item's line: its day, its kind, its entities, and its text."""
    yield item.timestamp.date().isoformat() if item.timestamp else "no date"
    if item.by_file_time:
        yield "(file time)"
    yield item.kind if item.confidence is None else f"{item.kind} ({item.confidence:g})"
    if item.entities and item.kind != "fact":
        yield f"[{', '.join(item.entities)}]"
    yield one_line(item.content, MOST_LINES * width if (width := columns()) else None)
    yield from (f"#{tag}" for tag in item.tags)
    if item.ended_at:
        yield f"(ended {item.ended_at.date().isoformat()})"


@command(app, "reflect", epilog="Example: cmem reflect --since 7d --yes")
async def reflect(
    target: Target,
    *,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Write only what is new since this time: 2026-05-03, last week, or 7d.",
        ),
    ] = None,
    core: Annotated[
        bool,
        typer.Option(
            "--core",
            help="Add a section to MEMORY.md: the most certain opinions, and links to the main entity pages.",
        ),
    ] = False,
    llm: Annotated[
        bool, typer.Option("--llm", help="Have the language model of memory.feedback.llm write summaries.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="Write the pages; without this, only the diff is shown.")
    ] = False,
    now: Now = None,
    strict: Strict = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Propose pages on facts, opinions and entities from the lines retained in the notes, as a diff.

    Text that people wrote in the pages is kept.
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
        _print_reflection(found)
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


def _print_reflection(found: Reflection) -> None:
    if not found.pages:
        print_line(f"Nothing to change: {counted(found.lines, 'retained line')} were read.")
    elif found.is_applied:
        for page in found.pages:
            print_line(f"{'removed' if not page.after else 'wrote'} {page.path}")
    else:
        print_text(found.diff)
        warn(f"hint: {counted(len(found.pages), 'page')} would change; --yes writes them")
