"""Replace an exact text in a file, and nothing else of it: line ends, encoding and mark stay as they are."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate

from agentscope_rx.errors import FileEditRefused, WorkspaceConflict
from agentscope_rx.frozen import frozen
from agentscope_rx.workspace.filesystem import WorkspaceFS
from agentscope_rx.workspace.nearest import nearest_hint
from agentscope_rx.workspace.paths import WorkspacePath, shown
from agentscope_rx.workspace.text import as_text, binary_type

# Each of several edits at once that finds the file changed repeats itself; in each round one of them gets through.
_MOST_TRIES = 32
# Below this an edit takes less than changing threads does.
_EDITED_AT_ONCE = 64 * 1024
_LINES_NAMED = 10


@frozen
class EditResult:
    """What an edit did.

    Args:
        count: How many places were replaced.
        line: Number of the line at which the first of them begins, from 1.
        version: The version of the new content.
    """

    count: int
    line: int
    version: str


async def edit_text(
    workspace: WorkspaceFS,
    path: str | WorkspacePath,
    old: str,
    new: str,
    *,
    replace_all: bool = False,
) -> EditResult:
    """Replace a text of a file by another one.

    A line end in `old` fits LF and CRLF, and those of `new` become what most of the file has. Bytes that are no
    UTF-8 are kept. An edit that finds the file changed since it was read is done again on the new content.

    Args:
        workspace: Where the file is.
        path: The file.
        old: The text that is there, letter by letter.
        new: The text that takes its place; empty to take it out.
        replace_all: True to replace each place. Default False: there must be one.

    Raises:
        FileEditRefused: If `old` is not there, is there more than once without `replace_all`, or the file is binary.
            The message names the nearest text or the lines.
        ValueError: If `old` is empty or the same as `new`, or a text holds a lone surrogate.
        FileTooLarge: If the file is too large to be read at once.
        WorkspaceConflict: If others change the file faster than it can be read.
        OSError: As `WorkspaceFS.read` and `WorkspaceFS.write` say.

    Examples:
        >>> (await edit_text(workspace, "app.py", "debug = True", "debug = False")).line
        12
    """
    _check_texts(old, new)
    for tries in range(1, _MOST_TRIES + 1):
        found = await workspace.read(path)
        edit = _Edit(path, found.data, old, new, replace_all)
        at_once = len(found.data) <= _EDITED_AT_ONCE
        data = edit.run() if at_once else await asyncio.to_thread(edit.run)
        if data is None:
            raise await asyncio.to_thread(edit.refusal)
        try:
            version = await workspace.write(path, data, if_match=found.version)
        except WorkspaceConflict:
            if tries == _MOST_TRIES:
                raise
            continue
        return EditResult(count=len(edit.places), line=edit.lines[0], version=version)
    raise AssertionError("the last try returns or raises")


class _Edit:
    """One edit of one content. `places` are the spans that fit."""

    def __init__(self, path: object, data: bytes, old: str, new: str, replace_all: bool) -> None:
        self._path, self._data, self._old, self._new, self._replace_all = path, data, old, new, replace_all
        # What is no UTF-8 survives as lone surrogates, which neither `old` nor `new` can hold.
        self._text = data.decode("utf-8", "surrogateescape")
        self.places: list[tuple[int, int]] = []

    def run(self) -> bytes | None:
        """Return the new content; None if the edit is refused."""
        if binary_type(self._data) is not None:
            return None
        self.places = self._find()
        if not self.places or (len(self.places) > 1 and not self._replace_all):
            return None
        new, parts, at = self._with_line_ends(self._new), list[str](), 0
        for start, end in self.places:
            parts += [self._text[at:start], new]
            at = end
        return "".join([*parts, self._text[at:]]).encode("utf-8", "surrogateescape")

    def _find(self) -> list[tuple[int, int]]:
        """Find where the old text is, whatever line ends it and the file have."""
        pieces = self._text.split("\r\n")
        text, old = "\n".join(pieces), self._old.replace("\r\n", "\n")
        starts = list(_starts(text, old))
        if len(starts) == 1 and not self._replace_all:
            # One more that begins within the only one: nobody can know which of the two was meant.
            starts += [at] if (at := text.find(old, starts[0] + 1)) >= 0 else []
        after_crlf = list(accumulate(len(piece) + 1 for piece in pieces[:-1]))

        def in_file(at: int) -> int:
            return at + bisect_right(after_crlf, at)

        return [(in_file(at), in_file(at + len(old))) for at in starts]

    @property
    def lines(self) -> list[int]:
        """Where the first places begin."""
        return [self._text.count("\n", 0, start) + 1 for start, _ in self.places[:_LINES_NAMED]]

    def refusal(self) -> FileEditRefused:
        """Say why there is no new content, and what would help."""
        if (kind := binary_type(self._data)) is not None:
            return FileEditRefused(f"{shown(self._path)} is binary ({kind}) and cannot be edited {as_text(kind)}")
        if self.places:
            named = ", ".join(map(str, self.lines)) + (", …" if len(self.places) > _LINES_NAMED else "")
            times, rest = f"{len(self.places)} times", ", or replace all of them"
            if self.places[1][0] < self.places[0][1]:
                times, rest = "more than once, overlapping itself", ""
            return FileEditRefused(
                f"the text is in {shown(self._path)} {times}, at lines {named}: "
                f"add the lines around it until it is there once{rest}"
            )
        hint = nearest_hint(self._data.decode("utf-8", "replace"), self._old)
        return FileEditRefused(f"the text is not in {shown(self._path)}. {hint}")

    def _with_line_ends(self, new: str) -> str:
        crlf = self._text.count("\r\n")
        lf = self._text.count("\n") - crlf
        if not crlf and not lf:
            return new
        new = new.replace("\r\n", "\n")
        return new.replace("\n", "\r\n") if crlf > lf else new


def _starts(text: str, wanted: str) -> Iterator[int]:
    at = text.find(wanted)
    while at >= 0:
        yield at
        at = text.find(wanted, at + len(wanted))


def _check_texts(old: str, new: str) -> None:
    if not old:
        raise ValueError("the text to replace is empty: give the text that is there")
    if old == new:
        raise ValueError("the old text and the new one are the same: nothing would change")
    check_encodable(old)
    check_encodable(new)


def check_encodable(text: str) -> None:
    """Refuse a text that no file can hold.

    Args:
        text: What is to be written.

    Raises:
        ValueError: If it holds a lone surrogate.

    Examples:
        >>> check_encodable("ü")
    """
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("the text holds a lone surrogate (half of a character), which cannot be written")
