"""A workspace in which a folder is not there, or only one part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentscope_rx.errors import PathRefused
from agentscope_rx.workspace.filesystem import FileContent, FileStat, WorkspaceFS, has_links, is_shared
from agentscope_rx.workspace.folders import Found, ListsFolders, listed_folders
from agentscope_rx.workspace.looking import FileGroup, Looks, Needle, looks_at
from agentscope_rx.workspace.paths import WorkspacePath, resolve_path, same_name, shown


class HidingWorkspace:
    """Another workspace, without one of its folders, or without what lies in that but for one part.

    What is hidden is refused for every verb, also through symbolic links and under names that some file system may
    take for the same, and left out of every listing. Links are looked up before a verb does its work.

    Args:
        inner: The other workspace.
        folder: The folder.
        but: The part of it that is there. Default None: nothing of it, and the folder itself is not there either.

    Raises:
        PathRefused: If one of them is no path, or the part is not in the folder.

    Examples:
        >>> everyone = InMemoryWorkspace({"results/alice/a.txt": "1", "results/bob/b.txt": "2"})
        >>> mine = HidingWorkspace(everyone, "results", but="results/alice")
        >>> [str(entry.path) for entry in await mine.list("results")]
        ['results/alice']
    """

    def __init__(self, inner: WorkspaceFS, folder: str, *, but: str | None = None) -> None:
        self._inner = inner
        self._named = (folder, but)
        self._folder = _same(resolve_path(folder).parts)
        self._but = None if but is None else _same(resolve_path(but).parts)
        if self._but is not None and self._but[: len(self._folder)] != self._folder:
            raise PathRefused(f"{shown(but)} is not in {shown(folder)}")

    def __repr__(self) -> str:
        folder, but = self._named
        return f"HidingWorkspace({self._inner!r}, {folder!r}, but={but!r})"

    @property
    def links(self) -> bool:
        """Whether there can be symbolic links, as the other workspace says."""
        return has_links(self._inner)

    @property
    def shared(self) -> bool:
        """Whether other machines work on the files too, as the other workspace says."""
        return is_shared(self._inner)

    async def resolve(self, path: str | WorkspacePath) -> WorkspacePath:
        """Find where a path leads behind all links; see `WorkspaceFS.resolve`."""
        leads = await self._inner.resolve(path)
        self._check_seen(resolve_path(path), leads)
        return leads

    async def read(self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None) -> FileContent:
        """Read a file or a part of it; see `WorkspaceFS.read`."""
        await self._seen(path)
        return await self._inner.read(path, offset=offset, limit=limit)

    async def write(
        self,
        path: str | WorkspacePath,
        data: bytes,
        *,
        if_match: str | None = None,
        create_only: bool = False,
    ) -> str:
        """Replace or create a file; see `WorkspaceFS.write`."""
        await self._seen(path)
        return await self._inner.write(path, data, if_match=if_match, create_only=create_only)

    async def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
        """List a directory; see `WorkspaceFS.list`."""
        where = (await self._seen(path)).parts
        entries = await self._inner.list(path)
        return tuple(entry for entry in entries if not self._is_hidden((*where, entry.path.parts[-1])))

    async def stat(self, path: str | WorkspacePath) -> FileStat:
        """Look at one file or directory; see `WorkspaceFS.stat`."""
        await self._seen(path)
        return await self._inner.stat(path)

    async def delete(self, path: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Delete a file or an empty directory; see `WorkspaceFS.delete`."""
        await self._seen(path)
        await self._inner.delete(path, if_match=if_match)

    async def move(self, path: str | WorkspacePath, to: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Give a file another path; see `WorkspaceFS.move`."""
        await self._seen(path)
        await self._seen(to)
        await self._inner.move(path, to, if_match=if_match)

    async def folders(self, paths: Sequence[str | WorkspacePath]) -> Sequence[Found]:
        """Tell what is in directories; see `ListsFolders`."""
        if not isinstance(self._inner, ListsFolders):
            return await listed_folders(self, paths)
        inside = [resolve_path(path) for path in paths]
        found = await self._inner.folders(inside)
        return [self._shown(path, each) for path, each in zip(inside, found, strict=True)]

    async def looks(self, groups: Sequence[FileGroup], needle: Needle) -> Sequence[Looks]:
        """Look at files; see `FindsText`."""
        return await looks_at(self._inner, groups, needle)

    def _shown(self, path: WorkspacePath, found: Found) -> Found:
        """What is left of a folder without what is hidden: it is not behind a link, so its path tells where it is."""
        above = path.parts
        if self._is_hidden(above):
            return self._refusal(path)
        if isinstance(found, OSError) or not self._is_on_the_way(above):
            return found

        def shown_ones(names: Sequence[str]) -> list[str]:
            return [name for name in names if not self._is_hidden((*above, name))]

        return replace(
            found,
            directories=shown_ones(found.directories),
            files=shown_ones(found.files),
            links=shown_ones(found.links),
        )

    async def _seen(self, path: str | WorkspacePath) -> WorkspacePath:
        named = resolve_path(path)
        leads = await self._inner.resolve(named) if has_links(self._inner) else named
        self._check_seen(named, leads)
        return leads

    def _check_seen(self, named: WorkspacePath, leads: WorkspacePath) -> None:
        if self._is_hidden(named.parts) or self._is_hidden(leads.parts):
            raise self._refusal(named)

    @staticmethod
    def _refusal(path: WorkspacePath) -> PathRefused:
        return PathRefused(f"{shown(path)} belongs to somebody else")

    def _is_on_the_way(self, names: tuple[str, ...]) -> bool:
        """Whether anything in a directory may be hidden."""
        parts = _same(names)
        common = min(len(parts), len(self._folder))
        return parts[:common] == self._folder[:common]

    def _is_hidden(self, names: tuple[str, ...]) -> bool:
        """Whether a path is in the folder, and neither in its visible part nor on the way to that."""
        parts, depth = _same(names), len(self._folder)
        if parts[:depth] != self._folder:
            return False
        if self._but is None:
            return True
        common = min(len(parts), len(self._but))
        return parts[:common] != self._but[:common]


def _same(parts: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(same_name, parts))
