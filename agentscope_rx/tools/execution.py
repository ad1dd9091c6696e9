"""Runs one tool call: whatever happens it ends with a result, unless the run itself is cancelled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Executor
from copy import deepcopy
from dataclasses import replace
from typing import Final, cast

from agentscope_rx.frozen import frozen
from agentscope_rx.messages import (
    INVALID_ARGUMENTS,
    DataBlock,
    TextBlock,
    ToolResultBlock,
    ToolResultState,
    ToolUseBlock,
)
from agentscope_rx.tools import attempts
from agentscope_rx.tools.arguments import InvalidArguments, unreadable, violations
from agentscope_rx.tools.context import ToolContext
from agentscope_rx.tools.groups import ACTIVATED_GROUPS, META_TOOL, GroupSwitch
from agentscope_rx.tools.results import Converted, convert
from agentscope_rx.tools.texts import error_text
from agentscope_rx.tools.tool import Tool, is_function_tool
from agentscope_rx.tools.toolkit import Toolkit

_WAITING: Final = "(waiting for the result from outside)"
#: How many names the answer to an unknown one lists.
_MOST_NAMES: Final = 100


@frozen
class ToolOutcome:
    """What became of one call.

    Args:
        result: The result, with the call's id and name.
        streamed: Whether it was reported already, so that it is not shown twice.
        activated_groups: The groups that the model chose; None = no change.
        suspended: Whether somebody outside has to give the result; `result` is only its placeholder.
        error: What was raised, where the call failed by an exception; for the log, not for the model.
    """

    result: ToolResultBlock
    streamed: bool = False
    activated_groups: tuple[str, ...] | None = None
    suspended: bool = False
    error: BaseException | None = None


def no_jitter() -> float:
    """The middle of what a jitter function gives, so that every wait has its full length."""
    return 0.5


async def run_call(
    toolkit: Toolkit,
    call: ToolUseBlock,
    context: ToolContext,
    *,
    active_groups: Collection[str] | None = None,
    executor: Executor | None = None,
    jitter: Callable[[], float] = no_jitter,
) -> ToolOutcome:
    """Run one call.

    What the tool raises, a `SystemExit` or a `CancelledError` of its own included, becomes an error result. A
    cancellation of this task is passed on, and sets `context.cancelled`, so that threads can stop.

    Args:
        toolkit: The tools.
        call: What the model asks for.
        context: What the tool is told; its reports are passed on until the call ends.
        active_groups: The active groups of tools. Default None: those of a fresh session.
        executor: Where tools run that are not async. Default None: the loop's own threads.
        jitter: Gives a number from 0 to 1 for each wait between two attempts, which becomes half to one and a
            half times as long. Default: no jitter.

    Raises:
        asyncio.CancelledError: The task was cancelled, whatever the tool made of that.
        KeyboardInterrupt: It came while the tool was running.

    Examples:
        >>> outcome = await run_call(Toolkit.of(weather), call, ToolContext(call=call))
        >>> outcome.result.text
        'sunny in Bern'
    """
    tool = toolkit.find(call.name, active_groups)
    if tool is None:
        return _refused(call, _not_on_offer(toolkit, call.name, active_groups))
    if INVALID_ARGUMENTS in call.metadata:
        return _refused(call, unreadable(call.metadata[INVALID_ARGUMENTS]))
    arguments = _arguments(toolkit, call)
    if (tool.external or not is_function_tool(tool)) and (wrong := _wrong(tool, arguments)):
        return _refused(call, attempts.invalid(call.name, wrong))
    if tool.external:
        waiting = Converted((TextBlock(text=_WAITING),), ToolResultState.RUNNING)
        return ToolOutcome(result=_result(call, waiting), suspended=True)
    reports = _Reports(context.on_report)
    told = replace(context, call=call, on_report=reports, executor=executor)
    try:
        ended = await attempts.run(attempts.Job.of(tool, arguments, toolkit), told, jitter)
        return _outcome(call, tool, ended, reports)
    finally:
        reports.open = False


def reached(
    toolkit: Toolkit, call: ToolUseBlock, active_groups: Collection[str] | None = None
) -> tuple[Tool, Mapping[str, object]] | None:
    """The tool that a call reaches, and the arguments that it gets; None = the call fails before.

    Args:
        toolkit: The tools.
        call: What the model asks for.
        active_groups: The active groups of tools. Default None: those of a fresh session.
    """
    tool = toolkit.find(call.name, active_groups)
    if tool is None or INVALID_ARGUMENTS in call.metadata:
        return None
    return tool, _arguments(toolkit, call)


def fits(tool: Tool, arguments: Mapping[str, object]) -> bool:
    """Whether arguments are what a tool wants, so that a person may be asked about the call."""
    return _wrong(tool, arguments) is None


def batches(calls: Sequence[ToolUseBlock], toolkit: Toolkit) -> list[tuple[ToolUseBlock, ...]]:
    """Divide the calls of one step into those that may run side by side; their order is kept.

    Args:
        calls: The calls, in the model's order.
        toolkit: The tools; with `parallel=False` every call is a batch of its own.

    Examples:
        >>> [len(batch) for batch in batches([read, read, write, read], toolkit)]  # write has to run alone
        [2, 1, 1]
    """
    found: list[tuple[ToolUseBlock, ...]] = []
    joins = False  # whether the last batch may take one more
    for call in calls:
        entry = toolkit.entry(call.name)
        safe = toolkit.parallel and (entry is None or entry.tool.concurrency_safe)
        if safe and joins:
            found[-1] = (*found[-1], call)
        else:
            found.append((call,))
        joins = safe
    return found


# -- before the tool runs -----------------------------------------------------------------------------------


def _not_on_offer(toolkit: Toolkit, name: str, active_groups: Collection[str] | None) -> str:
    entry = toolkit.entry(name)
    if entry is not None:
        text = f"The tool {name!r} belongs to the group {entry.group!r}, which is not active."
        return f"{text} Activate it by {META_TOOL}." if toolkit.meta_tool else text
    names = [spec.name for spec in toolkit.specs(active_groups)]
    known = ", ".join(names[:_MOST_NAMES]) + (", ..." if len(names) > _MOST_NAMES else "")
    shown = repr(name) if len(name) <= 100 else f"{name[:100]!r}..."
    return f"There is no tool {shown}. The tools are: {known or 'none'}."


def _arguments(toolkit: Toolkit, call: ToolUseBlock) -> Mapping[str, object]:
    # A copy: what a tool does to its arguments is not done to the history.
    return {**{name: _copied(value) for name, value in call.input.items()}, **toolkit.presets(call.name)}


def _copied(value: object) -> object:
    return deepcopy(value) if isinstance(value, (dict, list)) else value  # type: ignore[reportUnknownArgumentType]


def _wrong(tool: Tool, arguments: Mapping[str, object]) -> InvalidArguments | None:
    """What is wrong with the arguments of a tool that does not look at them itself, or is not run here."""
    if is_function_tool(tool):
        try:
            tool.signature.parse(arguments)
        except InvalidArguments as error:
            return error
        except Exception as error:  # a validator of the user's that raises what pydantic does not catch
            return InvalidArguments(error_text(error))
        return None
    found = tuple(violations(tool.spec.parameters, arguments))
    return InvalidArguments(*found) if found else None


def _refused(call: ToolUseBlock, why: str) -> ToolOutcome:
    return ToolOutcome(result=_result(call, replace(convert(why), state=ToolResultState.ERROR)))


# -- after it ------------------------------------------------------------------------------------------------


class _Reports:
    """Passes reports on as long as the call runs, and knows whether there were any."""

    __slots__ = ("_report", "open", "used")

    def __init__(self, report: Callable[[str | DataBlock], None]) -> None:
        self._report = report
        self.open = True
        self.used = False

    def __call__(self, shown: str | DataBlock, /) -> None:
        if self.open:
            self.used = True
            self._report(shown)


def _outcome(call: ToolUseBlock, tool: Tool, ended: attempts.Ended, reports: _Reports) -> ToolOutcome:
    result = _result(call, ended.converted)
    if reports.used and ended.failure is not None:
        reports("\n" + ended.failure)  # or else those who watch would see the beginning and not the failure
    groups = result.metadata.get(ACTIVATED_GROUPS) if isinstance(tool, GroupSwitch) else None
    return ToolOutcome(
        result=result,
        streamed=reports.used,
        activated_groups=None if groups is None else tuple(cast("list[str]", groups)),
        suspended=result.state is ToolResultState.RUNNING,
        error=ended.error,
    )


def _result(call: ToolUseBlock, converted: Converted) -> ToolResultBlock:
    return ToolResultBlock(
        id=call.id,
        name=call.name,
        output=converted.output,
        metadata=converted.metadata,
        state=converted.state,
    )
