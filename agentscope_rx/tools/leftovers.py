"""End all processes that a command has started, also those that went into the background.

Signals reach the process group of the command. A process that leaves the group, as daemons do, is found on Linux
by a mark in the environment that it has inherited. What escapes: there, a process that leaves the group and drops
its environment, hides it (as key agents do, from all but root), or goes on in new processes faster than these can be
found; on other systems, each that leaves the group; everywhere, what the command has somebody else start (a service
manager, cron, a container), or what runs with the rights of another user.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path
from typing import Final

#: The variable that marks the processes of one command.
MARK: Final = "AGENTSCOPE_RX_COMMAND"

# A process dies some time after the signal, and one that forks quickly is seen only in the next round.
_ROUNDS: Final = 200
_PAUSE: Final = 0.01
# A process that was listed may have started another one and ended before it was looked at: look once more.
_QUIET: Final = 2
# How many rounds are spent on processes that come and go, which are those of others for the most part.
_MOST_DOUBTS: Final = 50
#: The bit of a process's flags that says that it belongs to the kernel.
_KERNEL: Final = 0x00200000


class _Seen(Enum):
    """What a look at all processes gave; DOUBT if one of ours may have been missed."""

    NONE = auto()
    DOUBT = auto()
    MARKED = auto()


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
    doubts = quiet = 0
    for _ in range(_ROUNDS):
        seen = _kill_marked(f"{MARK}={mark}".encode())
        doubts += seen is _Seen.DOUBT
        quiet = quiet + 1 if seen is _Seen.NONE else 0
        if quiet == _QUIET or doubts > _MOST_DOUBTS:
            return True
        if not quiet:
            time.sleep(_PAUSE)
    return False


def _kill_marked(variable: bytes) -> _Seen:
    seen = [_look_at(entry, variable) for entry in _processes()]
    return max(seen, key=lambda each: each.value, default=_Seen.NONE)


def _look_at(entry: Path, variable: bytes) -> _Seen:
    """Kill a process if it is marked."""
    try:
        # The descriptor stands for this very process: its number may pass to another one meanwhile.
        process = os.pidfd_open(int(entry.name))
    except ProcessLookupError:
        return _Seen.DOUBT  # it may have started another one, after the processes were listed
    except OSError:
        return _Seen.NONE
    try:
        environment = _environment(entry)
        if not environment:
            # While it becomes another program it has neither environment nor arguments, and then both.
            if not (entry / "cmdline").read_bytes():
                return _Seen.DOUBT if _is_alive(entry) else _Seen.NONE
            environment = _environment(entry)
        if variable in environment.split(b"\0"):
            signal.pidfd_send_signal(process, signal.SIGKILL)
            return _Seen.MARKED
        return _Seen.NONE
    except (FileNotFoundError, ProcessLookupError):
        return _Seen.DOUBT
    except OSError:
        return _Seen.NONE  # somebody else's
    finally:
        os.close(process)


def _environment(entry: Path) -> bytes:
    with suppress(ProcessLookupError):  # it has no memory: it is the kernel's, or at its end
        return (entry / "environ").read_bytes()
    return b""


def _is_alive(entry: Path) -> bool:
    """Tell a process of a user from one that has ended and one of the kernel."""
    # After the name in parentheses: the state, and as the seventh field the flags.
    fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
    return fields[0] not in (b"Z", b"X") and not int(fields[6]) & _KERNEL


def _processes() -> list[Path]:
    if not hasattr(os, "pidfd_open"):
        return []
    try:
        return [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    except OSError:
        return []
