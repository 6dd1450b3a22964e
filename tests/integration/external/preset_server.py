"""An MCP server with the search tool of a memory that needs a key or a database, as its source describes it.

Its argument is the preset. Arguments other than those that the real tool takes are refused.
"""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from tests.integration.external.tool_server import serve

PUMP = "The pump was replaced in May."
MEM0 = {"id": "m1", "memory": PUMP, "score": 0.8, "created_at": "2026-05-04T10:00:00Z", "metadata": None}
FACT = {
    "uuid": "f1",
    "name": "REPLACED",
    "fact": PUMP,
    "group_id": "main",
    "created_at": "2026-06-01T00:00:00Z",
    "valid_at": "2026-05-04T00:00:00Z",
    "invalid_at": None,
}
RECALLED = {
    "id": "h1",
    "text": PUMP,
    "type": "world",
    "context": None,
    "mentioned_at": "2026-05-04T10:00:00Z",
}
CHUNK = {
    "content": PUMP,
    "source": "/notes/pump.md",
    "heading": "Pump",
    "chunk_hash": "c1",
    "heading_level": 1,
    "start_line": 2,
    "end_line": 3,
    "score": 0.9,
}


def search_memories(query: str, filters: dict[str, Any] | None = None, limit: int | None = None) -> str:
    """Answer as mem0's server does."""
    return json.dumps([MEM0][:limit] if sys.argv[2:] else {"results": [MEM0][:limit]}, indent=2)


def search_memory_facts(
    query: str, group_ids: list[str] | None = None, max_facts: int = 10
) -> dict[str, Any]:
    """Answer as Graphiti's server does."""
    return {"message": "Facts retrieved successfully", "facts": [FACT][:max_facts]}


def recall(query: str, max_tokens: int = 4096, budget: str = "high") -> dict[str, Any]:
    """Answer as Hindsight's server does."""
    return {"results": [RECALLED], "trace": None, "entities": None}


def memory_search(query: str, top_k: int = 5) -> str:
    """Answer as memsearch's server does."""
    return json.dumps([CHUNK][:top_k], indent=2)


TOOLS: Mapping[str, Callable[..., Any]] = {
    "graphiti-mcp": search_memory_facts,
    "hindsight": recall,
    "mem0": search_memories,
    "memsearch": memory_search,
}
"""By preset: the tool that searches."""


if __name__ == "__main__":
    tool = TOOLS[sys.argv[1]]
    serve({tool.__name__: tool})
