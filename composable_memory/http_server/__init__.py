"""The memory over HTTP: its JSON API, MCP and pages behind one guard."""

from composable_memory.http_server.app import build_app
from composable_memory.http_server.listening import Access, access, listening

__all__ = ["Access", "access", "build_app", "listening"]
