"""The version matrix: the real round trips of an agent, over a list of its published versions.

``python -m tests.matrix`` plays every column with every version, each in a process of its own, and writes what came of it to
``docs/compatibility.md``.
"""
