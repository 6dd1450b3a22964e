"""The memory as an MCP server: the tools of an agent over a transport. Everything that imports `mcp` is here.

`open_memories` does not import it: an HTTP server needs `mcp` only once an MCP client connects.
"""
