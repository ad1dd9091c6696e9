"""How histories are made shorter: what a user may choose."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SkipValidation, model_validator

from agentscope_rx.compaction.prompt import MESSAGES_FIELD, SUMMARY_PROMPT
from agentscope_rx.frozen import frozen
from agentscope_rx.history import History
from agentscope_rx.messages import Msg
from agentscope_rx.requests import Model

#: Reading these again is cheap, or their results are what the model is working on.
_NOT_OFFLOADED: Final = frozenset(
    {"read_file", "write_file", "edit_file", "memory_search", "memory_get", "session_search"}
)
_NOT_PRUNED: Final = frozenset({"read_file", "memory_search", "memory_get", "session_search"})


class ToolResultEvictionConfig(BaseModel):
    """When a tool result moves into a file of the workspace, and what stays of it.

    Args:
        max_result_chars: Results with more characters of text move.
        preview_chars: How much of its beginning and of its end stays; 0 = nothing.
        eviction_path: The folder for the files, inside the workspace.
        excluded_tool_names: Tools whose results stay whatever their size.
        retention: How long a file is kept that no message of the session mentions any more; None = for ever. Messages
            that gave way to a summary mention none: undone later, they may point to a file that is gone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    max_result_chars: int = Field(default=80_000, ge=1)
    preview_chars: int = Field(default=2_000, ge=0)
    eviction_path: str = Field(default="large_tool_results", min_length=1)
    excluded_tool_names: frozenset[str] = _NOT_OFFLOADED
    retention: timedelta | None = Field(default=None, gt=timedelta(0))


class TruncateArgsConfig(BaseModel):
    """When long arguments of old tool calls are cut.

    Args:
        trigger_messages: From so many messages on; 0 = their number does not matter.
        trigger_tokens: From so many tokens of conversation on; 0 = they do not matter.
        keep_messages: The newest messages, which are left alone.
        keep_tokens: The newest tokens, which are left alone; where above 0 they count in the place of messages.
        max_arg_length: Longer texts are cut, in characters.
        truncation_text: What stands for the rest.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    trigger_messages: int = Field(default=25, ge=0)
    trigger_tokens: int = Field(default=40_000, ge=0)
    keep_messages: int = Field(default=20, ge=0)
    keep_tokens: int = Field(default=0, ge=0)
    max_arg_length: int = Field(default=2_000, ge=20)
    truncation_text: str = "...(argument truncated)"


class PruneConfig(BaseModel):
    """When the middle of old tool results is left out.

    Args:
        protect_tokens: The newest results, which are left alone, in tokens.
        min_prune_tokens: Nothing is done for less than this.
        max_output_chars: Longer texts keep half of this at the beginning and half at the end.
        excluded_tool_names: Tools whose results are left alone.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    protect_tokens: int = Field(default=40_000, ge=0)
    min_prune_tokens: int = Field(default=20_000, ge=0)
    max_output_chars: int = Field(default=2_000, ge=2)
    excluded_tool_names: frozenset[str] = _NOT_PRUNED


@frozen
class CompactionRequest:
    """What a strategy of the user's gets.

    Args:
        history: The working history.
        agent_id: The agent.
        user_id: The user; None = nobody's in particular.
        session_id: The session.
        trigger: What asks for it: `messages`, `tokens`, `over_budget` or `overflow`.
        budget: What the conversation may cost, in tokens.
    """

    history: History
    agent_id: str
    user_id: str | None
    session_id: str
    trigger: str
    budget: int


#: Makes a history shorter in its own way: gives all messages that stay, new ones before them; nothing = the usual way.
Strategy: TypeAlias = Callable[[CompactionRequest], Awaitable[Sequence[Msg] | None]]
#: Gets the messages that are about to give way to a summary, so that what matters of them can be kept elsewhere.
BeforeCompaction: TypeAlias = Callable[[CompactionRequest, Sequence[Msg]], Awaitable[object]]


class CompactionConfig(BaseModel):
    """When older messages give way to a summary, and to which.

    Args:
        trigger_messages: So many messages since the last compaction ask for one. None = 50, where the conversation
            is also `min_fill` full; 0 = their number does not matter.
        trigger_tokens: So many tokens of conversation ask for one; 0, or more than there is room for = when there is
            no room. A conversation that is still over it after a compaction has to grow by `min_gain_tokens` first.
        min_fill: How full the conversation has to be for the default of `trigger_messages`; a share of its room.
        keep_tokens: The newest messages, which stay as they are, in tokens; -1 = `keep_tokens_ratio` of the room, at
            least `keep_tokens_min` and at most `keep_tokens_max`; never more than half of the room. 0 =
            `keep_messages` counts.
        keep_messages: The same as a number of messages.
        keep_tokens_ratio: A share of the room.
        keep_tokens_min: In tokens.
        keep_tokens_max: In tokens.
        min_gain_tokens: What a compaction has to make free, where a default asks for it.
        min_gain_ratio: The same as a share of what gives way.
        cooldown_steps: For how many steps none is tried after one that did not succeed, unless there is no room.
        summary_max_tokens: How long a summary may be; 0 = 2,000, or a quarter of the room where that is less. Never
            more than half of what gives way.
        summary_prompt: What the model is asked; must hold `{messages}`.
        required_headings: A summary without one of these is refused.
        model: Who writes summaries; None = the agent's model. A `Model`, or `provider:model`.
        truncate_args: Whether long arguments of old calls are cut before; None = no.
        prune: Whether the middle of old results is left out before; None = no.
        strategy: A way of your own; None = a summary.
        flush_before_compact: Whether what an agent with a memory should remember of them is written down.
        before: Called before messages give way; what it raises is told and changes nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, arbitrary_types_allowed=True)

    trigger_messages: int | None = Field(default=None, ge=0)
    trigger_tokens: int = Field(default=0, ge=0)
    min_fill: float = Field(default=0.5, ge=0, le=1)
    keep_tokens: int = Field(default=-1, ge=-1)
    keep_messages: int = Field(default=20, ge=1)
    keep_tokens_ratio: float = Field(default=0.25, gt=0, le=0.5)
    keep_tokens_min: int = Field(default=2_000, ge=0)
    keep_tokens_max: int = Field(default=8_000, ge=0)
    min_gain_tokens: int = Field(default=500, ge=1)
    min_gain_ratio: float = Field(default=0.2, ge=0, lt=1)
    cooldown_steps: int = Field(default=8, ge=0)
    summary_max_tokens: int = Field(default=0, ge=0)
    summary_prompt: str = SUMMARY_PROMPT
    required_headings: tuple[str, ...] = ()
    model: SkipValidation[Model | str | None] = None
    truncate_args: TruncateArgsConfig | None = None
    prune: PruneConfig | None = Field(default_factory=PruneConfig)
    strategy: SkipValidation[Strategy | None] = None
    flush_before_compact: bool = True
    before: SkipValidation[BeforeCompaction | None] = None

    @model_validator(mode="after")
    def _consistent(self) -> CompactionConfig:
        if MESSAGES_FIELD not in self.summary_prompt:
            raise ValueError(f"summary_prompt must hold {MESSAGES_FIELD}, which the conversation takes the place of")
        if self.keep_tokens_min > self.keep_tokens_max:
            raise ValueError(f"keep_tokens_min={self.keep_tokens_min} is above keep_tokens_max={self.keep_tokens_max}")
        for name in ("strategy", "before"):
            if (value := getattr(self, name)) is not None and not callable(value):
                raise ValueError(f"{name}={value!r}: an async function")
        return self
