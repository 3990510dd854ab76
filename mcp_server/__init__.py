"""The MCP server: a thin process per agent session, one tool surface, and the session that the broker serves for it."""
