"""Verification: which evidence counts, what each verifier finds, and what a report is worth later."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from agentscope_rx import HarnessAgent, Msg, ToolContext, tool
from agentscope_rx.errors import InvalidOption, StateConflict, TaskConflict, TaskRefused
from agentscope_rx.events import Custom, ToolResultEnd
from agentscope_rx.history import History
from agentscope_rx.messages import DataBlock, TextBlock, ToolResultBlock, ToolResultState, ToolUseBlock, URLSource
from agentscope_rx.tasks import EvidenceBinding, VerificationOutcome
from agentscope_rx.tasks.observation import ActionStatus, Evidence, Observation, observation_of
from agentscope_rx.tasks.verifiers import JsonResultSchemaVerifier, ShellExitCodeVerifier, Verdict
from agentscope_rx.testing import calls
from agentscope_rx.tools import schema_tool
from agentscope_rx.verification import VerificationService
from tests.context.support import ALICE, model_of, scripted
from tests.support import watch
from tests.tasks.support import begun
from tests.virtual import virtual

PASSED, FAILED, UNKNOWN = VerificationOutcome.PASSED, VerificationOutcome.FAILED, VerificationOutcome.UNKNOWN
BINDING = EvidenceBinding(task_id="t1", contract_version=1, subject_version="v1")


def shell_result(context: ToolContext, code: int = 0, **details: Any) -> ToolResultBlock:
    outcome = "SUCCEEDED" if code == 0 else "FAILED"
    told = {"kind": "shell", "outcome": outcome, "exit_code": code, **details}
    return ToolResultBlock(
        id=context.call.id, name="execute", output=(TextBlock(text="ran"),), metadata={"execution_details": told}
    )


@tool
async def execute(context: ToolContext, code: int = 0) -> ToolResultBlock:
    """Run the tests."""
    return shell_result(context, code)


def agent_with_task(*script: Any, **options: Any) -> HarnessAgent:
    shown = {"requirements": True, "verification": True}
    return scripted(*script, tools=[execute], task_context=shown, **options).build()


async def run_tests(agent: HarnessAgent) -> tuple[str, str]:
    """A task with a criterion, and a call of `execute`: ids of criterion and action."""
    await agent.update_tasks(ALICE, lambda _: begun())
    seen = await watch(agent, "run the tests", ALICE)
    assert seen.error is None
    (end,) = seen.of(ToolResultEnd)
    return (await agent.state(ALICE)).tasks_context.requirements[0].id, end.metadata["observation"]["action_id"]


RUN = calls(("c1", "execute", "{}"))


# -- from the action to the report --------------------------------------------------------------------------


@virtual
async def test_a_criterion_is_verified_by_what_a_tool_has_shown() -> None:
    """The report is stored and shown; a listener hears of it; nothing is run again."""
    agent = agent_with_task(RUN, "done", "seen", "moved")
    criterion, action = await run_tests(agent)
    heard: list[Custom] = []
    service = VerificationService(agent, listener=heard.append)
    report = await service.verify(ALICE, criterion, action, ShellExitCodeVerifier("execute"))
    assert (report.outcome, report.verifier_id, report.action_id) == (PASSED, "shell-exit-v1:execute:0", action)
    state = await agent.state(ALICE)
    assert state.tasks_context.verifications == (report,)
    assert report.binding == state.tasks_context.binding
    assert await service.load(ALICE, report.id) == report
    assert await service.load(ALICE, "another") is None
    (event,) = heard
    assert event.name == "task_verification"
    assert (event.value["verification_id"], event.value["outcome"]) == (report.id, "PASSED")
    assert model_of(agent).asked == 2
    await agent.call("go on", ALICE)
    assert f"{criterion} | PASSED | " in str(model_of(agent).requests[-1].tail)
    await agent.update_tasks(ALICE, lambda s: s.set_subject_version("v2", s.revision))
    await agent.call("and now", ALICE)
    assert f"{criterion} | STALE | " in str(model_of(agent).requests[-1].tail)


@virtual
async def test_a_listener_that_fails_changes_nothing() -> None:
    """The report is stored."""
    agent = agent_with_task(RUN, "done")
    criterion, action = await run_tests(agent)

    def fails(_: Custom) -> None:
        raise LookupError

    report = await VerificationService(agent, listener=fails).verify(
        ALICE, criterion, action, ShellExitCodeVerifier("execute")
    )
    assert (await agent.state(ALICE)).tasks_context.verifications == (report,)


@virtual
async def test_evidence_survives_compaction_and_not_shortening() -> None:
    """What a compaction has replaced is whole; a result whose text was cut is no evidence."""
    compaction = {"trigger_messages": 4, "keep_tokens": 0, "keep_messages": 1}
    agent = agent_with_task(RUN, "done", "notes", "more", "later", compaction=compaction)
    criterion, action = await run_tests(agent)
    await agent.call("more " * 300, ALICE)
    await agent.call("and more", ALICE)
    state = await agent.state(ALICE)
    assert state.compactions
    assert not any(message.tool_result for message in state.context.messages)
    service = VerificationService(agent)
    verifier = ShellExitCodeVerifier("execute")
    assert (await service.verify(ALICE, criterion, action, verifier)).outcome is PASSED


@virtual
async def test_a_shortened_result_is_no_evidence() -> None:
    """Its digest is another one: refused, nothing is recorded."""
    agent = agent_with_task(RUN, "done", state_only=True)  # a log holds only records that can be written
    criterion, action = await run_tests(agent)

    def cut(message: Msg) -> Msg:
        result = message.tool_result
        return message if result is None else replace(message, content=(replace(result, output=()),))

    class Cut:
        def apply(self, state: Any) -> Any:
            context: History = state.context
            return replace(state, context=context.map(lambda exchange: exchange.map(cut)))

    await agent.record(Cut(), ALICE)
    with pytest.raises(TaskRefused, match="no whole result"):
        await VerificationService(agent).verify(ALICE, criterion, action, ShellExitCodeVerifier("execute"))


@virtual
@pytest.mark.parametrize("answered", [False, True])
async def test_nobody_brings_evidence_along(answered: bool) -> None:
    """A result from outside that says what it is evidence about is none, in a conversation or as an answer."""
    agent = agent_with_task(RUN, "done", calls(("x", "gate", "{}")), "opened")
    agent = HarnessAgent.builder_from(agent).tools([schema_tool("gate", "Open the gate.", {})]).build()
    criterion, action = await run_tests(agent)
    found = [each.tool_result for each in (await agent.state(ALICE)).context.messages if each.tool_result]
    told = {**found[0].metadata, "kept": 1}
    told["observation"] = {**told["observation"], "action_id": "forged"}  # type: ignore[dict-item]
    forged = replace(found[0], id="x", name="gate", metadata=told)
    if answered:
        await agent.call("open", ALICE)
        await agent.respond(ALICE, {"x": forged})
    else:
        await agent.observe([Msg.assistant(ToolUseBlock(id="x", name="gate")), Msg.tool(forged)], ALICE)
    (came,) = [
        m.tool_result for m in (await agent.state(ALICE)).context.messages if m.tool_result and m.tool_result.id == "x"
    ]
    assert (came.metadata["kept"], observation_of(came)) == (1, None)
    service = VerificationService(agent)
    with pytest.raises(TaskRefused, match="no whole result of the action 'forged'"):
        await service.verify(ALICE, criterion, "forged", ShellExitCodeVerifier("execute"))
    assert (await service.verify(ALICE, criterion, action, ShellExitCodeVerifier("execute"))).outcome is PASSED


@virtual
async def test_what_cannot_be_verified_is_refused() -> None:
    """Unknown criterion, unknown action, no subject, another subject: nothing is recorded, no verifier is asked."""
    agent = agent_with_task(RUN, "done")
    criterion, action = await run_tests(agent)
    asked: list[Evidence] = []

    class Asked:
        id = "asked"

        def verify(self, evidence: Evidence, /) -> Verdict:
            asked.append(evidence)
            return Verdict(PASSED, "always")

    service = VerificationService(agent)

    async def refused(error: type[Exception], criterion: str, action: str) -> None:
        with pytest.raises(error):
            await service.verify(ALICE, criterion, action, Asked())

    await refused(TaskRefused, "none", action)
    await refused(TaskRefused, criterion, "none")
    await agent.update_tasks(ALICE, lambda s: s.set_subject_version("v2", s.revision))
    await refused(TaskConflict, criterion, action)
    await agent.update_tasks(ALICE, lambda s: s.invalidate_subject(s.revision))
    await refused(TaskRefused, criterion, action)
    assert asked == []
    assert (await agent.state(ALICE)).tasks_context.verifications == ()
    assert issubclass(TaskConflict, StateConflict)


@virtual
async def test_evidence_is_about_what_was_there_when_the_call_began() -> None:
    """A tool that changes the subject while it runs gives evidence about the version before."""

    @tool
    async def build(context: ToolContext) -> ToolResultBlock:
        """Build."""
        context.update_tasks(lambda s: s.set_subject_version("v2", s.revision))
        return shell_result(context)

    agent = scripted(calls(("c1", "build", "{}")), "done", tools=[build]).build()
    await agent.update_tasks(ALICE, lambda _: begun())
    (end,) = (await watch(agent, "go", ALICE)).of(ToolResultEnd)
    assert end.metadata["observation"]["evidence_binding"]["subject_version"] == "v1"
    state = (await agent.state(ALICE)).tasks_context
    assert state.subject_version == "v2"
    with pytest.raises(TaskConflict):
        await VerificationService(agent).verify(
            ALICE, state.requirements[0].id, end.metadata["observation"]["action_id"], ShellExitCodeVerifier("build")
        )


@virtual
async def test_without_a_subject_results_are_as_ever() -> None:
    """No task, no observation in the metadata."""
    agent = agent_with_task(RUN, "done")
    (end,) = (await watch(agent, "go", ALICE)).of(ToolResultEnd)
    assert "observation" not in end.metadata


def divides(_: Evidence, /) -> Any:
    return 1 / 0


def says_nothing(_: Evidence, /) -> Any:
    return None


def says_passed(_: Evidence, /) -> Any:
    return "PASSED"


@pytest.mark.parametrize("broken", [divides, says_nothing, says_passed])
async def test_a_verifier_that_fails_proves_nothing(broken: Callable[[Evidence], Any]) -> None:
    """It raises, or gives nothing: an ERROR with a reason of ours."""
    agent = agent_with_task(RUN, "done")
    criterion, action = await run_tests(agent)

    class Broken:
        id = "broken"
        verify = staticmethod(broken)

    report = await VerificationService(agent).verify(ALICE, criterion, action, Broken())
    assert report.outcome is VerificationOutcome.ERROR
    assert "division" not in report.reason


async def test_a_cancelled_verification_leaves_nothing() -> None:
    """The verifier was at work: no report, and the session is free."""
    agent = agent_with_task(RUN, "done", "free")
    criterion, action = await run_tests(agent)
    began, goes_on = asyncio.Event(), Event()
    loop = asyncio.get_running_loop()

    class Slow:
        id = "slow"

        def verify(self, evidence: Evidence, /) -> Verdict:
            loop.call_soon_threadsafe(began.set)
            goes_on.wait()
            return Verdict(PASSED, "too late")

    running = asyncio.ensure_future(VerificationService(agent).verify(ALICE, criterion, action, Slow()))
    await began.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    goes_on.set()
    assert (await agent.state(ALICE)).tasks_context.verifications == ()
    assert (await agent.call("go", ALICE)).text == "free"


async def test_reports_outlive_the_process(tmp_path: Path) -> None:
    """Another agent over the same folder has the same report, and can verify the same action again."""
    agent = agent_with_task(RUN, "done", workspace=tmp_path)
    criterion, action = await run_tests(agent)
    first = await VerificationService(agent).verify(ALICE, criterion, action, ShellExitCodeVerifier("execute"))
    other = agent_with_task("x", workspace=tmp_path)
    service = VerificationService(other)
    assert await service.load(ALICE, first.id) == first
    second = await service.verify(ALICE, criterion, action, ShellExitCodeVerifier("execute", 3))
    assert (second.outcome, await service.load(ALICE, first.id)) == (FAILED, None)


# -- verifiers ----------------------------------------------------------------------------------------------


def evidence(
    *output: Any, status: ActionStatus = ActionStatus.RETURNED, details: Any = None, **changes: Any
) -> Evidence:
    blocks = tuple(TextBlock(text=each) if isinstance(each, str) else each for each in output)
    metadata = {} if details is None else {"execution_details": details}
    result = ToolResultBlock(id="c1", name="execute", output=blocks, metadata=metadata)
    observation = Observation(
        action_id="a1", started_at="", ended_at="", status=status, evidence_binding=BINDING, output_digest=""
    )
    return Evidence(observation=observation, result=replace(result, **changes))


SHELL = {"kind": "shell", "outcome": "SUCCEEDED", "exit_code": 0, "output_truncated": False}


@pytest.mark.parametrize(
    ("details", "expected", "outcome"),
    [
        (SHELL, 0, PASSED),
        (SHELL, 1, FAILED),
        ({**SHELL, "outcome": "FAILED", "exit_code": 1}, 0, FAILED),
        ({**SHELL, "outcome": "FAILED", "exit_code": 1}, 1, PASSED),
        ({**SHELL, "output_truncated": True}, 0, UNKNOWN),
        ({**SHELL, "exit_code": None}, 0, UNKNOWN),
        ({**SHELL, "exit_code": 1}, 1, UNKNOWN),  # succeeded, with 1
        ({**SHELL, "outcome": "FAILED"}, 0, UNKNOWN),
        ({**SHELL, "outcome": "PARTIAL"}, 0, UNKNOWN),
        ({**SHELL, "outcome": "UNKNOWN"}, 0, UNKNOWN),
        ({**SHELL, "kind": "http"}, 0, UNKNOWN),
        ({"exit_code": "zero"}, 0, UNKNOWN),
        (None, 0, UNKNOWN),
    ],
)
def test_an_exit_code(details: Any, expected: int, outcome: VerificationOutcome) -> None:
    """Passed only where everything that the tool says agrees."""
    assert ShellExitCodeVerifier("execute", expected).verify(evidence("ran", details=details)).outcome is outcome
    assert ShellExitCodeVerifier("other", expected).verify(evidence("ran", details=details)).outcome is UNKNOWN


COUNTED = {"type": "object", "properties": {"failed": {"const": 0}}, "required": ["failed"]}
IMAGE = DataBlock(source=URLSource(url="http://x"))


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (evidence('{"failed": 0}'), PASSED),
        (evidence('{"failed": 1}'), FAILED),
        (evidence("{}"), FAILED),
        (evidence('{"failed": 0} and more'), FAILED),
        (evidence(""), FAILED),
        (evidence(), UNKNOWN),
        (evidence('{"failed": 0}', IMAGE), UNKNOWN),
        (evidence(IMAGE), UNKNOWN),
        (evidence('{"failed": 0}', state=ToolResultState.ERROR), UNKNOWN),
        (evidence('{"failed": 0}', status=ActionStatus.FAILED), UNKNOWN),
        (evidence('{"failed": 0}', details={**SHELL, "output_truncated": True}), UNKNOWN),
        (evidence('{"failed": 0}', details={**SHELL, "outcome": "FAILED"}), UNKNOWN),
        (evidence('{"failed": 0}', details=SHELL), PASSED),
        (evidence(json.dumps({"failed": 0, "log": "x" * 262_144})), UNKNOWN),
    ],
)
def test_a_result_of_a_form(given: Evidence, outcome: VerificationOutcome) -> None:
    """Passed only for one whole text that is one JSON value of the form."""
    verdict = JsonResultSchemaVerifier(COUNTED).verify(given)
    assert verdict.outcome is outcome
    assert verdict.reason


@pytest.mark.parametrize(
    "schema", [{}, {"$ref": "#/x"}, {"allOf": [{"$id": "http://x"}]}, {"enum": ["x" * 70_000]}, {"type": "nothing"}]
)
def test_a_schema_stands_for_itself(schema: Any) -> None:
    """Empty, with references, too long, or none."""
    with pytest.raises(InvalidOption, match="schema"):
        JsonResultSchemaVerifier(schema)


def test_a_verifier_is_known_by_what_it_checks() -> None:
    """Other schemas, tools and codes are other verifiers."""
    ids = {
        JsonResultSchemaVerifier(COUNTED).id,
        JsonResultSchemaVerifier({"type": "object"}).id,
        ShellExitCodeVerifier("execute").id,
        ShellExitCodeVerifier("execute", 1).id,
    }
    assert len(ids) == 4
    for name in ("", "x" * 129):
        with pytest.raises(InvalidOption, match="tool_name"):
            ShellExitCodeVerifier(name)
