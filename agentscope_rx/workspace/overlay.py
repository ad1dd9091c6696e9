"""Two workspaces as one: what is written goes to the upper one, what is not there is read from the lower."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from typing import TypeVar

from agentscope_rx.errors import PathRefused, WorkspaceConflict, WorkspaceError
from agentscope_rx.workspace.conditions import check_entry, check_version, check_write, os_error
from agentscope_rx.workspace.filesystem import FileContent, FileKind, FileStat, WorkspaceFS, has_links, is_shared
from agentscope_rx.workspace.folders import Folder, Found, ListsFolders, folders_of, listed_folders
from agentscope_rx.workspace.looking import FileGroup, Looks, Needle, looks_at
from agentscope_rx.workspace.paths import WorkspacePath, resolve_path, shown

_T = TypeVar("_T")


class OverlayWorkspace:
    """A workspace of one's own over a folder that is only read, such as a project.

    An entry of the upper layer hides the one of the same path below, and directories that both have are one. The
    lower layer is never changed: a file of it that is written to gets its new content in the upper one, and it
    can be neither deleted nor moved, nor can what hides it, for it would be there again.

    `if_match` is as exact as the upper layer's own. Whether a path is free is looked up in both layers before it
    is written, so a file that others put into the lower layer meanwhile may be hidden.

    Args:
        upper: Where changes go.
        lower: What is read where the upper layer has nothing.

    Examples:
        >>> both = OverlayWorkspace(InMemoryWorkspace(), InMemoryWorkspace({"a.txt": "project"}))
        >>> version = await both.write("a.txt", b"mine")
        >>> (await both.read("a.txt")).data
        b'mine'
    """

    def __init__(self, upper: WorkspaceFS, lower: WorkspaceFS) -> None:
        self._upper = upper
        self._lower = lower

    def __repr__(self) -> str:
        return f"OverlayWorkspace(upper={self._upper!r}, lower={self._lower!r})"

    @property
    def upper(self) -> WorkspaceFS:
        """Where changes go; deleting there what hides a file of the lower layer shows that one again."""
        return self._upper

    @property
    def lower(self) -> WorkspaceFS:
        """What is read where the upper layer has nothing."""
        return self._lower

    @property
    def links(self) -> bool:
        """Whether there can be symbolic links, as the layers say."""
        return has_links(self._upper) or has_links(self._lower)

    @property
    def shared(self) -> bool:
        """Whether other machines work on what is changed, as the upper layer says."""
        return is_shared(self._upper)

    async def resolve(self, path: str | WorkspacePath) -> WorkspacePath:
        """Find where a path leads in the layer that has it; what neither has would be the upper one's."""
        inside = resolve_path(path)
        return await (await self._layer(inside)).resolve(inside)

    async def read(self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None) -> FileContent:
        """Read a file or a part of it; see `WorkspaceFS.read`."""
        inside = resolve_path(path)
        try:
            return await self._upper.read(inside, offset=offset, limit=limit)
        except FileNotFoundError:
            return await self._from_lower(inside, self._lower.read(inside, offset=offset, limit=limit))

    async def write(
        self,
        path: str | WorkspacePath,
        data: bytes,
        *,
        if_match: str | None = None,
        create_only: bool = False,
    ) -> str:
        """Replace or create a file of the upper layer; see `WorkspaceFS.write`."""
        inside = resolve_path(path)
        check_write(if_match=if_match, create_only=create_only)
        below = await self._below(inside)
        if below is None:
            return await self._upper.write(inside, data, if_match=if_match, create_only=create_only)
        if below.kind is FileKind.DIRECTORY:
            raise os_error(errno.EISDIR, inside)
        if create_only:
            raise os_error(errno.EEXIST, inside)
        if if_match is None:
            return await self._upper.write(inside, data)
        check_version(inside, if_match, below.version or "")
        try:
            return await self._upper.write(inside, data, create_only=True)
        except FileExistsError:
            raise WorkspaceConflict(f"{shown(inside)} was written since it was read: read it again") from None

    async def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
        """List a directory of both layers; see `WorkspaceFS.list`."""
        inside = resolve_path(path)
        try:
            above = await self._upper.list(inside)
        except FileNotFoundError:
            return await self._from_lower(inside, self._lower.list(inside))
        try:
            below = await self._lower.list(inside)
        except (FileNotFoundError, NotADirectoryError, PathRefused):
            return above  # the directory stands in front of whatever is there
        merged = {entry.path.name: entry for entry in (*below, *above)}
        return tuple(merged[name] for name in sorted(merged))

    async def stat(self, path: str | WorkspacePath) -> FileStat:
        """Look at one file or directory; see `WorkspaceFS.stat`."""
        inside = resolve_path(path)
        try:
            return await self._upper.stat(inside)
        except FileNotFoundError:
            return await self._from_lower(inside, self._lower.stat(inside))

    async def delete(self, path: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Delete what only the upper layer has; see `WorkspaceFS.delete`.

        Raises:
            WorkspaceError: If the lower layer has it.
        """
        inside = resolve_path(path)
        check_entry(inside)
        await self._check_upper_only(inside, "deleted", if_match)
        await self._upper.delete(inside, if_match=if_match)

    async def move(self, path: str | WorkspacePath, to: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Give another path to a file that only the upper layer has; see `WorkspaceFS.move`.

        Raises:
            WorkspaceError: If the lower layer has it.
        """
        inside, new = resolve_path(path), resolve_path(to)
        check_entry(inside)
        await self._check_upper_only(inside, "moved", if_match)
        if await self._below(new) is not None:
            raise os_error(errno.EEXIST, inside, new)
        await self._upper.move(inside, new, if_match=if_match)

    async def folders(self, paths: Sequence[str | WorkspacePath]) -> Sequence[Found]:
        """Tell what is in directories of both layers; see `ListsFolders`."""
        if not (isinstance(self._upper, ListsFolders) and isinstance(self._lower, ListsFolders)):
            return await listed_folders(self, paths)
        inside = [resolve_path(path) for path in paths]
        above, below = await self._upper.folders(inside), await self._lower.folders(inside)
        return [_merged(front, back) for front, back in zip(above, below, strict=True)]

    async def looks(self, groups: Sequence[FileGroup], needle: Needle) -> Sequence[Looks]:
        """Look at files; see `FindsText`."""
        fronts = await _behind_links(self._upper, [group.folder.path for group in groups])
        above, below = list[FileGroup](), list[FileGroup]()
        for group, front in zip(groups, fronts, strict=True):
            own = frozenset(front.files) if isinstance(front, Folder) else frozenset[str]()
            above.append(FileGroup(folder=group.folder, names=[name for name in group.names if name in own]))
            below.append(FileGroup(folder=group.folder, names=[name for name in group.names if name not in own]))
        found = await looks_at(self._upper, above, needle)
        return [{**one, **two} for one, two in zip(found, await looks_at(self._lower, below, needle), strict=True)]

    async def _layer(self, path: WorkspacePath) -> WorkspaceFS:
        return self._upper if await self._below(path) is None else self._lower

    async def _below(self, path: WorkspacePath) -> FileStat | None:
        """Look at what the lower layer shows at a path; None if nothing, or if the upper layer hides it."""
        try:
            await self._upper.stat(path)
        except FileNotFoundError:
            with suppress(FileNotFoundError):
                return await self._from_lower(path, self._lower.stat(path))
        return None

    async def _check_upper_only(self, path: WorkspacePath, what: str, if_match: str | None) -> None:
        try:
            await self._from_lower(path, self._lower.stat(path))
        except FileNotFoundError:
            return  # whether it is anywhere, the upper layer says
        if if_match is not None:
            found = await self.stat(path)
            if found.kind is FileKind.DIRECTORY:
                raise os_error(errno.EISDIR, path)
            check_version(path, if_match, found.version or "")
        raise WorkspaceError(
            f"{shown(path)} cannot be {what}: it is part of the folder below this workspace, which is only read"
        )

    async def _from_lower(self, path: WorkspacePath, answer: Awaitable[_T]) -> _T:
        try:
            return await answer
        except NotADirectoryError:
            # Something above is a file down there, which a directory of the upper layer may hide.
            for above in _above(path):
                if await self._hides_file(above):
                    raise os_error(errno.ENOENT, path) from None
            raise

    async def _hides_file(self, path: WorkspacePath) -> bool:
        try:
            front, back = await self._upper.stat(path), await self._lower.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return front.kind is FileKind.DIRECTORY and back.kind is FileKind.FILE


async def _behind_links(workspace: WorkspaceFS, paths: Sequence[WorkspacePath]) -> list[Found]:
    """What there is in directories of one layer, of which some may be behind links."""
    found = list(await folders_of(workspace, paths))
    for index, each in enumerate(found):
        if isinstance(each, NotADirectoryError):
            [found[index]] = await listed_folders(workspace, [paths[index]])
    return found


def _merged(front: Found, back: Found) -> Found:
    """One folder of both layers, in which an entry of the upper one hides that of the same name below."""
    if isinstance(front, FileNotFoundError):
        return back
    if isinstance(front, OSError) or isinstance(back, OSError):
        return front  # it stands in front of whatever is there
    own = {*front.directories, *front.files, *front.links}

    def of_both(above: Sequence[str], below: Sequence[str]) -> list[str]:
        return sorted([*above, *(name for name in below if name not in own)]) if own else list(below)

    return Folder(
        path=front.path,
        directories=of_both(front.directories, back.directories),
        files=of_both(front.files, back.files),
        links=of_both(front.links, back.links),
        known={**{name: entry for name, entry in back.known.items() if name not in own}, **front.known},
    )


def _above(path: WorkspacePath) -> list[WorkspacePath]:
    found = list[WorkspacePath]()
    while len(path.parts) > 1:
        path = path.parent
        found.append(path)
    return found
