"""What happens in a run, as values.

Every event of every run is one of the classes below. `AgentEvent` holds what all have in common; an event gets
its id and its moment from the run that emits it. `event.to_json()` and `event_from_json(...)` use the names of
AgentScope: upper-case types and camelCase fields, with absent values left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import field
from datetime import datetime
from functools import cache
from typing import Annotated, ClassVar, Final, Literal, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from pydantic import ConfigDict, Field, PlainSerializer, StrictBool, TypeAdapter
from pydantic.alias_generators import to_camel

from agentscope_rx.frozen import frozen
from agentscope_rx.messages import (
    GenerateReason,
    Msg,
    OutputBlock,
    ToolResultBlock,
    ToolResultState,
    ToolUseBlock,
)
from agentscope_rx.permission_context import PermissionRule
from agentscope_rx.usage import ChatUsage
from agentscope_rx.wire import write

E = TypeVar("E", bound="AgentEvent")
#: In the metadata of an event: what the model call is for that it belongs to, where that is not reasoning.
PURPOSE_KEY: Final = "purpose"
_CAMEL = ConfigDict(alias_generator=to_camel, populate_by_name=True)


@frozen
class Execution:
    """Where an event comes from: which agent, session, turn (one user command) and run (one attempt at it)."""

    __pydantic_config__: ClassVar[ConfigDict] = _CAMEL

    agent_id: str
    session_id: str
    turn_id: str
    run_id: str


@frozen
class AgentEvent:
    """What all events have in common.

    Args:
        id: Set when the event is emitted.
        created_at: The moment it was emitted, by the Runtime's clock.
        source: None for the agent itself; the path of a subagent whose event is passed on.
        call_reply_id: One id for all events of a call.
        execution: Agent, session, turn and run.
        metadata: Further facts; None where there are none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _CAMEL

    id: str = ""
    created_at: datetime | None = None
    source: str | None = None
    call_reply_id: str = ""
    execution: Execution | None = None
    metadata: Mapping[str, object] | None = None

    def to_json(self) -> bytes:
        """The event as one line of JSON."""
        return write(event_adapter(), cast(Event, self))


@frozen
class ReplyEvent(AgentEvent):
    """An event of one stage: a model call or a batch of tool calls, which `reply_id` names."""

    reply_id: str


@frozen
class BlockEvent(ReplyEvent):
    """An event of one block; `block_id` is unique within its stage."""

    block_id: str


@frozen
class ToolEvent(ReplyEvent):
    """An event of one tool call."""

    tool_call_id: str
    tool_call_name: str


# -- the call -----------------------------------------------------------------------------------------------


@frozen
class AgentStart(ReplyEvent):
    """A call begins."""

    type: Literal["AGENT_START"] = "AGENT_START"
    session_id: str
    name: str
    role: str = "assistant"


@frozen
class AgentResult(AgentEvent):
    """A call has its answer."""

    type: Literal["AGENT_RESULT"] = "AGENT_RESULT"
    result: Msg


@frozen
class AgentEnd(ReplyEvent):
    """A call has ended, well or not; nothing of it comes later."""

    type: Literal["AGENT_END"] = "AGENT_END"


@frozen
class ExceedMaxIters(ReplyEvent):
    """The limit of reasoning steps is reached; one more model call, without tools, will end the run."""

    type: Literal["EXCEED_MAX_ITERS"] = "EXCEED_MAX_ITERS"
    max_iters: int
    current_iter: int


@frozen
class RequestStop(AgentEvent):
    """An operator asked to stop early."""

    type: Literal["REQUEST_STOP"] = "REQUEST_STOP"
    reason: str
    generate_reason: GenerateReason


# -- the model call -----------------------------------------------------------------------------------------


@frozen
class ModelCallStart(ReplyEvent):
    """A request goes to the model."""

    type: Literal["MODEL_CALL_START"] = "MODEL_CALL_START"
    model: str


@frozen
class ModelCallEnd(ReplyEvent):
    """The model has answered, or failed: then `metadata["error"]` says how."""

    type: Literal["MODEL_CALL_END"] = "MODEL_CALL_END"
    usage: ChatUsage | None = None


@frozen
class TextBlockStart(BlockEvent):
    """Text begins."""

    type: Literal["TEXT_BLOCK_START"] = "TEXT_BLOCK_START"


@frozen
class TextBlockDelta(BlockEvent):
    """A piece of text."""

    type: Literal["TEXT_BLOCK_DELTA"] = "TEXT_BLOCK_DELTA"
    delta: str


@frozen
class TextBlockEnd(BlockEvent):
    """Text ends."""

    type: Literal["TEXT_BLOCK_END"] = "TEXT_BLOCK_END"


@frozen
class ThinkingBlockStart(BlockEvent):
    """Thinking begins."""

    type: Literal["THINKING_BLOCK_START"] = "THINKING_BLOCK_START"


@frozen
class ThinkingBlockDelta(BlockEvent):
    """A piece of thinking."""

    type: Literal["THINKING_BLOCK_DELTA"] = "THINKING_BLOCK_DELTA"
    delta: str


@frozen
class ThinkingBlockEnd(BlockEvent):
    """Thinking ends."""

    type: Literal["THINKING_BLOCK_END"] = "THINKING_BLOCK_END"


@frozen
class DataBlockStart(BlockEvent):
    """Media that the model makes begin."""

    type: Literal["DATA_BLOCK_START"] = "DATA_BLOCK_START"
    media_type: str


@frozen
class DataBlockDelta(BlockEvent):
    """A piece of media, in base64."""

    type: Literal["DATA_BLOCK_DELTA"] = "DATA_BLOCK_DELTA"
    delta: str


@frozen
class DataBlockEnd(BlockEvent):
    """Media end."""

    type: Literal["DATA_BLOCK_END"] = "DATA_BLOCK_END"


@frozen
class ToolCallStart(ToolEvent):
    """The model begins to write a tool call."""

    type: Literal["TOOL_CALL_START"] = "TOOL_CALL_START"


@frozen
class ToolCallDelta(ToolEvent):
    """A piece of a tool call's arguments, as JSON text."""

    type: Literal["TOOL_CALL_DELTA"] = "TOOL_CALL_DELTA"
    delta: str


@frozen
class ToolCallEnd(ToolEvent):
    """The model has written a tool call."""

    type: Literal["TOOL_CALL_END"] = "TOOL_CALL_END"


@frozen
class HintBlockEvent(BlockEvent):
    """An instruction was put into the loop."""

    type: Literal["HINT_BLOCK"] = "HINT_BLOCK"
    hint: str
    hint_source: str | None = None


# -- tools --------------------------------------------------------------------------------------------------


@frozen
class ToolResultStart(ToolEvent):
    """A tool begins to run, or its result is made without running it."""

    type: Literal["TOOL_RESULT_START"] = "TOOL_RESULT_START"


@frozen
class ToolResultTextDelta(ToolEvent):
    """A piece of a tool's text."""

    type: Literal["TOOL_RESULT_TEXT_DELTA"] = "TOOL_RESULT_TEXT_DELTA"
    delta: str


@frozen
class ToolResultDataDelta(ToolEvent):
    """A block of a tool's result that is not text."""

    type: Literal["TOOL_RESULT_DATA_DELTA"] = "TOOL_RESULT_DATA_DELTA"
    data: OutputBlock


@frozen
class ToolResultEnd(ToolEvent):
    """A tool's result is complete."""

    type: Literal["TOOL_RESULT_END"] = "TOOL_RESULT_END"
    state: ToolResultState


# -- people -------------------------------------------------------------------------------------------------


@frozen
class ConfirmResult:
    """A person's answer to one tool call that had to be confirmed; not an event, but part of one.

    Args:
        confirmed: Whether it may run.
        tool_call: The call, with the arguments that it is to run with.
        rules: What is to hold for later calls.
        reason: Why it was refused, in words for the model.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _CAMEL

    confirmed: StrictBool
    tool_call: ToolUseBlock
    rules: tuple[PermissionRule, ...] | None = None
    reason: str | None = None


@frozen
class RequireUserConfirm(ReplyEvent):
    """Tool calls wait for a person."""

    type: Literal["REQUIRE_USER_CONFIRM"] = "REQUIRE_USER_CONFIRM"
    tool_calls: tuple[ToolUseBlock, ...]


@frozen
class UserConfirmResult(ReplyEvent):
    """A person has answered."""

    type: Literal["USER_CONFIRM_RESULT"] = "USER_CONFIRM_RESULT"
    confirm_results: tuple[ConfirmResult, ...]


@frozen
class RequireExternalExecution(ReplyEvent):
    """Tool calls wait for somebody outside to run them."""

    type: Literal["REQUIRE_EXTERNAL_EXECUTION"] = "REQUIRE_EXTERNAL_EXECUTION"
    tool_calls: tuple[ToolUseBlock, ...]


@frozen
class ExternalExecutionResult(ReplyEvent):
    """Somebody outside has run tool calls."""

    type: Literal["EXTERNAL_EXECUTION_RESULT"] = "EXTERNAL_EXECUTION_RESULT"
    tool_results: tuple[ToolResultBlock, ...]


@frozen
class AllToolsDenied(AgentEvent):
    """Every tool call of a step was denied."""

    type: Literal["ALL_TOOLS_DENIED"] = "ALL_TOOLS_DENIED"
    denied_tool_calls: tuple[ToolUseBlock, ...]


@frozen
class SubagentExposed(AgentEvent):
    """A subagent can be addressed."""

    type: Literal["SUBAGENT_EXPOSED"] = "SUBAGENT_EXPOSED"
    subagent_id: str
    agent_id: str
    session_id: str
    label: str


@runtime_checkable
class HasData(Protocol):
    """A value with a form of its own for JSON, which holds what others may see of it."""

    def to_data(self) -> Mapping[str, object]:
        """That form."""
        ...


def _in_json(value: Mapping[str, object]) -> Mapping[str, object]:
    return {key: each.to_data() if isinstance(each, HasData) else each for key, each in value.items()}


@frozen
class Custom(AgentEvent):
    """Anything else, under a name of its own.

    In process a value may be typed, as the manifest of `context_build` is; in JSON it has the form that its
    `to_data()` gives, and so no text of the request.

    The library sends `model_retry`, `request_retry` and `model_fallback`, and with the context pipeline
    `context_build`, `context_pressure`, `overflow_recovery`, `compaction_start`, `compaction_before_failed`,
    `compaction_end` and `compaction_failed`.
    """

    type: Literal["CUSTOM"] = "CUSTOM"
    name: str
    value: Annotated[Mapping[str, object], PlainSerializer(_in_json)] = field(default_factory=dict[str, object])


Event: TypeAlias = Annotated[
    AgentStart
    | AgentResult
    | AgentEnd
    | ExceedMaxIters
    | RequestStop
    | ModelCallStart
    | ModelCallEnd
    | TextBlockStart
    | TextBlockDelta
    | TextBlockEnd
    | ThinkingBlockStart
    | ThinkingBlockDelta
    | ThinkingBlockEnd
    | DataBlockStart
    | DataBlockDelta
    | DataBlockEnd
    | ToolCallStart
    | ToolCallDelta
    | ToolCallEnd
    | HintBlockEvent
    | ToolResultStart
    | ToolResultTextDelta
    | ToolResultDataDelta
    | ToolResultEnd
    | RequireUserConfirm
    | UserConfirmResult
    | RequireExternalExecution
    | ExternalExecutionResult
    | AllToolsDenied
    | SubagentExposed
    | Custom,
    Field(discriminator="type"),
]


@cache
def event_adapter() -> TypeAdapter[Event]:
    """The reader and writer of events as JSON, built on first use."""
    return TypeAdapter(Event)


def event_from_json(data: bytes | str) -> Event:
    """Read one event from JSON.

    Raises:
        pydantic.ValidationError: The type is unknown or a field is missing; unknown fields are ignored.
    """
    return event_adapter().validate_json(data)


def is_aside(event: AgentEvent) -> bool:
    """Whether an event belongs to a model call beside the conversation: for a summary, or for memory."""
    return event.metadata is not None and PURPOSE_KEY in event.metadata


def stamp(event: E, *, id: str, created_at: datetime, call_reply_id: str, execution: Execution) -> E:
    """Give a fresh event its identity, in place: it has not been seen by anybody yet, and a copy of each delta
    would cost as much as making it. One that was emitted before, a constant of the author's for instance, is copied:
    it belongs to another run, and maybe to another user. A subagent's event that is passed on keeps its identity."""
    if event.id:
        if event.source is not None:
            return event
        event = copy(event)
    set_field = object.__setattr__
    set_field(event, "id", id)
    set_field(event, "created_at", created_at)
    set_field(event, "call_reply_id", call_reply_id)
    set_field(event, "execution", execution)
    return event
