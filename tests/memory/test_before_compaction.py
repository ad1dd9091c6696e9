"""Before messages give way to a summary their facts are written down, and no step waits for that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agentscope_rx.errors import ContextOverflow, ServerFailed
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.messages import Msg
from agentscope_rx.testing import ScriptedModel
from tests.memory.support import ALICE, NOTHING, TODAY, Ledger, Writer, finished, heard, prompts, remembering, told
from tests.virtual import virtual

SMALL: dict[str, Any] = {"trigger_messages": 4, "keep_tokens": 0, "keep_messages": 1, "prune": None}


def compacting(writer: Any, *, files: Ledger | None = None, **compaction: Any) -> HarnessBuilder:
    """Agents that compact soon, whose memory has nothing to do at the end of calls."""
    summaries = ScriptedModel(["notes"] * 9, name="summariser")
    builder = remembering(writer, files=files or Ledger()).disable_memory_hooks()
    return builder.compaction(**{**SMALL, "model": summaries, "min_gain_tokens": 1, **compaction})


SAID = [Msg.user("my cat is Tom " * 40), Msg.assistant("I see " * 40), Msg.user("and I live in Bonn " * 40)]


@virtual
async def test_what_gives_way_is_read_first() -> None:
    """All of it, and nothing that stays; also where nothing is done at the end of calls."""
    files, writer = Ledger(), Writer(["- has a cat"])
    agent = compacting(writer, files=files).build()
    await agent.observe(SAID, ALICE)
    events = await heard(agent, "Now the last.")
    assert [each["status"] for each in told(events, "compaction_end")] == ["completed"]
    (prompt,) = prompts(writer)
    assert all(word in prompt for word in ("Tom", "I see", "Bonn"))
    assert "Now the last." not in prompt
    assert told(events, "memory_flush") == [{"trigger": "compaction:messages", "path": TODAY, "facts": 1, "calls": 1}]
    assert "- has a cat" in await files.text(TODAY)


@virtual
async def test_no_step_waits() -> None:
    """The reply is there while the memory's model still thinks."""
    writer = Writer()
    writer.hold()
    agent = compacting(writer).build()
    await agent.observe(SAID, ALICE)
    assert (await agent.call("Now the last.", ALICE)).text == "done"
    assert asyncio.get_running_loop().time() == 0
    writer.let_go.set()
    await finished(agent)
    assert len(writer.requests) == 1


@virtual
async def test_it_can_be_left_out() -> None:
    """By `flush_before_compact` of the compaction."""
    writer = Writer()
    agent = compacting(writer, flush_before_compact=False).build()
    await agent.observe(SAID, ALICE)
    assert told(await heard(agent), "compaction_end")
    assert writer.requests == []


@pytest.mark.parametrize("answer", [ServerFailed("down"), ""])
@virtual
async def test_the_compaction_goes_on_without_it(answer: Any) -> None:
    """Case O35: it is best effort."""
    files = Ledger({"MEMORY.md": "- likes tea\n"})
    agent = compacting(Writer([answer]), files=files).build()
    await agent.observe(SAID, ALICE)
    events = await heard(agent)
    assert told(events, "compaction_end")
    assert bool(told(events, "memory_failed")) is isinstance(answer, Exception)
    assert (await files.text("MEMORY.md"), await files.text(TODAY)) == ("- likes tea\n", "")


@virtual
async def test_summaries_are_not_read_and_nothing_is_read_twice() -> None:
    """What one compaction has read the next does not; what is behind it is read by the end of the call."""
    writer = Writer()
    agent = compacting(writer).memory_hooks(True).build()
    await agent.observe(SAID, ALICE)
    for question in ("Question A.", "Question B.", "Question C.", "Question D."):
        await agent.call(question, ALICE)
        await finished(agent)
    read = "".join(prompt.partition("<conversation>")[2] for prompt in prompts(writer))
    assert "notes" not in read
    assert read.count("Tom") == 40
    assert [read.count(f"Question {letter}.") for letter in "ABCD"] == [1, 1, 1, 1]


@virtual
async def test_a_providers_refusal_asks_for_it_too() -> None:
    """The compaction of an overflow is one like others."""
    writer = Writer([NOTHING])
    own = ScriptedModel([ContextOverflow("too long"), "done"])
    agent = compacting(writer, trigger_messages=0).model(own).build()
    await agent.observe(SAID, ALICE)
    events = await heard(agent, "Now the last.")
    assert [each["trigger"] for each in told(events, "compaction_end")] == ["overflow"]
    assert [each["trigger"] for each in told(events, "memory_flush")] == ["compaction:overflow"]
    assert "Tom" in prompts(writer)[0]
