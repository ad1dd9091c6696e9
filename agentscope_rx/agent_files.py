"""The files of an agent: which of them each session sees, where commands run, and what `tools.json` says."""

from __future__ import annotations

from collections.abc import Hashable
from functools import cached_property
from pathlib import Path
from typing import Final

from agentscope_rx.compaction.config import ToolResultEvictionConfig
from agentscope_rx.compaction.offloading import ResultFolder
from agentscope_rx.errors import InvalidOption
from agentscope_rx.frozen import frozen
from agentscope_rx.stores import SessionKey
from agentscope_rx.tools import ToolContext
from agentscope_rx.tools.config import TOOLS_FILE, ToolsConfig
from agentscope_rx.tools.shell_tool import ShellSettings, ShellTool
from agentscope_rx.workspace import (
    HidingWorkspace,
    IsolationScope,
    LocalWorkspace,
    SessionFiles,
    WorkspaceFS,
    resolve_path,
)
from agentscope_rx.workspace.filesystem import is_read_only

_ALL_SHARE: Final = (None, IsolationScope.GLOBAL)


@frozen
class FileChoices:
    """What was chosen about files; `HarnessAgent.builder` says what each means."""

    isolation: IsolationScope | None = None
    project: Path | None = None
    project_writable: bool = False
    shell: bool | ShellSettings | None = None


class AgentFiles:
    """The files of an agent.

    Args:
        workspace: All of its workspace.
        choices: What was chosen.
        agent_name: The agent's name.
        eviction: Where large results move to; None = they do not.
        kept: What is the workspace's where the project is written to, as paths.

    Raises:
        InvalidOption: There is no such project, or commands would have no folder, or one that they must not see.
    """

    def __init__(
        self,
        workspace: WorkspaceFS,
        choices: FileChoices,
        *,
        agent_name: str,
        eviction: ToolResultEvictionConfig | None,
        kept: tuple[str, ...],
    ) -> None:
        self.workspace, self._choices, self._agent_name, self._eviction = workspace, choices, agent_name, eviction
        self._local = workspace if isinstance(workspace, LocalWorkspace) else None
        self._sessions = SessionFiles(
            workspace=workspace,
            isolation=choices.isolation,
            project=self._project(),
            kept=frozenset(resolve_path(path).parts[0] for path in kept) if choices.project_writable else None,
        )
        self._check_shell()

    @property
    def folder(self) -> Path | None:
        """The workspace's folder; None where it is not one of this machine."""
        return None if self._local is None else self._local.root

    @property
    def roots(self) -> tuple[str, ...]:
        """The folders of this machine that are the root of what sessions see."""
        return tuple(str(each) for each in (self.folder, self._choices.project) if each is not None)

    @property
    def read_only(self) -> bool:
        """Whether nothing can be changed."""
        return is_read_only(self.workspace) and not self._choices.project_writable

    def of(self, key: SessionKey) -> WorkspaceFS:
        """The workspace as a session sees it: what has moved there from other sessions' results is hidden."""
        files = self._sessions.of(key)
        if self._eviction is None:
            return files
        results = ResultFolder.of(
            files, self._eviction, agent=self._agent_name, user_id=key.user_id, session_id=key.session_id
        )
        return HidingWorkspace(files, self._eviction.eviction_path, but=results.path)

    def of_call(self, context: ToolContext) -> WorkspaceFS:
        """The workspace as the session sees it that makes a tool call."""
        return self.of(_key_of(context))

    def scope_of(self, key: SessionKey) -> Hashable:
        """What is the same for the sessions that work on the same files."""
        return self.folder or self.workspace, self._sessions.folder_of(key)

    def are_apart(self, key: SessionKey) -> bool:
        """Whether a session has files that not all share."""
        return self._sessions.are_apart(key)

    # -- commands -------------------------------------------------------------------------------------------

    @cached_property
    def shell(self) -> ShellTool | None:
        """What runs commands; None where nothing does."""
        folder, chosen = self._shell_folder, self._choices.shell
        if folder is None or chosen is False or (chosen is None and self._choices.isolation not in _ALL_SHARE):
            return None
        return ShellTool(folder, settings=chosen if isinstance(chosen, ShellSettings) else None)

    def refuses_commands(self, context: ToolContext) -> bool:
        """Whether commands would see other files than the session works on."""
        return self._choices.project is None and self.are_apart(_key_of(context))

    @property
    def _shell_folder(self) -> Path | None:
        """The folder of this machine in which commands would run: the project's, else the workspace's."""
        if self._choices.project is not None:
            return self._choices.project
        return None if self._local is None or self._local.read_only else self._local.root

    def _check_shell(self) -> None:
        if self._choices.shell in (None, False) or self._choices.project is not None:
            return
        if self._shell_folder is None:
            raise InvalidOption("shell_tool", True, "commands run in a folder of this machine: give a project(...)")
        if self._choices.isolation not in _ALL_SHARE:
            rule = "a command could read what isolation keeps apart: give a project(...) for commands to run in"
            raise InvalidOption("shell_tool", True, rule)

    # -- what lies there ------------------------------------------------------------------------------------

    def tools_config(self) -> ToolsConfig | None:
        """What the `tools.json` of the workspace's folder says; None where there is none.

        Raises:
            InvalidOption: It cannot be read, or is none.
        """
        if self._local is None:
            return None
        where = str(self._local.root / TOOLS_FILE)
        try:
            data = self._local.read_blocking(TOOLS_FILE).data
        except FileNotFoundError:
            return None
        except OSError as error:
            raise InvalidOption(TOOLS_FILE, where, f"cannot be read ({error})") from error
        return ToolsConfig.from_file(data, where)

    def _project(self) -> WorkspaceFS | None:
        """The project's files, without the workspace where that lies in it; None where both are one."""
        folder = self._choices.project
        if folder is None:
            return None
        try:
            project = LocalWorkspace(folder, read_only=not self._choices.project_writable)
        except OSError as error:
            raise InvalidOption("project", str(folder), f"a folder that is there ({error})") from error
        own = self.folder
        if own is None or not own.is_relative_to(project.root):
            return project
        return None if own == project.root else HidingWorkspace(project, str(own.relative_to(project.root)))


def _key_of(context: ToolContext) -> SessionKey:
    return SessionKey(agent_id=context.agent_id, user_id=context.user_id, session_id=context.session_id or "")
