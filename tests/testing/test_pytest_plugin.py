"""The pytest plugin, in test sessions of its own: what it costs, its fixtures, recordings, refusals and differences."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentscope_rx.testing import FakeProvider
from agentscope_rx.testing.fake_provider import text

ROOT = Path(__file__).resolve().parents[2]


class Suite:
    """A suite in a folder of its own, run by another process that has no plugin but ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, test: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        (self.folder / "test_it.py").write_text(test)
        command = [sys.executable, "-m", "pytest", "-q", "-p", "agentscope_rx.pytest_plugin", "-p", "no:cacheprovider"]
        env = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), **environment}
        env.pop("PYTEST_ADDOPTS", None)
        command += ["--rootdir", str(self.folder), *arguments, str(self.folder)]
        return subprocess.run(command, cwd=self.folder, env=env, capture_output=True, text=True, check=False)


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    return Suite(tmp_path)


def test_it_costs_nothing_where_it_is_not_used(suite: Suite) -> None:
    """A suite without agents loads nothing of the library but the plugin, and may talk to whom it wants."""
    ended = suite.run("""
import sys

def test_modules():
    heavy = {"reactivex", "pydantic", "structlog", "httpx2", "agentscope_rx.run", "agentscope_rx.testing"}
    assert not heavy & set(sys.modules)
""")
    assert ended.returncode == 0, ended.stdout
    assert "1 passed" in ended.stdout


def test_the_fixtures(suite: Suite) -> None:
    """A model from a script, a provider over HTTP, an hour that takes no time."""
    ended = suite.run("""
import asyncio
from agentscope_rx import HttpxChatModel, ReActAgent
from agentscope_rx.testing import outline
from agentscope_rx.testing.fake_provider import text

def test_scripted(scripted_model):
    model = scripted_model("Hi.", name="small")
    assert ReActAgent.builder(name="a", model=model).call("Hello").run().text == "Hi."
    assert model.name == "small" and model.asked == 1

def test_provider(fake_provider):
    provider = fake_provider([text("Hi.")])
    model = HttpxChatModel("m", base_url=provider.base_url, api_key="k")
    assert ReActAgent.builder(name="a", model=model).call("Hello").run().text == "Hi."
    assert provider.requests[0].messages[-1] == {"role": "user", "content": "Hello"}

def test_time(virtual_loop):
    async def main():
        await asyncio.sleep(3_600)
        return asyncio.get_running_loop().time()
    assert virtual_loop(main) == 3_600

def test_refused(fake_provider):
    import json, urllib.request
    provider = fake_provider([text("Hi.")])
    body = json.dumps({"model": "m", "messages": [{"role": "tool", "content": "x", "tool_call_id": "none"}]}).encode()
    try:
        urllib.request.urlopen(provider.base_url + "/chat/completions", body)
    except urllib.error.HTTPError as error:
        error.close()
""")
    assert "4 passed, 1 error" in ended.stdout, ended.stdout + ended.stderr
    assert "a strict provider refuses what was asked" in ended.stdout


REAL = """
import socket
import pytest
import agentscope_rx.run
from agentscope_rx.errors import RealRequestRefused

def ask():
    with socket.socket() as client:
        client.settimeout(0.01)
        try:
            client.connect(("192.0.2.1", 443))
        except OSError:
            return "asked"

def test_it():
    assert ask() == "asked"

@pytest.mark.real_requests
def test_free():
    assert ask() == "asked"
"""


def test_no_real_request(suite: Suite) -> None:
    """Where agents are loaded no test reaches another host, but by a mark or by the configuration."""
    ended = suite.run(REAL)
    assert "RealRequestRefused" in ended.stdout
    assert "1 failed, 1 passed" in ended.stdout
    ended = suite.run(REAL, "-o", "agentscope_rx_real_requests=true")
    assert "2 passed" in ended.stdout, ended.stdout


RECORDED = """
import os
import pytest
from agentscope_rx import HttpxChatModel, ReActAgent, RuntimeContext

def builder(prompt=os.environ.get("PROMPT", "Be brief.")):
    url = os.environ.get("PROVIDER", "http://127.0.0.1:9/v1")
    model = HttpxChatModel("m", base_url=url, api_key="k-secret")
    return ReActAgent.builder(name="a", model=model, sys_prompt=prompt)

async def play(builder):
    async with builder.build() as agent:
        await agent.call("Hello", RuntimeContext(session_id="s"))

@pytest.mark.replay("recordings/hello.jsonl")
def test_hello(replay):
    replayed = replay(builder(), play)
    assert replayed.runs[0].result.text == "Hi."
"""


def test_a_run_is_recorded_and_played_again(suite: Suite) -> None:
    """`--record` asks the provider and keeps the run; then the test runs offline, and fails where a request differs."""
    missing = suite.run(RECORDED)
    assert "make it with pytest --record" in missing.stdout
    with FakeProvider.in_thread([text("Hi.")]) as provider:
        recorded = suite.run(RECORDED, "--record", PROVIDER=provider.base_url)
        assert "1 passed" in recorded.stdout, recorded.stdout + recorded.stderr
        assert len(provider.requests) == 1
    file = suite.folder / "recordings" / "hello.jsonl"
    kept = file.read_bytes()
    assert b"k-secret" not in kept
    assert "1 passed" in suite.run(RECORDED).stdout
    changed = suite.run(RECORDED, PROMPT="Be verbose.")
    assert "1 failed" in changed.stdout
    assert "+Be verbose." in changed.stdout
    assert file.read_bytes() == kept


def test_a_replay_says_what_it_lacks(suite: Suite) -> None:
    """Without a file, or without anything to record, the test says what to write."""
    ended = suite.run(
        """
def test_no_file(replay):
    replay(None)

def test_nothing_to_record(replay):
    replay(None, file="it.jsonl")
""",
        "--record",
    )
    assert "which recording?" in ended.stdout
    assert "nothing says what it.jsonl is to hold" in ended.stdout
    assert "2 failed" in ended.stdout


def test_differences_are_readable(suite: Suite) -> None:
    """Events and manifests that differ are shown line by line; what tells the same says that only ids differ."""
    ended = suite.run(
        """
from dataclasses import replace
from agentscope_rx import HarnessAgent, InMemoryWorkspace
from agentscope_rx.events import Custom, TextBlockDelta
from agentscope_rx.testing import outline

def run(scripted_model, answer):
    builder = HarnessAgent.builder(name="a", model=scripted_model(answer), workspace=InMemoryWorkspace())
    return list(builder.stream_events("Hello"))

def test_events(scripted_model):
    assert run(scripted_model, "yes") == run(scripted_model, "no")

def test_ids(scripted_model):
    ours, theirs = run(scripted_model, "yes"), run(scripted_model, "yes")
    assert [line for line in outline(ours) if "DELTA" in line] == ["TEXT_BLOCK_DELTA block_id='text' delta='yes'"]
    assert ours == theirs

def test_manifests(scripted_model):
    [manifest] = [e.value["context_manifest"] for e in run(scripted_model, "yes") if isinstance(e, Custom)]
    assert manifest == replace(manifest, model="other")

def test_one():
    delta = TextBlockDelta(reply_id="r", block_id="text", delta="a")
    assert delta == replace(delta, delta="b")

def test_others():
    assert [1] == [2]
""",
        "-vv",
    )
    assert "5 failed" in ended.stdout
    assert "events differ" in ended.stdout
    assert "-TEXT_BLOCK_DELTA block_id='text' delta='yes'" in ended.stdout
    assert "+TEXT_BLOCK_DELTA block_id='text' delta='no'" in ended.stdout
    assert "they tell the same, and differ in ids" in ended.stdout
    assert "manifests differ" in ended.stdout
    assert "+model other," in ended.stdout
    assert "At index 0 diff: 1 != 2" in ended.stdout
