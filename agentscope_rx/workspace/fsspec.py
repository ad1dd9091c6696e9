"""A workspace in an object store, or wherever else a driver of fsspec leads."""

from __future__ import annotations

import errno
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final, TypeVar

from agentscope_rx.errors import AgentScopeError, InvalidOption, MissingExtra, WorkspaceError
from agentscope_rx.finishing import to_the_end
from agentscope_rx.workspace.conditions import (
    DEFAULT_MAX_READ_BYTES,
    check_entry,
    check_max_read_bytes,
    check_writable,
    check_write,
    os_error,
    part_length,
)
from agentscope_rx.workspace.filesystem import FileContent, FileStat
from agentscope_rx.workspace.fsspec_drives import Drive, FolderDrive
from agentscope_rx.workspace.fsspec_files import DriveFiles, settled
from agentscope_rx.workspace.fsspec_objects import ObjectDrive, S3Drive
from agentscope_rx.workspace.looking import FileGroup, Look, Looks, Needle, by_size
from agentscope_rx.workspace.paths import WorkspacePath, resolve_path, shown

T = TypeVar("T")
_NO_OPTIONS: Final[Mapping[str, object]] = MappingProxyType({})
_DRIVES: Final = {
    **dict.fromkeys(("s3", "s3a"), S3Drive),
    **dict.fromkeys(("gs", "gcs", "az", "abfs", "abfss"), ObjectDrive),
}
_OF_THIS_MACHINE: Final = ("file", "local", "memory")
#: How many files of a search are read at once.
_READ_AT_ONCE: Final = 8
#: What drivers mean that raise an error without a number.
_NUMBERS: Final = (
    (FileNotFoundError, errno.ENOENT),
    (FileExistsError, errno.EEXIST),
    (PermissionError, errno.EACCES),
    (TimeoutError, errno.ETIMEDOUT),
)


class FsspecWorkspace:
    """Files in an object store, or at another place for which there is a driver of fsspec.

    Each file is one object, which other programs may read and write too: `notes/a.txt` of the workspace
    `s3://bucket/desk` is the object `desk/notes/a.txt`. Drivers come as packages of their own: s3fs, gcsfs, adlfs, ...

    What a condition (`if_match`, `create_only`, `move` to a free path, a `delete` that happens once) promises among
    several machines depends on what the place can compare:

    * S3: all of it, if the server knows conditional requests, as that of Amazon does.
    * Google Cloud Storage and Azure: who creates a file first (`create_only`, `move`). `if_match` and `delete` are
      exact among all workspaces of this process; another machine that changes the same file between the look and the
      write is overwritten without a word.
    * All others (memory, SFTP, a folder of this machine, ...): everything within this process, nothing beyond it. For a
      folder take `LocalWorkspace`, which is exact among processes, and follows links that stay inside.

    A `move` copies and then removes, so that a process which dies in between leaves both. Below a symbolic link nothing
    is reached. Object stores know no directories: one that lost its last file is kept there by an empty object. Nothing
    blocks the event loop; reads end with a cancellation, and changes are waited for.

    Args:
        url: Where the root is: `s3://bucket/desk`, `gs://...`, `abfs://...`, `sftp://host/desk`, ...
        storage_options: For the driver, as its documentation names them: keys, an endpoint, ... Default: none.
        read_only: True to refuse every write. Default False.
        max_read_bytes: How many bytes one `read` returns, and the size of the largest file that is moved. Default 32
            MiB.

    Raises:
        MissingExtra: fsspec is not installed.
        InvalidOption: No driver knows the URL, its package is not installed, or `max_read_bytes` is less than 1.

    Examples:
        >>> workspace = FsspecWorkspace("s3://bucket/desk", storage_options={"anon": False})
        >>> version = await workspace.write("AGENTS.md", b"Be brief.")
    """

    def __init__(
        self,
        url: str,
        *,
        storage_options: Mapping[str, object] = _NO_OPTIONS,
        read_only: bool = False,
        max_read_bytes: int = DEFAULT_MAX_READ_BYTES,
    ) -> None:
        self._drive, self._protocol, self._root = _opened(url, storage_options)
        self._read_only = read_only
        self._max_read_bytes = check_max_read_bytes(max_read_bytes)
        self._files = DriveFiles(self._drive, self._root, max_read_bytes)

    def __repr__(self) -> str:
        return f"FsspecWorkspace('{self._protocol}://{self._root}', read_only={self._read_only})"

    @property
    def shared(self) -> bool:
        """Whether other machines find the files too: unless they are in a folder or the memory of this one."""
        return self._protocol not in _OF_THIS_MACHINE

    @property
    def links(self) -> bool:
        """Whether there can be symbolic links, which are refused: not in an object store."""
        return self._drive.links

    @property
    def read_only(self) -> bool:
        """Whether every write is refused."""
        return self._read_only

    async def resolve(self, path: str | WorkspacePath) -> WorkspacePath:
        """Check a path; links are refused, so that it leads where it says. See `WorkspaceFS.resolve`."""
        inside = resolve_path(path)
        await self._asked(lambda: self._files.at(inside), inside)
        return inside

    async def read(self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None) -> FileContent:
        """Read a file or a part of it; see `WorkspaceFS.read`."""
        inside = resolve_path(path)
        part_length(path, 0, offset, limit, self._max_read_bytes)  # numbers that are none are refused before
        return await self._asked(lambda: self._files.read(inside, offset, limit), inside)

    async def write(
        self,
        path: str | WorkspacePath,
        data: bytes,
        *,
        if_match: str | None = None,
        create_only: bool = False,
    ) -> str:
        """Replace or create a file; see `WorkspaceFS.write`. A cancelled write is waited for."""
        inside = resolve_path(path)
        check_write(if_match=if_match, create_only=create_only)
        check_writable(path, "written", read_only=self._read_only)
        return await self._changed(lambda: self._files.write(inside, bytes(data), if_match, create_only), inside)

    async def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
        """List a directory; see `WorkspaceFS.list`."""
        inside = resolve_path(path)
        return await self._asked(lambda: self._files.list(inside), inside)

    async def stat(self, path: str | WorkspacePath) -> FileStat:
        """Look at one file or directory; see `WorkspaceFS.stat`. The version of a file costs reading it."""
        inside = resolve_path(path)
        return await self._asked(lambda: self._files.stat(inside), inside)

    async def delete(self, path: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Delete a file or an empty directory; see `WorkspaceFS.delete`. A cancelled one is waited for."""
        inside = resolve_path(path)
        check_writable(path, "deleted", read_only=self._read_only)
        check_entry(inside)
        await self._changed(lambda: self._files.delete(inside, if_match), inside)

    async def move(self, path: str | WorkspacePath, to: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Give a file another path; see `WorkspaceFS.move`. A cancelled one is waited for.

        Raises:
            FileTooLarge: It is larger than what may be read at once.
        """
        inside, new = resolve_path(path), resolve_path(to)
        check_writable(path, "moved", read_only=self._read_only)
        check_entry(inside)
        await self._changed(lambda: self._files.move(inside, new, if_match), inside, new)

    async def looks(self, groups: Sequence[FileGroup], needle: Needle) -> Sequence[Looks]:
        """Look at files, at several at once; see `FindsText`."""
        sized = by_size(groups, needle)
        paths = [
            group.folder.path.child(name)
            for group, looks in zip(groups, sized, strict=True)
            for name, look in looks.items()
            if look is Look.MAY_HOLD
        ]
        held = set[WorkspacePath]()
        for start in range(0, len(paths), _READ_AT_ONCE):
            some = paths[start : start + _READ_AT_ONCE]
            held.update(await self._drive.run(partial(self._files.holding, some, needle)))
        return [
            {
                name: look
                for name, look in looks.items()
                if look is not Look.MAY_HOLD or group.folder.path.child(name) in held
            }
            for group, looks in zip(groups, sized, strict=True)
        ]

    async def _asked(self, work: Callable[[], Coroutine[Any, Any, T]], path: WorkspacePath) -> T:
        with _own_errors(path):
            return await self._drive.run(lambda: settled(work, path))

    async def _changed(self, work: Callable[[], Coroutine[Any, Any, T]], *paths: WorkspacePath) -> T:
        with _own_errors(*paths):
            return await to_the_end(self._drive.run(lambda: settled(work, paths[0]), *map(self._files.key, paths)))


def _opened(url: str, storage_options: Mapping[str, object]) -> tuple[Drive, str, str]:
    """What a URL leads to: the drive, what kind of place it is, and the root there."""
    try:
        open_url: Any = import_module("fsspec.core").url_to_fs  # the package has no types
    except ImportError:
        raise MissingExtra("FsspecWorkspace", "fsspec") from None
    scheme = url.partition("://")[0]
    if "::" in url:
        raise InvalidOption("url", scheme, "give the place itself, without a cache or an archive before it")
    if "asynchronous" in storage_options:
        raise InvalidOption("storage_options", "asynchronous", "leave it out: nothing blocks the loop without it")
    # What was listed a while ago is not what is there: other machines write too.
    options = {"use_listings_cache": False} if scheme in _DRIVES else {}
    try:
        system, root = open_url(url, **{**storage_options, **options})
    except ImportError as error:
        raise InvalidOption("url", scheme, f"its driver is not installed: {error}") from error
    except ValueError as error:
        raise InvalidOption("url", scheme, f"give a URL that fsspec knows: {error}") from error
    protocol = system.protocol if isinstance(system.protocol, str) else system.protocol[0]
    drive: Drive = _DRIVES.get(protocol, FolderDrive)(system)
    root = str(root).rstrip("/")
    if not drive.links and not root:
        raise InvalidOption("url", url, "name a bucket: s3://bucket/desk")
    return drive, protocol, root


@contextmanager
def _own_errors(*paths: WorkspacePath) -> Generator[None]:
    """Have errors name paths as they are called in here, whatever a driver says."""
    try:
        yield
    except AgentScopeError:
        raise
    except OSError as error:
        number = error.errno or next((each for kind, each in _NUMBERS if isinstance(error, kind)), errno.EIO)
        raise os_error(number, *paths) from error
    except Exception as error:
        raise WorkspaceError(f"{shown(paths[0])}: the file system failed with {type(error).__name__}") from error
