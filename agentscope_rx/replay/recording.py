"""The file of a recording: one line of JSON for each thing that happened, in order, with a checksum.

    {"n":1,"sum":"5d41402a","type":"header","version":1,...}
    {"n":2,"sum":"1c0d9fb2","type":"run","run":0,"at":0.000001,...}

Texts that are long lie beside it, in `<file>.blobs/<SHA-256>`; their place says `{"$blob": "<SHA-256>"}`. While a
recording is made it is called `<file>.partial`: what has the name of a recording is whole.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, cast

from agentscope_rx.errors import RecordingDamaged
from agentscope_rx.logs import logger
from agentscope_rx.wire import clean_text, from_json, to_json

VERSION: Final = 1
#: Texts of so many characters lie beside the recording.
LONG_TEXT: Final = 16_384
_BLOB: Final = "$blob"
_VALUE: Final = "$value"


class RecordingWriter:
    """Writes lines in the order in which they come, in a thread of its own: nobody waits for a disk.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._partial = path, path.with_name(path.name + ".partial")
        self._waiting: SimpleQueue[Mapping[str, object] | None] = SimpleQueue()
        self._failure: Exception | None = None
        self._lines, self._wanted = 0, True
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self._partial, "wb")  # noqa: SIM115 - closed by the thread
        self._thread = Thread(target=self._work, name="agentscope-rx-recording", daemon=True)
        self._thread.start()

    def write(self, type: str, **fields: object) -> None:
        """Put a line in the queue; the values must not change any more."""
        self._waiting.put({"type": type, **fields})

    def close(self) -> None:
        """Write what waits, and give the file its name.

        Raises:
            OSError: Something could not be written; there is no recording.
        """
        if self._thread.is_alive():
            self._waiting.put(None)
            self._thread.join()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def discard(self) -> None:
        """Leave nothing behind, and no earlier file changed."""
        self._wanted = False
        self.close()

    def _work(self) -> None:
        try:
            with self._file:
                while (line := self._waiting.get()) is not None:
                    self._try(line)
                self._try({"type": "closed", "lines": self._lines})
            if self._wanted and self._failure is None:
                os.replace(self._partial, self._path)
            else:
                self._partial.unlink(missing_ok=True)
        except OSError as error:
            self._failure = error

    def _try(self, line: Mapping[str, object]) -> None:
        if self._failure is not None:
            return
        try:
            self._lines += 1
            self._file.write(_line(self._lines, to_json(self._outside(line))))
        except Exception as error:
            self._failure = error
            logger().warning("recording_failed", file=str(self._path), error=type(error).__name__)

    def _outside(self, value: object) -> object:
        """The value with its long texts put beside the file."""
        if isinstance(value, str):
            return value if len(value) < LONG_TEXT else {_BLOB: self._kept(clean_text(value).encode())}
        if isinstance(value, Mapping):
            fields = {name: self._outside(each) for name, each in cast("Mapping[str, object]", value).items()}
            return {_VALUE: fields} if fields.keys() in ({_BLOB}, {_VALUE}) else fields
        if isinstance(value, list | tuple):
            return [self._outside(each) for each in cast("list[object]", value)]
        return value

    def _kept(self, data: bytes) -> str:
        name, folder = hashlib.sha256(data).hexdigest(), _blobs(self._path)
        if not (folder / name).exists():
            folder.mkdir(exist_ok=True)
            partial = folder / f"{name}.partial"
            partial.write_bytes(data)
            os.replace(partial, folder / name)
        return name


class RecordingLines:
    """The lines of a recording, checked.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.line = 0

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """All lines but the first and the last.

        Raises:
            RecordingDamaged: The file is not what a recorder has written.
        """
        closed = False
        with self._path.open("rb") as file:
            for self.line, data in enumerate(file, 1):
                if closed:
                    raise self.damaged("something follows the last line")
                fields = self._read(data)
                if self.line == 1:
                    self._check_header(fields)
                closed = fields["type"] == "closed"
                if not closed:
                    yield fields
        if not closed:
            self.line += 1
            raise self.damaged("the file ends before the recording does")

    def damaged(self, why: str) -> RecordingDamaged:
        """The error for the line that was read last."""
        return RecordingDamaged(str(self._path), self.line, why)

    def _read(self, data: bytes) -> Mapping[str, Any]:
        try:
            found = from_json(data)
        except ValueError:
            raise self.damaged("this is no line of JSON, or not all of it") from None
        if not isinstance(found, dict) or not {"n", "sum", "type"} <= cast("dict[str, object]", found).keys():
            raise self.damaged("this is no line of a recording")
        fields = cast("dict[str, Any]", found)
        if fields["n"] != self.line:
            raise self.damaged(f"this is line {fields['n']} of the recording: others were lost or added")
        if data != _line(self.line, _body(data)):
            raise self.damaged("the line was changed since it was recorded")
        return cast("Mapping[str, Any]", self._inside(fields))

    def _check_header(self, fields: Mapping[str, Any]) -> None:
        if fields["type"] != "header":
            raise self.damaged("a recording begins with a header")
        if not isinstance(version := fields.get("version"), int) or not 1 <= version <= VERSION:
            raise self.damaged(f"version {version} of the format cannot be read here; up to {VERSION} can")

    def _inside(self, value: object) -> object:
        if isinstance(value, dict):
            fields = cast("dict[str, object]", value)
            if fields.keys() == {_BLOB}:
                return self._blob(str(fields[_BLOB]))
            if fields.keys() == {_VALUE}:
                fields = cast("dict[str, object]", fields[_VALUE])
            return {name: self._inside(each) for name, each in fields.items()}
        if isinstance(value, list):
            return [self._inside(each) for each in cast("list[object]", value)]
        return value

    def _blob(self, name: str) -> str:
        file = _blobs(self._path) / name
        try:
            data = file.read_bytes()
        except OSError:
            raise self.damaged(f"its text in {file} cannot be read") from None
        if hashlib.sha256(data).hexdigest() != name:
            raise self.damaged(f"its text in {file} was changed since it was recorded")
        return data.decode()


def _blobs(path: Path) -> Path:
    return path.with_name(path.name + ".blobs")


def _line(number: int, body: bytes) -> bytes:
    head = b'{"n":%d,' % number
    return head + b'"sum":"%08x",' % zlib.crc32(body, number) + body[1:] + b"\n"


def _body(line: bytes) -> bytes:
    """What `_line` was made of."""
    return b"{" + line.rstrip(b"\n").partition(b'",')[2]
