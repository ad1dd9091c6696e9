"""What stands around the runs of a demo: who plays, what is asked, and what it took."""

from __future__ import annotations

from typing import Any, Final

from agentscope_rx.agent import Agent
from agentscope_rx.cli.conduct import conduct
from agentscope_rx.cli.flow import Flow
from agentscope_rx.cli.outputs import JsonOutput, Output
from agentscope_rx.cli.render import LiveView, new_console
from agentscope_rx.cli.tally import Tally, counted
from agentscope_rx.messages import Msg
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext

_LABEL: Final = 12


class Stage:
    """Shows the runs of a demo, and words about them; with `json` the events alone.

    Args:
        json: Whether events are printed as JSON.
    """

    def __init__(self, *, json: bool) -> None:
        self._console = None if json else new_console()
        self._output: Output = JsonOutput() if self._console is None else LiveView(self._console)
        self._clock = Runtime().clock
        self._began = self._clock.monotonic()
        self.tally = Tally()

    def say(self, text: str, style: str = "", *, indent: int = 0) -> None:
        """Write a paragraph."""
        if self._console is not None:
            flow = Flow(self._console, indent=indent)
            flow.begin(style)
            flow.write(text)
            flow.end()

    def space(self) -> None:
        """Write an empty line."""
        if self._console is not None:
            self._console.print()

    def fact(self, label: str, text: str) -> None:
        """Write a paragraph with a label before it."""
        if self._console is not None:
            from rich.text import Text

            self._console.print(Text(f"  {label:<{_LABEL - 2}}", "dim"), end="")
            flow = Flow(self._console, indent=_LABEL)
            flow.begin(column=_LABEL)
            flow.write(text)
            flow.end()

    def block(self, text: str, style: str = "") -> None:
        """Write lines as they are."""
        if self._console is not None:
            from rich.text import Text

            self._console.print(Text(text, style), soft_wrap=True)

    async def play(self, agent: Agent[Any], task: str) -> Msg:
        """Run a task and show it.

        Args:
            agent: Who does it.
            task: What to do.
        """
        self.fact("task", task)
        return await conduct(agent, task, RuntimeContext(), output=self._output, watchers=(self.tally.count,))

    def summarise(self, note: str = "") -> None:
        """Say what it took.

        Args:
            note: What there is to know about the numbers.
        """
        seconds = self._clock.monotonic() - self._began
        tally = self.tally
        self.space()
        self.block("What it took", "bold")
        self.block(f"  {tally}")
        self.block(f"  {counted(tally.events, 'event')} of {counted(len(tally.kinds), 'kind')} · {seconds:.1f} s{note}")
