"""The tools with which a model changes files."""

from __future__ import annotations

from agentscope_rx.errors import FileTooLarge
from agentscope_rx.tools.file_errors import explained
from agentscope_rx.workspace.editing import check_encodable, edit_text
from agentscope_rx.workspace.filesystem import WorkspaceFS
from agentscope_rx.workspace.paths import shown


class FileChanges:
    """The changing file tools of one workspace, as methods.

    Args:
        workspace: The files that they change.

    Examples:
        >>> await FileChanges(InMemoryWorkspace()).write_file("a.txt", "hello")
        "Created 'a.txt' (5 bytes)."
    """

    def __init__(self, workspace: WorkspaceFS) -> None:
        self._workspace = workspace

    async def write_file(self, path: str, content: str) -> str:
        """Create a text file in the workspace, together with the directories above it.

        A file that exists is not overwritten: change it with edit_file.

        Args:
            path: The new file, relative to the workspace, such as 'src/app.py'.
            content: Its whole text, stored as UTF-8 letter by letter.

        Raises:
            FileExistsError: If the file exists.
            IsADirectoryError: If it is a directory.
            NotADirectoryError: If something above it is a file.
            PathRefused: If it is not inside the workspace.
            WorkspaceError: If the workspace is read-only.
            ValueError: If the text cannot be stored.
        """
        check_encodable(content)
        data = content.encode()
        try:
            with explained(path):
                await self._workspace.write(path, data, create_only=True)
        except FileExistsError:
            raise FileExistsError(f"{shown(path)} exists already: change it with edit_file") from None
        except IsADirectoryError:
            raise IsADirectoryError(f"{shown(path)} is a directory: give the path of a file in it") from None
        return f"Created {shown(path)} ({len(data)} bytes)."

    async def edit_file(self, path: str, old_string: str, new_string: str, replace_all: bool = False) -> str:
        """Replace a text in a file of the workspace by another one.

        The old text must be in the file once, letter by letter, so give as many lines around it as make it
        unique. Leave out the line numbers that read_file puts before lines on request.

        Args:
            path: The file, relative to the workspace.
            old_string: The text that is there.
            new_string: The text that takes its place; empty to take it out.
            replace_all: Whether to replace each place where the old text is.

        Raises:
            FileEditRefused: If the old text is not there, or more than once without `replace_all`.
            ValueError: If the old text is empty or the same as the new one.
            FileNotFoundError: If there is no such file.
            IsADirectoryError: If it is a directory.
            FileTooLarge: If the file is too large to be edited.
            PathRefused: If it is not inside the workspace.
            WorkspaceError: If the workspace is read-only.
        """
        try:
            with explained(path):
                done = await edit_text(self._workspace, path, old_string, new_string, replace_all=replace_all)
        except FileTooLarge:
            raise FileTooLarge(f"{shown(path)} is too large to be edited") from None
        if done.count == 1:
            return f"Replaced the text in {shown(path)} at line {done.line}."
        return f"Replaced the text in {shown(path)} {done.count} times, first at line {done.line}."
