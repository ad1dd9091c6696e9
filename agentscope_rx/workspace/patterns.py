"""Patterns for paths, as a shell knows them: `*.py`, `src/**/*.ts`, `{a,b}/?.md`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

_Parts = list[re.Pattern[str] | None]

_MAX_LENGTH = 1000
_MAX_ALTERNATIVES = 100


class PathPattern:
    """A pattern that paths can be compared with; case counts.

    `*` and `?` stand for any characters of one name, `[abc]` and `[!abc]` for one of a set, `{a,b}` for one
    of several texts, and a name `**` for any number of names, at the end for at least one. A pattern without
    `/` is compared with the last name only, so `*.py` finds files at any depth.

    Args:
        pattern: At most 1,000 characters and 100 alternatives. A leading `/` or `./` makes no difference,
            except that the pattern then means the whole path.

    Raises:
        ValueError: If the pattern is empty, too long or has too many alternatives.

    Examples:
        >>> PathPattern("src/**/*.{py,pyi}").matches("src/a/b.py")
        True
        >>> PathPattern("*.py").matches("src/a.py"), PathPattern("/*.py").matches("src/a.py")
        (True, False)
    """

    __slots__ = ("_alternatives", "_anywhere")

    def __init__(self, pattern: str) -> None:
        if not pattern.strip() or len(pattern) > _MAX_LENGTH:
            raise ValueError(f"a glob pattern has 1 to {_MAX_LENGTH} characters, such as '*.py' or 'src/**/*.ts'")
        self._anywhere = "/" not in pattern
        self._alternatives = [_compiled(text) for text in _alternatives(pattern)]

    def matches(self, path: str) -> bool:
        """Tell whether a path fits.

        Args:
            path: Names separated by `/`, relative to whatever the pattern is relative to.

        Examples:
            >>> PathPattern("**/test_*.py").matches("tests/test_a.py")
            True
        """
        directory, _, name = path.rpartition("/")
        return bool(self.fitting(directory, [name]))

    def fitting(self, directory: str, names: Sequence[str]) -> list[str]:
        """Return those names in a directory whose paths fit; for many it costs far less than `matches` for each.

        Args:
            directory: Its path, as for `matches`; empty for where the pattern begins.
            names: Names of files or directories in it.

        Examples:
            >>> PathPattern("src/*.py").fitting("src", ["a.py", "b.txt"])
            ['a.py']
        """
        above = [] if self._anywhere or not directory else directory.split("/")
        ends = [part for parts in self._alternatives for part in _last_parts(parts, above)]
        if None in ends:
            return list(names)
        matching = [part.match for part in ends if part is not None]
        return [name for name in names if any(match(name) for match in matching)]

    def may_match_below(self, directory: str) -> bool:
        """Tell whether any path below a directory can fit, so that a walk need not enter where none does.

        Args:
            directory: Its path, as for `matches`.

        Examples:
            >>> PathPattern("src/*.py").may_match_below("src"), PathPattern("src/*.py").may_match_below("docs")
            (True, False)
        """
        names = directory.split("/")
        return self._anywhere or any(_may_go_on(parts, names) for parts in self._alternatives)


def _alternatives(pattern: str) -> list[str]:
    found, waiting = list[str](), [pattern]
    while waiting:
        text = waiting.pop()
        # The innermost braces first; braces without a comma are ordinary characters.
        braces = re.search(r"\{([^{}]*,[^{}]*)\}", text)
        if braces is None:
            found.append(text)
        else:
            head, tail = text[: braces.start()], text[braces.end() :]
            waiting.extend(f"{head}{middle}{tail}" for middle in braces[1].split(","))
        if len(found) + len(waiting) > _MAX_ALTERNATIVES:
            raise ValueError(f"the glob pattern has more than {_MAX_ALTERNATIVES} alternatives in braces")
    return found


def _compiled(text: str) -> _Parts:
    """One regular expression a name, None for `**`; fnmatch writes them so that they cannot blow up."""
    names = [name for name in text.split("/") if name not in {"", "."}]
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


def _last_parts(parts: _Parts, names: Sequence[str]) -> list[re.Pattern[str] | None]:
    """The parts of which one has to take the last name of a path, after the names above it."""
    ends = (_without_deep(parts, used) for used in _used_up(parts, names))
    return [parts[-1]] if any(len(parts) - 1 in end for end in ends) else []


def _may_go_on(parts: _Parts, names: Sequence[str]) -> bool:
    """Tell whether names can be added to make it fit."""
    return any(used < len(parts) for used in _used_up(parts, names))


def _used_up(parts: _Parts, names: Sequence[str]) -> set[int]:
    """How many parts names can have used up; a `**` that goes on taking names is not used up."""
    at = {0}
    for name in names:
        reached = set[int]()
        for used in at:
            for now in _without_deep(parts, used):
                if now < len(parts):
                    part = parts[now]
                    if part is None:
                        reached.add(now)
                    elif part.match(name):
                        reached.add(now + 1)
        at = reached
    return at


def _without_deep(parts: _Parts, used: int) -> range:
    """Where one can be after so many parts: there, or behind each `**` that takes no name."""
    end = used
    while end < len(parts) and parts[end] is None:
        end += 1
    return range(used, end + 1)
