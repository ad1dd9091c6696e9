"""What a session was told to do and has not done yet, and what became of what it has done.

Others than the run that is at work write here: whoever submits, steers or interrupts adds a record to the session's
log without holding the session. Hence these records change nothing but the inbox, and it does not matter for the
outcome whether the run's own records or theirs are applied first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from enum import StrEnum
from typing import ClassVar, Final

from pydantic import ConfigDict

from agentscope_rx.frozen import frozen
from agentscope_rx.messages import NOTHING, Msg

#: How many commands that are done a state remembers; of older ones the log knows.
KEPT: Final = 200
#: How often a command is begun whose process dies each time.
MOST_ATTEMPTS: Final = 3
#: The reason of a run that ended since its process was asked to end: it is gone on with.
SHUTDOWN: Final = "SHUTDOWN"


class CommandKind(StrEnum):
    """What a session can be told: to answer new input, to go on with answers, to go on as it is."""

    SUBMIT = "submit"
    RESPOND = "respond"
    RESUME = "resume"


class TaskStatus(StrEnum):
    """What became of a command so far.

    `interrupted`: by somebody. `suspended`: it waits for somebody outside. `failed`: an error or a limit ended it.
    `rejected`: it was never begun, or given up after its process had died several times.
    """

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    SUSPENDED = "suspended"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    REJECTED = "rejected"

    @property
    def is_settled(self) -> bool:
        """Whether nothing more becomes of it."""
        return self not in (TaskStatus.QUEUED, TaskStatus.RUNNING)


@frozen
class Sender:
    """For whom a command is, so that any process can make the context of its run anew.

    Args:
        user_id: As in the context of the call that gave it.
        session_id: The same.
        attributes: Those that can be written as JSON; what is secret by its name is left out.
    """

    user_id: str | None = None
    session_id: str | None = None
    attributes: Mapping[str, object] = field(default_factory=lambda: NOTHING)


@frozen
class Command:
    """Something that a session is told to do.

    Args:
        id: Under which it is known; the key that it was given with.
        kind: What it is.
        turn_id: The turn that it belongs to.
        digest: Of what it says: the same key may be used again only for the same.
        sender: For whom.
        messages: Its input.
    """

    id: str
    kind: CommandKind
    turn_id: str
    digest: str
    sender: Sender = field(default_factory=Sender)
    messages: tuple[Msg, ...] = ()


@frozen
class Claimed:
    """A command that a run may begin with.

    Args:
        command: The command, with the input that it has now.
        continues: Whether a run at it has ended without an end of it.
    """

    command: Command
    continues: bool


@frozen
class Begun:
    """The command that is at work, or was when its process died.

    Args:
        command: The command; without its input, which is in the history by now.
        run_id: The newest run at it.
        attempts: How many runs at it have begun, without those that ended with their process in good order.
    """

    command: Command
    run_id: str
    attempts: int = 1


@frozen
class Settled:
    """A command of which nothing more becomes.

    Args:
        id: The command.
        turn_id: Its turn.
        digest: Of what it said.
        run_id: The last run at it; empty = none.
        status: What became of it.
        reason: Why: the reason of the answer, or the code of an error.
        reply_id: The message that answers it; empty = none.
    """

    id: str
    turn_id: str
    digest: str
    run_id: str
    status: TaskStatus
    reason: str = ""
    reply_id: str = ""


@frozen
class QueuedInput:
    """Messages for a run that is at work, or for the next one.

    Args:
        id: Under which they are known.
        messages: The messages, as the history is to hold them.
    """

    id: str
    messages: tuple[Msg, ...]


@frozen
class InboxState:
    """What a session was told.

    Args:
        queued: The commands that have not begun, in their order.
        begun: The command that is at work.
        settled: The newest commands of which nothing more becomes, oldest first.
        forgotten: How many older ones there were.
        inputs: Messages that no step has taken in yet.
        interrupted: The run that was asked to end; empty = none.
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    queued: tuple[Command, ...] = ()
    begun: Begun | None = None
    settled: tuple[Settled, ...] = ()
    forgotten: int = 0
    inputs: tuple[QueuedInput, ...] = ()
    interrupted: str = ""

    def next(self, *, waiting: bool) -> Command | None:
        """What is to be done now; None = nothing.

        Args:
            waiting: Whether the session waits for somebody outside: then nothing but an answer may begin.
        """
        if self.begun is not None:
            return self.begun.command
        answers = (each for each in self.queued if not waiting or each.kind is CommandKind.RESPOND)
        return next(answers, None)

    def find(self, id: str) -> Command | Begun | Settled | None:
        """A command by its id, wherever it is; None where it is not known, or no more."""
        if self.begun is not None and self.begun.command.id == id:
            return self.begun
        waiting = next((each for each in self.queued if each.id == id), None)
        return waiting or next((each for each in reversed(self.settled) if each.id == id), None)

    # -- changes --------------------------------------------------------------------------------------------

    def with_command(self, command: Command) -> InboxState:
        """One more command, behind the others."""
        return self if self.find(command.id) is not None else replace(self, queued=(*self.queued, command))

    def with_begun(self, id: str, run_id: str) -> InboxState:
        """A run is at a command."""
        found = self.find(id)
        if isinstance(found, Begun):
            return replace(self, begun=replace(found, run_id=run_id, attempts=found.attempts + 1))
        if not isinstance(found, Command):
            return self
        begun = Begun(command=replace(found, messages=()), run_id=run_id)
        return replace(self, begun=begun, queued=tuple(each for each in self.queued if each.id != id))

    def with_run_ended(self, run_id: str, status: str, reason: str, reply_id: str) -> InboxState:
        """A run has ended; what it was at is settled, unless it ended only with its process."""
        after = replace(self, interrupted="") if self.interrupted == run_id else self
        begun = after.begun
        if begun is None or begun.run_id != run_id:
            return after
        if reason == SHUTDOWN:
            return replace(after, begun=replace(begun, attempts=begun.attempts - 1))
        return after._settled(begun.command, run_id, TaskStatus(status), reason, reply_id)

    def with_rejected(self, id: str, reason: str) -> InboxState:
        """A command was given up."""
        found = self.find(id)
        if isinstance(found, Begun):
            return self._settled(found.command, found.run_id, TaskStatus.REJECTED, reason)
        if isinstance(found, Command):
            return self._settled(found, "", TaskStatus.REJECTED, reason)
        return self

    def with_inputs(self, inputs: QueuedInput) -> InboxState:
        """Messages for the next step."""
        return replace(self, inputs=(*self.inputs, inputs))

    def without_inputs(self, ids: Sequence[str]) -> InboxState:
        """Messages were taken in."""
        return replace(self, inputs=tuple(each for each in self.inputs if each.id not in ids))

    def _settled(
        self, command: Command, run_id: str, status: TaskStatus, reason: str, reply_id: str = ""
    ) -> InboxState:
        done = Settled(
            id=command.id,
            turn_id=command.turn_id,
            digest=command.digest,
            run_id=run_id,
            status=status,
            reason=reason,
            reply_id=reply_id,
        )
        settled = (*self.settled, done)
        begun = None if self.begun is not None and self.begun.command.id == command.id else self.begun
        return replace(
            self,
            queued=tuple(each for each in self.queued if each.id != command.id),
            begun=begun,
            settled=settled[-KEPT:],
            forgotten=self.forgotten + max(0, len(settled) - KEPT),
        )
