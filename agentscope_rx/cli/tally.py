"""What a run has cost so far, counted from its events."""

from __future__ import annotations

import agentscope_rx.events as ev
from agentscope_rx.messages import ToolResultState
from agentscope_rx.usage import ChatUsage


class Tally:
    """Counts the events of runs.

    Attributes:
        events: All events.
        kinds: Their types.
        steps: Reasoning steps, which are the model calls of the agent.
        retries: Further attempts at model calls.
        tool_calls: Tool calls with a result.
        failures: Those of them that gave an error.
        usage: Tokens of all model calls that reported any.
    """

    def __init__(self) -> None:
        self.events = self.steps = self.retries = self.tool_calls = self.failures = 0
        self.kinds: set[str] = set()
        self.usage = ChatUsage()

    @property
    def requests(self) -> int:
        """How often the model was asked, further attempts included."""
        return self.steps + self.retries

    def count(self, event: ev.AgentEvent) -> None:
        """Count one event."""
        self.events += 1
        self.kinds.add(type(event).__name__)
        match event:
            case ev.ModelCallStart():
                self.steps += 1
            case ev.ModelCallEnd(usage=ChatUsage() as usage):
                self.usage += usage
            case ev.ToolResultEnd(state=state):
                self.tool_calls += 1
                self.failures += state is ToolResultState.ERROR
            case ev.Custom(name="model_retry"):
                self.retries += 1
            case _:
                pass

    def __str__(self) -> str:
        failed = f" ({self.failures} failed)" if self.failures else ""
        return (
            f"{counted(self.steps, 'step')} · {counted(self.tool_calls, 'tool call')}{failed} · "
            f"{self.usage.input_tokens:,} tokens in, {self.usage.output_tokens:,} out · "
            f"{counted(self.requests, 'request')}"
        )


def counted(count: int, what: str) -> str:
    """A number with its noun.

    Examples:
        >>> counted(1, "step"), counted(3, "step")
        ('1 step', '3 steps')
    """
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"
