"""`import agentscope_rx` is cheap: what is heavy or optional loads on first use."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import agentscope_rx

ROOT = Path(__file__).resolve().parents[1]

#: Dependencies, of the core and of extras, that the import must leave alone.
ON_FIRST_USE = (
    "aiosqlite",
    "asyncmy",
    "asyncpg",
    "cyclopts",
    "docstring_parser",
    "httpx",
    "filelock",
    "fsspec",
    "httpx2",
    "openai",
    "redis",
    "rich",
    "s3fs",
    "sqlalchemy",
    "structlog",
    "tiktoken",
    "xllamacpp",
)
#: What belongs to tests and tools and never to a program that uses the library.
FOR_DEVELOPMENT = ("hypothesis", "jsonschema", "pytest")


@pytest.fixture(scope="module")
def loaded() -> frozenset[str]:
    """The names of all modules in a fresh interpreter that has imported the package and nothing else."""
    code = "import json, sys, agentscope_rx; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return frozenset(json.loads(done.stdout))


@pytest.mark.parametrize("name", [*ON_FIRST_USE, *FOR_DEVELOPMENT])
def test_the_import_leaves_out(name: str, loaded: frozenset[str]) -> None:
    assert name not in loaded


def test_the_import_says_nothing() -> None:
    code = "import agentscope_rx"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_star_import_brings_every_public_name() -> None:
    """The names that the facade loads on first use are there for `import *` too, each from a module that has it."""
    names: dict[str, object] = {}
    exec("from agentscope_rx import *", names)  # the form in question, which no function may contain
    assert {"HarnessAgent", "Msg", "tool", "Runtime"} <= set(names)
    assert all(names[name] is getattr(agentscope_rx, name) for name in agentscope_rx.__all__)
