"""A process that adds to a session beside others: `-m tests.session.observing <folder> <name> <times>`."""

from __future__ import annotations

import asyncio
import sys

from agentscope_rx.errors import StateConflict
from agentscope_rx.messages import Msg
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import ConflictPolicy
from agentscope_rx.stores import JsonFileStore
from agentscope_rx.testing import ScriptedModel


async def observe(folder: str, name: str, times: int) -> None:
    """Add messages, each until it is saved."""
    agent = ReActAgent.builder(
        name="a1",
        model=ScriptedModel([]),
        state_store=JsonFileStore(folder),
        conflict_policy=ConflictPolicy.APPEND_MERGE,
    ).build()
    for number in range(times):
        while True:
            try:
                await agent.observe(Msg.user(f"{name}{number}"), RuntimeContext(user_id="alice", session_id="s1"))
                break
            except StateConflict:  # the second in a row
                continue


if __name__ == "__main__":
    asyncio.run(observe(sys.argv[1], sys.argv[2], int(sys.argv[3])))
