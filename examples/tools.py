"""Functions as tools, of which the model sees name, types and docstring: python examples/tools.py"""

import asyncio
import os

from agentscope_rx import ReActAgent, ToolContext, tool
from agentscope_rx.events import AgentResult, ToolCallEnd, ToolResultEnd, ToolResultTextDelta
from agentscope_rx.testing import ScriptedModel, calls

PRICES = {"apple": 0.4, "pear": 0.6}
SCRIPTED = ScriptedModel(
    [
        calls(("c1", "price", '{"fruit": "apple"}'), ("c2", "price", '{"fruit": "plum"}')),  # two at once
        calls(("c3", "weigh", '{"fruits": ["apple", "pear"]}')),
        "An apple costs 0.40 and there are no plums. Together the fruits weigh 330 g.",
    ]
)


@tool
def price(fruit: str) -> float:
    """Look up what a fruit costs; its name is in the singular."""
    if fruit not in PRICES:
        raise LookupError(f"there is no {fruit}; there are {', '.join(PRICES)}")  # the model reads this and goes on
    return PRICES[fruit]


@tool
async def weigh(fruits: list[str], context: ToolContext) -> str:
    """Weigh some fruits together, in grams."""
    for fruit in fruits:
        context.report(f"{fruit} on the scales\n")  # watchers see it at once; the model gets what is returned
        await asyncio.sleep(0.01)
    return f"{165 * len(fruits)} g"


async def main() -> None:
    model = os.environ.get("AGENTSCOPE_RX_MODEL") or SCRIPTED
    async with ReActAgent.builder(name="grocer", model=model, tools=[price, weigh]).build() as agent:
        async for event in agent.stream_events("What do an apple and a plum cost? Weigh an apple and a pear."):
            match event:
                case ToolCallEnd(tool_call_name=name):
                    print("call  ", name)
                case ToolResultTextDelta(tool_call_name=name, delta=delta):
                    print("result", name, delta.strip())
                case ToolResultEnd(tool_call_name=name, state=state):
                    print("end   ", name, state)
                case AgentResult(result=reply):
                    print("answer", reply.text)
                case _:
                    pass


if __name__ == "__main__":
    asyncio.run(main())
