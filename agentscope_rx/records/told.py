"""What a session is told by others than the run at work: these records may be written between those of a run.

They change nothing but the inbox, and commute with the records of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from agentscope_rx.frozen import frozen
from agentscope_rx.inbox import Command, QueuedInput
from agentscope_rx.messages import Msg
from agentscope_rx.state import AgentState


@frozen(kw_only=False)
class CommandQueued:
    """The session is to do something, after what it was told before."""

    command: Command

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, inbox=state.inbox.with_command(self.command))


@frozen(kw_only=False)
class InputQueued:
    """Messages are to be part of the next step."""

    inputs: QueuedInput

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, inbox=state.inbox.with_inputs(self.inputs))


@frozen(kw_only=False)
class InterruptAsked:
    """A run is to end with what it has."""

    run_id: str

    def apply(self, state: AgentState) -> AgentState:
        if state.active_run != self.run_id:
            return state  # it has ended
        return replace(state, inbox=replace(state.inbox, interrupted=self.run_id))


#: What is not written by the session's holder.
TOLD = (CommandQueued, InputQueued, InterruptAsked)


# -- what the run does with it ------------------------------------------------------------------------------


@frozen(kw_only=False)
class CommandBegun:
    """A run is at a command.

    Args:
        command_id: The command.
        run_id: The run.
    """

    command_id: str
    run_id: str

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, inbox=state.inbox.with_begun(self.command_id, self.run_id))


@frozen(kw_only=False)
class CommandRejected:
    """A command is given up.

    Args:
        command_id: The command.
        reason: Why.
    """

    command_id: str
    reason: str

    def apply(self, state: AgentState) -> AgentState:
        return replace(state, inbox=state.inbox.with_rejected(self.command_id, self.reason))


@frozen(kw_only=False)
class InputsTaken:
    """Messages that were waiting are part of the history from now on.

    Args:
        ids: Under which they were waiting.
        messages: The messages, so that who reads the log for what was said need not look back.
    """

    ids: tuple[str, ...]
    messages: tuple[Msg, ...]

    @classmethod
    def of(cls, inputs: Sequence[QueuedInput]) -> InputsTaken:
        """The record of taking these."""
        return cls(tuple(each.id for each in inputs), tuple(message for each in inputs for message in each.messages))

    def apply(self, state: AgentState) -> AgentState:
        return replace(state.with_messages(self.messages), inbox=state.inbox.without_inputs(self.ids))


@frozen(kw_only=False)
class EventsEmitted:
    """What a run has told those who listen, for those who listen later; the state is the same.

    Args:
        events: The events as plain data, deltas of one block that followed one another as one.
    """

    events: tuple[Mapping[str, object], ...]

    def apply(self, state: AgentState) -> AgentState:
        return state
