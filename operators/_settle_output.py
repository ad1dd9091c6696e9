"""`settle_output`: is the answer of the form that was wanted? `_offer_output` has asked for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, cast

from agentscope_rx.condensing import STRUCTURED_OUTPUT
from agentscope_rx.edits import Edit
from agentscope_rx.errors import OutputInvalid
from agentscope_rx.events import Custom
from agentscope_rx.history import Exchange
from agentscope_rx.lifting import Operator, effect_operator
from agentscope_rx.messages import (
    GenerateReason,
    MetadataKey,
    Msg,
    TextBlock,
    ThinkingBlock,
    ToolResultState,
    ToolUseBlock,
    timestamp_of,
)
from agentscope_rx.records import HistoryEdited, ReplyRecorded
from agentscope_rx.step import Mode, Step
from agentscope_rx.tools.outputs import OUTPUT_TOOL, RESPONSE, OutputSpec
from agentscope_rx.usage import total
from agentscope_rx.wire import from_json, to_json

_ATTEMPTS: Final = "output_attempts"
_MOST_ATTEMPTS: Final = 4
_MOST_SHOWN: Final = 20


def settle_output(*, output: OutputSpec) -> Operator:
    """End the run with an answer of the wanted form; ask again for one of another form.

        --s-----------|
        settle_output
        --t-----------|     t is finished
        --O                 events: O structured_output

        --s-----------|
        settle_output     the answer has another form
        --t-----------|     t.correction says what was wrong

    What the model wrote on the way to the answer is no part of the history afterwards: in its place stands the answer
    alone. Calls of other tools stay.

    Args:
        output: The form.

    Emits:
        `CUSTOM structured_output` with the `output` and the `message` that the call returns.

    Raises:
        OutputInvalid: The limit of steps was reached, or four answers were wrong.
    """

    @effect_operator
    def settle_output(step: Step) -> Step:
        reply = step.reply
        if reply is None:
            return step
        asked = [call for call in reply.tool_calls if call.name == OUTPUT_TOOL]
        accepted = next((call for call in asked if _accepted(step, call)), None)
        if accepted is not None:
            return _settled(step, reply, accepted.input[RESPONSE])
        wrong: Sequence[str] = ()
        if not reply.tool_calls:
            value, wrong = output.read(reply.text)
            if not wrong:
                return _settled(step, reply, value)
        if asked or wrong:
            attempts = [*_attempts(step), reply.id]
            step.run.materials[_ATTEMPTS] = attempts
        if step.mode is Mode.CONCLUDE or len(_attempts(step)) == _MOST_ATTEMPTS:
            raise _refused(step, wrong)
        return replace(step, correction="\n".join(f"- {each}" for each in wrong[:_MOST_SHOWN]))

    return settle_output


def _accepted(step: Step, call: ToolUseBlock) -> bool:
    newest = step.state.context.last
    results = [message.tool_result for message in newest.messages[1:]] if newest is not None else []
    return any(result and result.id == call.id and result.state is ToolResultState.SUCCESS for result in results)


def _attempts(step: Step) -> list[str]:
    """The ids of the replies of this run that were no answer."""
    return cast("list[str]", step.run.materials.get(_ATTEMPTS, []))


def _refused(step: Step, wrong: Sequence[str]) -> OutputInvalid:
    count = len(_attempts(step))
    _clear(step, _attempts(step))
    why = "; ".join(wrong[:_MOST_SHOWN])
    limit = "the limit of steps was reached" if step.mode is Mode.CONCLUDE else f"{count} answers were of another form"
    return OutputInvalid(f"there is no answer of the form that was asked for: {limit}" + (f" ({why})" if why else ""))


def _settled(step: Step, reply: Msg, value: object) -> Step:
    """The step that ends the run with the answer, which takes the place of all attempts at it."""
    ids = {*_attempts(step), reply.id}
    attempts = [exchange.messages[0] for exchange in step.state.context if exchange.id in ids]
    stays = any(call.name != OUTPUT_TOOL for call in reply.tool_calls)
    text = TextBlock(text=reply.text if not reply.tool_calls else to_json(value).decode())
    metadata = {MetadataKey.STRUCTURED_OUTPUT: value}
    answer = replace(
        reply,
        id=step.run.runtime.ids.new_id("message") if stays else reply.id,
        content=(*reply.blocks(ThinkingBlock)[-1:], text),
        metadata={**reply.metadata, **metadata} if not reply.tool_calls else metadata,
        usage=total(each.usage for each in attempts if each.usage is not None),
    ).with_reason(GenerateReason.STRUCTURED_OUTPUT)
    _clear(step, ids)
    state = step.run.record(ReplyRecorded(answer))
    told = {"output": value, "message": from_json(answer.to_json())}
    step.emit(Custom(name=STRUCTURED_OUTPUT, value=told))
    settled = replace(step, reply=answer, state=state, history=state.context)
    return settled.finish(None, GenerateReason.STRUCTURED_OUTPUT)


def _clear(step: Step, ids: Sequence[str] | set[str]) -> None:
    """Take attempts out of the history; what else was called in them stays."""
    found = [exchange for exchange in step.run.state.context if exchange.id in ids]
    if found:
        at = timestamp_of(step.run.runtime.clock.now())
        step.run.record(HistoryEdited(tuple(Edit((each,), _without_attempt(each)) for each in found), at=at))


def _without_attempt(exchange: Exchange) -> tuple[Exchange, ...]:
    head, *results = exchange.messages
    asked = {call.id for call in head.tool_calls if call.name == OUTPUT_TOOL}
    if len(asked) == len(head.tool_calls):
        return ()
    content = tuple(each for each in head.content if not (isinstance(each, ToolUseBlock) and each.id in asked))
    kept = [message for message in results if message.tool_result is None or message.tool_result.id not in asked]
    return (Exchange(replace(head, content=content), *kept),)
