"""A workspace in a database or in Redis does what every workspace must, for many machines at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx import HarnessAgent, RuntimeContext
from agentscope_rx.errors import InvalidIdentifier, StateConflict, StoreUnavailable, WorkspaceConflict, WorkspaceError
from agentscope_rx.stores import BlobStore, RedisStore, SqlStore
from agentscope_rx.stores.store import Stored
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.testing.workspace_conformance import check_workspace
from agentscope_rx.workspace import IsolationScope, SessionFiles, StoredWorkspace, WorkspaceFS
from agentscope_rx.workspace.search import search_text
from tests.stores.places import store_at

_numbers = count(1)


@pytest.fixture(params=["sqlite", "postgres", "redis", "mysql"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Any]:
    """Gives the store of one place; each one given is that of another process, as it were."""
    match request.param:
        case "sqlite":
            place = f"sql sqlite:///{tmp_path}/files.db"
        case "postgres":
            place = f"sql {request.getfixturevalue('postgres')()}"
        case "redis":
            place = f"redis files-{next(_numbers)}: {request.getfixturevalue('redis_url')}"
        case _:
            place = f"sql {request.getfixturevalue('mysql')}"
    return lambda: store_at(place)


async def blobs_of(store: Any) -> int:
    """How many blobs there are."""
    if isinstance(store, RedisStore):
        return len([key async for key in (await store._clients.get()).scan_iter(f"{store._prefix}*:blob:*")])  # type: ignore[reportPrivateUsage]
    from sqlalchemy import func, select

    from agentscope_rx.stores.sql_tables import BLOBS

    async def counted(connection: Any) -> int:
        return await connection.scalar(select(func.count()).select_from(BLOBS))

    return await store._transact(counted)


# -- blobs --------------------------------------------------------------------------------------------------


async def test_blobs_are_replaced_by_who_knows_them(stored: Callable[[], Any]) -> None:
    """A version that is not there refuses, in all ways; names are told apart by case, and bytes stay bytes."""
    store, other = stored(), stored()
    assert isinstance(store, BlobStore)
    assert await store.get_blob("s", "a") is None
    assert await store.blob_version("s", "a") == 0
    assert await store.put_blob("s", "a", b"\x00\xff", expected_version=0) == 1
    assert await other.put_blob("s", "a", b"", expected_version=1) == 2
    for expected in (0, 1, 3):
        with pytest.raises(StateConflict):
            await store.put_blob("s", "a", b"late", expected_version=expected)
    with pytest.raises(StateConflict):
        await store.put_blob("s", "nothing", b"x", expected_version=1)
    assert await store.get_blob("s", "a") == Stored(b"", 2)
    assert await store.get_blob("other", "a") is None
    await store.put_blob("s", "A", b"large", expected_version=0)
    assert await store.get_blobs("s", ["A", "nothing", "a"]) == {"A": Stored(b"large", 1), "a": Stored(b"", 2)}
    assert await store.get_blobs("s", []) == {}
    await other.delete_blobs("s", ["a", "A", "nothing"])
    assert await store.blob_version("s", "a") == 0


# -- the workspace ------------------------------------------------------------------------------------------


async def test_it_conforms(stored: Callable[[], Any]) -> None:
    """On real servers, with every rule."""

    @asynccontextmanager
    async def make(files: Mapping[str, bytes]) -> AsyncGenerator[WorkspaceFS]:
        workspace = StoredWorkspace(stored(), f"w{next(_numbers)}")
        for path, data in files.items():
            await workspace.write(path, data)
        yield workspace

    await check_workspace(make)
    async with make({}) as workspace:
        assert isinstance(workspace, WorkspaceFS)


async def test_machines_see_each_others_changes(stored: Callable[[], Any]) -> None:
    """At once, and one of several that write on the same version wins."""
    here, there = StoredWorkspace(stored(), "desk"), StoredWorkspace(stored(), "desk")
    old = await here.write("a.txt", b"one")
    assert (await there.read("a.txt")).data == b"one"
    await there.write("a.txt", b"two", if_match=old)
    assert (await here.read("a.txt")).data == b"two"
    with pytest.raises(WorkspaceConflict):
        await here.write("a.txt", b"three", if_match=old)
    await asyncio.gather(*(each.write(f"f/{n}", b"x") for n in range(5) for each in (here, there)))
    assert [entry.path.name for entry in await here.list("f")] == ["0", "1", "2", "3", "4"]
    assert await StoredWorkspace(stored(), "other").list() == ()


async def test_large_files_are_read_in_parts(stored: Callable[[], Any]) -> None:
    """A part is what it is in the whole, wherever pieces begin and end; what was replaced is not kept."""
    workspace, data = StoredWorkspace(stored(), "large"), bytes(range(256)) * 10_000
    await workspace.write("big", data)
    for offset, limit in (
        (0, None),
        (1_048_575, 2),
        (1_048_576, 1),
        (2_000_000, 10**9),
        (2_560_000, 5),
        (100, 2_000_000),
    ):
        found = await workspace.read("big", offset=offset, limit=limit)
        assert found.data == data[offset:][: limit if limit is not None else None]
    assert await blobs_of(stored()) == 1 + 3
    await workspace.write("big", b"small")
    await workspace.move("big", "b")
    assert await blobs_of(stored()) == 1 + 1
    await workspace.delete("b")
    assert await blobs_of(stored()) == 1


async def test_who_reads_a_file_that_is_replaced_gets_the_new_one(stored: Callable[[], Any]) -> None:
    """The tree is looked at again; a content that is really gone is an error and no empty file."""
    store = stored()
    workspace, other = StoredWorkspace(store, "w"), StoredWorkspace(stored(), "w")
    await workspace.write("a.txt", b"old")

    class Slow:
        """The store, but somebody replaces the file between the look at the tree and the look at the content."""

        replaced = False

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def get_blobs(self, space: str, names: Sequence[str]) -> Any:
            if not self.replaced:
                self.replaced = True
                await other.write("a.txt", b"new")
            return await store.get_blobs(space, names)

    slow: Any = Slow()
    assert (await StoredWorkspace(slow, "w").read("a.txt")).data == b"new"
    tree = await other._tree()  # type: ignore[reportPrivateUsage]
    (node,) = tree.files.values()
    await store.delete_blobs(other._space, [f"{node.content}/0"])  # type: ignore[reportPrivateUsage]
    with pytest.raises(WorkspaceError, match="missing"):
        await other.read("a.txt")


async def test_a_search_asks_for_many_files_at_once(stored: Callable[[], Any]) -> None:
    """A request a file, or two, would make a search of hundreds take seconds; what it finds is the same."""
    store, asked = stored(), list[str]()

    class Counting:
        """The store, and what it is asked."""

        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(store, name)

    counting: Any = Counting()
    workspace = StoredWorkspace(counting, "w")
    sizes = {"large": 9_000_000, "middle": 3_000_000, "empty": 0}
    files = {f"d{n % 2}/{n}.txt": b"needle" if n % 50 == 0 else b"hay" for n in range(250)}
    files |= {f"z/{name}": b"x" * size + b"needle" * bool(size) for name, size in sizes.items()}
    for path, data in files.items():
        await workspace.write(path, data)
    asked.clear()
    result = await search_text(workspace, "needle")
    assert {str(match.path) for match in result.matches} == {path for path, data in files.items() if b"needle" in data}
    assert len(asked) < 50, asked
    asked.clear()
    assert (await search_text(workspace, "nothing")).matches == ()
    assert len(asked) < 20, asked


async def test_a_write_that_is_refused_leaves_nothing(stored: Callable[[], Any]) -> None:
    """Neither in the tree nor beside it, also where somebody else was faster after the first look."""
    workspace = StoredWorkspace(stored(), "w")
    await workspace.write("a.txt", b"x")
    before = await blobs_of(stored())
    with pytest.raises(FileExistsError):
        await workspace.write("a.txt", b"y", create_only=True)
    done = await asyncio.gather(
        *(workspace.write("b", b"%d" % n, create_only=True) for n in range(6)), return_exceptions=True
    )
    assert sum(isinstance(each, str) for each in done) == 1
    assert await blobs_of(stored()) == before + 1


async def test_a_cancelled_write_has_happened_or_not(stored: Callable[[], Any]) -> None:
    """Nothing happens later, and no task is left."""
    workspace = StoredWorkspace(stored(), "w")
    await workspace.list()
    task = asyncio.ensure_future(workspace.write("a.txt", b"x" * 3_000_000))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(asyncio.all_tasks()) <= 2  # this one, and what keeps the store's connections
    assert (await workspace.read("a.txt")).size == 3_000_000


async def test_two_users_never_see_each_other(stored: Callable[[], Any]) -> None:
    """Through an agent, whose tools and materials are those of its user."""
    store = stored()
    model = ScriptedModel([calls(("c1", "write_file", '{"path": "n/a.txt", "content": "needle"}')), "kept"])
    builder = HarnessAgent.builder(name="a", model=model, workspace=StoredWorkspace(store, "w"), state_store=store)
    alice, bob = (RuntimeContext(user_id=name, session_id="s") for name in ("alice", "bob"))
    async with builder.build() as agent:
        assert "execute" not in agent.options.all_tools.names
        await agent.call("Keep it.", alice)
        assert [str(entry.path) for entry in await agent.files(alice).list()] == ["n"]
        assert await agent.files(bob).list() == ()
    everything = SessionFiles(workspace=StoredWorkspace(stored(), "w"), isolation=IsolationScope.USER)
    assert (await everything.of(agent.options.key_of(alice)).read("n/a.txt")).data == b"needle"


@pytest.mark.parametrize("name", ["", "\n", "x" * 600])
def test_a_name_is_an_identifier(name: str, tmp_path: Path) -> None:
    """Nothing else becomes a key."""
    with pytest.raises(InvalidIdentifier):
        StoredWorkspace(SqlStore(f"sqlite:///{tmp_path}/x.db"), name)


async def test_a_store_that_does_not_answer(tmp_path: Path) -> None:
    """It is an error that names the store, and not an empty workspace."""
    workspace = StoredWorkspace(RedisStore(f"unix://{tmp_path}/nothing", timeout=1), "w")
    with pytest.raises(StoreUnavailable):
        await workspace.list()
