"""agentscope_rx with its own model class over the openai SDK; one builder and one model a name, as a server has them."""
import asyncio
import importlib
import itertools
import json

from agentscope_rx import Msg, ReActAgent, RuntimeContext
from agentscope_rx.events import TextBlockDelta, ToolCallStart, ToolResultEnd
from agentscope_rx.messages import TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.models import OpenAIChatModel

from rig import SYSTEM, Peer


def to_message(m):
    if m["role"] == "user":
        return Msg.user(m["content"])
    if m["role"] == "tool":
        return Msg.tool(ToolResultBlock(id=m["tool_call_id"], name="lookup", output=(TextBlock(text=m["content"]),)))
    if m.get("tool_calls"):
        return Msg.assistant(*(ToolUseBlock(
            id=c["id"], name=c["function"]["name"], input=json.loads(c["function"]["arguments"]),
            content=c["function"]["arguments"]) for c in m["tool_calls"]))
    return Msg.assistant(m["content"])


class AgentscopeRx(Peer):
    LABEL = "agentscope_rx"
    VENV = "agentscope_rx"
    DISTS = ("agentscope-rx", "openai")
    IMPORT = "from agentscope_rx import ReActAgent, RuntimeContext, tool; from agentscope_rx.models import OpenAIChatModel; import openai"
    CONTEXT = ("no compaction in this version, so `roomy` is the default; max_iters=100000 in all workloads, "
               "since the default of 10 would end the longer ones")
    SUPPORTS = {"W1", "W2", "W3", "W4", "W6"}
    MODEL = OpenAIChatModel
    CLIENT = "openai"

    def __init__(self, base_url):
        importlib.import_module(self.CLIENT)      # the model does so at its first request: it belongs into W6's RSS
        self.base_url = base_url
        self.models = {}
        self.agents = []
        self.number = itertools.count()
        self.builder = ReActAgent.builder(name="bench", sys_prompt=SYSTEM, max_iters=100_000)

    def model(self, name):
        if name not in self.models:
            self.models[name] = self.MODEL(name, base_url=self.base_url, api_key="sk-fake")
        return self.models[name]

    def agent(self, model, tool=None, context=None):
        agent = self.builder.model(self.model(model)).tools([tool] if tool else []).build()
        self.agents.append(agent)
        return agent

    async def session(self, agent, history):
        ctx = RuntimeContext(session_id=f"session-{next(self.number)}")
        if history:
            await agent.observe([to_message(m) for m in history], ctx)
        return ctx

    async def turn(self, agent, session, prompt, seen):
        ended = asyncio.get_running_loop().create_future()

        def on_next(event):
            seen.events += 1
            if isinstance(event, TextBlockDelta):
                if event.delta:
                    seen.deltas += 1
            elif isinstance(event, ToolCallStart):
                seen.tool_calls += 1
            elif isinstance(event, ToolResultEnd):
                seen.tool_results += 1

        agent.stream_events(prompt, session).subscribe(on_next, ended.set_exception, lambda: ended.set_result(None))
        await ended

    async def close(self):
        for agent in self.agents:
            await agent.close()


PEER = AgentscopeRx
