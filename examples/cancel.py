"""Four ways to end a run early; after each, the next call on the session works.

python examples/cancel.py
"""

import asyncio
import os
from contextlib import aclosing

from agentscope_rx import ReActAgent, RuntimeContext, iterate
from agentscope_rx.events import AgentResult, TextBlockDelta
from agentscope_rx.testing import ScriptedModel, text

LONG = text(*(f"{number} " for number in range(1, 1001))).after(0.005)  # takes five seconds, if it may
SCRIPTED = ScriptedModel([LONG, LONG, LONG, LONG, "I am still here."])

builder = ReActAgent.builder(name="counter", model=os.environ.get("AGENTSCOPE_RX_MODEL") or SCRIPTED)
context = RuntimeContext(session_id="counting")
TASK = "Count to 1000, in digits, with blanks between."


async def main() -> None:
    async with builder.build() as agent:
        async with aclosing(iterate(agent.stream_events(TASK, context))) as events:
            async for event in events:
                if isinstance(event, TextBlockDelta):
                    print("left after", repr(event.delta))
                    break  # cancels the run, and the end of the block waits until all of it has ended

        async for event in agent.stream_events(TASK, context):
            if isinstance(event, TextBlockDelta):
                agent.interrupt(context)  # from anywhere: the run ends with what it has, and with a result
            elif isinstance(event, AgentResult):
                print("interrupted:", event.result.reason)

        try:
            async with asyncio.timeout(0.05):
                await agent.call(TASK, context)
        except TimeoutError:
            print("timed out")

        task = asyncio.create_task(agent.acall(TASK, context))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task])
        print("cancelled:", task.cancelled())

        print((await agent.call("Are you there?", context)).text)


if __name__ == "__main__":
    asyncio.run(main())
