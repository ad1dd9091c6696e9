"""The tables of `SqlStore`, and how a database that has them is reached. Imported when a store is made."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    DDL,
    BigInteger,
    Column,
    Connection,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
    insert,
    select,
)
from sqlalchemy.dialects.mysql import LONGBLOB
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlalchemy.engine import URL
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from agentscope_rx.errors import StateUnreadable
from agentscope_rx.stores.sql_listening import Listener

SCHEMA_VERSION: Final = 1
METADATA: Final = MetaData()
# Bytes and never text: databases refuse NUL in it, compare it without regard to case, or cut spaces off.
_BYTES: Final = LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")
_DIGEST: Final = String(64)
_NAME: Final = String(160)

SESSIONS: Final = Table(
    "agentscope_sessions",
    METADATA,
    Column("session", _DIGEST, primary_key=True),  # of the key's path, which is too long for an index
    Column("agent", _NAME, nullable=False, index=True),
    Column("owner", _NAME, nullable=False, index=True),
    Column("ids", _BYTES, nullable=False),
    Column("version", BigInteger, nullable=False, default=0),
    Column("last_seq", BigInteger, nullable=False, default=0),
    Column("fence", BigInteger, nullable=False, default=0),
    Column("holder", _BYTES, nullable=False, default=b""),
    Column("leased_until", BigInteger, nullable=False, default=0),  # times are microseconds of the database's clock
    Column("touched", BigInteger, nullable=False),
)
STATES: Final = Table(  # not with the sessions, whose rows are written at each append
    "agentscope_states",
    METADATA,
    Column("session", _DIGEST, primary_key=True),
    Column("body", _BYTES, nullable=False),
)
RECORDS: Final = Table(
    "agentscope_records",
    METADATA,
    Column("session", _DIGEST, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("body", _BYTES, nullable=False),
)
BLOBS: Final = Table(
    "agentscope_blobs",
    METADATA,
    Column("space", _NAME, primary_key=True),
    Column("name", _NAME, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("body", _BYTES, nullable=False),
)
TERMS: Final = Table(  # what `sql_search` looks for
    "agentscope_terms",
    METADATA,
    Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True),
    Column("session", _DIGEST, nullable=False),
    Column("through", BigInteger, nullable=False),
    Column("terms", Text().with_variant(TSVECTOR(), "postgresql"), nullable=False),
    UniqueConstraint("session", "through"),
)
#: The full text index over them that SQLite has, and the name of PostgreSQL's.
WORDS: Final = "agentscope_words"
_WORDS_OF_SQLITE: Final = f"""
CREATE VIRTUAL TABLE IF NOT EXISTS {WORDS} USING fts5
  (terms, content='agentscope_terms', content_rowid='id', detail=none, tokenize='ascii');
CREATE TRIGGER IF NOT EXISTS {WORDS}_in AFTER INSERT ON agentscope_terms BEGIN
  INSERT INTO {WORDS}(rowid, terms) VALUES (new.id, new.terms); END;
CREATE TRIGGER IF NOT EXISTS {WORDS}_out AFTER DELETE ON agentscope_terms BEGIN
  INSERT INTO {WORDS}({WORDS}, rowid, terms) VALUES ('delete', old.id, old.terms); END"""  # noqa: S608
_WORDS_OF_POSTGRESQL: Final = f"CREATE INDEX IF NOT EXISTS {WORDS} ON agentscope_terms USING gin (terms)"
for _statement in _WORDS_OF_SQLITE.split("\nCREATE"):
    if _statement:
        event.listen(TERMS, "after_create", DDL(f"CREATE{_statement.removesuffix(';')}").execute_if(dialect="sqlite"))
event.listen(TERMS, "after_create", DDL(_WORDS_OF_POSTGRESQL).execute_if(dialect="postgresql"))
_SCHEMA: Final = Table("agentscope_schema", METADATA, Column("version", Integer, primary_key=True, autoincrement=False))


class Now(FunctionElement[int]):
    """The database's clock, in microseconds of the epoch: one clock for all who share the sessions."""

    type = BigInteger()
    inherit_cache = True


@compiles(Now, "sqlite")
def _now_in_sqlite(element: Now, compiler: Any, **_: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"


@compiles(Now, "postgresql")
def _now_in_postgresql(element: Now, compiler: Any, **_: Any) -> str:
    return "CAST(EXTRACT(EPOCH FROM statement_timestamp()) * 1000000 AS BIGINT)"


@compiles(Now, "mysql")
@compiles(Now, "mariadb")
def _now_in_mysql(element: Now, compiler: Any, **_: Any) -> str:
    return "CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)"


class Database:
    """An engine of one event loop, whose tables are made on first use.

    Args:
        url: Where the database is, with an asynchronous driver.
        timeout: Seconds after which a connection, a lock or an answer is not waited for any more.
    """

    def __init__(self, url: URL, timeout: float) -> None:
        self.engine = _engine(url, timeout)
        #: Hears of logs that have grown, where the database can tell.
        self.listener = Listener(self.engine) if url.get_backend_name() == "postgresql" else None
        self._making = asyncio.Lock()
        self._made = False

    async def prepare(self) -> None:
        """Make the tables that are missing.

        Raises:
            StateUnreadable: The tables are those of another version of this library.
        """
        async with self._making:
            failures = 0
            while not self._made:
                try:
                    async with self.engine.begin() as connection:
                        await connection.run_sync(_make_tables)
                    self._made = True
                except (IntegrityError, OperationalError, ProgrammingError):
                    # Another process has made one between our look and our try, which can happen once for each table
                    # and for the row of the version.
                    failures += 1
                    if failures > len(METADATA.tables) + 1:
                        raise

    async def close(self) -> None:
        """Close all connections."""
        if self.listener is not None:
            await self.listener.close()
        await self.engine.dispose()


def _make_tables(connection: Connection) -> None:
    METADATA.create_all(connection)
    found = connection.scalar(select(_SCHEMA.c.version))
    if found is None:
        connection.execute(insert(_SCHEMA).values(version=SCHEMA_VERSION))
    elif found != SCHEMA_VERSION:
        raise StateUnreadable(
            f"the tables have version {found} and this library reads version {SCHEMA_VERSION}; they were left as they "
            "are. Use the version of agentscope_rx that wrote them"
        )


def _engine(url: URL, timeout: float) -> AsyncEngine:
    backend = url.get_backend_name()
    if backend != "sqlite":
        return create_async_engine(
            url,
            hide_parameters=True,  # errors never show what sessions hold
            isolation_level="READ COMMITTED",
            pool_pre_ping=True,
            pool_size=10,
            max_overflow=10,
            pool_timeout=timeout,
            connect_args=_connect_args(url, timeout),
        )
    _make_private(Path(str(url.database)))
    # One connection: who writes waits for the pool, which is fair, and not for the file, which is not.
    engine = create_async_engine(
        url, hide_parameters=True, pool_size=1, max_overflow=0, pool_timeout=timeout, connect_args={"timeout": timeout}
    )
    event.listen(engine.sync_engine, "connect", _configure)
    return engine


def _connect_args(url: URL, timeout: float) -> Mapping[str, float]:
    if url.get_backend_name() == "postgresql":
        return {"timeout": timeout, "command_timeout": timeout}
    return {"connect_timeout": timeout}


def _make_private(file: Path) -> None:
    """Make the file before SQLite does, which would let everybody read it; the files beside it get its mode."""
    if not file.exists():
        os.close(os.open(file, os.O_CREAT, 0o600))


def _configure(connection: Any, _: object) -> None:
    cursor = connection.cursor()
    try:
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")  # what was committed is on the disk
    finally:
        cursor.close()
