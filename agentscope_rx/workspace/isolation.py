"""Whose files they are: which folder of a shared workspace a session works in."""

from __future__ import annotations

from enum import StrEnum

from agentscope_rx.stores.keys import SessionKey, folder_name
from agentscope_rx.workspace.filesystem import WorkspaceFS
from agentscope_rx.workspace.paths import WorkspacePath, resolve_path
from agentscope_rx.workspace.scoped import ScopedWorkspace


class IsolationScope(StrEnum):
    """Who shares the files of a workspace. States and logs are kept by session whatever it is."""

    SESSION = "session"
    USER = "user"
    AGENT = "agent"
    GLOBAL = "global"


def scope_folder(scope: IsolationScope, key: SessionKey) -> WorkspacePath:
    """Name the folder of those who share files with a session; nobody else's is the same, or inside it.

    Args:
        scope: Who shares them: the session alone; all sessions of its user, with any agent (a session without a
            user shares with nobody); all sessions of its agent; or all.
        key: The session.

    Examples:
        >>> str(scope_folder(IsolationScope.USER, SessionKey(agent_id="a", user_id="alice", session_id="s")))
        'users/s_mfwgsy3f'
    """
    agent, session = folder_name(key.agent_id), folder_name(key.session_id)
    match scope:
        case IsolationScope.GLOBAL:
            return resolve_path("global")
        case IsolationScope.AGENT:
            return resolve_path(f"agents/{agent}")
        case IsolationScope.USER if key.user_id is not None:
            return resolve_path(f"users/{folder_name(key.user_id)}")
        case IsolationScope.USER | IsolationScope.SESSION:
            # Two agents may give their sessions one name; the folder of a user begins with s_.
            user = "nobody" if key.user_id is None else folder_name(key.user_id)
            return resolve_path(f"sessions/{agent}/{user}/{session}")


def scoped_workspace(workspace: WorkspaceFS, scope: IsolationScope, key: SessionKey) -> ScopedWorkspace:
    """Give a session its part of a workspace that many share.

    Args:
        workspace: All of it.
        scope: Who shares a part.
        key: The session, as `AgentOptions.key_of` reads it from a `RuntimeContext`.

    Examples:
        >>> mine = scoped_workspace(workspace, IsolationScope.USER, key)
    """
    return ScopedWorkspace(workspace, scope_folder(scope, key))
