"""Everything that knows Claude Code: its shim, and the stub that stands in for it."""
