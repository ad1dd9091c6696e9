"""What is in many directories at once, by names alone: what a walk through thousands of them asks for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Protocol, runtime_checkable

from agentscope_rx.frozen import frozen
from agentscope_rx.workspace.filesystem import FileKind, FileStat, WorkspaceFS
from agentscope_rx.workspace.paths import WorkspacePath


@frozen
class Folder:
    """The names in one directory, each kind sorted; what no verb could use is left out, as in a listing.

    Args:
        path: The directory, as it was asked for.
        directories: Its directories.
        files: Its files.
        links: Its symbolic links, of those that a listing has.
        known: What is known about its entries without asking for each; a workspace may know nothing.
    """

    path: WorkspacePath
    directories: Sequence[str] = ()
    files: Sequence[str] = ()
    links: Sequence[str] = ()
    known: Mapping[str, FileStat] = field(default_factory=dict[str, FileStat])

    @classmethod
    def of(cls, path: WorkspacePath, entries: Sequence[FileStat]) -> Folder:
        """Make it from a listing.

        Args:
            path: The directory.
            entries: What `WorkspaceFS.list` returned for it.

        Examples:
            >>> Folder.of(path, await workspace.list(path)).files
            ('a.txt', 'b.txt')
        """
        own = {entry.path.name: entry for entry in entries}
        return cls(
            path=path,
            directories=[name for name, entry in own.items() if not entry.link and entry.kind is FileKind.DIRECTORY],
            files=[name for name, entry in own.items() if not entry.link and entry.kind is FileKind.FILE],
            links=[name for name, entry in own.items() if entry.link],
            known=own,
        )


Found = Folder | OSError
"""What there is in a directory, or why nobody knows."""


@runtime_checkable
class ListsFolders(Protocol):
    """A workspace that has a faster way to tell the names in many directories than to list each of them.

    Who overrides `list`, so that it shows something else, overrides this too.
    """

    async def folders(self, paths: Sequence[str | WorkspacePath]) -> Sequence[Found]:
        """Tell what is in directories. Unlike `list` it follows no links, so what is behind one is no directory.

        Args:
            paths: The directories.

        Returns:
            One answer a path, in their order; what is wrong with a directory is returned and not raised.

        Raises:
            PathRefused: If one of them is no path of this workspace.
        """
        ...


async def folders_of(workspace: WorkspaceFS, paths: Sequence[str | WorkspacePath]) -> Sequence[Found]:
    """Ask a workspace what is in directories, in the fastest way that it has.

    Args:
        workspace: Where they are.
        paths: The directories.

    Examples:
        >>> [found] = await folders_of(InMemoryWorkspace({"src/app.py": ""}), ["src"])
        >>> found.files
        ['app.py']
    """
    if isinstance(workspace, ListsFolders):
        return await workspace.folders(paths)
    return await listed_folders(workspace, paths)


async def listed_folders(workspace: WorkspaceFS, paths: Sequence[str | WorkspacePath]) -> Sequence[Found]:
    """Ask a workspace what is in directories, by listing each; it follows links, as listings do.

    Args:
        workspace: Where they are.
        paths: The directories.

    Examples:
        >>> [found] = await listed_folders(InMemoryWorkspace(), ["nothing"])
        >>> found
        FileNotFoundError(2, 'No such file or directory')
    """
    return [await _listed(workspace, path) for path in paths]


async def _listed(workspace: WorkspaceFS, path: str | WorkspacePath) -> Found:
    try:
        entries = await workspace.list(path)
        if isinstance(path, str):
            path = entries[0].path.parent if entries else (await workspace.stat(path)).path
    except OSError as error:
        return error
    return Folder.of(path, entries)
