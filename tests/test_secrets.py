"""Keys are sent to whom they are for, and appear nowhere else."""

from __future__ import annotations

import gc
import logging
import socket
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from openai import AsyncOpenAI

from agentscope_rx.agent import Agent
from agentscope_rx.builder import AgentBuilder
from agentscope_rx.errors import InvalidOption, ProviderError, StoreUnavailable
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.messages import Msg
from agentscope_rx.models import HttpxChatModel, OpenAIChatModel
from agentscope_rx.models.providers import Provider
from agentscope_rx.requests import ExecutionConfig, GenerateOptions
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.stores import RedisStore, SessionKey, SqlStore
from agentscope_rx.testing.fake_provider import FakeProvider, ScriptedReply, failure, stream, text, tool_calls
from agentscope_rx.tools import ToolContext, tool
from agentscope_rx.tools.shell_tool import ShellSettings, shell_tool
from tests.support import watch

API_KEY = "planted-api-key-0001"
ENVIRONMENT = "planted-environment-0002"
HEADER = "planted-header-0003"
CALL_HEADER = "planted-call-header-0004"
QUERY = "planted-query-0005"
BODY = "planted-body-0006"
CONTEXT = "planted-context-0007"
VALUE = "planted-value-0008"
SHELL = "planted-shell-0009"
PASSWORD = "planted-password-0010"
ARGUMENT = "planted-argument-0011"
#: What must be nowhere; the model's own argument is part of what it said.
PLANTED = (API_KEY, ENVIRONMENT, HEADER, CALL_HEADER, QUERY, BODY, CONTEXT, VALUE, SHELL, PASSWORD)
ECHO = f"refused: {' '.join(each for each in PLANTED if each not in (BODY, CONTEXT, VALUE, SHELL, ENVIRONMENT))}"
CTX = RuntimeContext(user_id="alice", session_id="s1", attributes={"api_key": CONTEXT}, values=(VALUE,))


def found(texts: Iterable[str | bytes], planted: Iterable[str] = PLANTED) -> list[str]:
    """Which of the keys are in some of the texts, each with what is around it."""
    whole = [each if isinstance(each, bytes) else each.encode("utf-8", "replace") for each in texts]
    return [f"{key}: {each[:400]!r}" for key in planted for each in whole if key.encode() in each]


def shown(error: BaseException) -> Iterator[str]:
    """All that an error says: itself, its attributes, and what is chained to it and shown with it."""
    yield "".join(traceback.format_exception(error))
    yield repr(error)
    yield str(vars(error))


def reachable(*roots: object) -> list[object]:
    """Objects of this library that others lead to, through containers, attributes and closures."""
    seen: dict[int, object] = {}
    waiting = list(roots)
    while waiting:
        each = waiting.pop()
        if id(each) in seen or isinstance(each, ModuleType | CodeType | FrameType | type):
            continue
        seen[id(each)] = each
        if isinstance(each, FunctionType):  # what it closes over, not the globals of its module
            waiting.extend(cell.cell_contents for cell in each.__closure__ or () if not _empty(cell))
        else:
            waiting.extend(gc.get_referents(each))
    ours = [each for each in seen.values() if type(each).__module__.startswith("agentscope_rx.")]
    return [each for each in ours if not type(each).__module__.startswith("agentscope_rx.testing.")]  # the provider


def _empty(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - reading an empty one raises
    except ValueError:
        return True
    return False


@tool
async def log_in(api_key: int, context: ToolContext) -> str:
    """Log in.

    Args:
        api_key: A number.
    """
    logging.getLogger("agentscope_rx").debug("in %r", context)
    return f"key {api_key} of {context!r}"


def builder_for(kind: str, provider: FakeProvider, folder: Path) -> AgentBuilder[Any, Any]:
    url = provider.base_url.replace("http://", f"http://me:{PASSWORD}@")
    model: HttpxChatModel | OpenAIChatModel
    if kind == "httpx":
        headers = {"x-api-key": HEADER, "cookie": HEADER}
        model = HttpxChatModel("m", base_url=url, api_key=API_KEY, headers=headers)
    else:
        headers = {"x-api-key": HEADER}
        model = OpenAIChatModel("m", client=AsyncOpenAI(base_url=url, api_key=API_KEY, default_headers=headers))
    return HarnessAgent.builder(
        name="a1",
        model=model,
        workspace=folder,
        tools=[log_in, shell_tool(folder, settings=ShellSettings(env={"MY_TOKEN": SHELL}))],
        execution=ExecutionConfig(max_attempts=2, initial_backoff=0),
        generate_options=GenerateOptions(
            additional_headers={"x-auth-token": f"Bearer {CALL_HEADER}"},
            additional_query={"api-key": QUERY},
            additional_body={"api_key": BODY},
        ),
    )


SUCCEEDS = (
    tool_calls(
        ("c1", "log_in", f'{{"api_key": "{ARGUMENT}"}}'),
        ("c2", "log_in", '{"api_key": 7}'),
        ("c3", "execute", '{"command": "env"}'),
    ),
    text("Done."),
)
FAILURES: tuple[ScriptedReply, ...] = (
    failure(401, {"error": {"message": ECHO, "code": "invalid_api_key"}}),
    failure(400, {"error": {"message": ECHO}}),
    failure(403, ECHO),
    failure(500, {"error": {"message": ECHO}}),
    failure(500, {"error": {"message": ECHO}}),
    stream([{"d": {"content": "So"}, "f": None}, {"raw": f'data: {{"error": {{"message": "{ECHO}"}}}}\n\n'}]),
)


@pytest.mark.parametrize("kind", ["httpx", "openai"])
async def test_keys_are_nowhere(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Calls that succeed and that fail leave no key in files, events, errors, log lines and in no `repr`."""
    monkeypatch.setenv("OPENAI_API_KEY", ENVIRONMENT)
    seen: list[str | bytes] = []
    caplog.set_level(logging.DEBUG, "agentscope_rx")
    (tmp_path / "files").mkdir()
    async with FakeProvider([*SUCCEEDS, *FAILURES]) as provider:
        builder = builder_for(kind, provider, tmp_path / "files")
        async with builder.build() as agent:
            seen += [event.to_json() async for event in agent.stream_events("Go.", CTX)]
            log = [record async for record in agent.session_log(CTX).scan()]
            (refused, _, environment) = [
                m.tool_result for m in await agent.session_log(CTX).transcript() if m.tool_result
            ]
            for _ in range(len(FAILURES) - 1):  # one of them is tried twice
                failed = await watch(agent, "Again.", CTX)
                assert isinstance(failed.error, ProviderError)
                seen += [*shown(failed.error), *(event.to_json() for event in failed.events)]
            assert len(provider.requests) == len(SUCCEEDS) + len(FAILURES)
            assert _arrived(provider)
            prepared = await agent.prepare("x", CTX)
            seen += [str(prepared.manifest.to_data(full=True)), repr(prepared)]
            roots = (agent, builder, agent.options, CTX, prepared, log, seen, await agent.state(CTX))
            seen += [repr(each) for each in reachable(*roots)]
    files = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert any(b"run/end" in file for file in files)
    assert any(b'"checkpoint"' in file for file in files)
    lines = [f"{record.getMessage()} {vars(record)}" for record in caplog.records if record.name == "agentscope_rx"]
    assert any("model_retry" in line or "in ToolContext" in line for line in lines)
    assert SHELL in environment.text  # a command may see what it was given, and its output is the model's
    assert not found([*seen, *files, *lines], [each for each in PLANTED if each != SHELL])
    assert not found([*lines, *map(str, roots[:4])], [SHELL])
    assert "api_key" in refused.text
    assert not found([refused.text, *lines], [ARGUMENT])


def _arrived(provider: FakeProvider) -> bool:
    """Whether the keys went where they are for: else there was nothing to find."""
    request = provider.requests[0]
    sent = f"{request.headers} {request.raw!r}"
    return all(key in sent for key in (CALL_HEADER, BODY, HEADER))


async def test_keys_of_the_environment_are_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that comes from the environment is sent, and is in no error and no `repr` either."""
    async with FakeProvider([failure(401, f"Incorrect API key provided: {ENVIRONMENT}")]) as provider:
        monkeypatch.setenv("OPENAI_API_KEY", ENVIRONMENT)
        monkeypatch.setenv("OPENAI_BASE_URL", provider.base_url)
        agent: Agent[Any] = HarnessAgent.builder(name="a", model="openai:gpt-test", state_only=True).build()
        with pytest.raises(ProviderError) as caught:
            await agent.call("x")
        assert ENVIRONMENT in str(provider.requests[0].headers)
        assert not found([*shown(caught.value), *map(repr, reachable(agent))])


@pytest.mark.parametrize("make", [HttpxChatModel, OpenAIChatModel])
async def test_an_address_that_does_not_answer_is_shown_without_its_keys(make: type[Any]) -> None:
    """The error of a connection names host and port, and neither user nor password nor parameters."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    model = make("m", base_url=f"http://me:{PASSWORD}@127.0.0.1:{port}/v1?key={QUERY}", api_key=API_KEY)
    agent = HarnessAgent.builder(
        name="a", model=model, state_only=True, execution=ExecutionConfig(max_attempts=1)
    ).build()
    with pytest.raises(ProviderError, match=f"127.0.0.1:{port}") as caught:
        await agent.call("x")
    assert not found(shown(caught.value))


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://me:{PASSWORD}@127.0.0.1:{{port}}/d?password={QUERY}",
        f"redis://me:{PASSWORD}@127.0.0.1:{{port}}/0?password={QUERY}",
    ],
)
async def test_a_store_that_does_not_answer_is_shown_without_its_keys(url: str) -> None:
    """The address of a store is in errors and in its `repr`, without password and parameters."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = url.format(port=free.getsockname()[1])
    store = RedisStore(url) if url.startswith("redis") else SqlStore(url)
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1") as caught:
        await store.get(SessionKey(agent_id="a", user_id=None, session_id="s"))
    assert not found([*shown(caught.value), repr(store)])


@pytest.mark.parametrize(
    "configure",
    [
        lambda: HarnessAgent.builder(api_key=API_KEY),  # type: ignore[call-arg]
        lambda: HarnessAgent.builder(generate_options={"additional_headers": {"x-api-key": API_KEY}}),  # type: ignore[typeddict-item]
        lambda: HarnessAgent.builder().compaction(api_key=API_KEY),
        lambda: HttpxChatModel("m", api_key=f"{API_KEY} and more"),
        lambda: HttpxChatModel("m", api_key="k", headers={"x-api-key": f"{API_KEY}\n"}),
        lambda: HttpxChatModel("m", base_url=f"ftp://me:{API_KEY}@h"),
        lambda: SqlStore(f"oracle://me:{API_KEY}@h"),
        lambda: RedisStore(f"http://me:{API_KEY}@h"),
    ],
)
def test_refused_options_do_not_show_keys(configure: Any) -> None:
    """An option that is refused is named, and a key in it is not shown."""
    with pytest.raises(InvalidOption) as caught:
        configure()
    assert not found(shown(caught.value))


def test_a_provider_is_shown_without_its_keys() -> None:
    """An address of one's own may hold a password."""
    provider = Provider(name="acme", base_url=f"https://me:{PASSWORD}@acme.example/v1?key={QUERY}")
    assert repr(provider) == "Provider(name='acme', base_url='https://acme.example/v1')"


def test_the_search_finds_what_is_planted() -> None:
    """The test's own eyes: a key is found behind closures, containers and attributes of this library's objects."""
    message = Msg.user(API_KEY)

    def closure() -> Msg:
        return message

    assert len(found(map(repr, reachable([{"x": closure}])))) >= 1
    assert found([f"..{QUERY}.."]) == [f"{QUERY}: {f'..{QUERY}..'.encode()!r}"]
