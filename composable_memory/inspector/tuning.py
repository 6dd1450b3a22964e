"""What if: rank candidates differently, ask a question on another day; and the history of the weights."""

import asyncio
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from composable_memory.citations import format_place
from composable_memory.inspector.answer import Row, moment, score, table
from composable_memory.inspector.markup import Child, Markup, el, line_chart
from composable_memory.learning.logged import queries_of
from composable_memory.query.calibration import Calibration
from composable_memory.query.fusion import Dedup, Fusion
from composable_memory.query.replay import Replayer
from composable_memory.types import SearchFilters
from composable_memory_feedback.logged.logged_query import LoggedQuery, RankedHit
from composable_memory_feedback.logged.reading import read_queries
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.replay import PolicyChange, QueryReplay, ReplayReport, changed, compared
from composable_memory_feedback.weights import WeightChange, WeightTable
from composable_memory_ops_logs import OpsLog, OpsLogReader, trace
from composable_memory_ops_logs.plurals import counted

if TYPE_CHECKING:
    from composable_memory.runtime.memory import Memory


PREFIX = "weight."
"""Prefix of the names of the weight sliders."""
MOST = 2.0
JUDGED = (50, 200, 1000)
DAYS = 365
"""Range of the day slider, in both directions."""


def sliders(
    weights: Mapping[str, float],
    ranking: Row,
    *,
    action: str,
    adopt: str | None = None,
    asked_on: str | None = None,
) -> Markup:
    """Return the form for ranking again; with `adopt`, also for choosing how many queries.

    With `asked_on`, a day, also for asking as if on another day.
    """
    parts = [
        _slider(f"Weight of {name}", f"{PREFIX}{name}", value, max(MOST, value))
        for name, value in weights.items()
    ]
    parts.append(_slider("Least score", "min_score", float(ranking.get("minScore", 0.0)), 1.0))
    methods = {"Fusion": Fusion, "Dedup": Dedup, "Calibration": Calibration}
    for label, known in methods.items():
        options = [("", "as it was"), *((str(one), str(one)) for one in known)]
        parts.append(choice(label, label.lower(), options, {}))
    if asked_on:
        days = el("input", type="range", name="days", min=-DAYS, max=DAYS, value=0, data_from=asked_on)
        parts.append(el("label", el("span", "As if today were ", el("output", asked_on)), days))
    if adopt:
        latest = [(str(most), f"last {most}") for most in JUDGED]
        parts.append(choice("Judged queries", "latest", latest, {}))
    button = el("button", "Adopt these weights", formaction=adopt, formmethod="post") if adopt else None
    return el(
        "form", parts, el("button", "Rank again", class_="plain"), button,
        action=action, data_live=".outcome", class_="tuning",
    )  # fmt: skip


def change_of(form: Mapping[str, str], now: WeightTable | None = None) -> PolicyChange:
    """Return the change in the form; what it leaves out is as in the weights `now`, if given.

    Raises:
        ValueError: a number is invalid.
    """
    given = weights_of(form)
    return PolicyChange(
        table=replace(now, weights={**now.weights, **given}) if now else WeightTable.fixed(given),
        fusion=form.get("fusion") or None,
        dedup=form.get("dedup") or None,
        calibration=form.get("calibration") or None,
        min_score=float(form["min_score"]) if form.get("min_score") else None,
    )


def days_of(form: Mapping[str, str]) -> int:
    """Return how many days later to ask the question.

    Raises:
        ValueError: it is not a number, or out of the slider's range.
    """
    days = int(form.get("days", 0))
    if abs(days) > DAYS:
        raise ValueError(f"{days} days are more than {DAYS}")
    return days


def weights_of(form: Mapping[str, str]) -> dict[str, float]:
    """Return the weights in the form."""
    return {
        name.removeprefix(PREFIX): float(value) for name, value in form.items() if name.startswith(PREFIX)
    }


def ranking_view(report: ReplayReport, k: int) -> Markup:
    """Return how the ranking of one search changes."""
    if not report.total:
        return el("p", "The log does not hold enough of this search to rank it again.", class_="problem")
    if not report.queries:
        return el("p", f"The first {k} results stay as they are.")
    one = report.queries[0]
    return el(
        "div", el("p", counted(len(one.moves), "result moves", "results move"), _gain(one)), _ranking(one)
    )


def _ranking(one: QueryReplay) -> Markup:
    before = {move.hit.key: move.before for move in one.moves}
    rows = [_row(str(place), hit, before.get(hit.key, place)) for place, hit in enumerate(one.after, 1)]
    rows += [_row("out", move.hit, move.before) for move in one.moves if move.after is None]
    return table(("now", "before", "place", "backend", "score"), rows, caption="The ranking after the change")


def _row(now: str, hit: RankedHit, before: int | None) -> Sequence[Child]:
    then = "new" if before is None else "" if str(before) == now else f"was {before}"
    return now, then, el("code", format_place(hit)), hit.backend, score(hit.score)


def judged_view(report: ReplayReport, base: str) -> Markup:
    """Return what judged queries say about a change."""
    judged = report.judged
    changed = f"{report.changed} of {report.total} rankings change in their first {report.k}."
    if judged is None:
        advice = "Judge results with 1 to 3 on the page of a search, or run "
        return el("p", f"{changed} No query is judged yet. {advice}", el("code", "cmem feedback evaluate"))
    kinds = [("all questions", judged.difference), *sorted(judged.by_intent.items())]
    rows = [(str(name), f"{one.mean:+.3f}", _range(one), one.verdict) for name, one in kinds]
    links = (
        (el("a", one.query.query or "(no words)", href=f"{base}/trace/{one.query.trace_id}"), _gain(one))
        for one in report.queries
    )
    examples = [el("li", *one) for one in links]
    known = f" Over {judged.queries} judged queries; {judged.coverage:.0%} of their results are judged."
    moved = el("strong", f"nDCG@{report.k} {judged.ndcg_before:.3f} to {judged.ndcg_after:.3f}. ")
    return el(
        "div",
        el("p", moved, changed, known),
        table(("questions", "change", "95 %", ""), rows, caption="Change of nDCG with its 95 % interval"),
        el("ul", examples) if examples else None,
    )


def _range(one: Interval) -> str:
    return f"{one.low:+.3f} to {one.high:+.3f}"


def _gain(one: QueryReplay) -> str:
    if one.ndcg_before is None or one.ndcg_after is None:
        return ""
    return f": nDCG {one.ndcg_before:.3f} to {one.ndcg_after:.3f}"


def weights_history(changes: Sequence[WeightChange], base: WeightTable, backends: Sequence[str]) -> Markup:
    """Return the weights over time, scaled to 1 for the heaviest, and who changed them; latest first."""
    if not changes:
        return el(
            "p", "The weights have never been changed: the settings' weights are active.", class_="soft"
        )
    lines: dict[str, list[tuple[float, float]]] = {name: [] for name in backends}
    for number, one in enumerate(reversed(changes)):
        own = (one.table or base).proportions(backends)
        for name, points in lines.items():
            points += [((number + end) / len(changes), own[name]) for end in (0, 1)]
    ends = (moment(changes[-1].at), moment(changes[0].at))
    drawn = line_chart(
        "Weights after each change, scaled so that the heaviest is 1", lines, ends=ends, most=1.0
    )
    head = ("when", "version", "by", "change", "gain", "weights", "reason")
    rows = [(*_change(one, backends),) for one in changes]
    return el("div", drawn, table(head, rows, caption="Changes of the weights"))


def _change(one: WeightChange, backends: Sequence[str]) -> Iterator[Child]:
    yield moment(one.at)
    yield one.version or "settings"
    yield one.actor
    yield one.action
    yield f"{one.gain.mean:+.3f} ({_range(one.gain)})" if one.gain else "–"
    weights = one.table.weights if one.table else {}
    yield ", ".join(f"{name} {weights[name]:.3g}" for name in backends if name in weights)
    yield one.reason


def _slider(label: str, name: str, value: float, most: float) -> Markup:
    given = el("input", type="range", name=name, min="0", max=f"{most:g}", step="0.01", value=f"{value:g}")
    return el("label", el("span", label, " ", el("output", f"{value:g}")), given)


def choice(label: str, name: str, options: Sequence[tuple[str, str]], form: Mapping[str, str]) -> Markup:
    """Return a select field; `options` are values and labels."""
    chosen = form.get(name, "")
    every = [el("option", word, value=one, selected=one == chosen) for one, word in options]
    return el("label", label, el("select", every, name=name))


async def asked_on_another_day(
    memory: "Memory", trace_id: str, change: PolicyChange, *, days: int, k: int
) -> ReplayReport:
    """Replay a logged question as if asked `days` later, or earlier, under a change.

    The first `k` results are compared with the logged ones.
    """
    before = (await queries_of(memory.context, traces=[trace_id])).queries
    after = await _ask(memory, trace_id, timedelta(days=days)) if before else None
    if after is None:
        return ReplayReport(change=change, k=k, total=0, changed=0, queries=())
    ranker = Replayer()
    then, now = ranker(before[0], before[0].policy)[:k], ranker(after, changed(after, change))[:k]
    one = compared(after, then, now)
    shown = (one,) if one.moves else ()
    return ReplayReport(change=change, k=k, total=1, changed=len(shown), queries=shown)


async def _ask(memory: "Memory", trace_id: str, later: timedelta) -> LoggedQuery | None:
    events = await asyncio.to_thread(OpsLogReader(memory.ops_log_dir).trace, trace_id)
    start = next(one for one in events if one.action == "query.start")
    told: dict[str, Any] = {**start.logged}
    moment = (datetime.fromisoformat(told["now"]) if told.get("now") else start.ts) + later
    folder = Path(await asyncio.to_thread(mkdtemp, prefix="cmem-"))
    try:
        async with OpsLog(folder) as log:
            with trace(session_key=start.session_key):
                await memory.manager.logging_to(log).query(
                    told["query"],
                    max_results=told.get("maxResults"),
                    min_score=told.get("minScore") or None,
                    session_key=start.session_key,
                    filters=_filters(told.get("filters") or {}),
                    now=moment,
                )
        found = await asyncio.to_thread(read_queries, folder)
    finally:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
    return found.queries[-1] if found.queries else None


def _filters(told: Mapping[str, Any]) -> SearchFilters:
    """Return filters as they were logged."""
    given: dict[str, Any] = {
        name: datetime.fromisoformat(value) if isinstance(value, str) else tuple(value)
        for name, value in told.items()
        if name in {one.name for one in fields(SearchFilters)}
    }
    return SearchFilters(**given)
