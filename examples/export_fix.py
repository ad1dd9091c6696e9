"""A bug is fixed by a plan that a person approves, and proved by a check: python examples/export_fix.py

Plan, to-do list, requirements and proof are state: they outlive compactions and processes. Each stage here has an agent
of its own, as it would have in another process. `export_story.py` plays the model over HTTP: no key, no network.
"""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from export_agent import SCOPE, change_assistant, confirmed
from export_story import Story, make_project, version_of

from agentscope_rx import HarnessAgent, RuntimeContext, VerificationService, approve
from agentscope_rx.events import ToolResultEnd
from agentscope_rx.tasks import ShellExitCodeVerifier, observation_of
from agentscope_rx.testing import FakeProvider

ALICE = RuntimeContext(user_id="alice", session_id="change-42")


async def plan(agent: HarnessAgent, project: Path) -> None:
    await agent.update_tasks(ALICE, lambda task: task.begin_task(SCOPE, task.revision))
    print((await agent.call("Fix the report export failure and verify the result.", ALICE)).reason)


async def work(agent: HarnessAgent, project: Path) -> None:
    (waiting,) = await agent.pending(ALICE)
    print("asked:", waiting.message)
    await agent.update_tasks(ALICE, confirmed)  # what the model has proposed binds nobody before
    print("done:", (await agent.respond(ALICE, {waiting.id: approve()}).reply()).text)


async def verify(agent: HarnessAgent, project: Path) -> None:
    version = version_of(project)  # results are evidence about this version, and about no later one
    task = await agent.update_tasks(ALICE, lambda task: task.set_subject_version(version, task.revision))
    ends = [event async for event in agent.stream_events("Now verify it.", ALICE) if isinstance(event, ToolResultEnd)]
    (ran,) = [seen for end in ends if end.tool_call_name == "execute" and (seen := observation_of(end))]
    criterion, verifier = task.requirements[0].id, ShellExitCodeVerifier("execute")
    report = await VerificationService(agent).verify(ALICE, criterion, ran.action_id, verifier)
    print("checked:", report.outcome, report.reason)
    print((await agent.call("Report.", ALICE)).text)


async def main() -> None:
    with TemporaryDirectory() as folder, FakeProvider.in_thread(Story()) as provider:
        project = make_project(Path(folder, "project"))
        for stage in (plan, work, verify):
            async with change_assistant(provider.base_url, Path(folder)).build() as agent:
                await stage(agent, project)


if __name__ == "__main__":
    asyncio.run(main())
