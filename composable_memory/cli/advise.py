"""`cmem advise`: proposes weights, says what they would gain, and adopts them if that is allowed."""

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from pydantic import JsonValue

from composable_memory.cli.command import ExitCode, Target, command
from composable_memory.cli.options import AsJson, Since, parse_time
from composable_memory.cli.output import error, one_line, print_json, print_line, warn
from composable_memory.cli.render import print_table
from composable_memory.cli.weights import (
    ACTOR,
    ALL_QUESTIONS,
    HOW_TO_JUDGE,
    differences,
    format_gain,
    format_weight,
    format_weights,
    opened_learning,
    table_document,
    warn_if_set_aside,
)
from composable_memory.json_documents import document
from composable_memory.learning import Advice
from composable_memory_feedback.advice.proposal import Proposal
from composable_memory_feedback.weights import IntentKind
from composable_memory_ops_logs.plurals import counted

REFUSED = "refused"
"""How a note begins that says what is wrong with a model's reply."""

app = typer.Typer()


@command(app, "advise", epilog="Example: cmem advise --apply")
async def advise(
    target: Target,
    *,
    llm: Annotated[
        bool,
        typer.Option(
            "--llm",
            help="Ask the language model of memory.feedback.llm, regardless of memory.feedback.advisor.",
        ),
    ] = False,
    apply_: Annotated[bool, typer.Option("--apply", help="Adopt the advice unless a check objects.")] = False,
    since: Since = None,
    as_json: AsJson = False,
) -> ExitCode:
    """Propose better weights from judged searches, with their expected gain.

    The gain is measured by replay, whichever advisor is used. Without --apply nothing changes.
    """
    start = parse_time(since, "--since")
    async with opened_learning(target) as learning:
        advice = await learning.advising.advise("llm" if llm else None, since=start)
        applied = None
        if apply_ and advice.is_allowed:
            applied = (await learning.advising.apply(advice, actor=ACTOR)).version
        report = await learning.weights.report()
    if as_json:
        print_json(_advice_document(advice, applied))
    else:
        print_advice(advice, applied)
    if not advice.cases:
        warn(f"hint: no judged queries yet: {HOW_TO_JUDGE}")
    warn_if_set_aside(report)
    if apply_ and (refusal := _refusal(advice)):
        error(f"the weights are unchanged: {refusal}")
        return ExitCode.FAILED
    return ExitCode.FINE


def _refusal(advice: Advice) -> str | None:
    """Return why a change was refused; that the current weights proved best is not a refusal."""
    is_proven = advice.proposal.gain is not None
    grave = [one.text for one in advice.objections if one.code != "no-change" or not is_proven]
    grave += [note for note in advice.proposal.notes if note.startswith(REFUSED)]
    return grave[0] if grave else None


def _weights(proposal: Proposal) -> Iterator[tuple[IntentKind | None, str, float, float, str]]:
    """Yield every weight as it is and as proposed, by kind and backend, with the advisor's reason."""
    current, table = proposal.current, proposal.table
    backends = [*dict.fromkeys([*current.weights, *table.weights])]
    for kind, backend, before, after in differences(current, table, backends):
        yield kind, backend, before, after, "" if kind else proposal.reasons.get(backend, "")


def _advice_document(advice: Advice, applied: str | None) -> dict[str, JsonValue]:
    """Return the advice as JSON; `applied` is the version under which it was adopted."""
    return document(
        proposal=proposal_document(advice.proposal),
        cases=advice.cases,
        allowed=advice.is_allowed,
        objections=advice.objections,
        applied=applied,
    )


def proposal_document(proposal: Proposal) -> dict[str, JsonValue]:
    """Return a proposed table as JSON.

    `gain` is the expected change of nDCG. `destination` is the table that this step leads to, and
    `destinationGain` the gain of going all the way.
    """
    return document(
        proposal,
        current=table_document(proposal.current),
        table=None,
        suggested=table_document(proposal.table),
        reasons=None,
        weights=[
            document(backend=backend, intent=kind, current=now, suggested=proposed, rationale=reason or None)
            for kind, backend, now, proposed, reason in _weights(proposal)
        ],
        destination=table_document(proposal.destination),
    )


def print_advice(advice: Advice, applied: str | None = None) -> None:
    """Print a proposal with its gain and reasons, then the objections, or how to adopt it."""
    proposal = advice.proposal
    queries = counted(proposal.sample_size, "judged query", "judged queries")
    print_line(f"Advice of the {proposal.advisor} advisor, from {queries} with a relevant result", bold=True)
    _print_weights(proposal)
    print_line()
    _print_gain(proposal)
    for text in proposal.notes:
        if not any(text in one.text for one in advice.objections):
            print_line(f"Note: {one_line(text)}", dim=True)
    print_line()
    if applied:
        print_line(f"Adopted as {applied}; `cmem weights rollback` undoes it.", bold=True)
    elif advice.is_allowed:
        print_line("No check objects; add --apply to adopt it.", bold=True)
    else:
        print_line("Objections:", bold=True)
        for objection in advice.objections:
            print_line(f"  - {one_line(objection.text)}")


def _print_weights(proposal: Proposal) -> None:
    """Print the proposed weights, each with the advisor's reason; those that change are bold."""
    rows: list[Sequence[str]] = []
    changed: set[int] = set()
    for kind, backend, before, after, reason in _weights(proposal):
        if abs(after - before) >= 0.0005:
            changed.add(len(rows))
        weights = format_weight(before), format_weight(after)
        rows.append((kind or ALL_QUESTIONS, backend, *weights, one_line(reason)))
    head = ("questions", "backend", "now", "suggested", "")
    print_table(rows, head=head, right=(2, 3), styles=dict.fromkeys(changed, "bold"))
    print_line("The heaviest weight is shown as 1.", dim=True)


def _print_gain(proposal: Proposal) -> None:
    unknown = "unknown, because too few judged queries can be replayed"
    print_line(f"Expected gain in nDCG: {format_gain(proposal.gain) if proposal.gain else unknown}")
    for kind, one in sorted(proposal.gain_by_intent.items()):
        print_line(f"  {kind} questions: {format_gain(one)}")
    if proposal.destination is not None and proposal.destination_gain is not None:
        way = format_weights(proposal.destination.weights)
        print_line(f"All the way to {way}: {format_gain(proposal.destination_gain)}")
