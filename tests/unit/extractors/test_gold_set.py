"""The rules read the half of the gold set that they were made for; the other half is for reports."""

import pytest

from benchmarks.facts import LANGUAGES, Tally, fuzz, measure, read_items
from composable_memory_adapters.extractors import HeuristicExtractor


async def test_the_rules_are_as_good_as_promised_in_each_language() -> None:
    items = [item for item in read_items() if item.half == "work"]
    found = await measure(items, HeuristicExtractor(), lambda item: item.language)
    whole = Tally()

    for language in LANGUAGES:
        tally = found[language]
        whole.add(tally)
        assert tally.share("right", "found") >= 0.95, language
        assert tally.share("recalled", "wanted") >= 0.85, language
        assert tally.share("entities_right", "entities") >= 0.93, language
        assert tally.share("entities_recalled", "entities_wanted") >= 0.85, language
        assert tally.share("ended", "to_end") >= 0.7, language
    assert whole.share("in_time", "timed") >= 0.95
    assert whole.share("ended_wrongly", "to_keep") <= 0.05
    assert whole.share("spoken", "silent") <= 2 / 45
    assert [whole.counts[one] for one in ("forbidden", "empty", "loops")] == [0, 0, 0]


def test_the_gold_set_has_two_halves() -> None:
    items = read_items()
    said_before = sum(item.before is not None for item in items)

    assert len(items) + said_before >= 400
    for language in LANGUAGES:
        halves = [item.half for item in items if item.language == language]
        assert min(halves.count("work"), halves.count("report")) >= 35, language


@pytest.mark.thorough
async def test_sentences_put_together_at_random_never_state_what_cannot_be() -> None:
    tally = await fuzz(HeuristicExtractor(), 800)

    assert tally.counts["relations"] > 0
    assert [tally.counts[one] for one in ("forbidden", "empty", "loops")] == [0, 0, 0]
