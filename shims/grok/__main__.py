"""The Grok shim: ``grok-shim <arguments of grok>``. For now every call goes straight to the real binary."""

import sys

sys.path.insert(0, __file__.rsplit("/", 3)[0])

from shims.start import start


def prepare():  # type: ignore[no-untyped-def]  # typed where it is called
    import os

    from shims.grok.command import PRODUCT
    from shims.launch import become, find_real, no_binary

    real = find_real(PRODUCT, os.environ, os.path.expanduser("~"))
    return (no_binary, (PRODUCT,)) if real is None else (become, (real, sys.argv[1:]))


start("grok", sys.path[0], prepare)
