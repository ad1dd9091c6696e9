"""A process that works until it is asked to end: `-m tests.stopping <folder>`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.shutdown import shut_down_on_signals
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.tools import tool


async def work(folder: Path) -> None:
    """Answer a question with a tool that is done only when the process has been asked to end."""
    runtime = Runtime()
    async with shut_down_on_signals(runtime, grace=30) as asked:

        @tool
        async def dig() -> str:
            """Dig."""
            print("digging", flush=True)
            await asked.wait()
            return "gold"

        model = ScriptedModel([calls(("c1", "dig", "{}")), "never asked"])
        builder = HarnessAgent.builder(name="a1", model=model, workspace=folder, tools=[dig], runtime=runtime)
        result = await builder.build().call("Dig.", RuntimeContext(session_id="s1"))
    print(result.reason.value, len(model.requests), flush=True)


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1])))
