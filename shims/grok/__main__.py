"""The Grok shim: ``grok-shim <arguments of grok>``."""

import sys

sys.path.insert(0, __file__.rsplit("/", 3)[0])


def run() -> None:
    import os

    from shims.grok import command
    from shims.launch import become, find_real, no_binary
    from shims.loops import Loop

    arguments = sys.argv[1:]
    loop = Loop(command.PRODUCT.name, os.environ)
    panel = command.is_panel(arguments) and not loop.replaces  # whoever launched that stands before us as it is
    real = find_real(command.PRODUCT, os.environ, os.path.expanduser("~"), remember=not panel)
    if real is None:
        no_binary(command.PRODUCT, loop)
    if not panel:
        become(loop, real, arguments)
    from shims.program import intercept

    intercept(loop, real, arguments, attend)


def attend(relay, observer, real, arguments):  # type: ignore[no-untyped-def]  # typed where it is implemented
    from shims.grok.panel import attend

    return attend(relay, observer, real, arguments)


run()
