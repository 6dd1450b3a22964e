"""The graph memory beside the notes: what was ingested is found, cited, dated, read, and forgotten."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from composable_memory.content import MemoryContentObject, MemoryProvenance, MemoryTemporalMetadata
from composable_memory.errors import BackendRejected
from composable_memory.registry import discover_backends
from composable_memory.runtime.memory import Memory
from composable_memory.runtime.opening import open_memory
from composable_memory.runtime.warm_memory import Request, WarmMemory
from composable_memory.tools.search import MemorySearchRequest, query_cited
from composable_memory_ops_logs import OpsLogReader

pytest.importorskip("falkordb")
pytestmark = pytest.mark.usefixtures("neighbour")

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
NOTE = "memory/people.md"


def said(own_id: str, text: str, day: str, *, line: int = 3) -> MemoryContentObject:
    return MemoryContentObject(
        id=own_id,
        kind="document",
        text=text,
        provenance=MemoryProvenance(source="note", source_id=NOTE, citations=(f"{NOTE}#L{line}",)),
        temporal=MemoryTemporalMetadata(observed_at=datetime.fromisoformat(day).replace(tzinfo=UTC)),
    )


JOBS = (
    said("job-1", "Mirela works at Beacon Labs.", "2026-01-10"),
    said("job-2", "Mirela works at Acme Robotics.", "2026-06-01", line=5),
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "notes"
    (workspace / "memory").mkdir(parents=True)
    (workspace / NOTE).write_text(
        "# People\n\nMirela works at Beacon Labs.\n\nMirela works at Acme Robotics.\n", encoding="utf-8"
    )
    return workspace


@pytest.fixture
def folders(workspace: Path, state_dir: Path) -> tuple[Path, Path]:
    return workspace, state_dir


@asynccontextmanager
async def opened(
    folders: tuple[Path, Path], contents: Sequence[MemoryContentObject] = (), **graphiti: object
) -> AsyncIterator[Memory]:
    config = {"graphiti": {"enabled": True, **graphiti}}
    async with open_memory(*folders, config, clock=lambda: NOW, long_lived=False) as memory:
        if contents:
            reports = await memory.ingest(contents)
            assert reports["graphiti"].ok, reports
        yield memory


async def snippets(memory: Memory, query: str) -> list[str]:
    response = await memory.query(query, backends=["graphiti"])
    assert not any(answer.error for answer in response.answers)
    return [result.snippet for result in response.results]


async def test_a_memory_that_stays_open_reports_what_it_wrote(folders: tuple[Path, Path]) -> None:
    async with open_memory(*folders, {"graphiti": {"enabled": True}}, clock=lambda: NOW) as memory:
        report = (await memory.ingest(JOBS))["graphiti"]

    assert (report.stored, report.facts) == (2, 2)


async def test_a_current_fact_comes_before_the_one_it_superseded(folders: tuple[Path, Path]) -> None:
    async with opened(folders, JOBS) as memory:
        first, second = (await snippets(memory, "Where does Mirela work?"))[:2]

    assert first.startswith("Mirela works at Acme Robotics.")
    assert second.startswith("Mirela works at Beacon Labs.")
    assert "no longer holds" in second


async def test_a_question_of_a_time_is_answered_with_what_held_then(folders: tuple[Path, Path]) -> None:
    async with opened(folders, JOBS) as memory:
        march = await snippets(memory, "Where did Mirela work as of March?")
        july = await snippets(memory, "Where did Mirela work in July 2026?")
        before = await snippets(memory, "Where did Mirela work as of 2025-12-24?")

    assert [text.split(" (")[0] for text in march] == ["Mirela works at Beacon Labs."]
    assert [text.split(" (")[0] for text in july] == [
        "Mirela works at Acme Robotics.",
        "Mirela works at Beacon Labs.",
    ]
    assert before == []


async def test_a_fact_is_cited_by_the_lines_of_its_note(folders: tuple[Path, Path]) -> None:
    async with opened(folders, JOBS) as memory:
        request = MemorySearchRequest(query="Mirela Acme Robotics", backends=("graphiti",))
        response = await query_cited(memory, request)

    assert response.results[0].citation == f"{NOTE}#L5"


async def test_a_fact_takes_no_second_place_beside_its_own_note(folders: tuple[Path, Path]) -> None:
    async with opened(folders, JOBS) as memory:
        await memory.sync()
        response = await memory.query("Where does Mirela work?")

    paths = [result.path for result in response.results]
    assert NOTE in paths
    merged = [other for one in response.attributions for other in one.merged_with]
    assert any("graphiti" in other for other in merged) or any(path.startswith("graphiti/") for path in paths)


async def test_the_page_of_a_fact_shows_history_and_sources(folders: tuple[Path, Path]) -> None:
    async with opened(folders, JOBS) as memory:
        response = await memory.query("Where does Mirela work?", backends=["graphiti"])
        page = (await memory.read_file(response.results[0].path)).text
        second_line = await memory.read_file(response.results[0].path, from_line=1, lines=1)

    assert "Beacon Labs" in page.split("## History")[1].split("## Sources")[0]
    assert f"{NOTE}#L5" in page.split("## Sources")[1]
    assert second_line.text == page.split("\n")[0]


async def test_what_was_ingested_is_there_for_the_next_process(folders: tuple[Path, Path]) -> None:
    async with opened(folders, JOBS):
        pass
    async with opened(folders) as memory:
        assert await snippets(memory, "Where does Mirela work?")
        again = await memory.ingest(JOBS)

    assert again["graphiti"].known == 2


async def test_a_fact_that_another_memory_stored_is_read_at_once(folders: tuple[Path, Path]) -> None:
    async with opened(folders) as early, opened(folders, JOBS) as late:
        response = await late.query("Where does Mirela work?", backends=["graphiti"])
        page = (await early.read_file(response.results[0].path)).text

    assert "Mirela works at Acme Robotics." in page


async def test_what_a_source_says_no_more_is_superseded(folders: tuple[Path, Path]) -> None:
    async with opened(folders) as memory:
        await memory.ingest_source(NOTE, JOBS)
        await memory.ingest_source(NOTE, JOBS[:1])
        facts = await memory.facts_of().facts(about="Mirela", current_only=True)
        everything = await memory.facts_of().facts(about="Mirela")

    assert not any("Acme" in fact.text for fact in facts)
    assert any("Acme" in fact.text for fact in everything)


async def test_an_empty_graph_starts_no_server_and_says_what_to_do(workspace: Path, tmp_path: Path) -> None:
    async with opened((workspace, tmp_path / "of_nobody")) as memory:
        response = await memory.query("Where does Mirela work?", backends=["graphiti"])

    (degradation,) = response.degraded
    assert degradation.code == "never-indexed"
    assert "cmem ingest" in degradation.reason
    assert not (tmp_path / "of_nobody" / "graphiti" / "server.json").exists()


async def test_a_place_that_cannot_be_reached_is_degraded_and_what_comes_in_is_kept(
    folders: tuple[Path, Path],
) -> None:
    async with opened(folders, url="falkor://127.0.0.1:1") as memory:
        await memory.sync()
        reports = await memory.ingest(JOBS)
        response = await memory.query("Where does Mirela work?")
        status = memory.backend_statuses()["graphiti"]

    assert (reports["graphiti"].pending, reports["graphiti"].failed) == (2, 0)
    assert any("127.0.0.1:1" in problem for problem in reports["graphiti"].problems)
    assert {one.code for one in response.degraded if one.backend_id == "graphiti"} & {"failed", "unavailable"}
    assert [result.path for result in response.results] == [NOTE]
    assert status.dirty


async def test_forgetting_needs_something_to_forget(folders: tuple[Path, Path]) -> None:
    async with opened(folders, JOBS) as memory:
        with pytest.raises(BackendRejected, match="no such episode"):
            await memory.facts_of().forget("nobody")


async def test_a_sentence_that_no_fact_says_is_found_by_its_words(folders: tuple[Path, Path]) -> None:
    drifting = said(
        "timer", "The irrigation timer drifts by two minutes. Mirela works at Quay.", "2026-02-01"
    )
    async with opened(folders, [*JOBS, drifting]) as memory:
        found = (await memory.query("How much does the irrigation timer drift?")).results
        jobs = (await memory.query("Where does Mirela work?", backends=["graphiti"])).results

    ours = [one for one in found if one.path.startswith("graphiti/")]
    assert [one.snippet for one in ours] == ["The irrigation timer drifts by two minutes."]
    assert ours[0].origin is not None
    assert ours[0].origin.path == NOTE
    assert all("fact" in one.metadata for one in jobs), "a sentence that a fact says is not told twice"


async def test_a_name_without_facts_is_forgotten_with_the_text_that_has_it(
    folders: tuple[Path, Path],
) -> None:
    async with opened(folders, [*JOBS, said("call", "We called Tamsin Ferncliff.", "2026-02-01")]) as memory:
        graph = memory.facts_of()
        before = {one.name for one in await graph.entities()}
        gone = await graph.forget("call")
        after = {one.name for one in await graph.entities()}

    assert gone.entities == 1
    assert before - after == {"Tamsin Ferncliff"}


async def test_each_step_is_an_event_under_one_trace(folders: tuple[Path, Path]) -> None:
    async with opened(folders, JOBS) as memory:
        response = await memory.query("Where does Mirela work?")
        log_dir = memory.ops_log_dir
    events = await asyncio.to_thread(OpsLogReader(log_dir).tail, 100)
    of_query = {event.action for event in events if event.trace_id == response.trace_id}
    ingested = next(event for event in events if event.action == "graphiti.ingest")
    around = {event.action for event in events if event.trace_id == ingested.trace_id}

    assert {"query.start", "graphiti.query", "query.backend_result", "query.merged"} <= of_query
    assert {"ingest.start", "ingest.stage_complete", "ingest.complete"} <= around
    assert ingested.backend == "graphiti"


async def test_sessions_have_graphs_of_their_own_where_that_is_wanted(folders: tuple[Path, Path]) -> None:
    private = MemoryContentObject(
        id="m1",
        kind="message",
        text="Orsolya lives in Szeged.",
        provenance=MemoryProvenance(source="session", session_key="agent:main:telegram:group:1"),
    )
    async with opened(folders, (private,), ingest={"group_by": "session"}) as memory:
        own = await memory.query(
            "Where does Orsolya live?", session_key="agent:main:telegram:group:1", backends=["graphiti"]
        )
        other = await memory.query(
            "Where does Orsolya live?", session_key="agent:main:telegram:group:2", backends=["graphiti"]
        )

    assert [result.snippet.split(" (")[0] for result in own.results] == ["Orsolya lives in Szeged."]
    assert other.results == ()


async def test_a_memory_with_a_graph_stays_open_between_commands_and_sees_what_others_store(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    environ = {
        "COMPOSABLE_MEMORY__GRAPHITI__ENABLED": "true",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    registry = await asyncio.to_thread(discover_backends)
    command = Request(workspace=folders[0], state_dir=folders[1], environ=environ, registry=registry)
    kept = WarmMemory()
    async with kept.borrow(command) as first:
        await first.sync()
        await first.ingest(JOBS)
    async with kept.borrow(command) as second:
        assert second is not first  # which had begun with a graph that was never started
        assert await snippets(second, "Where does Zoe work?") == []
        async with open_memory(*folders, environ=environ, long_lived=False) as other:
            await other.ingest([said("job-3", "Zoe works at Harbour Press.", "2026-07-01")])
    async with kept.borrow(command) as third:
        assert third is second
        assert (await snippets(third, "Where does Zoe work?"))[0].startswith("Zoe works at Harbour Press.")
    await kept.close()
