"""How something that a tool ran has ended, for those who take its result as evidence."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from agentscope_rx.frozen import frozen

#: The key of a result's metadata under which a tool may say how what it ran has ended; see `ExecutionDetails`.
EXECUTION_DETAILS: Final = "execution_details"


class ExecutionOutcome(StrEnum):
    """Whether what a tool ran did what it should."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    PARTIAL = "PARTIAL"
    UNKNOWN = "UNKNOWN"


@frozen
class ExecutionDetails:
    """How something that a tool ran has ended; a tool puts it into its result's metadata, as plain data.

    Args:
        kind: What was run, such as `shell`.
        outcome: Whether it did what it should.
        exit_code: Its exit code; None = not known.
        output_truncated: Whether the result holds only a part of its output.
    """

    kind: str
    outcome: ExecutionOutcome = ExecutionOutcome.UNKNOWN
    exit_code: int | None = None
    output_truncated: bool = False
