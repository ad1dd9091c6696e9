"""The pytest plugin: fixtures, recorded runs as tests, no real requests, and readable differences.

It is found by its entry point. Nothing of the library is loaded before a test uses it.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import ExitStack
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import pytest

if TYPE_CHECKING:
    from agentscope_rx.builder import AgentBuilder
    from agentscope_rx.replay import Replayed
    from agentscope_rx.runtime_context import RuntimeContext
    from agentscope_rx.testing.fake_provider import FakeProvider, Script, ScriptedReply
    from agentscope_rx.testing.scripted_model import Scripted, ScriptedModel

T = TypeVar("T")
_REAL: Final = "agentscope_rx_real_requests"
_MARK: Final = "replay"
_FREE: Final = "real_requests"
_FIXTURES: Final = frozenset({"fake_provider", "scripted_model", "virtual_loop", "replay"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--record`, and the option of the configuration that allows real requests."""
    group = parser.getgroup("agentscope_rx", "agents")
    group.addoption(
        "--record",
        action="store_true",
        help="record the runs of tests with a `replay` anew, by a real model, instead of playing them again",
    )
    parser.addini(_REAL, "whether tests of agents may ask other hosts than this one", type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """The marks."""
    config.addinivalue_line("markers", f"{_MARK}(file): the recording that the fixture `replay` plays, beside the test")
    config.addinivalue_line("markers", f"{_FREE}: the test may ask other hosts than this one")


# -- no real requests ---------------------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Refuse requests to other hosts, in each test of a session that has loaded agents."""
    if not _is_confined(item):
        return (yield)
    from agentscope_rx.testing.network import forbid_real_requests

    with forbid_real_requests():
        return (yield)


def _is_confined(item: pytest.Item) -> bool:
    if item.config.getini(_REAL) or item.get_closest_marker(_FREE) is not None:
        return False
    used = _FIXTURES.intersection(getattr(item, "fixturenames", ()))
    if item.config.getoption("--record") and "replay" in used:
        return False
    return bool(used) or "agentscope_rx.run" in sys.modules


# -- fixtures -----------------------------------------------------------------------------------------------


@pytest.fixture
def fake_provider() -> Generator[Callable[..., FakeProvider]]:
    """Starts providers that speak HTTP on this machine: `fake_provider([text("Hi."), ...])`; options as `FakeProvider`.

    A request that a strict provider would refuse fails the test at its end.
    """
    from agentscope_rx.testing.fake_provider import FakeProvider

    with ExitStack() as running:
        started: list[FakeProvider] = []

        def start(replies: Iterable[ScriptedReply] | Script = (), **options: Any) -> FakeProvider:
            started.append(running.enter_context(FakeProvider.in_thread(replies, **options)))
            return started[-1]

        yield start
        refused = [why for provider in started for why in provider.refusals]
        assert not refused, f"a strict provider refuses what was asked: {'; '.join(refused)}"


@pytest.fixture
def scripted_model() -> Callable[..., ScriptedModel]:
    """Makes models that answer from a script: `scripted_model(calls(...), "Done.")`; options as `ScriptedModel`."""
    from agentscope_rx.testing.scripted_model import ScriptedModel

    def make(*script: Scripted, **options: Any) -> ScriptedModel:
        return ScriptedModel(script, **options)

    return make


@pytest.fixture
def virtual_loop() -> Callable[[Callable[[], Coroutine[Any, Any, T]]], T]:
    """Runs a coroutine in virtual time, where waiting takes none: `virtual_loop(main)`, as `run_virtual`."""
    from agentscope_rx.testing.virtual_loop import run_virtual

    return run_virtual


class ReplayFixture:
    """What the fixture `replay` gives: plays a recording again through a builder, or records it with `--record`.

    Args:
        request: The test.
    """

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._folder, self._recording = request.path.parent, bool(request.config.getoption("--record"))
        mark = request.node.get_closest_marker(_MARK)
        self._file: str | None = mark.args[0] if mark is not None and mark.args else None

    def __call__(
        self,
        builder: AgentBuilder[Any, Any],
        play: Callable[[Any], object] | None = None,
        *,
        file: str | None = None,
        context: Callable[[RuntimeContext], RuntimeContext] | None = None,
    ) -> Replayed:
        """Play a recording, and hold that requests and events are the recorded ones.

        Args:
            builder: The agent, as it is now.
            play: What is to be recorded: gets the builder, and calls its agent. A function, or an async one.
            file: The recording, beside the test. Default: the one of `@pytest.mark.replay(file)`.
            context: As for `agentscope_rx.replay.replay`.

        Raises:
            ReplayMismatch: Something is another one.
        """
        from agentscope_rx.replay import replay

        path = self._path(file)
        if self._recording:
            _record(path, builder, play)
        elif not path.exists():
            pytest.fail(f"there is no recording {path}: make it with pytest --record", pytrace=False)
        replayed = replay(path, builder, context=context)
        replayed.check()
        return replayed

    def _path(self, file: str | None) -> Path:
        name = file or self._file
        if name is None:
            raise pytest.UsageError("which recording? @pytest.mark.replay('file'), or replay(builder, file='file')")
        return self._folder / name


def _record(path: Path, builder: AgentBuilder[Any, Any], play: Callable[[Any], object] | None) -> None:
    from agentscope_rx.replay import Recorder

    if play is None:
        raise pytest.UsageError(f"nothing says what {path.name} is to hold: replay(builder, play)")
    path.parent.mkdir(parents=True, exist_ok=True)
    with Recorder(path) as recorder:
        played = play(recorder.watch(builder))
        if inspect.isawaitable(played):
            asyncio.run(_awaited(played))


async def _awaited(work: Awaitable[object]) -> object:
    return await work


@pytest.fixture
def replay(request: pytest.FixtureRequest) -> ReplayFixture:
    """Plays the recording of the test's mark: `replay(builder, play)`; with `--record` it is made anew by `play`."""
    return ReplayFixture(request)


# -- readable differences -----------------------------------------------------------------------------------


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Events and manifests that are not equal, line by line, without ids and moments where these are not all."""
    if op != "==" or "agentscope_rx.testing" not in sys.modules:
        return None
    ours, theirs = _lines_of(left), _lines_of(right)
    if ours is None or theirs is None:
        return None
    shown = list(unified_diff(ours[1], theirs[1], "left", "right", n=1, lineterm=""))[2:]
    if not shown:
        shown = ["they tell the same, and differ in ids, moments or sessions; compare outline(...) of both"]
    return [f"{ours[0]} differ", *shown]


def _lines_of(value: object) -> tuple[str, Sequence[str]] | None:
    from agentscope_rx.events import AgentEvent
    from agentscope_rx.manifest import ContextManifest
    from agentscope_rx.testing.outlines import outline, outline_manifest

    if isinstance(value, ContextManifest):
        return "manifests", outline_manifest(value)
    if isinstance(value, AgentEvent):
        return "events", outline([value])
    if isinstance(value, list | tuple):
        items = cast("Sequence[object]", value)
        if all(isinstance(each, AgentEvent) for each in items):
            return "events", outline(cast("Sequence[AgentEvent]", items))
    return None
