"""What the commands of learning print of values made by hand: the facts, whatever columns they stand in."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from math import inf

import pytest

from composable_memory.cli.advise import print_advice, proposal_document
from composable_memory.cli.evaluate import golden_document, print_run
from composable_memory.cli.experiment import experiment_document, print_experiment
from composable_memory.cli.feedback import print_evaluation, print_outcome, print_stats
from composable_memory.cli.replay import print_report as print_replay
from composable_memory.cli.replay import print_reproduced
from composable_memory.cli.weights import (
    format_gain,
    format_table,
    format_weight,
    format_weights,
    print_report,
)
from composable_memory.learning import (
    Advice,
    EvaluationRun,
    GoldenRun,
    LearningStats,
    QuestionScore,
    WeightsReport,
)
from composable_memory_feedback.advice.proposal import Objection, Proposal
from composable_memory_feedback.experiments import Experiment, ExperimentStatus, TestResult
from composable_memory_feedback.golden import GoldenComparison, GoldenScore
from composable_memory_feedback.judgements import BackendDay, Evaluation, JudgementKind
from composable_memory_feedback.judging import EvaluationOutcome
from composable_memory_feedback.logged.logged_query import LoggedQuery, RankedHit, RankingPolicy
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.replay import (
    Judged,
    Move,
    PolicyChange,
    QueryReplay,
    ReplayReport,
    by_importance,
)
from composable_memory_feedback.weights import IntentKind, WeightTable

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
GAIN = Interval(mean=0.012, low=0.004, high=0.02)
PROPOSAL = Proposal(
    advisor="statistical",
    current=BASE,
    table=TABLE,
    sample_size=60,
    made_at=NOW,
    gain=GAIN,
    gain_by_intent={IntentKind.TIME: Interval(mean=0.1, low=0.0, high=0.2)},
    notes=("60 cases",),
    reasons={"graph": "it is\nread more"},
)

Printed = Callable[[], list[list[str]]]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    """Return the words of every line that was printed."""
    return lambda: [line.split() for line in capsys.readouterr().out.splitlines()]


# --- weights ------------------------------------------------------------------------------------------------


def test_a_weight_has_few_digits_and_only_zero_looks_like_zero() -> None:
    weights = (0.6, 0.625, 1, 0, 10_000.0, 1e308, 2e-5)

    texts = [format_weight(one) for one in weights]

    assert texts == ["0.60", "0.625", "1.00", "0.00", "10000.00", "1e+308", "2e-05"]


def test_weights_stand_in_the_order_of_the_backends_and_strangers_last() -> None:
    given = {"old": 0.1, "graph": 0.3, "notes": 0.6}

    assert format_weights(given, BACKENDS) == "notes 0.60, graph 0.30, old 0.10"


def test_a_gain_has_signs() -> None:
    assert format_gain(Interval(mean=0.0, low=-0.0101, high=0.02)) == "+0.000 (-0.010 .. +0.020)"


def test_weights_that_are_all_nothing_have_no_proportions() -> None:
    nothing = WeightTable.fixed({"notes": 0.0, "graph": 0.0})

    assert nothing.proportions(BACKENDS) == {"notes": 0.0, "graph": 0.0}


def test_a_table_without_weights_is_shown_as_what_it_means() -> None:
    assert format_table(WeightTable.fixed({})) == "each backend 1.00"


def test_weights_of_the_settings_are_shown_alone(printed: Printed) -> None:
    print_report(REPORT, BACKENDS)

    assert printed()[1:] == [["backend", "weight"], ["notes", "0.50"], ["graph", "0.25"]]


def test_a_learnt_table_is_shown_by_kind_and_beside_the_settings(printed: Printed) -> None:
    print_report(WeightsReport(table=TABLE, base=BASE, since=NOW), BACKENDS)

    assert printed()[1:] == [
        ["learnt"],
        ["backend", "all", "time", "settings"],
        ["notes", "0.50", "0.10", "0.50"],
        ["graph", "0.50", "0.50", "0.25"],
    ]


def test_an_experiment_that_runs_is_shown_with_the_weights(printed: Printed) -> None:
    record = Experiment(id="e", a=BASE, b=TABLE, started_at=NOW)

    print_report(replace(REPORT, experiment=record), BACKENDS)

    last = " ".join(printed()[-1])
    assert "graph 0.25, notes 0.50 against v2 (" in last
    assert "`cmem experiment status`" in last


def test_a_memory_without_backends_has_no_table(printed: Printed) -> None:
    print_report(REPORT, ())

    assert len(printed()) == 2


# --- advice -------------------------------------------------------------------------------------------------


def advice(*objections: Objection) -> Advice:
    return Advice(proposal=PROPOSAL, objections=objections, cases=60)


def test_an_advice_shows_the_table_that_the_guardrails_left_and_the_reasons(printed: Printed) -> None:
    print_advice(advice())

    lines = printed()
    assert lines[1:6] == [
        ["questions", "backend", "now", "suggested"],
        ["all", "notes", "1.00", "1.00"],
        ["all", "graph", "0.50", "1.00", "it", "is", "read", "more"],
        ["time", "notes", "1.00", "0.20"],
        ["time", "graph", "0.50", "1.00"],
    ]
    text = " ".join(word for line in lines for word in line)
    for fact in (
        "+0.012 (+0.004 .. +0.020)",
        "time questions: +0.100 (+0.000 .. +0.200)",
        "60 cases",
        "--apply",
    ):
        assert fact in text


def test_a_reason_stands_beside_its_weight_for_all_questions_alone() -> None:
    weights = proposal_document(PROPOSAL)["weights"]

    assert weights == [
        {"backend": "notes", "current": 1.0, "suggested": 1.0},
        {"backend": "graph", "current": 0.5, "suggested": 1.0, "rationale": "it is\nread more"},
        {"backend": "notes", "intent": "time", "current": 1.0, "suggested": 0.2},
        {"backend": "graph", "intent": "time", "current": 0.5, "suggested": 1.0},
    ]


def test_what_speaks_against_an_advice_is_listed(printed: Printed) -> None:
    print_advice(
        advice(Objection(code="no-gain", text="it may lose"), Objection(code="taken-back", text="wait"))
    )

    assert printed()[-2:] == [["-", "it", "may", "lose"], ["-", "wait"]]


def test_what_an_objection_says_is_not_said_again_as_a_note(printed: Printed) -> None:
    objection = Objection(code="no-change", text="it ranks as now (60 cases); keep it")

    print_advice(advice(objection))

    assert " ".join(word for line in printed() for word in line).count("60 cases") == 1


def test_an_advice_that_was_adopted_names_the_way_back(printed: Printed) -> None:
    print_advice(advice(), "v3")

    last = " ".join(printed()[-1])
    assert "v3" in last
    assert "`cmem weights rollback`" in last


def test_an_advice_that_nobody_could_replay_has_no_gain(printed: Printed) -> None:
    bare = replace(PROPOSAL, gain=None, gain_by_intent={}, notes=())

    print_advice(Advice(proposal=bare, cases=0))

    (line,) = (line for line in printed() if line[:2] == ["Expected", "gain"])
    assert "unknown," in line


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


def stats(*days: BackendDay) -> LearningStats:
    return LearningStats(
        days=days,
        kinds={JudgementKind.MODEL: 12, JudgementKind.EXPLICIT: 3},
        judged_queries=5,
        evaluations=4,
        failed_evaluations=1,
        input_tokens=12_345,
        output_tokens=678,
        quota_left=16,
        weights=REPORT,
    )


def test_quality_is_weighed_by_queries_and_split_by_kind_where_there_are_several(printed: Printed) -> None:
    print_stats(stats(day(1, IntentKind.TIME, 3, 1.0), day(2, IntentKind.GENERAL, 1, 0.0)), BACKENDS)

    assert printed()[-4:] == [
        ["backend", "questions", "queries", "precision", "relevance", "used"],
        ["notes", "all", "4", "0.75", "0.75", "2", "of", "8"],
        ["time", "3", "1.00", "1.00", "1", "of", "4"],
        ["general", "1", "0.00", "0.00", "1", "of", "4"],
    ]


def test_stats_show_judgements_cost_and_weights(printed: Printed) -> None:
    print_stats(stats(day(1, IntentKind.TIME, 3, 1.0)), BACKENDS)

    text = " ".join(word for line in printed() for word in line)
    for fact in (
        "3 explicit, 12 model; 5 judged queries",
        "4 evaluations, 1 failed; 12,345 tokens in, 678 out; 16 left",
        "notes 0.50, graph 0.25",
        "notes all 3 1.00 1.00 1 of 4",
    ):
        assert fact in text


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


def test_an_outcome_is_one_line_whatever_came_of_it(printed: Printed) -> None:
    for one in (JUDGED, FAILED, UNASKED):
        print_outcome(one)

    judged, failed, unasked = (" ".join(line) for line in printed())
    assert judged == "judged 01234567 precision 0.50 relevance 0.40 used 1 1,200 tokens who has the key?"
    assert failed == "failed 01234567 no answer who has the key?"
    assert unasked == "nothing to judge no text"


def test_an_evaluation_sums_up_its_cost_and_what_is_left(printed: Printed) -> None:
    print_evaluation(EvaluationRun(signals=3, outcomes=(JUDGED, FAILED, UNASKED), left=2, stopped="quota"))

    text = " ".join(word for line in printed() for word in line)
    for fact in ("1 query, 2 results", "precision 0.50", "1 failed", "2,000 tokens in, 200 out, 3.0 s"):
        assert fact in text
    assert "3 new" in text
    assert "2 queries are left" in text


# --- replay -------------------------------------------------------------------------------------------------


def replayed(question: str, *moves: tuple[int | None, int | None], gain: float | None = None) -> QueryReplay:
    query = LoggedQuery(
        trace_id="0123456789abcdef",
        query_id="1",
        at=NOW,
        query=question,
        intent=IntentKind.ENTITY,
        policy=RankingPolicy(
            fusion="weighted", dedup="overlap", rrf_k=60, weights={}, max_results=6, min_score=0.0, depth=24
        ),
        lists=(),
        near=frozenset(),
        shown=(),
    )
    return QueryReplay(
        query=query,
        after=(),
        moves=tuple(
            Move(hit=hit(f"n{number}.md"), before=before, after=after)
            for number, (before, after) in enumerate(moves, 1)
        ),
        ndcg_before=None if gain is None else 0.5,
        ndcg_after=None if gain is None else 0.5 + gain,
    )


def hit(path: str) -> RankedHit:
    return RankedHit(path=path, start_line=3, end_line=9, backend="builtin", score=0.5, calibrated=0.5)


def report(*queries: QueryReplay, judged: Judged | None = None, keep: int = 5) -> ReplayReport:
    changed = by_importance(queries)
    return ReplayReport(
        change=PolicyChange(table=TABLE, fusion="rrf", dropped=frozenset({"qmd"})),
        k=10,
        total=len(queries),
        changed=len(changed),
        queries=tuple(changed[:keep]),
        judged=judged,
    )


def test_a_proof_counts_what_came_out_as_logged(printed: Printed) -> None:
    whole = replace(report(), total=7)
    print_reproduced(whole)
    print_reproduced(replace(whole, not_reproduced=("0123",)))

    all_of_them, not_all = (" ".join(line) for line in printed())
    assert "all 7 logged rankings" in all_of_them
    assert "6 of 7" in not_all


def test_a_change_names_all_that_it_changes(printed: Printed) -> None:
    print_replay(report(replayed("who?")))

    first, second = (" ".join(line) for line in printed())
    assert "v2 (graph 0.50, notes 0.50; time: notes 0.10), rrf fusion, qmd dropped" in first
    assert "0 of 1" in second
    assert "top 10" in second


def test_moves_stand_in_the_new_order_and_what_is_out_last(printed: Printed) -> None:
    one = replayed("who has the\nspare key?", (1, 2), (3, None), (2, 1), (None, 3), gain=0.25)

    print_replay(report(one))

    lines = printed()[3:]
    assert lines[0] == "who has the spare key?".split()
    assert lines[1][0] == "01234567"
    assert lines[1][-3:] == ["0.500", "->", "0.750"]
    assert lines[2:] == [
        ["up", "2", "->", "1", "n3.md:3-9", "[builtin]"],
        ["down", "1", "->", "2", "n1.md:3-9", "[builtin]"],
        ["in", "-", "->", "3", "n4.md:3-9", "[builtin]"],
        ["out", "3", "->", "-", "n2.md:3-9", "[builtin]"],
    ]


def test_of_many_moves_and_queries_the_first_are_shown_and_the_others_counted(printed: Printed) -> None:
    many = replayed("who?", *((place, place + 1) for place in range(10, 0, -1)))

    print_replay(report(many, many, many, keep=1))

    lines = printed()
    assert [line[1] for line in lines if line[:1] == ["down"]] == ["1", "2", "3", "4", "5", "6"]
    assert lines[-3][:3] == ["4", "moves", "more,"]
    assert lines[-1][:4] == ["2", "more;", "--limit", "3"]


def test_queries_whose_score_changes_most_come_first() -> None:
    queries = [
        replayed("a", (1, 2)),
        replayed("b", (1, 2), gain=0.1),
        replayed("c", (2, 1), gain=-0.3),
        replayed("d"),
    ]

    assert [one.query.query for one in by_importance(queries)] == ["c", "b", "a"]


def test_the_judgements_say_better_only_where_the_interval_does(printed: Printed) -> None:
    for low, high, verdict in (
        (0.004, 0.02, "better"),
        (-0.02, -0.004, "worse"),
        (-0.01, 0.02, "no clear difference"),
    ):
        judged = Judged(
            queries=96,
            ndcg_before=0.712,
            ndcg_after=0.724,
            difference=Interval(mean=(low + high) / 2, low=low, high=high),
            coverage=0.83,
            by_intent={IntentKind.TIME: GAIN},
        )

        print_replay(report(judged=judged))

        heading, measure, overall, time, known = (" ".join(line) for line in printed()[3:])
        assert "96 judged queries" in heading
        assert measure == "nDCG@10 0.712 -> 0.724"
        assert overall.endswith(verdict)
        assert time == "time +0.012 (+0.004 .. +0.020) better"
        assert "83%" in known


# --- experiments --------------------------------------------------------------------------------------------


def status(wins_a: int, wins_b: int, *, ended: bool = False) -> ExperimentStatus:
    record = Experiment(
        id="e1",
        a=BASE,
        b=TABLE,
        started_at=NOW,
        state="decided" if ended else "running",
        ended_at=NOW if ended else None,
        winner="b" if ended else None,
        max_queries=54,
    )
    found = TestResult(
        queries=wins_a + wins_b + 10,
        wins_a=wins_a,
        wins_b=wins_b,
        ties=10,
        e_value=inf if ended else 1.5,
        decision=record.winner,
    )
    return ExperimentStatus(record=record, found=found)


def test_an_experiment_shows_who_won_how_many_and_what_is_missing(printed: Printed) -> None:
    print_experiment(status(1, 3))

    lines = [" ".join(line) for line in printed()]
    assert "e1, running since" in lines[0]
    assert lines[1:4] == [
        "a graph 0.25, notes 0.50",
        "b v2 (graph 0.50, notes 0.50; time: notes 0.10)",
        "queries 14: a won 1, b won 3, 10 tied",
    ]
    assert lines[4] == "evidence 1.5, decided at 20"
    assert "40 more queries" in lines[5]


def test_an_experiment_that_ended_names_the_winner(printed: Printed) -> None:
    ended = status(1, 30, ended=True)
    print_experiment(ended)

    assert printed()[0][-2:] == ["b", "won"]
    assert "eValue" not in experiment_document(ended), "infinity is no number in JSON"


# --- golden questions ---------------------------------------------------------------------------------------


def score(recall: float, ndcg: float, **backends: GoldenScore) -> GoldenScore:
    return GoldenScore(recall=recall, mrr=0.5, ndcg=ndcg, questions=3, by_backend=backends)


def question(name: str, recall: float, first_rank: int | None) -> QuestionScore:
    return QuestionScore(
        id=name, question=f"Where is {name}?", recall=recall, mrr=0.5, ndcg=0.5, first_rank=first_rank
    )


def test_golden_scores_are_shown_with_the_questions_that_were_missed(printed: Printed) -> None:
    run = GoldenRun(
        score=score(0.5, 0.25, builtin=score(0.5, 0.125)),
        questions=(question("a", 1.0, 1), question("b", 0.5, 4), question("c", 0.0, None)),
        kept=3,
    )

    print_run(run, 10)

    lines = [" ".join(line) for line in printed()]
    assert lines[1:4] == ["recall MRR nDCG", "all together 0.500 0.500 0.250", "builtin 0.500 0.500 0.125"]
    assert lines[6:8] == ["c none found Where is c?", "b 50% found, first at 4 Where is b?"]
    assert lines[8].startswith("Kept 3 questions")


def test_a_floor_shows_what_fell_and_may_fall_by_what_is_tolerated(printed: Printed) -> None:
    floor = GoldenComparison(current=score(1.0, 0.9), proposed=score(1.0, 0.85), worse=("q2",))
    run = GoldenRun(score=score(1.0, 0.85), questions=(), floor=floor)

    print_run(run, 10)

    assert [" ".join(line) for line in printed()][-2:] == [
        "recall 1.000 -> 1.000, MRR 0.500 -> 0.500, nDCG 0.900 -> 0.850",
        "worse: q2",
    ]
    holds = {tolerance: golden_document(run, 10, tolerance)["floor"]["holds"] for tolerance in (0.0, 0.1)}  # type: ignore[index, call-overload]
    assert holds == {0.0: False, 0.1: True}
