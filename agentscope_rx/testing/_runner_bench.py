"""What a checked runner gets to work with: an agent whose model and tools do what they are asked, and note it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from agentscope_rx.builder import AgentBuilder
from agentscope_rx.errors import ServerFailed
from agentscope_rx.messages import Role
from agentscope_rx.permission_context import PermissionRule
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.requests import ExecutionConfig, ModelChunk, ModelRequest
from agentscope_rx.runtime import Runtime
from agentscope_rx.stores import SessionStore
from agentscope_rx.testing.scripted_model import calls, text
from agentscope_rx.tools import ToolContext, tool

_VERBS = ("say", "work", "pay", "fail")


class Bench:
    """Model and tools of the agent of one runner. Any of several gives the same answers to the same words.

    Attributes:
        begun: The calls of tools that have begun, by their ids.
        ended: Those that have ended by themselves.
        asked: How many requests the model has had.
        open: Whether the tool `work` may end; one that has begun waits for that.
        failing: Whether the model fails where it is asked to.
    """

    name, context_window, max_output_tokens = "bench", 1_000_000, None

    def __init__(self, *, open: bool = True) -> None:
        self.begun, self.ended, self.asked = list[str](), list[str](), 0
        self.open, self.failing = asyncio.Event(), True
        self._beginning = asyncio.Condition()
        if open:
            self.open.set()

    def builder(self, store: SessionStore) -> AgentBuilder[ReActAgent]:
        """A builder of agents on this bench, with a Runtime of its own, as each process has one."""
        builder = ReActAgent.builder(
            name="checked",
            model=self,
            tools=[self._work(), self._pay()],
            state_store=store,
            state_only=False,
            execution=ExecutionConfig(max_attempts=1),
        )
        return builder.permission_rules([PermissionRule.ask("pay"), PermissionRule.allow("work")]).runtime(Runtime())

    async def at_work(self, count: int) -> None:
        """Wait until so many calls have begun."""
        async with self._beginning:
            await self._beginning.wait_for(lambda: len(self.begun) >= count)

    async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        """What was asked for last: so many calls of `work`, a call of `pay`, a failure; then an answer to it."""
        self.asked += 1
        messages = list(request.messages)
        told = [(at, each.text) for at, each in enumerate(messages) if each.role is Role.USER and each.text]
        at, asked = next((at, said) for at, said in reversed(told) if said.split()[0] in _VERBS)
        done = sum(each.tool_result is not None for each in messages[at:])
        verb, *more = asked.split()
        if verb == "fail" and self.failing:
            raise ServerFailed("the model was asked to fail", status=500)
        wanted = {"work": lambda: int(more[0]), "pay": lambda: 1}.get(verb, lambda: 0)()
        notes = "".join(f", and {said}" for there, said in told if there > at)
        turn = calls((f"{asked}/{done}", verb, "{}")) if done < wanted else text(f"answer to {asked}{notes}")
        for chunk in turn.chunks:
            assert isinstance(chunk, ModelChunk)
            yield chunk

    def _work(self) -> Any:
        @tool
        async def work(context: ToolContext) -> str:
            """Work until it may end."""
            await self._begin(context)
            await self.open.wait()
            self.ended.append(context.call.id)
            return "worked"

        return work

    def _pay(self) -> Any:
        @tool
        async def pay(context: ToolContext) -> str:
            """Pay; somebody is asked before."""
            await self._begin(context)
            self.ended.append(context.call.id)
            return "paid"

        return pay

    async def _begin(self, context: ToolContext) -> None:
        async with self._beginning:
            self.begun.append(context.call.id)
            self._beginning.notify_all()
