"""What a file's bytes mean as text: whether they are text at all, and which lines a reader asked for."""

from __future__ import annotations

import codecs

from agentscope_rx.frozen import frozen

_SNIFFED_BYTES = 8192
_UTF_16 = "UTF-16 text"
_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "PNG image",
    b"\xff\xd8\xff": "JPEG image",
    b"GIF8": "GIF image",
    b"RIFF": "RIFF media",
    b"%PDF-": "PDF document",
    b"PK\x03\x04": "ZIP archive or Office document",
    b"\x1f\x8b": "gzip archive",
    b"BZh": "bzip2 archive",
    b"\xfd7zXZ\x00": "xz archive",
    b"\x28\xb5\x2f\xfd": "zstd archive",
    b"\x7fELF": "ELF program",
    b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1": "old Office document",
    b"SQLite format 3\x00": "SQLite database",
    codecs.BOM_UTF16_LE: _UTF_16,
    codecs.BOM_UTF16_BE: _UTF_16,
}

_BEGINNINGS = tuple(_SIGNATURES)


@frozen
class DecodedText:
    """Bytes as text.

    Args:
        text: The text, without a byte order mark and without NUL.
        lossy: True if some bytes were no UTF-8 and became U+FFFD.
    """

    text: str
    lossy: bool


def decode_text(data: bytes, *, cut: bool = False) -> DecodedText:
    """Decode UTF-8, with or without a byte order mark; what is no UTF-8 becomes U+FFFD.

    Args:
        data: The bytes.
        cut: True if they may end within a character, which is then dropped. Default False.

    Examples:
        >>> decode_text(b"caf\\xe9")
        DecodedText(text='caf\ufffd', lossy=True)
    """
    data = data.removeprefix(codecs.BOM_UTF8)
    decoder = codecs.getincrementaldecoder("utf-8")
    try:
        text, lossy = decoder("strict").decode(data, not cut), False
    except UnicodeDecodeError:
        text, lossy = decoder("replace").decode(data, not cut), True
    return DecodedText(text=text.replace("\0", "\ufffd"), lossy=lossy)


def binary_type(data: bytes) -> str | None:
    """Say what kind of binary file starts with these bytes; None if it looks like text.

    Args:
        data: The beginning of a file; 8 KiB are enough.

    Examples:
        >>> binary_type(b"%PDF-1.7"), binary_type(b"hello"), binary_type(b"a\\0b")
        ('PDF document', None, 'unknown type')
    """
    signature = None
    if data.startswith(_BEGINNINGS):
        signature = next(known for known in _SIGNATURES if data.startswith(known))
    if b"\0" in data[:_SNIFFED_BYTES]:
        return _SIGNATURES[signature] if signature else "unknown type"
    # A text may well begin with "RIFF"; those signatures name a file that is known to be binary, no more.
    return _SIGNATURES[signature] if signature and not signature.isalnum() else None


def as_text(kind: str) -> str:
    """Say for a message under which condition a binary file is text.

    Args:
        kind: What `binary_type` says.

    Examples:
        >>> as_text("PDF document"), as_text("UTF-16 text")
        ('as text', 'as text until it is converted to UTF-8')
    """
    return "as text until it is converted to UTF-8" if kind == _UTF_16 else "as text"


def binary_marks() -> tuple[bytes, ...]:
    """Return texts of which each binary file holds one; a file that holds one need not be binary.

    Examples:
        >>> binary_marks()[0]
        b'\\x00'
    """
    # Up to a line end, since they are looked for line by line.
    return (b"\0", *(known.split(b"\n")[0] for known in _SIGNATURES if not known.isalnum()))


class LineWindow:
    """The lines that a reader asked for, picked from a file that is fed piece by piece.

    Lines end with LF or CRLF. What is kept stays within `max_bytes`, however long the file and its lines are.

    Args:
        first: Number of lines to skip.
        count: How many lines to keep at most; at least 1.
        max_bytes: How many bytes to keep at most; a first line that is longer is cut.

    Attributes:
        lines: The lines that were kept, without their ends.
        seen: How many lines were skipped or kept.
        position: Where in the file the line after those begins, in bytes.
        full: Whether no further line is kept.
        cut: Whether the only line that was kept is the beginning of a longer one.

    Examples:
        >>> window = LineWindow(first=1, count=1, max_bytes=100)
        >>> window.feed(b"a\\nb\\nc\\n")
        >>> window.lines, window.full, window.position
        ([b'b'], True, 4)
    """

    __slots__ = (
        "_count",
        "_first",
        "_kept",
        "_line",
        "_max_bytes",
        "_unfinished",
        "cut",
        "full",
        "lines",
        "position",
        "seen",
    )

    def __init__(self, *, first: int, count: int, max_bytes: int) -> None:
        self._first, self._count, self._max_bytes = first, count, max_bytes
        self._line = b""  # what is kept of the line that has not ended yet
        self._unfinished = 0  # and its true length
        self._kept = 0
        self.lines: list[bytes] = []
        self.seen = 0
        self.position = 0
        self.full = False
        self.cut = False

    def feed(self, data: bytes) -> None:
        """Take the next piece of the file; once `full`, nothing changes any more.

        Args:
            data: Any number of bytes.
        """
        start = self._skip(data)
        while start < len(data) and not self.full:
            end = data.find(b"\n", start)
            stop = len(data) if end < 0 else end
            self._keep(data[start:stop])
            if end >= 0 and not self.full:
                self._end_line()
            start = stop + 1

    def close(self) -> None:
        """Say that the file is over: what came after the last line end is a line too."""
        if self._unfinished and not self.full:
            self._end_line()

    def _skip(self, data: bytes) -> int:
        """Pass over the lines before the window in one go, as there may be millions of them."""
        start = 0
        if skipped := min(self._first - self.seen, data.count(b"\n")) if self.seen < self._first else 0:
            start = len(data) - len(data.split(b"\n", skipped)[-1])
            self.seen += skipped
            self.position += self._unfinished + start
            self._unfinished = 0
        if self.seen < self._first:
            self._unfinished += len(data) - start
            return len(data)
        return start

    def _keep(self, piece: bytes) -> None:
        self._unfinished += len(piece)
        # One byte too many is enough to know that a line does not fit.
        self._line += piece[: self._max_bytes + 1 - len(self._line)]
        if self._kept + len(self._line) > self._max_bytes:
            self.full = True
            if not self.lines:
                self.lines.append(self._line[: self._max_bytes])
                self.cut = True

    def _end_line(self) -> None:
        if self.seen >= self._first:
            self.lines.append(self._line.removesuffix(b"\r"))
            self._kept += len(self._line) + 1
            self._line = b""
            self.full = len(self.lines) >= self._count
        self.seen += 1
        self.position += self._unfinished + 1
        self._unfinished = 0
