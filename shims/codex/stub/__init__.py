"""A scripted stand-in for ``codex app-server``, and for ``codex exec --json``, that speaks their JSON lines.

Owns the imitation of one process: threads, turns, the submission queue, rollout files, writer locks, MCP servers. Its
behaviour is that of the versions measured, 0.147.0, 0.154.0 and 0.171.0 (``STUB_CODEX_VERSION``); the model is the
script inside each message (``shims.script``). It accepts nothing that the real server refuses. Start it with the path
of ``__main__.py``.
"""
