"""Files that a user mentions in a message as `@path`: which they are, and how they stand beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from os.path import expanduser
from typing import Final

from agentscope_rx.workspace import WorkspacePath, resolve_path
from agentscope_rx.workspace.paths import shown

#: How many files one message may bring along, and how many words are tried: in pasted code many look like paths.
MOST_FILES: Final = 20
MOST_TRIED: Final = 100
#: What ends a word where no space is written before it, as in Chinese; a path that holds one is written in quotes.
_WIDE_MARKS: Final = "，。；：！？、…（）「」『』【】《》〈〉“”‘’—"
#: What such scripts write words with: the parts of Unicode that Chinese, Japanese and Korean fill.
_WIDE: Final = "\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
#: Where an address or a name of somebody goes on, no mention begins.
_MENTION: Final = re.compile(
    rf"""(?<![^\s(\[{{<"'`*,;:{_WIDE_MARKS}{_WIDE}])@"""
    rf"""(?:"([^"\n]+)"|((?:(?![,;]@)[^\s"'`<>{_WIDE_MARKS}])+))"""
)
_BEHIND: Final = ".,;:!?()]}*"
_TAG: Final = re.compile(r"<(?=\s*/?\s*attached_file)", re.IGNORECASE)


def mentioned_paths(text: str) -> tuple[str, ...]:
    """The paths that a text mentions, each once: `@src/app.py`, `@./a`, `@"my notes.md"`, `@README.md`.

    A word with neither `/` nor `.` is somebody's name, and what stands behind a path as punctuation is none of it. In
    Chinese and Japanese no space is needed before it, and their punctuation ends it.

    Examples:
        >>> mentioned_paths("Compare @src/app.py, @README.md and mail bob@example.org; thanks @alice.")
        ('src/app.py', 'README.md')
    """
    return tuple(dict.fromkeys(_paths(text)))


def _paths(text: str) -> Iterator[str]:
    for found in _MENTION.finditer(text):
        quoted, bare = found.groups()
        path = quoted if quoted is not None else bare.rstrip(_BEHIND)
        if path.strip() and (quoted is not None or "/" in path or "." in path):
            yield path


def inside(path: str, roots: tuple[str, ...]) -> WorkspacePath:
    """A mentioned path as one of the workspace.

    Args:
        path: The path, which may begin with `~` or be absolute.
        roots: Folders of this machine that are the workspace's root.

    Raises:
        PathRefused: It leads out of it.
    """
    return resolve_path(expanduser(path) if path.startswith("~/") else path, roots=roots)


def attached(path: WorkspacePath, text: str) -> str:
    """A file as it stands behind the message that mentions it; what it holds cannot close its tag.

    Examples:
        >>> print(attached(resolve_path("a.txt"), "hello"))
        <attached_file path="a.txt">
        hello
        </attached_file>
    """
    return f'<attached_file path="{escape(str(path))}">\n{_TAG.sub("&lt;", text)}\n</attached_file>'


def refused_note(path: str, error: Exception) -> str:
    """Why a file was not attached, as a code of the manifest."""
    return f"not_attached:{shown(path)}:{type(error).__name__}"
