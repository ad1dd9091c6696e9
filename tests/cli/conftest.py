"""What the tests of the command line share."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from agentscope_rx.testing.fake_provider import FakeProvider, ScriptedReply
from tests.cli.command import asking

Serve: TypeAlias = Callable[[Iterable[ScriptedReply]], FakeProvider]


@pytest.fixture(autouse=True)
def no_model_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's own environment chooses no model and no provider."""
    for name in ("AGENTSCOPE_RX_MODEL", "OPENAI_API_KEY", "OPENAI_BASE_URL", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Generator[Serve]:
    """Start a provider that the models of `openai:` ask, in this process."""
    with ExitStack() as stack:

        def start(replies: Iterable[ScriptedReply]) -> FakeProvider:
            provider = stack.enter_context(FakeProvider.in_thread(replies))
            for name, value in asking(provider).items():
                monkeypatch.setenv(name, value)
            return provider

        yield start


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two files, which is the current one."""
    (tmp_path / "notes.txt").write_text("alpha\nbeta\ngamma\n")
    (tmp_path / "plan.md").write_text("# Plan\n\nShip beta.\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path
