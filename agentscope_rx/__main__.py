"""`python -m agentscope_rx` is the command line."""

import sys

from agentscope_rx.cli import main

if __name__ == "__main__":
    sys.exit(main())
