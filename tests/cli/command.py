"""Runs `agentscope-rx` as a process of its own, or in this one."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentscope_rx.cli.run import RunOptions, stored_builder
from agentscope_rx.messages import Msg
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.testing import ScriptedModel
from agentscope_rx.testing.fake_provider import FakeProvider, RecordedRequest

ROOT = Path(__file__).resolve().parents[2]
KEY = "sk-planted-0123456789"
MODEL = "openai:gpt-test"
SESSION = RuntimeContext(session_id="s")


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it said."""

    code: int
    out: str
    err: str


def environment(provider: FakeProvider | None = None) -> dict[str, str]:
    """The environment in which a command finds this library and asks this provider."""
    here = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    here |= {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "PYTHONIOENCODING": "utf-8"}
    return here | (asking(provider) if provider is not None else {})


def asking(provider: FakeProvider) -> dict[str, str]:
    """What makes the models of `openai:` ask this provider."""
    return {"OPENAI_BASE_URL": provider.base_url, "OPENAI_API_KEY": KEY}


async def start(
    *arguments: str, cwd: Path, env: Mapping[str, str], program: tuple[str, ...] = ("-m", "agentscope_rx")
) -> asyncio.subprocess.Process:
    """Start the command in a folder."""
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *program,
        *arguments,
        cwd=cwd,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def ended(process: asyncio.subprocess.Process) -> Ended:
    """Wait for the end of a process."""
    out, err = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


def conversation(request: RecordedRequest) -> list[dict[str, Any]]:
    """The messages that belong to the session: neither the System message nor the state of this request alone."""
    return [message for message in request.messages if message["role"] != "system" and message.get("name") != "system"]


def keep(*messages: Msg) -> None:
    """Put messages into the session `s` of the current folder."""
    asyncio.run(stored_builder(ScriptedModel([]), RunOptions()).build().observe(messages, SESSION))
