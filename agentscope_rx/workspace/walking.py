"""Go through the files and directories below a place, in the order of their names and without links."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Final

from agentscope_rx.frozen import frozen
from agentscope_rx.workspace.filesystem import WorkspaceFS
from agentscope_rx.workspace.folders import Folder, folders_of, listed_folders
from agentscope_rx.workspace.paths import WorkspacePath

VERSION_CONTROL_FOLDERS = frozenset({".git", ".hg", ".svn"})
"""Left out of a walk that starts above them: copies of every file, and nothing to edit."""

MAX_DEPTH = 64
"""How many directories deep a walk goes: no project is deeper, and a tree made to be endless may be."""

# How many directories are asked about at once: each time twice as many, since the first few may be all.
_MOST_AHEAD: Final = 64
# How many are known at most that were not entered yet.
_MOST_KNOWN: Final = 1024


@frozen
class WalkPart:
    """What a walk meets without a step down or up: files of one directory, then at most one directory in it.

    Args:
        folder: The directory, and all that is in it.
        at: Its path relative to the beginning; empty for the beginning itself.
        files: The names of the files, in their order.
        directory: The name of the directory that comes after them; None where none does.
    """

    folder: Folder
    at: str
    files: Sequence[str]
    directory: str | None

    def below(self, name: str) -> str:
        """The path of an entry, relative to the beginning.

        Args:
            name: Its name.
        """
        return f"{self.at}/{name}" if self.at else name


class Walk:
    """One walk, and what it left out.

    Linked files and directories are not entered, so that nothing is met twice.

    Args:
        workspace: Where to walk.
        path: The directory to begin in.

    Attributes:
        unreadable: Number of directories that could not be read.
        too_deep: Number of directories that were not entered because of `MAX_DEPTH`.

    Examples:
        >>> [part.below(name) async for part in Walk(workspace, ".").parts() for name in part.files]
        ['a.txt', 'src/app.py']
    """

    def __init__(self, workspace: WorkspaceFS, path: str | WorkspacePath) -> None:
        self._workspace = workspace
        self._path = path
        self._ask = folders_of
        self._ahead = 1
        self._known = dict[WorkspacePath, _Place | OSError]()
        self._open = list[_Place]()
        self.unreadable = 0
        self.too_deep = 0

    async def parts(self, *, enters: Callable[[str], bool] | None = None) -> AsyncGenerator[WalkPart]:
        """Give each part; a directory comes before what is in it.

        Args:
            enters: Whether a directory, by its relative path, is entered. Default: all are.

        Raises:
            FileNotFoundError: If the beginning does not exist.
            NotADirectoryError: If it is a file.
            PathRefused: If it is not inside the workspace.
        """
        self._open.append(_Place(await self._first(), ""))
        while self._open:
            place = self._open[-1]
            part = place.next_part()
            if part.files or part.directory is not None:
                yield part
            if part.directory is None:
                self._open.pop()
            elif _is_entered(part.below(part.directory), enters):
                await self._enter(part.folder.path.child(part.directory), part.below(part.directory), enters)

    async def _first(self) -> Folder:
        [found] = await self._ask(self._workspace, [self._path])
        if isinstance(found, Folder):
            return found
        # It may begin behind a link, which a listing follows; else that tells what is wrong.
        self._ask = listed_folders
        [found] = await self._ask(self._workspace, [self._path])
        if isinstance(found, OSError):
            raise found
        return found

    async def _enter(self, path: WorkspacePath, at: str, enters: Callable[[str], bool] | None) -> None:
        if len(self._open) >= MAX_DEPTH:
            self.too_deep += 1
            return
        if path not in self._known:
            asked = {path: at, **self._next_ones(enters)}
            for each, found in zip(asked, await self._ask(self._workspace, list(asked)), strict=True):
                self._known[each] = found if isinstance(found, OSError) else _Place(found, asked[each])
            self._ahead = min(2 * self._ahead, _MOST_AHEAD)
        place = self._known.pop(path)
        if isinstance(place, OSError):
            self.unreadable += 1
        else:
            self._open.append(place)

    def _next_ones(self, enters: Callable[[str], bool] | None) -> dict[WorkspacePath, str]:
        """Directories that will be entered later: the next here and above, then those in others that are known."""
        found = dict[WorkspacePath, str]()
        room = min(self._ahead - 1, _MOST_KNOWN - len(self._known))
        for place in (*reversed(self._open), *self._known.values()):
            while len(found) < room and isinstance(place, _Place) and (name := place.next_to_ask()) is not None:
                at = place.below(name)
                if _is_entered(at, enters) and at.count("/") + 1 < MAX_DEPTH:
                    found[place.folder.path.child(name)] = at
        return found


class _Place:
    """A directory on the way, and how much of it has been met."""

    __slots__ = ("_asked", "_at", "_directories", "_files", "folder")

    def __init__(self, folder: Folder, at: str) -> None:
        self.folder, self._at = folder, at
        self._directories = self._files = self._asked = 0

    def next_part(self) -> WalkPart:
        folder, first = self.folder, self._files
        if self._directories == len(folder.directories):
            directory = None
            self._files = len(folder.files)
        else:
            directory = folder.directories[self._directories]
            self._directories += 1
            self._files = bisect_left(folder.files, directory, first)
        return WalkPart(folder=folder, at=self._at, files=folder.files[first : self._files], directory=directory)

    def next_to_ask(self) -> str | None:
        """The next directory that was neither met nor named here; None if there is none."""
        at = max(self._asked, self._directories)
        self._asked = at + 1
        return self.folder.directories[at] if at < len(self.folder.directories) else None

    def below(self, name: str) -> str:
        return f"{self._at}/{name}" if self._at else name


def _is_entered(at: str, enters: Callable[[str], bool] | None) -> bool:
    return at.rpartition("/")[2] not in VERSION_CONTROL_FOLDERS and (enters is None or enters(at))
