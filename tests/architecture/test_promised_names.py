"""The names that the documents promise are there: methods, fields, events, settings."""

import inspect
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from composable_memory import content, interfaces, types
from composable_memory.entries import ComposableBackendEntry
from composable_memory.settings import Settings, known_keys
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.builtin.store import schema
from composable_memory_adapters.sqlite_file import SqliteFile
from composable_memory_ops_logs import EVENTS

METHODS: Mapping[type, Mapping[str, str]] = {
    interfaces.MemorySearchManager: {
        "search": "query options",
        "read_file": "rel_path from_line lines",
        "status": "",
        "probe_embedding_availability": "",
        "probe_vector_availability": "",
        "close": "",
    },
    interfaces.SupportsSync: {"sync": "reason force progress"},
    interfaces.GraphAdapter: {"upsert_nodes": "nodes", "upsert_edges": "edges", "query": "query"},
    interfaces.VectorAdapter: {"upsert": "records", "query": "query"},
    interfaces.SupportsDelete: {"delete": "ids"},
    interfaces.SupportsHealth: {"health": ""},
    interfaces.EmbedderAdapter: {"embed": "input", "embed_batch": "inputs"},
    interfaces.EntityExtractor: {"extract": "content"},
    interfaces.TemporalPolicy: {"evaluate": "content"},
    interfaces.QueryOrchestrator: {"query": "request", "context_pack": "request max_chars"},
}

FIELDS: Mapping[type, str] = {
    types.MemorySearchResult: "path start_line end_line score snippet source citation source_backend",
    types.SearchOptions: "max_results min_score session_key",
    types.MemoryFileSlice: "text path",
    types.MemorySyncProgressUpdate: "completed total label",
    types.MemoryEmbeddingProbeResult: "ok error",
    types.MemoryProviderStatus: (
        "backend provider model requested_provider files chunks dirty workspace_dir db_path extra_paths "
        "sources source_counts cache fts fallback vector batch custom"
    ),
    types.SourceCount: "source files chunks",
    types.CacheStatus: "enabled entries max_entries",
    types.FtsStatus: "enabled available error",
    types.FallbackStatus: "from_ reason",
    types.VectorStatus: "enabled available extension_path load_error dims",
    types.BatchStatus: (
        "enabled failures limit wait concurrency poll_interval_ms timeout_ms last_error last_provider"
    ),
    types.QueryRequest: "query options backends",
    types.QueryResponse: "trace_id results latency_ms",
    types.QueryIntent: "entities topics time_hints",
    types.ContextPack: "pack sources",
    ComposableBackendEntry: "id manager weight condition",
    content.MemoryContentObject: ("id kind text title language tags artifacts metadata provenance temporal"),
    content.GraphNode: "id label properties provenance temporal",
    content.GraphEdge: "id source_id target_id type properties provenance temporal",
    content.GraphQuery: "text entity_ids filters limit",
    content.GraphQueryResult: "nodes edges",
    content.VectorRecord: "id values metadata",
    content.VectorQuery: "vector top_k filter",
    content.VectorQueryResult: "matches",
    content.VectorMatch: "id score metadata",
    content.EmbedderInput: "id text metadata",
    content.ExtractedEntity: "id label type properties",
    content.TemporalPolicyDecision: "ttl_seconds valid_from valid_to confidence",
    content.Health: "ok message",
}

EVENT_FIELDS: Mapping[str, str] = {
    "query.start": "query intent active_backends",
    "query.backend_result": "result_count results",
    "query.merged": "dedup_stats backend_attribution final_results",
    "graphiti.ingest": "episode_count node_count edge_count",
    "graphiti.query": "fact_count",
}

TABLES: Mapping[str, str] = {
    "meta": "key value",
    "files": "path source hash mtime size",
    "chunks": "id path source start_line end_line hash text updated_at",
    "chunks_fts": "text",
    "embedding_cache": "provider model provider_key hash embedding dims updated_at",
}

SETTINGS = [
    "memory.backend",
    "memory.citations",
    "memory.embedding.provider",
    "memory.embedding.model",
    "memory.embedding.fallback",
    "memory.graphiti.enabled",
    "memory.qmd.enabled",
]

BUILTIN_SETTINGS = [
    "extra_paths",
    "sources",
    "chunking.tokens",
    "chunking.overlap",
    "query.max_results",
    "query.min_score",
    "query.hybrid.enabled",
    "query.hybrid.vector_weight",
    "query.hybrid.text_weight",
    "query.hybrid.candidate_multiplier",
    "query.hybrid.mmr.enabled",
    "query.hybrid.mmr.lambda",
    "query.hybrid.temporal_decay.enabled",
    "query.hybrid.temporal_decay.half_life_days",
    "sync.on_search",
    "sync.on_session_start",
    "sync.watch",
    "sync.watch_debounce_ms",
    "sync.interval_minutes",
    "sync.sessions.delta_bytes",
    "sync.sessions.delta_messages",
    "cache.enabled",
    "cache.max_entries",
    "store.driver",
    "store.path",
    "store.vector.enabled",
    "store.fts.enabled",
]


@pytest.mark.parametrize("promise", METHODS, ids=lambda promise: promise.__name__)
def test_a_promise_has_its_methods(promise: type) -> None:
    for name, parameters in METHODS[promise].items():
        signature = inspect.signature(getattr(promise, name))
        assert list(signature.parameters) == ["self", *parameters.split()], name


@pytest.mark.parametrize("value", FIELDS, ids=lambda value: value.__name__)
def test_a_value_has_its_fields(value: type) -> None:
    assert set(FIELDS[value].split()) <= {field.name for field in fields(value)}


@pytest.mark.parametrize("action", EVENT_FIELDS)
def test_an_event_has_its_fields(action: str) -> None:
    assert set(EVENT_FIELDS[action].split()) <= {field.name for field in fields(EVENTS[action])}


@pytest.mark.parametrize("key", SETTINGS)
def test_a_setting_has_its_key(key: str) -> None:
    assert key in known_keys(Settings)


@pytest.mark.parametrize("key", BUILTIN_SETTINGS)
def test_a_setting_of_the_builtin_memory_has_its_key(key: str) -> None:
    assert key in known_keys(BuiltinSettings)


def test_the_embedder_knows_its_dimensions() -> None:
    assert isinstance(interfaces.EmbedderAdapter.__dict__["dimensions"], property)


def test_kinds_of_sources_and_sync_reasons_are_those_of_the_documents() -> None:
    reasons = {"search", "watch", "session-start", "session-delta", "interval", "manual"}

    assert set(get_args(types.MemorySource)) == {"memory", "sessions"}
    assert reasons <= set(get_args(types.SyncReason))


@pytest.mark.parametrize("table", TABLES)
async def test_a_table_of_the_index_has_its_columns(table: str, tmp_path: Path) -> None:
    async with SqliteFile.open(tmp_path / "index.sqlite") as file:
        await schema.ensure(file)
        rows = await file.read(lambda connection: list(connection.execute(f"PRAGMA table_info({table})")))

    assert set(TABLES[table].split()) <= {row[1] for row in rows}
