"""The verbs of a workspace on a drive: the rules of `WorkspaceFS`, where nothing but names and bytes is."""

from __future__ import annotations

import errno
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from agentscope_rx.errors import FileTooLarge, PathRefused, WorkspaceConflict
from agentscope_rx.workspace.conditions import check_version, gone, os_error, part_length, version_of
from agentscope_rx.workspace.filesystem import FileContent, FileKind, FileStat
from agentscope_rx.workspace.fsspec_drives import KEEPER, Changed, Drive, Entry
from agentscope_rx.workspace.looking import Needle, look_at
from agentscope_rx.workspace.paths import WorkspacePath, shown

T = TypeVar("T")
#: How often a verb begins anew, when others change what it works on.
_MOST_TRIES: Final = 10


class DriveFiles:
    """The files below one name of a drive. Its verbs are called inside of `Drive.run`, by `settled`.

    Args:
        drive: The drive.
        root: The name.
        max_read_bytes: How many bytes are read at once at most.
    """

    def __init__(self, drive: Drive, root: str, max_read_bytes: int) -> None:
        self._drive, self._root, self._max_read_bytes = drive, root, max_read_bytes

    def key(self, path: WorkspacePath) -> str:
        """The name of a path on the drive."""
        return f"{self._root}/{path}" if path.parts else self._root

    # -- looking ----------------------------------------------------------------------------------------------

    async def at(self, path: WorkspacePath) -> Entry | None:
        """What is at a path; None for nothing. The root is always there.

        Raises:
            NotADirectoryError: Something above it is a file.
            PathRefused: It leads through a link, or is neither a file nor a directory.
        """
        if self._drive.links:
            await self._check_above(path)
            return await self._look(path)
        found = await self._look(path)
        if found is None:  # else everything above is there, as directories
            await self._check_above(path)
        return found

    async def read(self, path: WorkspacePath, offset: int, limit: int | None) -> FileContent:
        """Read a file or a part of it."""
        found = await self._file(path)
        length = part_length(path, found.size, offset, limit, self._max_read_bytes)
        if length < found.size or offset:
            data = await self._drive.part(found.key, offset, offset + length) if length else b""
            return FileContent(path=path, data=data, size=found.size, version=None)
        data = await self._whole(path, found)
        return FileContent(path=path, data=data, size=len(data), version=version_of(data))

    async def list(self, path: WorkspacePath) -> tuple[FileStat, ...]:
        """List a directory."""
        if self._drive.links:
            await self.at(path)
        try:
            entries = await self._drive.entries(self.key(path))
        except FileNotFoundError:
            if path.parts:
                await self._check_above(path)
                raise
            await self._drive.check_place(self._root)
            return ()
        found: dict[str, FileStat] = {}
        for entry in entries:
            if entry.key == self.key(path) and entry.kind is FileKind.FILE:
                raise os_error(errno.ENOTDIR, path)
            listed = self._listed(path, entry)
            # An object store lets a name be both a file and a directory; here it is a file.
            if listed is not None and (listed.path.name not in found or listed.kind is FileKind.FILE):
                found[listed.path.name] = listed
        return tuple(found[name] for name in sorted(found))

    async def stat(self, path: WorkspacePath) -> FileStat:
        """Look at one file or directory."""
        found = await self.at(path)
        if found is None:
            raise os_error(errno.ENOENT, path)
        if found.kind is FileKind.DIRECTORY or found.size > self._max_read_bytes:
            return _described(path, found)
        return _described(path, found, version_of(await self._whole(path, found)))

    async def holding(self, paths: Sequence[WorkspacePath], needle: Needle) -> Collection[WorkspacePath]:
        """Tell which of a few files are worth reading; those too that cannot be read, so that their reader is told."""
        # One byte more than a file may have tells that it has grown; nor is more read than any verb returns.
        most = min(needle.file_bytes + 1, self._max_read_bytes)
        read = await self._drive.beginnings([*map(self.key, paths)], most)
        return [
            path
            for path, data in zip(paths, read, strict=True)
            if not isinstance(data, bytes) or len(data) == most or look_at(data, needle) is not None
        ]

    # -- changing ---------------------------------------------------------------------------------------------

    async def write(self, path: WorkspacePath, data: bytes, if_match: str | None, create_only: bool) -> str:
        """Replace or create a file."""
        try:
            found = await self._file(path, if_match)
        except FileNotFoundError:
            found = None
        if create_only and found is not None:
            raise os_error(errno.EEXIST, path)
        if if_match is not None and found is not None:
            await self._whole(path, found, if_match)
        mark = None if if_match is None or found is None else found.mark
        try:
            if create_only:
                await self._drive.create(self.key(path), data)
            else:
                await self._drive.replace(self.key(path), data, mark)
        except FileNotFoundError:
            await self._drive.check_place(self._root)
            raise
        return version_of(data)

    async def delete(self, path: WorkspacePath, if_match: str | None) -> None:
        """Delete a file or an empty directory."""
        found = await self.at(path) if if_match is None else await self._file(path, if_match)
        if found is None:
            raise os_error(errno.ENOENT, path)
        if found.kind is FileKind.DIRECTORY:
            for entry in await self._drive.entries(found.key):
                if entry.key not in (found.key, f"{found.key}/{KEEPER}"):
                    raise os_error(errno.ENOTEMPTY, path)
            await self._drive.remove_directory(found.key)
            return
        if if_match is not None:
            await self._whole(path, found, if_match)
        await self._drive.remove(found.key, found.mark)

    async def move(self, path: WorkspacePath, to: WorkspacePath, if_match: str | None) -> None:
        """Give a file another path."""
        found = await self._file(path, if_match)
        if await self.at(to) is not None:
            raise os_error(errno.EEXIST, path, to)
        if found.size > self._max_read_bytes:
            raise FileTooLarge(
                f"{shown(path)}: {found.size} bytes are more than the {self._max_read_bytes} that may be moved, "
                "as they are read and written"
            )
        data = await self._whole(path, found, if_match)
        await self._drive.create(self.key(to), data)
        try:
            await self._drive.remove(found.key, found.mark)
        except Changed:
            await self._take_back(to, data)
            raise

    # -- parts of them ----------------------------------------------------------------------------------------

    async def _look(self, path: WorkspacePath) -> Entry | None:
        if not path.parts:
            return Entry(key=self._root, kind=FileKind.DIRECTORY, size=0, modified=0.0, mark=None, link=False)
        found = await self._drive.look(self.key(path))
        if found is not None and found.link:
            raise PathRefused(f"{shown(path)} is a symbolic link, which is not followed here")
        if found is not None and found.kind is None:
            raise PathRefused(f"{shown(path)} is neither a file nor a directory")
        return found

    async def _check_above(self, path: WorkspacePath) -> None:
        """Refuse what lies below a file, or below a link."""
        above: list[str] = []
        folder = path.parent
        while folder.parts:
            above.append(self.key(folder))
            folder = folder.parent
        found = await self._drive.obstacle(above)
        if found is not None and found.link:
            raise PathRefused(f"{shown(path)} leads through a symbolic link, which is not followed here")
        if found is not None:
            raise os_error(errno.ENOTDIR, path)

    async def _file(self, path: WorkspacePath, if_match: str | None = None) -> Entry:
        found = await self.at(path)
        if found is None:
            raise os_error(errno.ENOENT, path) if if_match is None else gone(path)
        if found.kind is FileKind.DIRECTORY:
            raise os_error(errno.EISDIR, path)
        return found

    async def _whole(self, path: WorkspacePath, found: Entry, if_match: str | None = None) -> bytes:
        """All of a file, which must have a version where one is asked for."""
        # One byte more than there should be, since a longer file would else be taken for whole.
        data = await self._drive.part(found.key, 0, found.size + 1) if found.size else b""
        if len(data) != found.size:
            raise Changed(path)
        if if_match is not None:
            check_version(path, if_match, version_of(data))
        return data

    async def _take_back(self, path: WorkspacePath, data: bytes) -> None:
        """Remove what was made here, unless somebody has written to it already."""
        with suppress(Changed, FileNotFoundError):
            made = await self._file(path)
            if await self._whole(path, made) == data:
                await self._drive.remove(made.key, made.mark)

    def _listed(self, folder: WorkspacePath, entry: Entry) -> FileStat | None:
        """An entry of a directory; None for what no verb could use."""
        if entry.link or entry.kind is None or not entry.key.startswith(f"{self.key(folder)}/"):
            return None
        try:
            path = folder.child(entry.key.rpartition("/")[2])
        except PathRefused:
            return None
        return _described(path, entry)


async def settled(work: Callable[[], Coroutine[Any, Any, T]], path: WorkspacePath) -> T:
    """Do work that begins anew when what it works on has changed meanwhile, so that it decides by what is there now.

    Args:
        work: The verb.
        path: What it is about, for the message.

    Raises:
        WorkspaceConflict: Others change it all the time.
    """
    for _ in range(_MOST_TRIES):
        with suppress(Changed):
            return await work()
    raise WorkspaceConflict(f"{shown(path)} is written to by others all the time: try again later")


def _described(path: WorkspacePath, entry: Entry, version: str | None = None) -> FileStat:
    assert entry.kind is not None
    size = entry.size if entry.kind is FileKind.FILE else 0
    return FileStat(path=path, kind=entry.kind, size=size, modified=entry.modified, version=version)
