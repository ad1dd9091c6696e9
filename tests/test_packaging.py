"""The link to `operators/` is a link to a folder, and the built wheel holds everything a user needs."""

from __future__ import annotations

import subprocess
import sys
from configparser import ConfigParser
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from agentscope_rx.__about__ import __version__

ROOT = Path(__file__).resolve().parents[1]
LINK = ROOT / "agentscope_rx" / "operators"
OPERATORS = sorted((ROOT / "operators").glob("_*.py"))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a wheel built from this tree, by name."""
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = target.glob("*.whl")
    with ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def dist_info(wheel: dict[str, bytes], name: str) -> bytes:
    return wheel[f"agentscope_rx-{__version__}.dist-info/{name}"]


def metadata(wheel: dict[str, bytes]) -> Message:
    return message_from_bytes(dist_info(wheel, "METADATA"))


def test_the_link_resolves_to_the_folder() -> None:
    assert LINK.is_symlink(), "this checkout has no symbolic links: see docs/decisions.md, D-001"
    assert LINK.readlink() == Path("../operators")
    assert LINK.is_dir()
    assert LINK.resolve() == ROOT / "operators"


def test_the_wheel_holds_every_operator(wheel: dict[str, bytes]) -> None:
    expected = {f"agentscope_rx/operators/{path.name}": path.read_bytes() for path in OPERATORS}
    assert OPERATORS
    assert {name: wheel.get(name) for name in expected} == expected
    assert ROOT.joinpath("operators/__init__.py") in OPERATORS


def test_the_wheel_holds_every_module(wheel: dict[str, bytes]) -> None:
    package = ROOT / "agentscope_rx"
    modules = {str(path.relative_to(ROOT)) for path in package.rglob("*.py")}
    assert modules - set(wheel) == set()


def test_the_wheel_holds_the_table_of_overflows(wheel: dict[str, bytes]) -> None:
    name = "agentscope_rx/models/overflow.json"
    assert wheel[name] == ROOT.joinpath(name).read_bytes()


def test_the_wheel_holds_nothing_else(wheel: dict[str, bytes]) -> None:
    assert {name.split("/")[0] for name in wheel} == {
        "agentscope_rx",
        f"agentscope_rx-{__version__}.dist-info",
    }
    assert [name for name in wheel if "__pycache__" in name] == []


def test_the_wheel_says_that_it_is_typed(wheel: dict[str, bytes]) -> None:
    assert "agentscope_rx/py.typed" in wheel


@pytest.mark.parametrize("name", ["LICENSE", "NOTICE"])
def test_the_wheel_holds_the_licence(name: str, wheel: dict[str, bytes]) -> None:
    assert dist_info(wheel, f"licenses/{name}") == ROOT.joinpath(name).read_bytes()
    assert metadata(wheel)["License-Expression"] == "Apache-2.0"


def test_the_wheel_declares_the_command(wheel: dict[str, bytes]) -> None:
    scripts = ConfigParser()
    scripts.read_string(dist_info(wheel, "entry_points.txt").decode())
    assert dict(scripts["console_scripts"]) == {"agentscope-rx": "agentscope_rx.cli:main"}
    assert dict(scripts["pytest11"]) == {"agentscope_rx": "agentscope_rx.pytest_plugin"}


def test_the_core_needs_no_extra(wheel: dict[str, bytes]) -> None:
    required = [str(line) for line in metadata(wheel).get_all("Requires-Dist", [])]
    core = {Requirement(line).name for line in required if "extra ==" not in line}
    assert core == {"reactivex", "pydantic", "httpx2", "structlog", "docstring-parser", "filelock", "tiktoken"}
    assert metadata(wheel)["Name"] == "agentscope-rx"
    assert metadata(wheel)["Requires-Python"] == ">=3.11"
    assert {"openai", "cli", "httpx", "sql", "postgres", "mysql", "redis", "fsspec", "testing", "local", "all"} <= set(
        metadata(wheel).get_all("Provides-Extra", [])
    )
