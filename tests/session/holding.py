"""A process that has a session: `-m tests.session.holding <place> <lease>`.

It says `begun` when its tool runs, lets the tool end when it gets a line, and says what the call gave.
"""

from __future__ import annotations

import asyncio
import sys

from agentscope_rx.errors import AgentScopeError
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing import calls
from agentscope_rx.tools import tool
from tests.session.support import KEY, agent_on
from tests.stores.places import store_at


@tool
async def work() -> str:
    """Take as long as somebody wants."""
    print("begun", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    return "done"


async def main(place: str, lease: float) -> None:
    """Make one call."""
    script = [calls(("theirs", "work", "{}")), "said there"]
    agent = agent_on(store_at(place), script, tools=[work], lease_seconds=lease)
    try:
        reply = await agent.call("asked there", RuntimeContext(user_id=KEY.user_id, session_id=KEY.session_id))
    except AgentScopeError as error:
        print(type(error).__name__, flush=True)
    else:
        print(reply.text, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2])))
