"""Work that goes on when nobody waits for it: submit, steer, watch, and come back in another process.

python examples/background.py
"""

import asyncio
import tempfile
from contextlib import aclosing

from agentscope_rx import HarnessAgent, RuntimeContext, tool
from agentscope_rx.background import AgentSession, InProcessRunner
from agentscope_rx.events import AgentEnd, TextBlockDelta, ToolResultEnd
from agentscope_rx.testing import ScriptedModel, calls

alice = RuntimeContext(user_id="alice", session_id="change-42")
tests_begun = asyncio.Event()


@tool
async def run_tests() -> str:
    """Run the tests of the export."""
    tests_begun.set()
    await asyncio.sleep(0.1)
    return "3 failed"


async def show(session: AgentSession) -> None:
    async with aclosing(aiter(session.events())) as events:  # from the log and on, in any process
        async for each in events:
            if isinstance(each.event, ToolResultEnd):
                print("tool", each.event.tool_call_name, each.event.state.value)
            elif isinstance(each.event, TextBlockDelta):
                print("text", each.event.delta)
            elif isinstance(each.event, AgentEnd):
                return


async def main(workspace: str) -> None:
    builder = HarnessAgent.builder(name="desk", tools=[run_tests], workspace=workspace)
    model = ScriptedModel([calls(("c1", "run_tests", "{}")), "Three."])
    async with InProcessRunner(builder.model(model)) as runner:
        session = runner.session(alice)
        task = await session.submit("Look at the export.", key="request-17")  # stored; twice is once
        await tests_begun.wait()
        await session.steer("Only say how many tests fail.")
        await show(session)
        print("task", (await task).status.value)

    async with InProcessRunner(builder.model(ScriptedModel(["Fixed."]))) as runner:  # as another process would
        session = runner.session(alice)
        report = await (await session.submit("Fix them."))
        print("then", report.reply and report.reply.text)
        print("said", [message.text for message in await session.transcript() if message.text])


with tempfile.TemporaryDirectory() as folder:
    asyncio.run(main(folder))
