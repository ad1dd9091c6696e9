"""A workspace in a database or in Redis, for agents on many machines."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar, cast

from agentscope_rx.errors import StateConflict, WorkspaceError
from agentscope_rx.finishing import to_the_end
from agentscope_rx.runtime import Clock, SystemClock
from agentscope_rx.stores.blobs import BlobStore
from agentscope_rx.stores.keys import check_identifier, folder_name
from agentscope_rx.stores.store import ABSENT
from agentscope_rx.wire import from_json, to_json
from agentscope_rx.workspace.conditions import (
    DEFAULT_MAX_READ_BYTES,
    check_max_read_bytes,
    check_writable,
    check_write,
    part_length,
    version_of,
)
from agentscope_rx.workspace.filesystem import FileContent, FileStat
from agentscope_rx.workspace.folders import Folder, Found
from agentscope_rx.workspace.looking import FileGroup, Looks, Needle
from agentscope_rx.workspace.paths import WorkspacePath, resolve_path, shown
from agentscope_rx.workspace.stored_contents import Contents
from agentscope_rx.workspace.tree import FileNode, FileTree

T = TypeVar("T")
#: Where the tree lies: what files and directories there are, and which blobs hold the contents.
_INDEX: Final = "index"
_FORM: Final = 1
_OWN_BYTES: Final = 16


class StoredWorkspace:
    """Files in a store that many machines share: `SqlStore(url)`, `RedisStore(url)`, or one of your own.

    The tree of files and directories is one value, changed by comparing its version, so that every verb happens as a
    whole or not at all, and `if_match`, `create_only` and `move` are exact among all machines. Contents are stored
    before the tree names them and removed after; a process that dies in between leaves some behind that nobody sees.
    A change costs the size of the tree (some 100 bytes a file): it is meant for thousands of files, not for millions.

    Args:
        store: Where they are kept.
        name: Which workspace it is, among those of the store.
        read_only: True to refuse every write. Default False.
        max_read_bytes: How many bytes one `read` returns at most. Default 32 MiB.
        clock: Gives the time of a change. Default: the system's.

    Raises:
        InvalidIdentifier: The name cannot be one.
        InvalidOption: `max_read_bytes` is less than 1.

    Examples:
        >>> workspace = StoredWorkspace(RedisStore("redis://cache.example/0"), "desk")
        >>> version = await workspace.write("AGENTS.md", b"Be brief.")
    """

    def __init__(
        self,
        store: BlobStore,
        name: str,
        *,
        read_only: bool = False,
        max_read_bytes: int = DEFAULT_MAX_READ_BYTES,
        clock: Clock | None = None,
    ) -> None:
        self._store, self._name = store, check_identifier("name", name)
        self._space = folder_name(name)
        self._contents = Contents(store, self._space)
        self._read_only = read_only
        self._max_read_bytes = check_max_read_bytes(max_read_bytes)
        self._clock = clock or SystemClock()
        self._seen: tuple[int, FileTree[str]] | None = None

    def __repr__(self) -> str:
        return f"StoredWorkspace({self._store!r}, {self._name!r}, read_only={self._read_only})"

    @property
    def shared(self) -> bool:
        """Whether other machines work on the files too: unless the store says that it is of this one."""
        return not getattr(self._store, "local", False)

    @property
    def links(self) -> bool:
        """Whether there can be symbolic links: never."""
        return False

    @property
    def read_only(self) -> bool:
        """Whether every write is refused."""
        return self._read_only

    async def resolve(self, path: str | WorkspacePath) -> WorkspacePath:
        """Check a path; without links it leads where it says. See `WorkspaceFS.resolve`."""
        inside = resolve_path(path)
        (await self._tree()).check_above(inside)
        return inside

    async def read(self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None) -> FileContent:
        """Read a file or a part of it; see `WorkspaceFS.read`."""
        inside = resolve_path(path)
        node = (await self._tree()).file(inside)
        while True:
            length = part_length(path, node.size, offset, limit, self._max_read_bytes)
            data = await self._contents.part(node, min(offset, node.size), length)
            if data is not None:
                version = node.version if offset == 0 and length == node.size else None
                return FileContent(path=inside, data=data, size=node.size, version=version)
            found = (await self._tree()).file(inside)  # it was replaced meanwhile
            if found == node:
                raise WorkspaceError(f"the content of {shown(inside)} is missing in {self._store!r}")
            node = found

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
        return await to_the_end(self._write(inside, bytes(data), if_match, create_only))

    async def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
        """List a directory; see `WorkspaceFS.list`."""
        inside = resolve_path(path)
        return (await self._tree()).list(inside)

    async def stat(self, path: str | WorkspacePath) -> FileStat:
        """Look at one file or directory; see `WorkspaceFS.stat`."""
        inside = resolve_path(path)
        return (await self._tree()).described(inside, version_up_to=self._max_read_bytes)

    async def delete(self, path: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Delete a file or an empty directory; see `WorkspaceFS.delete`. A cancelled one is waited for."""
        inside = resolve_path(path)
        check_writable(path, "deleted", read_only=self._read_only)

        async def work() -> None:
            node = await self._change(lambda tree: tree.delete(inside, self._now(), if_match=if_match))
            await self._contents.forget(node)

        await to_the_end(work())

    async def move(self, path: str | WorkspacePath, to: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Give a file another path; see `WorkspaceFS.move`. A cancelled one is waited for."""
        inside, new = resolve_path(path), resolve_path(to)
        check_writable(path, "moved", read_only=self._read_only)
        await to_the_end(self._change(lambda tree: tree.move(inside, new, self._now(), if_match=if_match)))

    async def folders(self, paths: Sequence[str | WorkspacePath]) -> Sequence[Found]:
        """Tell what is in directories, by one look at the tree; see `ListsFolders`."""
        inside = [resolve_path(path) for path in paths]
        tree = await self._tree()
        return [_folder(tree, path) for path in inside]

    async def looks(self, groups: Sequence[FileGroup], needle: Needle) -> Sequence[Looks]:
        """Look at files, at many by one request; see `FindsText`."""
        tree = await self._tree()
        paths = [[group.folder.path.child(name) for name in group.names] for group in groups]
        nodes = {path: tree.files[path] for some in paths for path in some if path in tree.files}
        found = await self._contents.looks(nodes, needle)
        return [{path.name: found[path] for path in some if path in found} for some in paths]

    # -- changing -------------------------------------------------------------------------------------------

    async def _write(self, path: WorkspacePath, data: bytes, if_match: str | None, create_only: bool) -> str:
        (await self._tree()).check_write(path, if_match=if_match, create_only=create_only)  # before anything is stored
        node = FileNode(
            content=secrets.token_hex(_OWN_BYTES), size=len(data), version=version_of(data), modified=self._now()
        )
        await self._contents.put(node, data)

        def put(tree: FileTree[str]) -> FileNode[str] | None:
            tree.check_write(path, if_match=if_match, create_only=create_only)
            return tree.put(path, node)

        try:
            old = await self._change(put)
        except (WorkspaceError, FileExistsError, IsADirectoryError, NotADirectoryError):
            await self._contents.forget(
                node
            )  # refused for sure; of any other failure nobody knows whether the tree has it
            raise
        await self._contents.forget(old)
        return node.version

    # -- the tree -------------------------------------------------------------------------------------------

    async def _tree(self) -> FileTree[str]:
        """The newest tree, to look at."""
        seen = self._seen
        if seen is not None and await self._store.blob_version(self._space, _INDEX) == seen[0]:
            return seen[1]
        self._seen = await self._loaded()
        return self._seen[1]

    async def _loaded(self) -> tuple[int, FileTree[str]]:
        stored = await self._store.get_blob(self._space, _INDEX)
        if stored is None:
            return ABSENT, FileTree(self._now())
        return stored.version, _tree_of(stored.body)

    async def _change(self, change: Callable[[FileTree[str]], T]) -> T:
        """Change the tree; where somebody else has meanwhile, look again and decide again."""
        while True:
            version, tree = await self._loaded()
            result = change(tree)
            try:
                new = await self._store.put_blob(self._space, _INDEX, _bytes_of(tree), expected_version=version)
            except StateConflict:
                continue
            self._seen = new, tree
            return result

    def _now(self) -> float:
        return self._clock.now().timestamp()


def _folder(tree: FileTree[str], path: WorkspacePath) -> Found:
    try:
        return Folder.of(path, tree.list(path))
    except OSError as error:
        return error


def _bytes_of(tree: FileTree[str]) -> bytes:
    files = {
        str(path): [node.content, node.size, node.version, node.modified] for path, node in sorted(tree.files.items())
    }
    directories = {str(path): modified for path, modified in sorted(tree.directories.items())}
    return to_json({"form": _FORM, "directories": directories, "files": files})


def _tree_of(body: bytes) -> FileTree[str]:
    value = cast("dict[str, Any]", from_json(body))
    if value["form"] != _FORM:
        raise WorkspaceError(f"the workspace was written in the form {value['form']}, and this library reads {_FORM}")
    directories = cast("dict[str, float]", value["directories"])
    files = cast("dict[str, Sequence[Any]]", value["files"])
    return FileTree(
        0.0,
        ((resolve_path(path), modified) for path, modified in directories.items()),
        ((resolve_path(path), _node_of(*parts)) for path, parts in files.items()),
    )


def _node_of(content: str, size: int, version: str, modified: float) -> FileNode[str]:
    return FileNode(content=content, size=size, version=version, modified=modified)
