"""Patterns for paths, as a shell knows them: `*.py`, `src/**/*.ts`, `{a,b}/?.md`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

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
        names = path.split("/")
        if self._anywhere:
            names = names[-1:]
        return any(_fits(parts, names) for parts in self._alternatives)

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


def _compiled(text: str) -> list[re.Pattern[str] | None]:
    """One regular expression a name, None for `**`; fnmatch writes them so that they cannot blow up."""
    names = [name for name in text.split("/") if name not in {"", "."}]
    return [None if name == "**" else re.compile(fnmatch.translate(name)) for name in names]


def _fits(parts: Sequence[re.Pattern[str] | None], names: Sequence[str]) -> bool:
    """Compare name by name; `reached` holds how many names the parts so far can have used up."""
    reached = {0}
    for index, part in enumerate(parts, 1):
        if part is None:
            reached = set(range(min(reached) + (index == len(parts)), len(names) + 1))
        else:
            reached = {count + 1 for count in reached if count < len(names) and part.match(names[count])}
        if not reached:
            return False
    return len(names) in reached


def _may_go_on(parts: Sequence[re.Pattern[str] | None], names: Sequence[str]) -> bool:
    """Tell whether names can be added to make it fit; `at` holds how many parts the names so far can use up."""
    at = {0}
    for name in names:
        reached = set[int]()
        for used in at:
            # `**` takes the name and stays, or takes none and lets the next part have it.
            while used < len(parts) and (part := parts[used]) is None:
                reached.add(used)
                used += 1
            if used < len(parts) and (part := parts[used]) is not None and part.match(name):
                reached.add(used + 1)
        at = reached
    return any(used < len(parts) for used in at)
