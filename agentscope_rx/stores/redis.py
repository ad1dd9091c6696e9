"""A store in a Redis server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from agentscope_rx.errors import InvalidOption, MissingExtra, StoreUnavailable
from agentscope_rx.finishing import to_the_end
from agentscope_rx.loop_local import LoopLocal
from agentscope_rx.stores import redis_scripts as scripts
from agentscope_rx.stores.blobs import blob_conflict
from agentscope_rx.stores.keys import SessionKey
from agentscope_rx.stores.redis_index import BY_AGENT, BY_USER, Span, by_user
from agentscope_rx.stores.refusals import (
    busy,
    check_age,
    check_lease,
    check_limit,
    check_read,
    check_records,
    check_ttl,
    conflict,
    lease_lost,
    log_conflict,
)
from agentscope_rx.stores.store import ABSENT, ANYBODY, Anybody, Lease, Stored

T = TypeVar("T")
_SECOND: Final = 1_000_000
_CONNECTIONS: Final = 16
_WATCHERS: Final = 4_096
_PAGE: Final = 500
_ASKED_AGAIN: Final = 0.05


class RedisStore:
    """Keeps sessions in Redis 6 or newer; how safe they are there is a setting of the server (`appendonly`).

    All keys of a session have one hash tag, so that a cluster keeps them together. Each event loop has its own
    connections, which are closed with it.

    Args:
        url: The server: `redis://`, `rediss://` or `unix://`, as redis-py reads it.
        prefix: What all keys begin with.
        timeout: Seconds after which a connection or an answer is not waited for any more.

    Raises:
        InvalidOption: The URL is none.
        MissingExtra: The redis package is not installed.

    Examples:
        >>> RedisStore("redis://:secret@cache.example:6379/0")
        RedisStore('redis://cache.example/0', prefix='agentscope:')
    """

    def __init__(self, url: str, *, prefix: str = "agentscope:", timeout: float = 30.0) -> None:
        if not timeout > 0:
            raise InvalidOption("timeout", timeout, "a positive number of seconds")
        if urlsplit(url).scheme not in ("redis", "rediss", "unix"):
            raise InvalidOption("url", urlsplit(url).scheme, "redis://..., rediss://... or unix://...")
        if find_spec("redis") is None:
            raise MissingExtra("RedisStore", "redis")
        self._url, self._prefix, self._timeout = url, prefix, timeout
        self._clients: LoopLocal[Any] = LoopLocal(self._connect, _close)
        self._watchers: LoopLocal[Any] = LoopLocal(lambda: self._connect(_WATCHERS), _close)

    def __repr__(self) -> str:
        parts = urlsplit(self._url)
        return f"RedisStore('{parts.scheme}://{parts.hostname or ''}{parts.path}', prefix={self._prefix!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RedisStore) and (other._url, other._prefix) == (self._url, self._prefix)

    def __hash__(self) -> int:
        return hash((self._url, self._prefix))

    async def get(self, key: SessionKey, /) -> Stored | None:
        """What is stored under the key."""
        version, body = await to_the_end(self._run(scripts.GET, key.path, ""))
        return Stored(body, version) if version else None

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int, fence: int | None = None) -> int:
        """Store a state in the place of the version that the caller knows."""
        arguments = key.to_json(), expected_version, body
        done, found = await self._write(scripts.PUT, key, fence, *arguments, new=expected_version == ABSENT)
        if not done:
            raise conflict(key, expected_version, found)
        return found

    async def append(
        self, key: SessionKey, records: Sequence[bytes], /, *, expected_seq: int, fence: int | None = None
    ) -> int:
        """Add records at the end of the session's log."""
        check_records(records)
        arguments = key.to_json(), expected_seq, *records
        done, found = await self._write(scripts.APPEND, key, fence, *arguments, new=expected_seq == ABSENT)
        if not done:
            raise log_conflict(key, expected_seq, found)
        return found

    async def read_after(self, key: SessionKey, seq: int, /, *, limit: int = 1000) -> Sequence[bytes]:
        """The records after a number."""
        check_read(seq, limit)
        log = self._keys(key.path)[2]
        entries = await to_the_end(self._ask(lambda client: client.xrange(log, min=f"{seq + 1}-0", count=limit)))
        return tuple(fields[b"r"] for _, fields in entries)

    async def watch(self, key: SessionKey, seq: int, /, *, timeout: float) -> None:
        """Wait until the session's log has grown: the server tells. Each that waits has a connection of its own."""
        check_read(seq, 1)
        log = self._keys(key.path)[2]
        wait = max(1, int(min(timeout, self._timeout / 2) * 1_000))
        with _answering(self):
            client = await self._watchers.get()
            reading = asyncio.ensure_future(client.xread({log: f"{seq}-0"}, count=1, block=wait))
            try:
                await asyncio.wait({reading})
            finally:
                await to_the_end(_cancelled(reading))
            await reading

    async def acquire(self, key: SessionKey, holder: str, /, *, ttl: float) -> Lease:
        """Become the one that may write to the session."""
        check_lease(holder, ttl)
        arguments = key.to_json(), holder.encode(), int(ttl * _SECOND)
        done, found = await self._write(scripts.ACQUIRE, key, None, *arguments, new=True)
        if not done:
            raise busy(key, found.decode())
        return Lease(key, holder, found)

    async def renew(self, lease: Lease, /, *, ttl: float) -> None:
        """Have the lease for longer."""
        check_ttl(ttl)
        arguments = lease.key.to_json(), int(ttl * _SECOND)
        await self._write(scripts.RENEW, lease.key, lease.fence, *arguments, new=False)

    async def release(self, lease: Lease, /) -> None:
        """Let others have the lease."""
        await to_the_end(self._run(scripts.RELEASE, lease.key.path, lease.fence))  # one that is lost says so: so be it

    async def list(
        self,
        *,
        agent_id: str | None = None,
        user_id: str | Anybody | None = ANYBODY,
        after: SessionKey | None = None,
        limit: int = 100,
    ) -> Sequence[SessionKey]:
        """Sessions that are there, in the order of their encoded ids."""
        check_limit(limit)
        span = Span.of(agent_id, user_id, after)
        found: list[SessionKey] = []
        while len(found) < limit and (paths := await to_the_end(self._listed(span, limit))):
            rows = await to_the_end(self._ask(lambda client, paths=paths: self._counters(client, paths)))
            found += [SessionKey.from_json(ids) for ids, version, last in rows if version or last]
            span = span.behind(paths[-1])
        return tuple(found[:limit])

    async def delete(self, key: SessionKey, /, *, fence: int | None = None) -> bool:
        """Remove a session."""
        status, there = await to_the_end(self._remove(scripts.DELETE, key.path, _text(fence)))
        if status == b"lost":
            raise lease_lost(key, fence or 0)
        return bool(there)

    async def prune(self, *, untouched_for: float) -> int:
        """Delete sessions that nobody uses."""
        check_age(untouched_for)
        age, span, pruned = int(untouched_for * _SECOND), Span.of(None, ANYBODY, None), 0
        while paths := await to_the_end(self._listed(span, _PAGE)):
            for path in paths:
                _, there = await to_the_end(self._remove(scripts.PRUNE, path, "", age))
                pruned += there
            span = span.behind(paths[-1])
        return pruned

    # -- the index --------------------------------------------------------------------------------------------

    async def _listed(self, span: Span, limit: int) -> list[str]:
        """The paths of the next sessions of the index."""
        index, low, high = self._prefix + span.index, span.low, span.high
        members = await self._ask(lambda client: client.zrangebylex(index, low, high, 0, limit))
        return [span.path(member.decode()) for member in members]

    async def _counters(self, client: Any, paths: Sequence[str]) -> Any:
        pipeline = client.pipeline(transaction=False)
        for path in paths:
            pipeline.hmget(self._keys(path)[0], "ids", "version", "last_seq")
        return await pipeline.execute()

    async def _write(
        self, script: scripts.Script, key: SessionKey, fence: int | None, *arguments: object, new: bool
    ) -> tuple[bool, Any]:
        """Run a script that may make the session.

        The index is of another hash slot, so it is written before: a crash may leave a session in it that is not
        there, and none out of it that is; and after, since one that is being deleted leaves it meanwhile.
        """

        async def work() -> tuple[bytes, Any]:
            if new:
                await self._note(key.path)
            status, found = await self._run(script, key.path, _text(fence), *arguments)
            if new and status == b"done":
                await self._note(key.path)
            return status, found

        status, found = await to_the_end(work())
        if status == b"lost":
            raise lease_lost(key, fence or 0)
        return status == b"done", found

    async def _note(self, path: str) -> None:
        for index, member in ((BY_AGENT, path), (BY_USER, by_user(path))):
            await self._ask(lambda client, index=index, member=member: client.zadd(self._prefix + index, {member: 0}))

    async def _remove(self, script: scripts.Script, path: str, fence: str, *arguments: object) -> tuple[bytes, int]:
        """Run a script that may delete the session; the index first, so that who makes it anew finds it there."""
        for index, member in ((BY_AGENT, path), (BY_USER, by_user(path))):
            await self._ask(lambda client, index=index, member=member: client.zrem(self._prefix + index, member))
        status, there = await self._run(script, path, fence, *arguments)
        if await self._ask(lambda client: client.exists(self._keys(path)[0])):
            await self._note(path)
        return status, there

    # -- blobs ------------------------------------------------------------------------------------------------

    async def get_blob(self, space: str, name: str, /) -> Stored | None:
        """The bytes under a name; see `BlobStore`."""
        key = self._blob(space, name)
        version, body = await to_the_end(self._ask(lambda client: client.hmget(key, "version", "body")))
        return None if version is None else Stored(body, int(version))

    async def get_blobs(self, space: str, names: Sequence[str], /) -> Mapping[str, Stored]:
        """The bytes under several names; see `BlobStore`."""

        def ask(client: Any) -> Awaitable[Any]:
            pipeline = client.pipeline(transaction=False)
            for name in names:
                pipeline.hmget(self._blob(space, name), "version", "body")
            return pipeline.execute()

        found = zip(names, await to_the_end(self._ask(ask)), strict=True)
        return {name: Stored(body, int(version)) for name, (version, body) in found if version is not None}

    async def blob_version(self, space: str, name: str, /) -> int:
        """Their version; see `BlobStore`."""
        key = self._blob(space, name)
        return int(await to_the_end(self._ask(lambda client: client.hget(key, "version"))) or ABSENT)

    async def put_blob(self, space: str, name: str, body: bytes, /, *, expected_version: int) -> int:
        """Store bytes under a name; see `BlobStore`."""
        given = scripts.PUT_BLOB, 1, self._blob(space, name), expected_version, expected_version + 1, body
        if not await to_the_end(self._ask(lambda client: client.eval(*given))):
            raise blob_conflict(name, expected_version)
        return expected_version + 1

    async def delete_blobs(self, space: str, names: Sequence[str], /) -> None:
        """Remove bytes; see `BlobStore`."""
        keys = [self._blob(space, name) for name in names]
        await to_the_end(self._ask(lambda client: client.delete(*keys)))

    def _blob(self, space: str, name: str) -> str:
        return f"{self._prefix}{{{space}}}:blob:{name}"  # one slot for all of a space

    # -- the server -------------------------------------------------------------------------------------------

    def _keys(self, path: str) -> tuple[str, str, str]:
        slot = f"{self._prefix}{{{path}}}"
        return f"{slot}:session", f"{slot}:state", f"{slot}:log"

    async def _run(self, script: scripts.Script, path: str, fence: object, *arguments: object) -> tuple[Any, Any]:
        from redis.exceptions import NoScriptError

        given = (*self._keys(path), fence, *arguments)

        async def work(client: Any) -> Any:
            try:
                return await client.evalsha(script.digest, 3, *given)
            except NoScriptError:
                return await client.eval(script.text, 3, *given)

        status, found = await self._ask(work)
        return status, found

    async def _ask(self, work: Callable[[Any], Awaitable[T]]) -> T:
        with _answering(self):
            return await work(await self._clients.get())

    def _connect(self, connections: int = _CONNECTIONS) -> Any:
        import redis.asyncio

        # Without a retry: a script that has run and whose answer was lost would be refused the second time.
        pools: Any = redis.asyncio.BlockingConnectionPool  # its `from_url` has no types
        pool = pools.from_url(
            self._url,
            max_connections=connections,
            timeout=self._timeout,
            socket_timeout=self._timeout,
            socket_connect_timeout=self._timeout,
        )
        return redis.asyncio.Redis.from_pool(pool)


async def _close(client: Any) -> None:
    await client.aclose()


async def _cancelled(reading: asyncio.Future[Any]) -> None:
    """End a reading; redis-py loses a cancellation that comes while it connects, and would wait for its answer."""
    while not reading.done():
        reading.cancel()
        await asyncio.wait({reading}, timeout=_ASKED_AGAIN)


def _text(fence: int | None) -> str:
    return "" if fence is None else str(fence)


@contextmanager
def _answering(store: RedisStore) -> Generator[None, None, None]:
    """What keeps a server from answering is one error, whatever redis-py calls it."""
    from redis.exceptions import RedisError

    try:
        yield
    except (RedisError, OSError) as error:  # time-outs are OSErrors
        raise StoreUnavailable(f"{store!r} did not do what it was asked to: {type(error).__name__}: {error}") from error
