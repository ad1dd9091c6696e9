"""docs/testing.md is true: its six recipes are test modules that pass, in a session with our plugin alone."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from agentscope_rx.testing import FakeProvider
from agentscope_rx.testing.fake_provider import text, tool_calls

ROOT = Path(__file__).resolve().parents[1]
BLOCKS = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
MODEL = """
import os

import pytest

from agentscope_rx import HttpxChatModel


@pytest.fixture
def model():
    return HttpxChatModel("small", base_url=os.environ.get("PROVIDER", "http://127.0.0.1:9/v1"), api_key="k")
"""


def test_the_recipes(tmp_path: Path) -> None:
    """Each recipe runs as it stands; the fourth is recorded before a provider, and then passes without one."""
    recipes = BLOCKS.findall((ROOT / "docs" / "testing.md").read_text(encoding="utf-8"))
    assert len(recipes) == 7
    (tmp_path / "conftest.py").write_text(MODEL)
    for number, recipe in enumerate(recipes, 1):
        (tmp_path / f"test_recipe_{number}.py").write_text(recipe)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "agentscope_rx.pytest_plugin", "-p", "no:cacheprovider"]
    command += ["--rootdir", str(tmp_path)]
    env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    script = [tool_calls(("c1", "weather", '{"city": "Bern"}')), text("It is sunny.")]
    with FakeProvider.in_thread(script) as provider:
        given = {**env, "PROVIDER": provider.base_url}
        recording = [*command, "--record", "test_recipe_4.py"]
        recorded = subprocess.run(recording, cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert "1 passed" in recorded.stdout, recorded.stdout + recorded.stderr
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert "10 passed" in done.stdout, done.stdout + done.stderr
