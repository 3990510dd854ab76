"""Figures: what a shim, an MCP process and the broker cost. ``python -m tests.bench`` measures and prints a page.

Nothing here is asserted by the clock; a page is compared with the last one at twice the figure.
"""
