"""How the tests of this folder run a call, and look at what came out."""

from __future__ import annotations

from agentscope_rx.messages import DataBlock, ToolResultState, ToolUseBlock
from agentscope_rx.tools import CancelToken, ToolContext, Toolkit
from agentscope_rx.tools.execution import ToolOutcome, run_call

SUCCESS, ERROR = ToolResultState.SUCCESS, ToolResultState.ERROR


class Watch:
    """The context of a call: what was reported, and the token that may cancel it."""

    def __init__(self) -> None:
        self.reported: list[str | DataBlock] = []
        self.token = CancelToken()

    @property
    def text(self) -> str:
        """All reported texts, joined."""
        return "".join(each for each in self.reported if isinstance(each, str))

    def context(self, call: ToolUseBlock) -> ToolContext:
        """What the tool is told."""
        return ToolContext(call=call, on_report=self.reported.append, cancelled=self.token)


async def run(toolkit: Toolkit, name: str, watch: Watch | None = None, /, **arguments: object) -> ToolOutcome:
    """Run one call, `c1`."""
    call = ToolUseBlock(id="c1", name=name, input=arguments)
    return await run_call(toolkit, call, (watch or Watch()).context(call))


def summary(outcome: ToolOutcome) -> tuple[ToolResultState, str]:
    """State and text of a result, which always has the call's id and name, and is never empty."""
    assert (outcome.result.id, bool(outcome.result.name), bool(outcome.result.output)) == ("c1", True, True)
    return outcome.result.state, outcome.result.text
