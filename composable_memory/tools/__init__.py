"""What an agent calls: typed functions of a memory and a request, with JSON in and out.

None of them raises for a memory that fails: the reply then says what is wrong and what to do. `TOOLS` in
`catalogue` lists those that agents are offered.
"""

from composable_memory.tools.context_pack import (
    MemoryContextPackReply,
    MemoryContextPackRequest,
    memory_context_pack,
)
from composable_memory.tools.document import ErrorReply, Reply
from composable_memory.tools.explain import MemoryExplainRequest, memory_explain
from composable_memory.tools.read import MemoryGetReply, MemoryGetRequest, memory_get
from composable_memory.tools.search import (
    MemorySearchReply,
    MemorySearchRequest,
    SearchHit,
    memory_search,
    query_cited,
    unavailable_search,
    why_empty,
    why_unavailable,
    why_weak,
    without_legs,
)
from composable_memory.tools.status import (
    PROBE_QUERY,
    DeepProbe,
    MemoryStatusReply,
    MemoryStatusRequest,
    memory_status,
)

__all__ = [
    "PROBE_QUERY",
    "DeepProbe",
    "ErrorReply",
    "MemoryContextPackReply",
    "MemoryContextPackRequest",
    "MemoryExplainRequest",
    "MemoryGetReply",
    "MemoryGetRequest",
    "MemorySearchReply",
    "MemorySearchRequest",
    "MemoryStatusReply",
    "MemoryStatusRequest",
    "Reply",
    "SearchHit",
    "memory_context_pack",
    "memory_explain",
    "memory_get",
    "memory_search",
    "memory_status",
    "query_cited",
    "unavailable_search",
    "why_empty",
    "why_unavailable",
    "why_weak",
    "without_legs",
]
