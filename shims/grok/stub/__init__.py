"""A scripted stand-in for ``grok agent stdio`` that speaks its ACP, and for one turn of ``grok --prompt-file``.

Owns the imitation of one process: sessions, their queues and turns, the session store, MCP servers. Its behaviour is that of
the version measured, 1.0.41; the model is the script inside each message (``shims.script``). It accepts nothing that the real
agent refuses. Start it with the path of ``__main__.py``.
"""
