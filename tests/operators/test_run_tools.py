"""run_tools: each call gives a result, whatever happens to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import agentscope_rx.events as ev
from agentscope_rx.bridge import Scope
from agentscope_rx.history import History
from agentscope_rx.lifting import chain
from agentscope_rx.messages import GenerateReason, Msg, ToolResultState, ToolUseBlock
from agentscope_rx.operators import run_tools
from agentscope_rx.permission_context import PermissionContextState, PermissionRule
from agentscope_rx.permissions import PermissionDecision
from agentscope_rx.records import ResultsRecorded
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.step import Mode, Step
from agentscope_rx.testing import RecordingRun, a_history, a_run, a_step, check_operator, record, run_virtual
from agentscope_rx.testing.recorder import Recorded
from agentscope_rx.tools import ToolContext, Toolkit, tool
from tests.support import type_of
from tests.virtual import virtual


@tool
async def wait(seconds: float = 1.0) -> str:
    """Wait."""
    await asyncio.sleep(seconds)
    return f"waited {seconds:g}"


@tool(concurrency_safe=False)
async def write(seconds: float = 1.0) -> str:
    """Write."""
    await asyncio.sleep(seconds)
    return "written"


@tool
async def fail() -> str:
    """Fail."""
    raise LookupError("no such thing")


@tool
def now() -> str:
    """Answer from a thread."""
    return f"in {threading.current_thread().name.rsplit('_', 1)[0]}"


@tool
async def talk(context: ToolContext) -> str:
    """Report."""
    context.report("half ")
    await asyncio.sleep(1)
    context.report("way")
    return "half way"


@tool(external=True)
async def ask_a_person(question: str = "?") -> str:
    """Ask."""
    return "never"


NOBODY = RuntimeContext()
TOOLKIT = Toolkit.of(wait, write, fail, now, talk, ask_a_person)


def asking(*calls: ToolUseBlock) -> Msg:
    return replace(Msg.assistant("I will.", *calls), id="asking")


def use(id: str, name: str, **arguments: object) -> ToolUseBlock:
    return ToolUseBlock(id=id, name=name, input=arguments)


class Acting:
    """A step whose reply asks for tools."""

    def __init__(self, *calls: ToolUseBlock, context: RuntimeContext = NOBODY, **fields: Any) -> None:
        self.run: RecordingRun = a_run(a_history().append(asking(*calls)), context=context)
        self.step = a_step(run=self.run, reply=asking(*calls), **fields)

    def subscribed(self) -> Recorded[Step]:
        return record(chain((run_tools(toolkit=TOOLKIT),), self.step))

    async def done(self) -> Step:
        recorded = await self.subscribed().ended()
        assert recorded.error is None, recorded.error
        (step,) = recorded.values
        return step

    @property
    def results(self) -> list[tuple[str, str, ToolResultState]]:
        """Id, text and state of what the session holds."""
        last = self.run.state.context.last
        assert last is not None
        found = [message.tool_result for message in last.messages[1:]]
        return [(each.id, each.text, each.state) for each in found if each is not None]

    @property
    def types(self) -> list[str]:
        return [type_of(event) for event in self.run.events]


def step_with_calls(history: History) -> Step:
    reply = asking(use("c1", "wait"), use("c2", "fail"), use("c3", "write"), use("c4", "talk"))
    return a_step(history=history.append(reply), reply=reply)


@virtual
async def test_it_keeps_the_rules_of_operators() -> None:
    """What holds for every operator: with parallel and sequential calls, left at any moment."""
    await check_operator(lambda: run_tools(toolkit=TOOLKIT), step=step_with_calls)


@virtual
async def test_it_keeps_them_without_calls() -> None:
    """A step without a reply, or with one that asks for nothing, passes as it is."""
    for reply in (None, Msg.assistant("done")):
        step = a_step(reply=reply)
        (after,) = (await record(chain((run_tools(toolkit=TOOLKIT),), step)).ended()).values
        assert (after.state, after.finished) == (step.state, None)
        assert after.run.acted != step.number


@virtual
async def test_it_keeps_them_where_calls_wait_or_are_denied() -> None:
    """Also where a check takes its time, a call is denied, and another one is asked about."""

    async def check(arguments: Mapping[str, object]) -> PermissionDecision:
        await asyncio.sleep(1)
        return PermissionDecision.ask("sure?") if arguments.get("seconds") == 2 else PermissionDecision.allow()

    toolkit = Toolkit.of(tool(wait.function, check=check), fail, write, talk)
    denied = PermissionContextState().with_rules([PermissionRule.deny("fail"), PermissionRule.allow("talk")])

    def asking_step(history: History) -> Step:
        reply = asking(use("c1", "wait", seconds=2), use("c2", "fail"), use("c3", "talk"))
        return a_step(history=history.append(reply), reply=reply)

    def denied_step(history: History) -> Step:
        reply = asking(use("c1", "wait"), use("c2", "fail"))
        return a_step(history=history.append(reply), reply=reply)

    for step in (asking_step, denied_step):
        await check_operator(lambda: run_tools(toolkit=toolkit, permissions=denied), step=step)


# -- results ------------------------------------------------------------------------------------------------


@virtual
async def test_results_are_recorded_once_in_call_order() -> None:
    """However long each takes; the step then holds the state with them."""
    acting = Acting(use("c1", "wait", seconds=9), use("c2", "wait", seconds=1), use("c3", "now"))
    after = await acting.done()
    assert acting.results == [
        ("c1", "waited 9", ToolResultState.SUCCESS),
        ("c2", "waited 1", ToolResultState.SUCCESS),
        ("c3", "in agentscope-rx-tool", ToolResultState.SUCCESS),
    ]
    assert [type(each) for each in acting.run.records] == [ResultsRecorded]
    assert after.history is after.state.context is acting.run.state.context
    assert after.run.acted == after.number


@virtual
async def test_calls_run_side_by_side_unless_one_may_not() -> None:
    """Neighbours that may run together do; one that may not runs alone, between them."""
    acting = Acting(
        *(use(f"a{at}", "wait", seconds=5) for at in range(3)),
        use("b", "write", seconds=2),
        *(use(f"c{at}", "wait", seconds=3) for at in range(2)),
    )
    await acting.done()
    assert asyncio.get_running_loop().time() == 10.0
    assert len(acting.results) == 6


@virtual
async def test_a_tool_that_raises_gives_an_error_result_and_the_others_go_on() -> None:
    """Its siblings are not cancelled, and the step goes on: the model is told."""
    acting = Acting(use("c1", "fail"), use("c2", "wait", seconds=9), use("c3", "unknown"))
    await acting.done()
    states = [state for _, _, state in acting.results]
    assert states == [ToolResultState.ERROR, ToolResultState.SUCCESS, ToolResultState.ERROR]
    assert "no such thing" in acting.results[0][1]
    assert "unknown" in acting.results[2][1]


@virtual
async def test_a_tool_is_told_for_whom_it_works() -> None:
    """Identities of the run, and what the application handed along."""
    told: list[ToolContext] = []

    @tool
    async def look(context: ToolContext) -> str:
        """Look."""
        told.append(context)
        return ""

    context = RuntimeContext(values=(3.5,))
    acting = Acting(use("c1", "look"), context=context)
    await record(chain((run_tools(toolkit=Toolkit.of(look)),), acting.step)).ended()
    (given_one,) = told
    assert (given_one.agent_id, given_one.user_id, given_one.session_id) == ("agent", "user", "session")
    assert (given_one.turn_id, given_one.run_id, given_one.call.id) == ("turn", "run", "c1")
    assert given_one.runtime_context is context


# -- events -------------------------------------------------------------------------------------------------


@virtual
async def test_all_start_at_once_and_end_in_order_when_all_are_done() -> None:
    """Deltas as tools report them; a result that was not reported is shown whole before its end."""
    acting = Acting(use("c1", "talk"), use("c2", "wait", seconds=0.5))
    recorded = acting.subscribed()
    await asyncio.sleep(0.25)
    assert acting.types == ["TOOL_RESULT_START", "TOOL_RESULT_START", "TOOL_RESULT_TEXT_DELTA"]
    await recorded.ended()
    shown = [
        (type_of(event).removeprefix("TOOL_RESULT_"), event.tool_call_id, getattr(event, "delta", ""))
        for event in acting.run.events
        if isinstance(event, ev.ToolEvent)
    ]
    assert shown[2:] == [
        ("TEXT_DELTA", "c1", "half "),
        ("TEXT_DELTA", "c1", "way"),
        ("END", "c1", ""),
        ("TEXT_DELTA", "c2", "waited 0.5"),
        ("END", "c2", ""),
    ]
    stages = {event.reply_id for event in acting.run.events if isinstance(event, ev.ToolEvent)}
    assert stages == {"acting-1"}


# -- calls for somebody outside -----------------------------------------------------------------------------


@virtual
async def test_a_call_for_somebody_outside_ends_the_run_and_stays_open() -> None:
    """The others have their results; REQUIRE_EXTERNAL_EXECUTION names the open one, and the step asks to finish."""
    acting = Acting(use("c1", "wait"), use("c2", "ask_a_person"))
    after = await acting.done()
    assert after.finished is not None
    assert after.finished.reason is GenerateReason.TOOL_SUSPENDED
    (asked,) = [event for event in acting.run.events if isinstance(event, ev.RequireExternalExecution)]
    assert [call.id for call in asked.tool_calls] == ["c2"]
    assert [call.id for call in acting.run.state.context.open_calls] == ["c2"]
    ends = [event.state for event in acting.run.events if isinstance(event, ev.ToolResultEnd)]
    assert ends == [ToolResultState.SUCCESS, ToolResultState.RUNNING]


# -- when nothing may be run --------------------------------------------------------------------------------


@virtual
async def test_after_the_limit_of_steps_no_tool_is_run() -> None:
    """A model that calls one in its conclusion all the same gets a result that says so."""
    acting = Acting(use("c1", "wait"), mode=Mode.CONCLUDE)
    await acting.done()
    assert asyncio.get_running_loop().time() == 0.0
    ((id, said, state),) = acting.results
    assert (id, state) == ("c1", ToolResultState.ERROR)
    assert "limit of steps" in said


# -- leaving ------------------------------------------------------------------------------------------------


@virtual
async def test_left_calls_get_interrupted_results() -> None:
    """What was done keeps its result; everything is recorded by the time the tasks have ended."""
    acting = Acting(use("c1", "wait", seconds=1), use("c2", "wait", seconds=60), use("c3", "write"))
    async with Scope():
        recorded = acting.subscribed()
        await asyncio.sleep(5)
        recorded.dispose()
    assert asyncio.get_running_loop().time() == 5.0
    assert [(id, state) for id, _, state in acting.results] == [
        ("c1", ToolResultState.SUCCESS),
        ("c2", ToolResultState.INTERRUPTED),
        ("c3", ToolResultState.INTERRUPTED),
    ]
    assert recorded.signals == []
    assert acting.types.count("TOOL_RESULT_START") == acting.types.count("TOOL_RESULT_END") == 3


@virtual
async def test_threads_are_told_that_nobody_waits() -> None:
    """A tool in a thread cannot be cancelled: it can ask, and is told."""
    begun, seen = threading.Event(), list[bool]()

    @tool
    def work(context: ToolContext) -> str:
        """Work."""
        begun.set()
        seen.append(context.cancelled.wait(10))
        return "too late"

    acting = Acting(use("c1", "work"))
    recorded = record(chain((run_tools(toolkit=Toolkit.of(work)),), acting.step))
    await asyncio.to_thread(begun.wait)
    recorded.dispose()
    await asyncio.to_thread(acting.run.runtime.threads.shutdown)
    assert seen == [True]
    assert [state for _, _, state in acting.results] == [ToolResultState.INTERRUPTED]


@settings(deadline=None)
@given(
    names=st.lists(st.sampled_from(["wait", "write", "fail", "talk", "nothing"]), min_size=1, max_size=6),
    leave_at=st.floats(0.1, 9),
)
def test_whenever_it_is_left_every_call_has_one_result(names: list[str], leave_at: float) -> None:
    """Invariant: done, failed or left, each call has exactly one result, in call order, and its start and end."""
    acting = Acting(*(use(f"c{at}", name) for at, name in enumerate(names)))

    async def main() -> None:
        async with Scope():
            recorded = acting.subscribed()
            await asyncio.sleep(leave_at)
            recorded.dispose()

    run_virtual(main)
    ids = [f"c{at}" for at in range(len(names))]
    assert [id for id, _, _ in acting.results] == ids
    assert acting.run.state.context.open_calls == ()
    for kind in (ev.ToolResultStart, ev.ToolResultEnd):
        assert [event.tool_call_id for event in acting.run.events if isinstance(event, kind)] == ids
