"""A session's log as one file of JSON lines, which survives a crash in the middle of a line.

A line is `{"seq":7,"end":8,"crc":123,"record":...}`: the number of the record, the number of the last one that was
appended together with it, a checksum of the body, and the body; one that is no JSON is written as `"base64":"..."`.
Numbers grow by one with each line, so a record is found by bisecting the file. All functions are called with the
session's lock held.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final
from zlib import crc32

from agentscope_rx.errors import LogCorrupt
from agentscope_rx.frozen import frozen
from agentscope_rx.logs import logger
from agentscope_rx.stores.folders import sync
from agentscope_rx.wire import is_json

_LINE: Final = re.compile(rb'\{"seq":(\d{1,15}),"end":(\d{1,15}),"crc":(\d{1,10}),"(record|base64)":')
_NOTHING: Final = b" \t\r\n\0"  # what a disk may leave where a line was to be
_BLOCK: Final = 65_536

_sync: Final = getattr(os, "fdatasync", os.fsync)  # macOS has only the second


@frozen(kw_only=False)
class _Line:
    seq: int
    end: int
    body: bytes


def append(path: Path, records: Sequence[bytes], expected_seq: int) -> tuple[bool, int]:
    """Add records behind the expected one, all or none.

    Returns:
        Whether they were added, and the number of the last record in the file.
    """
    made = not path.exists()
    with _opened(path, os.O_RDWR | os.O_CREAT) as file:
        size, last, terminated = _mend(file, path)
        if last != expected_seq:
            return False, last
        end = last + len(records)
        lines = [_written(seq, end, body) for seq, body in enumerate(records, last + 1)]
        _extend(file, size, b"".join(lines if terminated else [b"\n", *lines]))
    if made:
        sync(path.parent)
    return True, end


def read_after(path: Path, seq: int, limit: int) -> tuple[bytes, ...]:
    """The records behind a number.

    Raises:
        LogCorrupt: A line is damaged, and is not what a crash leaves at the end.
    """
    with _opened(path, os.O_RDWR) as file:
        size, last, _ = _mend(file, path)
        if seq >= last:
            return ()
        offset = _find(file, path, seq + 1, size)
        found: list[bytes] = []
        file.seek(offset)
        for expected in range(seq + 1, min(last, seq + limit) + 1):
            text = file.readline()
            line = _parsed(text)
            if line is None or line.seq != expected:
                raise LogCorrupt(str(path), offset)
            found.append(line.body)
            offset += len(text)
    return tuple(found)


@contextmanager
def _opened(path: Path, flags: int) -> Generator[BinaryIO, None, None]:
    with os.fdopen(os.open(path, flags, 0o600), "r+b") as file:
        yield file


# -- lines --------------------------------------------------------------------------------------------------


def _written(seq: int, end: int, body: bytes) -> bytes:
    head = b'{"seq":%d,"end":%d,"crc":%d,' % (seq, end, crc32(body))
    if b"\n" in body or b"\r" in body or not is_json(body):
        return b'%b"base64":"%b"}\n' % (head, base64.b64encode(body))
    return b'%b"record":%b}\n' % (head, body)


def _parsed(text: bytes) -> _Line | None:
    """The line; None where it is not whole."""
    head = _LINE.match(text)
    text = text.removesuffix(b"\n")
    if head is None or not text.endswith(b"}"):
        return None
    seq, end, crc, form = head.groups()
    body = text[head.end() : -1]
    if form == b"base64":
        try:
            body = base64.b64decode(body[1:-1], validate=True)
        except ValueError:
            return None
    return _Line(int(seq), int(end), body) if crc32(body) == int(crc) else None


def _find(file: BinaryIO, path: Path, seq: int, size: int) -> int:
    """Where the line of a record begins, or one of the few before it ends: by halving what is left of the file."""
    low, high = 0, size  # the line begins at `low` or behind it, and not behind `high`
    while high - low > _BLOCK:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline()
        start = file.tell()
        if start >= high:
            high = middle
            continue
        head = _LINE.match(file.read(80))
        if head is None:
            raise LogCorrupt(str(path), start)
        low, high = (start, high) if int(head[1]) <= seq else (low, middle)
    return _walk(file, path, seq, low, size)


def _walk(file: BinaryIO, path: Path, seq: int, offset: int, size: int) -> int:
    file.seek(offset)
    while offset < size:
        text = file.readline()
        head = _LINE.match(text)
        if head is None or int(head[1]) > seq:
            break
        if int(head[1]) == seq:
            return offset
        offset += len(text)
    raise LogCorrupt(str(path), offset)


# -- the end ------------------------------------------------------------------------------------------------


def _mend(file: BinaryIO, path: Path) -> tuple[int, int, bool]:
    """Cut off what a crash left behind the last whole batch, and say so.

    Returns:
        The size, the number of the last record, and whether its line is terminated.
    """
    size = whole = file.seek(0, os.SEEK_END)
    last: _Line | None = None
    terminated = True
    while whole:
        start, terminated = _last_line(file, whole)
        text = _part(file, start, whole)
        last = _parsed(text)
        if last is not None and last.seq == last.end:
            break
        if last is None and terminated and text.strip(_NOTHING):
            raise LogCorrupt(str(path), start)  # what was not finished has no newline: this was once a record
        whole, last, terminated = start, None, True
    if whole != size:
        os.ftruncate(file.fileno(), whole)
        os.fsync(file.fileno())
        logger().warning("log_repaired", file=str(path), offset=whole, cut=size - whole)
    return whole, 0 if last is None else last.seq, terminated


def _last_line(file: BinaryIO, stop: int) -> tuple[int, bool]:
    """Where the last line before `stop` begins, and whether a newline ends it."""
    terminated = _part(file, stop - 1, stop) == b"\n"
    before = stop - 1 if terminated else stop
    while before:
        block = max(0, before - _BLOCK)
        at = _part(file, block, before).rfind(b"\n")
        if at >= 0:
            return block + at + 1, terminated
        before = block
    return 0, terminated


def _part(file: BinaryIO, start: int, stop: int) -> bytes:
    file.seek(start)
    return file.read(stop - start)


def _extend(file: BinaryIO, size: int, data: bytes) -> None:
    """Write behind the end and to the disk; what cannot be written whole is not there."""
    descriptor, rest = file.fileno(), memoryview(data)
    try:
        while rest:
            rest = rest[os.pwrite(descriptor, rest, size + len(data) - len(rest)) :]
        _sync(descriptor)
    except BaseException:
        os.ftruncate(descriptor, size)
        raise
