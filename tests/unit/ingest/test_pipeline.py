"""Contents pass through the stages with whatever parts there are, and no part takes the others down."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from composable_memory.content import (
    ExtractedEntity,
    ExtractedRelation,
    GraphEdge,
    GraphQuery,
    IngestWarning,
    MemoryArtifact,
    MemoryContentObject,
    MemoryProvenance,
    MemoryTemporalMetadata,
    TemporalPolicyDecision,
    VectorQuery,
    VectorRecord,
)
from composable_memory.errors import BackendUnavailable
from composable_memory.ingest.extract import Enriched, Extraction
from composable_memory.ingest.lifetimes import StandardTemporalPolicy
from composable_memory.ingest.pipeline import IngestPipeline
from composable_memory.ingest.requests import (
    STAGES,
    AuditEvent,
    IngestItem,
    IngestRequest,
    IngestResult,
    MetricEvent,
)
from composable_memory.testing import FIXED_NOW, FailingEmbedder, HashEmbedder, InMemoryGraph
from composable_memory_adapters.vectors.in_memory import InMemoryVectors
from composable_memory_ops_logs import IngestComplete, IngestStageComplete, MemorySink, OpsLog

TEXT = "Anna lives in Oslo."
SECRET = "ghp_" + "a1B2" * 9


class FirstWord:
    """An extractor that takes the first and the last word for entities, and relates them."""

    async def extract(self, content: MemoryContentObject) -> Sequence[ExtractedEntity]:
        words = (content.text or "").rstrip(".").split()
        return [ExtractedEntity(label=words[0], type="Person"), ExtractedEntity(label=words[-1])]

    async def relate(
        self, content: MemoryContentObject, entities: Sequence[ExtractedEntity]
    ) -> Sequence[ExtractedRelation]:
        first, last = entities
        return [
            ExtractedRelation(source=first.label, target=last.label, type="STATES", fact=content.text or "")
        ]


class Choosy(FirstWord):
    """Fails on texts that begin with Bob."""

    async def extract(self, content: MemoryContentObject) -> Sequence[ExtractedEntity]:
        if (content.text or "").startswith("Bob"):
            raise RuntimeError("no Bobs")
        return await super().extract(content)


class DeafGraph(InMemoryGraph):
    """Takes entities and no relations."""

    async def upsert_edges(self, edges: Sequence[GraphEdge]) -> None:
        raise BackendUnavailable("graph", "it is down", fix="start it")


class DeafVectors(InMemoryVectors):
    async def upsert(self, records: Sequence[VectorRecord]) -> None:
        raise TimeoutError("too slow")


def request(*items: IngestItem | MemoryContentObject) -> IngestRequest:
    return IngestRequest(items=items or (IngestItem(text=TEXT),), source="test")


def stages(result: IngestResult) -> dict[str, bool]:
    return {stage.stage: stage.ok for stage in result.stages}


def codes(result: IngestResult) -> list[str]:
    return [warning.code for warning in result.warnings]


def pipeline(**parts: object) -> IngestPipeline:
    return IngestPipeline(clock=lambda: FIXED_NOW, **parts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("has_embedder", "has_vectors", "has_graph", "has_extractor"), list(product([False, True], repeat=4))
)
async def test_any_combination_of_parts_takes_contents_in(
    has_embedder: bool, has_vectors: bool, has_graph: bool, has_extractor: bool
) -> None:
    vectors, graph = InMemoryVectors(), InMemoryGraph()
    result = await pipeline(
        embedder=HashEmbedder() if has_embedder else None,
        vectors=vectors if has_vectors else None,
        graph=graph if has_graph else None,
        extractor=FirstWord() if has_extractor else None,
    ).run(request())

    assert result.ok
    assert [stage.stage for stage in result.stages] == list(STAGES)
    assert result.vectors == (has_embedder and has_vectors)
    assert result.edges == (has_graph and has_extractor)
    assert ("embed.missing_adapter" in codes(result)) == (not has_embedder)
    assert ("index.missing_adapter" in codes(result)) == (not has_vectors)
    assert ("index.no_vectors" in codes(result)) == (has_vectors and not has_embedder)
    assert ("graph.missing_adapter" in codes(result)) == (not has_graph)
    assert ("entity_extract.disabled" in codes(result)) == (not has_extractor)


async def test_a_graph_that_fails_keeps_no_vectors_from_being_indexed() -> None:
    vectors = InMemoryVectors()
    result = await pipeline(
        embedder=HashEmbedder(), vectors=vectors, graph=DeafGraph(), extractor=FirstWord()
    ).run(request())

    assert [stage for stage, ok in stages(result).items() if not ok] == ["graph"]
    assert (result.errors["graph"].code, result.errors["graph"].retryable) == ("adapter_unavailable", True)
    assert result.vectors == 1
    assert not result.report().ok
    assert result.report().stored == 1


async def test_an_embedder_that_fails_keeps_no_facts_out_of_the_graph() -> None:
    result = await pipeline(
        embedder=FailingEmbedder(), vectors=InMemoryVectors(), graph=InMemoryGraph(), extractor=FirstWord()
    ).run(request())

    assert [stage for stage, ok in stages(result).items() if not ok] == ["embed", "index"]
    assert next(one for one in result.stages if one.stage == "index").skipped == "embed failed"
    assert list(result.errors) == ["embed"]
    assert result.edges == 1


async def test_a_store_that_is_too_slow_is_a_timeout() -> None:
    result = await pipeline(embedder=HashEmbedder(), vectors=DeafVectors()).run(request())

    assert (result.errors["index"].code, result.errors["index"].retryable) == ("timeout", True)
    assert (result.report().stored, result.report().failed) == (0, 1)


async def test_a_content_that_cannot_be_read_does_not_lose_the_others() -> None:
    result = await pipeline(graph=InMemoryGraph(), extractor=Choosy()).run(
        request(IngestItem(id="b", text="Bob is away."), IngestItem(id="a", text=TEXT))
    )

    assert (result.nodes, result.edges) == (2, 1)
    assert result.errors["entity_extract"].message == "no Bobs"
    assert (
        IngestWarning(code="entity_extract.failed", message="no Bobs", details={"id": "b"}) in result.warnings
    )


async def test_a_hook_that_fails_stops_what_stands_on_it() -> None:
    async def fail(contents: Sequence[MemoryContentObject]) -> Enriched:
        raise ValueError("odd")

    result = await pipeline(
        enrich=[fail], embedder=HashEmbedder(), vectors=InMemoryVectors(), graph=InMemoryGraph()
    ).run(request())

    assert result.errors["enrich"].code == "invalid_input"
    assert [stage for stage, ok in stages(result).items() if ok] == ["normalize", "extract", "audit"]


async def test_taking_the_same_in_twice_changes_nothing() -> None:
    vectors, graph = InMemoryVectors(), InMemoryGraph()
    parts = pipeline(embedder=HashEmbedder(), vectors=vectors, graph=graph, extractor=FirstWord())
    first, second = await parts.run(request()), await parts.run(request())
    matches = (await vectors.query(VectorQuery(vector=[1.0] * 64, top_k=9))).matches

    assert first.contents[0].id == second.contents[0].id
    assert first.batch_id == second.batch_id
    assert first.run_id != second.run_id
    assert len(matches) == 1
    assert len((await graph.query(GraphQuery(text="anna oslo"))).edges) == 1


async def test_what_was_said_twice_is_kept_once() -> None:
    result = await pipeline().run(
        request(
            IngestItem(id="1", text="Same words"),
            IngestItem(id="2", text=" same  WORDS "),
            IngestItem(id="3", text="Same words", metadata={"speaker": "Bob"}),
        )
    )

    assert [content.id for content in result.contents] == ["1", "3"]
    (warning,) = [one for one in result.warnings if one.code == "enrich.dedupe"]
    assert warning.details == {"keptId": "1", "droppedId": "2"}


async def test_two_items_of_one_id_are_one_and_the_later_counts() -> None:
    result = await pipeline().run(request(IngestItem(id="1", text="old"), IngestItem(id="1", text="new")))

    assert [content.text for content in result.contents] == ["new"]
    assert "normalize.duplicate_id" in codes(result)


async def test_aliases_are_replaced_as_whole_words() -> None:
    aliases = {"C.J.": "Cleo Jansen", "CJ": "Cleo Jansen", "小李": "李明"}
    result = await pipeline().run(
        request(
            IngestItem(
                id="1",
                text="cj met C.J. and CJX, not CxJy. 昨天小李来了",
                metadata={"coreferences": {"aliases": dict(aliases)}},
            )
        )
    )

    assert result.contents[0].text == "Cleo Jansen met Cleo Jansen and CJX, not CxJy. 昨天李明来了"
    assert result.contents[0].id == "1"
    assert "enrich.coreference" in codes(result)


@pytest.mark.parametrize(
    ("kind", "metadata", "text"),
    [
        ("image", {"ocrText": "on the sign"}, "on the sign"),
        ("file", {"extractedText": "in the file", "caption": "a file"}, "in the file\n\na file"),
        ("audio", {"asr_text": "spoken"}, "spoken"),
        ("video", {"transcript": "spoken", "alt": "a film"}, "spoken\n\na film"),
        ("image", {"transcript": "not for images", "altText": "a cat"}, "a cat"),
    ],
)
async def test_the_words_of_an_artifact_are_its_text(kind: str, metadata: dict[str, str], text: str) -> None:
    item = IngestItem(metadata={"artifacts": [{"id": "a", "kind": kind, "metadata": dict(metadata)}]})

    assert [one.text for one in (await pipeline().run(request(item))).contents] == [text]


async def test_an_artifact_may_say_what_it_is_in_its_description() -> None:
    artifact = MemoryArtifact(id="a", kind="image", description="A red boat.")
    result = await pipeline().run(request(IngestItem(artifacts=(artifact,))))

    assert result.contents[0].text == "A red boat."


async def test_what_has_no_text_is_left_out_with_a_warning() -> None:
    result = await pipeline().run(
        request(IngestItem(id="empty", text="  "), IngestItem(id="full", text=TEXT))
    )

    assert [content.id for content in result.contents] == ["full"]
    assert "extract.no_text" in codes(result)
    assert (result.report().stored, result.report().failed) == (1, 1)


async def test_no_secret_reaches_an_embedder_a_store_or_a_graph() -> None:
    embedder, vectors = HashEmbedder(), InMemoryVectors()
    item = IngestItem(
        text=f"The token is {SECRET} for now", metadata={"apiKey": SECRET}, title=f"key {SECRET}"
    )
    result = await pipeline(embedder=embedder, vectors=vectors).run(request(item))
    stored = (await vectors.query(VectorQuery(vector=[1.0] * 64, top_k=9))).matches

    assert SECRET not in repr((embedder.texts, stored, result.contents))
    assert "The token is" in embedder.texts[0]
    assert "normalize.redacted" in codes(result)


async def test_what_has_expired_is_not_taken_in() -> None:
    old = MemoryTemporalMetadata(observed_at=FIXED_NOW - timedelta(days=3))
    result = await pipeline(temporal_policy=StandardTemporalPolicy(ttl_seconds=86_400)).run(
        request(IngestItem(id="old", text=TEXT, temporal=old), IngestItem(id="new", text=TEXT + " Still."))
    )

    assert [content.id for content in result.contents] == ["new"]
    assert "temporal.expired" in codes(result)


async def test_a_record_holds_what_a_search_answers_with() -> None:
    vectors = InMemoryVectors()
    content = MemoryContentObject(
        id="c",
        kind="fact",
        text=TEXT,
        title="People",
        metadata={"path": "memory/a.md", "start_line": 3, "end_line": 4, "speaker": "Bob"},
        temporal=MemoryTemporalMetadata(observed_at=FIXED_NOW, valid_to=FIXED_NOW + timedelta(days=1)),
    )

    class Policy:
        async def evaluate(self, content: MemoryContentObject) -> TemporalPolicyDecision:
            return TemporalPolicyDecision(ttl_seconds=172_800, confidence=0.5)

    await pipeline(embedder=HashEmbedder(), vectors=vectors, temporal_policy=Policy()).run(request(content))
    (match,) = (await vectors.query(VectorQuery(vector=[1.0] * 64, top_k=1))).matches

    assert match.metadata == {
        "content_id": "c",
        "text": TEXT,
        "title": "People",
        "kind": "fact",
        "source": "test",
        "speaker": "Bob",
        "path": "memory/a.md",
        "start_line": 3,
        "end_line": 4,
        "observed_at": "2026-06-01T12:00:00+00:00",
        "valid_to": "2026-06-02T12:00:00+00:00",
        "expires_at": "2026-06-03T12:00:00+00:00",
        "confidence": 0.5,
    }


async def test_times_and_their_mistakes_are_read_from_the_metadata() -> None:
    item = IngestItem(
        text=TEXT, metadata={"temporal": {"observedAt": "2026-03-01T10:00:00Z", "validTo": "whenever"}}
    )
    result = await pipeline().run(request(item))

    assert result.contents[0].temporal == MemoryTemporalMetadata(
        observed_at=datetime(2026, 3, 1, 10, tzinfo=UTC)
    )
    assert "normalize.invalid_time" in codes(result)
    assert "temporal" not in result.contents[0].metadata


async def test_what_is_left_out_of_an_item_is_filled_in() -> None:
    asked = IngestRequest(items=[IngestItem(text=TEXT)], session_key="s-1", trace_id="t-1")
    (content,) = (await pipeline().run(asked)).contents

    assert content.id
    assert content.kind == "event"
    assert content.provenance == MemoryProvenance(source="memory.ingest", session_key="s-1", trace_id="t-1")
    assert content.temporal == MemoryTemporalMetadata(observed_at=FIXED_NOW)


async def test_an_artifact_that_is_none_is_left_out_with_a_warning() -> None:
    artifact = {"kind": "hologram", "description": "A red boat."}
    item = IngestItem(text=TEXT, metadata={"artifacts": ["a picture", dict(artifact)]})
    result = await pipeline().run(request(item))

    assert [one.kind for one in result.contents[0].artifacts] == ["other"]
    assert "normalize.invalid_artifact" in codes(result)
    assert "artifacts" not in result.contents[0].metadata


async def test_an_extractor_that_reads_in_one_go_is_asked_once() -> None:
    class Reader:
        asked = 0

        async def extract(self, content: MemoryContentObject) -> Sequence[ExtractedEntity]:
            raise AssertionError("the other way is shorter")

        async def read(self, content: MemoryContentObject) -> Extraction:
            self.asked += 1
            return Extraction(
                entities=(ExtractedEntity(label="Anna"),), warnings=(IngestWarning(code="x", message="y"),)
            )

    reader = Reader()
    result = await pipeline(graph=InMemoryGraph(), extractor=reader).run(request())

    assert (reader.asked, result.nodes) == (1, 1)
    assert "x" in codes(result)


async def test_a_run_is_told_under_one_trace(ops_log: OpsLog, events: MemorySink) -> None:
    result = await pipeline(ops_log=ops_log).run(
        IngestRequest(items=[IngestItem(text=TEXT)], trace_id="trace-1", session_key="s-1")
    )

    assert [event.action for event in events.events] == [
        "ingest.start",
        *["ingest.stage_complete"] * len(STAGES),
        "ingest.complete",
    ]
    assert {(event.trace_id, event.session_key, event.run_id) for event in events.events} == {
        ("trace-1", "s-1", result.run_id)
    }
    provenance = result.contents[0].provenance
    assert provenance is not None
    assert (provenance.trace_id, provenance.session_key) == ("trace-1", "s-1")


async def test_a_stage_that_fails_is_told_with_its_error(ops_log: OpsLog, events: MemorySink) -> None:
    await pipeline(ops_log=ops_log, graph=DeafGraph(), extractor=FirstWord()).run(request())

    details = [event.detail for event in events.events if isinstance(event.detail, IngestStageComplete)]
    errors = {detail.stage: detail.error for detail in details if not detail.ok}
    (counted,) = [event.detail for event in events.events if isinstance(event.detail, IngestComplete)]
    assert [(stage, error and error.type) for stage, error in errors.items()] == [
        ("graph", "adapter_unavailable")
    ]
    assert (events.events[-1].status, counted.error_count) == ("partial", 1)


async def test_audits_and_metrics_are_handed_out() -> None:
    audits: list[AuditEvent] = []
    metrics: list[MetricEvent] = []
    result = await pipeline(emit_audit=audits.append, emit_metric=metrics.append).run(request())

    assert [(one.action, one.status, one.trace_id) for one in audits] == [
        ("ingest", "success", result.trace_id)
    ]
    assert {one.name: one.value for one in metrics if one.name != "memory.ingest.duration_ms"} == {
        "memory.pipeline.events": 1,
        "memory.pipeline.errors": 0,
    }


async def test_an_empty_run_is_a_good_run() -> None:
    result = await pipeline(embedder=HashEmbedder(), vectors=InMemoryVectors()).run(IngestRequest(items=[]))

    assert result.ok
    assert result.warnings == ()


async def test_a_cancelled_run_ends_and_the_next_one_works() -> None:
    entered = asyncio.Event()

    class Slow(HashEmbedder):
        async def embed_batch(self, inputs: object) -> Sequence[Sequence[float]]:
            entered.set()
            await asyncio.Event().wait()
            return []

    slow = asyncio.ensure_future(pipeline(embedder=Slow(), vectors=InMemoryVectors()).run(request()))
    await asyncio.wait_for(entered.wait(), 5)
    slow.cancel()
    with pytest.raises(asyncio.CancelledError):
        await slow

    assert (await pipeline(embedder=HashEmbedder(), vectors=InMemoryVectors()).run(request())).ok
