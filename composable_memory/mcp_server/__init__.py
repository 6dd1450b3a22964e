"""The memory as an MCP server: the tools of an agent over a transport. All that imports `mcp` is in here.

`open_memories` does not, since what is served over HTTP needs `mcp` only when a client of it comes.
"""

from typing import TYPE_CHECKING

from composable_memory_ops_logs.lazy_names import lazy_names

if TYPE_CHECKING:
    from composable_memory.mcp_server.server import build_server
    from composable_memory.mcp_server.stdio import serve_stdio

__all__ = ["build_server", "serve_stdio"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {"server": "build_server", "stdio": "serve_stdio"})
