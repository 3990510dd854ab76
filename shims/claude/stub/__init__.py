"""A scripted stand-in for Claude Code that speaks its stream-json protocol.

Owns the imitation of one process: argv, live registry, transcript, turns, tools, MCP servers. Its behaviour is that of
the versions measured, 2.1.197 and 2.1.332 (``STUB_CLAUDE_VERSION``); the model is the script inside each message
(``shims.script``). It accepts nothing that the real agent refuses. Start it with the path of ``__main__.py``.
"""
