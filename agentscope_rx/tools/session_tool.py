"""Tools that are not the same for all sessions: each call has the ones of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from agentscope_rx.errors import WorkspaceError
from agentscope_rx.frozen import frozen
from agentscope_rx.permissions import DangerousPaths, paths
from agentscope_rx.requests import ToolSpec
from agentscope_rx.tools.context import ToolContext
from agentscope_rx.tools.file_changes import FileChanges
from agentscope_rx.tools.file_tools import FileTools
from agentscope_rx.tools.shell_tool import ShellTool, shell_options
from agentscope_rx.tools.tool import FunctionTool, Tool, tool
from agentscope_rx.workspace.filesystem import WorkspaceFS

if TYPE_CHECKING:
    from agentscope_rx.permissions.decision import CheckCall, FindTarget

#: Files of a workspace that say how the agent itself is to be: to change one is to change what it is told or may do.
_SELF: Final = frozenset({"agents.md", "tools.json"})
_APART: Final = (
    "commands run on files that all sessions share, and those of this session are kept apart from them; the "
    "application can have all work on the same ones (isolation)"
)


@frozen
class JudgedInSession:
    """A tool as permissions see it when a certain session calls.

    Args:
        spec: Its name.
        read_only: Whether it changes nothing.
        target: What a call is about; None = it does not say.
        check: Its own opinion about calls; None = it has none.
    """

    spec: ToolSpec
    read_only: bool
    target: FindTarget | None
    check: CheckCall | None


class SessionTool(Tool):
    """A method as a tool, on an object that belongs to the session that calls.

    Args:
        method: The method, as a tool of its class.
        owner: Gives the object.
        target: Gives what finds out what a call is about. Default: what the method says, for all sessions.

    Attributes:
        settings: How it is a tool, as the method says.
    """

    def __init__(
        self,
        method: FunctionTool[Any, Any],
        owner: Callable[[ToolContext], object],
        *,
        target: Callable[[ToolContext], FindTarget] | None = None,
    ) -> None:
        self._method, self._owner, self._target = method, owner, target
        self.settings = method.settings

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

    def judged_in(self, context: ToolContext) -> JudgedInSession:
        """The tool as permissions see it when this call is made."""
        target = self._method.target if self._target is None else self._target(context)
        return JudgedInSession(spec=self.spec, read_only=self.read_only, target=target, check=self._method.check)

    async def call(self, arguments: Mapping[str, object], context: ToolContext, /) -> object:
        """Call the method of the session's own object."""
        return await self._method.__get__(self._owner(context)).call(arguments, context)


def session_file_tools(
    files_of: Callable[[ToolContext], WorkspaceFS], *, read_only: bool = False
) -> tuple[SessionTool, ...]:
    """The file tools, on the workspace of the session that calls.

    Who is to change a file that says how the agent itself is to be, such as `AGENTS.md`, is asked about like one who
    is to change a dangerous one.

    Args:
        files_of: Gives what a session sees of the workspace; permission rules speak in its paths.
        read_only: Whether to leave out the tools that change files. Default False.
    """
    usual = DangerousPaths()
    guarded = DangerousPaths(files=usual.files | _SELF, directories=usual.directories)

    def made(method: Callable[..., Any], *, tree: bool = False) -> SessionTool:
        changes = method.__name__ in ("write_file", "edit_file")

        def target(context: ToolContext) -> FindTarget:
            return paths(files_of(context), "path", edits=changes, tree=tree, dangerous=guarded)

        def owner(context: ToolContext) -> FileTools | FileChanges:
            files = files_of(context)
            return FileChanges(files) if changes else FileTools(files)

        return SessionTool(_file_tool(method, changes=changes), owner, target=target)

    looking = (
        made(FileTools.read_file),
        made(FileTools.list_files),
        made(FileTools.glob_files, tree=True),
        made(FileTools.grep_files, tree=True),
    )
    return looking if read_only else (*looking, made(FileChanges.write_file), made(FileChanges.edit_file))


def session_shell_tool(shell: ShellTool, are_apart: Callable[[ToolContext], bool]) -> SessionTool:
    """The tool `execute`, for the sessions that work on the files that it runs on.

    Args:
        shell: The shell of their folder.
        are_apart: Whether the files of a session are kept apart, so that it would see others than it works on.
    """

    def owner(context: ToolContext) -> ShellTool:
        if are_apart(context):
            raise WorkspaceError(_APART)
        return shell

    return SessionTool(_shell_tool(shell.settings.max_timeout), owner)


@cache
def _file_tool(method: Callable[..., Any], *, changes: bool) -> FunctionTool[Any, Any]:
    return tool(method, read_only=not changes, concurrency_safe=not changes)


@cache
def _shell_tool(max_timeout: float) -> FunctionTool[Any, Any]:
    return tool(ShellTool.execute, **shell_options(max_timeout))
