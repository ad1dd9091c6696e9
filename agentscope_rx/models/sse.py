"""Server-sent events out of bytes, however the bytes were cut on their way."""

from __future__ import annotations

from typing import Final, TypeAlias

SseEvent: TypeAlias = tuple[str, bytes]
"""The event's name, empty where the stream gives none, and its data."""

_BOM: Final = b"\xef\xbb\xbf"


class SseParser:
    """Cuts an event stream into events, piece by piece as the bytes arrive.

    Lines end with CR, LF or CRLF; comments, `id:` and `retry:` are skipped; an event without a `data` line
    is none. Ids and retry times are not kept: the answer of a model cannot be taken up again in its middle.

    Examples:
        >>> parser = SseParser()
        >>> parser.feed(b": hello\\n\\nda"), parser.feed(b"ta: [DONE]\\n\\n")
        ([], [('', b'[DONE]')])
    """

    __slots__ = ("_after_cr", "_fresh", "_head", "_pieces")

    def __init__(self) -> None:
        self._after_cr: bool = False  # the last byte was a CR: a LF that follows belongs to it
        self._fresh = True  # a byte order mark may still come
        self._head: bytes = b""
        self._pieces: list[bytes] = []  # what belongs to an event that is not complete yet

    def feed(self, data: bytes) -> list[SseEvent]:
        """Take the next bytes and give the events that they complete."""
        if self._fresh or self._after_cr or b"\r" in data:
            data = self._normalised(data)
        if self._pieces:
            self._pieces.append(data)
            if b"\n" not in data:
                return []  # joining only at line ends keeps a long event from being copied for each packet
            data = b"".join(self._pieces)
            self._pieces.clear()
        blocks = data.split(b"\n\n")
        if rest := blocks.pop():
            self._pieces.append(rest)
        events: list[SseEvent] = []
        for block in blocks:
            # Nearly every event is one line; testing the block as a whole saves walking its lines.
            if block.startswith(b"data: {") and b"\n" not in block:
                events.append(("", block[6:]))
            elif (event := _event(block)) is not None:
                events.append(event)
        return events

    def flush(self) -> list[SseEvent]:
        """Give the event that the stream left without its final blank line, if there is one."""
        event = _event(b"".join((self._head, *self._pieces)))
        self._pieces.clear()
        self._head = b""
        return [] if event is None else [event]

    def _normalised(self, data: bytes) -> bytes:
        """The same bytes without a byte order mark, and with LF for every line end."""
        if self._fresh:
            data = self._head + data
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self._head = data
                return b""
            data = data.removeprefix(_BOM)
            self._fresh, self._head = False, b""
        if data:
            if self._after_cr:
                data = data.removeprefix(b"\n")
            self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _event(block: bytes) -> SseEvent | None:
    name = ""
    data: list[bytes] = []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        if field == b"data":
            data.append(value.removeprefix(b" "))
        elif field == b"event":
            name = value.removeprefix(b" ").decode("utf-8", "replace")
    return (name, b"\n".join(data)) if data else None
