"""End all processes that a command has started, also those that went into the background.

Signals reach the process group of the command. A process that leaves the group, as daemons do, is found on Linux
by a mark in the environment that it has inherited. What escapes: there, a process that leaves the group and drops
its environment; on other systems, each that leaves the group; everywhere, what the command has somebody else
start (a service manager, cron, a container), or what runs with the rights of another user.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

#: The variable that marks the processes of one command.
MARK: Final = "AGENTSCOPE_RX_COMMAND"

# A process dies some time after the signal, and one that forks quickly is seen only in the next round.
_ROUNDS: Final = 200
_PAUSE: Final = 0.01


def end_processes(group: int, mark: str) -> bool:
    """Kill the group and all marked processes; blocks until they are gone, at most some seconds.

    Args:
        group: The process group of the command.
        mark: The value of its mark.

    Returns:
        Whether none of those that can be found is left.

    Examples:
        >>> end_processes(process.pid, mark)
        True
    """
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    for _ in range(_ROUNDS):
        if not _kill_marked(f"{MARK}={mark}".encode()):
            return True
        time.sleep(_PAUSE)
    return False


def _kill_marked(variable: bytes) -> bool:
    """Kill each marked process; return whether there was one."""
    found = False
    for entry in _processes():
        with suppress(OSError):
            # The descriptor stands for this very process: its number may pass to another one meanwhile.
            process = os.pidfd_open(int(entry.name))
            try:
                if variable in (entry / "environ").read_bytes().split(b"\0"):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
                    found = True
            finally:
                os.close(process)
    return found


def _processes() -> list[Path]:
    if not hasattr(os, "pidfd_open"):
        return []
    try:
        return [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    except OSError:
        return []
