"""The names that the documents promise are there: methods, fields, events, settings."""

import inspect
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Protocol, get_args

import pytest

import composable_memory_ops_logs
from composable_memory import content, facts, interfaces, types
from composable_memory.config.aliases import ResolvedMemoryBackendConfig
from composable_memory.config.settings import BackendSection, Settings
from composable_memory.config.validation import known_keys
from composable_memory.hooks import recorder, session_events
from composable_memory.ingest import extract, pipeline, requests
from composable_memory.ingest.requests import STAGES, Stage
from composable_memory.query.routing import ComposableBackendEntry
from composable_memory.runtime import factory
from composable_memory_adapters.builtin.index_file import ensure_tables
from composable_memory_adapters.builtin.settings import BuiltinSettings
from composable_memory_adapters.graphiti.service.client import GraphitiClient
from composable_memory_adapters.graphiti.settings import GraphitiSettings
from composable_memory_adapters.qmd.settings import QmdSettings
from composable_memory_adapters.sqlite_file import SqliteFile
from composable_memory_ops_logs import EventDetail

METHODS: Mapping[type, Mapping[str, str]] = {
    interfaces.MemorySearchManager: {
        "search": "query options",
        "read_file": "rel_path from_line lines",
        "status": "",
        "probe_embedding_availability": "",
        "probe_vector_availability": "",
        "close": "",
    },
    interfaces.SupportsAnswer: {"answer": "query options"},
    interfaces.SupportsCheck: {"check": ""},
    interfaces.SupportsRefresh: {"refresh": ""},
    interfaces.SupportsRawAnswer: {"raw_answer": "query", "found_settings": "query"},
    interfaces.SupportsRetain: {"retains": "", "retain": "text place"},
    interfaces.SupportsSync: {"sync": "reason force progress"},
    interfaces.SupportsIngest: {"ingest": "contents wait", "ingest_source": "path contents wait"},
    interfaces.SupportsAdoption: {"adopt": "everything"},
    interfaces.SupportsFacts: {
        "facts": "about as_of current_only limit",
        "entities": "named limit",
        "episodes": "limit",
        "timeline": "entity limit",
        "neighbourhood": "entity depth limit",
        "forget": "episode_id",
    },
    interfaces.LogStore: {"add": "lines"},
    interfaces.SupportsForget: {"holdings": "wanted", "erase": "wanted"},
    interfaces.SupportsBackup: {"backup": "folder", "restore": "folder replace"},
    interfaces.GraphAdapter: {"upsert_nodes": "nodes", "upsert_edges": "edges", "query": "query"},
    interfaces.VectorAdapter: {"upsert": "records", "query": "query"},
    interfaces.SupportsDelete: {"delete": "ids"},
    interfaces.SupportsIds: {"ids": ""},
    interfaces.SupportsPackedVectors: {"upsert_packed": "ids numbers"},
    interfaces.SupportsHealth: {"health": ""},
    interfaces.EmbedderAdapter: {"embed": "input", "embed_batch": "inputs"},
    interfaces.SupportsJobs: {"takes_jobs": "texts", "embed_job": "inputs", "batch_status": ""},
    interfaces.EntityExtractor: {"extract": "content"},
    interfaces.SupportsRelations: {"relate": "content entities"},
    interfaces.Reranker: {"rerank": "request"},
    interfaces.SupportsReadingAhead: {"read_ahead": "passages"},
    extract.SupportsExtraction: {"read": "content"},
    pipeline.IngestPipeline: {"run": "request"},
    recorder.SessionRecorder: {"record": "event"},
    GraphitiClient: {
        "ingest_episodes": "episodes group_id trace_id",
        "query_hybrid": "query limit group_ids trace_id",
        "health": "",
        "close": "",
    },
    interfaces.TemporalPolicy: {"evaluate": "content"},
    interfaces.QueryOrchestrator: {"query": "request", "context_pack": "request max_chars max_tokens"},
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
    types.VectorStatus: "enabled available engine extension_path load_error dims",
    types.BatchStatus: (
        "enabled failures limit wait concurrency poll_interval_ms timeout_ms last_error last_provider"
    ),
    types.QueryRequest: "query options backends",
    types.QueryResponse: "trace_id results latency_ms",
    types.QueryIntent: "entities topics time_hints",
    types.ContextPack: "pack sources",
    ComposableBackendEntry: "id manager weight condition",
    types.Origin: "path start_line end_line",
    content.MemoryContentObject: ("id kind text title language tags artifacts metadata provenance temporal"),
    content.MemoryTemporalMetadata: (
        "created_at updated_at observed_at valid_from valid_to expires_at timezone"
    ),
    content.MemoryProvenance: (
        "source source_id channel actor_id session_key run_id trace_id citations temporal"
    ),
    content.MemoryArtifact: ("id kind uri mime_type size_bytes sha256 title description metadata provenance"),
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
    content.ExtractedRelation: "source target type fact exclusive valid_from valid_to confidence",
    content.IngestReport: ("run_id stored known pending failed entities facts warnings stages problems"),
    content.IngestWarning: "code message details",
    content.StageResult: "stage ok duration_ms error skipped",
    requests.IngestItem: "id kind text metadata",
    requests.IngestRequest: "source session_key trace_id items",
    requests.IngestResult: "run_id batch_id warnings stages errors started_at completed_at",
    requests.PipelineError: "code message retryable details",
    requests.AuditEvent: "id ts actor action session_key trace_id status details",
    requests.MetricEvent: "name value ts tags",
    session_events.PipelineEventEnvelope: "id ts source session_key run_id trace_id stage payload",
    session_events.SessionStart: "session_key session_id agent_id channel started_at",
    session_events.MessageReceived: (
        "session_key session_id message_id body channel sender_id received_at temporal"
    ),
    session_events.CompactionSummary: (
        "session_key session_id summary tokens_before tokens_after compacted_at"
    ),
    facts.Fact: (
        "id group_id text relation source target valid_at invalid_at created_at expired_at expires_at "
        "confidence episodes origins"
    ),
    facts.Episode: "id group_id content_id text observed_at ingested_at origin source fact_count metadata",
    facts.GraphEntity: "id group_id name kind summary fact_count",
    facts.Neighbourhood: "entities facts",
    facts.Forgotten: "episode_id facts entities",
    types.TimeWindow: "start end",
    ResolvedMemoryBackendConfig: "backend citations qmd",
    factory.SearchManagerResult: "manager error",
}

EVENT_FIELDS: Mapping[str, str] = {
    "query.start": "query intent active_backends",
    "query.backend_result": "result_count results",
    "query.merged": "dedup_stats backend_attribution final_results",
    "graphiti.ingest": "episode_count node_count edge_count episode_ids warnings error",
    "graphiti.query": "query limit fact_count node_ids episode_ids error",
    "graphiti.health": "ok message",
    "ingest.start": "source item_count",
    "ingest.stage_complete": "stage ok error",
    "ingest.complete": "episode_count warning_count error_count stages",
    "context_pack.build": "query_count selected_count max_chars max_tokens pack_length",
}

ERROR_CODES = (
    "not_configured invalid_input adapter_unavailable rate_limited timeout upstream_error "
    "serialization_error unknown"
)

WORDS: Mapping[str, tuple[object, str]] = {
    "content": (
        get_args(content.MemoryContentKind)[0],
        "message document fact artifact summary event",
    ),
    "artifact": (content.MemoryArtifactKind, "file image audio video link other"),
    "event": (session_events.EventType, "session.start message.received compaction.summary"),
    "sender": (session_events.EventSource, "hook tool system scheduler manual"),
    "error": (requests.PipelineErrorCode, ERROR_CODES),
    "stage": (Stage, "normalize extract enrich entity_extract embed graph index audit"),
}
"""Kinds of things, and the words for them."""

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

GRAPHITI_SETTINGS = [
    "base_url",
    "server_host",
    "service_port",
    "api_key",
    "url",
    "group",
    "also_search",
    "private.dir",
    "private.fsync",
    "llm.base_url",
    "llm.model",
    "llm.api_key",
    "llm.structured_output",
    "ingest.extractor",
    "ingest.group_by",
    "ingest.merge_after_days",
    "search.vector_index",
]

QMD_SETTINGS = [
    "command",
    "search_mode",
    "include_default_memory",
    "paths.<id>.path",
    "paths.<id>.name",
    "paths.<id>.pattern",
    "sessions.enabled",
    "sessions.export_dir",
    "sessions.retention_days",
    "update.interval",
    "update.debounce_ms",
    "update.on_boot",
    "update.wait_for_boot_sync",
    "update.embed_interval",
    "update.command_timeout_ms",
    "update.update_timeout_ms",
    "update.embed_timeout_ms",
    "limits.max_results",
    "limits.max_snippet_chars",
    "limits.max_injected_chars",
    "limits.timeout_ms",
    "scope.default",
    "scope.rules.<id>.action",
    "scope.rules.<id>.match.channel",
    "scope.rules.<id>.match.chat_type",
    "scope.rules.<id>.match.key_prefix",
    "scope.rules.<id>.match.raw_key_prefix",
    "mcporter.enabled",
    "mcporter.server_name",
    "mcporter.start_daemon",
]


def test_a_promise_has_its_methods() -> None:
    for promise, methods in METHODS.items():
        for name, parameters in methods.items():
            signature = inspect.signature(getattr(promise, name))
            assert list(signature.parameters) == ["self", *parameters.split()], f"{promise.__name__}.{name}"


def test_every_promise_with_methods_is_looked_at() -> None:
    offered = [one for name, one in vars(interfaces).items() if not name.startswith("_")]
    promises = [one for one in offered if isinstance(one, type) and Protocol in one.__bases__]

    unnamed = [
        one.__name__ for one in promises if one not in METHODS and any(map(callable, vars_of(one).values()))
    ]
    assert unnamed == []


def vars_of(promise: type) -> dict[str, object]:
    return {name: value for name, value in vars(promise).items() if not name.startswith("_")}


def test_the_client_of_a_graph_service_takes_what_the_documents_say() -> None:
    parameters = inspect.signature(GraphitiClient).parameters
    defaults = {"server_host": "localhost", "service_port": 8000, "api_key": None, "timeout_ms": 10_000}

    assert defaults.items() <= {name: one.default for name, one in parameters.items()}.items()
    assert {"ops_log", "clock", "base_url"} <= parameters.keys()


def test_the_pipeline_takes_its_parts_by_name() -> None:
    parameters = inspect.signature(pipeline.IngestPipeline).parameters
    parts = "embedder vectors graph extractor temporal_policy enrich emit_metric emit_audit ops_log clock"

    assert set(parts.split()) <= {
        name for name, one in parameters.items() if one.kind is inspect.Parameter.KEYWORD_ONLY
    }
    assert get_args(Stage) == STAGES


def test_words_are_those_of_the_documents() -> None:
    for kind, (words, promised) in WORDS.items():
        assert list(get_args(words)) == promised.split(), kind


def test_a_value_has_its_fields() -> None:
    for value, promised in FIELDS.items():
        assert set(promised.split()) <= {field.name for field in fields(value)}, value.__name__


def test_an_event_has_its_fields() -> None:
    offered = (getattr(composable_memory_ops_logs, name) for name in composable_memory_ops_logs.__all__)
    kinds = [one for one in offered if isinstance(one, type) and issubclass(one, EventDetail)]
    events: dict[str, Any] = {one.action: one for one in kinds if one is not EventDetail}

    for action, promised in EVENT_FIELDS.items():
        assert set(promised.split()) <= {field.name for field in fields(events[action])}, action


def test_a_setting_has_its_key() -> None:
    of_backends = {
        key for name in ("graphiti", "qmd") for key in known_keys(BackendSection, f"memory.{name}")
    }

    assert set(SETTINGS) - set(known_keys(Settings)) - of_backends == set()


def test_a_setting_of_the_builtin_memory_has_its_key() -> None:
    assert set(BUILTIN_SETTINGS) - set(known_keys(BuiltinSettings)) == set()


def test_a_setting_of_the_graph_memory_has_its_key() -> None:
    assert set(GRAPHITI_SETTINGS) - set(known_keys(GraphitiSettings)) == set()


def test_a_setting_of_the_qmd_memory_has_its_key() -> None:
    assert set(QMD_SETTINGS) - set(known_keys(QmdSettings)) == set()


def test_the_embedder_knows_its_dimensions() -> None:
    assert isinstance(interfaces.EmbedderAdapter.__dict__["dimensions"], property)


def test_kinds_of_sources_and_sync_reasons_are_those_of_the_documents() -> None:
    reasons = {"search", "watch", "session-start", "session-delta", "interval", "manual"}

    assert set(get_args(types.MemorySource)) == {"memory", "sessions"}
    assert reasons <= set(get_args(types.SyncReason))


@pytest.mark.parametrize("table", TABLES)
async def test_a_table_of_the_index_has_its_columns(table: str, tmp_path: Path) -> None:
    async with SqliteFile.open(tmp_path / "index.sqlite") as file:
        await ensure_tables(file)
        rows = await file.read(lambda connection: list(connection.execute(f"PRAGMA table_info({table})")))

    assert set(TABLES[table].split()) <= {row[1] for row in rows}
