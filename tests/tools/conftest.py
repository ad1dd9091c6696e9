"""A workspace full of traps, for the tests that attack the tools."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

LINKS = {
    "link": "../out",
    "file": "../out/secret.txt",
    "loop": "loop",
    "ping": "pong",
    "pong": "ping",
    "up": "..",
    "dangling-out": "../out/new.txt",
    "hidden": ".agentscope-runtime",
    "chain": "sub/chain",
    "sub/chain": "../link/secret.txt",
    "zero": "/dev/zero",
    "stdin": "/dev/stdin",
    "environ": "/proc/self/environ",
    "cwd": "/proc/self/cwd",
    "root": "/",
    "beside": "../ws2",
}


@pytest.fixture
def tree(tmp_path: Path) -> Iterator[Path]:
    """A workspace `ws` full of traps beside `out`, which nobody may see; its absolute links lead out as well."""
    for folder in ("ws/sub", "ws/.agentscope-runtime", "out", "ws2"):
        (tmp_path / folder).mkdir(parents=True)
    files = {"ws/in.txt": "in", "ws/.agentscope-runtime/log": "top", "out/secret.txt": "top", "ws2/x": "top"}
    for path, text in files.items():
        (tmp_path / path).write_text(text)
    for link, target in LINKS.items():
        (tmp_path / "ws" / link).symlink_to(target)
    (tmp_path / "ws/absolute").symlink_to(tmp_path / "out")
    os.mkfifo(tmp_path / "ws/pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "ws/socket"))
        yield tmp_path
