"""Calls a tool, once or several times, and tells what the tool did from what was done to it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from agentscope_rx.frozen import frozen
from agentscope_rx.messages import OutputBlock, TextBlock, ToolResultState
from agentscope_rx.tools.arguments import InvalidArguments
from agentscope_rx.tools.context import ToolContext
from agentscope_rx.tools.pieces import Pieces, settle
from agentscope_rx.tools.results import Converted, convert
from agentscope_rx.tools.settings import ToolSettings
from agentscope_rx.tools.texts import error_text
from agentscope_rx.tools.tool import Tool
from agentscope_rx.tools.toolkit import Toolkit

_DEFAULTS: Final = ToolSettings()


@frozen(kw_only=False)
class Job:
    """A call that is ready to be made.

    Args:
        tool: The tool.
        arguments: Its arguments, presets put in.
        max_chars: How many characters the result may have.
        settings: How often, and how long, it is tried.
        timeout: Seconds that one attempt may take; None = without limit.
    """

    tool: Tool
    arguments: Mapping[str, object]
    max_chars: int
    settings: ToolSettings
    timeout: float | None

    @classmethod
    def of(cls, tool: Tool, arguments: Mapping[str, object], toolkit: Toolkit) -> Job:
        """Put a call together from what its tool says and, where that says nothing, what the toolkit says."""
        said = getattr(tool, "settings", None)
        settings = said if isinstance(said, ToolSettings) else _DEFAULTS
        timeout = toolkit.default_timeout if settings.timeout is None else settings.timeout
        limit = None if timeout == math.inf else timeout
        return cls(tool, arguments, toolkit.max_result_chars, settings, limit)


@frozen(kw_only=False)
class Ended:
    """How an attempt ended.

    Args:
        converted: What the model is told.
        error: Why it failed; None where it did not, or where the arguments were wrong.
        failure: The same in words; None where it did not fail.
    """

    converted: Converted
    error: BaseException | None = None
    failure: str | None = None


async def run(job: Job, context: ToolContext, jitter: Callable[[], float]) -> Ended:
    """Call a tool until it succeeds or has been tried often enough.

    Args:
        job: The call.
        context: What the tool is told; its `cancelled` is set when the task is cancelled.
        jitter: Gives a number from 0 to 1 for each wait.

    Raises:
        asyncio.CancelledError: The task was cancelled, whatever the tool made of that.
        KeyboardInterrupt: It came while the tool was running.
    """
    settings, attempts = job.settings, 0
    try:
        while True:
            # A token of its own for each attempt: that of the context may be shared by all calls of a step, and
            # is not set where one of them fails, or takes too long and is tried again.
            ended = await _attempt(job, replace(context, cancelled=context.cancelled.child()))
            attempts += 1
            if attempts == settings.max_attempts or not isinstance(ended.error, Exception):
                return ended
            wait = min(settings.max_backoff, settings.initial_backoff * 2.0 ** (attempts - 1))
            await asyncio.sleep(wait * (0.5 + jitter()))
    except BaseException:
        context.cancelled.set()
        raise


async def _attempt(job: Job, context: ToolContext) -> Ended:
    """Call the tool in this very task: in one of its own, a `SystemExit` would leave the loop."""
    task = cast("asyncio.Task[Any]", asyncio.current_task())
    cancels = task.cancelling()
    pieces = Pieces(context.report, job.max_chars)
    scope = asyncio.timeout(job.timeout)
    value: object = None
    error: BaseException | None = None
    try:
        async with scope:
            value = await settle(await job.tool.call(job.arguments, context), context, pieces)
    except BaseException as raised:
        context.cancelled.set()
        if isinstance(raised, KeyboardInterrupt):
            raise
        error = raised  # nothing is awaited from here on: the coroutine may be about to be closed
    if task.cancelling() > cancels:
        # Somebody cancelled this task. That holds even where the tool caught it and returned, or raised
        # something else in its place; whereas a CancelledError without it is the tool's own.
        context.cancelled.set()
        if isinstance(error, asyncio.CancelledError):
            raise error
        raise asyncio.CancelledError from error
    if error is None and isinstance(value, BaseException):
        error = value
    if error is None:
        return Ended(convert(value, max_chars=job.max_chars))
    if scope.expired():
        cause, error = error, TimeoutError(f"no result within {job.timeout:g} s")
        error.__cause__ = cause
    return _failed(job, error, pieces.blocks())


def _failed(job: Job, error: BaseException, partial: Sequence[OutputBlock]) -> Ended:
    wrong = isinstance(error, InvalidArguments)
    text = invalid(job.tool.spec.name, error) if wrong else error_text(error)
    # What came before the failure often says why.
    converted = convert([*partial, TextBlock(text=text)], max_chars=job.max_chars)
    return Ended(replace(converted, state=ToolResultState.ERROR), None if wrong else error, text)


def invalid(name: str, error: InvalidArguments) -> str:
    """Tell the model what is wrong with the arguments of a call."""
    return f"The arguments of {name} are not valid:\n{error}"
