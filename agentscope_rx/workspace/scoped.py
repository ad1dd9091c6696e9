"""A part of a workspace as a workspace of its own."""

from __future__ import annotations

import errno
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from agentscope_rx.errors import PathRefused, WorkspaceError
from agentscope_rx.workspace.conditions import check_entry, check_write, os_error
from agentscope_rx.workspace.filesystem import FileContent, FileKind, FileStat, WorkspaceFS, has_links, is_shared
from agentscope_rx.workspace.folders import Folder, Found, ListsFolders, listed_folders
from agentscope_rx.workspace.looking import FileGroup, Looks, Needle, looks_at
from agentscope_rx.workspace.paths import WorkspacePath, resolve_path, shown


class ScopedWorkspace:
    """What is below one directory of another workspace, with that directory as its root.

    The directory need not exist; the first write makes it. A path whose symbolic links lead out of it is refused,
    although the workspace around it may have that place. Links are looked up before a verb does its work: against
    a process that changes them meanwhile, give each scope a `LocalWorkspace` of its own, or a sandbox.

    Args:
        inner: The workspace around it.
        folder: The directory, relative to the root of `inner`.

    Raises:
        PathRefused: If `folder` is no path.

    Examples:
        >>> everyone = InMemoryWorkspace({"alice/a.txt": "1", "bob/b.txt": "2"})
        >>> [str(entry.path) for entry in await ScopedWorkspace(everyone, "alice").list()]
        ['a.txt']
    """

    def __init__(self, inner: WorkspaceFS, folder: str | WorkspacePath) -> None:
        self._inner = inner
        self._folder = resolve_path(folder)

    def __repr__(self) -> str:
        return f"ScopedWorkspace({self._inner!r}, {str(self._folder)!r})"

    @property
    def folder(self) -> WorkspacePath:
        """The directory that is the root, as a path of the workspace around it."""
        return self._folder

    @property
    def links(self) -> bool:
        """Whether there can be symbolic links, as the workspace around it says."""
        return has_links(self._inner)

    @property
    def shared(self) -> bool:
        """Whether other machines work on the files too, as the workspace around it says."""
        return is_shared(self._inner)

    async def resolve(self, path: str | WorkspacePath) -> WorkspacePath:
        """Find where a path leads behind all links; see `WorkspaceFS.resolve`."""
        inside = resolve_path(path)
        with self._own_names():
            return await self._resolved(inside)

    async def read(self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None) -> FileContent:
        """Read a file or a part of it; see `WorkspaceFS.read`."""
        inside = resolve_path(path)
        if not inside.parts:
            raise os_error(errno.EISDIR, inside)
        with self._own_names():
            await self._check_stays(inside)
            found = await self._inner.read(self._outside(inside), offset=offset, limit=limit)
        return FileContent(path=inside, data=found.data, size=found.size, version=found.version)

    async def write(
        self,
        path: str | WorkspacePath,
        data: bytes,
        *,
        if_match: str | None = None,
        create_only: bool = False,
    ) -> str:
        """Replace or create a file; see `WorkspaceFS.write`."""
        inside = resolve_path(path)
        check_write(if_match=if_match, create_only=create_only)
        if not inside.parts:
            raise os_error(errno.EISDIR, inside)
        with self._own_names():
            await self._check_stays(inside)
            return await self._inner.write(self._outside(inside), data, if_match=if_match, create_only=create_only)

    async def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
        """List a directory; see `WorkspaceFS.list`. A root that nothing was written to is empty."""
        inside = resolve_path(path)
        with self._own_names():
            try:
                await self._check_stays(inside)
                found = await self._inner.list(self._outside(inside))
            except FileNotFoundError:
                if inside.parts:
                    raise
                return ()
            entries = [self._inward(entry, inside.child(entry.path.name)) for entry in found]
            return tuple([entry for entry in entries if not entry.link or await self._stays(entry.path)])

    async def stat(self, path: str | WorkspacePath) -> FileStat:
        """Look at one file or directory; see `WorkspaceFS.stat`."""
        inside = resolve_path(path)
        with self._own_names():
            try:
                await self._check_stays(inside)
                return self._inward(await self._inner.stat(self._outside(inside)), inside)
            except FileNotFoundError:
                if inside.parts:
                    raise
        return FileStat(path=inside, kind=FileKind.DIRECTORY, size=0, modified=0.0)

    async def delete(self, path: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Delete a file or an empty directory; see `WorkspaceFS.delete`."""
        inside = resolve_path(path)
        check_entry(inside)
        with self._own_names():
            await self._check_stays(inside)
            await self._inner.delete(self._outside(inside), if_match=if_match)

    async def move(self, path: str | WorkspacePath, to: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Give a file another path; see `WorkspaceFS.move`."""
        inside, new = resolve_path(path), resolve_path(to)
        check_entry(inside)
        with self._own_names():
            await self._check_stays(inside)
            await self._check_stays(new)
            await self._inner.move(self._outside(inside), self._outside(new), if_match=if_match)

    async def folders(self, paths: Sequence[str | WorkspacePath]) -> Sequence[Found]:
        """Tell what is in directories; see `ListsFolders`. A root that nothing was written to is empty."""
        if not isinstance(self._inner, ListsFolders):
            return await listed_folders(self, paths)
        inside = [resolve_path(path) for path in paths]
        found = await self._inner.folders([self._outside(path) for path in inside])
        return [await self._inward_folder(each, path) for each, path in zip(found, inside, strict=True)]

    async def looks(self, groups: Sequence[FileGroup], needle: Needle) -> Sequence[Looks]:
        """Look at files; see `FindsText`."""
        outside = [
            FileGroup(folder=replace(group.folder, path=self._outside(group.folder.path)), names=group.names)
            for group in groups
        ]
        return await looks_at(self._inner, outside, needle)

    async def _inward_folder(self, found: Found, path: WorkspacePath) -> Found:
        if isinstance(found, Folder):
            known = {name: self._inward(entry, path.child(name)) for name, entry in found.known.items()}
            links = [name for name in found.links if await self._stays(path.child(name))]
            return replace(found, path=path, links=links, known=known)
        if isinstance(found, FileNotFoundError) and not path.parts:
            [found] = await listed_folders(self, [path])
            return found
        try:
            with self._own_names():
                raise found
        except OSError as error:
            return error

    def _outside(self, path: WorkspacePath) -> WorkspacePath:
        return resolve_path(f"{self._folder}/{path}") if path.parts else self._folder

    async def _check_stays(self, path: WorkspacePath) -> None:
        """Refuse a path that leads out of the folder."""
        if has_links(self._inner):
            await self._resolved(path)

    async def _resolved(self, path: WorkspacePath) -> WorkspacePath:
        """Follow all links, and refuse what they lead to if it is outside of the folder."""
        found = (await self._inner.resolve(self._outside(path))).parts
        depth = len(self._folder.parts)
        if found[:depth] != self._folder.parts:
            raise PathRefused(f"{shown(path)} leads out of the workspace through a symbolic link")
        return resolve_path("/".join(found[depth:]) or ".")

    async def _stays(self, path: WorkspacePath) -> bool:
        try:
            await self._resolved(path)
        except OSError:
            return False
        return True

    def _inward(self, entry: FileStat, path: WorkspacePath) -> FileStat:
        return FileStat(
            path=path,
            kind=entry.kind,
            size=entry.size,
            modified=entry.modified,
            version=entry.version,
            link=entry.link,
        )

    @contextmanager
    def _own_names(self) -> Generator[None]:
        """Have errors name paths as they are called in here; whose folder it is concerns nobody."""
        try:
            yield
        except WorkspaceError as error:
            message = str(error).replace(f"{self._folder}/", "")
            if message == str(error):
                raise
            raise type(error)(message) from error
        except OSError as error:
            if error.errno is None or error.filename is None:
                raise
            names = [str(name).removeprefix(f"{self._folder}/") for name in (error.filename, error.filename2) if name]
            names = ["." if name == str(self._folder) else name for name in names]
            raise os_error(error.errno, *names) from error
