"""What goes to a model and what comes back: the one seam between this library and any provider."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import field
from typing import Final, Literal, Protocol, get_args

from pydantic import BaseModel, ConfigDict, Field

from agentscope_rx.frozen import frozen
from agentscope_rx.history import History
from agentscope_rx.messages import Msg
from agentscope_rx.usage import ChatUsage


@frozen
class ToolSpec:
    """A tool as the model sees it.

    Args:
        name: What the model calls it.
        description: What it is for.
        parameters: The JSON schema of its arguments.
        strict: Whether the provider is to hold the model to the schema.
    """

    name: str
    description: str
    parameters: Mapping[str, object]
    strict: bool | None = None


class GenerateOptions(BaseModel):
    """How the model is to answer; None leaves a matter to the provider.

    Args:
        temperature: Randomness, from 0.
        top_p: Share of the probability mass to draw from.
        top_k: Number of candidates to draw from.
        max_tokens: Limit of the answer, in tokens.
        max_completion_tokens: The same under the name that newer models want.
        frequency_penalty: Malus for frequent words.
        presence_penalty: Malus for words already used.
        thinking_budget: Limit of the thinking, in tokens.
        reasoning_effort: How hard to think, in the provider's words.
        seed: For answers that can be repeated.
        tool_choice: `auto`, `none`, `required`, or the name of a tool.
        parallel_tool_calls: Whether several calls may be made at once.
        response_format: The provider's own description of the wanted form.
        additional_headers: Further HTTP headers. These three are in no `repr`: they may hold keys.
        additional_body: Further fields of the request's body; they win over all others.
        additional_query: Further parameters of the URL.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=1)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    thinking_budget: int | None = Field(default=None, ge=0)
    reasoning_effort: str | None = None
    seed: int | None = None
    tool_choice: str | None = None
    parallel_tool_calls: bool | None = None
    response_format: Mapping[str, object] | None = None
    additional_headers: Mapping[str, str] = Field(default_factory=dict[str, str], repr=False)
    additional_body: Mapping[str, object] = Field(default_factory=dict[str, object], repr=False)
    additional_query: Mapping[str, str] = Field(default_factory=dict[str, str], repr=False)

    def merged(self, other: GenerateOptions) -> GenerateOptions:
        """These options, overruled by those that `other` sets."""
        return self.model_copy(update={name: getattr(other, name) for name in other.model_fields_set})

    @property
    def output_limit(self) -> int | None:
        """How long an answer they ask for, in tokens; None = they do not say."""
        return max(self.max_tokens or 0, self.max_completion_tokens or 0) or None

    def with_output_limit(self, tokens: int) -> GenerateOptions:
        """These options, asking for an answer of at most so many tokens."""
        tokens = min(tokens, self.output_limit or tokens)
        return self.model_copy(update={"max_tokens": tokens, "max_completion_tokens": None})


class ExecutionConfig(BaseModel):
    """How long a model call may take and how often it is tried; all times in seconds.

    Args:
        timeout: For the whole call, its retries apart.
        connect_timeout: Until there is a connection.
        first_chunk_timeout: Until the answer begins.
        chunk_timeout: Between two pieces of the answer.
        max_attempts: Attempts in all; 1 = no retry. Only a call whose answer has not begun is tried again, after the
            wait that the provider asks for; not at all where that is longer than `timeout`.
        initial_backoff: Before the second attempt.
        max_backoff: At most between two attempts.
        backoff_multiplier: How much longer each next wait is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    timeout: float = Field(default=300.0, gt=0)
    connect_timeout: float = Field(default=10.0, gt=0)
    first_chunk_timeout: float = Field(default=120.0, gt=0)
    chunk_timeout: float = Field(default=60.0, gt=0)
    max_attempts: int = Field(default=3, ge=1)
    initial_backoff: float = Field(default=2.0, ge=0)
    max_backoff: float = Field(default=30.0, ge=0)
    backoff_multiplier: float = Field(default=2.0, ge=1)


Purpose = Literal["reasoning", "summary", "memory"]
PURPOSES: Final[tuple[Purpose, ...]] = get_args(Purpose)


@frozen
class ModelRequest:
    """A request, laid out in the order in which the model reads it but not yet written as bytes.

    Args:
        call_id: One id for this call in events, manifest and log.
        purpose: What the call is for.
        system: The one System message's text; empty = none.
        conversation: The history.
        tail: Messages of this request alone, after the conversation.
        tools: The tools on offer.
        options: How to answer.
        connect_timeout: Seconds until there must be a connection.
    """

    call_id: str
    purpose: Purpose = "reasoning"
    system: str = ""
    conversation: History = field(default_factory=History)
    tail: tuple[Msg, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    options: GenerateOptions = field(default_factory=GenerateOptions)
    connect_timeout: float = 10.0

    @property
    def messages(self) -> tuple[Msg, ...]:
        """All messages in order, the System message first."""
        system = (Msg.system(self.system),) if self.system else ()
        return (*system, *self.conversation.messages, *self.tail)


@frozen(kw_only=False)
class CallDelta:
    """A piece of a tool call.

    Args:
        index: Which call of this answer, counted from 0 in the order of their first appearance.
        id: The call's id, where this piece brings it.
        name: The tool's name, where this piece brings it.
        arguments: A piece of the arguments' JSON text.
        opaque: What the provider wants back with this call, word for word.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""
    opaque: Mapping[str, object] | None = None


@frozen(kw_only=False)
class ModelChunk:
    """A piece of a model's answer.

    Args:
        text: A piece of the answer's text.
        thinking: A piece of the thinking.
        calls: Pieces of tool calls.
        usage: What the call consumed; the last one counts.
        finish_reason: Why the model stopped, in the provider's words.
        opaque: What the provider wants back with this answer, word for word.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[CallDelta, ...] = ()
    usage: ChatUsage | None = None
    finish_reason: str | None = None
    opaque: Mapping[str, object] | None = None


class Model(Protocol):
    """A language model: one method, and three facts about it.

    A model whose provider holds answers to a JSON schema has a property `json_schema` that is true.

    `stream` raises a `ProviderError` for a failure of the provider, and releases its connection when the iterator
    is closed.
    """

    @property
    def name(self) -> str:
        """The model's name, as events and manifests show it."""
        ...

    @property
    def context_window(self) -> int | None:
        """How many tokens a request and its answer may have together; None = not known."""
        ...

    @property
    def max_output_tokens(self) -> int | None:
        """How many tokens an answer may have; None = not known."""
        ...

    def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        """Ask the model, and give its answer piece by piece."""
        ...
