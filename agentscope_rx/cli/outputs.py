"""What becomes of the events of a run: lines of JSON, the answer alone, or a live view (`render.py`)."""

from __future__ import annotations

import sys
from typing import Protocol

from agentscope_rx.cli.exit_codes import ExitCode, code_of
from agentscope_rx.cli.plain import harmless_json, plain
from agentscope_rx.events import AgentEvent, AgentResult


class Output(Protocol):
    """Somebody to whom a run is shown."""

    def show(self, event: AgentEvent) -> None:
        """Show one event."""
        ...

    def close(self) -> None:
        """Leave the terminal in order, however the run ended."""
        ...


class JsonOutput:
    """Every event as one line of JSON on stdout, as soon as it happens."""

    def show(self, event: AgentEvent) -> None:
        """Print the event."""
        print(harmless_json(event.to_json().decode()), flush=True)

    def close(self) -> None:
        """Nothing is open."""


class QuietOutput:
    """The answer on stdout, and nothing else."""

    def show(self, event: AgentEvent) -> None:
        """Print the answer, where there is one."""
        if isinstance(event, AgentResult) and code_of(event.result.reason) in (ExitCode.DONE, ExitCode.LIMIT):
            print(plain(event.result.text), flush=True)

    def close(self) -> None:
        """Nothing is open."""


def say(text: str) -> None:
    """Tell the person something that does not belong to the output."""
    print(text, file=sys.stderr, flush=True)
