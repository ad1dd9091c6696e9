"""Text that is written piece by piece, wrapped at words while it arrives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from agentscope_rx.cli.plain import plain
from agentscope_rx.tools.texts import split_unfinished

if TYPE_CHECKING:
    from rich.console import Console

_PARTS: Final = re.compile(r"\n|[^\S\n]+|\S+")
_BULLET: Final = re.compile(r"[-*•]|\d{1,2}[.)]")
_WIDEST: Final = 100


def width_of(console: Console) -> int | None:
    """Where lines are wrapped: at the terminal's width, within reason; None = nowhere, since nobody looks."""
    return min(console.width, _WIDEST) if console.is_terminal else None


class Flow:
    """Writes one text after the other below each other, each indented, without ever taking back a letter.

    Nothing in the text has a meaning: neither markup nor control sequences, even those cut over two pieces.

    Args:
        console: Where it goes.
        indent: How many columns are left free.
    """

    def __init__(self, console: Console, *, indent: int = 0) -> None:
        self._console, self._indent = console, indent
        self._width = width_of(console)
        self._style = ""
        self._held = ""  # an escape sequence that is not whole yet
        self._blank = ""  # what stands between the last word and the next
        self._word = ""  # the word that is not whole yet
        self._column = 0
        self._hang = indent
        self._at_start = True

    def begin(self, style: str = "", *, column: int = 0) -> None:
        """Start a text.

        Args:
            style: How it looks.
            column: Where the cursor stands already.
        """
        self._style, self._column, self._hang, self._at_start = style, column, self._indent, True

    def write(self, piece: str) -> None:
        """Write a piece."""
        text, self._held = split_unfinished(self._held + piece)
        for part in _PARTS.findall(plain(text)):
            if part == "\n":
                self._finish_word()
                self._new_line()
            elif part.isspace():
                self._finish_word()
                self._blank += part.replace("\t", "    ")
            else:
                self._word += part
                if self._width is None:
                    self._finish_word()

    def end(self) -> None:
        """End the text, and its last line."""
        self._held = ""
        self._finish_word()
        if self._column:
            self._console.print()
        self._blank, self._column = "", 0

    # -- words ----------------------------------------------------------------------------------------------

    def _finish_word(self) -> None:
        word, self._word = self._word, ""
        if not word:
            return
        blank, self._blank = self._blank, ""
        if self._at_start:
            self._start_line(blank, word)
        elif self._width is not None and self._column + len(blank) + self._cells(word) > self._width:
            self._wrap()
        else:
            self._out(blank)
        self._out(word)

    def _start_line(self, blank: str, word: str) -> None:
        """The first word of a line: its own indentation is kept, and that of a list item is hung."""
        self._at_start = False
        self._out(" " * max(0, self._indent - self._column) + blank)
        self._hang = self._indent + len(blank)
        if _BULLET.fullmatch(word):
            self._hang += len(word) + 1

    def _wrap(self) -> None:
        self._console.print()
        self._column = 0
        self._out(" " * self._hang)

    def _new_line(self) -> None:
        self._console.print()
        self._blank, self._column, self._hang, self._at_start = "", 0, self._indent, True

    def _out(self, text: str) -> None:
        from rich.text import Text

        if text:
            self._console.print(Text(text, self._style), end="", soft_wrap=True)
            self._column += self._cells(text)

    @staticmethod
    def _cells(text: str) -> int:
        from rich.cells import cell_len

        return cell_len(text)
