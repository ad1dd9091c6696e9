"""Workspaces of all families, for the tests of what is made of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from tempfile import TemporaryDirectory

from agentscope_rx.stores import SqlStore
from agentscope_rx.testing.workspace_conformance import MakeWorkspace
from agentscope_rx.workspace import InMemoryWorkspace, LocalWorkspace, StoredWorkspace, WorkspaceFS
from tests.buckets import Bucket, in_memory


@asynccontextmanager
async def memory(files: Mapping[str, bytes]) -> AsyncGenerator[WorkspaceFS]:
    """In memory."""
    yield InMemoryWorkspace(files)


@asynccontextmanager
async def disk(files: Mapping[str, bytes]) -> AsyncGenerator[WorkspaceFS]:
    """In a folder."""
    with TemporaryDirectory() as folder:
        yield await filled(LocalWorkspace(folder), files)


@asynccontextmanager
async def stored(files: Mapping[str, bytes]) -> AsyncGenerator[WorkspaceFS]:
    """In a database."""
    with TemporaryDirectory() as folder:
        yield await filled(StoredWorkspace(SqlStore(f"sqlite:///{folder}/files.db"), "desk"), files)


def at(place: Callable[[], Bucket]) -> MakeWorkspace:
    """At fresh places of fsspec."""

    @asynccontextmanager
    async def make(files: Mapping[str, bytes]) -> AsyncGenerator[WorkspaceFS]:
        yield await filled(place().workspace(), files)

    return make


fsspec = at(in_memory)


async def filled(workspace: WorkspaceFS, files: Mapping[str, bytes]) -> WorkspaceFS:
    """The workspace, with these files in it."""
    for path, data in files.items():
        await workspace.write(path, data)
    return workspace


class Plain:
    """A workspace that can do nothing but what the protocol says: each folder is listed, and each file read."""

    def __init__(self, inner: WorkspaceFS) -> None:
        self.resolve, self.read, self.write = inner.resolve, inner.read, inner.write
        self.list, self.stat, self.delete, self.move = inner.list, inner.stat, inner.delete, inner.move
