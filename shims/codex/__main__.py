"""The Codex shim: ``codex-shim <arguments of codex>``."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from shims.codex import command
from shims.launch import become, find_real, no_binary
from shims.program import intercept


def main() -> None:
    arguments = sys.argv[1:]
    real = find_real(command.PRODUCT, os.environ, os.path.expanduser("~"))
    if real is None:
        no_binary(command.PRODUCT)
    if not command.is_panel(arguments):
        become(real, arguments)
    intercept(real, arguments, _attend)


def _attend(relay, observer, real, arguments):  # type: ignore[no-untyped-def]  # typed where it is implemented
    from shims.codex.panel import attend

    return attend(relay, observer, real, arguments)


main()
