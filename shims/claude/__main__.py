"""The Claude Code shim: ``claude-shim [<real claude>] <arguments of claude>``."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from shims.claude import command
from shims.launch import become, no_binary
from shims.program import intercept


def main() -> None:
    real, arguments = command.split(sys.argv[1:], os.path.expanduser("~"))
    if real is None:
        no_binary(command.PRODUCT)
    if not command.is_panel(arguments):
        become(real, arguments)
    intercept(real, arguments, _attend)


def _attend(relay, observer, real, arguments):  # type: ignore[no-untyped-def]  # typed where it is implemented
    from shims.claude.panel import attend

    return attend(relay, observer, real, arguments)


main()
