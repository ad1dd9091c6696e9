"""A workspace that lives in the memory of this process, one for each instance."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from types import MappingProxyType

from agentscope_rx.errors import WorkspaceError
from agentscope_rx.runtime import Clock, SystemClock
from agentscope_rx.workspace.conditions import (
    DEFAULT_MAX_READ_BYTES,
    check_entry,
    check_max_read_bytes,
    check_version,
    check_writable,
    check_write,
    gone,
    part_length,
    version_of,
)
from agentscope_rx.workspace.filesystem import FileContent, FileKind, FileStat
from agentscope_rx.workspace.paths import WorkspacePath, resolve_path


class InMemoryWorkspace:
    """Files without a disk, by the same rules as `LocalWorkspace`; it has no links and needs no thread.

    Args:
        files: What is there at the beginning: content by path; text is stored as UTF-8. Default: nothing.
        read_only: True to refuse every write. Default False.
        max_read_bytes: How many bytes one `read` returns at most. Default 32 MiB.
        clock: Gives the time of a change; share the Runtime's where runs are replayed. Default: the system's.

    Raises:
        PathRefused: If a path of `files` is none.
        OSError: If a path of `files` is both a file and a directory.
        InvalidOption: If `max_read_bytes` is less than 1.

    Examples:
        >>> workspace = InMemoryWorkspace({"AGENTS.md": "Be brief."})
        >>> (await workspace.read("AGENTS.md")).data
        b'Be brief.'
    """

    def __init__(
        self,
        files: Mapping[str, str | bytes] = MappingProxyType({}),
        *,
        read_only: bool = False,
        max_read_bytes: int = DEFAULT_MAX_READ_BYTES,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._read_only = read_only
        self._max_read_bytes = check_max_read_bytes(max_read_bytes)
        self._files: dict[WorkspacePath, tuple[bytes, float]] = {}
        self._directories: dict[WorkspacePath, float] = {resolve_path("."): self._now()}
        self._entries: dict[WorkspacePath, set[WorkspacePath]] = {resolve_path("."): set()}
        for path, content in files.items():
            self._put(resolve_path(path), content.encode() if isinstance(content, str) else bytes(content))

    def __repr__(self) -> str:
        return f"InMemoryWorkspace({len(self._files)} files, read_only={self._read_only})"

    @property
    def read_only(self) -> bool:
        """Whether every write is refused."""
        return self._read_only

    async def resolve(self, path: str | WorkspacePath) -> WorkspacePath:
        """Check a path; without links it leads where it says. See `WorkspaceFS.resolve`."""
        inside = resolve_path(path)
        self._check_above(inside)
        return inside

    async def read(self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None) -> FileContent:
        """Read a file or a part of it; see `WorkspaceFS.read`."""
        inside = resolve_path(path)
        data, _ = self._file(inside)
        length = part_length(path, len(data), offset, limit, self._max_read_bytes)
        version = version_of(data) if offset == 0 and length == len(data) else None
        part = data[offset : offset + length]
        return FileContent(path=inside, data=part, size=len(data), version=version)

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
        check_writable(path, "written", read_only=self._read_only)
        old = self._files.get(inside)
        if create_only and old is not None:
            raise _error(errno.EEXIST, inside)
        if if_match is not None:
            self._check_match(inside, old, if_match)
        self._put(inside, bytes(data))
        return version_of(data)

    async def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
        """List a directory; see `WorkspaceFS.list`."""
        inside = resolve_path(path)
        if inside not in self._directories:
            self._file(inside)
            raise _error(errno.ENOTDIR, inside)
        return tuple(self._described(entry) for entry in sorted(self._entries[inside]))

    async def stat(self, path: str | WorkspacePath) -> FileStat:
        """Look at one file or directory; see `WorkspaceFS.stat`."""
        inside = resolve_path(path)
        return self._described(inside, with_version=True)

    async def delete(self, path: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Delete a file or an empty directory; see `WorkspaceFS.delete`."""
        inside = resolve_path(path)
        check_writable(path, "deleted", read_only=self._read_only)
        check_entry(inside)
        if if_match is not None:
            self._check_match(inside, self._files.get(inside), if_match)
        if inside not in self._directories:
            self._file(inside)
            del self._files[inside]
        elif self._entries[inside]:
            raise _error(errno.ENOTEMPTY, inside)
        else:
            del self._directories[inside], self._entries[inside]
        self._drop_entry(inside)

    async def move(self, path: str | WorkspacePath, to: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Give a file another path; see `WorkspaceFS.move`."""
        inside, new = resolve_path(path), resolve_path(to)
        check_writable(path, "moved", read_only=self._read_only)
        check_entry(inside)
        try:
            if if_match is not None:
                self._check_match(inside, self._files.get(inside), if_match)
            file = self._file(inside)
            self._check_above(new)
            if new in self._files or new in self._directories:
                raise _error(errno.EEXIST, new)
        except WorkspaceError:
            raise
        except OSError as error:
            raise _error(error.errno or 0, inside, new) from error
        self._make_above(new, self._now())
        self._files[new] = file
        del self._files[inside]
        self._drop_entry(inside)

    def _now(self) -> float:
        return self._clock.now().timestamp()

    def _described(self, path: WorkspacePath, *, with_version: bool = False) -> FileStat:
        modified = self._directories.get(path)
        if modified is not None:
            return FileStat(path=path, kind=FileKind.DIRECTORY, size=0, modified=modified)
        data, modified = self._file(path)
        version = version_of(data) if with_version and len(data) <= self._max_read_bytes else None
        return FileStat(path=path, kind=FileKind.FILE, size=len(data), modified=modified, version=version)

    def _file(self, path: WorkspacePath) -> tuple[bytes, float]:
        self._check_above(path)
        if path in self._directories:
            raise _error(errno.EISDIR, path)
        if path not in self._files:
            raise _error(errno.ENOENT, path)
        return self._files[path]

    def _check_match(self, path: WorkspacePath, old: tuple[bytes, float] | None, if_match: str) -> None:
        if old is None:
            self._check_above(path)
            if path in self._directories:
                raise _error(errno.EISDIR, path)
            raise gone(path)
        check_version(path, if_match, version_of(old[0]))

    def _check_above(self, path: WorkspacePath) -> None:
        above = path
        while above != above.parent:
            above = above.parent
            if above in self._files:
                raise _error(errno.ENOTDIR, path)

    def _put(self, path: WorkspacePath, data: bytes) -> None:
        self._check_above(path)
        if path in self._directories:
            raise _error(errno.EISDIR, path)
        now = self._now()
        if path not in self._files:
            self._make_above(path, now)
        self._files[path] = (data, now)

    def _drop_entry(self, path: WorkspacePath) -> None:
        self._entries[path.parent].remove(path)
        self._directories[path.parent] = self._now()

    def _make_above(self, path: WorkspacePath, now: float) -> None:
        """Make the directories that are missing; the one that gets a new entry changes with it."""
        entry, above = path, path.parent
        while above not in self._directories:
            self._directories[above] = now
            self._entries[above] = {entry}
            entry, above = above, above.parent
        self._directories[above] = now
        self._entries[above].add(entry)


def _error(number: int, path: WorkspacePath, to: WorkspacePath | None = None) -> OSError:
    if to is None:
        return OSError(number, os.strerror(number), str(path))
    return OSError(number, os.strerror(number), str(path), None, str(to))
