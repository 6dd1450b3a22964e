"""Memories that are not ours, joined by settings: MCP servers, HTTP services, and search functions."""
