"""What becomes of something that a session was told to do."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from agentscope_rx.frozen import frozen
from agentscope_rx.inbox import Begun, Command, InboxState, Settled, TaskStatus
from agentscope_rx.messages import Msg
from agentscope_rx.records import CommandBegun, CommandQueued, CommandRejected, RunEnded
from agentscope_rx.session import SessionLog
from agentscope_rx.state import AgentState

if TYPE_CHECKING:
    from agentscope_rx.background.session import AgentSession


@frozen
class TaskReport:
    """What has become of a task so far.

    Args:
        id: The task: the key that it was submitted with.
        turn_id: The turn that it belongs to; tasks that answer a question of an earlier one have that one's.
        status: What became of it.
        run_id: The newest run at it; empty = none has begun.
        reason: Why it ended: the reason of the answer, or the code of an error.
        reply: The answer; None where there is none, or it is not settled.
    """

    id: str
    turn_id: str
    status: TaskStatus
    run_id: str = ""
    reason: str = ""
    reply: Msg | None = None


class SessionTask:
    """Something that a session was told to do. `await` it for its `TaskReport` once it is settled.

    Args:
        session: The session.
        id: The task.
        turn_id: Its turn.
    """

    def __init__(self, session: AgentSession, id: str, turn_id: str) -> None:
        self._session = session
        self.id, self.turn_id = id, turn_id

    def __repr__(self) -> str:
        return f"SessionTask(id={self.id!r}, turn_id={self.turn_id!r})"

    async def report(self) -> TaskReport:
        """What has become of it so far."""
        return await self._session.report(self)

    def __await__(self) -> Generator[Any, None, TaskReport]:
        return self._session.wait(self).__await__()


def report_of(found: Command | Begun | Settled) -> TaskReport:
    """A task as an inbox has it."""
    match found:
        case Command():
            return TaskReport(id=found.id, turn_id=found.turn_id, status=TaskStatus.QUEUED)
        case Begun():
            command = found.command
            return TaskReport(id=command.id, turn_id=command.turn_id, status=TaskStatus.RUNNING, run_id=found.run_id)
        case Settled():
            return TaskReport(
                id=found.id, turn_id=found.turn_id, status=found.status, run_id=found.run_id, reason=found.reason
            )


def reports_of(inbox: InboxState) -> tuple[TaskReport, ...]:
    """All tasks that an inbox knows: those that are settled, the one at work, those that wait."""
    begun = () if inbox.begun is None else (inbox.begun,)
    return tuple(map(report_of, (*inbox.settled, *begun, *inbox.queued)))


async def settled_in(log: SessionLog, id: str) -> Settled | None:
    """A task that is settled, as the whole log has it; None where there is none.

    Args:
        log: The log.
        id: The task.
    """
    inbox, nothing = InboxState(), AgentState()
    async with aclosing(log.scan()) as found:
        async for record in found:
            match record.read(nothing) if record.type in _TYPES else None:
                case CommandQueued(command=command) if command.id == id:
                    inbox = inbox.with_command(command)
                case CommandBegun(command_id=begun, run_id=run_id) if begun == id:
                    inbox = inbox.with_begun(id, run_id)
                case CommandRejected(command_id=rejected, reason=reason) if rejected == id:
                    inbox = inbox.with_rejected(id, reason)
                case RunEnded(run_id=run_id, status=status, reason=reason):
                    inbox = inbox.with_run_ended(run_id, status, reason, "")
                case _:
                    pass
    task = inbox.find(id)
    return task if isinstance(task, Settled) else None


_TYPES = frozenset({"inbox/command", "inbox/begun", "inbox/rejected", "run/end"})
