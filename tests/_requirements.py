"""What the documents promise, sentence by sentence, and which test keeps it or which decision replaces it.

Each entry has an id, its place in a document, the sentence in short, and either the tests that keep it or the
reason why none does: decided otherwise, or left for later. Ids read `area:thing:promise`. The documents are
the composable memory architecture, the architecture deep-dive, the knowledge system overview, the quick facts
and the memory architecture report, whose camelCase names are snake_case here, and our own interfaces.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

__all__ = ["REQUIREMENTS", "Requirement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One promised sentence; `tests` are `path::name` or `path::Class::name`, relative to the project."""

    id: str
    sentence: str
    source: str = ""
    tests: tuple[str, ...] = ()
    reason: str = ""


def kept(id_: str, sentence: str, *tests: str) -> Requirement:
    """Name the tests that keep a sentence."""
    return Requirement(id=id_, sentence=sentence, tests=tests)


def decided(id_: str, sentence: str, decision: str, *tests: str) -> Requirement:
    """Say what holds in place of a sentence, with the tests of that."""
    return Requirement(id=id_, sentence=sentence, tests=tests, reason=f"decided: {decision}")


def later(id_: str, sentence: str, missing: str) -> Requirement:
    """Say what has to be built first."""
    return Requirement(id=id_, sentence=sentence, reason=f"later: {missing}")


def document(name: str, *chapters: tuple[str, Sequence[Requirement]]) -> tuple[Requirement, ...]:
    """Give each entry its place."""
    return tuple(
        replace(entry, source=f"{name}, {chapter}") for chapter, entries in chapters for entry in entries
    )


MANAGER = "tests/unit/core/test_manager.py::test_"
FAN_OUT = "tests/unit/core/test_fan_out.py::test_"
MERGE = "tests/unit/core/test_merge.py::test_"
INTENT = "tests/unit/core/test_intent.py::test_"
CALIBRATION = "tests/unit/core/test_calibration.py::test_"
PACK = "tests/unit/core/test_context_pack.py::test_"
NAMES = "tests/architecture/test_promised_names.py::test_"
IMPORTS = "tests/architecture/test_imports.py::test_"
RUNTIME = "tests/integration/test_runtime.py::test_"
LEAKS = "tests/integration/test_leaks.py::test_"
FILES = "tests/integration/test_config_files.py::test_"
SETTINGS = "tests/unit/test_settings.py::test_"
CITATIONS = "tests/unit/test_citations.py::test_"
CHUNKS = "tests/unit/builtin/test_chunking.py::test_"
HYBRID = "tests/unit/builtin/test_hybrid.py::test_"
KEYWORDS = "tests/unit/builtin/test_keyword_leg.py::test_"
TERMS = "tests/unit/builtin/test_query_terms.py::test_"
INDEXING = "tests/integration/test_builtin_sync.py::test_"
BUILTIN_SEARCH = "tests/integration/test_builtin_search.py::test_"
READ_FILE = "tests/integration/test_builtin_read_file.py::test_"
PATHS = "tests/unit/test_paths.py::test_"
SQLITE = "tests/integration/test_sqlite_file.py::test_"
CLI = "tests/integration/test_cli.py::test_"
MCP = "tests/integration/test_mcp_server.py::test_"
LEVELS = "tests/contract/test_builtin.py::Test"
EMBEDDER_TESTS = "tests/contract/test_embedders.py::Test"
VECTOR_TESTS = "tests/contract/test_vectors.py::Test"
IN_MEMORY = "tests/contract/test_in_memory.py::Test"

BACKEND = "composable_memory/testing/contracts/backend.py::BackendContract::test_"
ANSWER = "composable_memory/testing/contracts/backend.py::AnswerContract::test_"
READING = "composable_memory/testing/contracts/files.py::ReadFileContract::test_"
SYNC = "composable_memory/testing/contracts/sync.py::SyncContract::test_"
VECTORS = "composable_memory/testing/contracts/stores.py::VectorContract::test_"
GRAPH = "composable_memory/testing/contracts/stores.py::GraphContract::test_"
EMBEDDER = "composable_memory/testing/contracts/embedder.py::EmbedderContract::test_"

GRAPHITI_LATER = "the graphiti backend"
QMD_LATER = "the qmd backend"
FEEDBACK_LATER = "the feedback loop"
INGEST_LATER = "taking in content (extractors, policies, graph)"
SESSIONS_LATER = "session transcripts as a source"
WATCH_LATER = "watching files; until then a search looks for changes itself"
REMOTE_LATER = "embedders that need a network"
FALLBACK_LATER = "the fallback memory"

# fmt: off

COMPOSABLE = document(
    "composable memory architecture",
    (
        "Overview",
        [
            kept("overview:pluggable", "a pluggable, multi-backend memory system",
                 f"{RUNTIME}a_backend_spec_can_be_handed_in"),
            kept("overview:parallel", "allows multiple backends to operate in parallel",
                 f"{MANAGER}backends_are_under_way_at_the_same_time"),
            kept("overview:configurable", "with configurable routing, weighting, and deduplication",
                 f"{MANAGER}a_condition_decides_by_the_intent",
                 f"{MANAGER}a_weight_table_replaces_the_weights_of_the_entries",
                 f"{MERGE}overlapping_ranges_stay_apart_when_only_exact_duplicates_count"),
        ],
    ),
    (
        "Architecture",
        [
            kept("manager:intent:optional", "Intent parsing (optional)",
                 f"{MANAGER}a_conditional_backend_is_not_asked_without_a_parser_and_status_says_so",
                 f"{MANAGER}a_condition_decides_by_the_intent"),
            kept("manager:routing:condition", "Backend routing by condition",
                 f"{MANAGER}a_condition_decides_by_the_intent"),
            kept("manager:fan-out:active", "Parallel fan-out to active backends",
                 f"{MANAGER}backends_are_under_way_at_the_same_time"),
            kept("manager:merge:weighted", "Weighted score merging",
                 f"{MANAGER}scores_are_multiplied_by_weights_and_duplicates_keep_the_best"),
            kept("manager:dedup:range", "Deduplication by path+line range",
                 f"{MERGE}duplicates_keep_the_highest_weighted_score"),
            kept("manager:log:trace", "Ops logging with trace IDs",
                 f"{MANAGER}every_event_of_a_query_carries_its_trace_id"),
        ],
    ),
    (
        "ComposableMemoryManager",
        [
            kept("manager:is-a-memory", "implements MemorySearchManager",
                 f"{MANAGER}it_keeps_the_promises_of_a_memory_and_of_an_orchestrator",
                 "tests/contract/test_composite.py::TestNestedComposite"),
            kept("manager:fan-out:simultaneous", "All active backends are queried simultaneously",
                 f"{MANAGER}backends_are_under_way_at_the_same_time"),
            kept("manager:intent:filters", "Optional intent parser can filter backends per query",
                 f"{MANAGER}a_condition_decides_by_the_intent"),
            kept("manager:weight:multiplies", "a configurable weight that multiplies result scores",
                 f"{MANAGER}scores_are_multiplied_by_weights_and_duplicates_keep_the_best"),
            kept("manager:dedup:key",
                 "deduplicated by path:startLine:endLine, keeping the highest weighted score",
                 f"{MERGE}duplicates_keep_the_highest_weighted_score",
                 f"{MERGE}the_first_backend_keeps_a_duplicate_of_equal_weighted_score"),
            decided("manager:dedup:more", "deduplicated by path:startLine:endLine",
                    "overlapping ranges and nearly equal texts count as duplicates too, unless switched off",
                    f"{MERGE}a_range_that_lies_half_in_a_better_one_is_merged_into_it",
                    f"{MERGE}nearly_equal_texts_in_two_files_are_one_result",
                    f"{MERGE}overlapping_ranges_stay_apart_when_only_exact_duplicates_count"),
            kept("manager:attribution", "Tracks which backend returned each result",
                 f"{MERGE}the_attribution_names_what_was_merged"),
            kept("manager:degradation", "If a backend fails, others continue",
                 f"{FAN_OUT}a_failing_backend_does_not_hide_the_others",
                 f"{MANAGER}a_failure_is_part_of_the_answer"),
            kept("manager:degradation:logged", "errors are logged but don't block",
                 f"{MANAGER}the_log_holds_every_candidate_and_how_they_were_merged",
                 f"{FAN_OUT}a_hanging_backend_is_cut_at_its_deadline_and_cancelled"),
            decided("manager:degradation:all", "errors don't block",
                    "when every backend fails, search raises; query and context_pack say it in their answer",
                    f"{MANAGER}search_raises_when_every_backend_failed"),
            kept("manager:new:backends", "new ComposableMemoryManager({ backends: [...] })",
                 f"{MANAGER}scores_are_multiplied_by_weights_and_duplicates_keep_the_best",
                 f"{MANAGER}two_backends_of_one_id_are_refused"),
            decided("manager:new:primary", "primary: used for readFile, sync",
                    "the primary reads files and lends its status, others step in where it cannot; "
                    "a sync goes to every backend that keeps an index",
                    f"{MANAGER}the_primary_reads_files_and_others_step_in",
                    f"{MANAGER}an_unknown_primary_is_refused"),
            kept("manager:new:intent-parser", "intentParser: parseQueryIntent",
                 f"{INTENT}entities_topics_and_times_are_read"),
            kept("manager:new:ops-log", "opsLog: memoryOpsLogger",
                 f"{MANAGER}every_event_of_a_query_carries_its_trace_id"),
            kept("manager:search:max-results", "maxResults: 10",
                 f"{MERGE}what_does_not_fit_is_listed_in_order"),
            decided("manager:search:min-score", "minScore: 0.3",
                    "it acts on calibrated scores before weights, and never cuts an exact hit",
                    f"{MERGE}the_minimum_score_acts_before_weights",
                    f"{MERGE}the_minimum_score_never_cuts_an_exact_hit"),
            decided("manager:weights:factory", "builtin 1.0, graphiti 0.8 in the example",
                    "every backend starts with the weight 1.0 on calibrated scores, until learnt",
                    f"{SETTINGS}every_backend_section_starts_with_the_weight_one"),
        ],
    ),
    (
        "Backend Entry Configuration",
        [
            kept("entry:id", "id: unique identifier for the backend",
                 f"{NAMES}a_value_has_its_fields", f"{MANAGER}two_backends_of_one_id_are_refused"),
            kept("entry:manager", "manager: the backend implementation", f"{NAMES}a_value_has_its_fields"),
            kept("entry:weight", "weight: score multiplier (0.0-1.0+) for ranking",
                 f"{MERGE}a_backend_of_weight_zero_is_listed_and_not_returned",
                 f"{MANAGER}a_weight_that_is_no_weight_is_refused"),
            decided("entry:weight:scale", "score multiplier above 1.0, beside scores from 0 to 1",
                    "the weight ranks; a result's score stays in [0, 1]",
                    f"{MERGE}weights_above_one_keep_scores_within_bounds"),
            kept("entry:condition", "condition: optional routing predicate",
                 f"{MANAGER}a_condition_decides_by_the_intent",
                 f"{MANAGER}a_parser_and_a_condition_that_raise_do_not_take_the_answer_down"),
        ],
    ),
    (
        "MemorySearchManager Interface",
        [
            kept("memory:search", "search(query, opts): MemorySearchResult[]",
                 f"{NAMES}a_promise_has_its_methods", f"{BACKEND}the_seeded_questions_are_answered",
                 f"{BACKEND}every_result_is_sound", f"{BACKEND}options_may_be_left_out"),
            kept("memory:search:blank", "search of a blank query", f"{BACKEND}a_blank_query_has_no_results"),
            kept("memory:read-file", "readFile({relPath, from, lines}): {text, path}",
                 f"{READING}whole_files_are_read", f"{READING}lines_count_from_one",
                 f"{READING}lines_beyond_the_end_are_empty", f"{READING}numbers_below_one_count_as_one"),
            kept("memory:status", "status(): MemoryProviderStatus",
                 f"{BACKEND}a_status_is_sound_before_and_after_a_failure"),
            decided("memory:sync", "sync?(params): void",
                    "no optional methods: a Protocol of its own that is declared, and returns a report",
                    f"{SYNC}a_new_note_is_found_after_a_sync", f"{SYNC}a_second_sync_writes_nothing",
                    f"{BACKEND}what_is_declared_is_there_and_what_is_not_is_refused"),
            kept("memory:probe-embedding", "probeEmbeddingAvailability(): MemoryEmbeddingProbeResult",
                 f"{BACKEND}the_probes_answer"),
            kept("memory:probe-vector", "probeVectorAvailability(): boolean", f"{BACKEND}the_probes_answer"),
            decided("memory:close", "close?(): void",
                    "every memory closes; twice is fine, afterwards it is unavailable",
                    f"{BACKEND}closing_twice_is_fine", f"{BACKEND}a_closed_memory_is_unavailable"),
        ],
    ),
    (
        "Built-in SQLite Store",
        [
            kept("builtin:default", "The default backend", f"{SETTINGS}only_builtin_is_on_by_default"),
            decided("builtin:native-sqlite", "using native SQLite with optional FTS5 and vector similarity",
                    "apsw instead of the standard module, which often cannot load extensions",
                    f"{LEVELS}Hybrid", f"{LEVELS}KeywordsOnly", f"{LEVELS}VectorsOnly", f"{LEVELS}Disabled"),
            kept("builtin:chunks:hash", "File-based chunk indexing with content hashing",
                 f"{SYNC}a_changed_note_replaces_what_it_was",
                 f"{INDEXING}one_changed_chunk_leaves_the_others_alone"),
            kept("builtin:fts", "FTS5 full-text search (when available)", f"{LEVELS}KeywordsOnly"),
            kept("builtin:vectors", "Vector similarity via cosine distance on stored embeddings",
                 f"{LEVELS}VectorsOnly", f"{VECTORS}the_nearest_come_first"),
            kept("builtin:cache:key", "Embedding cache with provider+model+hash deduplication",
                 f"{INDEXING}another_embedder_moves_the_chunks_and_coming_back_costs_nothing",
                 f"{NAMES}a_table_of_the_index_has_its_columns"),
            kept("builtin:sync:incremental", "Incremental sync with file change detection",
                 f"{SYNC}a_second_sync_writes_nothing",
                 f"{SYNC}a_new_note_is_found_after_a_sync",
                 f"{INDEXING}a_sync_that_finds_nothing_reads_no_note_and_writes_nothing"),
            kept("builtin:schema:files", "files: tracked files with path, hash, mtime, size",
                 f"{NAMES}a_table_of_the_index_has_its_columns"),
            decided("builtin:schema:chunks", "chunks: text chunks with embeddings, keyed by id",
                    "a chunk points at its vector, which equal passages share",
                    f"{NAMES}a_table_of_the_index_has_its_columns",
                    f"{INDEXING}a_moved_note_is_not_embedded_again"),
            decided("builtin:schema:fts", "fts_index: FTS5 virtual table",
                    "it is called chunks_fts",
                    f"{NAMES}a_table_of_the_index_has_its_columns"),
            kept("builtin:schema:cache", "embedding_cache: cross-provider embedding cache",
                 f"{NAMES}a_table_of_the_index_has_its_columns"),
        ],
    ),
    (
        "Graphiti Graph Adapter",
        [
            later("graphiti:ingest:temporal", "Episode ingestion with temporal metadata", GRAPHITI_LATER),
            later("graphiti:search:hybrid", "Hybrid search across facts and relationships", GRAPHITI_LATER),
            later("graphiti:compaction", "Compaction hook integration for episode merging", GRAPHITI_LATER),
            later("graphiti:health", "Health check and graceful fallback", GRAPHITI_LATER),
            later("graphiti:client:new",
                  "GraphitiClient({serverHost, servicePort, apiKey, timeoutMs, opsLog})",
                  GRAPHITI_LATER),
            later("graphiti:client:ingest", "client.ingestEpisodes({episodes, traceId})", GRAPHITI_LATER),
            later("graphiti:client:query", "client.queryHybrid({query, limit})", GRAPHITI_LATER),
            later("graphiti:episode:observed-at",
                  "observed_at from temporal metadata (validated as ISO date)",
                  GRAPHITI_LATER),
            later("graphiti:episode:ingested-at", "ingested_at from update timestamp or current time",
                  GRAPHITI_LATER),
            later("graphiti:episode:warnings", "Warnings generated for invalid/missing temporal data",
                  GRAPHITI_LATER),
        ],
    ),
    (
        "QMD Backend",
        [
            later("qmd:external", "An external qmd command-line tool for memory indexing", QMD_LATER),
            kept("qmd:config:accepted", "memory.qmd.* in the settings",
                 f"{FILES}an_openclaw_file_is_read_as_it_is"),
            kept("qmd:config:backend", "backend: qmd", f"{FILES}an_openclaw_file_is_read_as_it_is",
                 f"{SETTINGS}the_primary_is_on"),
            later("qmd:config:command", "command: qmd", QMD_LATER),
            later("qmd:config:include-default-memory", "includeDefaultMemory: true", QMD_LATER),
            later("qmd:config:paths", "paths: path, pattern, name", QMD_LATER),
            later("qmd:config:sessions", "sessions: enabled, exportDir, retentionDays", QMD_LATER),
            later("qmd:config:update", "update: interval, debounceMs, onBoot, embedInterval", QMD_LATER),
            later("qmd:config:limits", "limits: maxResults, maxSnippetChars, maxInjectedChars, timeoutMs",
                  QMD_LATER),
        ],
    ),
    (
        "Adapter Interfaces",
        [
            kept("graph:upsert-nodes", "GraphAdapter.upsertNodes(nodes)", f"{NAMES}a_promise_has_its_methods",
                 f"{GRAPH}upserting_twice_changes_nothing",
                 f"{GRAPH}a_node_with_a_known_id_replaces_the_old_one"),
            kept("graph:upsert-edges", "GraphAdapter.upsertEdges(edges)", f"{NAMES}a_promise_has_its_methods",
                 f"{GRAPH}named_entities_come_with_their_relations"),
            kept("graph:query", "GraphAdapter.query(query): GraphQueryResult",
                 f"{GRAPH}text_finds_the_nodes_that_speak_of_it", f"{GRAPH}a_limit_bounds_nodes_and_edges",
                 f"{IN_MEMORY}InMemoryGraph"),
            decided("graph:health", "GraphAdapter.health?()", "a Protocol of its own: SupportsHealth",
                    f"{NAMES}a_promise_has_its_methods", f"{GRAPH}further_promises_are_kept"),
            kept("vector:upsert", "VectorAdapter.upsert(records)",
                 f"{VECTORS}upserting_twice_changes_nothing",
                 f"{VECTORS}a_record_with_a_known_id_replaces_the_old_one",
                 f"{VECTORS}a_vector_of_another_length_is_refused"),
            kept("vector:query", "VectorAdapter.query(query): VectorQueryResult",
                 f"{VECTORS}the_nearest_come_first", f"{VECTORS}a_filter_keeps_what_equals_every_value"),
            decided("vector:delete", "VectorAdapter.delete?(ids)", "a Protocol of its own: SupportsDelete",
                    f"{NAMES}a_promise_has_its_methods", f"{VECTORS}deleted_records_are_gone"),
            decided("vector:health", "VectorAdapter.health?()", "a Protocol of its own: SupportsHealth",
                    f"{VECTORS}further_promises_are_kept"),
            kept("embedder:embed", "EmbedderAdapter.embed(input): number[]",
                 f"{EMBEDDER}vectors_have_the_promised_length", f"{EMBEDDER_TESTS}WordLlama"),
            decided("embedder:embed-batch", "EmbedderAdapter.embedBatch?(inputs)",
                    "every embedder takes batches; `embed_one_by_one` serves those without",
                    f"{EMBEDDER}a_batch_gives_what_single_calls_give", f"{EMBEDDER}an_empty_batch_is_empty"),
            decided("embedder:dimensions", "EmbedderAdapter.dimensions?: number", "always known",
                    f"{NAMES}the_embedder_knows_its_dimensions",
                    f"{EMBEDDER}it_says_which_space_its_vectors_live_in"),
            kept("extractor:extract", "EntityExtractor.extract(content): ExtractedEntity[]",
                 f"{NAMES}a_promise_has_its_methods"),
            later("extractor:implemented", "For extracting structured entities from content", INGEST_LATER),
            kept("temporal-policy:evaluate", "TemporalPolicy.evaluate(content): TemporalPolicyDecision",
                 f"{NAMES}a_promise_has_its_methods"),
            later("temporal-policy:implemented", "For managing content lifecycle", INGEST_LATER),
            kept("orchestrator:query", "QueryOrchestrator.query(request): QueryResponse",
                 f"{MANAGER}it_keeps_the_promises_of_a_memory_and_of_an_orchestrator"),
            decided("orchestrator:context-pack",
                    "contextPack?(request): {pack, sources?: MemoryContentObject[]}",
                    "the sources are the results in the pack, with their places and scores",
                    f"{MANAGER}the_context_pack_holds_the_best_results_within_its_budget",
                    f"{PACK}the_last_piece_is_cut_to_the_budget"),
            kept("values:fields", "the fields of all values of the interfaces",
                 f"{NAMES}a_value_has_its_fields"),
        ],
    ),
    (
        "Search Pipeline",
        [
            kept("search:intent:parsed", "1. parsed for entities, topics, and time hints",
                 f"{INTENT}entities_topics_and_times_are_read",
                 f"{INTENT}a_time_is_read_with_unit_and_offset"),
            kept("search:filter:condition",
                 "2. backends with condition are filtered based on the parsed intent",
                 f"{MANAGER}a_condition_decides_by_the_intent"),
            decided("search:filter:no-parser", "2. condition functions where there is no parser",
                    "the backend is not asked, and status and answer say so",
                    f"{MANAGER}a_conditional_backend_is_not_asked_without_a_parser_and_status_says_so"),
            kept("search:fan-out:parallel", "3. active backends are queried simultaneously",
                 f"{MANAGER}backends_are_under_way_at_the_same_time"),
            decided("search:fan-out:deadline", "3. (silent about a backend that hangs)",
                    "each has a deadline, and rests after failures in a row",
                    f"{FAN_OUT}a_hanging_backend_is_cut_at_its_deadline_and_cancelled",
                    f"{MANAGER}a_backend_that_keeps_failing_rests_and_is_tried_again"),
            kept("search:collect:attribution", "4. successful results are collected with backend attribution",
                 f"{MERGE}the_attribution_names_what_was_merged",
                 f"{MANAGER}scores_are_multiplied_by_weights_and_duplicates_keep_the_best"),
            kept("search:collect:failures", "4. failures are logged",
                 f"{MANAGER}the_log_holds_every_candidate_and_how_they_were_merged"),
            kept("search:dedup:keeps-highest-weighted", "5. keeping the highest weighted score",
                 f"{MERGE}duplicates_keep_the_highest_weighted_score"),
            decided("search:dedup:graph-facts", "5. path:startLine:endLine, which facts do not have",
                    "facts have lines 0:0 and are told apart by their path",
                    f"{MERGE}facts_without_lines_are_told_apart_by_their_path"),
            kept("search:sort", "6. sorted by weighted score descending",
                 "tests/property/test_merge_properties.py::test_scores_are_in_bounds_and_in_order"),
            decided("search:sort:calibrated", "6. weighted scores of unlike backends",
                    "scores are calibrated to [0, 1] per backend before weights, and the log says how",
                    f"{CALIBRATION}each_method_follows_its_formula",
                    f"{MANAGER}scores_of_a_backend_that_promises_nothing_are_calibrated"),
            kept("search:truncate", "7. top maxResults entries returned",
                 "tests/property/test_merge_properties.py::test_a_shorter_answer_is_the_beginning_of_a_longer_one",
                 f"{MERGE}what_does_not_fit_is_listed_in_order"),
        ],
    ),
    (
        "Ops Logging",
        [
            kept("log:query-start", "query.start: query, intent, active backends",
                 f"{NAMES}an_event_has_its_fields", f"{MANAGER}every_event_of_a_query_carries_its_trace_id"),
            kept("log:backend-result", "query.backend_result: count, scores, snippets",
                 f"{NAMES}an_event_has_its_fields",
                 f"{MANAGER}the_log_holds_every_candidate_and_how_they_were_merged"),
            kept("log:merged", "query.merged: dedup stats, backend attribution",
                 f"{NAMES}an_event_has_its_fields",
                 f"{MANAGER}the_log_holds_every_candidate_and_how_they_were_merged"),
            later("log:graphiti-ingest", "graphiti.ingest: node/edge counts", GRAPHITI_LATER),
            later("log:graphiti-query", "graphiti.query: fact counts", GRAPHITI_LATER),
            kept("log:trace-id", "All events include a traceId for correlating related operations",
                 f"{MANAGER}every_event_of_a_query_carries_its_trace_id",
                 f"{MANAGER}composites_nest_and_share_the_trace",
                 f"{RUNTIME}the_trace_of_a_query_is_on_disk_after_closing"),
        ],
    ),
    (
        "Memory Feedback System",
        [
            later("feedback:advisor", "LLM-based weight advisor", FEEDBACK_LATER),
            later("feedback:loop", "results are evaluated against user satisfaction signals", FEEDBACK_LATER),
            later("feedback:adaptation", "backend weights evolve", FEEDBACK_LATER),
        ],
    ),
    (
        "Configuration",
        [
            kept("config:openclaw-yml", "configured through openclaw.yml",
                 f"{FILES}an_openclaw_file_is_read_as_it_is",
                 f"{FILES}our_own_file_comes_before_an_openclaw_file"),
            decided("config:backend", 'backend: "builtin" | "qmd"',
                    "the backend that reads files; it is on, further ones may be on beside it",
                    f"{SETTINGS}the_primary_is_on", f"{SETTINGS}only_builtin_is_on_by_default"),
            decided("config:citations", 'citations: "auto" | "always" | "never"',
                    "always and never are other words for on and off",
                    f"{SETTINGS}citations_have_two_spellings"),
            kept("config:graphiti:accepted", "graphiti: enabled, serverHost, servicePort, apiKey",
                 f"{FILES}an_openclaw_file_is_read_as_it_is"),
            later("config:graphiti:used", "graphiti: enabled, serverHost, servicePort, apiKey",
                  GRAPHITI_LATER),
            kept("config:camel-case", "keys in camelCase", f"{SETTINGS}keys_may_be_written_in_either_case"),
        ],
    ),
)

DEEP_DIVE = document(
    "architecture deep-dive",
    (
        "MemorySearchManager Interface",
        [
            kept("search:ranked",
                 "returns ranked snippets with path, line range, score, and source attribution",
                 f"{BACKEND}every_result_is_sound"),
            kept("search:session-key", "opts: sessionKey", f"{NAMES}a_value_has_its_fields"),
            kept("read-file:pagination", "supports from/lines pagination", f"{READING}lines_count_from_one"),
            kept("read-file:safe", "only .md files within the workspace or extra paths",
                 f"{READING}what_is_not_a_note_is_refused",
                 f"{PATHS}what_is_no_memory_file_is_refused_with_the_reason",
                 f"{PATHS}a_link_on_the_way_is_refused",
                 f"{READ_FILE}a_note_of_an_extra_folder_is_read_by_the_path_that_a_search_names"),
            kept("status:snapshot", "the full MemoryProviderStatus snapshot for diagnostics",
                 f"{BACKEND}a_status_is_sound_before_and_after_a_failure", f"{NAMES}a_value_has_its_fields"),
            kept("sync:reasons", "search, watch, session-start, session-delta, interval, manual",
                 f"{NAMES}kinds_of_sources_and_sync_reasons_are_those_of_the_documents"),
            kept("sync:force", "sync({force})", f"{SYNC}a_forced_sync_keeps_the_answers",
                 f"{SYNC}a_forced_sync_is_not_lost_among_others"),
            kept("sync:progress", "sync({progress})", f"{SYNC}progress_only_grows"),
            kept("probe:embedding", "smoke-test embedding by embedding the string ping",
                 f"{BACKEND}the_probes_answer"),
            kept("probe:vector", "check if vector search is functional", f"{BACKEND}the_probes_answer"),
            kept("close:releases", "shut down watchers, timers, pending syncs, and release the database",
                 f"{LEAKS}fifty_memories_leave_no_thread_and_no_descriptor",
                 f"{LEAKS}a_closed_memory_leaves_no_task"),
        ],
    ),
    (
        "MemorySearchResult Type",
        [
            kept("result:path", "relative path within the workspace", f"{BACKEND}every_result_is_sound"),
            kept("result:lines", "1-indexed first and last line",
                 f"{READING}the_lines_of_a_result_hold_its_answer"),
            kept("result:score", "combined relevance score (0..1)", f"{BACKEND}every_result_is_sound"),
            kept("result:snippet", "text content of the matched chunk (max 700 chars)",
                 f"{BACKEND}every_result_is_sound"),
            kept("result:citation", "optional citation string (path#Lstart-Lend)",
                 f"{CITATIONS}a_passage_is_cited_with_its_lines"),
            kept("result:source:memory", "memory (MEMORY.md, memory/*.md)",
                 f"{BACKEND}every_result_is_sound"),
            later("result:source:sessions", "sessions (session transcript .jsonl files)", SESSIONS_LATER),
        ],
    ),
    (
        "MemoryProviderStatus Type",
        [
            kept("status:fields", "all fields of the status and of its parts",
                 f"{NAMES}a_value_has_its_fields"),
            decided("status:fallback:from", "fallback.from",
                    "a Python keyword: the field is from_, in JSON from",
                    f"{NAMES}a_value_has_its_fields"),
            later("status:batch", "batch: failures, limit, wait, concurrency …", REMOTE_LATER),
        ],
    ),
    (
        "FallbackMemoryManager",
        [
            later("fallback:wraps", "wraps a QMD primary manager with a lazy builtin fallback",
                  FALLBACK_LATER),
            later("fallback:delegates", "all interface methods delegate to the primary first",
                  FALLBACK_LATER),
            later("fallback:switches", "on the first search error the primary is closed, the fallback serves",
                  FALLBACK_LATER),
            later("fallback:status", "status merges a fallback field with the reason", FALLBACK_LATER),
            later("fallback:retries", "the next request can retry with a fresh manager", FALLBACK_LATER),
        ],
    ),
    (
        "Instance Caching",
        [
            decided("cache:instances", "module-level caches to avoid re-creating managers",
                    "no module state: whoever opens a memory keeps and closes it",
                    f"{LEAKS}fifty_memories_leave_no_thread_and_no_descriptor"),
        ],
    ),
    (
        "Configuration Resolution",
        [
            kept("config:default-backend", "the backend field is builtin (default) or qmd",
                 f"{SETTINGS}only_builtin_is_on_by_default"),
            kept("citations:auto", "auto: on for direct chats, off for groups",
                 f"{CITATIONS}auto_cites_where_one_person_reads",
                 f"{CITATIONS}auto_does_not_cite_in_groups_and_channels"),
            kept("citations:on", "on (always)", f"{CITATIONS}on_and_always_cite_in_every_session"),
            kept("citations:off", "off (never)",
                 f"{CITATIONS}off_and_never_remove_the_citation_of_a_backend"),
        ],
    ),
)

OVERVIEW = document(
    "knowledge system overview",
    (
        "Knowledge Lifecycle",
        [
            kept("files:evergreen", "MEMORY.md (evergreen)", f"{RUNTIME}notes_are_found_with_their_lines"),
            kept("files:episodic", "memory/YYYY-MM-DD.md (episodic)", f"{LEVELS}KeywordsOnly"),
            later("files:sessions", "session transcripts (.jsonl)", SESSIONS_LATER),
            later("flush", "a memory flush may trigger before context compaction", SESSIONS_LATER),
            kept("chunks:size", "chunked (default 400 tokens, 80-token overlap)",
                 f"{CHUNKS}chunks_begin_and_end_where_they_should",
                 f"{NAMES}a_setting_of_the_builtin_memory_has_its_key"),
            decided("schema:tables", "meta, files, chunks, chunks_fts, chunks_vec, embedding_cache",
                    "vectors live in embedding_cache; a vec0 table is made for the engine sqlite-vec alone",
                    f"{NAMES}a_table_of_the_index_has_its_columns",
                    f"{BUILTIN_SEARCH}all_engines_give_the_same_answer"),
            kept("index:both", "an FTS5 full-text index and a vec0 table for vector search",
                 f"{LEVELS}Hybrid", f"{VECTOR_TESTS}SqliteVec"),
            later("index:watchers", "file watchers trigger incremental re-indexing with a debounce",
                  WATCH_LATER),
            kept("retrieve:pipeline", "query expansion, parallel vector + keyword search, hybrid merge",
                 f"{BUILTIN_SEARCH}words_and_meaning_answer_together",
                 f"{TERMS}terms_are_the_words_that_a_question_is_about"),
            decided("retrieve:hybrid-weights", "hybrid merge (0.7/0.3 weighting)",
                    "configurable; the default is what held-out data says, keywords before vectors",
                    f"{HYBRID}a_score_is_the_weighted_sum_of_what_both_legs_say"),
            later("retrieve:decay", "optional temporal decay", "decay of dated notes"),
            later("retrieve:diversity", "optional MMR diversity re-ranking", "diversity of results"),
            kept("retrieve:threshold", "score threshold, and top-K selection",
                 f"{BACKEND}a_minimum_score_cuts_all_but_exact_hits",
                 f"{BACKEND}a_shorter_answer_is_the_beginning_of_a_longer_one"),
            kept("use:results", "paths, line ranges, scores, and snippets",
                 f"{BACKEND}every_result_is_sound"),
            kept("use:get", "drill into specific lines with memory_get",
                 f"{READING}the_lines_of_a_result_hold_its_answer"),
            kept("use:citations", "citations appended depending on the chat context",
                 f"{CITATIONS}auto_does_not_cite_in_groups_and_channels",
                 f"{CITATIONS}the_source_line_stands_below_the_trimmed_snippet"),
        ],
    ),
    (
        "Dual-Backend Architecture",
        [
            kept("backends:selectable", "selectable via memory.backend", f"{SETTINGS}the_primary_is_on"),
            later("backends:qmd", "qmd: search / vsearch / query modes, mcporter", QMD_LATER),
            later("backends:embedding", "Local GGUF, OpenAI, Gemini, Voyage, Mistral", REMOTE_LATER),
            later("backends:degrades", "if QMD fails at runtime, the system degrades to the builtin index",
                  FALLBACK_LATER),
        ],
    ),
    (
        "Graceful Degradation Chain",
        [
            kept("levels:hybrid", "Level 1: full hybrid", f"{LEVELS}Hybrid"),
            kept("levels:vector-only", "Level 2: vector-only",
                 f"{LEVELS}VectorsOnly",
                 f"{BUILTIN_SEARCH}what_is_switched_off_is_named"),
            decided("levels:fts-only", "Level 3: FTS-only",
                    "keywords are indexed and searched without any embedder, never an empty index",
                    f"{LEVELS}KeywordsOnly",
                    f"{RUNTIME}without_an_embedder_keywords_serve_and_the_answer_says_so"),
            decided("levels:disabled", "Level 4: disabled, returns empty results",
                    "empty, and the answer says why", f"{LEVELS}Disabled",
                    f"{ANSWER}a_memory_that_can_find_nothing_says_why"),
            kept("levels:no-provider", "no provider: the manager enters FTS-only mode",
                 f"{RUNTIME}without_an_embedder_keywords_serve_and_the_answer_says_so"),
            kept("levels:never-fail", "designed to never hard-fail", f"{BACKEND}hostile_queries_are_survived",
                 f"{MANAGER}a_failure_is_part_of_the_answer"),
        ],
    ),
    (
        "Class Hierarchy",
        [
            decided("classes:chain", "a three-level inheritance chain",
                    "rooms of functions and small classes instead of one object that inherits thrice",
                    f"{IMPORTS}the_contracts_of_the_house_are_kept"),
            later("classes:watching", "file watching, session listeners, interval sync", WATCH_LATER),
            later("classes:batches", "batch embedding, retry, auto-disable at 2", REMOTE_LATER),
        ],
    ),
    (
        "Memory v2 Research Direction",
        [
            decided("v2:research", "retain, recall, reflect; bank/ layout",
                    "exploratory in the source as well: not a promise of this library"),
        ],
    ),
)

QUICK_FACTS = document(
    "quick facts",
    (
        "Quick facts",
        [
            kept("facts:tools", "memory_search + memory_get",
                 f"{MCP}three_tools_are_offered_and_all_of_them_only_read",
                 f"{MCP}a_search_answers_with_cited_passages",
                 f"{MCP}lines_of_a_note_are_read"),
            kept("facts:markdown", "source of truth is Markdown files in the workspace",
                 f"{SYNC}a_removed_note_is_gone_after_a_sync", f"{SYNC}a_changed_note_replaces_what_it_was"),
            decided("facts:lancedb", "experimental plugin memory-lancedb",
                    "not a backend of ours; the same door is open to it as to any other"),
        ],
    ),
    (
        "Storage model",
        [
            kept("storage:extra-paths", "MEMORY.md, memory/**/*.md, optional extra paths",
                 f"{INDEXING}the_first_sync_indexes_every_note",
                 f"{INDEXING}notes_of_extra_folders_are_indexed"),
            kept("storage:optional-tables", "optional FTS table + optional sqlite-vec table",
                 f"{LEVELS}VectorsOnly", f"{LEVELS}KeywordsOnly"),
            later("storage:sessions", "JSONL transcripts normalized to User/Assistant text", SESSIONS_LATER),
            later("storage:qmd", "isolated XDG cache/config for qmd", QMD_LATER),
        ],
    ),
    (
        "Write path",
        [
            later("write:watcher", "watcher marks index dirty on add/change/unlink; debounced sync",
                  WATCH_LATER),
            later("write:session-delta", "delta thresholds (bytes/messages)", SESSIONS_LATER),
            decided("write:safe-reindex", "temp db, seed embedding cache, swap db files atomically",
                    "a new generation beside the old; readers move over, nobody sees half an index",
                    f"{SYNC}searches_during_a_sync_answer", f"{SYNC}a_forced_sync_keeps_the_answers"),
        ],
    ),
    (
        "Read path",
        [
            kept("read:get:constraints", "memory_get enforces path constraints",
                 f"{READING}what_is_not_a_note_is_refused"),
            kept("read:get:missing", "returns empty text for missing files",
                 f"{READING}a_missing_file_is_empty"),
            kept("read:citations", "citations (Source: path#Lx) depending on mode",
                 f"{CITATIONS}the_source_line_stands_below_the_trimmed_snippet"),
            later("read:scope", "for QMD, search scope by session channel/chat type/key prefix", QMD_LATER),
        ],
    ),
    (
        "Retrieval algorithm",
        [
            kept("retrieval:hybrid", "FTS query (BM25 normalized) + vector cosine similarity",
                 f"{LEVELS}Hybrid"),
            kept("retrieval:weights", "weighted merge (vectorWeight, textWeight)",
                 f"{NAMES}a_setting_of_the_builtin_memory_has_its_key"),
            later("retrieval:decay", "optional temporal decay (dated files or mtime)",
                  "decay of dated notes"),
            later("retrieval:mmr", "optional MMR rerank for diversity", "diversity of results"),
            kept("retrieval:fts-only", "fallback mode when embeddings unavailable", f"{LEVELS}KeywordsOnly"),
            later("retrieval:qmd", "qmd search|vsearch|query --json; qmd update, qmd embed", QMD_LATER),
        ],
    ),
    (
        "Notable ideas",
        [
            later("ideas:flush", "pre-compaction memory flush", SESSIONS_LATER),
            later("ideas:auto-providers", "provider auto-selection and fallback", REMOTE_LATER),
            kept("ideas:cache-key", "embedding cache keyed by provider/model/provider-key/hash",
                 f"{NAMES}a_table_of_the_index_has_its_columns",
                 f"{INDEXING}another_embedder_moves_the_chunks_and_coming_back_costs_nothing"),
            later("ideas:redaction", "session indexing redacts sensitive text before embedding",
                  SESSIONS_LATER),
            later("ideas:virtual-paths", "qmd/<collection>/<path>", QMD_LATER),
        ],
    ),
    (
        "Points of attention",
        [
            decided("attention:mmr-cjk", "MMR tokenization is ASCII-centric",
                    "keyword search and near-duplicates work on character pairs where words have no blanks",
                    f"{MERGE}nearly_equal_texts_in_a_script_without_spaces_are_one_result",
                    f"{BACKEND}the_seeded_questions_are_answered"),
        ],
    ),
)

REPORT = document(
    "memory architecture report",
    (
        "Architecture map",
        [
            kept("map:tools", "interface layer: memory_search, memory_get, CLI",
                 f"{MCP}three_tools_are_offered_and_all_of_them_only_read",
                 f"{CLI}search_shows_score_place_backend_and_text",
                 f"{CLI}get_writes_the_lines_that_were_asked_for"),
            decided("map:factory", "factory and fallback wrapper choose a backend",
                    "a composite asks all enabled backends; the runtime is the one place that wires",
                    f"{RUNTIME}a_backend_that_cannot_be_opened_is_named_in_every_answer"),
            decided("map:gateway", "Gateway RPC", "MCP is the protocol to the outside",
                    f"{MCP}the_program_serves_over_stdin_and_stdout"),
        ],
    ),
    (
        "Database schema",
        [
            kept("schema:meta", "meta: provider, model, dimensions, chunking",
                 f"{NAMES}a_table_of_the_index_has_its_columns",
                 f"{INDEXING}other_chunk_sizes_cut_every_note_again"),
            kept("schema:sha256", "files.hash: SHA-256 for change detection",
                 f"{INDEXING}a_note_that_was_only_touched_is_not_cut_again"),
            decided("schema:embedding-text", "embeddings as JSON text",
                    "float32, a quarter of the size",
                    f"{INDEXING}vectors_have_length_one_and_are_float32"),
            kept("schema:cache-key", "PRIMARY KEY (provider, model, provider_key, hash)",
                 f"{NAMES}a_table_of_the_index_has_its_columns"),
            kept("schema:vec-dims", "chunks_vec has the dimensions of the provider",
                 f"{LEVELS}HybridOverAnyEmbedder"),
        ],
    ),
    (
        "Storage",
        [
            kept("storage:wal", "WAL, concurrent readers", f"{SQLITE}reads_run_side_by_side",
                 f"{SQLITE}a_read_sees_one_state_from_beginning_to_end"),
            decided("storage:db-path", "default {workspace}/.memory-index.db",
                    "one file per agent and workspace under the state folder, path configurable",
                    f"{RUNTIME}two_workspaces_share_a_state_folder_without_mixing"),
            kept("storage:vec-fallback", "if sqlite-vec is unavailable, cosine is computed without it",
                 f"{BUILTIN_SEARCH}where_sqlite_vec_cannot_be_loaded_another_engine_answers_and_says_so",
                 f"{VECTOR_TESTS}BruteForce"),
            later("storage:extension-path", "store.vector.extensionPath",
                  "a path of one's own for sqlite-vec"),
            decided("storage:and-query", "natural language becomes an FTS5 AND query",
                    "never AND alone: words are joined by OR and ranked; AND finds nothing most times",
                    f"{TERMS}any_finds_what_all_does_not"),
            decided("storage:bm25-score", "score = 1 / (1 + rank)",
                    "FTS5 ranks are negative, so that is 1 for every hit; scores are calibrated per list",
                    f"{KEYWORDS}an_exact_hit_scores_high_in_a_tiny_index",
                 f"{KEYWORDS}one_word_of_five_scores_low"),
        ],
    ),
    (
        "Lifecycle",
        [
            later("discover:watcher", "file watcher", WATCH_LATER),
            later("discover:interval", "sync.intervalMinutes, sync.onSessionStart", WATCH_LATER),
            kept("discover:on-search", "sync before a search (sync.onSearch)",
                 f"{RUNTIME}asking_before_the_first_sync_is_never_silently_empty"),
            kept("discover:manual", "CLI memory index", f"{CLI}index_says_what_it_did",
                 f"{CLI}index_with_force_builds_anew"),
            kept("chunk:lines", "split by lines, limit tokens * 4 characters, overlap * 4 kept",
                 f"{CHUNKS}chunks_begin_and_end_where_they_should",
                 f"{CHUNKS}a_chunk_is_its_lines_and_their_hash"),
            kept("chunk:long-lines", "over-long lines are cut",
                 f"{CHUNKS}pieces_of_a_long_line_are_told_apart_by_their_text"),
            later("chunk:sessions", "session files: user and assistant messages, redacted", SESSIONS_LATER),
            later("embed:auto", "auto: local, openai, gemini, voyage", REMOTE_LATER),
            decided("embed:auto-stays-local", "auto tries remote providers",
                    "auto stays on this machine; auto-remote is the order of the documents",
                    f"{RUNTIME}without_an_embedder_keywords_serve_and_the_answer_says_so"),
            later("embed:batches", "batch interfaces of OpenAI, Gemini, Voyage", REMOTE_LATER),
            kept("embed:cache-hit", "the same text is not embedded twice",
                 f"{INDEXING}a_moved_note_is_not_embedded_again",
                 f"{INDEXING}force_writes_everything_anew_and_embeds_nothing_twice"),
            kept("embed:cache-prune", "maxEntries prunes the oldest",
                 f"{INDEXING}the_cache_is_pruned_but_never_of_vectors_in_use"),
            decided("index:order", "chunks, vectors, full text, file record",
                    "one transaction per batch of notes: all of a note or nothing",
                    f"{INDEXING}no_note_is_lost_between_transactions",
                    "tests/integration/test_builtin_faults.py::test_a_killed_process_leaves_an_index_that_goes_on"),
            kept("index:atomic", "rebuilt beside, swapped at the end, kept on failure",
                 f"{SYNC}searches_during_a_sync_answer", f"{SYNC}a_cancelled_sync_leaves_the_memory_usable"),
            kept("search:candidates", "limit * candidateMultiplier candidates per leg",
                 f"{NAMES}a_setting_of_the_builtin_memory_has_its_key"),
            decided("search:hybrid-formula", "vectorWeight 0.5, textWeight 0.5",
                    "another document says 0.7/0.3; both are settings, the default is measured",
                    f"{HYBRID}a_score_is_the_weighted_sum_of_what_both_legs_say",
                    f"{HYBRID}weights_need_not_sum_to_one"),
            kept("cleanup:stale", "files that are gone lose chunks, vectors and full text",
                 f"{SYNC}a_removed_note_is_gone_after_a_sync"),
        ],
    ),
    (
        "Optimisation",
        [
            kept("optimise:cosine", "native cosine distance", f"{VECTOR_TESTS}SqliteVec"),
            decided("optimise:normalised", "all vectors are normalised",
                    "the index keeps unit vectors; other stores compare by cosine whatever the length",
                    f"{INDEXING}vectors_have_length_one_and_are_float32",
                    f"{VECTORS}the_nearest_come_first"),
            kept("optimise:hash", "only changed files are indexed",
                 f"{SYNC}a_new_note_is_found_after_a_sync"),
            kept("optimise:mtime", "mtime first, then the hash",
                 f"{INDEXING}a_sync_that_finds_nothing_reads_no_note_and_writes_nothing",
                 f"{INDEXING}a_note_that_was_only_touched_is_not_cut_again"),
            later("optimise:session-delta", "deltaBytes, deltaMessages", SESSIONS_LATER),
        ],
    ),
    (
        "Embedding providers",
        [
            kept("provider:interface", "id, model, embedQuery, embedBatch",
                 f"{EMBEDDER}it_says_which_space_its_vectors_live_in"),
            later("provider:remote", "openai, gemini, voyage and their dimensions", REMOTE_LATER),
            decided("provider:local", "local: embeddinggemma by llama.cpp",
                    "the packaged default is static and needs no compiler; others by name, later",
                    f"{EMBEDDER_TESTS}WordLlama"),
            decided("provider:auto-throws", "auto without any provider throws",
                    "keywords serve, and the answer says so",
                    f"{RUNTIME}without_an_embedder_keywords_serve_and_the_answer_says_so"),
        ],
    ),
)

INTERFACES = document(
    "our interfaces",
    (
        "MemorySearchManager",
        [
            kept("own:memory:protocol", "a backend is what has these methods", f"{BACKEND}it_is_a_memory"),
            kept("own:memory:unique", "no passage is returned twice",
                 f"{BACKEND}no_passage_is_returned_twice"),
            kept("own:memory:concurrent", "searches at once answer as single ones do",
                 f"{BACKEND}concurrent_searches_answer_as_single_ones"),
            kept("own:memory:cancel", "cancelling a call leaves the memory usable",
                 f"{BACKEND}a_cancelled_search_leaves_the_memory_usable"),
            kept("own:memory:close", "a search that runs while the memory closes ends",
                 f"{BACKEND}closing_ends_a_running_search", f"{READING}a_closed_memory_reads_nothing"),
            kept("own:memory:loop", "the event loop is never blocked",
                 f"{BACKEND}the_event_loop_is_not_blocked", f"{VECTORS}the_event_loop_is_not_blocked",
                 f"{EMBEDDER}the_event_loop_is_not_blocked"),
            kept("own:memory:read-or-refuse", "without READ_FILE, read_file raises UnsupportedOperation",
                 f"{BACKEND}reading_files_is_offered_or_refused"),
        ],
    ),
    (
        "SupportsAnswer",
        [
            kept("own:answer:same", "answer and search return the same results",
                 f"{ANSWER}an_answer_holds_what_a_search_returns"),
            kept("own:answer:engines", "engines names the engines that answered",
                 f"{ANSWER}an_answer_names_its_engines"),
            kept("own:answer:reasons", "every way in which the answer is less is reported",
                 f"{ANSWER}every_degradation_has_a_reason"),
            kept("own:answer:closed", "after close, answer raises BackendUnavailable",
                 f"{ANSWER}an_answer_of_a_closed_memory_is_unavailable"),
        ],
    ),
    (
        "SupportsSync",
        [
            kept("own:sync:joined", "concurrent calls are joined, no force is lost",
                 f"{SYNC}concurrent_syncs_are_joined", f"{SYNC}a_forced_sync_is_not_lost_among_others"),
            kept("own:sync:closed", "after close, sync raises BackendUnavailable",
                 f"{SYNC}a_closed_memory_does_not_sync"),
        ],
    ),
    (
        "VectorAdapter",
        [
            kept("own:vectors:empty", "an empty store has no matches",
                 f"{VECTORS}an_empty_store_has_no_matches"),
            kept("own:vectors:cosine", "scores are cosines", f"{VECTORS}a_stored_vector_is_nearest_to_itself",
                 f"{VECTORS}zero_vectors_are_survived"),
            kept("own:vectors:top-k", "the top_k nearest, best first",
                 f"{VECTORS}no_more_than_asked_for_and_no_more_than_there_is"),
            kept("own:vectors:metadata", "any id, any JSON",
                 f"{VECTORS}metadata_and_ids_come_back_as_they_were"),
            kept("own:vectors:concurrent", "reads and writes at once", f"{VECTORS}concurrent_use_is_fine"),
        ],
    ),
    (
        "GraphAdapter",
        [kept("own:graph:empty", "an empty graph answers nothing", f"{GRAPH}an_empty_graph_answers_nothing")],
    ),
    (
        "EmbedderAdapter",
        [
            kept("own:embedder:blank", "a blank text has the zero vector",
                 f"{EMBEDDER}a_blank_text_has_the_zero_vector"),
            kept("own:embedder:finite", "vectors are finite", f"{EMBEDDER}hostile_texts_are_survived"),
            kept("own:embedder:same", "provider, model and dimensions identify the space",
                 f"{EMBEDDER}the_same_text_has_the_same_vector"),
            kept("own:embedder:meaning", "near means alike",
                 f"{EMBEDDER}what_says_the_same_is_nearer_than_what_does_not"),
            kept("own:embedder:concurrent", "calls at once, and cancelled ones, do no harm",
                 f"{EMBEDDER}concurrent_calls_give_their_own_vectors",
                 f"{EMBEDDER}a_cancelled_call_leaves_it_usable"),
        ],
    ),
)

# fmt: on

REQUIREMENTS: tuple[Requirement, ...] = (
    *COMPOSABLE,
    *DEEP_DIVE,
    *OVERVIEW,
    *QUICK_FACTS,
    *REPORT,
    *INTERFACES,
)
