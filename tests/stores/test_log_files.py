"""Logs and leases of a store of files: what a crash leaves, what damage does, and what is deleted."""

from __future__ import annotations

import asyncio
import base64
import errno
import json
import logging
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from agentscope_rx.errors import (
    InvalidOption,
    LeaseLost,
    LogCorrupt,
    StateConflict,
    StateUnreadable,
    StoreUnavailable,
)
from agentscope_rx.stores import JsonFileStore, SessionKey, Stored
from agentscope_rx.stores.folders import Folders, remove
from agentscope_rx.stores.keys import folder_name

KEY = SessionKey(agent_id="a1", user_id="alice", session_id="s1")
RECORDS = [b'{"a":1}', b'"b"', b"\0\n\xff", b'{"c":"\\u0000"}']


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


@pytest.fixture
def store(root: Path) -> JsonFileStore:
    return JsonFileStore(root)


def log_file(root: Path) -> Path:
    (path,) = root.rglob("log.jsonl")
    return path


async def written(store: JsonFileStore, *batches: list[bytes]) -> None:
    seq = 0
    for batch in batches:
        seq = await store.append(KEY, batch, expected_seq=seq)


# -- lines ------------------------------------------------------------------------------------------------------


async def test_a_line_is_json_that_shows_the_record(store: JsonFileStore, root: Path) -> None:
    """Each line is JSON by itself; a record that is JSON stands in it as it is, another in base64."""
    await written(store, RECORDS)
    lines = [json.loads(line) for line in log_file(root).read_bytes().split(b"\n")[:-1]]
    assert [(line["seq"], line["end"]) for line in lines] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert [line.get("record") for line in lines] == [{"a": 1}, "b", None, {"c": "\0"}]
    assert base64.b64decode(lines[2]["base64"]) == RECORDS[2]


async def test_only_the_owner_reads_a_log(store: JsonFileStore, root: Path) -> None:
    """Log, lease and lock have mode 0600."""
    await written(store, RECORDS)
    await store.acquire(KEY, "me", ttl=60)
    files = [path for path in root.rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["lease.json", "lock", "log.jsonl"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


async def test_the_end_is_found_without_the_beginning(store: JsonFileStore, root: Path) -> None:
    """Reading the newest records, and adding one, look at no line of the beginning."""
    numbers = [b"%d" % number for number in range(10_000)]
    await written(store, numbers)
    with log_file(root).open("r+b") as file:
        file.write(b"damaged")
    assert list(await store.read_after(KEY, 9_990)) == numbers[9_990:]
    assert list(await store.read_after(KEY, 5_000, limit=2)) == numbers[5_000:5_002]
    assert await store.append(KEY, [b"more"], expected_seq=10_000) == 10_001
    with pytest.raises(LogCorrupt):
        await store.read_after(KEY, 0)


# -- crashes ----------------------------------------------------------------------------------------------------


async def test_a_log_that_was_cut_anywhere_goes_on(
    store: JsonFileStore, root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Cut behind any byte, a log has the batches that are whole, says once what it lost, and takes the next (O27)."""
    batches = [[b'{"a":1}'], [b"1", b"\0\n"], [b'"last"']]
    await written(store, *batches)
    path = log_file(root)
    whole = path.read_bytes()
    starts = [0, *(at + 1 for at, byte in enumerate(whole) if byte == 0x0A)]  # of lines
    ends = [starts[1], starts[3], starts[4]]  # of batches
    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        caplog.clear()
        kept = [batch for batch, end in zip(batches, ends, strict=True) if cut >= end - 1]  # but for the newline
        records = [record for batch in kept for record in batch]
        with caplog.at_level(logging.WARNING, "agentscope_rx"):
            for _ in range(2):
                assert list(await store.read_after(KEY, 0)) == records, cut
        good = max((end for end in ends if cut >= end - 1), default=0)
        assert [(r.msg, r.__dict__["file"], r.__dict__["offset"]) for r in caplog.records] == (
            [("log_repaired", str(path), good)] if cut > good else []
        )
        for text in (b"c", b"d"):
            await store.append(KEY, [text], expected_seq=len(records))
            records.append(text)
        assert list(await JsonFileStore(root).read_after(KEY, 0)) == records
        assert all(json.loads(line) for line in path.read_bytes().splitlines())


@pytest.mark.parametrize("content", [b"", b"\n", b"\0" * 512, b'{"seq":1,"end":1,"crc":12', b"nonsense"])
async def test_a_log_without_a_whole_record_is_empty(store: JsonFileStore, root: Path, content: bytes) -> None:
    """What is no line at all was never a record."""
    await written(store, [b"1"])
    log_file(root).write_bytes(content)
    assert list(await store.read_after(KEY, 0)) == []
    assert await store.append(KEY, [b"c"], expected_seq=0) == 1
    assert list(await store.read_after(KEY, 0)) == [b"c"]


async def test_who_expects_what_was_lost_is_told(store: JsonFileStore, root: Path) -> None:
    """A writer that knows a record which the crash took does not write behind it."""
    await written(store, [b"1"], [b"2"])
    path = log_file(root)
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(StateConflict, match="ends with record 1, 2 was expected"):
        await store.append(KEY, [b"3"], expected_seq=2)


@pytest.mark.parametrize("step", ["os.pwrite", "agentscope_rx.stores.file_log._sync"])
async def test_a_write_that_fails_leaves_no_part(
    store: JsonFileStore, root: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A disk that is full in the middle of a batch has nothing of it, and the next batch comes whole."""
    await written(store, [b"1"])
    before, write = log_file(root).read_bytes(), os.pwrite

    def full(descriptor: int, *given: Any) -> int:
        if given:
            write(descriptor, given[0][:20], given[1])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(step, full)
        with pytest.raises(OSError, match="No space left"):
            await store.append(KEY, [b"2", b"3"], expected_seq=1)
    assert log_file(root).read_bytes() == before
    assert await store.append(KEY, [b"2"], expected_seq=1) == 2


async def test_a_write_may_take_several_calls(store: JsonFileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A system that writes less than it was given is asked again."""
    write = os.pwrite

    def slowly(descriptor: int, data: memoryview, offset: int) -> int:
        return write(descriptor, data[:7], offset)

    monkeypatch.setattr(os, "pwrite", slowly)
    await written(store, RECORDS, [b"more"])
    assert list(await store.read_after(KEY, 0)) == [*RECORDS, b"more"]


# -- damage -----------------------------------------------------------------------------------------------------


async def test_damage_before_the_end_is_an_error(store: JsonFileStore, root: Path) -> None:
    """Any changed byte of a line that is not the last is found, named with file and offset, and left as it is."""
    await written(store, [b'{"a":1}'], [b'{"b":2}'], [b"3"])
    path = log_file(root)
    whole = path.read_bytes()
    start = whole.index(b"\n") + 1
    for at in range(start, whole.index(b"\n", start)):
        path.write_bytes(whole[:at] + b"~" + whole[at + 1 :])
        with pytest.raises(LogCorrupt) as caught:
            await store.read_after(KEY, 0)
        assert (caught.value.file, caught.value.offset) == (str(path), start)
        assert path.read_bytes() == whole[:at] + b"~" + whole[at + 1 :]
        assert list(await store.read_after(KEY, 0, limit=1)) == [b'{"a":1}']


async def test_a_damaged_last_line_is_not_cut_off(store: JsonFileStore, root: Path) -> None:
    """A last line that ends was written whole once: damage in it is an error for who reads and who writes."""
    await written(store, [b"1"], [b"22"])
    path = log_file(root)
    path.write_bytes(path.read_bytes().replace(b"22", b"23"))
    damaged = path.read_bytes()
    for verb in (store.read_after(KEY, 0), store.append(KEY, [b"3"], expected_seq=2)):
        with pytest.raises(LogCorrupt):
            await verb
    assert path.read_bytes() == damaged


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"fence":1,"holder":"me"}', b'{"fence":"1","holder":"me","until":1}']
)
async def test_a_lease_that_cannot_be_read_is_an_error(store: JsonFileStore, root: Path, content: bytes) -> None:
    """Nobody gets a session whose lease cannot be read, and nobody writes under one."""
    lease = await store.acquire(KEY, "me", ttl=60)
    (path,) = root.rglob("lease.json")
    path.write_bytes(content)
    for verb in (
        store.acquire(KEY, "me", ttl=60),
        store.put(KEY, b"{}", expected_version=0, fence=lease.fence),
        store.prune(untouched_for=0),
    ):
        with pytest.raises(StateUnreadable, match=r"lease\.json is no lease"):
            await verb
    assert path.read_bytes() == content


# -- folders ----------------------------------------------------------------------------------------------------


async def test_a_deleted_session_leaves_no_folder(store: JsonFileStore, root: Path) -> None:
    """Neither the session's folder nor that of a user without others is left; what others have is."""
    bob = SessionKey(agent_id="a1", user_id="bob", session_id="s1")
    for key in (KEY, bob):
        await store.append(key, [b"1"], expected_seq=0)
    await store.delete(KEY)
    assert [path.name for path in (root / "agents" / folder_name("a1") / "sessions").iterdir()] == [folder_name("bob")]
    assert list(await store.list()) == [bob]


async def test_what_a_crash_left_of_a_deleted_session_is_none(store: JsonFileStore, root: Path) -> None:
    """The rest of a session that was being deleted is neither listed nor read, and the next pruning removes it."""
    await written(store, [b"1"])
    folder = log_file(root).parent
    left = folder.rename(folder.with_name(".deleted-x"))
    assert list(await store.list()) == []
    assert list(await store.read_after(KEY, 0)) == []
    assert await store.prune(untouched_for=3600) == 0
    assert not left.exists()


async def test_long_ids_are_listed_whole(store: JsonFileStore) -> None:
    """Ids that are too long to be read back from the name of a folder are kept beside it."""
    key = SessionKey(agent_id="a" * 512, user_id="ü" * 300, session_id="s" * 94)
    await store.append(key, [b"1"], expected_seq=0)
    assert list(await store.list(agent_id=key.agent_id, user_id=key.user_id)) == [key]
    assert await store.delete(key)
    assert list(await store.list()) == []


async def test_who_waits_for_a_session_that_is_deleted_begins_it_anew(store: JsonFileStore, root: Path) -> None:
    """A writer that waits for the lock of a folder that is deleted meanwhile does not write into its grave."""
    await store.put(KEY, b"1", expected_version=0)
    folders, waiting, deleted = Folders(root), threading.Event(), threading.Event()

    def hold_and_delete() -> None:
        with folders.locked(KEY) as folder:
            waiting.set()
            assert deleted.wait(timeout=30)
            remove(folder)

    holder = asyncio.create_task(asyncio.to_thread(hold_and_delete))
    await asyncio.to_thread(waiting.wait)
    writer = asyncio.create_task(store.put(KEY, b"2", expected_version=0))
    await asyncio.wait({writer}, timeout=0.05)  # it waits for the lock
    deleted.set()
    await holder
    assert await writer == 1
    assert await store.get(KEY) == Stored(b"2", 1)


async def test_a_lock_that_is_never_released_is_not_waited_for_ever(store: JsonFileStore, root: Path) -> None:
    """Where a process was stopped in the middle of its work, others say so in time, and write nothing."""
    await written(store, [b"1"])
    hasty = JsonFileStore(root, timeout=0.05)
    with Folders(root).locked(KEY):
        for verb in (
            hasty.append(KEY, [b"2"], expected_seq=1),
            hasty.acquire(KEY, "me", ttl=1),
            hasty.put(KEY, b"x", expected_version=0),
            hasty.read_after(KEY, 0),
        ):
            with pytest.raises(StoreUnavailable, match="was locked by another process for 0.05 s"):
                await verb
    assert await store.read_after(KEY, 0) == (b"1",)
    with pytest.raises(InvalidOption, match="timeout"):
        JsonFileStore(root, timeout=0)


@pytest.mark.parametrize(("number", "warned"), [(errno.ENOTEMPTY, []), (errno.EACCES, ["user_folder_kept"])])
async def test_the_folder_of_a_user_that_stays(
    store: JsonFileStore,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    warned: list[str],
) -> None:
    """The session is deleted either way. That the user has others is usual; any other reason is a warning."""

    def refuse(path: Path) -> None:
        raise OSError(number, "no")

    await written(store, [b"1"])
    monkeypatch.setattr(Path, "rmdir", refuse)
    with caplog.at_level(logging.WARNING, "agentscope_rx"):
        assert await store.delete(KEY)
    assert [record.msg for record in caplog.records] == warned
    assert list(await store.read_after(KEY, 0)) == []


async def test_a_lock_of_another_folder_is_none(
    store: JsonFileStore, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a session is deleted and begun anew between look and lock, the lock is taken again, of the new folder."""
    await written(store, [b"1"])
    folder, acquire, locks = log_file(root).parent, FileLock.acquire, list[FileLock]()

    def swapped(lock: FileLock, **options: Any) -> Any:
        locks.append(lock)
        if len(locks) == 1:
            folder.rename(folder.with_name(".deleted-x"))
            folder.mkdir()
        return acquire(lock, **options)

    monkeypatch.setattr(FileLock, "acquire", swapped)
    assert await store.append(KEY, [b"2"], expected_seq=0) == 1
    assert [lock.is_locked for lock in locks] == [False, False]
    assert len(locks) == 2


async def test_an_old_session_is_pruned_by_the_time_of_its_files(store: JsonFileStore, root: Path) -> None:
    """What was last written long ago is old; what was written since is not, whichever of its files that was."""
    other = SessionKey(agent_id="a1", user_id=None, session_id="s1")
    for key in (KEY, other):
        await store.put(key, b"{}", expected_version=0)
        await store.append(key, [b"1"], expected_seq=0)
    for path in root.rglob("*.json*"):
        os.utime(path, (1_000, 1_000))
    await store.append(other, [b"2"], expected_seq=1)
    assert await store.prune(untouched_for=3600) == 1
    assert list(await store.list()) == [other]


@pytest.mark.parametrize("verb", ["put", "append", "renew", "delete"])
async def test_a_late_write_leaves_the_files_as_they_are(store: JsonFileStore, root: Path, verb: str) -> None:
    """Who lost the lease touches no file."""
    late = await store.acquire(KEY, "late", ttl=60)
    await store.put(KEY, b"1", expected_version=0)
    await store.append(KEY, [b"1"], expected_seq=0)
    await store.release(late)
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    verbs: dict[str, Callable[[], Any]] = {
        "put": lambda: store.put(KEY, b"2", expected_version=1, fence=late.fence),
        "append": lambda: store.append(KEY, [b"2"], expected_seq=1, fence=late.fence),
        "renew": lambda: store.renew(late, ttl=60),
        "delete": lambda: store.delete(KEY, fence=late.fence),
    }
    with pytest.raises(LeaseLost):
        await verbs[verb]()
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
