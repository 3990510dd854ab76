"""The broker program: ``python -I broker/__main__.py run [--detached]``."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from broker.daemon import run
from broker.paths import find_home

if __name__ == "__main__":
    sys.exit(run(find_home(), detached="--detached" in sys.argv))
