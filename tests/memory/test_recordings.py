"""What goes on beside a run is in no recording of it, and a replay does nothing of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from agentscope_rx import HarnessAgent, InMemoryWorkspace, RuntimeContext, shut_down
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.messages import Msg
from agentscope_rx.replay import Recorder, replay
from agentscope_rx.testing import ScriptedModel
from tests.memory.support import Writer, text_of

ALICE = RuntimeContext(session_id="s1")


def remembering(files: InMemoryWorkspace, writer: Writer) -> HarnessBuilder:
    """Agents that remember all they can: at the end of calls, and before each compaction."""
    small: dict[str, Any] = {"trigger_messages": 3, "keep_tokens": 0, "keep_messages": 1, "min_gain_tokens": 1}
    return (
        HarnessAgent.builder(name="a", model=ScriptedModel(["An answer. " * 100] * 9), workspace=files)
        .compaction(model=ScriptedModel(["notes"] * 9), **small)
        .memory(model=writer)
    )


async def record(path: Path, files: InMemoryWorkspace, writer: Writer) -> None:
    """Record calls, one of which is listened to with all that belongs to the memory."""
    async with Recorder(path) as recorder:
        builder = recorder.watch(remembering(files, writer))
        async with builder.build() as agent:
            await agent.observe(Msg.user("my cat is Tom " * 40), ALICE)
            for _ in range(3):
                await agent.call("Hello.", ALICE)
            heard = [event async for event in agent.stream_events("Bye.", ALICE, purposes=("reasoning", "memory"))]
        assert any((event.metadata or {}).get("purpose") == "memory" for event in heard)
        await shut_down(builder.shared_runtime)


def test_a_recording_replays_whatever_the_memory_does(tmp_path: Path) -> None:
    """Requests and events are the recorded ones to the byte; the replay asks no model for facts and writes no file."""
    files, writer = InMemoryWorkspace(), Writer(["- has a cat", "- says hello"])
    asyncio.run(record(tmp_path / "a.jsonl", files, writer))
    assert writer.asked > 2
    empty, unused = InMemoryWorkspace(), Writer()
    replayed = replay(tmp_path / "a.jsonl", remembering(empty, unused))
    assert replayed.same, str(replayed)
    assert any(request.purpose == "summary" for run in replayed.runs for request in run.requests)
    assert not any(request.purpose == "memory" for run in replayed.runs for request in run.requests)
    assert unused.asked == 0
    assert asyncio.run(empty.list()) == ()
    assert "has a cat" in asyncio.run(text_of(files, "MEMORY.md")) + "".join(
        asyncio.run(text_of(files, str(entry.path))) for entry in asyncio.run(files.list("memory"))
    )
