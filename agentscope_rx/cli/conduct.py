"""Conducts one run: shows its events, and lets Ctrl-C end it in good order."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, nullcontext
from typing import Any, Final

from agentscope_rx.agent import Agent
from agentscope_rx.cli.outputs import Output, say
from agentscope_rx.errors import RunError
from agentscope_rx.events import AgentEvent, AgentResult
from agentscope_rx.interactions import Answer
from agentscope_rx.messages import Msg
from agentscope_rx.pulling import iterate
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.shutdown import shut_down_on_signals

#: Seconds that an interruption may take before anything is said about it.
_PATIENCE: Final = 1.0
#: Seconds until the run must be where it can stop; containers are killed after ten.
_GRACE: Final = 6.0


async def conduct(
    agent: Agent[Any],
    task: str | Mapping[str, Answer],
    context: RuntimeContext,
    *,
    output: Output,
    watchers: Sequence[Callable[[AgentEvent], None]] = (),
) -> Msg:
    """Run a task and show it.

    Ctrl-C interrupts the run, which then ends with a result that says so; a second one cancels it. SIGTERM stops it
    where nothing is lost.

    Args:
        agent: Who does it.
        task: What to do, or the answers to tool calls that wait.
        context: In which session.
        output: To whom it is shown.
        watchers: Who else is told of each event.

    Raises:
        AgentScopeError: The run failed.
        asyncio.CancelledError: It was cancelled.
    """
    result: Msg | None = None
    stream = agent.stream_events(task, context) if isinstance(task, str) else agent.respond(context, task)
    try:
        with _interruptible(lambda: agent.interrupt(context)):
            async with _stoppable(agent), aclosing(iterate(stream)) as events:
                async for event in events:
                    output.show(event)
                    for watch in watchers:
                        watch(event)
                    if isinstance(event, AgentResult):
                        result = event.result
    finally:
        output.close()
    if result is None:
        raise RunError("the run ended without a result")
    return result


def _stoppable(agent: Agent[Any]) -> AbstractAsyncContextManager[object]:
    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread only
        return nullcontext()
    return shut_down_on_signals(agent.options.runtime, grace=_GRACE)


@contextmanager
def _interruptible(interrupt: Callable[[], bool]) -> Generator[None]:
    """Let the first Ctrl-C interrupt, and the second one cancel the current task.

    Args:
        interrupt: Asks the run to end; returns whether there is one.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    asked, hints = False, list[asyncio.TimerHandle]()

    def on_signal() -> None:
        nonlocal asked
        if not asked and interrupt():
            asked = True
            hints.append(loop.call_later(_PATIENCE, say, "\ninterrupting; Ctrl-C again cancels at once"))
        else:
            task.cancel()

    if threading.current_thread() is not threading.main_thread():  # signals go to the main thread only
        yield
        return
    loop.add_signal_handler(signal.SIGINT, on_signal)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        for hint in hints:
            hint.cancel()
