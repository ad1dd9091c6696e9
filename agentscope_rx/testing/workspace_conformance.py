"""What every workspace must do, as a check that any test framework can run.

@asynccontextmanager
async def make(files: Mapping[str, bytes]) -> AsyncGenerator[WorkspaceFS]:
    yield MyWorkspace(files)

await check_workspace(make)
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from agentscope_rx.errors import ConformanceFailed, InvalidOption, PathRefused, WorkspaceConflict
from agentscope_rx.testing._rules import refused, require
from agentscope_rx.workspace.filesystem import FileKind, WorkspaceFS

MakeWorkspace: TypeAlias = Callable[[Mapping[str, bytes]], AbstractAsyncContextManager[WorkspaceFS]]
"""Makes a fresh workspace that holds these files and no others, and clears it away afterwards."""

_FILES = {"a.txt": b"alpha", "dir/b.txt": b"beta\n", "dir/sub/empty": b"", "z/ünï 会话.txt": b"\x00\xff"}

_REFUSED = (
    *("", "  ", "..", "../a.txt", "dir/../../a.txt", "/a.txt", "/", "//etc", "~", "~/a.txt", "~root", " /x/.."),
    *("a\0.txt", "a\nb", "a\x7f", "\x85", "a\u2028b", "\ud83d", "a\udcb2b"),
    *("C:/a.txt", "c:a.txt", "C:\\a.txt", "dir\\b.txt", "..\\a.txt"),
    *("n" * 256, "é" * 128, "d/" * 3000 + "x"),
    *(".agentscope-runtime", ".agentscope-runtime/log", "dir/../.AgentScope-Runtime/x"),
    *("dir/.agentscope-runtime/x", ".agentscope-\u200druntime", ".agent\u017fcope-runtime"),
    *(".agentscope-tmp-0123", "dir/.AGENTSCOPE-TMP-x"),
)


async def check_workspace(make: MakeWorkspace) -> None:
    """Check one implementation of `WorkspaceFS` against every rule of the protocol.

    Args:
        make: Makes the workspace that is checked, once for each rule.

    Raises:
        ConformanceFailed: With the first rule that is not kept.

    Examples:
        >>> await check_workspace(make)  # no answer is a good answer
    """
    for check in _CHECKS:
        async with make(_FILES) as workspace:
            await _hold(check, workspace)


async def _hold(check: Callable[[WorkspaceFS], Awaitable[None]], workspace: WorkspaceFS) -> None:
    try:
        await check(workspace)
    except ConformanceFailed:
        raise
    except Exception as error:
        raise ConformanceFailed(f"a verb raised what no rule allows: {error!r}") from error


async def _reads_whole_files(workspace: WorkspaceFS) -> None:
    for path, data in _FILES.items():
        content = await workspace.read(path)
        require((content.data, content.size) == (data, len(data)), f"read({path!r}) returns what was stored")
        require(str(content.path) == path, "the content says which file it is")
        require(bool(content.version), "a whole content has a version")
    spelled = await workspace.read("./dir//x/../b.txt/")
    require((spelled.data, str(spelled.path)) == (b"beta\n", "dir/b.txt"), "paths are normalised by their text")


async def _reads_parts(workspace: WorkspaceFS) -> None:
    part = await workspace.read("a.txt", offset=1, limit=3)
    require((part.data, part.size) == (b"lph", 5), "offset and limit are bytes, and size is that of the file")
    require(part.version is None, "a part has no version")
    for offset, limit, expected in ((3, None, b"ha"), (5, None, b""), (10**30, 10**30, b""), (0, 0, b"")):
        found = (await workspace.read("a.txt", offset=offset, limit=limit)).data
        require(found == expected, f"read(offset={offset}, limit={limit}) returns {expected!r}")
    whole, plain = await workspace.read("a.txt", limit=99), await workspace.read("a.txt")
    require(whole == plain, "a limit that is not reached makes no difference")
    for offset, limit in ((-1, None), (0, -1)):
        with refused(InvalidOption, "negative numbers are refused"):
            await workspace.read("a.txt", offset=offset, limit=limit)


async def _says_what_is_missing(workspace: WorkspaceFS) -> None:
    for path in ("nothing", "dir/nothing", "no/such/dir"):
        for verb in (workspace.read, workspace.list, workspace.stat):
            with refused(FileNotFoundError, f"{verb.__name__}({path!r}) finds nothing"):
                await verb(path)
    for path in ("dir", "."):
        with refused(IsADirectoryError, f"read({path!r}) is told that it is a directory"):
            await workspace.read(path)
        with refused(IsADirectoryError, f"write({path!r}) is told that it is a directory"):
            await workspace.write(path, b"x")
    with refused(NotADirectoryError, "list of a file is refused"):
        await workspace.list("a.txt")
    for verb in (workspace.read, workspace.list, workspace.stat, workspace.resolve):
        with refused(NotADirectoryError, f"{verb.__name__} of something below a file is refused"):
            await verb("a.txt/below")
    with refused(NotADirectoryError, "nothing is written below a file"):
        await workspace.write("a.txt/below", b"x")


async def _writes(workspace: WorkspaceFS) -> None:
    for path, data in (("a.txt", b"new"), ("new/deep/f", bytes(range(256)) * 999), ("empty", b"")):
        version = await workspace.write(path, data)
        content = await workspace.read(path)
        require(content.data == data, f"what was written to {path!r} is read back")
        require(content.version == version, "write returns the version that read returns")
    require((await workspace.stat("new/deep")).kind is FileKind.DIRECTORY, "directories above are made")
    first, second = await workspace.write("one", b"same"), await workspace.write("two", b"same")
    require(first == second, "equal contents have equal versions")
    require(first != await workspace.write("two", b"diff"), "different contents have different versions")


async def _writes_if_match(workspace: WorkspaceFS) -> None:
    old = (await workspace.read("a.txt")).version
    new = await workspace.write("a.txt", b"beta", if_match=old)
    for path, data in (("a.txt", b"beta"), ("nothing", None), ("no/such/dir", None)):
        with refused(WorkspaceConflict, f"a version that is gone from {path!r} matches nothing"):
            await workspace.write(path, b"lost", if_match=old)
        if data is None:
            with refused(FileNotFoundError, "a refused write leaves nothing behind"):
                await workspace.stat(path.split("/")[0])
        else:
            require((await workspace.read(path)).data == data, "a refused write changes nothing")
    await workspace.write("a.txt", b"alpha", if_match=new)
    with refused(InvalidOption, "create_only and if_match contradict each other"):
        await workspace.write("a.txt", b"x", if_match=old, create_only=True)


async def _writes_once(workspace: WorkspaceFS) -> None:
    await workspace.write("new/file", b"first", create_only=True)
    with refused(FileExistsError, "create_only refuses a file that exists"):
        await workspace.write("new/file", b"second", create_only=True)
    require((await workspace.read("new/file")).data == b"first", "a refused write changes nothing")
    with refused(IsADirectoryError, "create_only refuses a directory"):
        await workspace.write("dir", b"x", create_only=True)


async def _lets_one_writer_win(workspace: WorkspaceFS) -> None:
    old = (await workspace.read("a.txt")).version
    texts = [b"%d" % number for number in range(16)]
    done = await asyncio.gather(
        *(workspace.write("a.txt", text, if_match=old) for text in texts), return_exceptions=True
    )
    won = [text for text, answer in zip(texts, done, strict=True) if isinstance(answer, str)]
    lost = [answer for answer in done if isinstance(answer, WorkspaceConflict)]
    require((len(won), len(lost)) == (1, 15), f"of writers that expect one version, one wins: {done}")
    require((await workspace.read("a.txt")).data == won[0], "the content is the winner's")
    done = await asyncio.gather(
        *(workspace.write("fresh", text, create_only=True) for text in texts), return_exceptions=True
    )
    require(sum(isinstance(answer, str) for answer in done) == 1, "of writers that create, one wins")


async def _deletes(workspace: WorkspaceFS) -> None:
    await workspace.delete("./dir//b.txt")
    with refused(FileNotFoundError, "what was deleted is gone"):
        await workspace.stat("dir/b.txt")
    found = [str(entry.path) for entry in await workspace.list("dir")]
    require(found == ["dir/sub"], f"what was deleted is not listed: {found}")
    with refused(OSError, "a directory that holds something is not deleted", errno.ENOTEMPTY):
        await workspace.delete("dir")
    for path in ("dir/sub/empty", "dir/sub", "dir"):
        await workspace.delete(path)
    found = [str(entry.path) for entry in await workspace.list()]
    require(found == ["a.txt", "z"], f"an empty directory is deleted like a file: {found}")
    for path in ("nothing", "no/such/dir", "dir"):
        with refused(FileNotFoundError, f"delete({path!r}) finds nothing"):
            await workspace.delete(path)
    with refused(NotADirectoryError, "delete of something below a file is refused"):
        await workspace.delete("a.txt/below")
    for path in (".", "dir/.."):
        with refused(PathRefused, "the root is not deleted"):
            await workspace.delete(path)
    await workspace.write("dir/b.txt", b"again")
    require((await workspace.read("dir/b.txt")).data == b"again", "what was deleted can be written again")


async def _moves(workspace: WorkspaceFS) -> None:
    before = await workspace.read("dir/b.txt")
    await workspace.move("dir/b.txt", "new/deep/c.txt")
    after = await workspace.read("new/deep/c.txt")
    require((after.data, after.version) == (before.data, before.version), "move changes no content")
    found = [str(entry.path) for entry in await workspace.list("dir")]
    require(found == ["dir/sub"], f"what was moved is not left behind: {found}")
    tree = await _tree(workspace, ".")
    for to in ("new/deep/c.txt", "dir", ".", "a.txt"):
        with refused(FileExistsError, f"nothing is moved over {to!r}"):
            await workspace.move("a.txt", to)
    for path in ("nothing", "no/such/dir"):
        with refused(FileNotFoundError, f"move({path!r}) finds nothing"):
            await workspace.move(path, "other/place")
    with refused(IsADirectoryError, "directories are not moved"):
        await workspace.move("dir", "other/place")
    with refused(PathRefused, "the root is not moved"):
        await workspace.move(".", "other/place")
    for path, to in (("a.txt/below", "other/place"), ("a.txt", "a.txt/below"), ("a.txt", "new/deep/c.txt/below")):
        with refused(NotADirectoryError, f"move({path!r}, {to!r}) names something below a file"):
            await workspace.move(path, to)
    require(await _tree(workspace, ".") == tree, "a refused move changes and makes nothing")


async def _takes_away_if_match(workspace: WorkspaceFS) -> None:
    old = (await workspace.read("a.txt")).version
    new = await workspace.write("a.txt", b"beta")
    for path in ("a.txt", "nothing", "no/such/dir"):
        with refused(WorkspaceConflict, f"a version that is gone from {path!r} is not deleted"):
            await workspace.delete(path, if_match=old)
        with refused(WorkspaceConflict, f"a version that is gone from {path!r} is not moved"):
            await workspace.move(path, "other/place", if_match=old)
    with refused(IsADirectoryError, "a directory has no version to match"):
        await workspace.delete("dir", if_match=old)
    with refused(FileNotFoundError, "a refused move makes nothing"):
        await workspace.stat("other")
    require((await workspace.read("a.txt")).data == b"beta", "a refused change changes nothing")
    await workspace.move("a.txt", "other/place", if_match=new)
    await workspace.delete("other/place", if_match=new)


async def _lets_one_taker_win(workspace: WorkspaceFS) -> None:
    for number in range(8):
        await workspace.write(f"from/{number}", b"%d" % number)
    moves = [workspace.move(f"from/{number}", "to/one") for number in range(8)]
    done = await asyncio.gather(*moves, return_exceptions=True)
    lost = sum(isinstance(answer, FileExistsError) for answer in done)
    require((done.count(None), lost) == (1, 7), f"of those who move to one path, one wins: {done}")
    left = len(await workspace.list("from"))
    require(left == 7, f"who loses keeps the file: {left} of 7 are left")
    done = await asyncio.gather(*(workspace.delete("to/one") for _ in range(8)), return_exceptions=True)
    lost = sum(isinstance(answer, FileNotFoundError) for answer in done)
    require((done.count(None), lost) == (1, 7), f"of those who delete one file, one does: {done}")


async def _lists(workspace: WorkspaceFS) -> None:
    found = [(str(entry.path), entry.kind, entry.size) for entry in await workspace.list()]
    directory, file = FileKind.DIRECTORY, FileKind.FILE
    expected = [("a.txt", file, 5), ("dir", directory, 0), ("z", directory, 0)]
    require(found == expected, f"list() returns the entries of the root by name, not {found}")
    found = [str(entry.path) for entry in await workspace.list("./dir")]
    require(found == ["dir/b.txt", "dir/sub"], f"entries of a directory have its path, unlike {found}")
    for name in ("B", "a-", "a", "b"):
        await workspace.write(f"order/{name}", b"")
    found = [entry.path.name for entry in await workspace.list("order")]
    require(found == ["B", "a", "a-", "b"], f"names are sorted by their code points, and only written: {found}")
    listed = [entry for entry in await workspace.list("z") if entry.version is not None or entry.link]
    require(not listed, "a listing reads no file, and what is no link is none")


async def _looks_at_one(workspace: WorkspaceFS) -> None:
    for path in ("a.txt", "dir/sub/empty"):
        stat, content = await workspace.stat(path), await workspace.read(path)
        require((str(stat.path), stat.kind) == (path, FileKind.FILE), "stat tells path and kind")
        require((stat.size, stat.version) == (content.size, content.version), "stat agrees with read")
        require(stat.modified > 0 and not stat.link, "stat tells the time, and what is no link is none")
    for path in (".", "dir"):
        stat = await workspace.stat(path)
        require((stat.kind, stat.version) == (FileKind.DIRECTORY, None), "a directory has no version")


async def _resolves(workspace: WorkspaceFS) -> None:
    for path, expected in (("./dir//b.txt", "dir/b.txt"), ("no/../such/file", "such/file"), (".", ".")):
        resolved = await workspace.resolve(path)
        require(str(resolved) == expected, f"resolve({path!r}) is {expected!r}")
        require(await workspace.resolve(resolved) == resolved, "a resolved path resolves to itself")
    resolved = await workspace.resolve("dir/b.txt")
    require((await workspace.read(resolved)).data == b"beta\n", "a resolved path can be read")


async def _refuses_paths(workspace: WorkspaceFS) -> None:
    before = await _tree(workspace, ".")
    for path in _REFUSED:
        for verb in (workspace.read, workspace.list, workspace.stat, workspace.resolve):
            with refused(PathRefused, f"{verb.__name__}({path[:40]!r}) is refused"):
                await verb(path)
        with refused(PathRefused, f"write({path[:40]!r}) is refused"):
            await workspace.write(path, b"x")
        with refused(PathRefused, f"delete({path[:40]!r}) is refused"):
            await workspace.delete(path)
        with refused(PathRefused, f"move from {path[:40]!r} is refused"):
            await workspace.move(path, "new")
        with refused(PathRefused, f"move to {path[:40]!r} is refused"):
            await workspace.move("a.txt", path)
    require(await _tree(workspace, ".") == before, "what is refused changes nothing")


_CHECKS: tuple[Callable[[WorkspaceFS], Awaitable[None]], ...] = (
    _reads_whole_files,
    _reads_parts,
    _says_what_is_missing,
    _writes,
    _writes_if_match,
    _writes_once,
    _lets_one_writer_win,
    _deletes,
    _moves,
    _takes_away_if_match,
    _lets_one_taker_win,
    _lists,
    _looks_at_one,
    _resolves,
    _refuses_paths,
)


async def _tree(workspace: WorkspaceFS, path: str) -> list[tuple[str, int]]:
    found: list[tuple[str, int]] = []
    for entry in await workspace.list(path):
        found.append((str(entry.path), entry.size))
        if entry.kind is FileKind.DIRECTORY:
            found += await _tree(workspace, str(entry.path))
    return found
