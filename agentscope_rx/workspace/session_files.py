"""The files that a session sees: its own ones, over those that all share, over those of a project."""

from __future__ import annotations

from typing import Final

from agentscope_rx.frozen import frozen
from agentscope_rx.stores.keys import SessionKey
from agentscope_rx.workspace.filesystem import WorkspaceFS
from agentscope_rx.workspace.hiding import HidingWorkspace
from agentscope_rx.workspace.isolation import IsolationScope, scope_folder
from agentscope_rx.workspace.overlay import OverlayWorkspace
from agentscope_rx.workspace.routing import RoutedWorkspace
from agentscope_rx.workspace.scoped import ScopedWorkspace

#: Where those have their files who share them with some only. Nobody sees it as it is.
ISOLATED_FOLDER: Final = ".agentscope-isolated"


@frozen
class SessionFiles:
    """Says which files a session sees.

    Args:
        workspace: All of the workspace.
        isolation: Who shares what is written; the rest of the workspace is then only read. `GLOBAL`: all do, and work
            on the workspace itself. Default None: each user has files of their own, and who calls without a user
            works on the workspace itself.
        project: The files of a project, which are read where the workspace has none. Default: there is no project.
        kept: Where a project is written to: the entries of its root that are the workspace's all the same. Default
            None: the project is only read.

    Examples:
        >>> files = SessionFiles(workspace=InMemoryWorkspace({"AGENTS.md": "Be brief."}))
        >>> alice = files.of(SessionKey(agent_id="a", user_id="alice", session_id="s"))
        >>> version = await alice.write("AGENTS.md", b"Be kind.")
        >>> bob = files.of(SessionKey(agent_id="a", user_id="bob", session_id="s"))
        >>> (await bob.read("AGENTS.md")).data
        b'Be brief.'
    """

    workspace: WorkspaceFS
    isolation: IsolationScope | None = None
    project: WorkspaceFS | None = None
    kept: frozenset[str] | None = None

    def are_apart(self, key: SessionKey) -> bool:
        """Whether a session has files that not all share."""
        if self.isolation is None:
            return key.user_id is not None
        return self.isolation is not IsolationScope.GLOBAL

    def folder_of(self, key: SessionKey) -> str | None:
        """Where the own files of a session lie; None where it has none that not all share."""
        if not self.are_apart(key):
            return None
        return f"{ISOLATED_FOLDER}/{scope_folder(self.isolation or IsolationScope.USER, key)}"

    def of(self, key: SessionKey) -> WorkspaceFS:
        """The files that a session sees, as a workspace.

        Args:
            key: The session, as `AgentOptions.key_of` reads it from a `RuntimeContext`.
        """
        files: WorkspaceFS = HidingWorkspace(self.workspace, ISOLATED_FOLDER)
        if (folder := self.folder_of(key)) is not None:
            files = OverlayWorkspace(ScopedWorkspace(self.workspace, folder), files)
        if self.project is None:
            return files
        both = OverlayWorkspace(files, self.project)
        return both if self.kept is None else RoutedWorkspace(self.project, dict.fromkeys(sorted(self.kept), both))
