"""Copilot over VS Code's Agent Host Protocol: the same agent and route interfaces as the others. Not built yet."""
