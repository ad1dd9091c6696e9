"""A store in a relational database: SQLite, PostgreSQL, MySQL or MariaDB."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final, TypeVar

from agentscope_rx.errors import InvalidOption, MissingExtra, StoreUnavailable
from agentscope_rx.finishing import to_the_end
from agentscope_rx.loop_local import LoopLocal
from agentscope_rx.stores.keys import SessionKey
from agentscope_rx.stores.refusals import check_age, check_lease, check_limit, check_read, check_records, check_ttl
from agentscope_rx.stores.search_index import SearchIndex
from agentscope_rx.stores.store import ANYBODY, Anybody, Lease, Stored

if TYPE_CHECKING:
    from sqlalchemy.engine import URL
    from sqlalchemy.ext.asyncio import AsyncConnection

    from agentscope_rx.stores.sql_tables import Database

T = TypeVar("T")
_LOOK_EVERY: Final = 0.2
#: The driver of each kind of database, and the extra that brings it.
_DRIVERS: Final[Mapping[str, tuple[str, str]]] = {
    "sqlite": ("aiosqlite", "sql"),
    "postgresql": ("asyncpg", "postgres"),
    "mysql": ("asyncmy", "mysql"),
    "mariadb": ("asyncmy", "mysql"),
}


class SqlStore:
    """Keeps sessions in tables, which it makes on first use.

    Each event loop has its own connections, which are closed with it.

    Args:
        url: The database, such as `sqlite:///sessions.db` or `postgresql://user:password@host/name`.
        timeout: Seconds after which a connection, a lock or an answer is not waited for any more.

    Raises:
        InvalidOption: The URL is none, or that of another kind of database or driver.
        MissingExtra: SQLAlchemy or the driver is not installed.

    Examples:
        >>> SqlStore("postgresql://app:secret@db.example/agents")
        SqlStore('postgresql+asyncpg://app:***@db.example/agents')
    """

    def __init__(self, url: str, *, timeout: float = 30.0) -> None:
        if not timeout > 0:
            raise InvalidOption("timeout", timeout, "a positive number of seconds")
        self._url = checked_url(url)
        self._databases: LoopLocal[Database] = LoopLocal(lambda: _connect(self._url, timeout), _close)

    def __repr__(self) -> str:
        return f"SqlStore({self._url.set(query={}).render_as_string(hide_password=True)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SqlStore) and other._url == self._url

    def __hash__(self) -> int:
        return hash(self._url)

    @property
    def local(self) -> bool:
        """Whether the database is a file or memory of this machine."""
        return self._url.get_backend_name() == "sqlite"

    @property
    def search_index(self) -> SearchIndex | None:
        """Tells which sessions hold some terms; None = the database has no full text search that is used."""
        backend = self._url.get_backend_name()
        if backend not in ("sqlite", "postgresql"):
            return None
        from agentscope_rx.stores.sql_search import SqlSearchIndex

        return SqlSearchIndex(self._finish, backend)

    async def _finish(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        return await to_the_end(self._transact(work))

    async def get(self, key: SessionKey, /) -> Stored | None:
        """What is stored under the key."""
        from agentscope_rx.stores import sql_rows

        return await self._transact(lambda connection: sql_rows.get(connection, key))

    async def put(self, key: SessionKey, body: bytes, /, *, expected_version: int, fence: int | None = None) -> int:
        """Store a state in the place of the version that the caller knows."""
        from agentscope_rx.stores import sql_rows

        return await self._write(key, lambda connection: sql_rows.put(connection, key, body, expected_version, fence))

    async def append(
        self, key: SessionKey, records: Sequence[bytes], /, *, expected_seq: int, fence: int | None = None
    ) -> int:
        """Add records at the end of the session's log."""
        from agentscope_rx.stores import sql_rows

        check_records(records)
        return await self._write(key, lambda connection: sql_rows.append(connection, key, records, expected_seq, fence))

    async def read_after(self, key: SessionKey, seq: int, /, *, limit: int = 1000) -> Sequence[bytes]:
        """The records after a number."""
        from agentscope_rx.stores import sql_rows

        check_read(seq, limit)
        return await self._transact(lambda connection: sql_rows.read_after(connection, key, seq, limit))

    async def watch(self, key: SessionKey, seq: int, /, *, timeout: float) -> None:
        """Wait until the session's log has grown: PostgreSQL tells, others are looked at five times a second."""
        check_read(seq, 1)
        with _answering(self):
            database = await self._databases.get()
            await database.prepare()
            listener = database.listener
            if listener is None:
                await asyncio.sleep(min(timeout, _LOOK_EVERY))
                return
            from agentscope_rx.stores import sql_rows

            session = sql_rows.digest_of(key)
            heard = await listener.begin(session)
            try:
                if not await self.read_after(key, seq, limit=1):
                    await listener.wait(heard, timeout)
            finally:
                listener.end(session, heard)

    async def acquire(self, key: SessionKey, holder: str, /, *, ttl: float) -> Lease:
        """Become the one that may write to the session."""
        from agentscope_rx.stores import sql_rows

        check_lease(holder, ttl)
        return await self._write(key, lambda connection: sql_rows.acquire(connection, key, holder, ttl))

    async def renew(self, lease: Lease, /, *, ttl: float) -> None:
        """Have the lease for longer."""
        from agentscope_rx.stores import sql_rows

        check_ttl(ttl)
        await to_the_end(self._transact(lambda connection: sql_rows.renew(connection, lease, ttl)))

    async def release(self, lease: Lease, /) -> None:
        """Let others have the lease."""
        from agentscope_rx.stores import sql_rows

        await to_the_end(self._transact(lambda connection: sql_rows.release(connection, lease)))

    async def list(
        self,
        *,
        agent_id: str | None = None,
        user_id: str | Anybody | None = ANYBODY,
        after: SessionKey | None = None,
        limit: int = 100,
    ) -> Sequence[SessionKey]:
        """Sessions that are there, in the order of digests of their keys."""
        from agentscope_rx.stores import sql_rows

        check_limit(limit)
        return await self._transact(lambda connection: sql_rows.keys(connection, agent_id, user_id, after, limit))

    async def delete(self, key: SessionKey, /, *, fence: int | None = None) -> bool:
        """Remove a session."""
        from agentscope_rx.stores import sql_rows

        return await to_the_end(self._transact(lambda connection: sql_rows.remove(connection, key, fence)))

    async def prune(self, *, untouched_for: float) -> int:
        """Delete sessions that nobody uses."""
        from agentscope_rx.stores import sql_rows

        check_age(untouched_for)
        pruned = 0
        while sessions := await self._transact(lambda connection: sql_rows.unused(connection, untouched_for)):
            for session in sessions:
                removal = self._transact(
                    lambda connection, session=session: sql_rows.remove_unused(connection, session, untouched_for)
                )
                pruned += await to_the_end(removal)
        return pruned

    async def get_blob(self, space: str, name: str, /) -> Stored | None:
        """The bytes under a name; see `BlobStore`."""
        from agentscope_rx.stores import sql_blobs

        return await self._transact(lambda connection: sql_blobs.get(connection, space, name))

    async def get_blobs(self, space: str, names: Sequence[str], /) -> Mapping[str, Stored]:
        """The bytes under several names; see `BlobStore`."""
        from agentscope_rx.stores import sql_blobs

        return await self._transact(lambda connection: sql_blobs.get_all(connection, space, names))

    async def blob_version(self, space: str, name: str, /) -> int:
        """Their version; see `BlobStore`."""
        from agentscope_rx.stores import sql_blobs

        return await self._transact(lambda connection: sql_blobs.version(connection, space, name))

    async def put_blob(self, space: str, name: str, body: bytes, /, *, expected_version: int) -> int:
        """Store bytes under a name; see `BlobStore`."""
        from agentscope_rx.stores import sql_blobs

        return await to_the_end(
            self._transact(lambda connection: sql_blobs.put(connection, space, name, body, expected_version))
        )

    async def delete_blobs(self, space: str, names: Sequence[str], /) -> None:
        """Remove bytes; see `BlobStore`."""
        from agentscope_rx.stores import sql_blobs

        await to_the_end(self._transact(lambda connection: sql_blobs.remove(connection, space, names)))

    async def _write(self, key: SessionKey, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """Do a transaction to its end; where the session has no row, make it first."""
        from agentscope_rx.stores import sql_rows

        while True:
            try:
                return await to_the_end(self._transact(work))
            except sql_rows.NotThere:
                await to_the_end(self._transact(lambda connection: sql_rows.make(connection, key)))

    async def _transact(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        with _answering(self):
            database = await self._databases.get()
            await database.prepare()
            async with database.engine.begin() as connection:
                return await work(connection)


# -- connections ------------------------------------------------------------------------------------------------


def checked_url(text: str) -> URL:
    """The URL, with the driver that is used."""
    if find_spec("sqlalchemy") is None or find_spec("greenlet") is None:
        raise MissingExtra("SqlStore", "sql")
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(text)
    except ArgumentError:
        raise InvalidOption("url", "...", "the URL of a database, such as sqlite:///sessions.db") from None
    backend, _, driver = url.drivername.partition("+")
    known, extra = _DRIVERS.get(backend, ("", ""))
    if not known or driver not in ("", known):
        names = ", ".join(f"{name}+{driver}" for name, (driver, _) in _DRIVERS.items())
        raise InvalidOption("url", url.drivername, f"must begin with one of {names}, or the name without a driver")
    if backend == "sqlite" and url.database in (None, "", ":memory:"):
        raise InvalidOption("url", str(url), "the path of a file; InMemoryStore keeps sessions in memory")
    if find_spec(known) is None:
        raise MissingExtra(f"SqlStore({backend!r})", extra)
    return url.set(drivername=f"{backend}+{known}")


def _connect(url: URL, timeout: float) -> Database:
    from agentscope_rx.stores.sql_tables import Database

    return Database(url, timeout)


async def _close(database: Database) -> None:
    await database.close()


@contextmanager
def _answering(store: SqlStore) -> Generator[None, None, None]:
    """What keeps a database from answering is one error, whatever its driver calls it."""
    from sqlalchemy.exc import DBAPIError
    from sqlalchemy.exc import TimeoutError as PoolTimeout

    try:
        yield
    except (DBAPIError, PoolTimeout, OSError) as error:  # time-outs are OSErrors
        cause = getattr(error, "orig", None) or error
        raise StoreUnavailable(f"{store!r} did not do what it was asked to: {type(cause).__name__}: {cause}") from error
