"""Grok Build's command line. No call is intercepted yet, so none is a panel."""

from __future__ import annotations

from shims.launch import Product

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def is_panel(arguments: Sequence[str]) -> bool:
    del arguments
    return False


PRODUCT = Product("grok", program="grok", bundled=(), installed=(".grok/bin/grok",), is_panel=is_panel)
