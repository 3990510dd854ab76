"""``python -I broker/cli/__main__.py``: the command line from a checkout."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from broker.cli.entry import main

if __name__ == "__main__":
    main()
