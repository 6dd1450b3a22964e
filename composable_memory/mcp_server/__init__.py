"""The memory as an MCP server: the tools of an agent over a transport. All that imports `mcp` is in here."""

from composable_memory.mcp_server.server import build_server
from composable_memory.mcp_server.stdio import serve_stdio

__all__ = ["build_server", "serve_stdio"]
