"""What a HarnessAgent does to files and with commands, and who may see it."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx import InMemoryWorkspace, LocalWorkspace, PermissionRule, RuntimeContext, tool
from agentscope_rx.errors import InvalidOption
from agentscope_rx.events import RequireUserConfirm, ToolResultEnd
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.messages import GenerateReason
from agentscope_rx.tasks import VerificationOutcome
from agentscope_rx.tasks.verifiers import ShellExitCodeVerifier
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.tools.config import ToolsConfig
from agentscope_rx.tools.file_tools import file_tools
from agentscope_rx.tools.session_tool import session_file_tools
from agentscope_rx.tools.shell_tool import ShellSettings
from agentscope_rx.verification import VerificationService
from agentscope_rx.workspace import IsolationScope
from tests.context.support import ALICE, BOB, model_of
from tests.support import ONE_ATTEMPT, watch
from tests.tasks.support import begun

NOBODY = RuntimeContext(session_id="s1")
LOOKING = ["glob_files", "grep_files", "list_files", "read_file"]
CHANGING = ["edit_file", "write_file"]


def call(name: str, **arguments: Any) -> Any:
    """One call, as the model makes it."""
    return calls(("c1", name, json.dumps(arguments)))


def agent_on(workspace: object, *script: Any, **options: Any) -> HarnessAgent:
    """An agent with this workspace, and all tools that come by themselves."""
    keywords: dict[str, Any] = {"workspace": workspace, "execution": ONE_ATTEMPT, **options}
    return HarnessAgent.builder(name="worker", model=ScriptedModel([*script, *["done"] * 5]), **keywords).build()


def results(agent: HarnessAgent) -> list[str]:
    """What the model has read of its calls."""
    found = (message.tool_result for message in model_of(agent).requests[-1].conversation.messages)
    return [result.text for result in found if result is not None]


def tools_of(agent: HarnessAgent) -> list[str]:
    return sorted(agent.options.all_tools.names)


# -- files --------------------------------------------------------------------------------------------------


async def test_an_agent_writes_edits_and_reads(tmp_path: Path) -> None:
    """Without a user it works on the folder itself."""
    agent = agent_on(
        tmp_path,
        call("write_file", path="src/app.py", content="print('hi')\n"),
        call("edit_file", path="src/app.py", old_string="hi", new_string="bye"),
        call("read_file", path="src/app.py"),
    )
    await agent.call("Write it.", NOBODY)
    assert (tmp_path / "src/app.py").read_text() == "print('bye')\n"
    assert results(agent) == [
        "Created 'src/app.py' (12 bytes).",
        "Replaced the text in 'src/app.py' at line 1.",
        "print('bye')",
    ]


def test_which_tools_come_by_themselves(tmp_path: Path) -> None:
    """All where there is a folder; what cannot work is not offered, nor what is switched off."""
    everything = sorted([*LOOKING, *CHANGING, "execute"])
    assert tools_of(agent_on(tmp_path)) == everything
    assert tools_of(agent_on(LocalWorkspace(tmp_path))) == everything
    assert tools_of(agent_on(tmp_path, isolation="global")) == everything
    assert tools_of(agent_on(InMemoryWorkspace())) == sorted([*LOOKING, *CHANGING])
    assert tools_of(agent_on(InMemoryWorkspace(), project=tmp_path)) == everything
    assert tools_of(agent_on(LocalWorkspace(tmp_path, read_only=True))) == LOOKING
    assert tools_of(agent_on(tmp_path, filesystem_tools="read_only")) == sorted([*LOOKING, "execute"])
    builder = HarnessAgent.builder(name="a", model=ScriptedModel([]), workspace=tmp_path)
    assert tools_of(builder.disable_shell_tool().build()) == sorted([*LOOKING, *CHANGING])
    assert tools_of(builder.disable_filesystem_tools().build()) == ["execute"]
    for scope in (IsolationScope.SESSION, IsolationScope.USER, IsolationScope.AGENT):
        assert tools_of(builder.isolation(scope).build()) == sorted([*LOOKING, *CHANGING])
        assert tools_of(builder.isolation(scope).project(tmp_path).shell_tool(True).build()) == everything


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("filesystem_tools", "yes"),
        ("filesystem_tools", 1),
        ("shell_tool", "yes"),
        ("isolation", "nobody"),
        ("project", " "),
        ("project", 3),
        ("project_writable", "yes"),
        ("tools_config", {"alow": ["x"]}),
        ("tools_config", {"deny": [" "]}),
    ],
)
def test_wrong_choices_are_refused_where_they_are_made(option: str, value: object) -> None:
    """With the name of the option."""
    with pytest.raises(InvalidOption, match=option):
        HarnessAgent.builder(**{option: value})  # type: ignore[reportArgumentType]


def test_choices_that_cannot_work_are_refused_when_the_agent_is_built(tmp_path: Path) -> None:
    """No project, no folder for commands, or one that they must not see."""
    with pytest.raises(InvalidOption, match="project"):
        agent_on(tmp_path, project=tmp_path / "nothing")
    with pytest.raises(InvalidOption, match="shell_tool"):
        agent_on(InMemoryWorkspace(), shell_tool=True)
    with pytest.raises(InvalidOption, match="keeps apart"):
        agent_on(tmp_path, shell_tool=ShellSettings(), isolation="user")


# -- isolation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [None, "user", "session"])
async def test_users_do_not_see_each_others_files(tmp_path: Path, scope: str | None) -> None:
    """What the model writes for one is not there for another, by any tool; both read what is for all."""
    (tmp_path / "AGENTS.md").write_text("Rules for all.")
    agent = agent_on(
        tmp_path,
        call("write_file", path="notes/secret.txt", content="needle"),
        "kept",
        call("list_files"),
        call("glob_files", pattern="**"),
        call("grep_files", pattern="needle"),
        call("read_file", path="notes/secret.txt"),
        call("list_files", path=".agentscope-isolated"),
        isolation=scope,
    )
    await agent.call("Keep it.", ALICE)
    await agent.call("Look.", BOB)
    listed, found, searched, read, hidden = results(agent)
    assert listed == "[FILE] AGENTS.md (14 bytes)"
    assert found == "AGENTS.md (14 bytes)"
    assert searched == "No matches found."
    assert "there is no file" in read
    assert "belongs to somebody else" in hidden
    assert (await agent.files(ALICE).read("notes/secret.txt")).data == b"needle"


async def test_a_user_has_rules_and_memory_of_their_own() -> None:
    """They take the place of those for all, in that user's requests alone."""
    files = InMemoryWorkspace({"AGENTS.md": "Use tabs.", "MEMORY.md": "Tea at five."})
    agent = agent_on(files)
    await agent.files(ALICE).write("AGENTS.md", b"Use blanks.")
    await agent.files(ALICE).write("MEMORY.md", b"Alice drinks coffee.")
    for who in (ALICE, BOB):
        await agent.call("Go.", who)
    alice, bob = model_of(agent).requests
    assert ("Use blanks." in alice.system, "Use tabs." in alice.system) == (True, False)
    assert ("Use blanks." in bob.system, "Use tabs." in bob.system) == (False, True)
    assert "coffee" in alice.tail[-1].text
    assert "coffee" not in bob.tail[-1].text


async def test_the_folder_is_told_to_those_alone_who_work_on_it(tmp_path: Path) -> None:
    """Who has files of their own would find others at that path."""
    agent = agent_on(tmp_path)
    await agent.call("Go.", NOBODY)
    await agent.call("Go.", ALICE)
    nobody, alice = model_of(agent).requests
    assert f"Workspace folder: {tmp_path.resolve()}" in nobody.tail[-1].text
    assert str(tmp_path) not in "".join(message.text for message in alice.tail)


# -- a project ----------------------------------------------------------------------------------------------


async def test_a_project_is_read_and_the_workspace_written(tmp_path: Path) -> None:
    """The default: the project's file stays as it is, and the workspace's takes its place."""
    project, workspace = tmp_path / "project", tmp_path / "workspace"
    project.mkdir()
    (project / "app.py").write_text("old")
    agent = agent_on(
        workspace,
        call("edit_file", path="app.py", old_string="old", new_string="new"),
        call("read_file", path="app.py"),
        call("execute", command="cat app.py"),
        project=project,
    )
    await agent.call("Edit.", NOBODY)
    assert results(agent)[1:] == ["new", "Exit code: 0\n\nold"]
    assert ((project / "app.py").read_text(), (workspace / "app.py").read_text()) == ("old", "new")
    assert f"Project folder: {project}" in model_of(agent).requests[0].tail[-1].text


async def test_a_project_is_written_to_where_that_was_said(tmp_path: Path) -> None:
    """Code goes to the project, for all; memory and rules stay the workspace's, or the user's own."""
    project, workspace = tmp_path / "project", tmp_path / "workspace"
    project.mkdir()
    (project / "app.py").write_text("old")
    agent = agent_on(
        workspace,
        call("edit_file", path="app.py", old_string="old", new_string="new"),
        call("write_file", path="memory/note.md", content="noted"),
        call("execute", command="cat app.py"),
        project=project,
        project_writable=True,
    )
    await agent.call("Edit.", ALICE)
    assert results(agent)[2] == "Exit code: 0\n\nnew"
    assert (project / "app.py").read_text() == "new"
    assert not (project / "memory").exists()
    assert (await agent.files(ALICE).read("memory/note.md")).data == b"noted"
    with pytest.raises(FileNotFoundError):
        await agent.files(BOB).read("memory/note.md")


async def test_commands_in_a_shared_project_reach_what_others_have(tmp_path: Path) -> None:
    """As README, docs/workspaces.md and `project` say: a shell is not containment."""
    agent = agent_on(
        tmp_path / ".agentscope/workspace",
        call("write_file", path="secret.txt", content="needle"),
        "kept",
        call("execute", command="cat .agentscope/workspace/.agentscope-isolated/users/*/secret.txt"),
        project=tmp_path,
    )
    await agent.call("Keep it.", ALICE)
    await agent.call("Look.", BOB)
    assert results(agent) == ["Exit code: 0\n\nneedle"]


async def test_a_workspace_inside_of_the_project_is_not_seen_through_it(tmp_path: Path) -> None:
    """Or else the files of all users would be."""
    (tmp_path / "app.py").write_text("code")
    agent = agent_on(
        tmp_path / ".agentscope/workspace",
        call("write_file", path="secret.txt", content="needle"),
        "kept",
        call("grep_files", pattern="needle"),
        call("list_files", path=".agentscope/workspace"),
        call("glob_files", pattern="**/*.txt"),
        project=tmp_path,
    )
    await agent.call("Keep it.", ALICE)
    await agent.call("Look.", BOB)
    searched, listed, found = results(agent)
    assert (searched, found) == ("No matches found.", "No files found.")
    assert "belongs to somebody else" in listed


async def test_a_workspace_that_is_the_project(tmp_path: Path) -> None:
    """One folder is one folder: it is written to, and commands see that."""
    agent = agent_on(
        tmp_path, call("write_file", path="a.txt", content="hi"), call("execute", command="cat a.txt"), project=tmp_path
    )
    await agent.call("Go.", NOBODY)
    assert results(agent)[1] == "Exit code: 0\n\nhi"


# -- commands -----------------------------------------------------------------------------------------------


async def test_commands_run_in_the_folder_as_was_said(tmp_path: Path) -> None:
    """In a directory of it, with the settings that were given."""
    (tmp_path / "sub").mkdir()
    agent = agent_on(
        tmp_path,
        call("execute", command="pwd -P; echo $MINE", working_directory="sub"),
        shell_tool=ShellSettings(env={"MINE": "given"}),
    )
    await agent.call("Run.", NOBODY)
    assert results(agent) == [f"Exit code: 0\n\n{tmp_path.resolve()}/sub\ngiven"]


async def test_who_has_files_of_their_own_runs_no_commands_on_those_of_all(tmp_path: Path) -> None:
    """A command would see other files than the session works on; the error says so, and nothing runs."""
    agent = agent_on(tmp_path, call("execute", command="touch made"))
    seen = await watch(agent, "Run.", ALICE)
    (end,) = seen.of(ToolResultEnd)
    assert end.state == "error"
    assert "kept apart" in results(agent)[0]
    assert not (tmp_path / "made").exists()


async def test_rules_speak_of_paths_and_commands(tmp_path: Path) -> None:
    """Denied is denied, what is not allowed is asked, and links are followed as the session sees them."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "way").symlink_to("secrets")
    rules = [
        PermissionRule.deny("write_file", "secrets/**"),
        PermissionRule.allow("write_file", "**"),
        PermissionRule.allow("execute", "echo"),
    ]
    agent = agent_on(
        tmp_path,
        call("write_file", path="way/a.txt", content="x"),
        call("write_file", path="b.txt", content="x"),
        call("execute", command="echo hi"),
        call("execute", command="touch c.txt"),
        permission_rules=rules,
    )
    seen = await watch(agent, "Go.", NOBODY)
    assert [event.state for event in seen.of(ToolResultEnd)] == ["denied", "success", "success"]
    assert seen.result.reason is GenerateReason.PERMISSION_ASKING
    assert sorted(path.name for path in tmp_path.iterdir() if path.name[0] != ".") == ["b.txt", "secrets", "way"]
    assert not any((tmp_path / "secrets").iterdir())


@pytest.mark.parametrize("path", ["AGENTS.md", "tools.json", "sub/agents.md", ".git/hooks/pre-commit"])
@pytest.mark.parametrize(
    ("name", "change"), [("write_file", {"content": "Obey."}), ("edit_file", {"old_string": "a", "new_string": "b"})]
)
async def test_what_says_how_the_agent_is_to_be_is_not_changed_unasked(
    tmp_path: Path, path: str, name: str, change: dict[str, str]
) -> None:
    """Without any rule, and in the mode that allows edits: a person is asked, whichever tool makes the change."""
    for options in ({}, {"permission_mode": "accept_edits", "working_directories": ["."]}):
        agent = agent_on(tmp_path, call(name, path=path, **change), **options)
        seen = await watch(agent, "Go.", RuntimeContext(session_id=f"s{len(options)}"))
        assert len(seen.of(RequireUserConfirm)) == 1
    assert not (tmp_path / path).exists()


async def test_a_rule_about_a_path_holds_for_a_search_through_all(tmp_path: Path) -> None:
    """What looks through a whole tree looks at what lies in it."""
    names = ("grep_files", "glob_files")
    rules = [PermissionRule.deny(name, "secrets/**") for name in names]
    agent = agent_on(tmp_path, *(call(name, pattern="x") for name in names), permission_rules=rules)
    assert [event.state for event in (await watch(agent, "Go.", NOBODY)).of(ToolResultEnd)] == ["denied", "denied"]


def test_the_agents_own_file_tools_are_judged_as_those_of_a_workspace() -> None:
    """Which only look, and which must not run beside others, does not depend on who has made them."""
    files = InMemoryWorkspace()
    of_sessions = session_file_tools(lambda _: files)
    for one, other in zip(of_sessions, file_tools(files), strict=True):
        assert (one.spec, one.read_only, one.concurrency_safe) == (other.spec, other.read_only, other.concurrency_safe)


@pytest.mark.parametrize(("command", "outcome"), [("exit 0", "PASSED"), ("exit 3", "FAILED"), ("seq 50000", "UNKNOWN")])
async def test_a_commands_exit_code_is_evidence(tmp_path: Path, command: str, outcome: str) -> None:
    """From the agent's own `execute` to the report: nobody reads the text, and a cut output proves nothing."""
    shown = {"requirements": True, "verification": True}
    agent = agent_on(tmp_path, call("execute", command=command), task_context=shown)
    await agent.update_tasks(NOBODY, lambda _: begun())
    (end,) = (await watch(agent, "Run the tests.", NOBODY)).of(ToolResultEnd)
    action = end.metadata["observation"]["action_id"]
    (criterion,) = (await agent.state(NOBODY)).tasks_context.requirements
    verifier = ShellExitCodeVerifier("execute")
    report = await VerificationService(agent).verify(NOBODY, criterion.id, action, verifier)
    assert report.outcome is VerificationOutcome(outcome), report.reason


# -- tools.json ---------------------------------------------------------------------------------------------


@tool
async def deploy() -> str:
    """Deploy it."""
    return "deployed"


def write_config(folder: Path, **config: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tools.json").write_text(json.dumps(config))
    return folder


def test_the_workspaces_file_says_which_tools_are_on_offer(tmp_path: Path) -> None:
    """Denied are never, others only where they are allowed; tools of planning and tasks need not be."""
    folder = write_config(tmp_path, allow=["*_files", "deploy"], deny=["glob_files"])
    agent = agent_on(folder, tools=[deploy], enable_task_list=True, enable_plan_mode=True)
    expected = ["deploy", "grep_files", "list_files", "plan_enter", "plan_exit", "plan_write", "todo_write"]
    assert tools_of(agent) == expected
    denying = agent_on(write_config(tmp_path, deny=["plan_*", "execute"]), enable_plan_mode=True)
    assert tools_of(denying) == sorted([*LOOKING, *CHANGING])


async def test_what_is_not_on_offer_is_not_shown_and_not_run(tmp_path: Path) -> None:
    """A call of it is an error like that of a tool that there never was."""
    agent = agent_on(write_config(tmp_path, deny=["execute"]), call("execute", command="touch made"))
    await agent.call("Go.", NOBODY)
    assert "execute" not in [spec.name for spec in model_of(agent).requests[0].tools]
    assert "There is no tool 'execute'" in results(agent)[0]
    assert not (tmp_path / "made").exists()


def test_what_the_builder_says_wins_over_the_file(tmp_path: Path) -> None:
    """Another choice, or none at all."""
    folder = write_config(tmp_path, deny=["*"])
    builder = HarnessAgent.builder(name="a", model=ScriptedModel([]), workspace=folder)
    assert tools_of(builder.build()) == []
    assert tools_of(builder.tools_config({"allow": ["read_file"]}).build()) == ["read_file"]
    assert tools_of(builder.tools_config(ToolsConfig(allow=("execute",))).build()) == ["execute"]
    assert len(tools_of(builder.disable_tools_config().build())) == 7


async def test_an_answer_with_a_form_needs_no_permission_of_the_file(tmp_path: Path) -> None:
    """The tool that gives it is how the call works, not what the model may do."""
    answer = calls(("c1", "generate_response", '{"response": {"total": 3}}'))
    agent = agent_on(write_config(tmp_path, allow=["read_file"]), answer)
    reply = await agent.call("Count.", NOBODY, output={"type": "object", "properties": {"total": {"type": "integer"}}})
    assert reply.output(dict) == {"total": 3}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "one object of JSON"),
        ("[]", "the whole"),
        ('{"deny": "execute"}', "deny"),
        ('{"mcpServers": {}}', "mcpServers"),
        ('{"allow": [3]}', "allow"),
    ],
)
def test_a_file_that_is_none_is_refused(tmp_path: Path, content: str, message: str) -> None:
    """When the agent is built, with its path and what is wrong; a restriction is never skipped in silence."""
    (tmp_path / "tools.json").write_text(content)
    with pytest.raises(InvalidOption, match=message) as caught:
        agent_on(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_a_file_that_leads_out_of_the_workspace_is_refused(tmp_path: Path) -> None:
    """Like any other of it."""
    (tmp_path / "ws").mkdir()
    (tmp_path / "mine.json").write_text("{}")
    (tmp_path / "ws/tools.json").symlink_to("../mine.json")
    with pytest.raises(InvalidOption, match="cannot be read"):
        agent_on(tmp_path / "ws")


def test_a_name_that_no_tool_has_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A denial with a typing error denies nothing; that must not go unseen."""
    with caplog.at_level(logging.WARNING):
        agent_on(write_config(tmp_path, deny=["exceute"], allow=["read_file"]))
    (record,) = caplog.records
    assert (record.message, record.__dict__["names"]) == ("tools_config_unknown", ["exceute"])
