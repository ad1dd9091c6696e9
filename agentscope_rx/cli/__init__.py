"""The command line: `agentscope-rx run`, `record`, `replay`, `what-if`, `context`, `sessions` and `demo`."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the entry point of `agentscope-rx` and of `python -m agentscope_rx`.

    Args:
        arguments: The arguments; None = those of the process.

    Returns:
        The exit code: 0 done, 1 failed, 2 usage or configuration, 3 waiting for a person, 4 limit of steps reached,
        130 interrupted.
    """
    try:
        import cyclopts as cyclopts
        import rich as rich
    except ImportError:
        from agentscope_rx.errors import MissingExtra

        print(f"error: {MissingExtra('the command line', 'cli')}", file=sys.stderr)
        return 2
    from agentscope_rx.cli.commands import execute

    return execute(arguments)
