"""The Claude Code shim: ``claude-shim [<real claude>] <arguments of claude>``."""

import sys

sys.path.insert(0, __file__.rsplit("/", 3)[0])

from shims.start import start


def prepare():  # type: ignore[no-untyped-def]  # typed where it is called
    import os

    from shims.claude import command
    from shims.launch import become, no_binary

    real, arguments = command.split(sys.argv[1:], os.path.expanduser("~"))
    if real is None:
        return no_binary, (command.PRODUCT,)
    if not command.is_panel(arguments):
        return become, (real, arguments)
    from shims.program import intercept

    return intercept, (real, arguments, attend)


def attend(relay, observer, real, arguments):  # type: ignore[no-untyped-def]  # typed where it is implemented
    from shims.claude.panel import attend

    return attend(relay, observer, real, arguments)


start("claude", sys.path[0], prepare)
