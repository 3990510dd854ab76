"""Everything that knows Grok Build: its shim, and the stub that stands in for its agent process."""
