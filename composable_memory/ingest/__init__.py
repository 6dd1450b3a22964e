"""Takes contents in: cleans them, finds what they speak of, and hands them to vectors and to a graph.

`pipeline` runs the stages; `graphing` turns what was found into nodes and edges; `temporal` decides how long
a content holds; `reading_files` makes contents of what people wrote down.
"""

from composable_memory.ingest.attempts import PipelineError, PipelineErrorCode
from composable_memory.ingest.enriching import Enriched, EnrichHook, drop_duplicates, resolve_coreferences
from composable_memory.ingest.extraction import Extraction, SupportsExtraction, extract_from
from composable_memory.ingest.graphing import GraphPart, edge_id, graph_of, node_id
from composable_memory.ingest.pipeline import IngestPipeline
from composable_memory.ingest.temporal import Lifetime, StandardTemporalPolicy, lifetime_of
from composable_memory.ingest.values import AuditEvent, IngestItem, IngestRequest, IngestResult, MetricEvent

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
