"""Everything that knows Codex: its shim, and the stub that stands in for its app-server."""
