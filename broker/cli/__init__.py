"""The command line: `cross-agent`."""
