"""Replays, gates, experiments and golden scores as lines for the terminal."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from math import inf

import pytest

from composable_memory.cli.experiment_documents import ExperimentDocument
from composable_memory.cli.golden_documents import EvalDocument
from composable_memory.cli.screen import Line
from composable_memory.cli.tuning_documents import GateDocument
from composable_memory.cli.tuning_drawing import (
    change_lines,
    eval_lines,
    experiment_lines,
    gate_lines,
    proof_lines,
    told_table,
)
from composable_memory.learning import GoldenRun, QuestionScore, ReplayRun
from composable_memory_feedback.experiments.values import ExperimentRecord, ExperimentStatus
from composable_memory_feedback.golden import GoldenComparison, GoldenScore
from composable_memory_feedback.intents import IntentKind
from composable_memory_feedback.logged import LoggedQuery, RankedHit, RankingPolicy
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.replay import (
    GateVerdict,
    Judged,
    Move,
    PolicyChange,
    QueryReplay,
    ReplayReport,
    by_importance,
)
from composable_memory_feedback.weights import WeightTable

NOW = datetime(2026, 5, 3, 12, 0, tzinfo=UTC)
A = WeightTable.fixed({"builtin": 1.0, "graphiti": 0.5})
B = WeightTable(
    weights={"builtin": 0.6, "graphiti": 1.0},
    by_intent={IntentKind.TIME: {"builtin": 0.25}},
    version="v3",
    made_at=NOW,
    reason="advice",
)
BETTER = Interval(mean=0.012, low=0.004, high=0.02)


def hit(path: str) -> RankedHit:
    return RankedHit(path=path, start_line=3, end_line=9, backend="builtin", score=0.5, calibrated=0.5)


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
        before=(),
        after=(),
        moves=tuple(
            Move(hit=hit(f"n{number}.md"), before=before, after=after)
            for number, (before, after) in enumerate(moves, 1)
        ),
        overlap=1.0,
        kendall=1.0,
        ndcg_before=None if gain is None else 0.5,
        ndcg_after=None if gain is None else 0.5 + gain,
    )


def report(*queries: QueryReplay, judged: Judged | None = None, keep: int = 5) -> ReplayReport:
    change = PolicyChange(table=B, fusion="rrf", dropped=frozenset({"qmd"}))
    changed = by_importance(queries)
    return ReplayReport(
        change=change,
        k=10,
        total=len(queries),
        changed=len(changed),
        queries=tuple(changed[:keep]),
        judged=judged,
    )


def texts(lines: Iterable[Line]) -> list[str]:
    return [text for text, _ in lines]


# --- replay -------------------------------------------------------------------------------------------------


def test_a_proof_counts_what_came_out_as_logged() -> None:
    run = ReplayRun(report=report(), reproduced=7, total=7)

    assert texts(proof_lines(run)) == [
        "Ranked again as then, all 7 logged rankings came out as logged, to the byte."
    ]
    assert "6 of 7" in texts(proof_lines(replace(run, reproduced=6)))[0]


def test_a_change_is_told_with_all_that_it_changes() -> None:
    first, second = texts(change_lines(report(replayed("who?"))))

    assert first == (
        "With the weights v3 (builtin 0.60, graphiti 1.00; time: builtin 0.25), rrf fusion, qmd dropped:"
    )
    assert second == "0 of 1 rankings change in their top 10."


def test_moves_are_told_in_the_new_order_and_what_is_out_last() -> None:
    one = replayed("who has the\nspare key?", (1, 2), (3, None), (2, 1), (None, 3), gain=0.25)

    assert texts(change_lines(report(one)))[3:] == [
        "who has the spare key?",
        f"  01234567  {NOW.astimezone():%Y-%m-%d %H:%M}  entity  nDCG 0.500 -> 0.750",
        "  up     2 ->  1  n3.md:3-9 [builtin]",
        "  down   1 ->  2  n1.md:3-9 [builtin]",
        "  in     - ->  3  n4.md:3-9 [builtin]",
        "  out    3 ->  -  n2.md:3-9 [builtin]",
    ]


def test_of_many_moves_those_nearest_to_the_top_are_told() -> None:
    one = replayed("who?", *((place, place + 1) for place in range(10, 0, -1)))

    told = texts(change_lines(report(one)))

    assert [line.split()[1] for line in told if line.startswith("  down")] == ["1", "2", "3", "4", "5", "6"]
    assert told[-1] == "  4 moves more, further down"


def test_what_is_not_shown_is_counted() -> None:
    told = texts(change_lines(report(*[replayed("who?", (1, 2))] * 3, keep=1)))

    assert told[-1] == "2 more; --limit 3 shows all."


def test_queries_whose_score_changes_most_come_first() -> None:
    queries = [
        replayed("a", (1, 2)),
        replayed("b", (1, 2), gain=0.1),
        replayed("c", (2, 1), gain=-0.3),
        replayed("d"),
    ]

    assert [one.query.query for one in by_importance(queries)] == ["c", "b", "a"]


@pytest.mark.parametrize(
    ("low", "high", "word"),
    [(0.004, 0.02, "better"), (-0.02, -0.004, "worse"), (-0.01, 0.02, "no clear difference")],
)
def test_the_judgements_say_better_only_where_the_interval_does(low: float, high: float, word: str) -> None:
    difference = Interval(mean=(low + high) / 2, low=low, high=high)
    judged = Judged(
        queries=96,
        effective=71.4,
        ndcg_before=0.712,
        ndcg_after=0.724,
        difference=difference,
        coverage=0.83,
        by_intent={IntentKind.TIME: BETTER},
    )

    told = texts(change_lines(report(judged=judged)))[3:]

    assert told[:2] == ["What 96 judged queries say", "  nDCG@10 0.712 -> 0.724"]
    assert told[2].endswith(word)
    assert told[3] == "  time           +0.012 (+0.004 .. +0.020)  better"
    assert told[4] == "  83% of the top 10 is judged, the rest is estimated; worth 71 independent queries"


# --- gate ---------------------------------------------------------------------------------------------------


def test_a_gate_tells_both_tables_and_the_reason() -> None:
    verdict = GateVerdict(passed=False, difference=BETTER, cases=40, reason="it may lose")

    told = texts(gate_lines(GateDocument.of(verdict, A, B, k=5, tolerance=0.01)))

    assert told == [
        "baseline   builtin 1.00, graphiti 0.50",
        "candidate  v3 (builtin 0.60, graphiti 1.00; time: builtin 0.25)",
        "measure    nDCG@5, tolerance 0.01",
        "Not passed: it may lose.",
    ]


def test_a_table_without_weights_is_told_as_what_it_means() -> None:
    assert told_table(WeightTable.fixed({})) == "each backend 1.00"


# --- experiments --------------------------------------------------------------------------------------------


def status(wins_a: int, wins_b: int, *, ended: bool = False) -> ExperimentStatus:
    record = ExperimentRecord(
        id="e1",
        a=A,
        b=B,
        started_at=NOW,
        state="decided" if ended else "running",
        ended_at=NOW if ended else None,
        winner="b" if ended else None,
    )
    return ExperimentStatus(
        record=record,
        queries=wins_a + wins_b + 10,
        wins_a=wins_a,
        wins_b=wins_b,
        ties=10,
        e_value=inf if ended else 1.5,
        win_rate=Interval(mean=0.75, low=0.4, high=0.95),
        decision=record.winner,
        needs="about 40 more queries",
    )


def test_an_experiment_tells_who_won_how_many_and_what_is_missing() -> None:
    told = texts(experiment_lines(ExperimentDocument.of(status(1, 3))))

    assert told == [
        f"Experiment e1, running since {NOW.astimezone():%Y-%m-%d %H:%M}",
        "  a         builtin 1.00, graphiti 0.50",
        "  b         v3 (builtin 0.60, graphiti 1.00; time: builtin 0.25)",
        "  queries   14: a won 1, b won 3, 10 told no difference",
        "  b wins    75 % (40 .. 95 %) of those that told one",
        "  evidence  1.5, decided from 20 on",
        "About 40 more queries.",
    ]


def test_an_experiment_without_a_difference_has_no_share() -> None:
    assert "  b wins    -" in texts(experiment_lines(ExperimentDocument.of(status(0, 0))))


def test_an_experiment_that_ended_names_the_winner() -> None:
    document = ExperimentDocument.of(status(1, 30, ended=True))
    told = texts(experiment_lines(document))

    assert told[0].endswith(", b won")
    assert told[5] == "  evidence  beyond measure, decided from 20 on"
    assert "eValue" not in document.as_json(), "infinity is no number in JSON"


# --- golden questions ---------------------------------------------------------------------------------------


def score(recall: float, ndcg: float, **backends: GoldenScore) -> GoldenScore:
    return GoldenScore(recall=recall, mrr=0.5, ndcg=ndcg, questions=3, by_backend=backends)


def question(name: str, recall: float, first_rank: int | None) -> QuestionScore:
    return QuestionScore(
        id=name, question=f"Where is {name}?", recall=recall, mrr=0.5, ndcg=0.5, first_rank=first_rank
    )


def test_golden_scores_stand_in_columns_and_misses_below_them() -> None:
    run = GoldenRun(
        score=score(0.5, 0.25, builtin=score(0.5, 0.125)),
        questions=(question("a", 1.0, 1), question("b", 0.5, 4), question("c", 0.0, None)),
        kept=3,
    )

    assert texts(eval_lines(EvalDocument.of(run, k=10, tolerance=0.0))) == [
        "3 questions, the first 10 results of each",
        "                recall    MRR   nDCG",
        "  all together   0.500  0.500  0.250",
        "  builtin        0.500  0.500  0.125",
        "",
        "2 questions with answers missing from the first 10",
        "  c  none found             Where is c?",
        "  b  50% found, first at 4  Where is b?",
        "Kept 3 questions; no weights are adopted that do worse on them.",
    ]


def test_a_floor_tells_what_fell() -> None:
    floor = GoldenComparison(current=score(1.0, 0.9), proposed=score(1.0, 0.8), worse=("q2",))
    run = GoldenRun(score=score(1.0, 0.8), questions=(), floor=floor)
    document = EvalDocument.of(run, k=10, tolerance=0.0)

    assert texts(eval_lines(document))[-3:] == [
        "The answers kept before, as ranked then -> with the weights in force",
        "  recall 1.000 -> 1.000, MRR 0.500 -> 0.500, nDCG 0.900 -> 0.800",
        "  worse: q2",
    ]
    assert document.floor is not None
    assert not document.floor.holds


def test_a_floor_may_fall_by_what_is_tolerated() -> None:
    floor = GoldenComparison(current=score(1.0, 0.9), proposed=score(1.0, 0.85))
    document = EvalDocument.of(
        GoldenRun(score=score(1.0, 0.85), questions=(), floor=floor), k=10, tolerance=0.1
    )

    assert document.floor is not None
    assert document.floor.holds
