"""Whose memory it is: who shares the files of a workspace shares what is remembered in them."""

from __future__ import annotations

from datetime import timedelta

from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing import ScriptedModel, calls
from tests.memory.support import TODAY, Ledger, Writer, finished, prompts, remembering
from tests.virtual import virtual

ALICE = RuntimeContext(user_id="alice", session_id="s1")
BOB = RuntimeContext(user_id="bob", session_id="s1")


@virtual
async def test_users_do_not_see_each_others_facts() -> None:
    """Neither in a request, nor by a tool, nor through the model that keeps the memory; what all share is seen."""
    files = Ledger({"MEMORY.md": "- the office is in Bonn\n"})
    looks = calls(("c1", "memory_search", '{"query": "secret"}'))
    own = ScriptedModel(["hello", "hello", looks, "nothing", "hello"])
    writer = Writer(["- secret of alice", "- secret of bob"])
    agent = remembering(writer, files=files, isolation="user").model(own).build()
    for context in (ALICE, BOB, BOB, ALICE):
        await agent.call("Hello.", context)
        await finished(agent)
    result = str([*own.requests[3].conversation.messages][-1])
    assert "secret of bob" in result
    assert "secret of alice" not in result
    assert not any("alice" in prompt for prompt in prompts(writer)[1:3])
    assert all("in Bonn" in prompt for prompt in prompts(writer))
    assert await files.text("MEMORY.md") == "- the office is in Bonn\n"
    assert await files.text(TODAY) == ""


@virtual
async def test_each_user_has_a_memory_made_of_their_own() -> None:
    """It begins as that of all, which stays as it is; the old days of all are not moved by one of them."""
    shared = {"MEMORY.md": "- the office is in Bonn\n", "memory/2025-01-01.md": "- old\n"}
    files = Ledger(shared, due=True)
    writer = Writer(["- likes tea", "- the office is in Bonn\n- old\n- likes tea"])
    own = ScriptedModel(["hello"] * 3)
    memory = {"daily_file_retention_days": 30, "consolidation_min_gap": timedelta(0)}
    agent = remembering(writer, files=files, isolation="user", memory=memory).model(own).build()
    await agent.call("Hello.", ALICE)
    await finished(agent)
    for context in (ALICE, BOB):
        await agent.call("And?", context)
        await finished(agent)
    shown = ["".join(message.text for message in request.tail) for request in own.requests]
    assert ["likes tea" in each for each in shown] == [False, True, False]
    assert {path: await files.text(path) for path in shared} == shared


@virtual
async def test_a_gap_holds_for_those_who_share_a_memory() -> None:
    """One user's consolidation puts off no other's."""
    files = Ledger({"memory/2025-12-31.md": "- old\n"}, due=True)
    writer = Writer(["- a", "- b"])
    agent = remembering(writer, files=files, isolation="user", memory={"flush_trigger": "never"}).build()
    for context in (ALICE, ALICE, BOB):
        await agent.call("Hello.", context)
        await finished(agent)
    assert len(writer.requests) == 2
