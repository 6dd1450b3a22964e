"""`cmem remember` and `cmem forget`: writes into the day's note, and removes from every store."""

import sys
from typing import Annotated

import typer

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import AsJson, Strict
from composable_memory.cli.output import one_line, print_json, print_line, warn, warn_degraded
from composable_memory.forget.report import ForgetLine, ForgetPlan, ForgetReport, Holding
from composable_memory.interfaces import Capability
from composable_memory.json_documents import document
from composable_memory.retain.retained_lines import MemoryType
from composable_memory_ops_logs.plurals import counted

app = typer.Typer()


@command(
    app, "remember", epilog='Example: cmem remember "Prefers short replies." --type opinion --entity Peter'
)
async def remember(
    target: Target,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="One self-contained sentence; - reads it from stdin.")
    ],
    *,
    kind: Annotated[
        MemoryType | None,
        typer.Option("--type", help="Its type; default: opinion with a confidence, otherwise world."),
    ] = None,
    entity: Annotated[
        list[str] | None,
        typer.Option("--entity", metavar="NAME", help="Who or what it is about; repeatable."),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option("--confidence", metavar="C", min=0, max=1, help="How certain it is, from 0 to 1."),
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
        known = "Already known, nothing was written: " if done.duplicate_of else ""
        print_line(f"{known}{done.citation}", bold=True)
        print_line(f"  {done.line}")
    for warning in done.warnings:
        warn(f"warning: {warning}")
    warn_degraded(degraded)
    return ExitCode.DEGRADED if strict and degraded else ExitCode.FINE


def _read_stdin() -> str:
    return sys.stdin.buffer.read().decode("utf-8-sig", "replace")


@command(app, "forget", epilog="Example: cmem forget 'memory/2026-05-03.md#L3' --yes")
async def forget(
    target: Target,
    what: Annotated[
        str,
        typer.Argument(
            metavar="TARGET", help="A citation (PATH#L3 or PATH:3-7), the id of a line (^m4k29x), or a query."
        ),
    ],
    *,
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only show what would go.")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Forget every line that matches the query, not just one.")
    ] = False,
    as_json: AsJson = False,
) -> ExitCode:
    """Forget lines of notes or messages, and everything any store holds about them.

    Exits with 1 if nothing was removed.
    """
    async with target.open() as memory:
        plan = await memory.plan_forgetting(what, everything=everything)
        report = await memory.forget(plan) if yes and plan.token else None
        keeps_facts = bool(memory.manager.backends_with(Capability.FACTS))
    if as_json:
        print_json(document(plan=plan, report=report))
    if report is None:
        if not as_json:
            _print_plan(plan)
            if keeps_facts and not plan.lines:
                warn("hint: text stored by `cmem ingest --text` is in no note; see `cmem graph forget`")
        return ExitCode.FAILED
    if not as_json:
        _print_report(report)
    if report.plan is not None:
        return ExitCode.FAILED
    return ExitCode.FINE if report.is_done else ExitCode.DEGRADED


def _print_plan(plan: ForgetPlan) -> None:
    if plan.candidates:
        found = counted(len(plan.candidates), "matching line")
        heading = "No line has these words. The nearest lines:" if plan.is_guess else f"{found}:"
        print_line(heading, bold=True)
        _print_lines(plan.candidates)
        every = "" if plan.is_guess else "; --all selects all of them"
        warn(f"hint: choose one by its citation, as in `cmem forget PATH#L3 --yes`{every}")
    elif not plan.lines:
        print_line("No note says this.")
        _print_stores(plan.stores)
    else:
        print_line(f"Would forget {counted(len(plan.lines), 'line')}:", bold=True)
        _print_lines(plan.lines)
        _print_stores(plan.stores)
        warn("hint: nothing was removed; add --yes to forget this permanently")


def _print_report(report: ForgetReport) -> None:
    if report.plan is not None:
        warn("the notes have changed in the meantime; nothing was removed")
        _print_plan(report.plan)
        return
    gone = [line for line in report.lines if not line.stays]
    print_line(f"Forgot {counted(len(gone), 'line')}:", bold=True)
    for line in gone:
        print_line(f"  {line.citation}")
    for line in report.lines:
        if line.stays:
            warn(f"{line.citation} is now hidden, but still in its file: {line.stays}")
    _print_stores(report.stores)
    for one in report.pending:
        warn(f"{one.store} has not forgotten it yet: {one.pending}; it will when the memory is next opened")


def _print_lines(lines: tuple[ForgetLine, ...]) -> None:
    for line in lines:
        copy = " (says the same)" if line.is_copy else ""
        print_line(f"  {line.citation}{copy}: {one_line(line.text, 90)}")
        if line.stays:
            print_line(f"    would be hidden, not removed: {line.stays}")


def _print_stores(stores: tuple[Holding, ...]) -> None:
    for one in stores:
        if not one.pending:
            shown = ", ".join(one_line(text, 40) for text in one.examples[:3])
            examples = f" ({shown})" if shown else ""
            stays = f"; stays: {one.stays}" if one.stays else ""
            print_line(f"  {one.store}, {one.what}: {one.count}{examples}{stays}")
