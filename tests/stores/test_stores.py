"""Stores of states: versions, conflicts, keys; and files that survive crashes and other processes."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import stat
import subprocess
import sys
import threading
import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from agentscope_rx.errors import InvalidIdentifier, StateConflict, StateUnreadable
from agentscope_rx.history import History
from agentscope_rx.messages import Msg
from agentscope_rx.state import AgentState
from agentscope_rx.stores import InMemoryStore, JsonFileStore, SessionKey, StateStore, Stored
from agentscope_rx.stores.keys import check_identifier, folder_name
from tests.cases import case
from tests.strategies import JSON_VALUES

ROOT = Path(__file__).resolve().parents[2]
MakeStore: TypeAlias = Callable[[], StateStore]


def key(session: str = "s1", *, user: str | None = "alice", agent: str = "a1") -> SessionKey:
    return SessionKey(agent_id=agent, user_id=user, session_id=session)


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> StateStore:
    return InMemoryStore() if request.param == "memory" else JsonFileStore(tmp_path / "root")


def each_store(root: str) -> Iterator[StateStore]:
    """Both stores, for property tests."""
    yield InMemoryStore()
    yield JsonFileStore(root)


# -- what every store does ----------------------------------------------------------------------------------


async def test_what_was_put_is_got(store: StateStore) -> None:
    """There is nothing at first; each put replaces the state and counts its version from 1."""
    assert await store.get(key()) is None
    for version, body in enumerate([b"{}", b'{"a":1}', b"{}"]):
        assert await store.put(key(), body, expected_version=version) == version + 1
        assert await store.get(key()) == Stored(body, version + 1)


@pytest.mark.parametrize("expected", [0, 1, 3, 7])
async def test_a_put_on_another_version_changes_nothing(store: StateStore, expected: int) -> None:
    """Who did not see the stored version, be it an older one or none, is told so; nothing is overwritten."""
    await store.put(key(), b'{"n":1}', expected_version=0)
    await store.put(key(), b'{"n":2}', expected_version=1)
    with pytest.raises(StateConflict, match=f"version 2 is stored, {expected} was expected; nothing was overwritten"):
        await store.put(key(), b'{"n":9}', expected_version=expected)
    assert await store.get(key()) == Stored(b'{"n":2}', 2)


async def test_a_put_on_a_version_that_never_was_changes_nothing(store: StateStore) -> None:
    """Expecting a version where nothing is stored is a conflict, and stores nothing."""
    with pytest.raises(StateConflict):
        await store.put(key(), b"{}", expected_version=1)
    assert await store.get(key()) is None


async def test_of_two_at_once_one_wins(store: StateStore) -> None:
    """Of many that put on the same version exactly one wins, and its state is what is stored."""
    for version in range(3):
        puts = (store.put(key(), b"%d" % n, expected_version=version) for n in range(8))
        results = await asyncio.gather(*puts, return_exceptions=True)
        won = [n for n, result in enumerate(results) if result == version + 1]
        assert len(won) == 1
        assert sum(isinstance(result, StateConflict) for result in results) == 7
        assert await store.get(key()) == Stored(b"%d" % won[0], version + 1)


def test_threads_with_loops_of_their_own_share_a_store(store: StateStore) -> None:
    """A store belongs to no loop: counting up from several threads loses no step."""
    start = threading.Barrier(4)

    async def count_up() -> None:
        for _ in range(5):
            while True:
                stored = await store.get(key())
                number, version = (int(stored.body), stored.version) if stored else (0, 0)
                try:
                    await store.put(key(), b"%d" % (number + 1), expected_version=version)
                except StateConflict:
                    continue
                break

    def in_a_thread() -> None:
        start.wait(timeout=30)
        asyncio.run(count_up())

    with ThreadPoolExecutor(4) as pool:
        for work in [pool.submit(in_a_thread) for _ in range(4)]:
            work.result()
    assert asyncio.run(store.get(key())) == Stored(b"20", 20)


BODIES = (
    JSON_VALUES.map(lambda value: json.dumps(value).encode())
    | JSON_VALUES.map(lambda value: json.dumps(value, ensure_ascii=False).encode())
    | st.binary(max_size=20)
    | st.text(st.sampled_from('{}"\\,:\0\r v1'), max_size=12).map(str.encode)
)


@given(st.lists(BODIES, min_size=1, max_size=3))
@example([b'"\\u0000 \x00 \\\\u0000"', '"ünïcødé 会话 🍸"'.encode(), b"", b"}", b'{"version":7,"state":{}}'])
def test_bodies_are_kept_byte_for_byte(bodies: list[bytes]) -> None:
    """NUL, quotes, other alphabets and what looks like the store's own marks come back as they were (O28)."""

    async def check(store: StateStore) -> None:
        for version, body in enumerate(bodies):
            await store.put(key(), body, expected_version=version)
            assert await store.get(key()) == Stored(body, version + 1)

    with TemporaryDirectory() as root:
        for store in each_store(root):
            asyncio.run(check(store))


async def test_a_state_of_odd_texts_survives(store: StateStore) -> None:
    """NUL, halves of surrogate pairs and every other character in a conversation keep no state from being stored."""
    odd = AgentState(session_id="s", context=History.of(Msg.user("a\0b \\u0000 \ud83d 🍸"), Msg.assistant("x\0y")))
    await store.put(key(), odd.to_json(), expected_version=0)
    stored = await store.get(key())
    assert stored is not None
    texts = [message.text for message in AgentState.from_json(stored.body).context.messages]
    assert texts == ["a\0b \\u0000 \ufffd 🍸", "x\0y"]


# -- keys ---------------------------------------------------------------------------------------------------

O30_IDS: list[str] = case("O30")["ids"]
IDENTIFIERS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60).filter(str.strip)


@pytest.mark.parametrize("role", ["session", "user", "agent"])
@pytest.mark.parametrize("id", O30_IDS)
async def test_an_id_works_inside_of_the_root_or_is_refused(
    store: StateStore, tmp_path: Path, id: str, role: str
) -> None:
    """Each id of case O30 is refused before anything is touched, or works and stays below the store's folder."""
    (tmp_path / "root").mkdir()
    try:
        which = key(**{"session": "s1", role: id})
    except InvalidIdentifier:
        assert id in ("", "a\0b", "x\ny")
    else:
        assert await store.put(which, b'{"n":1}', expected_version=0) == 1
        assert await store.get(which) == Stored(b'{"n":1}', 1)
    outside = [path for path in tmp_path.rglob("*") if (tmp_path / "root") not in (path, *path.parents)]
    assert outside == []


async def test_no_two_ids_share_a_state(store: StateStore) -> None:
    """All accepted ids of O30, as session, user and agent, and pairs that look alike when joined, are apart."""
    ids = [id for id in O30_IDS if id not in ("", "a\0b", "x\ny")]
    keys = [key(id) for id in ids] + [key(user=id) for id in ids] + [key(agent=id) for id in ids]
    keys += [key("b_c", user="a"), key("c", user="a_b"), key("a/b"), key("b", user="a"), key("b", user="alice/a")]
    keys += [key(user=None), key(user="nobody"), key(user="None"), key(user="__anon__"), key(user="alicE")]
    keys += [key("é"), key(unicodedata.normalize("NFD", "é"))]
    distinct = list(dict.fromkeys(keys))
    for number, each in enumerate(distinct):
        assert await store.get(each) is None, each
        await store.put(each, b"%d" % number, expected_version=0)
    for number, each in enumerate(distinct):
        assert await store.get(each) == Stored(b"%d" % number, 1)


@pytest.mark.parametrize("role", ["session", "user", "agent"])
@pytest.mark.parametrize("id", ["", " ", "\t", "\u2003", "a\0", "a\nb", "\x7f", "\x85", "a\ud83d", "n" * 513])
def test_an_id_that_cannot_be_one_is_refused(id: str, role: str) -> None:
    """Blank, too long, control characters, lone surrogates: refused with the field's name and a short account."""
    with pytest.raises(InvalidIdentifier, match=f"^{role}_id ") as caught:
        key(**{"session": "s1", role: id})
    assert len(str(caught.value)) < 250


@given(IDENTIFIERS)
def test_all_other_ids_are_accepted(id: str) -> None:
    """Any text of 1 to 512 characters may be an id, a name of a person or a path for instance."""
    assert check_identifier("user_id", id) is id
    assert check_identifier("user_id", id[:1] + "n" * 511)


@given(st.text(min_size=1, max_size=300))
@example("A")
@example("n" * 512)
@example("nobody")
@example("con")
@example("..")
def test_folder_names_are_safe_everywhere(id: str) -> None:
    """A name has lower-case ASCII letters, digits, `_` and `-` only, is no reserved name, and fits any disk."""
    name = folder_name(id)
    assert name.startswith("s_")
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")
    assert len(name) <= 152


@given(
    st.text(st.sampled_from("aAbB.é/ "), min_size=1, max_size=4),
    st.text(st.sampled_from("aAbB.é/ "), min_size=1, max_size=4),
)
@example("A", "a")
@example("ß", "ss")
@example("é", "e\u0301")
@example("n" * 200, "n" * 201)
@example("n" * 300 + "a", "n" * 300 + "A")
def test_different_ids_have_different_folders(one: str, other: str) -> None:
    """Also on disks that do not tell capital letters from small ones, or composed characters from decomposed."""
    assume(one != other)
    assert folder_name(one).casefold() != folder_name(other).casefold()


# -- files --------------------------------------------------------------------------------------------------


def files_below(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*") if path.is_file())


def state_file(root: Path) -> Path:
    (path,) = root.rglob("state.json")
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "root"


async def test_nothing_is_made_before_it_is_needed(root: Path) -> None:
    """Making a store, and looking for what is not there, leaves the disk as it was."""
    store = JsonFileStore(str(root))
    assert await store.get(key()) is None
    assert not root.exists()


async def test_the_folder_of_a_state(root: Path) -> None:
    """One folder for each agent, user and session, which holds the state and its lock, and nothing else."""
    store = JsonFileStore(root)
    await store.put(key(), b"{}", expected_version=0)
    await store.put(key(user=None), b"{}", expected_version=0)
    a1, alice, s1 = folder_name("a1"), folder_name("alice"), folder_name("s1")
    sessions = root / "agents" / a1 / "sessions"
    assert files_below(root) == sorted(
        sessions / user / s1 / name for user in (alice, "nobody") for name in ("lock", "state.json")
    )


async def test_only_the_owner_reads_states(root: Path) -> None:
    """Folders have mode 0700 from the root down, and the state itself 0600; folders above keep the usual mode."""
    mask = os.umask(0o022)
    try:
        await JsonFileStore(root).put(key(), b"{}", expected_version=0)
    finally:
        os.umask(mask)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (root, *root.rglob("*")) if path.is_dir()}
    assert modes == {0o700}
    assert stat.S_IMODE(state_file(root).stat().st_mode) == 0o600
    assert stat.S_IMODE(root.parent.stat().st_mode) == 0o755


async def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    """A root that somebody else made is not changed; what is made in it is private."""
    tmp_path.chmod(0o755)
    await JsonFileStore(tmp_path).put(key(), b"{}", expected_version=0)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
    assert stat.S_IMODE((tmp_path / "agents").stat().st_mode) == 0o700


async def test_a_relative_root_is_below_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A root may be relative."""
    monkeypatch.chdir(tmp_path)
    await JsonFileStore("states").put(key(), b"{}", expected_version=0)
    assert state_file(tmp_path).is_relative_to(tmp_path / "states")


@pytest.mark.parametrize("step", ["os.fsync", "os.replace"])
async def test_a_crash_leaves_the_old_state(root: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """A write that fails before the file takes its place leaves the old state and nothing half-written."""
    store = JsonFileStore(root)
    await store.put(key(), b'{"n":1}', expected_version=0)
    before = files_below(root)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(step, full)
        with pytest.raises(OSError, match="No space left"):
            await store.put(key(), b'{"n":2}', expected_version=1)
    assert files_below(root) == before
    assert await store.get(key()) == Stored(b'{"n":1}', 1)
    assert await store.put(key(), b'{"n":2}', expected_version=1) == 2


async def test_what_a_killed_process_left_is_not_read(root: Path) -> None:
    """A file that never took the state's place is neither read nor in the way."""
    store = JsonFileStore(root)
    await store.put(key(), b'{"n":1}', expected_version=0)
    state_file(root).with_name(".state-killed").write_bytes(b'{"version":9,"sta')
    assert await store.get(key()) == Stored(b'{"n":1}', 1)
    assert await store.put(key(), b'{"n":2}', expected_version=1) == 2


@given(JSON_VALUES, st.data())
def test_a_file_that_was_cut_is_unreadable(value: object, data: st.DataObject) -> None:
    """No beginning of a state file passes for a state, be it cut behind a brace: that is an error, not a fresh one."""
    with TemporaryDirectory() as folder:
        store = JsonFileStore(folder)
        asyncio.run(store.put(key(), json.dumps({"a": {"b": value}}).encode(), expected_version=0))
        path = state_file(Path(folder))
        whole = path.read_bytes()
        cut = data.draw(st.integers(0, len(whole) - 1) | st.sampled_from(_behind_braces(whole)))
        path.write_bytes(whole[:cut])
        with pytest.raises(StateUnreadable, match="was left as it is"):
            asyncio.run(store.get(key()))


def _behind_braces(data: bytes) -> list[int]:
    return [at for at in range(1, len(data)) if data[:at].endswith((b"}", b"}}"))]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"{}\n",
        b"nonsense",
        b'{"version":0}\n',
        b'{"version":-1,"state":{}}\n',
        b'{"version":"1","state":{}}\n',
        b'{"state":{},"version":1}\n',
        b'{"version":1234567890123456789,"state":{}}\n',
        b"\0" * 64,
    ],
)
async def test_a_file_of_somebody_else_is_left_as_it_is(root: Path, content: bytes) -> None:
    """What this store did not write is an error for `get` and `put`, and stays on the disk for a person to look at."""
    store = JsonFileStore(root)
    await store.put(key(), b"{}", expected_version=0)
    path = state_file(root)
    path.write_bytes(content)
    for expected in (0, 1):
        with pytest.raises(StateUnreadable, match="was left as it is") as caught:
            await store.put(key(), b'{"n":2}', expected_version=expected)
        assert str(path) in str(caught.value)
    with pytest.raises(StateUnreadable):
        await store.get(key())
    assert path.read_bytes() == content


@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancelled_put_has_ended(root: Path, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """A put that is cancelled while a thread writes ends after the thread: the next call on the session, which may
    begin at once, finds the new state and is not overtaken by it."""
    store, loop = JsonFileStore(root), asyncio.get_running_loop()
    await store.put(key(), b'{"n":1}', expected_version=0)
    writing, go_on = asyncio.Event(), threading.Event()
    replace = os.replace

    def held(*paths: str) -> None:
        loop.call_soon_threadsafe(writing.set)
        assert go_on.wait(timeout=30)
        replace(*paths)

    monkeypatch.setattr(os, "replace", held)
    put = asyncio.create_task(store.put(key(), b'{"n":2}', expected_version=1))
    await writing.wait()
    for _ in range(times):
        put.cancel()
        await asyncio.wait({put}, timeout=0)
        assert not put.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await put
    assert await store.get(key()) == Stored(b'{"n":2}', 2)


async def test_a_cancelled_put_tells_no_loop_of_its_failure(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes wrong in a put that nobody waits for any more is nobody's error: it is as if it had not been made."""
    store, loop = JsonFileStore(root), asyncio.get_running_loop()
    writing, go_on = asyncio.Event(), threading.Event()

    def failing(*_: str) -> None:
        loop.call_soon_threadsafe(writing.set)
        assert go_on.wait(timeout=30)
        raise OSError(28, "No space left on device")

    complaints: list[object] = []
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    monkeypatch.setattr(os, "replace", failing)
    put = asyncio.create_task(store.put(key(), b"{}", expected_version=0))
    await writing.wait()
    put.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await put
    del put
    gc.collect()
    assert complaints == []
    assert await store.get(key()) is None


COUNT_UP = """
import asyncio, sys
from agentscope_rx.errors import StateConflict
from agentscope_rx.stores import JsonFileStore, SessionKey

async def main():
    store, key = JsonFileStore(sys.argv[1]), SessionKey(agent_id="a1", user_id="alice", session_id="s1")
    done = 0
    while done < int(sys.argv[2]):
        stored = await store.get(key)
        number, version = (int(stored.body), stored.version) if stored else (0, 0)
        try:
            await store.put(key, b"%d" % (number + 1), expected_version=version)
            done += 1
        except StateConflict:
            pass

asyncio.run(main())
"""


def test_another_process_is_noticed(root: Path) -> None:
    """A state that another process has stored meanwhile is not overwritten."""
    store = JsonFileStore(root)
    asyncio.run(store.put(key(), b"0", expected_version=0))
    subprocess.run([sys.executable, "-c", COUNT_UP, str(root), "1"], cwd=ROOT, check=True, timeout=30)
    with pytest.raises(StateConflict, match="version 2 is stored, 1 was expected"):
        asyncio.run(store.put(key(), b"99", expected_version=1))
    assert asyncio.run(store.get(key())) == Stored(b"1", 2)


@pytest.mark.slow
def test_processes_at_once_lose_no_update(root: Path) -> None:
    """Processes that count up side by side exclude each other for each step."""
    command = [sys.executable, "-c", COUNT_UP, str(root), "25"]
    running = [subprocess.Popen(command, cwd=ROOT) for _ in range(3)]
    assert [process.wait(timeout=50) for process in running] == [0, 0, 0]
    assert asyncio.run(JsonFileStore(root).get(key())) == Stored(b"75", 75)
