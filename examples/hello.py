"""The shortest agent: ask, watch the answer being written, and ask again in the same session.

python examples/hello.py                                          # scripted: no key, no network
AGENTSCOPE_RX_MODEL=openai:gpt-5-mini python examples/hello.py    # a real model
"""

import asyncio
import os

from agentscope_rx import ReActAgent, RuntimeContext
from agentscope_rx.testing import ScriptedModel, text

SCRIPTED = ScriptedModel([text("A step is ", "one pass ", "through a pipeline."), "What a step is."])

builder = ReActAgent.builder(
    name="guide",
    model=os.environ.get("AGENTSCOPE_RX_MODEL") or SCRIPTED,
    sys_prompt="Answer in one short sentence.",
)
context = RuntimeContext(user_id="alice", session_id="first-steps")


async def main() -> None:
    async with builder.build() as agent:
        async for piece in agent.stream_events("What is a reasoning step?", context).text():
            print(piece, end="", flush=True)
        print()
        reply = await agent.call("What did I ask you?", context)  # the same session: it remembers
        print(reply.text, f"[{reply.reason}]")
        messages = (await agent.state(context)).context.messages
        print("messages in the session:", sum(1 for _ in messages))


if __name__ == "__main__":
    asyncio.run(main())
