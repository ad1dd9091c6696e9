"""The suite for workspaces finds what is wrong with a workspace, and names the rule."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import pytest

from agentscope_rx.errors import ConformanceFailed, PathRefused
from agentscope_rx.testing import check_workspace
from agentscope_rx.testing import workspace_conformance as module
from agentscope_rx.workspace import FileContent, FileStat, InMemoryWorkspace, WorkspaceFS, WorkspacePath

Path = str | WorkspacePath


def making(
    make: Callable[[Mapping[str, bytes]], WorkspaceFS],
) -> Callable[[Mapping[str, bytes]], AbstractAsyncContextManager[WorkspaceFS]]:
    @asynccontextmanager
    async def made(files: Mapping[str, bytes]) -> AsyncGenerator[WorkspaceFS]:
        yield make(files)

    return made


class Texts(InMemoryWorkspace):
    """Takes bytes for text."""

    async def read(self, path: Path, *, offset: int = 0, limit: int | None = None) -> FileContent:
        found = await super().read(path, offset=offset, limit=limit)
        return replace(found, data=found.data.decode("utf-8", "replace").encode())


class Whole(InMemoryWorkspace):
    """Gives parts the version of the whole."""

    async def read(self, path: Path, *, offset: int = 0, limit: int | None = None) -> FileContent:
        found = await super().read(path, offset=offset, limit=limit)
        return replace(found, version=(await super().read(path)).version)


class Obliging(InMemoryWorkspace):
    """Has an empty list where nothing is."""

    async def list(self, path: Path = ".") -> tuple[FileStat, ...]:
        try:
            return await super().list(path)
        except FileNotFoundError:
            return ()


class Counting(InMemoryWorkspace):
    """Has another version for each write, whatever was written."""

    writes = 0

    async def write(self, path: Path, data: bytes, *, if_match: str | None = None, create_only: bool = False) -> str:
        await super().write(path, data, if_match=if_match, create_only=create_only)
        self.writes += 1
        return f"v{self.writes}"


class Overwriting(InMemoryWorkspace):
    async def write(self, path: Path, data: bytes, *, if_match: str | None = None, create_only: bool = False) -> str:
        return await super().write(path, data, create_only=create_only)


class Recreating(InMemoryWorkspace):
    async def write(self, path: Path, data: bytes, *, if_match: str | None = None, create_only: bool = False) -> str:
        return await super().write(path, data, if_match=if_match, create_only=create_only and if_match is not None)


class Hasty(InMemoryWorkspace):
    """Looks, and then writes."""

    async def write(self, path: Path, data: bytes, *, if_match: str | None = None, create_only: bool = False) -> str:
        if if_match is None or str(path) != "a.txt" or create_only or (await self.stat(path)).version != if_match:
            return await super().write(path, data, if_match=if_match, create_only=create_only)
        await asyncio.sleep(0)
        return await super().write(path, data)


class Recursive(InMemoryWorkspace):
    """Deletes a directory with all that is in it."""

    async def delete(self, path: Path, *, if_match: str | None = None) -> None:
        try:
            await super().delete(path, if_match=if_match)
        except OSError as error:
            if not error.strerror or "empty" not in error.strerror.lower():
                raise
            for entry in await self.list(path):
                await self.delete(entry.path)
            await super().delete(path)


class Copying(InMemoryWorkspace):
    """Leaves behind what it moves."""

    async def move(self, path: Path, to: Path, *, if_match: str | None = None) -> None:
        kept = await self.read(path)
        await super().move(path, to, if_match=if_match)
        await self.write(path, kept.data)


class Careless(InMemoryWorkspace):
    """Deletes whatever version there is."""

    async def delete(self, path: Path, *, if_match: str | None = None) -> None:
        await super().delete(path)


class Slow(InMemoryWorkspace):
    """Looks whether the place is free, and moves a moment later."""

    async def move(self, path: Path, to: Path, *, if_match: str | None = None) -> None:
        try:
            await self.stat(to)
        except (FileNotFoundError, NotADirectoryError, PathRefused):
            await asyncio.sleep(0)
            try:
                await super().move(path, to, if_match=if_match)
            except FileExistsError:
                await super().delete(to)
                await super().move(path, to, if_match=if_match)
        else:
            await super().move(path, to, if_match=if_match)


class Unsorted(InMemoryWorkspace):
    async def list(self, path: Path = ".") -> tuple[FileStat, ...]:
        found = await super().list(path)
        return tuple(sorted(found, key=lambda entry: entry.path.name.lower())) if str(path) == "order" else found


class Timeless(InMemoryWorkspace):
    async def stat(self, path: Path) -> FileStat:
        return replace(await super().stat(path), modified=0.0)


class Literal(InMemoryWorkspace):
    """Resolves to nothing that is not there."""

    async def resolve(self, path: Path) -> WorkspacePath:
        resolved = await super().resolve(path)
        if str(resolved) == "such/file":
            return await super().resolve("such")
        return resolved


class Trusting(InMemoryWorkspace):
    """Takes a path that leads above the root for one below it."""

    async def stat(self, path: Path) -> FileStat:
        return await super().stat("a.txt" if str(path) == "../a.txt" else path)


class Failing(InMemoryWorkspace):
    async def read(self, path: Path, *, offset: int = 0, limit: int | None = None) -> FileContent:
        raise RuntimeError("broken")


BROKEN = [
    (Failing, "a verb raised what no rule allows: RuntimeError"),
    (Texts, r"read\('z/.*returns what was stored"),
    (Whole, "a part has no version"),
    (Obliging, r"list\('nothing'\) finds nothing"),
    (Counting, "write returns the version that read returns"),
    (Overwriting, "matches nothing"),
    (Recreating, "create_only refuses a file that exists"),
    (Hasty, "of writers that expect one version, one wins"),
    (Recursive, "a directory that holds something is not deleted"),
    (Copying, "what was moved is not left behind"),
    (Careless, "is not deleted"),
    (Slow, "of those who move to one path, one wins"),
    (Unsorted, "names are sorted by their code points"),
    (Timeless, "stat tells the time"),
    (Literal, r"resolve\('no/../such/file'\) is 'such/file'"),
    (Trusting, r"stat\('../a.txt'\) is refused"),
]


@pytest.mark.parametrize(("broken", "rule"), BROKEN, ids=[broken.__name__ for broken, _ in BROKEN])
async def test_a_workspace_that_breaks_a_rule_is_found(broken: type[InMemoryWorkspace], rule: str) -> None:
    """Each is found, and the rule that it does not keep is named."""
    with pytest.raises(ConformanceFailed, match=rule):
        await check_workspace(making(broken))


def test_every_rule_is_broken_by_some_workspace() -> None:
    """One for each check of the suite, and one that fails altogether."""
    assert len(BROKEN) == len(module._CHECKS) + 1  # type: ignore[reportPrivateUsage]
