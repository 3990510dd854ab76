"""The MCP process that an agent starts: ``cross-agent mcp``."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from mcp_server.process import main

main(sys.argv[1:])
