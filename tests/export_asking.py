"""The first stage of the export fix, as a process that is killed at its question.

    python -m tests.export_asking MODEL_URL FOLDER WINDOW

The examples have to be on its path. It prints the type of each event, or its own name, and stays at the question.
"""

from __future__ import annotations

import asyncio
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from agentscope_rx import HttpxChatModel
from agentscope_rx.events import Custom
from agentscope_rx.harness_builder import HarnessBuilder


def export_builder(url: str, folder: Path, window: int) -> HarnessBuilder:
    """The agent of the example, with a model of this window; a process that was killed is soon given up."""
    example: Any = import_module("export_agent")
    builder: HarnessBuilder = example.change_assistant(url, folder)
    model = HttpxChatModel("story", base_url=url, api_key="none", context_window=window)
    return builder.model(model).max_iters(400).lease_seconds(0.5)


async def main(url: str, folder: Path, window: int) -> None:
    """Begin the task, and stay at the question."""
    example: Any = import_module("export_fix")
    async with export_builder(url, folder, window).build() as agent:
        await agent.update_tasks(example.ALICE, lambda task: task.begin_task(example.SCOPE, task.revision))
        async for event in agent.stream_events("Fix the report export failure and verify the result.", example.ALICE):
            print(event.name if isinstance(event, Custom) else event.type, flush=True)
            if event.type == "REQUIRE_USER_CONFIRM":
                await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
