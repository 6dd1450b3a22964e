"""The memory as an MCP server: the tools of an agent over a transport. All that imports `mcp` is in here.

`open_memories` does not, since what is served over HTTP needs `mcp` only when a client of it comes.
"""
