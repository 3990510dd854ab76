"""The Claude Code shim: ``claude-shim [<real claude>] <arguments of claude>``."""

import sys

sys.path.insert(0, __file__.rsplit("/", 3)[0])


def run() -> None:
    import os

    from shims.claude import command
    from shims.launch import become, no_binary
    from shims.loops import Loop

    loop = Loop(command.PRODUCT.name, os.environ)
    real, arguments = command.split(sys.argv[1:], os.path.expanduser("~"), loop.left_out)
    if real is None:
        no_binary(command.PRODUCT, loop)
    if loop.replaces or not command.is_panel(arguments):  # whoever launched that stands before us as it is
        become(loop, real, arguments)
    from shims.program import intercept

    intercept(loop, real, arguments, attend)


def attend(relay, observer, real, arguments):  # type: ignore[no-untyped-def]  # typed where it is implemented
    from shims.claude.panel import attend

    return attend(relay, observer, real, arguments)


run()
