"""What every tool must do, as a check that any test framework can run.

await check_tool(lambda: MyTool(), {"path": "a.txt"}, failing={"path": "missing"})
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Final, TypeAlias, cast

from agentscope_rx.errors import ConformanceFailed
from agentscope_rx.messages import Msg, ToolResultBlock, ToolResultState, ToolUseBlock
from agentscope_rx.testing._rules import elsewhere, require
from agentscope_rx.tools import Tool, ToolContext, Toolkit
from agentscope_rx.tools.execution import run_call
from agentscope_rx.wire import from_json, to_json

MakeTool: TypeAlias = Callable[[], Tool]

_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_MOST_TURNS: Final = 32  # of the loop, after which the run is cancelled
_TURNS_TO_END: Final = 16  # which tasks of the tool's own may take
_AT_ONCE: Final = 4


async def check_tool(
    make: MakeTool,
    arguments: Mapping[str, object],
    *,
    failing: Mapping[str, object] | None = None,
    patience: float = 60.0,
) -> None:
    """Check a tool, a function with `@tool` or any `Tool`, against every rule.

    The tool runs several times. In virtual time (`run_virtual`) one that waits is checked at once.

    Args:
        make: Makes the tool.
        arguments: Arguments that it succeeds with, each time.
        failing: Arguments with which it fails; None = there are none.
        patience: Seconds of the loop's time within which each run must end.

    Raises:
        ConformanceFailed: With the first rule that is not kept.

    Examples:
        >>> async def checked() -> None:
        ...     await check_tool(lambda: run_tests, {"path": "."})
        >>> run_virtual(checked)  # no answer is a good answer
    """
    case = _Case(make, arguments, failing, patience)
    for check in _CHECKS:
        await check(case)


@dataclass(frozen=True, slots=True)
class _Case:
    make: MakeTool
    arguments: Mapping[str, object]
    failing: Mapping[str, object] | None
    patience: float

    async def result(self, tool: Tool, arguments: Mapping[str, object]) -> ToolResultBlock:
        """What the model would be told."""
        try:
            async with asyncio.timeout(self.patience):
                call = _call(tool, arguments)
                outcome = await run_call(Toolkit.of(tool), call, ToolContext(call=call))
        except TimeoutError:
            raise ConformanceFailed(f"a call ends; after {self.patience:g} s this one had not") from None
        return outcome.result


def _call(tool: Tool, arguments: Mapping[str, object]) -> ToolUseBlock:
    written = cast("dict[str, object]", from_json(to_json(arguments)))
    return ToolUseBlock(id="checked", name=tool.spec.name, input=written, content=to_json(arguments).decode())


# -- the rules ----------------------------------------------------------------------------------------------


async def _says_what_it_is(case: _Case) -> None:
    tool = case.make()
    spec = tool.spec
    require(tool.spec is spec, "spec is the same object each time")
    require(
        bool(_NAME.fullmatch(spec.name)), f"a name has 1 to 64 of a-zA-Z0-9_-, or providers refuse it: {spec.name!r}"
    )
    require(bool(spec.description.strip()), "a description says what the tool is for")
    require(spec.parameters.get("type") == "object", "the parameters are the JSON schema of an object")
    require(from_json(to_json(spec.parameters)) == spec.parameters, "the schema is plain JSON")
    for fact in ("read_only", "concurrency_safe", "external"):
        require(isinstance(getattr(tool, fact), bool), f"{fact} is True or False")


async def _succeeds(case: _Case) -> None:
    tool = case.make()
    result = await case.result(tool, case.arguments)
    if tool.external:
        require(result.state is ToolResultState.RUNNING, "a call of an external tool waits for who runs it")
        return
    require(
        result.state is ToolResultState.SUCCESS, f"it succeeds with {dict(case.arguments)!r}: {result.text[:200]!r}"
    )
    message = Msg.tool(result)
    require(Msg.from_json(message.to_json()).to_json() == message.to_json(), "a result can be stored and loaded")


async def _leaves_arguments_alone(case: _Case) -> None:
    tool = case.make()
    if tool.external:
        return
    given = deepcopy(dict(case.arguments))
    before = to_json(given)
    await case.result(tool, given)
    call = _call(tool, given)
    async with asyncio.timeout(case.patience):
        await tool.call(given, ToolContext(call=call))
    require(to_json(given) == before, "the arguments are not changed")


async def _failures_are_results(case: _Case) -> None:
    tool = case.make()
    if tool.external:
        return
    required = cast("list[str]", tool.spec.parameters.get("required", []))
    wrong = [{name: value for name, value in case.arguments.items() if name != without} for without in required]
    for arguments in (*wrong, *([] if case.failing is None else [case.failing])):
        result = await case.result(tool, arguments)
        require(result.state is ToolResultState.ERROR, f"it fails with {dict(arguments)!r}, and says so to the model")
        require(bool(result.text.strip()), "a failure says what was wrong")


async def _can_be_cancelled(case: _Case) -> None:
    turns = 0
    while turns < _MOST_TURNS and await _cancelled_after(case, turns):
        turns += 1


async def _cancelled_after(case: _Case, turns: int) -> bool:
    """Cancel the run of a call after some turns of the loop; whether it was still at work."""
    tool, others = case.make(), asyncio.all_tasks()
    call = _call(tool, case.arguments)
    running = asyncio.create_task(run_call(Toolkit.of(tool), call, ToolContext(call=call)))
    for _ in range(turns):
        await asyncio.sleep(0)
    at_work = not running.done()
    running.cancel()
    done, _ = await asyncio.wait({running}, timeout=case.patience)
    require(bool(done), "a call that is cancelled ends")
    for _ in range(_TURNS_TO_END):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - others - {running}
    require(not left, f"a call that is cancelled leaves no task behind: {', '.join(sorted(map(repr, left)))}")
    again = await case.result(case.make(), case.arguments)
    require(again.state in (ToolResultState.SUCCESS, ToolResultState.RUNNING), "after that the next call works")
    return at_work


async def _runs_beside_itself(case: _Case) -> None:
    tool = case.make()
    if not tool.concurrency_safe:
        return
    results = await asyncio.gather(*(case.result(tool, case.arguments) for _ in range(_AT_ONCE)))
    states = {result.state for result in results}
    good = {ToolResultState.RUNNING if tool.external else ToolResultState.SUCCESS}
    require(states == good, f"calls side by side succeed, or concurrency_safe is False: {sorted(states)}")


async def _serves_several_loops(case: _Case) -> None:
    tool = case.make()
    other = await elsewhere(lambda: case.result(tool, case.arguments))
    for result in (other, await case.result(tool, case.arguments)):
        require(
            result.state is not ToolResultState.ERROR, f"it can be called from several event loops: {result.text!r}"
        )


_CHECKS: Final[tuple[Callable[[_Case], Awaitable[None]], ...]] = (
    _says_what_it_is,
    _succeeds,
    _leaves_arguments_alone,
    _failures_are_results,
    _can_be_cancelled,
    _runs_beside_itself,
    _serves_several_loops,
)
