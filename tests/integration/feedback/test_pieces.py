"""Pieces of one long line, each judged, advised on and replayed as a result of its own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from composable_memory import open_memory
from composable_memory.learning import Learning, open_learning
from composable_memory.learning.judging import named_result
from composable_memory.learning.logged import judged_cases, queries_of
from composable_memory.tools.search import MemorySearchRequest, memory_search
from composable_memory_feedback.advice.evidence import score
from composable_memory_feedback.judgements import JudgementKind
from composable_memory_feedback.logged.logged_query import LoggedQuery
from composable_memory_feedback.replay import PolicyChange
from tests.integration.embedders.loopback import listening
from tests.integration.feedback.learners import saying
from tests.integration.feedback.test_cli_feedback import Cmem
from tests.unit.feedback.judged_queries import judgments

LINE = "".join(
    f"The {colour} lantern of the harbour hangs in hall {number}. " + f"filler{number} " * 600
    for number, colour in enumerate(("red", "green", "white", "blue"))
)
QUESTION = "where does the lantern of the harbour hang?"
CONFIG: dict[str, Any] = {
    "memory": {
        "embedding": {"provider": "none"},
        "builtin": {"chunking": {"overlap": 0}},
    }
}


@dataclass(frozen=True)
class Asked:
    """A question that pieces of one line answered, by how they are cited."""

    cmem: Cmem
    trace_id: str
    citations: tuple[str, ...]

    @property
    def place(self) -> dict[str, Any]:
        return {"state_dir": self.cmem.state, "config": CONFIG, "environ": {}}


@pytest.fixture
async def asked(tmp_path: Path) -> Asked:
    cmem = Cmem(tmp_path)
    (cmem.workspace / "memory").mkdir(parents=True)
    (cmem.workspace / "memory" / "log.md").write_text(LINE, encoding="utf-8")
    assert 15_000 < len(LINE) < 25_000
    async with open_memory(cmem.workspace, cmem.state, CONFIG, environ={}) as memory:
        await memory.sync()
        reply = await memory_search(memory, MemorySearchRequest(query=QUESTION))
    assert reply.trace_id is not None
    return Asked(cmem, reply.trace_id, tuple(one.citation or "" for one in reply.results))


async def logged(learning: Learning) -> LoggedQuery:
    (query,) = (await queries_of(learning.context)).queries
    return query


async def test_a_judgement_of_one_piece_says_nothing_of_the_others(asked: Asked) -> None:
    second = asked.citations[1]
    assert len(set(asked.citations)) == len(asked.citations) >= 3

    async with open_learning(asked.cmem.workspace, **asked.place) as learning:
        query = await logged(learning)
        judgement = await learning.judging.judge(asked.trace_id, second, relevance=1.0)
        (case,) = await judged_cases(learning.context)
        report = await learning.replay(PolicyChange(fusion="rrf"), keep=10)

    assert (judgement.key, judgement.rank) == (query.shown[1].key, 2)
    assert {one.path for one in query.shown} == {"memory/log.md"}
    assert case.evidence.keys() == {query.shown[1].key}
    # The piece that was judged stands second: of its gain the first, which nobody judged, has none.
    assert score(query.shown, case.evidence, k=5) == pytest.approx(1 / 1.58496, abs=1e-3)
    assert (report.reproduced, report.total) == (1, 1)
    assert report.judged is not None
    assert report.judged.ndcg_before < 1.0
    assert report.judged.coverage == pytest.approx(1 / len(query.shown))


async def test_each_piece_is_named_as_it_is_printed(asked: Asked) -> None:
    async with open_learning(asked.cmem.workspace, **asked.place) as learning:
        query = await logged(learning)

    places = [(one.start_line, one.start_char) for one in query.shown]
    assert len(set(places)) == len(places)
    for rank, (hit, citation) in enumerate(zip(query.shown, asked.citations, strict=True), 1):
        within = f":{hit.start_char}" if hit.start_char else ""
        printed = (citation, hit.key, f"memory/log.md:1-1{within}", str(rank))
        assert {named_result(query, name).key for name in printed} == {hit.key}


async def test_what_is_read_or_quoted_tells_pieces_apart_as_far_as_it_says(asked: Asked) -> None:
    async with open_memory(asked.cmem.workspace, asked.cmem.state, CONFIG, environ={}) as memory:
        response = await memory.query(QUESTION)
        shown = response.results
        memory.record_answer(response.trace_id, f"In a hall, says {asked.citations[1]}.")
        await memory.learning.judging.gather()
        quoted = await memory.learning.context.stored(
            lambda store: store.judgements(kinds={JudgementKind.QUOTED})
        )
        await memory.read_file("memory/log.md", from_line=1, lines=1)
        await memory.learning.judging.gather()
        opened = await memory.learning.context.stored(
            lambda store: store.judgements(kinds={JudgementKind.OPENED})
        )

    assert [one.key for one in quoted] == [shown[1].key]
    assert {one.key for one in opened} == {one.key for one in shown}, "the line holds all of them"


async def test_a_model_is_shown_and_judges_each_piece_by_its_own_text(asked: Asked) -> None:
    async with listening(saying(judgments(0.9, 0.1, 0.2, 0.3))) as server:
        config = {**CONFIG["memory"], "feedback": {"llm": {"base_url": f"{server.url}/v1"}}}
        async with open_memory(
            asked.cmem.workspace, asked.cmem.state, {"memory": config}, environ={}
        ) as memory:
            query = await logged(memory.learning)
            run = await memory.learning.judging.evaluate(read=memory.text_of)

    prompt = server.received[0].json["messages"][-1]["content"]
    (outcome,) = run.outcomes
    assert [(one.key, one.relevance) for one in outcome.judgements] == [
        (hit.key, score) for hit, score in zip(query.shown, (0.9, 0.1, 0.2, 0.3), strict=True)
    ]
    places = [prompt.index(LINE[hit.start_char :][:60]) for hit in query.shown]
    assert places == sorted(set(places)), "each under its own heading"
