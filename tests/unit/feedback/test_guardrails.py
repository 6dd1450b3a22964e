"""What the guardrails leave of a proposal, and what they say against it."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from math import inf, nan

import pytest

from composable_memory_feedback.advice.proposal import (
    AdviceLimits,
    ObjectionCode,
    Proposal,
    check,
    clamp_steps,
)
from composable_memory_feedback.golden import GoldenComparison, GoldenScore
from composable_memory_feedback.metrics import Interval
from composable_memory_feedback.weights import IntentKind, WeightTable

NOW = datetime(2026, 3, 2, 9, tzinfo=UTC)
LIMITS = AdviceLimits()
BACKENDS = ("builtin", "graphiti", "qmd")
GAIN = Interval(mean=0.03, low=0.01, high=0.05)
LOSS = Interval(mean=-0.03, low=-0.05, high=-0.01)
TIME, TOPIC = IntentKind.TIME, IntentKind.TOPIC

Rows = Mapping[IntentKind, Mapping[str, float]]


def table(*weights: float, by_intent: Rows | None = None) -> WeightTable:
    return WeightTable.fixed(dict(zip(BACKENDS, weights, strict=False)), by_intent=by_intent, made_at=NOW)


def clamped(proposed: WeightTable, current: WeightTable) -> WeightTable:
    return clamp_steps(proposed, current=current, limits=LIMITS, backends=BACKENDS)


def row(*weights: float) -> dict[str, float]:
    return dict(zip(BACKENDS, weights, strict=True))


def test_a_small_step_is_taken_as_it_is() -> None:
    result = clamped(table(1.0, 0.9, 0.85), table(1.0, 1.0, 1.0))

    assert row(1.0, 0.9, 0.85) == result.weights


def test_only_proportions_count_for_a_step() -> None:
    result = clamped(table(10_000, 9_000, 8_500), table(0.3, 0.3, 0.3))

    assert row(1.0, 0.9, 0.85) == result.weights


def test_all_weight_on_one_backend_becomes_one_step_towards_it() -> None:
    result = clamped(table(1.0, 0.0, 0.0), table(1.0, 1.0, 1.0))

    assert row(1.0, 0.8, 0.8) == result.weights


def test_a_new_leader_first_comes_level_with_the_old_one() -> None:
    result = clamped(table(0.1, 1.0, 0.1), table(1.0, 0.7, 0.5))

    assert row(1.0, 0.9, 0.7) == result.weights


def test_a_level_backend_takes_the_lead_at_once() -> None:
    result = clamped(table(0.1, 1.0, 0.9), table(1.0, 0.95, 0.9))

    assert row(0.8, 1.0, 0.9) == result.weights


def test_no_backend_falls_below_the_least_weight() -> None:
    result = clamped(table(1.0, 0.0, 0.5), table(1.0, 0.2, 0.5))

    assert result["graphiti"] == 0.1


def test_a_weight_of_0_that_was_set_by_hand_stays_until_a_proposal_raises_it() -> None:
    off = table(1.0, 0.0, 1.0)

    assert clamped(table(1.0, 0.0, 0.9), off)["graphiti"] == 0.0
    assert clamped(table(1.0, 0.6, 0.9), off)["graphiti"] == 0.2


def test_a_table_of_zeros_proposes_nothing() -> None:
    current = table(1.0, 0.5, 0.5)

    result = clamped(table(0.0, 0.0, 0.0), current)

    assert result is current


def test_from_zeros_everywhere_steps_count_from_equal_weights() -> None:
    assert row(1.0, 0.8, 0.8) == clamped(table(1.0, 0.5, 0.5), table(0.0, 0.0, 0.0)).weights


def test_a_single_backend_cannot_be_weighed() -> None:
    current = WeightTable.fixed({"builtin": 0.4}, made_at=NOW)
    proposed = WeightTable.fixed({"builtin": 1.0}, made_at=NOW)

    assert current is clamp_steps(proposed, current=current, limits=LIMITS, backends=["builtin"])


def test_without_backends_nothing_changes() -> None:
    current = table(1.0, 0.5, 0.5)

    assert current is clamp_steps(table(0.5, 1.0), current=current, limits=LIMITS, backends=[])


def test_the_same_proportions_are_the_current_table_itself() -> None:
    current = table(2.0, 0.123456789, 0.04)

    assert clamped(table(1.0, 0.0617283945, 0.02), current) is current


def test_a_backend_that_nobody_knows_is_left_out() -> None:
    proposed = WeightTable.fixed({**row(1.0, 0.9, 1.0), "evil": 1e300}, made_at=NOW)

    result = clamped(proposed, table(1.0, 1.0, 1.0))

    assert row(1.0, 0.9, 1.0) == result.weights


def test_a_kind_steps_from_what_it_had() -> None:
    current = table(1.0, 0.5, 0.5, by_intent={TIME: {"graphiti": 1.0}})
    proposed = table(1.0, 0.5, 0.5, by_intent={TIME: row(0.2, 1.0, 0.2)})

    result = clamped(proposed, current)

    assert {TIME: row(0.8, 1.0, 0.3)} == result.by_intent


def test_a_kind_that_a_proposal_forgets_goes_to_the_common_weights_step_by_step() -> None:
    current = table(1.0, 0.5, 0.5, by_intent={TIME: row(1.0, 1.0, 0.5)})

    result = clamped(table(1.0, 0.5, 0.5), current)

    assert {TIME: row(1.0, 0.8, 0.5)} == result.by_intent


def test_the_order_of_two_backends_is_turned_round_in_a_few_changes() -> None:
    current, wanted = table(0.7, 0.3, 0.3), table(0.3, 1.0, 0.3)

    steps = 0
    while (following := clamped(wanted, current)) is not current:
        current, steps = following, steps + 1

    assert (6, row(0.3, 1.0, 0.3)) == (steps, current.weights)


def proposal(
    proposed: WeightTable | None = None,
    *,
    sample_size: int = 120,
    gain: Interval | None = GAIN,
    notes: tuple[str, ...] = (),
    gain_by_intent: Mapping[IntentKind, Interval] | None = None,
) -> Proposal:
    return Proposal(
        advisor="statistical",
        current=table(1.0, 1.0, 1.0),
        table=proposed or table(1.0, 0.9, 1.0),
        sample_size=sample_size,
        made_at=NOW,
        gain=gain,
        gain_by_intent=gain_by_intent or {},
        notes=notes,
    )


def golden(before: float, after: float, *worse: str, recall: float = 1.0) -> GoldenComparison:
    scores = [
        GoldenScore(recall=found, mrr=1.0, ndcg=ndcg, questions=3)
        for found, ndcg in ((1.0, before), (recall, after))
    ]
    return GoldenComparison(current=scores[0], proposed=scores[1], worse=worse)


def objections(
    one: Proposal,
    *,
    limits: AdviceLimits = LIMITS,
    floor: GoldenComparison | None = None,
) -> list[tuple[ObjectionCode, str]]:
    objections = check(
        one,
        limits=limits,
        golden=floor,
    )
    return [(objection.code, objection.text) for objection in objections]


def test_a_proven_gain_is_allowed() -> None:
    assert objections(proposal(), floor=golden(0.9, 0.9)) == []


def test_a_proposal_that_changes_no_ranking_says_what_was_refused() -> None:
    found = objections(proposal(table(0.5, 0.5, 0.5), notes=("refused: prose",)))

    assert found == [("no-change", "it ranks like the current weights (refused: prose); keep them")]


@pytest.mark.parametrize("weight", [nan, inf, -inf, -1.0])
def test_what_is_no_weight_is_no_table(weight: float) -> None:
    with pytest.raises(ValueError, match="the weight of 'builtin'"):
        table(weight, 1.0, 1.0)


def test_too_few_samples_say_how_many_are_missing() -> None:
    assert (objections(proposal(sample_size=12))) == [
        ("too-few-samples", "12 judged queries of 50; judge 38 more")
    ]


@pytest.mark.parametrize(
    "gain",
    [
        None,
        LOSS,
        Interval(mean=0.02, low=0.0, high=0.04),
        Interval(mean=nan, low=nan, high=nan),
    ],
    ids=["unknown", "loss", "perhaps nothing", "no number"],
)
def test_without_a_sure_gain_nothing_changes(gain: Interval | None) -> None:
    assert [code for code, _ in objections(proposal(gain=gain))] == ["no-gain"]


def test_a_step_too_short_to_prove_is_allowed_on_a_way_that_surely_gains() -> None:
    for mean in (0.01, -0.001):
        unsure = Interval(mean=mean, low=-0.01, high=0.03)
        on_the_way = replace(proposal(gain=unsure), destination=table(1.0, 0.3, 1.0), destination_gain=GAIN)

        assert objections(on_the_way) == []


def test_an_unsure_gain_says_truthfully_what_is_missing() -> None:
    half_known = Interval(mean=0.02, low=-0.02, high=0.06)  # four times the queries would show it
    hardly = Interval(mean=0.0001, low=-0.02, high=0.02)
    at_best_none = Interval(mean=-0.001, low=-0.01, high=0.008)
    samples = proposal(gain=half_known).sample_size

    def told(gain: Interval, way: Interval | None = None) -> str:
        destination = table(1.0, 0.3, 1.0) if way else None
        one = replace(proposal(gain=gain), destination=destination, destination_gain=way)
        ((_, text),) = objections(one)
        return text

    assert f"{3 * samples} more judged queries" in told(half_known)
    assert f"{3 * samples} more judged queries" in told(at_best_none, way=half_known)
    for gain in (hardly, at_best_none):
        assert "keep the" in told(gain)
    assert "going all the way gains nDCG +0.0300" in told(LOSS, way=GAIN)


def test_a_step_that_changes_no_ranking_is_allowed_on_a_way_that_surely_gains() -> None:
    nothing = Interval(mean=0.0, low=0.0, high=0.0)
    on_the_way = replace(proposal(gain=nothing), destination=table(1.0, 0.3, 1.0), destination_gain=GAIN)

    assert objections(on_the_way) == []
    assert [code for code, _ in objections(proposal(gain=nothing))] == ["no-gain"]


@pytest.mark.parametrize(
    ("step", "way"),
    [
        (Interval(mean=0.01, low=-0.01, high=0.03), LOSS),
        (Interval(mean=0.01, low=-0.01, high=0.03), Interval(mean=nan, low=nan, high=nan)),
        (LOSS, GAIN),
        (Interval(mean=nan, low=nan, high=nan), GAIN),
    ],
    ids=["to a loss", "to nobody knows where", "that loses", "of no number"],
)
def test_a_step_may_not_lose_and_has_to_lead_somewhere_better(step: Interval, way: Interval) -> None:
    one = replace(proposal(gain=step), destination=table(1.0, 0.3, 1.0), destination_gain=way)

    assert [code for code, _ in objections(one)] == ["no-gain"]


def test_a_gain_at_the_cost_of_one_kind_is_none() -> None:
    (found,) = objections(proposal(gain_by_intent={TIME: LOSS, TOPIC: GAIN}))

    assert found[1].startswith("time questions would lose, nDCG -0.0300 [-0.0500, -0.0100]")


def test_golden_questions_are_the_floor() -> None:
    (found,) = objections(proposal(), floor=golden(0.91, 0.905, "keys", "rent"))

    assert found[0] == "golden-floor"
    assert "from nDCG 0.9100 to 0.9050" in found[1]
    assert "(worse: keys, rent)" in found[1]


def test_a_lost_answer_is_below_the_floor_even_where_the_ranking_gains() -> None:
    assert [code for code, _ in objections(proposal(), floor=golden(0.9, 0.95, recall=0.9))] == [
        "golden-floor"
    ]


def test_the_floor_gives_way_as_far_as_it_is_told() -> None:
    lenient = replace(LIMITS, golden_tolerance=0.005)

    assert objections(proposal(), limits=lenient, floor=golden(0.91, 0.905)) == []


def test_the_gravest_objection_comes_first() -> None:
    found = objections(proposal(sample_size=3, gain=None), floor=golden(0.9, 0.8, "keys"))

    assert [code for code, _ in found] == ["too-few-samples", "no-gain", "golden-floor"]
