"""An agent that may look, and has to ask before it pays: a process of its own, for the case of approvals.

    python -m tests.cases.buyer URL FOLDER ACTION

The action is JSON: `{"say": "buy"}`, `{"say": null}` to go on, or `{"answer": {"b": true}}`. Each event is printed as
its type, then the reply, or the class of the error. What its tools do is written down in the folder, where the session
is kept too. With `"hold": TYPE` it prints the event of that type and stays there until it is killed; with
`"hold": "load"` it stays after the session was loaded, until it is sent a line.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from agentscope_rx.models import HttpxChatModel
from agentscope_rx.permission_context import PermissionRule
from agentscope_rx.react_agent import ReActAgent
from agentscope_rx.requests import ExecutionConfig
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.stores import JsonFileStore, SessionKey, Stored
from agentscope_rx.tools import tool

CTX = RuntimeContext(session_id="s")


class HeldStore(JsonFileStore):
    """Files; whoever has loaded one waits for a line."""

    async def get(self, key: SessionKey, /) -> Stored | None:
        """Load, and wait."""
        stored = await super().get(key)
        print("loaded", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        return stored


def tools(folder: Path) -> list[Any]:
    """Tools that write down that they ran."""
    ran = folder / "ran.txt"

    def note(what: str) -> None:
        with ran.open("a") as file:
            file.write(f"{what}\n")

    @tool
    async def look() -> str:
        """Look."""
        note("look")
        return "1"

    @tool
    async def pay(n: int) -> str:
        """Pay."""
        note(f"pay {n}")
        return "paid"

    return [look, pay]


async def main(url: str, folder: Path, action: dict[str, Any]) -> None:
    """Do one thing, and print what happens."""
    hold = action.get("hold")
    store = (HeldStore if hold == "load" else JsonFileStore)(folder / "sessions")
    builder = ReActAgent.builder(
        name="buyer",
        model=HttpxChatModel("fake-model", base_url=url, api_key="k"),
        execution=ExecutionConfig(max_attempts=1),
        state_store=store,
        tools=tools(folder),
        permission_rules=[PermissionRule.ask("pay"), PermissionRule.allow("look")],
    )
    async with builder.build() as agent:
        answers = action.get("answer")
        events = agent.stream_events(action.get("say"), CTX) if answers is None else agent.respond(CTX, answers)
        try:
            async for event in events:
                print(event.type, flush=True)
                if event.type == hold:
                    await asyncio.Event().wait()
                if event.type == "AGENT_RESULT":
                    print(f"{event.result.reason}: {event.result.text}", flush=True)
        except Exception as error:
            print(type(error).__name__, flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])))
