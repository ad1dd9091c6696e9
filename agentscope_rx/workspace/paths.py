"""How a path that a model wrote becomes a path inside the workspace, or is refused.

Nothing here looks at a disk. What a path means once symbolic links come in is decided where files are opened,
in `containment.py`; both ask `is_reserved`, so a link can lead no further than a path can.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass

from agentscope_rx.errors import PathRefused

RUNTIME_FOLDER = ".agentscope-runtime"
"""Where sessions keep their logs; no verb of a workspace reaches it, whatever its case."""

TEMPORARY_PREFIX = ".agentscope-tmp-"
"""How the name of a half-written file begins; as much out of reach as the runtime folder."""

_MAX_NAME_BYTES = 255
_MAX_PATH_BYTES = 4096
_DRIVE = re.compile(r"[A-Za-z]:")
_SURROGATE = re.compile("[\ud800-\udfff]")
# The categories Cc, Zl and Zp of Unicode.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
# Not those that begin with a dot, which may be reserved.
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
# No character has more than four bytes.
_PLAIN_LENGTH = _MAX_PATH_BYTES // 4
_SEAL = object()


@dataclass(frozen=True, slots=True, order=True)
class WorkspacePath:
    """A path that was checked: relative to the root of a workspace, without `.` and `..`.

    Only `resolve_path` makes one, so who holds a `WorkspacePath` need not check it again.

    Args:
        parts: The names from the root down; none for the root itself.
        seal: The resolver's own mark.

    Raises:
        TypeError: If anybody but the resolver calls it.

    Examples:
        >>> path = resolve_path("./src//app.py")
        >>> str(path), path.name, str(path.parent)
        ('src/app.py', 'app.py', 'src')
    """

    parts: tuple[str, ...]
    seal: InitVar[object]

    def __post_init__(self, seal: object) -> None:
        if seal is not _SEAL:
            raise TypeError("a WorkspacePath is made by resolve_path() only")

    def __str__(self) -> str:
        return "/".join(self.parts) or "."

    @property
    def name(self) -> str:
        """The last name; empty for the root."""
        return self.parts[-1] if self.parts else ""

    @property
    def parent(self) -> WorkspacePath:
        """The directory that holds it; the root is its own parent."""
        return WorkspacePath(self.parts[:-1], _SEAL)

    def child(self, name: str) -> WorkspacePath:
        """The entry `name` of this directory.

        Args:
            name: One name, as a directory lists it.

        Raises:
            PathRefused: If no path can name that entry.

        Examples:
            >>> str(resolve_path("src").child("app.py"))
            'src/app.py'
        """
        # By itself, as the names above it were checked when this path was made.
        path = WorkspacePath((*self.parts, name), _SEAL)
        if _is_plain(name) and len(str(path)) <= _PLAIN_LENGTH:
            return path
        if "/" in name or name in {"", ".", ".."}:
            raise PathRefused(f"{shown(name)} is not the name of a file or directory")
        _check_text(name)
        _check_length(str(path))
        _check_name(name, name)
        _check_first(path.parts, name)
        return path


def resolve_path(path: str | WorkspacePath, *, roots: Sequence[str] = ()) -> WorkspacePath:
    """Turn a path that anybody may have written into a path inside the workspace.

    Args:
        path: Names separated by `/`, relative to the root; `.` is the root. Empty names and `.` are dropped
            and `..` takes back the name before it, by the text alone.
        roots: Absolute directories, normalised, that are the workspace's root: an absolute path below one of
            them is taken as relative to it. Default: none, so that every absolute path is refused.

    Raises:
        PathRefused: If the path is blank, absolute, leads above the root or into the runtime folder, starts
            with `~` or a drive letter, or holds a backslash, a control character, a lone surrogate, a name of
            blanks or one of more than 255 bytes.

    Examples:
        >>> str(resolve_path("docs/../src/app.py"))
        'src/app.py'
        >>> str(resolve_path("/srv/ws/a.txt", roots=["/srv/ws"]))
        'a.txt'
    """
    if isinstance(path, WorkspacePath):
        return path
    _check_text(path)
    parts = tuple(_relative(path, roots))
    for part in parts:
        _check_name(part, path)
    _check_first(parts, path)
    return WorkspacePath(parts, _SEAL)


def child_names(directory: WorkspacePath, names: Iterable[str]) -> list[str]:
    """Return those of many names that `WorkspacePath.child` takes.

    Args:
        directory: The directory that holds them.
        names: Names, as a directory lists them.

    Examples:
        >>> child_names(resolve_path("src"), ["app.py", "a\\b", ".agentscope-runtime"])
        ['app.py']
    """
    short = len(str(directory)) + 1 + _MAX_NAME_BYTES <= _PLAIN_LENGTH
    return [name for name in names if (short and _is_plain(name)) or _is_child(directory, name)]


def is_reserved(name: str) -> bool:
    """Tell whether a name belongs to the library itself and is out of reach.

    Args:
        name: One name of a path. Case and compatibility forms make no difference, nor do invisible
            characters, because some file systems ignore them too.

    Examples:
        >>> is_reserved(".AgentScope-Runtime"), is_reserved("runtime")
        (True, False)
    """
    visible = same_name(name)
    return visible == RUNTIME_FOLDER or visible.startswith(TEMPORARY_PREFIX)


def same_name(name: str) -> str:
    """What is equal for two names that some file system may take for one.

    Args:
        name: One name of a path.

    Examples:
        >>> same_name("Notes") == same_name("NOTES")
        True
    """
    if name.isascii():
        return name.lower()
    folded = unicodedata.normalize("NFKC", name).casefold()
    return "".join(letter for letter in folded if unicodedata.category(letter) != "Cf")


def shown(path: object) -> str:
    """Quote a path for a message: one line, control characters escaped, cut after 200 characters.

    Args:
        path: A path, or text that was meant to be one.

    Examples:
        >>> shown("a\\nb")
        "'a\\\\nb'"
    """
    text = repr(str(path))
    return text if len(text) <= 200 else f"{text[:200]}…"


def _is_plain(name: str) -> bool:
    """Whether a name needs no further check: most names by far, and the check of the others takes ten times as long."""
    return len(name) <= _MAX_NAME_BYTES and _PLAIN.fullmatch(name) is not None


def _is_child(directory: WorkspacePath, name: str) -> bool:
    try:
        directory.child(name)
    except PathRefused:
        return False
    return True


_HOW = "give a path relative to the workspace, such as 'src/app.py'; '.' is the workspace itself"


def _check_text(path: str) -> None:
    if not path.strip():
        raise PathRefused(f"the path is empty: {_HOW}")
    if _SURROGATE.search(path):
        raise PathRefused(f"{shown(path)} holds a lone surrogate, which no file name can: {_HOW}")
    if "\\" in path:
        raise PathRefused(f"{shown(path)} holds a backslash; names are separated by '/': {_HOW}")
    if _UNPRINTABLE.search(path):
        raise PathRefused(f"{shown(path)} holds a control character or a line break: {_HOW}")
    _check_length(path)


def _check_length(path: str) -> None:
    if len(path) > _PLAIN_LENGTH and len(path.encode()) > _MAX_PATH_BYTES:
        raise PathRefused(f"{shown(path)} is longer than {_MAX_PATH_BYTES} bytes")


def _check_name(name: str, path: str) -> None:
    if len(name.encode()) > _MAX_NAME_BYTES:
        raise PathRefused(f"{shown(path)} holds a name longer than {_MAX_NAME_BYTES} bytes")
    if not name.strip():
        raise PathRefused(f"{shown(path)} holds a name of nothing but blanks: {_HOW}")
    if is_reserved(name):
        raise PathRefused(f"{shown(path)} belongs to the runtime, which is out of reach for tools")


def _check_first(parts: Sequence[str], path: str) -> None:
    if parts and (parts[0].startswith("~") or _DRIVE.match(parts[0])):
        raise PathRefused(f"{shown(path)} starts with '~' or a drive letter: {_HOW}")


def _relative(path: str, roots: Sequence[str]) -> list[str]:
    parts = _normalised(path)
    if not path.startswith("/"):
        return parts
    for root in roots:
        above = _normalised(root)
        if parts[: len(above)] == above:
            return parts[len(above) :]
    raise PathRefused(f"{shown(path)} is an absolute path outside the workspace: {_HOW}")


def _normalised(path: str) -> list[str]:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if parts:
                parts.pop()
            elif not path.startswith("/"):
                raise PathRefused(f"{shown(path)} leads above the workspace: {_HOW}")
        elif part not in {"", "."}:
            parts.append(part)
    return parts
