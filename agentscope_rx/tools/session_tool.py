"""Tools that are not the same for all sessions: each call has the ones of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentscope_rx.permissions import paths
from agentscope_rx.requests import ToolSpec
from agentscope_rx.tools.context import ToolContext
from agentscope_rx.tools.file_tools import FileTools
from agentscope_rx.tools.tool import FunctionTool, Tool, tool
from agentscope_rx.workspace.filesystem import WorkspaceFS


class SessionTool(Tool):
    """A method as a tool, on an object that belongs to the session that calls.

    Args:
        method: The method, as a tool of its class.
        owner: Gives the object.

    Attributes:
        target: What a call is about, as the method says.
        check: What the method itself says of a call.
    """

    def __init__(self, method: FunctionTool[Any, Any], owner: Callable[[ToolContext], object]) -> None:
        self._method, self._owner = method, owner
        self.target, self.check = method.target, method.check

    @property
    def spec(self) -> ToolSpec:
        """The tool as the model sees it, in all sessions."""
        return self._method.spec

    @property
    def read_only(self) -> bool:
        """As the method says."""
        return self._method.read_only

    @property
    def concurrency_safe(self) -> bool:
        """As the method says."""
        return self._method.concurrency_safe

    async def call(self, arguments: Mapping[str, object], context: ToolContext, /) -> object:
        """Call the method of the session's own object."""
        return await self._method.__get__(self._owner(context)).call(arguments, context)


def session_file_tools(workspace: WorkspaceFS, files_of: Callable[[ToolContext], WorkspaceFS]) -> list[SessionTool]:
    """The tools with which a model looks at files, on the workspace of the session that calls.

    Args:
        workspace: All of the workspace, in whose paths permission rules speak.
        files_of: Gives what a session sees of it.
    """
    path, tree = paths(workspace, "path"), paths(workspace, "path", tree=True)
    looking: tuple[FunctionTool[Any, Any], ...] = (
        tool(FileTools.read_file, read_only=True, target=path),
        tool(FileTools.list_files, read_only=True, target=path),
        tool(FileTools.glob_files, read_only=True, target=tree),
        tool(FileTools.grep_files, read_only=True, target=tree),
    )
    return [SessionTool(each, lambda context: FileTools(files_of(context))) for each in looking]
