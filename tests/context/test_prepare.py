"""agent.prepare(): the request that a call would send, without sending it or changing anything."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reactivex import operators as ops

from agentscope_rx import (
    ContextBlock,
    ContextPolicy,
    ContextRequest,
    InMemoryStore,
    InMemoryWorkspace,
    Msg,
    PreparedRequest,
)
from agentscope_rx.errors import (
    ContextBudgetExceeded,
    ContextError,
    InvalidOption,
    InvalidToolPairs,
    SourceFailed,
    StateUnreadable,
)
from agentscope_rx.history import History
from agentscope_rx.messages import GenerateReason, TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.models.chat_body import encode
from agentscope_rx.models.providers import COMPATIBLE
from agentscope_rx.operators import Step, effect_operator, history_operator
from agentscope_rx.testing import a_history, run_virtual, text
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import FakeProvider
from agentscope_rx.tools import tool
from tests.context.support import ALICE, WIDE, builder_before, data_of, harness, model_of, one_manifest, scripted
from tests.strategies import conversations
from tests.virtual import virtual


async def source(request: ContextRequest) -> list[ContextBlock]:
    return [ContextBlock.runtime("now", "it is open"), ContextBlock.reference("format", "three columns")]


async def fails(request: ContextRequest) -> list[ContextBlock]:
    raise LookupError("gone")


@tool
def look() -> str:
    """Look."""
    return "seen"


def files_below(folder: Path) -> dict[str, tuple[bytes, int]]:
    """What is there, with the moments of change."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def body_of(prepared: PreparedRequest) -> bytes:
    """What would go over the wire."""
    assert prepared.request is not None
    return encode(prepared.request, model="fake-model", provider=COMPATIBLE)


# -- the same request ---------------------------------------------------------------------------------------


async def test_it_is_the_request_that_is_sent_next(tmp_path: Path) -> None:
    """Byte for byte, with everything in it, in the middle of a session; and its manifest is that of the call."""
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    (tmp_path / "MEMORY.md").write_text("Alice likes tea. " * 3_000)
    options: dict[str, Any] = {
        "workspace": tmp_path,
        "context_sources": {"s": source},
        "tools": [look],
        "sys_prompt": "You help.",
        "instructions": {"tone": "Be brief."},
        "context_policy": ContextPolicy(max_input_tokens=1_000),
    }
    async with harness(fake.tool_calls(("c1", "look", "{}")), "done", "done", **options) as (agent, provider):
        await agent.call("first", ALICE)
        prepared = await agent.prepare("second", ALICE)
        assert len(provider.requests) == 2
        manifest = await one_manifest(agent, "second")
    assert prepared.error is None
    assert body_of(prepared) == provider.requests[2].raw
    ours, theirs = data_of(prepared.manifest), data_of(manifest)
    assert ours["changes"]
    for data in (ours, theirs):
        data.pop("callId")
        for item in data["items"]:
            if item["sourceType"] == "message":
                item["sourceId"] = ""  # a new message has a new id each time
        data["prefix"].pop("firstDifferent")
        data["measuredRatio"] = None
    assert ours == theirs


@given(conversations(answered=True, max_turns=6), st.text(max_size=20).filter(str.strip))
def test_what_is_prepared_is_what_is_sent(said: tuple[Msg, ...], question: str) -> None:
    """Invariant, for any conversation and question: the body that would be sent is that of the call."""
    agent = scripted(tools=[look], context_sources={"s": source}, window=WIDE).build()

    async def both() -> PreparedRequest:
        await agent.observe([replace(message, id="") for message in said], ALICE)
        prepared = await agent.prepare(question, ALICE)
        await agent.call(question, ALICE)
        return prepared

    prepared = run_virtual(both)
    (sent,) = model_of(agent).requests
    assert prepared.request is not None
    assert body_of(prepared) == encode(sent, model="fake-model", provider=COMPATIBLE)
    assert prepared.manifest.estimated_input_tokens > 0


@virtual
async def test_nothing_need_be_said() -> None:
    """Without input it is the request that would go on with the session; without a session there is none."""
    agent = scripted(workspace=InMemoryWorkspace({"MEMORY.md": "Tea."})).build()
    empty = await agent.prepare(None, ALICE)
    assert isinstance(empty.error, ContextError)
    assert "give the call an input" in str(empty.error)
    prompted = await scripted(context_sources={"s": source}).build().prepare(None, ALICE)
    assert prompted.error is None  # what a source reports may be all there is to answer
    await agent.call("first", ALICE)
    prepared = await agent.prepare(None, ALICE)
    assert prepared.request is not None
    assert [message.text for message in prepared.request.conversation.messages] == ["first", "done"]


# -- nothing is changed -------------------------------------------------------------------------------------


async def test_it_changes_nothing(tmp_path: Path) -> None:
    """No model is called; state, files, their moments and the next prefix are as before."""
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    async with harness("one", "two", workspace=tmp_path, context_sources={"s": source}) as (agent, provider):
        await agent.call("first", ALICE)
        before, state = files_below(tmp_path), await agent.state(ALICE)
        os.utime(tmp_path / "AGENTS.md", (1, 1))
        before = files_below(tmp_path)
        for _ in range(3):
            await agent.prepare("second", ALICE)
        assert files_below(tmp_path) == before
        assert (await agent.state(ALICE)).to_json() == state.to_json()
        assert len(provider.requests) == 1
        manifest = await one_manifest(agent, "second")
    assert manifest.prefix.exchanges == 1
    said = [message["content"] for message in provider.requests[1].messages]
    assert said.count("second") == 1


async def test_a_new_session_is_not_begun(tmp_path: Path) -> None:
    """No folder and no file is made for it."""
    agent = scripted(workspace=tmp_path).build()
    assert (await agent.prepare("hello", ALICE)).error is None
    assert list(tmp_path.iterdir()) == []


@virtual
async def test_open_calls_are_closed_in_the_request_alone() -> None:
    """As the next call would do it; in the session they stay open."""
    store = InMemoryStore()
    agent = scripted(state_store=store).build()
    asking = Msg.assistant(ToolUseBlock(id="c1", name="look"))
    await agent.observe([Msg.user("go"), asking], ALICE)
    before = (await agent.state(ALICE)).to_json()
    prepared = await agent.prepare("and?", ALICE)
    assert prepared.request is not None
    assert [message.role for message in prepared.request.conversation.messages] == ["USER", "ASSISTANT", "TOOL", "USER"]
    assert (await agent.state(ALICE)).to_json() == before


@virtual
async def test_a_proposal_is_shown_and_not_committed() -> None:
    """The request holds the shortened history, the session the long one; operators see that it is a dry run."""
    seen: list[bool] = []

    @history_operator
    def shorten(history: History, step: Step) -> History:
        seen.append(step.dry_run)
        return history.replace_first(3, Msg.user("A summary."))

    agent = scripted(window=WIDE).pipeline(lambda d: d.insert_before("evict_optional_blocks", shorten)).build()
    await agent.observe(list(a_history(["a", "b", "c", "d"]).messages), ALICE)
    prepared = await agent.prepare("go", ALICE)
    assert prepared.request is not None
    assert [message.text for message in prepared.request.conversation.messages] == ["A summary.", "d", "go"]
    assert [change["operator"] for change in data_of(prepared.manifest)["changes"]] == ["shorten"]
    assert [message.text for message in (await agent.state(ALICE)).context.messages] == ["a", "b", "c", "d"]
    await agent.call("go", ALICE)
    assert seen == [True, False]
    texts = [message.text for message in (await agent.state(ALICE)).context.messages]
    assert texts == ["A summary.", "d", "go", "done"]


@virtual
async def test_it_does_not_wait_for_a_run() -> None:
    """While a call is at work on the session, the next request can be looked at: as the log has the session by then."""
    agent = scripted(text("one").after(5)).build()
    running = asyncio.create_task(agent.acall("first", ALICE))
    await asyncio.sleep(1)
    prepared = await agent.prepare("second", ALICE)
    assert not running.done()
    assert prepared.request is not None
    assert [message.text for message in prepared.request.conversation.messages] == ["first", "second"]
    await running


async def slow(request: ContextRequest) -> list[ContextBlock]:
    await asyncio.sleep(3)
    return []


@virtual
async def test_leaving_leaves_nothing() -> None:
    """A preparation that is cancelled cancels its sources."""
    agent = scripted(context_sources={"s": slow}).build()
    task = asyncio.create_task(agent.prepare("go", ALICE))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# -- what would be refused ----------------------------------------------------------------------------------


@virtual
async def test_an_error_is_returned_with_its_account() -> None:
    """Too large, or a source that fails: no request, the error that the call would raise, and how far it came."""
    large = await scripted(context_policy=ContextPolicy(max_input_tokens=50)).build().prepare("go", ALICE)
    assert large.request is None
    assert isinstance(large.error, ContextBudgetExceeded)
    assert large.manifest.validation == "budget_exceeded"
    failed = await scripted(context_sources={"s": fails}).build().prepare("go", ALICE)
    assert failed.request is None
    assert isinstance(failed.error, SourceFailed)
    assert (failed.manifest.failed_in, failed.manifest.error_code) == ("load_sources", "source_failed")
    timed = scripted(context_sources={"s": slow}).pipeline(lambda d: d.around("prepare", ops.timeout(1))).build()
    assert isinstance((await timed.prepare("go", ALICE)).error, TimeoutError)


@virtual
async def test_an_operator_that_ends_the_run_leaves_no_request() -> None:
    """Then no model would be called, and there is nothing to send."""

    @effect_operator
    def stop(step: Step) -> Step:
        return step.finish("Not today.", GenerateReason.MODEL_STOP)

    agent = scripted().pipeline(lambda d: d.insert_before("validate_request", stop)).build()
    prepared = await agent.prepare("go", ALICE)
    assert (prepared.request, prepared.error) == (None, None)


async def test_what_no_call_would_begin_with_is_raised(tmp_path: Path) -> None:
    """A role that no input has, a result without a call, a state that cannot be read."""
    async with FakeProvider([fake.text("done")]) as provider:
        agent = builder_before(provider, workspace=tmp_path, state_only=True).build()
        with pytest.raises(InvalidOption, match="SYSTEM"):
            await agent.prepare(Msg.system("Obey."), ALICE)
        orphan = Msg.tool(ToolResultBlock(id="c9", name="look", output=(TextBlock(text="x"),)))
        with pytest.raises(InvalidToolPairs):
            await agent.prepare(orphan, ALICE)
        await agent.call("first", ALICE)
        (state,) = tmp_path.rglob("state.json")
        state.write_bytes(b"{")
        with pytest.raises(StateUnreadable):
            await agent.prepare("second", ALICE)


@virtual
async def test_an_observer_is_told_of_it() -> None:
    """A preparation is one, whether anything is sent or not."""
    told: list[object] = []
    policy = ContextPolicy(observer=told.append)
    prepared = await scripted(context_policy=policy).build().prepare("go", ALICE)
    assert told == [prepared.manifest]
