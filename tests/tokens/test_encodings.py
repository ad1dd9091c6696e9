"""Encodings: byte for byte tiktoken's own, built once, and never fetched."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import lzma
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from zipfile import ZipFile

import pytest
from tiktoken_ext import openai_public  # pyright: ignore[reportMissingTypeStubs]

from agentscope_rx.errors import InvalidOption
from agentscope_rx.tokens.encodings import SHIPPED, SPECS, Encodings, EncodingUnavailable, load, preload
from tests.tokens.texts import NAMES, fill_cache, shipped

ROOT = Path(__file__).resolve().parents[2]


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str | None]]:
    """Event and reason of each warning of ours."""
    assert all(record.levelno == logging.WARNING for record in caplog.records)
    return [(record.getMessage(), getattr(record, "reason", None)) for record in caplog.records]


@pytest.mark.parametrize("name", NAMES)
def test_the_specs_are_those_of_tiktoken(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Address, digest, pattern and special tokens equal what the installed tiktoken would build from."""
    asked: list[tuple[str, str | None]] = []

    def no_ranks(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
        asked.append((url, expected_hash))
        return {}

    monkeypatch.setattr(openai_public, "load_tiktoken_bpe", no_ranks)
    theirs = openai_public.ENCODING_CONSTRUCTORS[name]()
    ours = SPECS[name]
    assert asked == [(ours.url, ours.sha256)]
    assert ours.pattern == theirs["pat_str"]
    assert ours.special_tokens == theirs["special_tokens"]


@pytest.mark.parametrize("name", NAMES)
def test_the_ranks_are_those_of_tiktoken(name: str) -> None:
    """The shipped file has the digest that tiktoken pins."""
    assert hashlib.sha256(lzma.decompress(shipped(name))).hexdigest() == SPECS[name].sha256


def test_the_wheel_holds_the_ranks(tmp_path: Path) -> None:
    """A built wheel carries both files unchanged, and the notice says whose they are."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = tmp_path.glob("*.whl")
    with ZipFile(path) as wheel:
        for name in NAMES:
            assert wheel.read(f"agentscope_rx/tokens/data/{name}.tiktoken.xz") == shipped(name)
        (notice,) = (each for each in wheel.namelist() if each.endswith("/NOTICE"))
        assert "o200k_base.tiktoken.xz" in wheel.read(notice).decode()
        assert "Copyright (c) 2022 OpenAI, Shantanu Jain" in wheel.read(notice).decode()


def test_it_works_without_a_network_and_loads_late() -> None:
    """Importing loads no tiktoken; counting opens no socket, looks up no host and never imports `requests`."""
    code = """
import sys, socket
def refuse(*_, **__): raise AssertionError("a socket was wanted")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
import agentscope_rx.tokens as tokens
print([name for name in ("tiktoken", "structlog", "regex") if name in sys.modules])
print(tokens.ContextTokenEstimator.for_model("gpt-5").count("Hello, world"))
print("requests" in sys.modules, "tiktoken" in sys.modules)
"""
    environ = {"PATH": "", "TIKTOKEN_CACHE_DIR": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True, check=False
    )
    assert (done.stdout.split("\n"), done.stderr) == (["[]", "3", "False True", ""], "")


def test_an_encoding_is_built_once() -> None:
    """Eight threads that want it at the same moment get the same object, and the file is read once."""
    reads: list[str] = []

    class Folder:
        def __truediv__(self, name: str) -> Folder:
            reads.append(name)
            return self

        def read_bytes(self) -> bytes:
            return shipped("cl100k_base")

    encodings = Encodings(Folder())  # type: ignore[arg-type]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(encodings.load, ["cl100k_base"] * 8))
    assert all(each is found[0] for each in found)
    assert reads == ["cl100k_base.tiktoken.xz"]
    assert load("cl100k_base") is load("cl100k_base") is SHIPPED.load("cl100k_base")


async def test_preload_builds_beside_the_loop() -> None:
    """While a thread builds, the loop goes on; afterwards the encoding is there. An unknown name is refused."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    ticking = asyncio.create_task(tick())
    await preload()
    await preload(*NAMES)
    ticking.cancel()
    assert ticks > 1
    with pytest.raises(InvalidOption, match=r"encoding='gpt2': it is one of o200k_base, cl100k_base"):
        await preload("gpt2")  # type: ignore[arg-type]


def test_without_ranks_it_is_unavailable_and_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No shipped file, no cache: an error each time, one warning for each reason, and nothing is fetched."""
    encodings = Encodings(tmp_path, {})
    for _ in range(3):
        with pytest.raises(EncodingUnavailable, match=r"'o200k_base' cannot be built \(no_ranks\)"):
            encodings.load("o200k_base")
    assert logged(caplog) == [("shipped_ranks_unreadable", None), ("tokens_counted_approximately", "no_ranks")]


@pytest.mark.parametrize(
    ("data", "event"),
    [
        (b"no archive", "shipped_ranks_unreadable"),
        (shipped("cl100k_base")[:1000], "shipped_ranks_unreadable"),
        (lzma.compress(b"IQ== 0\n"), "shipped_ranks_changed"),
    ],
    ids=["no archive", "cut", "other ranks"],
)
def test_a_damaged_file_is_not_used(data: bytes, event: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whatever is not byte for byte the pinned file is refused, and tiktoken's cache is tried."""
    (tmp_path / "cl100k_base.tiktoken.xz").write_bytes(data)
    cache = tmp_path / "cache"
    cache.mkdir()
    fill_cache(cache, "cl100k_base")
    found = Encodings(tmp_path, {"TIKTOKEN_CACHE_DIR": str(cache)}).load("cl100k_base")
    assert found.encode("Hello, world", disallowed_special=()) == [9906, 11, 1917]
    assert logged(caplog) == [(event, None)]


def test_a_wrong_file_in_the_cache_stays_there(tmp_path: Path) -> None:
    """tiktoken would delete it; it is not ours."""
    wrong = fill_cache(tmp_path, "cl100k_base", b"IQ== 0\n")
    with pytest.raises(EncodingUnavailable):
        Encodings(tmp_path, {"TIKTOKEN_CACHE_DIR": str(tmp_path)}).load("cl100k_base")
    assert wrong.read_bytes() == b"IQ== 0\n"


@pytest.mark.parametrize(
    ("fault", "reason"), [(ImportError("gone"), "no_tiktoken"), (TypeError("changed"), "refused_by_tiktoken")]
)
def test_a_broken_tiktoken_is_survived(
    fault: Exception, reason: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A tiktoken that is missing, or that builds encodings in another way, makes the encoding unavailable."""

    def refuse(*_: object, **__: object) -> None:
        raise fault

    if isinstance(fault, ImportError):
        monkeypatch.setitem(sys.modules, "tiktoken", None)
    else:
        monkeypatch.setattr("tiktoken.Encoding", refuse)
    with pytest.raises(EncodingUnavailable, match=reason):
        Encodings().load("cl100k_base")
    assert logged(caplog) == [("tokens_counted_approximately", reason)]
