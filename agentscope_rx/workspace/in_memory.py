"""A workspace that lives in the memory of this process, one for each instance."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from agentscope_rx.runtime import Clock, SystemClock
from agentscope_rx.workspace.conditions import (
    DEFAULT_MAX_READ_BYTES,
    check_max_read_bytes,
    check_writable,
    check_write,
    part_length,
    version_of,
)
from agentscope_rx.workspace.filesystem import FileContent, FileStat
from agentscope_rx.workspace.paths import WorkspacePath, resolve_path
from agentscope_rx.workspace.tree import FileNode, FileTree


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
        self._tree: FileTree[bytes] = FileTree(self._now())
        for path, content in files.items():
            self._tree.put(
                resolve_path(path), self._node(content.encode() if isinstance(content, str) else bytes(content))
            )

    def __repr__(self) -> str:
        return f"InMemoryWorkspace({len(self._tree.files)} files, read_only={self._read_only})"

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
        self._tree.check_above(inside)
        return inside

    async def read(self, path: str | WorkspacePath, *, offset: int = 0, limit: int | None = None) -> FileContent:
        """Read a file or a part of it; see `WorkspaceFS.read`."""
        inside = resolve_path(path)
        node = self._tree.file(inside)
        length = part_length(path, node.size, offset, limit, self._max_read_bytes)
        version = node.version if offset == 0 and length == node.size else None
        part = node.content[offset : offset + length]
        return FileContent(path=inside, data=part, size=node.size, version=version)

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
        self._tree.check_write(inside, if_match=if_match, create_only=create_only)
        node = self._node(bytes(data))
        self._tree.put(inside, node)
        return node.version

    async def list(self, path: str | WorkspacePath = ".") -> tuple[FileStat, ...]:
        """List a directory; see `WorkspaceFS.list`."""
        return self._tree.list(resolve_path(path))

    async def stat(self, path: str | WorkspacePath) -> FileStat:
        """Look at one file or directory; see `WorkspaceFS.stat`."""
        return self._tree.described(resolve_path(path), version_up_to=self._max_read_bytes)

    async def delete(self, path: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Delete a file or an empty directory; see `WorkspaceFS.delete`."""
        inside = resolve_path(path)
        check_writable(path, "deleted", read_only=self._read_only)
        self._tree.delete(inside, self._now(), if_match=if_match)

    async def move(self, path: str | WorkspacePath, to: str | WorkspacePath, *, if_match: str | None = None) -> None:
        """Give a file another path; see `WorkspaceFS.move`."""
        inside, new = resolve_path(path), resolve_path(to)
        check_writable(path, "moved", read_only=self._read_only)
        self._tree.move(inside, new, self._now(), if_match=if_match)

    def _node(self, data: bytes) -> FileNode[bytes]:
        return FileNode(content=data, size=len(data), version=version_of(data), modified=self._now())

    def _now(self) -> float:
        return self._clock.now().timestamp()
