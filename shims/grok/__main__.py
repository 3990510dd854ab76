"""The Grok shim: ``grok-shim <arguments of grok>``. For now every call goes straight to the real binary."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from shims.grok.command import PRODUCT
from shims.launch import become, find_real, no_binary

real = find_real(PRODUCT, os.environ, os.path.expanduser("~"))
if real is None:
    no_binary(PRODUCT)
become(real, sys.argv[1:])
