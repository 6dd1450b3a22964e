"""Takes contents in: cleans them, extracts entities and relations, and stores them in vectors and a graph.

`pipeline` runs the stages; `records` turns what was found into nodes, edges and vector records; `lifetimes`
decides how long a content holds; `note_reader` makes contents of notes and transcripts.
"""

from typing import TYPE_CHECKING

from composable_memory_ops_logs.lazy_names import lazy_names

if TYPE_CHECKING:
    from composable_memory.ingest.extract import (
        Enriched,
        EnrichHook,
        Extraction,
        SupportsExtraction,
        drop_duplicates,
        extract_from,
        resolve_coreferences,
    )
    from composable_memory.ingest.lifetimes import Lifetime, StandardTemporalPolicy, lifetime_of
    from composable_memory.ingest.pipeline import IngestPipeline
    from composable_memory.ingest.records import GraphPart, edge_id, graph_of, node_id
    from composable_memory.ingest.requests import (
        AuditEvent,
        IngestItem,
        IngestRequest,
        IngestResult,
        MetricEvent,
    )
    from composable_memory.ingest.stage_errors import PipelineError, PipelineErrorCode

__all__ = [
    "AuditEvent",
    "EnrichHook",
    "Enriched",
    "Extraction",
    "GraphPart",
    "IngestItem",
    "IngestPipeline",
    "IngestRequest",
    "IngestResult",
    "Lifetime",
    "MetricEvent",
    "PipelineError",
    "PipelineErrorCode",
    "StandardTemporalPolicy",
    "SupportsExtraction",
    "drop_duplicates",
    "edge_id",
    "extract_from",
    "graph_of",
    "lifetime_of",
    "node_id",
    "resolve_coreferences",
]

_MODULES = {
    "extract": (
        "EnrichHook Enriched Extraction SupportsExtraction drop_duplicates extract_from resolve_coreferences"
    ),
    "lifetimes": "Lifetime StandardTemporalPolicy lifetime_of",
    "pipeline": "IngestPipeline",
    "records": "GraphPart edge_id graph_of node_id",
    "stage_errors": "PipelineError PipelineErrorCode",
    "requests": "AuditEvent IngestItem IngestRequest IngestResult MetricEvent",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)
