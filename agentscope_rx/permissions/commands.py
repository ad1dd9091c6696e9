"""Rules for tools that run shell commands.

A content without wildcards is the beginning of a command, word by word: `git status` speaks of `git status -s` and not
of `git statusx`. One with `*`, `?` or `[` is a pattern for the whole command: `npm run *`.

A line may hold several commands. To be allowed, each of them has to be, and the line has to be plain: words and quoted
texts, joined by `&&`, `||`, `;`, `|` or `&`. What a shell would expand, redirect or run inside of another command
(`$(...)`, backticks, `>`, `$NAME`, line breaks, ...) is never allowed by a content, since only the shell knows what it
becomes; just `2>&1` and `> /dev/null` may be there. To be denied or asked about, it is enough that one command on the
line fits, wherever it stands, or the line as a whole. A shell can hide a command from any rule: rules guard against
mistakes, and are no containment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Final

from agentscope_rx.frozen import frozen

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t]+)
    |(?P<silent>[12]?>(?:&[12]|\ ?/dev/null)(?=\s|$))
    |(?P<joint>&&|\|\||[;|&])
    |(?P<word>(?:'[^'\r\n]*'|"[^"$`\\!\r\n]*"|[^\s'"$`\\#<>(){}!;|&\x00])+)""",
    re.VERBOSE,
)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_QUOTES: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")
#: Where another command may begin, for rules that deny and ask.
_BREAKS: Final = re.compile(r"[;|&\r\n(){}`<>!]|\$\(")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")
#: Programs that run the command behind them.
_WRAPPERS: Final = _names(
    "sudo doas env command builtin exec nohup nice time timeout xargs stdbuf setsid busybox then do else"
)
#: Programs of which the first word says nothing: they run whatever follows.
_INTERPRETERS: Final = _names(
    "sh bash zsh dash fish python python3 node deno ruby perl php lua awk eval source . ssh docker kubectl"
)
_DISK_TOOLS: Final = _names("dd fdisk parted wipefs mkfs")
_FOR_EVERYBODY: Final = _names("777 0777 a+w a+rw a+rwx o+w o+rw o+rwx +rwx ugo+rwx")
_AT_ONCE: Final = _names("-9 -KILL -SIGKILL KILL SIGKILL")
_DEVICE: Final = re.compile(r">\s*/dev/(?!null\b|stdout\b|stderr\b|tty\b)")


def commands(argument: str = "command") -> Callable[[Mapping[str, object]], CommandTarget]:
    """What calls of a shell tool are about, for `@tool(target=commands("command"))`.

    Args:
        argument: Which argument holds the command line.

    Examples:
        >>> line = commands()({"command": "git status && rm x"})
        >>> line.covered_by(["git status"]), line.touched_by("rm"), line.covered_by(["git *", "rm x"])
        (False, True, True)
    """

    def target(arguments: Mapping[str, object]) -> CommandTarget:
        line = arguments.get(argument)
        return CommandTarget(line=line if isinstance(line, str) else None)

    return target


@frozen
class CommandTarget:
    """The commands of one line; None = there is no line that could be read."""

    line: str | None

    @property
    def danger(self) -> str:
        """Why a person has to be asked, whatever rules and mode say."""
        if self.line is None:
            return ""
        if _DEVICE.search(self.line):
            return f"'{self.line}': it writes to a device"
        for words in _loose(self.line):
            if why := _danger(words):
                return f"'{' '.join(words)}': {why}"
        return ""

    @property
    def suggestions(self) -> tuple[str, ...]:
        """For each command its beginning; the whole of it where the beginning would allow anything."""
        plain = _plain(self.line) if self.line is not None else None
        return () if plain is None else tuple(dict.fromkeys(map(_beginning, plain)))

    def touched_by(self, content: str) -> bool:
        """Whether one of the commands fits, or might."""
        if self.line is None or not content.strip() or _fits(content, self.line.split()):
            return True
        return any(_fits(content, words) or _fits(content, _unwrapped(words)) for words in _loose(self.line))

    def covered_by(self, contents: Sequence[str]) -> bool:
        """Whether each of the commands fits one of the contents."""
        plain = _plain(self.line) if self.line is not None else None
        return plain is not None and all(any(_fits(content, words) for content in contents) for words in plain)

    def edits_inside(self, directories: Sequence[str]) -> bool:
        """Never: what a command does to files cannot be seen from the outside."""
        return False


def _fits(content: str, words: Sequence[str]) -> bool:
    if any(letter in content for letter in "*?["):
        return fnmatchcase(" ".join(words), " ".join(content.split()))
    wanted = content.split()
    return bool(wanted) and list(words[: len(wanted)]) == wanted


def _plain(line: str) -> list[list[str]] | None:
    """The commands of a line that holds nothing but words; None where there is more to it."""
    found: list[list[str]] = [[]]
    at = 0
    while at < len(line):
        token = _TOKEN.match(line, at)
        if token is None:
            return None
        at = token.end()
        if token.lastgroup == "word":
            found[-1].append(_QUOTES.sub(lambda quoted: quoted[1] or quoted[2] or "", token[0]))
        elif token.lastgroup == "joint":
            found.append([])
    commands = [words for words in found if words]
    return commands or None


def _loose(line: str) -> list[list[str]]:
    """Everything on a line that might be a command, however it is quoted or nested."""
    parts = (re.sub(r"['\"\\]", "", part).split() for part in _BREAKS.split(line))
    return [words for words in parts if words]


def _unwrapped(words: Sequence[str]) -> list[str]:
    """A command without assignments and programs that only run it; the path of a program is left out too."""
    left = list(words)
    while left and (_ASSIGNMENT.match(left[0]) or left[0] in _WRAPPERS):
        wrapped = left.pop(0) in _WRAPPERS
        while wrapped and left and (left[0].startswith("-") or left[0][0].isdigit()):
            left.pop(0)
    return [left[0].rpartition("/")[2], *left[1:]] if left else []


def _danger(words: Sequence[str]) -> str:
    """What harm a command can do that nobody can undo; empty = none that is known."""
    program, *rest = _unwrapped(words) or [""]
    flags = {letter for word in rest if re.fullmatch(r"-\w+", word) for letter in word[1:]}
    if program == "rm" and not {"sudo", "doas"}.isdisjoint(words):
        return "it deletes with the rights of the administrator"
    if program == "rm" and (flags & {"r", "R"} or "--recursive" in rest) and ("f" in flags or "--force" in rest):
        return "it deletes directories without asking"
    if program.partition(".")[0] in _DISK_TOOLS:
        return "it writes to disks"
    if program == "chmod" and not _FOR_EVERYBODY.isdisjoint(rest):
        return "it lets everybody write to files"
    if program == "chown" and ("R" in flags or "--recursive" in rest):
        return "it changes the owner of whole directories"
    if program in ("kill", "pkill", "killall") and not _AT_ONCE.isdisjoint(rest):
        return "it ends processes that cannot clean up"
    return ""


def _beginning(words: Sequence[str]) -> str:
    first = words[0]
    if first in _INTERPRETERS or first in _WRAPPERS or _ASSIGNMENT.match(first):
        return " ".join(words)
    second = words[1] if len(words) > 1 else ""
    return f"{first} {second}" if re.fullmatch(r"[a-z][a-z0-9:_-]*", second) else first
