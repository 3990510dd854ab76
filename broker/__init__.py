"""The engine: one process per user that owns sessions, deliveries and conversations. It knows no agent by name."""

VERSION = "0.1.0"
