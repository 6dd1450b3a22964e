"""Third-party memories, connected by settings: MCP servers, HTTP services, and search functions."""
