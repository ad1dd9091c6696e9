"""The contents of the files of a `StoredWorkspace`: blobs of a store, each a piece of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Final, TypeAlias

from agentscope_rx.stores.blobs import BlobStore
from agentscope_rx.stores.store import ABSENT, Stored
from agentscope_rx.workspace.looking import Look, Needle, look_at
from agentscope_rx.workspace.paths import WorkspacePath
from agentscope_rx.workspace.tree import FileNode

_File: TypeAlias = tuple[WorkspacePath, FileNode[str]]
#: How long a piece of a content is: databases and servers dislike larger ones, and parts are read by pieces.
_PIECE: Final = 1024 * 1024
#: How many pieces one request asks for at most, and how many bytes the contents have that a search asks for at once.
_PIECES_AT_ONCE: Final = 8
_FILES_AT_ONCE: Final = 200
_BYTES_AT_ONCE: Final = _PIECES_AT_ONCE * _PIECE


class Contents:
    """Contents in a store: stored before a tree names them, and removed after.

    Args:
        store: The store.
        space: Where in it they are.
    """

    def __init__(self, store: BlobStore, space: str) -> None:
        self._store, self._space = store, space

    async def put(self, node: FileNode[str], data: bytes) -> None:
        """Store a new content.

        Args:
            node: The file whose content it will be.
            data: The content.
        """
        for name, start in _pieces(node):
            await self._store.put_blob(self._space, name, data[start : start + _PIECE], expected_version=ABSENT)

    async def part(self, node: FileNode[str], offset: int, length: int) -> bytes | None:
        """Read a part of a content; None if it is there no more.

        Args:
            node: The file.
            offset: Where to begin, in bytes.
            length: How many bytes.
        """
        names = [name for name, start in _pieces(node) if start + _PIECE > offset and start < offset + length]
        found: list[bytes] = []
        for some in (names[at : at + _PIECES_AT_ONCE] for at in range(0, len(names), _PIECES_AT_ONCE)):
            pieces = await self._store.get_blobs(self._space, some)
            if len(pieces) < len(some):
                return None
            found += [pieces[name].body for name in some]
        first = offset % _PIECE
        return b"".join(found)[first : first + length]

    async def forget(self, node: FileNode[str] | None) -> None:
        """Remove the content of a file that is there no more; of None, nothing."""
        names = [] if node is None else [name for name, _ in _pieces(node)]
        if names:
            await self._store.delete_blobs(self._space, names)

    async def looks(self, nodes: Mapping[WorkspacePath, FileNode[str]], needle: Needle) -> dict[WorkspacePath, Look]:
        """Look at files, at many by one request; a large one may hold the text, unless it is too large.

        Args:
            nodes: The files.
            needle: What they may hold.
        """
        found, small = dict[WorkspacePath, Look](), list[_File]()
        for path, node in nodes.items():
            if node.size > needle.file_bytes:
                found[path] = Look.TOO_LARGE
            elif node.size > _BYTES_AT_ONCE:
                found[path] = Look.MAY_HOLD
            else:
                small.append((path, node))
        for some in _batches(small):
            blobs = await self._store.get_blobs(self._space, [name for _, node in some for name, _ in _pieces(node)])
            looks = ((path, _look(node, blobs, needle)) for path, node in some)
            found.update((path, look) for path, look in looks if look is not None)
        return found


def _pieces(node: FileNode[str]) -> Iterator[tuple[str, int]]:
    """The names of the blobs of a content, and where in it each begins."""
    return ((f"{node.content}/{number}", number * _PIECE) for number in range(ceil(node.size / _PIECE)))


def _batches(files: Sequence[_File]) -> Iterator[Sequence[_File]]:
    """Files that are read together."""
    some, size = list[_File](), 0
    for path, node in files:
        if some and (size + node.size > _BYTES_AT_ONCE or len(some) == _FILES_AT_ONCE):
            yield some
            some, size = [], 0
        some.append((path, node))
        size += node.size
    if some:
        yield some


def _look(node: FileNode[str], blobs: Mapping[str, Stored], needle: Needle) -> Look | None:
    """A look at a content; where it is there no more, its reader is told what is there now."""
    names = [name for name, _ in _pieces(node)]
    if any(name not in blobs for name in names):
        return Look.MAY_HOLD
    return look_at(b"".join(blobs[name].body for name in names), needle)
