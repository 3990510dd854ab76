"""The Grok shim: ``grok-shim <arguments of grok>``."""

import sys

sys.path.insert(0, __file__.rsplit("/", 3)[0])

from shims.start import start


def prepare():  # type: ignore[no-untyped-def]  # typed where it is called
    import os

    from shims.grok import command
    from shims.launch import become, find_real, no_binary

    arguments = sys.argv[1:]
    panel = command.is_panel(arguments)
    real = find_real(command.PRODUCT, os.environ, os.path.expanduser("~"), remember=not panel)
    if real is None:
        return no_binary, (command.PRODUCT,)
    if not panel:
        return become, (real, arguments)
    from shims.program import intercept

    return intercept, (real, arguments, attend)


def attend(relay, observer, real, arguments):  # type: ignore[no-untyped-def]  # typed where it is implemented
    from shims.grok.panel import attend

    return attend(relay, observer, real, arguments)


start("grok", sys.path[0], prepare)
