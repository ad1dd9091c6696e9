"""Stores in databases: how they are addressed, what they say when nobody answers, and what they leave behind."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from agentscope_rx.errors import InvalidOption, MissingExtra, StateUnreadable, StoreUnavailable
from agentscope_rx.stores import RedisStore, SessionKey, SqlStore, Stored
from agentscope_rx.stores import redis as redis_store
from agentscope_rx.stores import sql as sql_store

ROOT = Path(__file__).resolve().parents[2]
KEY = SessionKey(agent_id="a1", user_id="alice", session_id="s1")
SECRET = "planted-secret"


# -- addresses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///x.db", "sqlite+aiosqlite:///x.db"),
        (f"postgresql://app:{SECRET}@db/x", "postgresql+asyncpg://app:***@db/x"),
        (f"mysql://app:{SECRET}@db/x", "mysql+asyncmy://app:***@db/x"),
        (f"mariadb+asyncmy://app:{SECRET}@db/x", "mariadb+asyncmy://app:***@db/x"),
    ],
)
def test_a_database_is_known_by_its_url(url: str, shown: str) -> None:
    """A URL may leave the driver out; a password is never shown; stores of one URL are equal."""
    store = SqlStore(url)
    assert repr(store) == f"SqlStore({shown!r})"
    assert store == SqlStore(url)
    assert hash(store) == hash(SqlStore(url))
    assert store != SqlStore("sqlite:///y.db")


@pytest.mark.parametrize(
    "url",
    [
        "",
        "x",
        "oracle://app:planted-secret@db/x",
        "postgresql+psycopg2://a:planted-secret@db/x",
        "sqlite://",
        "sqlite:///:memory:",
    ],
)
def test_another_database_is_refused(url: str) -> None:
    """What is no URL, another kind of database or driver, or gone with its connection is refused at once."""
    with pytest.raises(InvalidOption) as caught:
        SqlStore(url)
    assert SECRET not in str(caught.value)


def test_a_redis_server_is_known_by_its_url() -> None:
    """No password is shown; stores of one URL and prefix are equal; other schemes are refused."""
    store = RedisStore(f"redis://app:{SECRET}@cache:6379/2", prefix="p:")
    assert repr(store) == "RedisStore('redis://cache/2', prefix='p:')"
    assert store == RedisStore(f"redis://app:{SECRET}@cache:6379/2", prefix="p:")
    assert store != RedisStore(f"redis://app:{SECRET}@cache:6379/2")
    with pytest.raises(InvalidOption) as caught:
        RedisStore(f"http://app:{SECRET}@cache")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("timeout", [0, -1.0, float("nan")])
def test_no_time_is_no_timeout(timeout: float) -> None:
    """A time-out is a positive number of seconds."""
    with pytest.raises(InvalidOption, match="timeout"):
        SqlStore("sqlite:///x.db", timeout=timeout)
    with pytest.raises(InvalidOption, match="timeout"):
        RedisStore("redis://cache", timeout=timeout)


@pytest.mark.parametrize(
    ("missing", "make", "extra"),
    [
        ("sqlalchemy", lambda: SqlStore("sqlite:///x.db"), "sql"),
        ("aiosqlite", lambda: SqlStore("sqlite:///x.db"), "sql"),
        ("asyncpg", lambda: SqlStore("postgresql://db/x"), "postgres"),
        ("asyncmy", lambda: SqlStore("mysql://db/x"), "mysql"),
        ("redis", lambda: RedisStore("redis://cache"), "redis"),
    ],
)
def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, missing: str, make: Callable[[], object], extra: str
) -> None:
    """What a store needs and has not is said when it is made, with the command that brings it."""

    def find_spec(name: str) -> object:
        return None if name == missing else object()

    monkeypatch.setattr(sql_store, "find_spec", find_spec)
    monkeypatch.setattr(redis_store, "find_spec", find_spec)
    with pytest.raises(MissingExtra, match=rf"pip install 'agentscope-rx\[{extra}\]'"):
        make()


def test_making_a_store_reaches_nobody(tmp_path: Path) -> None:
    """Nothing is connected to, and no file made, before the first verb."""
    SqlStore(f"sqlite:///{tmp_path}/x.db")
    SqlStore("postgresql://nowhere.invalid/x")
    RedisStore("redis://nowhere.invalid")
    assert list(tmp_path.iterdir()) == []


# -- nobody answers ---------------------------------------------------------------------------------------------


UNREACHABLE: dict[str, Callable[[Path], Any]] = {
    "sqlite": lambda folder: SqlStore(f"sqlite:///{folder}/none/x.db"),
    "postgres": lambda folder: SqlStore(f"postgresql://app:{SECRET}@/x?host={folder}"),
    "mysql": lambda folder: SqlStore(f"mysql://app:{SECRET}@127.0.0.1:1/x"),
    "redis": lambda folder: RedisStore(f"unix://app:{SECRET}@{folder}/none"),
}


@pytest.mark.parametrize("make", UNREACHABLE.values(), ids=UNREACHABLE)
async def test_a_store_that_nobody_answers_for(tmp_path: Path, make: Callable[[Path], Any]) -> None:
    """Each verb fails with one error that says what is wrong, and no secret."""
    store = make(tmp_path)
    verbs = (
        lambda: store.get(KEY),
        lambda: store.put(KEY, b"{}", expected_version=0),
        lambda: store.append(KEY, [b"{}"], expected_seq=0),
        lambda: store.read_after(KEY, 0),
        lambda: store.acquire(KEY, "me", ttl=1),
        store.list,
        lambda: store.delete(KEY),
        lambda: store.prune(untouched_for=1),
    )
    for verb in verbs:
        with pytest.raises(StoreUnavailable, match="did not do what it was asked to") as caught:
            await verb()
        assert caught.value.__cause__ is not None
        assert SECRET not in str(caught.value)


async def test_a_server_that_comes_back_is_used_again(redis_server: Callable[[Path], Any]) -> None:
    """While the server is away verbs fail; once it is there again the same store goes on."""
    with TemporaryDirectory() as folder:
        with redis_server(Path(folder)) as url:
            store = RedisStore(url)
            await store.put(KEY, b"1", expected_version=0)
        with pytest.raises(StoreUnavailable):
            await store.get(KEY)
        with redis_server(Path(folder)):
            assert await store.get(KEY) is None  # this one keeps nothing
            assert await store.put(KEY, b"2", expected_version=0) == 1


async def test_a_file_that_somebody_locks(tmp_path: Path) -> None:
    """A write waits for a lock as long as it may, and then says so; nothing is written."""
    file = tmp_path / "x.db"
    store = SqlStore(f"sqlite:///{file}", timeout=0.05)
    await store.put(KEY, b"1", expected_version=0)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="locked"):
            await store.put(KEY, b"2", expected_version=1)
        assert await store.get(KEY) == Stored(b"1", 1)  # who reads does not wait
        other.execute("ROLLBACK")
    assert await store.put(KEY, b"2", expected_version=1) == 2


# -- what is left behind ----------------------------------------------------------------------------------------


async def test_only_the_owner_reads_a_database_file(tmp_path: Path) -> None:
    """The file and those beside it have mode 0600."""
    await SqlStore(f"sqlite:///{tmp_path}/x.db").put(KEY, b"1", expected_version=0)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert set(modes.values()) == {0o600}
    assert "x.db" in modes


async def test_tables_of_another_version_are_left_alone(tmp_path: Path) -> None:
    """Tables that a later version has written are an error, and stay as they are."""
    file = tmp_path / "x.db"
    await SqlStore(f"sqlite:///{file}").put(KEY, b"1", expected_version=0)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE agentscope_schema SET version = 2")
    with pytest.raises(StateUnreadable, match="version 2"):
        await SqlStore(f"sqlite:///{file}").put(KEY, b"2", expected_version=1)
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT version FROM agentscope_sessions").fetchall() == [(1,)]


async def test_a_deleted_session_leaves_no_row(tmp_path: Path) -> None:
    """Nothing of a deleted or pruned session stays in any table."""
    file = tmp_path / "x.db"
    store = SqlStore(f"sqlite:///{file}")
    for remove in (lambda: store.delete(KEY), lambda: store.prune(untouched_for=0)):
        await store.put(KEY, b"1", expected_version=0)
        await store.append(KEY, [b"1", b"2"], expected_seq=0)
        await store.release(await store.acquire(KEY, "me", ttl=1))
        await remove()
        with closing(sqlite3.connect(file)) as connection:
            for table in ("sessions", "states", "records"):
                assert connection.execute(f"SELECT * FROM agentscope_{table}").fetchall() == []


async def test_a_deleted_session_leaves_no_key(redis_url: str) -> None:
    """Nothing of a deleted or pruned session stays in Redis, its entries in the index included."""
    import redis

    store = RedisStore(redis_url, prefix="left:")
    client: Any = redis.Redis(unix_socket_path=redis_url.removeprefix("unix://"))
    for remove in (lambda: store.delete(KEY), lambda: store.prune(untouched_for=0)):
        await store.put(KEY, b"1", expected_version=0)
        await store.append(KEY, [b"1", b"2"], expected_seq=0)
        await store.release(await store.acquire(KEY, "me", ttl=1))
        slot = f"left:{{{KEY.path}}}".encode()
        assert sorted(key for key in client.keys("left:*") if key.startswith(slot)) == [
            slot + b":log",
            slot + b":session",
            slot + b":state",
        ]
        await remove()
        assert client.keys("left:*") == []
    client.close()


def test_processes_make_the_tables_at_once(postgres: Callable[[], str], tmp_path: Path) -> None:
    """Processes that are the first to use a database, all at once, find or make its tables."""
    code = (
        "import asyncio, sys; from tests.stores.places import store_at; "
        "print(asyncio.run(store_at(sys.argv[1]).list()))"
    )
    for url in (postgres(), f"sqlite:///{tmp_path}/x.db"):
        command = [sys.executable, "-c", code, f"sql {url}"]
        running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) for _ in range(3)]
        assert [process.communicate(timeout=50)[0] for process in running] == [b"()\n"] * 3


async def test_many_make_the_tables_at_once(postgres: Callable[[], str], tmp_path: Path) -> None:
    """Store objects that know nothing of one another, in several threads, make the tables of one database together."""
    for url in (await asyncio.to_thread(postgres), f"sqlite:///{tmp_path}/x.db"):
        threads = [asyncio.to_thread(_list_in_a_loop, url) for _ in range(5)]
        assert await asyncio.gather(*threads, *(SqlStore(url).list() for _ in range(5))) == [()] * 10


def _list_in_a_loop(url: str) -> object:
    return asyncio.run(SqlStore(url).list())
