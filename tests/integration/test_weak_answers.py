"""Where nothing in the notes matches a question well, that is said; the nearest are shown only on request."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from composable_memory import open_memory
from composable_memory.hooks.prompt_context import recall_for_prompt
from composable_memory.query.calibration import (
    GOOD_ALONE,
    NOISE,
    STRONG,
    STRONG_HYBRID,
    Calibration,
    strength,
)
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.ranking import CalibrationRule, MergePolicy, is_weak
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.runtime.memory import Memory
from composable_memory.testing.in_memory import InMemoryBackend
from composable_memory.tools.context_pack import MemoryContextPackRequest, memory_context_pack
from composable_memory.tools.search import MemorySearchRequest, memory_search, query_cited
from composable_memory.types import MemorySearchResult, QueryRequest, SearchOptions
from composable_memory_feedback.errors import FeedbackError
from composable_memory_ops_logs import OpsLogReader

SUBJECTS = ("oak", "harbour", "violin", "kettle", "ferry", "ledger", "comet", "orchard", "saddle", "tunnel")
FOREIGN = "Which city hosts the parliament of Australia?"
OWN = "Who repaired the violin?"


@pytest.fixture
async def memory(tmp_path: Path, state_dir: Path) -> AsyncIterator[Memory]:
    notes = tmp_path / "vault" / "memory"
    notes.mkdir(parents=True)
    for number, one in enumerate(SUBJECTS):
        text = f"Person{number} repaired the {one} in the city.\n\nThe {one} stands in room {number}.\n"
        (notes / f"{one}.md").write_text(text, encoding="utf-8")
    async with open_memory(tmp_path / "vault", state_dir, environ={}, long_lived=False) as opened:
        await opened.sync()
        yield opened


async def test_an_answer_without_a_good_match_is_weak_and_still_has_its_results(memory: Memory) -> None:
    foreign, own = await memory.query(FOREIGN), await memory.query(OWN)

    assert foreign.weak
    assert foreign.results
    assert not own.weak
    assert own.results[0].path == "memory/violin.md"


async def test_a_word_of_the_question_does_not_answer_for_somebody_unknown(memory: Memory) -> None:
    for number in range(2):
        text = f"Whoever wants to live here in year {number} has to sign the lease by May; rent goes up.\n"
        (memory.workspace_dir / "memory" / f"lease{number}.md").write_text(text, "utf-8")
    await memory.sync()

    assert not (await memory.query("Who can live here?")).weak
    assert (await memory.query("Where does Roberta live?")).weak


async def test_words_that_only_ask_for_notes_find_none(memory: Memory) -> None:
    (memory.workspace_dir / "memory" / "work.md").write_text("Wrote notes about the release.\n", "utf-8")
    await memory.sync()
    asked = await query_cited(memory, MemorySearchRequest(query="my notes about the violin"))

    assert asked.results[0].path == "memory/violin.md"
    assert "memory/work.md" not in {one.path for one in asked.results}
    assert (await memory.query("notes about Roberta")).weak


async def test_an_agent_is_told_that_nothing_matched_well_and_gets_the_nearest_on_request(
    memory: Memory,
) -> None:
    told = await memory_search(memory, MemorySearchRequest(query=FOREIGN))
    shown = await memory_search(memory, MemorySearchRequest(query=FOREIGN, weak=True))
    own = await memory_search(memory, MemorySearchRequest(query=OWN))

    assert (told.results, told.weak, shown.weak, own.weak) == ((), True, True, None)
    assert "`weak`" in (told.action or "")
    assert shown.results
    assert {one.weak for one in shown.results} == {True}
    assert {one.weak for one in own.results} == {None}


async def test_a_prompt_that_nothing_matches_well_gets_nothing_put_before_it(memory: Memory) -> None:
    own = await recall_for_prompt(memory, OWN)

    assert await recall_for_prompt(memory, FOREIGN) is None
    assert own is not None
    assert "Person2 repaired the violin" in own


async def test_what_would_be_weak_by_itself_is_not_put_before_a_prompt(memory: Memory) -> None:
    shown = await query_cited(memory, MemorySearchRequest(query=OWN))
    told = await recall_for_prompt(memory, OWN)
    good = [one for one in shown.results if one.score >= GOOD_ALONE]

    assert told is not None
    assert 0 < len(good) < len(shown.results)
    assert told.count("repaired the") == len(good)


async def test_what_hardly_matches_is_left_out_below_what_does(memory: Memory) -> None:
    asked = MemorySearchRequest(query="How old is the orchard?")
    response = await query_cited(memory, asked)
    everything = await query_cited(memory, asked.model_copy(update={"weak": True}))
    without_least = await query_cited(memory, asked.model_copy(update={"min_score": 0.0}))

    left_out = [one.result for one in response.dropped if one.detail == "hardly matches"]
    assert response.results[0].path == "memory/orchard.md"
    assert left_out
    assert {one.score for one in left_out} < {one.score for one in everything.results}
    assert all(one.score < NOISE for one in left_out)
    assert all(one.score >= NOISE for one in response.results)
    assert everything.results == without_least.results
    assert len(response.results) == len(response.attributions) == len(everything.results) - len(left_out)


async def test_who_narrows_the_question_is_shown_what_passes(memory: Memory) -> None:
    narrowed = (f"{FOREIGN} path:memory", f"{FOREIGN} after:2020", f'{FOREIGN.rstrip("?")} "in the city"')
    for query in narrowed:
        response = await query_cited(memory, MemorySearchRequest(query=query, max_results=20))
        assert not response.weak, query
        assert len(response.results) == len(SUBJECTS), query
    by_request = await memory_search(memory, MemorySearchRequest(query=FOREIGN, paths=("memory",)))
    without = await memory_search(memory, MemorySearchRequest(query=f"{FOREIGN.rstrip('?')} -kettle"))

    assert by_request.results
    assert (without.results, without.weak) == ((), True)


async def test_what_vectors_alone_found_is_never_called_weak(tmp_path: Path, state_dir: Path) -> None:
    vault = tmp_path / "vault"
    (vault / "memory").mkdir(parents=True)
    note = (
        "Anna wrote that the plumber comes on Friday to look at the boiler, the pipes and the tap; "
        "the key is with the neighbour, the gate has the code 4711.\n"
    )
    (vault / "MEMORY.md").write_text("Gate code 4711\n", encoding="utf-8")
    (vault / "memory" / "plumber.md").write_text(note, encoding="utf-8")
    config = {"memory": {"builtin": {"query": {"hybrid": {"enabled": False}}}}}
    async with open_memory(vault, state_dir, config, environ={}, long_lived=False) as opened:
        await opened.sync()
        reply = await memory_search(opened, MemorySearchRequest(query="neighbour Friday"))

    assert reply.weak is None
    assert reply.results[0].path == "memory/plumber.md"


async def test_a_pack_of_weak_results_is_empty_and_says_why(memory: Memory) -> None:
    told = await memory_context_pack(memory, MemoryContextPackRequest(query=FOREIGN))
    shown = await memory_context_pack(memory, MemoryContextPackRequest(query=FOREIGN, weak=True))

    assert (told.pack, told.weak) == ("", True)
    assert told.warning
    assert told.action
    assert shown.pack
    assert shown.weak


async def test_a_least_score_that_is_given_decides_instead(memory: Memory) -> None:
    all_of_them = await memory_search(memory, MemorySearchRequest(query=FOREIGN, min_score=0.0))
    cut = await memory.query(FOREIGN, min_score=0.99)
    by_options = QueryRequest(query=FOREIGN, options=SearchOptions(min_score=0.01))

    assert all_of_them.results
    assert all_of_them.weak is None
    assert cut.results == ()
    assert not cut.weak
    assert not (await memory.query(by_options)).weak


async def test_the_settings_can_show_weak_results(memory: Memory) -> None:
    query = memory.settings.memory.query.model_copy(update={"show_weak": True})
    settings = memory.settings.model_copy(
        update={"memory": memory.settings.memory.model_copy(update={"query": query})}
    )
    shows = replace(memory, loaded=replace(memory.loaded, settings=settings))

    reply = await memory_search(shows, MemorySearchRequest(query=FOREIGN))

    assert reply.weak
    assert reply.results
    hides = await memory_search(shows, MemorySearchRequest(query=FOREIGN, weak=False))
    assert hides.results == ()


async def test_what_was_left_out_counts_as_not_delivered(memory: Memory) -> None:
    reply = await memory_search(memory, MemorySearchRequest(query=FOREIGN))
    await memory.ops_log.flush()

    found = await asyncio.to_thread(lambda: [*OpsLogReader(memory.ops_log_dir).trace(reply.trace_id or "")])
    details = {one.action: one.detail for one in found}
    delivered, merged = details["query.delivered"], details["query.merged"]
    assert isinstance(delivered, Mapping)
    assert isinstance(merged, Mapping)
    assert delivered["resultCount"] == 0
    assert isinstance(merged["finalResults"], Sequence)  # what a replay ranks again
    assert delivered["hidden"] == [*range(1, len(merged["finalResults"]) + 1)]


async def test_a_rating_counts_the_places_of_what_was_delivered(memory: Memory) -> None:
    reply = await memory_search(memory, MemorySearchRequest(query=FOREIGN))
    trace_id = reply.trace_id or ""
    await memory.ops_log.flush()

    with pytest.raises(FeedbackError, match="it showed nothing"):
        await memory.learning.judging.judge(trace_id, "1", relevance=1.0)

    shown = await memory_search(memory, MemorySearchRequest(query=FOREIGN, weak=True))
    judged = await memory.learning.judging.judge(shown.trace_id or "", "1", relevance=1.0)
    assert judged.path == shown.results[0].path
    by_lines = await memory.learning.judging.judge(trace_id, judged.key, relevance=0.0)
    assert by_lines.path == judged.path


async def test_scores_that_only_order_their_list_are_never_called_weak() -> None:
    notes = {"a.md": "The kettle is old.", "b.md": "The ferry is late and the kettle is new."}
    for method, weak in ((Calibration.AUTO, True), (Calibration.MAX, False), (Calibration.RANK, False)):
        entry = ComposableBackendEntry(id="small", manager=InMemoryBackend(notes), calibration=method)
        composite = ComposableMemoryManager([entry])

        answer = await composite.query("kettle one two three four five six seven eight")

        assert answer.results
        assert answer.weak is weak, method


async def test_one_backend_with_a_good_match_suffices() -> None:
    poor = InMemoryBackend({"a.md": "The kettle is old."})
    good = InMemoryBackend({"b.md": "The parliament of Australia sits in the city of Canberra."})
    entries = [ComposableBackendEntry(id=f"{at}", manager=one) for at, one in enumerate((poor, good))]
    composite = ComposableMemoryManager(entries)

    assert not (await composite.query("In which city sits the parliament of Australia?")).weak
    assert (await composite.query("Which old men of all the world play chess in the rain?")).weak


async def test_a_good_match_of_a_backend_without_weight_does_not_count() -> None:
    poor = InMemoryBackend({"a.md": "The kettle is old, and stands far from the city."})
    good = InMemoryBackend({"b.md": "The parliament of Australia sits in the city of Canberra."})
    for weight, weak in ((1.0, False), (0.0, True)):
        composite = ComposableMemoryManager(
            [
                ComposableBackendEntry(id="poor", manager=poor),
                ComposableBackendEntry(id="good", manager=good, weight=weight),
            ]
        )

        answer = await composite.query("In which city sits the parliament of Australia?")

        assert "a.md" in {one.path for one in answer.results}
        assert answer.weak is weak, weight


def test_scores_that_vectors_took_part_in_need_less() -> None:
    best, others = STRONG - 0.02, [STRONG - 0.03] * 5
    scores = [best, *others]
    found = {
        "notes": [
            MemorySearchResult(path="a.md", start_line=line, end_line=line, score=score, snippet="a")
            for line, score in enumerate(scores)
        ]
    }
    rules = {"notes": CalibrationRule(method=Calibration.IDENTITY, is_absolute=True)}
    weak = partial(is_weak, found, rules, weights={"notes": 1.0}, policy=MergePolicy())

    assert STRONG_HYBRID < strength(scores) < STRONG
    assert weak()
    assert not weak(hybrid={"notes"})


def test_a_result_that_stands_out_is_stronger() -> None:
    assert strength([]) == 0.0
    assert strength([0.4, 0.1, 0.1]) > strength([0.4, 0.4, 0.4]) == pytest.approx(0.4)
    assert strength([0.5, 0.1]) > strength([0.4, 0.1])
