"""call_model: what goes to the model, what becomes of its answer, and what is recorded of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reactivex import operators as ops

import agentscope_rx.events as ev
from agentscope_rx.blocks import ContextBlock
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import ProviderError, ServerFailed, StreamFailed
from agentscope_rx.history import History
from agentscope_rx.lifting import chain
from agentscope_rx.messages import GenerateReason, Msg, Role
from agentscope_rx.operators import ChunkOperator, call_model
from agentscope_rx.records import ReplyBroken, ReplyRecorded
from agentscope_rx.requests import ExecutionConfig, GenerateOptions, ModelChunk, ModelRequest, ToolSpec
from agentscope_rx.step import Mode, ModelCard, Step
from agentscope_rx.testing import (
    RecordingRun,
    ScriptedModel,
    a_history,
    a_run,
    a_step,
    calls,
    check_operator,
    record,
    text,
)
from agentscope_rx.testing.recorder import Recorded
from agentscope_rx.testing.scripted_model import Scripted
from agentscope_rx.testing.virtual_loop import run_virtual
from agentscope_rx.usage import ChatUsage
from tests.support import type_of
from tests.virtual import virtual

EXECUTION = ExecutionConfig(max_attempts=2)


class Call:
    """One call of a scripted model by the operator."""

    def __init__(self, *script: Scripted, chunks: tuple[ChunkOperator, ...] = (), **fields: Any) -> None:
        self.model = ScriptedModel(script, name="m")
        self.run: RecordingRun = a_run(fields.pop("history", None))
        self.step = a_step(run=self.run, card=ModelCard.of(self.model), **fields)
        self.operator = call_model(execution=EXECUTION, chunks=chunks)

    def subscribed(self) -> Recorded[Step]:
        return record(chain((self.operator,), self.step))

    async def made(self) -> Recorded[Step]:
        return await self.subscribed().ended()

    async def answered(self) -> Step:
        (step,) = (await self.made()).values
        return step

    @property
    def types(self) -> list[str]:
        return [type_of(event) for event in self.run.events]

    @property
    def ended_with(self) -> dict[str, Any]:
        (end,) = [event for event in self.run.events if isinstance(event, ev.ModelCallEnd)]
        return dict(end.metadata or {})


ASKING: list[Scripted] = [
    text("a", "b").after(1),
    calls(("c1", "look", "{}"), text="x"),
    text("", thinking="hm").after(1),
]


@pytest.mark.parametrize("answer", ASKING)
@virtual
async def test_it_keeps_the_rules_of_operators(answer: Scripted) -> None:
    """What holds for every operator, whatever the model answers."""

    def step(history: History) -> Step:
        return a_step(history=history, card=ModelCard.of(ScriptedModel([answer])))

    def boom(chunk: ModelChunk) -> ModelChunk:
        raise LookupError("boom")

    await check_operator(
        lambda: call_model(execution=EXECUTION),
        step=step,
        failing=lambda: call_model(execution=EXECUTION, chunks=[ops.map(boom)]),
    )


# -- what goes out ------------------------------------------------------------------------------------------


@virtual
async def test_the_request_is_the_draft_laid_out() -> None:
    """System first, the conversation, current state, references; tools, options, id and purpose beside them."""
    spec = ToolSpec(name="look", description="Look.", parameters={})
    draft = RequestDraft(
        system=(ContextBlock(id="p", kind="system_input", text="Be brief."),),
        conversation=a_history(["hi", "hello"]),
        transient=(ContextBlock.runtime("now", "noon <b>"),),
        references=(ContextBlock.reference("book", "page 1"),),
        tools=(spec,),
        options=GenerateOptions(temperature=0.5),
    )
    call = Call("ok", draft=draft)
    await call.answered()
    (request,) = call.model.requests
    assert [message.role for message in request.messages] == [
        Role.SYSTEM,
        Role.USER,
        Role.ASSISTANT,
        Role.USER,
        Role.USER,
    ]
    words = [message.text for message in request.messages]
    assert words[:3] == ["Be brief.", "hi", "hello"]
    assert 'source="now"' in words[3]
    assert "noon &lt;b&gt;" in words[3]
    assert 'source="book"' in words[4]
    assert (request.tools, request.options) == ((spec,), draft.options)
    assert (request.call_id, request.purpose) == (call.step.call_id, "reasoning")


@virtual
async def test_the_model_is_that_of_the_steps_card() -> None:
    """A guard may give the step another model: it is asked, and the event says which."""
    call, other = Call("from the usual one"), ScriptedModel(["from the other"], name="other")
    call.step = replace(call.step, card=ModelCard.of(other))
    assert (await call.answered()).reply is not None
    assert (call.model.asked, other.asked) == (0, 1)
    (start,) = [event for event in call.run.events if isinstance(event, ev.ModelCallStart)]
    assert start.model == "other"


# -- what comes back ----------------------------------------------------------------------------------------


@virtual
async def test_an_answer_becomes_events_reply_and_record() -> None:
    """Events in order while it arrives; then the message is recorded, and the step holds it and the new state."""
    usage = ChatUsage(input_tokens=7, output_tokens=2)
    call = Call(text("Hel", "lo", thinking="hm", usage=usage).after(1))
    after = await call.answered()
    assert call.types == [
        *("MODEL_CALL_START", "THINKING_BLOCK_START", "THINKING_BLOCK_DELTA", "THINKING_BLOCK_END"),
        *("TEXT_BLOCK_START", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_DELTA", "TEXT_BLOCK_END", "MODEL_CALL_END"),
    ]
    assert after.reply is not None
    assert (after.reply.text, after.reply.thinking, after.reply.id) == ("Hello", "hm", call.step.call_id)
    assert after.reply.usage == ChatUsage(input_tokens=7, output_tokens=2, time=4.0)
    assert call.run.records == [ReplyRecorded(after.reply)]
    assert after.history is after.state.context is call.run.state.context
    assert after.history.last is not None
    assert after.history.last.messages == (after.reply,)
    assert call.ended_with == {"finish_reason": "stop"}


@virtual
async def test_events_come_when_the_pieces_come() -> None:
    """No piece waits for the next."""
    call = Call(text("a", "b").after(10))
    recorded = call.subscribed()
    await asyncio.sleep(15)
    assert [event.delta for event in call.run.events if isinstance(event, ev.TextBlockDelta)] == ["a"]
    assert call.run.records == []
    await recorded.ended()


@virtual
async def test_tool_calls_become_events_and_blocks() -> None:
    """Parallel calls, in the order of their appearance; arguments parsed, the written text kept."""
    call = Call(calls(("c1", "look", '{"at": 1}'), ("c2", "read", "{}"), text="I look."))
    after = await call.answered()
    assert after.reply is not None
    assert [(each.id, each.name, dict(each.input), each.content) for each in after.reply.tool_calls] == [
        ("c1", "look", {"at": 1}, '{"at": 1}'),
        ("c2", "read", {}, "{}"),
    ]
    for start, end in ((ev.ToolCallStart, ev.ToolCallEnd), (ev.TextBlockStart, ev.TextBlockEnd)):
        opened = sum(isinstance(event, start) for event in call.run.events)
        assert opened == sum(isinstance(event, end) for event in call.run.events)
    assert call.run.state.context.open_calls == after.reply.tool_calls


@virtual
async def test_an_empty_answer_is_no_part_of_the_history() -> None:
    """It is recorded as broken, the step has it, and the history is as before."""
    call = Call(text("", " "))
    after = await call.answered()
    assert after.reply is not None
    assert isinstance(call.run.records[0], ReplyBroken)
    assert list(after.history.messages) == list(call.step.history.messages)


@virtual
async def test_the_conclusion_says_why_the_call_ended() -> None:
    """The one call after the limit of steps."""
    after = await Call("in sum", mode=Mode.CONCLUDE).answered()
    assert after.reply is not None
    assert after.reply.reason is GenerateReason.MAX_ITERATIONS


# -- failures -----------------------------------------------------------------------------------------------


@virtual
async def test_a_retry_is_told_before_it_is_made() -> None:
    """model_retry with its number, wait and kind; one start, one end, one reply."""
    call = Call(ServerFailed("down"), "up")
    recorded = call.subscribed()
    await asyncio.sleep(1)
    (told,) = [event for event in call.run.events if isinstance(event, ev.Custom)]
    assert (told.name, told.value) == ("model_retry", {"attempt": 2, "wait": 2.0, "error": "server"})
    assert call.model.asked == 1
    await recorded.ended()
    assert call.model.asked == 2
    assert [call.types.count(kind) for kind in ("MODEL_CALL_START", "MODEL_CALL_END")] == [1, 1]


@virtual
async def test_a_failure_before_the_answer_records_nothing() -> None:
    """The end says what it was; the error is the provider's own."""
    failed = ServerFailed("down")
    call = Call(failed, failed)
    recorded = await call.made()
    assert recorded.error is failed
    assert call.ended_with == {"error": {"class": "ServerFailed", "kind": "server"}}
    assert call.run.records == []


@virtual
async def test_a_failure_in_the_middle_closes_what_is_open_and_keeps_the_fragment_in_the_record() -> None:
    """Balanced events, a ReplyBroken with what had arrived, an unchanged history, and no second attempt."""
    call = Call(text("Hel", "lo").failing(StreamFailed("broken")), "never")
    recorded = await call.made()
    assert isinstance(recorded.error, StreamFailed)
    assert call.types[-2:] == ["TEXT_BLOCK_END", "MODEL_CALL_END"]
    (broken,) = call.run.records
    assert isinstance(broken, ReplyBroken)
    assert (broken.fragment.text, broken.kept) == ("Hello", None)
    assert call.run.state.context is call.step.history
    assert call.model.asked == 1


@virtual
async def test_an_error_that_is_not_the_providers_says_so() -> None:
    """A bug in a model: its class is in the event, its text is not."""
    call = Call(KeyError("secret"))
    recorded = await call.made()
    assert isinstance(recorded.error, KeyError)
    assert call.ended_with == {"error": {"class": "KeyError", "kind": "error"}}


# -- chunk operators ----------------------------------------------------------------------------------------


@virtual
async def test_chunk_operators_are_applied_in_order() -> None:
    """What they let through is what is shown and recorded."""

    def louder(chunk: ModelChunk) -> ModelChunk:
        return replace(chunk, text=chunk.text.upper())

    def without_b(chunk: ModelChunk) -> bool:
        return chunk.text != "B"

    call = Call(text("a", "b", "c"), chunks=(ops.map(louder), ops.filter(without_b)))
    after = await call.answered()
    assert after.reply is not None
    assert after.reply.text == "AC"
    assert [event.delta for event in call.run.events if isinstance(event, ev.TextBlockDelta)] == ["A", "C"]


@virtual
async def test_an_idle_time_out_on_chunks_is_a_timeout_error_that_says_where() -> None:
    """ops.timeout restarts with each piece; it closes the model's stream."""
    call = Call(text("a", "b").after(10), chunks=(ops.timeout(9),))
    recorded = await call.made()
    assert isinstance(recorded.error, TimeoutError)
    assert "chunk operator of call_model" in str(recorded.error)
    assert recorded.signals[0].time == 9.0
    assert call.ended_with == {"error": {"class": "TimeoutError", "kind": "error"}}
    assert (await Call(text("a", "b").after(8), chunks=(ops.timeout(9),)).answered()).reply is not None


# -- leaving ------------------------------------------------------------------------------------------------


@virtual
async def test_what_was_seen_of_an_answer_stays() -> None:
    """Left in the middle: balanced events that say so, and the text so far is in the history with its reason."""
    call = Call(text("Hel", "lo", thinking="hm").after(10))
    recorded = call.subscribed()
    await asyncio.sleep(25)
    recorded.dispose()
    assert call.types[-2:] == ["TEXT_BLOCK_END", "MODEL_CALL_END"]
    assert call.ended_with == {"error": {"class": "Interrupted", "kind": "interrupted"}}
    (broken,) = call.run.records
    assert isinstance(broken, ReplyBroken)
    assert (broken.fragment.thinking, broken.fragment.text) == ("hm", "Hel")
    kept = call.run.state.context.last
    assert kept is not None
    (message,) = kept.messages
    assert (message.text, message.thinking, message.reason) == ("Hel", "", GenerateReason.INTERRUPTED)
    recorded.dispose()
    assert len(call.run.records) == 1


@virtual
async def test_half_a_tool_call_is_not_kept() -> None:
    """Nothing of it could ever be answered; without visible text the history is as before."""
    call = Call(calls(("c1", "look", "{}"), ("c2", "look", "{}")).after(10))
    recorded = call.subscribed()
    await asyncio.sleep(15)
    recorded.dispose()
    (broken,) = call.run.records
    assert isinstance(broken, ReplyBroken)
    assert [each.id for each in broken.fragment.tool_calls] == ["c1"]
    assert call.run.state.context is call.step.history
    assert call.types[-2:] == ["TOOL_CALL_END", "MODEL_CALL_END"]


@settings(deadline=None)
@given(
    pieces=st.lists(
        st.one_of(
            st.builds(ModelChunk, text=st.sampled_from(["", "a", " "])),
            st.builds(ModelChunk, thinking=st.sampled_from(["", "t"])),
        ),
        max_size=8,
    ),
    leave_at=st.integers(0, 90),
)
def test_whenever_it_ends_its_events_are_balanced(pieces: list[ModelChunk], leave_at: int) -> None:
    """Invariant: complete, failed or left, every start has its end, MODEL_CALL_END is last, and what is kept in the
    history is no more than the text that was shown."""

    class Slow(ScriptedModel):
        async def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
            for piece in pieces:
                await asyncio.sleep(10)
                yield piece

    call = Call("")
    call.step = replace(call.step, card=ModelCard.of(Slow([])))

    async def main() -> None:
        recorded = call.subscribed()
        await asyncio.sleep(leave_at + 5)
        recorded.dispose()

    run_virtual(main)
    opened = [kind.removesuffix("_START") for kind in call.types if kind.endswith("_START")]
    closed = [kind.removesuffix("_END") for kind in call.types if kind.endswith("_END")]
    assert sorted(opened) == sorted(closed)
    assert (call.types[0], call.types[-1]) == ("MODEL_CALL_START", "MODEL_CALL_END")
    shown = "".join(event.delta for event in call.run.events if isinstance(event, ev.TextBlockDelta))
    kept = [message.text for message in call.run.state.context.messages][2:]
    assert kept == ([shown] if shown.strip() else [])


@virtual
async def test_a_providers_error_keeps_its_own_note() -> None:
    """The operator's name is on it, once."""
    recorded = await Call(ServerFailed("down"), ServerFailed("down")).made()
    assert isinstance(recorded.error, ProviderError)
    assert recorded.error.__notes__ == ["in the operator 'call_model'"]


@virtual
async def test_an_answer_is_the_agents() -> None:
    """Name, id and moment of the message are those of the run."""
    call = Call(text("a").after(30))
    (step,) = (await call.made()).values
    assert step.reply == replace(
        Msg.assistant("a", name="agent"), id="call-1", timestamp="2026-01-01 00:00:00.000", usage=None
    )
