"""Rules for tools that use files of a workspace.

A content is a pattern for the path from the root of the workspace: `src/**`, `*.py` (at any depth), `docs/*.md`;
`PathPattern` says what a pattern can hold. A path is compared as it was written, without its detours, and as what it
leads to behind links: to be allowed, both have to fit; to be denied or asked about, one is enough, and case makes no
difference. A tool that goes through directories (`tree=True`) is about all that lies below.
"""

from __future__ import annotations

import glob
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from typing import Final

from agentscope_rx.errors import WorkspaceError
from agentscope_rx.frozen import frozen
from agentscope_rx.workspace.filesystem import WorkspaceFS
from agentscope_rx.workspace.paths import resolve_path
from agentscope_rx.workspace.patterns import PathPattern


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_FILES: Final = _names(
    ".gitconfig .gitmodules .bashrc .bash_profile .zshrc .zprofile .profile .netrc .npmrc .pypirc .env .envrc"
    " .env.local .env.development .env.production .env.staging .env.test authorized_keys"
)
_DIRECTORIES: Final = _names(".git .vscode .idea .ssh")
_WILD: Final = frozenset("*?[{")


@frozen
class DangerousPaths:
    """Files whose change may give somebody power over the machine, or make secrets public; case makes no difference.

    Args:
        files: Names of files.
        directories: Names of directories, with all that they hold.
    """

    files: frozenset[str] = _FILES
    directories: frozenset[str] = _DIRECTORIES

    def holds(self, path: str) -> bool:
        """Whether a path is one of them.

        Examples:
            >>> [DangerousPaths().holds(path) for path in ("app/.ENV", ".git/hooks/pre-commit", "src/env.py")]
            [True, True, False]
        """
        names = [_folded(name) for name in path.split("/")]
        return names[-1] in self.files or any(name in self.directories for name in names)


@frozen
class PathTarget:
    """The files that a call uses.

    Args:
        names: Each path as it was written and as what it leads to.
        unclear: Whether there are paths that could not be read: the tool will refuse them.
        edits: Whether the tool changes files.
        tree: Whether it uses all that lies below.
        dangerous: Which files nobody may change without being asked.
    """

    names: tuple[str, ...]
    unclear: bool = False
    edits: bool = False
    tree: bool = False
    dangerous: DangerousPaths = field(default_factory=DangerousPaths)

    @property
    def danger(self) -> str:
        """Why a person has to be asked, whatever rules and mode say."""
        found = next((name for name in self.names if self.edits and self.dangerous.holds(name)), None)
        return "" if found is None else f"'{found}' is a file that can do harm when it is changed"

    @property
    def suggestions(self) -> tuple[str, ...]:
        """For each path the directory that it lies in; itself where that is the root."""
        if self.unclear or any("{" in name for name in self.names):
            return ()
        return tuple(dict.fromkeys(_around(name, tree=self.tree) for name in self.names))

    def touched_by(self, content: str) -> bool:
        """Whether one of the files fits, or might."""
        if self.unclear:
            return True
        pattern = _pattern(_folded(content))
        folded = [_folded(name) for name in self.names]
        if pattern is None or any(pattern.matches(name) for name in folded):
            return True
        return self.tree and any(_may_lie_below(_folded(content), name) for name in folded)

    def covered_by(self, contents: Sequence[str]) -> bool:
        """Whether each of the files fits one of the contents."""
        return not self.unclear and all(any(self._covers(each, name) for each in contents) for name in self.names)

    def edits_inside(self, directories: Sequence[str]) -> bool:
        """Whether each of the files lies in one of the directories, and is there to be edited."""
        if self.unclear or not self.edits:
            return False
        return all(any(_lies_in(name, directory) for directory in directories) for name in self.names)

    def _covers(self, content: str, name: str) -> bool:
        pattern = _pattern(content)
        if pattern is None:
            return False
        if not self.tree:
            return pattern.matches(name)
        whole = content.rstrip("/").rpartition("/")[2] == "**"
        return whole and pattern.matches("x" if name == "." else f"{name}/x")


def paths(
    workspace: WorkspaceFS,
    *arguments: str,
    edits: bool = False,
    tree: bool = False,
    dangerous: DangerousPaths | None = None,
) -> Callable[[Mapping[str, object]], Awaitable[PathTarget]]:
    """What calls of a file tool are about, for `@tool(target=paths(workspace, "path"))`.

    Args:
        workspace: Where the files are.
        arguments: Which arguments hold paths; one that is left out means the workspace itself.
        edits: Whether the tool changes files. Default False.
        tree: Whether it goes through directories. Default False.
        dangerous: Which files nobody may change without being asked. Default `DangerousPaths()`.
    """
    kept = dangerous or DangerousPaths()

    async def target(given: Mapping[str, object]) -> PathTarget:
        names: list[str] = []
        unclear = False
        for argument in arguments:
            written = given.get(argument) or "."
            try:
                if not isinstance(written, str):
                    raise TypeError(argument)
                names += (str(resolve_path(written)), str(await workspace.resolve(written)))
            except (WorkspaceError, TypeError, OSError):
                unclear = True
        known = tuple(dict.fromkeys(names))
        return PathTarget(names=known, unclear=unclear, edits=edits, tree=tree, dangerous=kept)

    return target


@lru_cache(maxsize=256)
def _pattern(content: str) -> PathPattern | None:
    try:
        return PathPattern(content)
    except ValueError:
        return None


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _may_lie_below(content: str, directory: str) -> bool:
    """Whether a pattern may fit something below a directory: unless they part before the first wildcard."""
    names = [name for name in content.split("/") if name not in ("", ".")]
    fixed: list[str] = []
    for name in names:
        if _WILD & set(name):
            break
        fixed.append(name)
    if "/" not in content or directory == ".":
        return True
    above = directory.split("/")
    return all(one == other for one, other in zip(fixed, above, strict=False))


def _lies_in(name: str, directory: str) -> bool:
    inside = str(resolve_path(directory))
    return inside == "." or name == inside or name.startswith(f"{inside}/")


def _around(name: str, *, tree: bool) -> str:
    if tree:
        return "**" if name == "." else f"{glob.escape(name)}/**"
    above = name.rpartition("/")[0]
    return f"{glob.escape(above)}/**" if above else f"/{glob.escape(name)}"
