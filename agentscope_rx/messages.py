"""Messages and the blocks they are made of.

A `Msg` is a value. One that a user makes has neither id nor timestamp; it gets both from the Runtime when a
session accepts it, so that equal input gives equal messages and a recorded run can be played again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from enum import StrEnum
from functools import cache
from typing import Annotated, ClassVar, Final, Literal, NoReturn, TypeAlias, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from agentscope_rx.errors import OutputInvalid
from agentscope_rx.frozen import frozen
from agentscope_rx.usage import ChatUsage
from agentscope_rx.wire import write

B = TypeVar("B")
T = TypeVar("T")


class _Nothing(dict[str, object]):
    """An empty dict that stays empty; a mapping proxy could not be written as JSON."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise TypeError("metadata and arguments of messages cannot be changed in place; make a new message")

    __setitem__ = __ior__ = setdefault = update = _refuse  # type: ignore[assignment]


#: The empty mapping that all values share.
NOTHING: Final[Mapping[str, object]] = _Nothing()


def _nothing() -> Mapping[str, object]:
    return NOTHING


class Role(StrEnum):
    """Who speaks in a message."""

    USER = "USER"
    ASSISTANT = "ASSISTANT"
    SYSTEM = "SYSTEM"
    TOOL = "TOOL"


class GenerateReason(StrEnum):
    """Why a call ended with the message that it returned."""

    MODEL_STOP = "MODEL_STOP"
    TOOL_CALLS = "TOOL_CALLS"
    STRUCTURED_OUTPUT = "STRUCTURED_OUTPUT"
    TOOL_SUSPENDED = "TOOL_SUSPENDED"
    REASONING_STOP_REQUESTED = "REASONING_STOP_REQUESTED"
    ACTING_STOP_REQUESTED = "ACTING_STOP_REQUESTED"
    PERMISSION_ASKING = "PERMISSION_ASKING"
    ALL_TOOLS_DENIED = "ALL_TOOLS_DENIED"
    INTERRUPTED = "INTERRUPTED"
    MAX_ITERATIONS = "MAX_ITERATIONS"
    EMPTY_REPLY = "EMPTY_REPLY"


class ToolCallState(StrEnum):
    """How far a tool call has come."""

    PENDING = "pending"
    ASKING = "asking"
    ALLOWED = "allowed"
    SUBMITTED = "submitted"
    FINISHED = "finished"


class ToolResultState(StrEnum):
    """How a tool call ended."""

    SUCCESS = "success"
    ERROR = "error"
    INTERRUPTED = "interrupted"
    DENIED = "denied"
    RUNNING = "running"


class MetadataKey:
    """Keys that the library itself reads or writes in the metadata of messages, and of tool results (`OBSERVATION`)."""

    GENERATE_REASON: Final = "agentscope_generate_reason"
    SYNTHETIC: Final = "agentscope_synthetic"
    REMINDER_KIND: Final = "agentscope_reminder_kind"
    OPAQUE: Final = "agentscope_opaque"
    STRUCTURED_OUTPUT: Final = "_structured_output"
    CONFIRM_RESULTS: Final = "agentscope_confirm_results"
    CONFIRM_REPLY_ID: Final = "agentscope_confirm_request_reply_id"
    OBSERVATION: Final = "observation"
    EXTERNAL_REPLY_ID: Final = "agentscope_external_execution_request_reply_id"


#: The key of `ToolUseBlock.metadata` under which arguments lie that are no JSON object.
INVALID_ARGUMENTS: Final = "invalid_arguments"

#: For values whose JSON has the names of their fields also inside of values whose JSON is in camel case.
_OWN_NAMES: Final = ConfigDict()


# -- blocks -------------------------------------------------------------------------------------------------


@frozen
class URLSource:
    """Media that lie somewhere else."""

    __pydantic_config__: ClassVar[ConfigDict] = _OWN_NAMES

    type: Literal["url"] = "url"
    url: str
    mime_type: str | None = None


@frozen
class Base64Source:
    """Media that are part of the message."""

    __pydantic_config__: ClassVar[ConfigDict] = _OWN_NAMES

    type: Literal["base64"] = "base64"
    media_type: str
    data: str


Source: TypeAlias = Annotated[URLSource | Base64Source, Field(discriminator="type")]


@frozen
class TextBlock:
    """Plain text."""

    type: Literal["text"] = "text"
    text: str


@frozen
class ThinkingBlock:
    """What the model thought. `metadata` holds what the provider wants back word for word."""

    type: Literal["thinking"] = "thinking"
    thinking: str
    metadata: Mapping[str, object] = field(default_factory=_nothing)


@frozen
class DataBlock:
    """An image, a sound or a file."""

    type: Literal["data"] = "data"
    source: Source
    id: str = ""
    name: str | None = None


@frozen
class ToolUseBlock:
    """A tool call that the model asks for.

    Args:
        id: The provider's id of the call; its result carries the same.
        name: The tool's name, exactly as the model wrote it.
        input: The arguments, parsed; empty where `content` is no JSON object.
        content: The arguments as the model wrote them, where they are a JSON object.
        metadata: What the provider wants back word for word, and `invalid_arguments` with the raw text where it
            could not be parsed.
        state: How far the call has come.
    """

    type: Literal["tool_use"] = "tool_use"
    id: str
    name: str
    input: Mapping[str, object] = field(default_factory=_nothing)
    content: str | None = None
    metadata: Mapping[str, object] = field(default_factory=_nothing)
    state: ToolCallState = ToolCallState.PENDING


@frozen
class HintBlock:
    """An instruction that was put into the loop."""

    type: Literal["hint"] = "hint"
    id: str
    hint: str
    source: str | None = None


@frozen
class ToolResultBlock:
    """What a tool call gave. One TOOL message holds exactly one."""

    type: Literal["tool_result"] = "tool_result"
    id: str
    name: str
    output: tuple[OutputBlock, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=_nothing)
    state: ToolResultState = ToolResultState.SUCCESS

    @property
    def text(self) -> str:
        """The text blocks of the output, joined by newlines."""
        return "\n".join(block.text for block in self.output if isinstance(block, TextBlock))


OutputBlock: TypeAlias = Annotated[TextBlock | DataBlock, Field(discriminator="type")]
ContentBlock: TypeAlias = Annotated[
    TextBlock | ThinkingBlock | DataBlock | ToolUseBlock | ToolResultBlock | HintBlock,
    Field(discriminator="type"),
]

_ALLOWED: Final[Mapping[Role, tuple[type, ...]]] = {
    Role.USER: (TextBlock, DataBlock),
    Role.SYSTEM: (TextBlock,),
}


# -- messages -----------------------------------------------------------------------------------------------


@frozen
class Msg:
    """One message of a conversation.

    Args:
        role: Who speaks.
        content: The blocks; a USER message may hold text and data, a SYSTEM message only text.
        name: The speaker's name, where there is one.
        id: Empty until a session accepts the message.
        metadata: Facts about the message that no model sees.
        timestamp: When a session accepted it, `YYYY-MM-DD hh:mm:ss.mmm` in UTC; empty before.
        usage: What the model call that wrote it consumed.

    Raises:
        ValueError: The role may not hold one of the blocks.

    Examples:
        >>> Msg.user("What is new?").text
        'What is new?'
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    id: str = ""
    name: str | None = None
    role: Role = Role.USER
    content: tuple[ContentBlock, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=_nothing)
    timestamp: str = ""
    usage: ChatUsage | None = None

    def __post_init__(self) -> None:
        allowed = _ALLOWED.get(self.role)
        if allowed is None:
            return
        for block in self.content:
            if not isinstance(block, allowed):
                raise ValueError(f"a {self.role} message may not hold a {type(block).__name__}")

    @classmethod
    def user(cls, *content: str | ContentBlock, name: str | None = None) -> Msg:
        """Make a USER message of texts and data blocks."""
        return cls(role=Role.USER, content=_blocks(content), name=name)

    @classmethod
    def assistant(cls, *content: str | ContentBlock, name: str | None = None) -> Msg:
        """Make an ASSISTANT message."""
        return cls(role=Role.ASSISTANT, content=_blocks(content), name=name)

    @classmethod
    def system(cls, text: str, *, name: str | None = None) -> Msg:
        """Make a SYSTEM message."""
        return cls(role=Role.SYSTEM, content=_blocks((text,)), name=name)

    @classmethod
    def tool(cls, result: ToolResultBlock, *, name: str | None = None) -> Msg:
        """Make the TOOL message that holds one result."""
        return cls(role=Role.TOOL, content=(result,), name=name)

    @property
    def text(self) -> str:
        """All text blocks, joined by newlines; empty where there are none."""
        return "\n".join(block.text for block in self.content if isinstance(block, TextBlock))

    @property
    def thinking(self) -> str:
        """All thinking blocks, joined by newlines."""
        return "\n".join(block.thinking for block in self.content if isinstance(block, ThinkingBlock))

    @property
    def tool_calls(self) -> tuple[ToolUseBlock, ...]:
        """The tool calls, in order."""
        return self.blocks(ToolUseBlock)

    @property
    def tool_result(self) -> ToolResultBlock | None:
        """The tool result that a TOOL message holds."""
        for block in self.content:
            if isinstance(block, ToolResultBlock):
                return block
        return None

    @property
    def reason(self) -> GenerateReason:
        """Why the call ended with this message; MODEL_STOP where nothing else is said."""
        return GenerateReason(str(self.metadata.get(MetadataKey.GENERATE_REASON, GenerateReason.MODEL_STOP)))

    def blocks(self, kind: type[B]) -> tuple[B, ...]:
        """The content blocks of one kind, in order."""
        return tuple(block for block in self.content if isinstance(block, kind))

    def with_text(self, text: str) -> Msg:
        """The same message with `text` in the place of all its text blocks; everything else is kept."""
        kept = [block for block in self.content if not isinstance(block, TextBlock)]
        at = next((i for i, block in enumerate(self.content) if isinstance(block, TextBlock)), len(kept))
        return replace(self, content=(*kept[:at], TextBlock(text=text), *kept[at:]))

    def with_metadata(self, **entries: object) -> Msg:
        """The same message with further metadata."""
        return replace(self, metadata={**self.metadata, **entries})

    def with_reason(self, reason: GenerateReason) -> Msg:
        """The same message, saying why the call ended with it."""
        return self.with_metadata(**{MetadataKey.GENERATE_REASON: reason.value})

    def output(self, kind: type[T]) -> T:
        """The structured answer that the message holds.

        Args:
            kind: The type that it is wanted as.

        Raises:
            OutputInvalid: The message holds none, or one of another form.

        Examples:
            reply = await agent.call("Read the invoice.", output=Invoice)
            reply.output(Invoice).total
        """
        if MetadataKey.STRUCTURED_OUTPUT not in self.metadata:
            raise OutputInvalid("this message holds no structured answer: give the call an output=")
        try:
            return TypeAdapter(kind).validate_python(self.metadata[MetadataKey.STRUCTURED_OUTPUT])
        except ValidationError as error:
            raise OutputInvalid(f"the answer is no {kind!r}: {error}") from error

    def to_json(self) -> bytes:
        """The message as compact JSON."""
        return write(message_adapter(), self)

    @classmethod
    def from_json(cls, data: bytes | str) -> Msg:
        """Read a message from JSON; unknown properties are ignored."""
        return message_adapter().validate_json(data)


def _blocks(content: Sequence[str | ContentBlock]) -> tuple[ContentBlock, ...]:
    return tuple(TextBlock(text=block) if isinstance(block, str) else block for block in content)


def timestamp_of(moment: datetime) -> str:
    """Write a moment the way `Msg.timestamp` holds it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


@cache
def message_adapter() -> TypeAdapter[Msg]:
    """The reader and writer of messages as JSON, built on first use."""
    return TypeAdapter(Msg)
