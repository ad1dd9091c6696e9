"""Object stores as fsspec gives them: no directories, and conditions as far as the store compares."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, suppress
from importlib.metadata import version
from typing import Any, ClassVar, Final, TypeVar
from weakref import WeakValueDictionary

from agentscope_rx.errors import InvalidOption, WorkspaceError
from agentscope_rx.workspace.filesystem import FileKind
from agentscope_rx.workspace.fsspec_drives import KEEPER, Changed, Entry, above, entry_of

T = TypeVar("T")
_PRECONDITION_FAILED: Final = (409, 412)
#: The oldest client of Amazon that sends a condition with every change.
_COMPARES_ETAGS: Final = (1, 36)


class ObjectDrive:
    """An object store, by the coroutines of its driver in the loop that fsspec keeps for them; no thread waits.

    A directory is what names have in common, so that it would vanish with its last file: an object of our own stays.
    Who is first to create a file is exact among all machines. What has another condition is exact within this process.

    Args:
        system: The file system.
    """

    links: ClassVar[bool] = False
    _locks: ClassVar[WeakValueDictionary[Any, asyncio.Lock]] = WeakValueDictionary()

    def __init__(self, system: Any) -> None:
        self._system = system

    async def run(self, work: Callable[[], Coroutine[Any, Any, T]], *changes: str) -> T:
        """Run work in the loop of the driver; who is cancelled meanwhile cancels it."""

        async def alone() -> T:
            async with AsyncExitStack() as stack:
                for key in sorted(set(changes)):
                    lock = self._locks.setdefault((self._system, key), asyncio.Lock())
                    await stack.enter_async_context(lock)
                return await work()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(alone(), self._system.loop))

    async def look(self, key: str) -> Entry | None:
        """What is at a name."""
        try:
            return entry_of(await self._system._info(key))
        except FileNotFoundError:
            return None

    async def obstacle(self, keys: Sequence[str]) -> Entry | None:
        """What of several names is there and is no directory; all are asked for at once."""
        found = await asyncio.gather(*map(self._object, keys))
        return next((each for each in found if each is not None), None)

    async def check_place(self, key: str) -> None:
        """Refuse a name in a bucket that is not there; we make none."""
        bucket = key.partition("/")[0]
        with suppress(PermissionError):  # who may not look at buckets may still work in one
            if await self.look(bucket) is None:
                raise WorkspaceError(f"there is no bucket {bucket!r}: make it before a workspace is in it")

    async def entries(self, key: str) -> list[Entry]:
        """What is in a directory."""
        return [entry_of(info) for info in await self._system._ls(key, detail=True)]

    async def part(self, key: str, start: int, end: int) -> bytes:
        """Some bytes of a file."""
        return await self._system._cat_file(key, start=start, end=end)

    async def beginnings(self, keys: Sequence[str], length: int) -> Sequence[bytes | BaseException]:
        """The beginnings of a few files, all at once."""
        return await asyncio.gather(*(self.part(key, 0, length) for key in keys), return_exceptions=True)

    async def create(self, key: str, data: bytes) -> None:
        """Make a file."""
        await self._system._pipe_file(key, data, mode="create")

    async def replace(self, key: str, data: bytes, mark: str | None) -> None:
        """Write a file."""
        await self._system._pipe_file(key, data)

    async def remove(self, key: str, mark: str | None) -> None:
        """Remove a file."""
        await self._keep(above(key))
        try:
            await self._system._rm_file(key)
        except FileNotFoundError:
            raise Changed(key) from None

    async def remove_directory(self, key: str) -> None:
        """Remove what keeps a directory: our object, or that of a console, whose name ends with a slash."""
        await self._keep(above(key))
        for name in (f"{key}/{KEEPER}", f"{key}/"):
            with suppress(FileNotFoundError):
                await self._system._rm_file(name)

    async def _object(self, key: str) -> Entry | None:
        """What has just this name; None for nothing, and for a directory."""
        found = await self.look(key)
        return found if found is not None and found.kind is FileKind.FILE else None

    async def _keep(self, folder: str) -> None:
        with suppress(FileExistsError):
            await self.create(f"{folder}/{KEEPER}", b"")


class S3Drive(ObjectDrive):
    """S3, which compares the ETag itself: every condition is exact among all machines.

    So it is where the server knows `If-Match` and `If-None-Match`, as that of Amazon does. One that ignores them gives
    what `ObjectDrive` does, without the first creator.

    Args:
        system: The file system.

    Raises:
        InvalidOption: The client beneath it is too old to send a condition.
    """

    def __init__(self, system: Any) -> None:
        super().__init__(system)
        found = version("botocore")
        if tuple(map(int, found.split(".")[:2])) < _COMPARES_ETAGS:
            raise InvalidOption("botocore", found, "1.36 or newer, which can tell S3 what a change is based on")

    async def create(self, key: str, data: bytes) -> None:
        """Make a file."""
        try:
            await super().create(key, data)
        except OSError as error:
            if _status(error) in _PRECONDITION_FAILED:
                raise FileExistsError(key) from error
            raise

    async def replace(self, key: str, data: bytes, mark: str | None) -> None:
        """Write a file."""
        if mark is None:
            await super().replace(key, data, None)
            return
        await self._matching("put_object", key, mark, Body=data)

    async def remove(self, key: str, mark: str | None) -> None:
        """Remove a file."""
        await self._keep(above(key))
        await self._matching("delete_object", key, mark)

    async def _object(self, key: str) -> Entry | None:
        """What has just this name, without a second question whether it is a directory."""
        bucket, name, _ = self._system.split_path(key)
        try:
            found = await self._system._call_s3("head_object", Bucket=bucket, Key=name)
        except FileNotFoundError:
            return None
        return entry_of({"name": key, "type": "file", "size": found["ContentLength"], **found})

    async def _matching(self, verb: str, key: str, mark: str | None, **options: object) -> None:
        # `_pipe_file` gives no condition to the upload of a large file, and `_rm_file` none at all.
        bucket, name, _ = self._system.split_path(key)
        condition = {} if mark is None else {"IfMatch": mark}
        try:
            await self._system._call_s3(verb, Bucket=bucket, Key=name, **condition, **options)
        except OSError as error:
            if isinstance(error, FileNotFoundError) or _status(error) in _PRECONDITION_FAILED:
                raise Changed(key) from error
            raise


def _status(error: OSError) -> int | None:
    """The HTTP status behind an error of the driver for S3."""
    response: Any = getattr(error.__cause__, "response", None)
    return None if response is None else response["ResponseMetadata"]["HTTPStatusCode"]
