"""The tests: ``unit`` and ``integration`` without agents, ``real`` with the real binaries, ``bench`` for numbers."""
