"""Weights, advice and quality as they are told to people, from values made by hand."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, date, datetime

import pytest

from composable_memory.cli.feedback_documents import EvaluatedDocument, EvaluateDocument, StatsDocument
from composable_memory.cli.feedback_drawing import (
    evaluated_line,
    evaluation_lines,
    quality_rows,
    stats_lines,
)
from composable_memory.cli.screen import Line
from composable_memory.cli.weight_documents import AdviceDocument
from composable_memory.cli.weight_drawing import advice_lines, weights_lines
from composable_memory.cli.weight_words import columns, proportions, told_gain, told_weight, told_weights
from composable_memory.learning import Advice, EvaluationRun, LearningStats, WeightsReport
from composable_memory_feedback.advice import Proposal, Verdict
from composable_memory_feedback.advice.values import BackendAdvice, Objection
from composable_memory_feedback.experiments.values import ExperimentRecord
from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.judgements import JudgementKind
from composable_memory_feedback.judging import EvaluationOutcome
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.store import BackendDay, Evaluation, ShadowRecord
from composable_memory_feedback.weights import WeightTable

NOW = datetime(2026, 5, 11, 12, tzinfo=UTC)
BASE = WeightTable.fixed({"notes": 0.5, "graph": 0.25}, made_at=NOW)
TABLE = WeightTable(
    weights={"notes": 0.5, "graph": 0.5},
    by_intent={IntentKind.TIME: {"notes": 0.1}},
    version="v2",
    made_at=NOW,
    reason="learnt",
)
REPORT = WeightsReport(table=BASE, base=BASE)
BACKENDS = ("notes", "graph")
PROPOSAL = Proposal(
    advisor="statistical",
    current=BASE,
    table=TABLE,
    changes=(
        BackendAdvice(
            backend="graph",
            intent=None,
            current=0.25,
            suggested=9.0,
            sample_size=60,
            confidence=0.9,
            rationale="it is\nread more",
            plausible=Interval(mean=0.9, low=0.8, high=1.0),
        ),
    ),
    sample_size=60,
    made_at=NOW,
    gain=Interval(mean=0.012, low=0.004, high=0.02),
    gain_by_intent={IntentKind.TIME: Interval(mean=0.1, low=0.0, high=0.2)},
    notes=("60 cases",),
)


def told(lines: Iterable[Line]) -> list[str]:
    return [text for text, _ in lines]


# --- words --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weight", "text"),
    [(0.6, "0.60"), (0.625, "0.625"), (1, "1.00"), (0, "0.00"), (10_000.0, "10000.00")],
)
def test_a_weight_has_two_or_three_digits(weight: float, text: str) -> None:
    assert told_weight(weight) == text


def test_weights_stand_in_the_order_of_the_backends_and_strangers_last() -> None:
    given = {"old": 0.1, "graph": 0.3, "notes": 0.6}

    assert told_weights(given, BACKENDS) == "notes 0.60, graph 0.30, old 0.10"


def test_a_gain_is_told_with_signs() -> None:
    gain = Interval(mean=0.0, low=-0.0101, high=0.02)

    assert told_gain(gain) == "+0.000 (-0.010 .. +0.020)"


def test_weights_that_are_all_nothing_have_no_proportions() -> None:
    nothing = WeightTable.fixed({"notes": 0.0, "graph": 0.0})

    assert proportions(nothing, None, BACKENDS) == {"notes": 0.0, "graph": 0.0}


def test_columns_hold_their_cells_apart() -> None:
    assert list(columns([["a", "bb", ""], ["ccc", "d", "e"]], right=(1,))) == ["a    bb", "ccc   d  e"]


# --- weights ------------------------------------------------------------------------------------------------


def test_weights_of_the_settings_are_shown_alone() -> None:
    assert told(weights_lines(REPORT, BACKENDS)) == [
        "The weights of the settings are in force.",
        "backend  weight",
        "notes      0.50",
        "graph      0.25",
    ]


def test_a_learnt_table_is_shown_by_kind_and_beside_the_settings() -> None:
    report = WeightsReport(table=TABLE, base=BASE, since=NOW)

    assert told(weights_lines(report, BACKENDS))[1:] == [
        "learnt",
        "backend   all  time  settings",
        "notes    0.50  0.10      0.50",
        "graph    0.50  0.50      0.25",
    ]


def test_an_experiment_that_runs_is_told_with_the_weights() -> None:
    record = ExperimentRecord(id="e", a=BASE, b=TABLE, started_at=NOW)

    last = told(weights_lines(replace(REPORT, experiment=record), BACKENDS))[-1]

    assert last.startswith("An experiment runs, graph 0.25, notes 0.50 against v2 (")


def test_a_memory_without_backends_has_no_table() -> None:
    assert told(weights_lines(REPORT, ()))[1:] == ["No backend is enabled."]


# --- advice -------------------------------------------------------------------------------------------------


def advice(
    *objections: Objection, adjustments: tuple[str, ...] = (), applied: str | None = None
) -> list[str]:
    verdict = Verdict(objections=objections, adjustments=adjustments)
    given = Advice(proposal=PROPOSAL, verdict=verdict, cases=60)
    return told(advice_lines(AdviceDocument.of(given, applied=applied)))


def test_an_advice_shows_the_table_that_the_guardrails_left_and_the_reasons() -> None:
    assert advice(adjustments=("graph: 1 rather than 9",)) == [
        "Advice of the statistical advisor, from 60 judged queries with a relevant result",
        "questions  backend   now  suggested  plausible     queries",
        "all        notes    1.00       1.00  -                   -",
        "all        graph    0.50       1.00  0.80 .. 1.00       60",
        "  it is read more",
        "time       notes    1.00       0.20  -                   -",
        "time       graph    0.50       1.00  -                   -",
        "The heaviest weight is shown as 1; plausible is where the best one lies, with 95 %.",
        "",
        "Expected gain in nDCG: +0.012 (+0.004 .. +0.020)",
        "  time questions: +0.100 (+0.000 .. +0.200)",
        "Held in check: graph: 1 rather than 9",
        "Note: 60 cases",
        "",
        "Nothing speaks against it; the same command with --apply adopts it.",
    ]


def test_what_speaks_against_an_advice_is_told_in_words() -> None:
    found = advice(Objection(code="no-gain", text="it may lose"), Objection(code="cool-down", text="wait"))

    assert found[-3:] == ["Against it:", "  - it may lose", "  - wait"]


def test_an_advice_that_was_adopted_names_the_way_back() -> None:
    assert advice(applied="v3")[-1] == "Adopted as v3; `cmem weights rollback` takes it back."


def test_an_advice_that_nobody_could_replay_says_so() -> None:
    bare = replace(PROPOSAL, gain=None, gain_by_intent={}, changes=(), notes=())
    document = AdviceDocument.of(Advice(proposal=bare, verdict=Verdict(), cases=0))

    found = told(advice_lines(document))

    assert "Expected gain in nDCG: unknown, for too few judged queries can be replayed" in found
    assert "The heaviest weight is shown as 1." in found


# --- quality ------------------------------------------------------------------------------------------------


def day(number: int, intent: IntentKind, queries: int, relevance: float) -> BackendDay:
    return BackendDay(
        day=date(2026, 5, number),
        backend="notes",
        intent=intent,
        queries=queries,
        precision=relevance,
        mean_relevance=relevance,
        used=1,
        results=4,
    )


def stats(*days: BackendDay, **more: object) -> LearningStats:
    given: dict[str, object] = {
        "kinds": {JudgementKind.MODEL: 12, JudgementKind.EXPLICIT: 3},
        "judged_queries": 5,
        "evaluations": 4,
        "failed_evaluations": 1,
        "input_tokens": 12_345,
        "output_tokens": 678,
        "quota_left": 16,
        "weights": REPORT,
    }
    return LearningStats(days=days, **{**given, **more})  # type: ignore[arg-type]


def test_quality_is_weighed_by_queries_and_split_by_kind_where_there_are_several() -> None:
    rows = quality_rows([day(1, IntentKind.TIME, 3, 1.0), day(2, IntentKind.GENERAL, 1, 0.0)], "judged")

    assert [(one.intent, one.queries, one.mean_relevance, one.used) for one in rows] == [
        (None, 4, 0.75, 2),
        (IntentKind.TIME, 3, 1.0, 1),
        (IntentKind.GENERAL, 1, 0.0, 1),
    ]


def test_stats_tell_judgements_cost_weights_and_quality() -> None:
    assert told(stats_lines(stats(day(1, IntentKind.TIME, 3, 1.0)), BACKENDS)) == [
        "Judgements  3 explicit, 12 model; 5 judged queries",
        "Model       4 evaluations, 1 failed; 12,345 tokens in, 678 out; 16 left this hour",
        "Weights     those of the settings: notes 0.50, graph 0.25",
        "",
        "Quality, as judged",
        "backend  questions  queries  precision  relevance    used",
        "notes    all              3       1.00       1.00  1 of 4",
    ]


def test_a_proposal_that_proves_itself_is_told() -> None:
    shadow = ShadowRecord(proposal=PROPOSAL, since=NOW)

    last = told(stats_lines(stats(shadow=shadow), BACKENDS))[-1]

    assert last.startswith("Waiting     a proposal of the statistical advisor proves itself since ")
    assert last.endswith(", expected gain +0.012 (+0.004 .. +0.020)")
    document = StatsDocument.of(stats(shadow=shadow)).as_json()
    assert document["waiting"]["proposal"]["suggested"]["byIntent"] == {"time": {"notes": 0.1}}  # type: ignore[index, call-overload]


# --- evaluations --------------------------------------------------------------------------------------------

EVALUATION = Evaluation(
    trace_id="0123456789",
    query_id="q",
    query="who\nhas the key?",
    at=NOW,
    model="m",
    precision=0.5,
    mean_relevance=0.4,
    used_count=1,
    judged_count=2,
    input_tokens=1000,
    output_tokens=200,
    duration_ms=1500.0,
)
JUDGED = EvaluationOutcome(state="judged", evaluation=EVALUATION)
FAILED = EvaluationOutcome(
    state="failed",
    evaluation=replace(EVALUATION, judged_count=0, output_tokens=0, error="no\nanswer"),
    problem="no\nanswer",
)
UNASKED = EvaluationOutcome(state="nothing-to-judge", problem="no text")


def test_an_outcome_is_one_line_whatever_came_of_it() -> None:
    assert [evaluated_line(EvaluatedDocument.of(one)) for one in (JUDGED, FAILED, UNASKED)] == [
        "judged  01234567  precision 0.50  relevance 0.40  used 1   1,200 tokens  who has the key?",
        "failed  01234567  no answer  who has the key?",
        "nothing to judge            no text",
    ]


def test_an_evaluation_sums_up_its_cost_and_what_is_left() -> None:
    run = EvaluationRun(signals=3, outcomes=(JUDGED, FAILED, UNASKED), left=2, stopped="quota")

    assert told(evaluation_lines(EvaluateDocument.of(run))) == [
        "Judged 1 query, 2 results; mean precision 0.50; 1 failed.",
        "Cost: 2,000 tokens in, 200 out, 3.0 s.",
        "Signals of use: 3 new.",
        "2 queries are left to judge.",
    ]
