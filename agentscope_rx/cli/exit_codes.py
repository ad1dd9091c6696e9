"""How a command ends, as the number that the shell sees."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from agentscope_rx.messages import GenerateReason


class ExitCode(IntEnum):
    """What the process exits with."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    WAITING = 3
    LIMIT = 4
    INTERRUPTED = 130


_OF_REASON: Final[Mapping[GenerateReason, ExitCode]] = {
    GenerateReason.TOOL_SUSPENDED: ExitCode.WAITING,
    GenerateReason.PERMISSION_ASKING: ExitCode.WAITING,
    GenerateReason.MAX_ITERATIONS: ExitCode.LIMIT,
    GenerateReason.INTERRUPTED: ExitCode.INTERRUPTED,
    GenerateReason.EMPTY_REPLY: ExitCode.FAILED,
}


def code_of(reason: GenerateReason) -> ExitCode:
    """The exit code of a run that ended with a result.

    Args:
        reason: Why the run ended.

    Examples:
        >>> code_of(GenerateReason.MODEL_STOP), code_of(GenerateReason.MAX_ITERATIONS)
        (<ExitCode.DONE: 0>, <ExitCode.LIMIT: 4>)
    """
    return _OF_REASON.get(reason, ExitCode.DONE)
