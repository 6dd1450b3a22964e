"""The tools answer in the documented JSON, also when the memory fails."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic import ValidationError

from composable_memory.config.layers import LoadedSettings
from composable_memory.config.settings import Settings
from composable_memory.errors import BackendError, BackendUnavailable
from composable_memory.forget.tombstones import Forgotten
from composable_memory.interfaces import MemorySearchManager
from composable_memory.query.manager import ComposableMemoryManager
from composable_memory.query.ranking import LiveWeights
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.registry import Registry
from composable_memory.runtime.memory import Memory
from composable_memory.testing.fakes import RaisingBackend
from composable_memory.testing.in_memory import InMemoryBackend
from composable_memory.tools.context_pack import MemoryContextPackRequest, memory_context_pack
from composable_memory.tools.read import MemoryGetRequest, memory_get
from composable_memory.tools.search import MemorySearchRequest, memory_search, query_cited, unavailable_search
from composable_memory.tools.status import MemoryStatusRequest, memory_status
from composable_memory.types import (
    Degradation,
    FallbackStatus,
    MemoryProviderStatus,
    MemorySearchResult,
    Origin,
    SearchAnswer,
    SearchOptions,
    SupportingFact,
)
from composable_memory_ops_logs import OpsEvent, OpsLog
from tests.learning_contexts import idle_context

NOTES = {"memory/keys.md": "# Keys\n\nThe key of the boat hangs\nbehind the boiler.\n"}
QUESTION = MemorySearchRequest(query="boiler key")


class HybridBackend(InMemoryBackend):
    """A memory that reports an embedding provider, a model, and that it replaced another provider."""

    def status(self) -> MemoryProviderStatus:
        """Return the status of a hybrid index."""
        return replace(
            super().status(),
            provider="local",
            model="tiny",
            fallback=FallbackStatus(from_="openai", reason="no key"),
            custom={"searchMode": "hybrid"},
        )


def a_memory(
    *backends: MemorySearchManager,
    memory: Mapping[str, object] | None = None,
    unavailable: tuple[Degradation, ...] = (),
    ops_log: OpsLog | None = None,
) -> Memory:
    entries = [
        ComposableBackendEntry(id=getattr(one, "id", "notes"), manager=one)
        for one in backends or (InMemoryBackend(NOTES, backend_id="notes"),)
    ]
    ops_log = ops_log or OpsLog(None)
    return Memory(
        manager=ComposableMemoryManager(entries, ops_log=ops_log, unavailable=unavailable),
        loaded=LoadedSettings(settings=Settings.model_validate({"memory": memory or {}})),
        registry=Registry(),
        workspace_dir=Path(),
        state_dir=Path(),
        ops_log=ops_log,
        forgotten=Forgotten(Path(), "nobody"),
        context=idle_context(ops_log),
        weights=LiveWeights({}),
    )


async def test_a_search_answers_in_the_documented_order() -> None:
    reply = await memory_search(a_memory(HybridBackend(NOTES, backend_id="notes")), QUESTION)

    assert list(reply.as_json()) == [
        "results", "provider", "model", "fallback", "citations", "mode", "traceId", "degraded",
    ]  # fmt: skip


async def test_a_search_tells_how_the_memory_is_set_up() -> None:
    reply = await memory_search(a_memory(HybridBackend(NOTES, backend_id="notes")), QUESTION)

    assert {key: reply.as_json()[key] for key in ("provider", "model", "fallback", "citations", "mode")} == {
        "provider": "local",
        "model": "tiny",
        "fallback": {"from": "openai", "reason": "no key"},
        "citations": "auto",
        "mode": "hybrid",
    }


async def test_what_is_not_set_is_left_out() -> None:
    reply = await memory_search(a_memory(), QUESTION)

    assert list(reply.as_json()) == ["results", "provider", "citations", "traceId", "degraded"]


async def test_a_result_has_the_documented_keys() -> None:
    reply = await memory_search(a_memory(), QUESTION)

    assert reply.as_json()["results"] == [
        {
            "path": "memory/keys.md",
            "startLine": 3,
            "endLine": 4,
            "score": 1.0,
            "snippet": "The key of the boat hangs\nbehind the boiler.\n\nSource: memory/keys.md#L3-L4",
            "source": "memory",
            "citation": "memory/keys.md#L3-L4",
            "sourceBackend": "notes",
        }
    ]


class FactBackend(InMemoryBackend):
    """A memory with one fact, taken from a note."""

    async def answer(self, query: str, options: SearchOptions | None = None) -> SearchAnswer:
        """Return the fact, whatever is asked."""
        del query, options
        fact = MemorySearchResult(
            path="graphiti/main/1", start_line=0, end_line=0, score=0.9, snippet="Ada runs billing",
            origin=Origin(path="memory/a.md", start_line=3, end_line=4),
            metadata={"relation": "RUNS", "strange": FactBackend},  # type: ignore[dict-item]
            facts=(
                SupportingFact(
                    text="Ada runs billing", valid_from=datetime(2026, 3, 1, tzinfo=UTC),
                    origin=Origin(path="memory/a.md", start_line=3, end_line=4),
                ),
            ),
        )  # fmt: skip
        return SearchAnswer(results=(fact,))


async def test_a_fact_has_its_origin_and_what_is_known_of_it() -> None:
    reply = await memory_search(a_memory(FactBackend(backend_id="graph")), QUESTION)

    hit: Any
    (hit,) = cast("Any", reply.as_json()["results"])
    assert hit["citation"] == "memory/a.md#L3-L4"
    assert hit["origin"] == {"path": "memory/a.md", "startLine": 3, "endLine": 4}
    assert hit["metadata"]["relation"] == "RUNS"
    (fact,) = hit["facts"]
    assert fact["text"] == "Ada runs billing"
    assert (fact["validFrom"], fact["holds"]) == ("2026-03-01T00:00:00Z", True)
    assert fact["origin"] == hit["origin"]
    assert isinstance(hit["metadata"]["strange"], str)


async def test_a_pack_holds_notes_and_facts_with_their_sources() -> None:
    memory = a_memory(InMemoryBackend(NOTES, backend_id="notes"), FactBackend(backend_id="graph"))

    reply = await memory_context_pack(memory, MemoryContextPackRequest(query="boiler key", max_tokens=80))

    assert reply.pack == (
        "#1 memory/keys.md:3-4 (score 1.00)\nThe key of the boat hangs\nbehind the boiler.\n\n"
        "#2 graphiti/main/1 (score 0.45) from memory/a.md#L3-L4\nAda runs billing\n- since 2026-03-01"
    )
    assert [one.citation for one in reply.sources] == ["memory/keys.md#L3-L4", "memory/a.md#L3-L4"]
    assert reply.tokens <= 80


async def test_a_group_is_not_told_which_note_a_fact_is_from() -> None:
    asked = MemoryContextPackRequest(query="billing", session_key="agent:main:telegram:group:42")

    reply = await memory_context_pack(a_memory(FactBackend(backend_id="graph")), asked)

    assert "memory/a.md" not in reply.model_dump_json()


async def test_a_pack_is_logged_under_the_trace_of_its_search() -> None:
    events: list[OpsEvent] = []
    log = OpsLog(None)
    log.subscribe(events.append)

    reply = await memory_context_pack(a_memory(ops_log=log), MemoryContextPackRequest(query="boiler key"))

    assert (events[-1].action, {event.trace_id for event in events}) == (
        "context_pack.build",
        {reply.trace_id},
    )


async def test_where_every_backend_fails_the_pack_says_so() -> None:
    memory = a_memory(RaisingBackend(backend_id="broken"))

    reply = await memory_context_pack(memory, MemoryContextPackRequest(query="boiler key"))

    assert (reply.pack, reply.unavailable) == ("", True)
    assert "it always fails" in (reply.error or "")


async def test_a_pack_says_that_nothing_fits_in_its_budget() -> None:
    for asked, is_told in ((10, True), (2000, False)):
        request = MemoryContextPackRequest(query="boiler key", max_chars=asked)
        reply = await memory_context_pack(a_memory(), request)

        assert (reply.pack == "", reply.warning is not None, reply.action is not None) == (is_told,) * 3


def test_a_pack_has_one_budget() -> None:
    with pytest.raises(ValidationError, match="not both"):
        MemoryContextPackRequest(query="x", max_chars=10, max_tokens=10)


async def test_without_citations_the_snippet_is_as_it_was_written() -> None:
    reply = await memory_search(a_memory(memory={"citations": "never"}), QUESTION)

    (hit,) = reply.results
    assert (hit.citation, hit.snippet) == (None, "The key of the boat hangs\nbehind the boiler.")


async def test_a_group_gets_no_citations() -> None:
    asked = MemorySearchRequest(query="boiler key", session_key="agent:main:telegram:group:42")

    reply = await memory_search(a_memory(), asked)

    assert [hit.citation for hit in reply.results] == [None]


async def test_one_failing_backend_is_named_and_the_others_answer() -> None:
    memory = a_memory(InMemoryBackend(NOTES, backend_id="notes"), RaisingBackend(backend_id="broken"))

    reply = await memory_search(memory, QUESTION)

    assert len(reply.results) == 1
    assert [(one.backend_id, one.code) for one in reply.degraded or ()] == [("broken", "failed")]


async def test_when_every_backend_fails_the_reply_says_so() -> None:
    reply = await memory_search(a_memory(RaisingBackend(backend_id="broken")), QUESTION)

    assert (reply.results, reply.disabled, reply.unavailable) == ((), True, True)
    assert "it always fails" in (reply.error or "")
    assert reply.warning
    assert reply.action


async def test_the_reply_of_a_failed_search_can_be_looked_up_in_the_log() -> None:
    reply = await memory_search(a_memory(RaisingBackend(backend_id="broken")), QUESTION)

    assert reply.trace_id
    assert [one.code for one in reply.degraded or ()] == ["failed"]


async def test_a_closed_memory_gives_the_unavailable_reply() -> None:
    memory = a_memory()
    await memory.manager.close()

    reply = await memory_search(memory, QUESTION)

    assert list(reply.as_json()) == ["results", "disabled", "unavailable", "error", "warning", "action"]


async def test_no_backend_at_all_is_unavailable() -> None:
    lost = Degradation(backend_id="qmd", code="unavailable", reason="qmd: command not found")
    memory = a_memory(unavailable=(lost,))
    memory = replace(memory, manager=ComposableMemoryManager([], unavailable=(lost,)))

    reply = await memory_search(memory, QUESTION)

    assert reply.unavailable is True
    assert "command not found" in (reply.error or "")


async def test_an_unknown_backend_is_an_unavailable_reply_that_names_the_known_ones() -> None:
    asked = MemorySearchRequest(query="boiler", backends=("notez",))

    reply = await memory_search(a_memory(), asked)

    assert reply.unavailable is True
    assert "notes" in (reply.error or "")


@pytest.mark.parametrize("error", ["insufficient_quota", "HTTP 429: slow down", "Quota exceeded for today"])
def test_an_exhausted_quota_has_advice_of_its_own(error: str) -> None:
    reply = unavailable_search(error)

    assert "quota" in (reply.warning or "")
    assert "Top up" in (reply.action or "")


def test_a_number_that_merely_contains_429_is_no_quota() -> None:
    assert "quota" not in (unavailable_search("port 14290 refused").warning or "")


def test_an_error_without_words_still_says_something() -> None:
    assert unavailable_search("").error == "memory search is unavailable"


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"query": "  \n"}, {"query": "x", "maxResults": 0}, {"query": "x", "minScore": 1.5},
        {"query": "x", "minScore": -0.1}, {"query": "x", "limit": 3},
    ],
)  # fmt: skip
def test_a_request_that_makes_no_sense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        MemorySearchRequest.model_validate(wrong)


def test_a_request_may_be_written_either_way() -> None:
    camel = MemorySearchRequest.model_validate({"query": "x", "maxResults": 2, "sessionKey": "k"})

    assert camel == MemorySearchRequest(query="x", max_results=2, session_key="k")


async def test_a_search_that_left_the_house_is_logged_under_its_trace() -> None:
    events: list[OpsEvent] = []
    log = OpsLog(None)
    log.subscribe(events.append)

    response = await query_cited(a_memory(ops_log=log), QUESTION)

    assert (events[-1].action, {event.trace_id for event in events}) == (
        "query.delivered",
        {response.trace_id},
    )


async def test_a_file_is_read_with_the_lines_that_were_asked_for() -> None:
    reply = await memory_get(
        a_memory(), MemoryGetRequest.model_validate({"path": "memory/keys.md", "from": 3, "lines": 1})
    )

    assert reply.as_json() == {"text": "The key of the boat hangs", "path": "memory/keys.md"}


async def test_a_missing_file_is_an_error_with_its_code() -> None:
    reply = (await memory_get(a_memory(), MemoryGetRequest(path="memory/none.md"))).as_json()

    assert (reply["text"], reply["path"], reply["status"]) == ("", "memory/none.md", "error")
    assert reply["code"] == "MEMORY_NOT_FOUND"
    assert "memory/none.md" in str(reply["error"])


@pytest.mark.parametrize("path", ["../outside.md", "/etc/passwd", "memory/../../x.md"])
async def test_a_path_outside_is_refused_with_its_code(path: str) -> None:
    reply = (await memory_get(a_memory(), MemoryGetRequest(path=path))).as_json()

    assert (reply["status"], reply["code"]) == ("error", "MEMORY_PATH_NOT_ALLOWED")
    assert (reply["path"], reply["text"], reply["disabled"]) == (path, "", True)
    assert reply["error"]


async def test_a_memory_without_files_says_so() -> None:
    reply = await memory_get(
        a_memory(RaisingBackend(backend_id="graph")), MemoryGetRequest(path="memory/keys.md")
    )

    assert (reply.status, reply.code) == ("error", "MEMORY_READ_FAILED")


async def test_the_status_tells_of_every_backend_and_of_those_that_are_missing() -> None:
    lost = Degradation(backend_id="qmd", code="unavailable", reason="qmd: command not found")
    memory = a_memory(
        InMemoryBackend(NOTES, backend_id="notes"), RaisingBackend(backend_id="broken"), unavailable=(lost,)
    )

    reply = (await memory_status(memory, MemoryStatusRequest())).as_json()

    assert list(reply) == ["status", "backends", "unavailable"]
    assert cast("dict[str, Any]", reply["backends"]).keys() == {"notes", "broken"}
    assert reply["unavailable"] == [
        {"backendId": "qmd", "code": "unavailable", "reason": "qmd: command not found"}
    ]


async def test_a_deep_status_runs_a_search_that_can_be_looked_up() -> None:
    reply = await memory_status(a_memory(), MemoryStatusRequest(deep=True))

    assert reply.probe is not None
    assert (reply.probe.search.ok, reply.probe.embedding.ok, reply.probe.vector) == (True, False, False)
    assert reply.probe.search.trace_id


@pytest.mark.parametrize(
    "error",
    [BackendError("broken", "search", "disk on fire"), BackendUnavailable("broken", "disk on fire", fix="-")],
)
async def test_a_deep_status_finds_out_that_searching_fails(error: BackendError) -> None:
    reply = await memory_status(
        a_memory(RaisingBackend(error, backend_id="broken")), MemoryStatusRequest(deep=True)
    )

    assert reply.probe is not None
    assert not reply.probe.search.ok
    assert "disk on fire" in (reply.probe.search.error or "")
