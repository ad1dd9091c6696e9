"""Several workspaces side by side: the first name of a path says which of them it is about."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from agentscope_rx.errors import InvalidOption, PathRefused, WorkspaceError
from agentscope_rx.workspace.conditions import os_error
from agentscope_rx.workspace.filesystem import FileContent, FileStat, WorkspaceFS, has_links, is_shared
from agentscope_rx.workspace.folders import Folder, Found, ListsFolders, folders_of, listed_folders
from agentscope_rx.workspace.looking import FileGroup, Look, Looks, Needle, looks_at
from agentscope_rx.workspace.paths import WorkspacePath, resolve_path, shown


class RoutedWorkspace:
    """One workspace, but for some entries of its root, which are those of others.

    Paths are the same in all of them: `memory/a.txt` is that path of the workspace to which `memory` is routed. Of a
    routed entry nothing else is there, and of the other workspaces nothing but what is routed to them.

    Args:
        default: Where everything else is.
        routes: The other workspaces, by the names of files and directories in the root.

    Raises:
        InvalidOption: A route is no single name.

    Examples:
        >>> notes = InMemoryWorkspace({"memory/a.txt": "mine"})
        >>> both = RoutedWorkspace(InMemoryWorkspace({"src/app.py": "code"}), {"memory": notes})
        >>> [str(entry.path) for entry in await both.list()]
        ['memory', 'src']
    """

    def __init__(self, default: WorkspaceFS, routes: Mapping[str, WorkspaceFS]) -> None:
        self._default, self._routes = default, dict(routes)
        for name in routes:
            if "/" in name or resolve_path(name).parts != (name,):
                raise InvalidOption("routes", name, "the name of an entry of the root")

    def __repr__(self) -> str:
        return f"RoutedWorkspace({self._default!r}, {self._routes!r})"

    @property
    def links(self) -> bool:
        """Whether there can be symbolic links in one of them, as they say."""
        return any(map(has_links, (self._default, *self._routes.values())))

    @property
    def shared(self) -> bool:
        """Whether other machines work on files of one of them, as they say."""
        return any(map(is_shared, (self._default, *self._routes.values())))

    async def resolve(self, path: str | WorkspacePath) -> WorkspacePath:
        """Find where a path leads behind all links; see `WorkspaceFS.resolve`.

        Raises:
            PathRefused: A link leads to what is another workspace's here.
        """
        inside = resolve_path(path)
        files = self._of(inside)
        leads = await files.resolve(inside)
        if self._of(leads) is not files:
            raise PathRefused(f"{shown(inside)} leads through a symbolic link to what is something else here")
        return leads

    async def read(self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None) -> FileContent:
        """Read a file or a part of it; see `WorkspaceFS.read`."""
        inside = await self._checked(path)
        return await self._of(inside).read(inside, offset=offset, limit=limit)

    async def write(
        self,
        path: str | WorkspacePath,
        data: bytes,
        *,
        if_match: str | None = None,
        create_only: bool = False,
    ) -> str:
        """Replace or create a file; see `WorkspaceFS.write`."""
        inside = await self._checked(path)
        return await self._of(inside).write(inside, data, if_match=if_match, create_only=create_only)

    async def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
        """List a directory; see `WorkspaceFS.list`."""
        inside = await self._checked(path)
        if inside.parts:
            return await self._of(inside).list(inside)
        found = [entry for entry in await self._default.list() if self._of(entry.path) is self._default]
        for name, files in self._routes.items():
            with suppress(FileNotFoundError):
                found.append(await _listed(files, name))
        return tuple(sorted(found, key=lambda entry: entry.path.name))

    async def stat(self, path: str | WorkspacePath) -> FileStat:
        """Look at one file or directory; see `WorkspaceFS.stat`."""
        inside = await self._checked(path)
        return await self._of(inside).stat(inside)

    async def delete(self, path: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Delete a file or an empty directory; see `WorkspaceFS.delete`."""
        inside = resolve_path(path)
        await self._checked(inside.parent)
        await self._of(inside).delete(inside, if_match=if_match)

    async def move(self, path: str | WorkspacePath, to: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Give a file another path; see `WorkspaceFS.move`.

        Raises:
            WorkspaceError: The new path is in another workspace.
        """
        inside, new = resolve_path(path), resolve_path(to)
        await self._checked(inside.parent)
        await self._checked(new.parent)
        files = self._of(inside)
        if self._of(new) is not files:
            await files.stat(inside)  # what is not there is said first
            with suppress(FileNotFoundError):
                await self._of(new).stat(new)
                raise os_error(errno.EEXIST, inside, new)
            raise WorkspaceError(f"{shown(inside)} and {shown(new)} are in two places: write the new file instead")
        await files.move(inside, new, if_match=if_match)

    async def folders(self, paths: Sequence[str | WorkspacePath]) -> Sequence[Found]:
        """Tell what is in directories; see `ListsFolders`."""
        if not all(isinstance(files, ListsFolders) for files in (self._default, *self._routes.values())):
            return await listed_folders(self, paths)
        inside = [resolve_path(path) for path in paths]
        found = dict[WorkspacePath, Found]()
        for files in self._all():
            own = [path for path in inside if not path.parts or self._of(path) is files]
            for path, each in zip(own, await folders_of(files, own), strict=True):
                found[path] = each if path.parts else self._with_root(found.get(path), each, files)
        return [found[path] for path in inside]

    async def looks(self, groups: Sequence[FileGroup], needle: Needle) -> Sequence[Looks]:
        """Look at files; see `FindsText`."""
        found = [dict[str, Look]() for _ in groups]
        for files in self._all():
            own = [self._own_part(group, files) for group in groups]
            asked = [index for index, group in enumerate(own) if group.names]
            looks = await looks_at(files, [own[index] for index in asked], needle)
            for index, each in zip(asked, looks, strict=True):
                found[index].update(each)
        return found

    def _all(self) -> list[WorkspaceFS]:
        """All workspaces, each once."""
        return list({id(files): files for files in (self._default, *self._routes.values())}.values())

    def _own_part(self, group: FileGroup, files: WorkspaceFS) -> FileGroup:
        path = group.folder.path
        if path.parts:
            return group if self._of(path) is files else FileGroup(folder=group.folder, names=())
        return FileGroup(folder=group.folder, names=self._own_names(group.names, files))

    def _own_names(self, names: Sequence[str], files: WorkspaceFS) -> list[str]:
        """Those names in the root that are one workspace's."""
        return [name for name in names if self._routes.get(name, self._default) is files]

    def _with_root(self, so_far: Found | None, root: Found, files: WorkspaceFS) -> Found:
        """The root so far, and what one more workspace adds to it."""
        if isinstance(so_far, OSError):
            return so_far
        if isinstance(root, OSError):
            # What is routed to a workspace that has nothing is not there.
            return so_far if isinstance(root, FileNotFoundError) and so_far is not None else root

        def of_all(kind: Callable[[Folder], Sequence[str]]) -> list[str]:
            before = () if so_far is None else kind(so_far)
            return sorted([*before, *self._own_names(kind(root), files)])

        known = {name: root.known[name] for name in self._own_names(list(root.known), files)}
        return Folder(
            path=root.path,
            directories=of_all(lambda folder: folder.directories),
            files=of_all(lambda folder: folder.files),
            links=of_all(lambda folder: folder.links),
            known=known if so_far is None else {**so_far.known, **known},
        )

    def _of(self, path: WorkspacePath) -> WorkspaceFS:
        return self._routes.get(path.parts[0], self._default) if path.parts else self._default

    async def _checked(self, path: str | WorkspacePath) -> WorkspacePath:
        """The path, once it is clear that no link leads from one workspace's files to another one's name."""
        inside = resolve_path(path)
        if has_links(self._of(inside)):
            await self.resolve(inside)
        return inside


async def _listed(files: WorkspaceFS, name: str) -> FileStat:
    """An entry of a root as a listing shows it."""
    for entry in await files.list():
        if entry.path.name == name:
            return entry
    raise os_error(errno.ENOENT, name)
