"""How the command starts: without its extra, as a module, and without weighing down the library."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentscope_rx.__about__ import __version__
from tests.cli.command import Ended, ended, environment, start

BLOCKED = """
import sys
sys.modules[{name!r}] = None
from agentscope_rx.cli import main
sys.exit(main(["run", "x"]))
"""


@pytest.mark.parametrize("name", ["cyclopts", "rich"])
async def test_without_the_extra_it_says_how_to_install_it(name: str, tmp_path: Path) -> None:
    """Where a package of the extra is missing, one line on stderr holds the pip command; the code is 2."""
    process = await start(cwd=tmp_path, env=environment(), program=("-c", BLOCKED.format(name=name)))
    done = await ended(process)
    assert done == Ended(2, "", done.err)
    assert done.err.count("\n") == 1
    assert "pip install 'agentscope-rx[cli]'" in done.err


async def test_it_runs_as_a_module(tmp_path: Path) -> None:
    """`python -m agentscope_rx` is the same command, and its code is that of the process."""
    assert await ended(await start("--version", cwd=tmp_path, env=environment())) == Ended(0, f"{__version__}\n", "")
    wrong = await ended(await start("walk", cwd=tmp_path, env=environment()))
    assert (wrong.code, wrong.out) == (2, "")


async def test_the_library_does_not_load_the_command_line(tmp_path: Path) -> None:
    """`import agentscope_rx` loads nothing of the command line."""
    code = "import sys, agentscope_rx; print([name for name in sys.modules if name.startswith('agentscope_rx.cli')])"
    assert await ended(await start(cwd=tmp_path, env=environment(), program=("-c", code))) == Ended(0, "[]\n", "")
