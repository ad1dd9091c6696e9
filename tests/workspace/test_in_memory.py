"""The workspace in memory keeps every rule of the protocol."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from agentscope_rx.errors import FileTooLarge, InvalidOption, PathRefused, WorkspaceError
from agentscope_rx.testing.workspace_conformance import check_workspace
from agentscope_rx.workspace import InMemoryWorkspace, WorkspaceFS


@asynccontextmanager
async def in_memory(files: Mapping[str, bytes]) -> AsyncGenerator[WorkspaceFS]:
    yield InMemoryWorkspace(files)


class FixedClock:
    def now(self) -> datetime:
        return datetime(2030, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0


async def test_it_conforms() -> None:
    """InMemoryWorkspace does what every workspace must do."""
    await check_workspace(in_memory)
    assert isinstance(InMemoryWorkspace(), WorkspaceFS)


async def test_text_is_stored_as_utf_8() -> None:
    """Initial files may be given as text."""
    workspace = InMemoryWorkspace({"./a//b.txt": "ü"})
    assert (await workspace.read("a/b.txt")).data == "ü".encode()


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ({"../a": ""}, PathRefused),
        ({".agentscope-runtime/log": ""}, PathRefused),
        ({"a": "", "a/b": ""}, NotADirectoryError),
        ({"a/b": "", "a": ""}, IsADirectoryError),
    ],
)
def test_initial_files_must_be_possible(files: dict[str, str | bytes], error: type[Exception]) -> None:
    """A tree that no disk could hold is refused where it is given."""
    with pytest.raises(error):
        InMemoryWorkspace(files)


async def test_instances_are_separate() -> None:
    """Nothing is shared between two workspaces."""
    one, two = InMemoryWorkspace(), InMemoryWorkspace()
    await one.write("a", b"1")
    assert await two.list() == ()


async def test_read_only() -> None:
    """A read-only workspace changes nothing."""
    workspace = InMemoryWorkspace({"a": "1"}, read_only=True)
    for change in (workspace.write("a", b"2"), workspace.delete("a"), workspace.move("a", "b")):
        with pytest.raises(WorkspaceError, match="read-only"):
            await change
    assert (await workspace.read("a")).data == b"1"


async def test_max_read_bytes() -> None:
    """More than the limit is never returned: all of it is an error, a part is cut."""
    workspace = InMemoryWorkspace({"a": "12345"}, max_read_bytes=4)
    with pytest.raises(FileTooLarge):
        await workspace.read("a")
    part = await workspace.read("a", limit=99)
    assert (part.data, part.size, part.version) == (b"1234", 5, None)
    assert (await workspace.read("a", offset=1)).data == b"2345"
    assert (await workspace.stat("a")).version is None
    with pytest.raises(InvalidOption):
        InMemoryWorkspace(max_read_bytes=0)


async def test_times_come_from_the_given_clock() -> None:
    """A recording's clock gives the times of changes, so that a replay sees the same ones."""
    workspace = InMemoryWorkspace({"a/b": "1"}, clock=FixedClock())
    await workspace.write("a/c", b"2")
    times = {(await workspace.stat(path)).modified for path in (".", "a", "a/b", "a/c")}
    assert times == {datetime(2030, 1, 1, tzinfo=UTC).timestamp()}
