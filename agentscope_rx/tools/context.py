"""What a tool is told about the call that it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import field
from functools import partial
from threading import Event
from typing import ParamSpec, TypeVar, cast, overload

from agentscope_rx.errors import RunError
from agentscope_rx.frozen import frozen
from agentscope_rx.messages import DataBlock, OutputBlock, TextBlock, ToolUseBlock
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.task_state import TaskContextState
from agentscope_rx.tools.proposals import Proposals
from agentscope_rx.tools.texts import clean

P = ParamSpec("P")
T = TypeVar("T")


class ToolCancelled(RunError):
    """The call that a thread works for was cancelled or took too long; nobody waits for its result."""


class CancelToken:
    """Tells a thread that nobody waits for its result any more; safe to use from any thread.

    Examples:
        >>> token = CancelToken()
        >>> token.set()
        >>> token.is_set
        True
    """

    __slots__ = ("_children", "_event")

    def __init__(self) -> None:
        self._event = Event()
        self._children: list[CancelToken] = []

    @property
    def is_set(self) -> bool:
        """Whether the call is over."""
        return self._event.is_set()

    def __bool__(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        """Say that the call is over, to this token and to those made from it."""
        self._event.set()
        for child in tuple(self._children):
            child.set()

    def raise_if_set(self) -> None:
        """Stop here if the call is over.

        Raises:
            ToolCancelled: It is.
        """
        if self._event.is_set():
            raise ToolCancelled("the call of this tool was cancelled, or took too long")

    def wait(self, timeout: float | None = None) -> bool:
        """Block this thread until the call is over; a sleep that a cancel ends.

        Args:
            timeout: Seconds to wait at most. Default None: without end.

        Returns:
            Whether the call is over.
        """
        return self._event.wait(timeout)

    def child(self) -> CancelToken:
        """Make a token that is set with this one, and can be set alone."""
        token = CancelToken()
        self._children.append(token)
        if self.is_set:  # asked after the child was entered: whichever thread came first, it is set
            token.set()
        return token


def _to_nobody(_: str | DataBlock, /) -> None:
    """Where reports go that nobody listens to."""


@frozen
class ToolContext:
    """The call that a tool answers: who makes it, with what, and whether it still matters.

    A parameter with this annotation gets it; the model does not see that parameter.

    Args:
        call: The call as the model made it.
        agent_id: The agent that calls.
        agent_name: Its name.
        user_id: Whose session it is; None = nobody's in particular.
        session_id: The session.
        turn_id: The user command that is being worked on.
        run_id: The attempt at it.
        runtime_context: What the application handed along with the call of the agent.
        cancelled: Set when the call was cancelled, has taken too long or has failed.
        on_report: Gets each report, from any thread. Default: reports go nowhere.
        executor: Where `in_thread` runs functions. Default None: the loop's own threads.
        proposals: What the tools of this step have changed of the session's task and plan. Default: nothing, of
            a session that has none.

    Examples:
        >>> call = ToolUseBlock(id="c1", name="look_up")
        >>> ToolContext(call=call, runtime_context=RuntimeContext(values=(3,))).get(int)
        3
    """

    call: ToolUseBlock
    agent_id: str = ""
    agent_name: str = ""
    user_id: str | None = None
    session_id: str | None = None
    turn_id: str = ""
    run_id: str = ""
    runtime_context: RuntimeContext = field(default_factory=RuntimeContext)
    cancelled: CancelToken = field(default_factory=CancelToken, repr=False, compare=False)
    on_report: Callable[[str | DataBlock], None] = field(default=_to_nobody, repr=False, compare=False)
    executor: Executor | None = field(default=None, repr=False, compare=False)
    proposals: Proposals = field(default_factory=Proposals, repr=False, compare=False)

    @overload
    def get(self, key: str, /) -> object | None: ...
    @overload
    def get(self, key: type[T], /) -> T | None: ...
    def get(self, key: str | type[T], /) -> object | None:
        """Look up what the application handed along, by name or by type; None where it is not there."""
        return self.runtime_context.get(key)

    def report(self, text_or_block: str | OutputBlock, /) -> None:
        """Show a part of the result, or how far the work is, at once; from any thread.

        What is reported goes to those who watch, as it comes. The model gets what the tool returns. After the
        end of the call nothing is passed on.

        Args:
            text_or_block: Text, with its own line breaks, or a block.

        Raises:
            TypeError: It is something else.
        """
        shown = text_or_block.text if isinstance(text_or_block, TextBlock) else text_or_block
        if isinstance(shown, str):
            shown = clean(shown)
        elif not isinstance(shown, DataBlock):  # type: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"report() takes text, a TextBlock or a DataBlock, not {type(shown).__name__}")
        if shown and not self.cancelled.is_set:
            self.on_report(shown)

    def update_tasks(self, change: Callable[[TaskContextState], TaskContextState], /) -> TaskContextState:
        """Change the session's task; gives the new one. The session gets it with the results of this step.

        Args:
            change: Gets the task as it is now, gives another value of it.

        Raises:
            TaskConflict: The change was decided on another revision than the newest; nothing was changed.
            TaskRefused: It breaks a rule; nothing was changed.
            RunError: The step of this call is over.

        Examples:
            >>> context = ToolContext(call=ToolUseBlock(id="c1", name="plan"))
            >>> context.update_tasks(lambda state: state.replace_tasks((), state.revision)).revision
            1
        """
        return self.proposals.update_tasks(change)

    async def in_thread(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking function in a thread and wait for it; context variables are those of here.

        When the call is cancelled nobody waits any more, but the thread goes on until it asks `cancelled`.

        Args:
            function: What to run.
            args: Its arguments.
            kwargs: Its keyword arguments.

        Raises:
            BaseException: What the function raised.
        """
        work = cast("Callable[[], _Ended]", partial(copy_context().run, _ended, partial(function, *args, **kwargs)))
        ended = await asyncio.get_running_loop().run_in_executor(self.executor, work)
        if ended.error is not None:
            raise ended.error
        return cast("T", ended.value)


@frozen(kw_only=False)
class _Ended:
    value: object = None
    error: BaseException | None = None


def _ended(function: Callable[[], object]) -> _Ended:
    """A future can hold no StopIteration, and pools differ in what they do with a SystemExit."""
    try:
        return _Ended(function())
    except BaseException as error:
        return _Ended(error=error)
