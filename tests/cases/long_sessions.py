"""Plays a case whose session has a past: over HTTP, in files, with calls for summaries told apart from the others."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from agentscope_rx import ContextPolicy, Runtime, RuntimeContext
from agentscope_rx.compaction.prompt import MESSAGES_FIELD, SUMMARY_PROMPT
from agentscope_rx.compactions import is_summary
from agentscope_rx.events import AgentEvent, Custom
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.messages import Msg, TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.models import HttpxChatModel, OpenAIChatModel
from agentscope_rx.requests import Purpose
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import FakeProvider, RecordedRequest, ScriptedReply, from_case
from tests.cases.playing import CaseTool, check_pairs
from tests.support import ONE_ATTEMPT, Seen

ALICE = RuntimeContext(user_id="alice", session_id="s1")
BOTH: tuple[Purpose, ...] = ("reasoning", "summary")
_SUMMARY_BEGINS = SUMMARY_PROMPT.partition("\n")[0]

Body = dict[str, Any]
Answer = Callable[[RecordedRequest], ScriptedReply]


# -- the provider's side ------------------------------------------------------------------------------------


def is_for_summary(body: Mapping[str, Any]) -> bool:
    """Whether a request asks for a summary: its last message is the prompt for one."""
    last = body["messages"][-1]
    return last["role"] == "user" and str(last["content"]).startswith(_SUMMARY_BEGINS)


class Script:
    """The replies of a case, those for summaries apart; a request that finds none left is an error of the test.

    Args:
        main: The replies to the agent's own requests, as a case has them, or what makes them.
        summary: The replies to requests for a summary.
    """

    def __init__(self, main: Sequence[Any] | Answer, summary: Sequence[Any] | Answer = ()) -> None:
        self._answers: dict[bool, Answer] = {False: _in_order(main), True: _in_order(summary)}
        self._case_is_over = False

    def __call__(self, request: RecordedRequest, _: int) -> ScriptedReply:
        """Answer a request."""
        if self._case_is_over:
            return fake.text("S" if is_for_summary(request.body) else "next ok")
        return self._answers[is_for_summary(request.body)](request)

    def end_case(self) -> None:
        """What comes now is no part of the case, and answered whatever it is."""
        self._case_is_over = True


def _in_order(replies: Sequence[Any] | Answer) -> Answer:
    if callable(replies):
        return replies
    waiting = [reply if isinstance(reply, ScriptedReply) else from_case(reply) for reply in replies]

    def next_reply(request: RecordedRequest) -> ScriptedReply:
        assert waiting, f"a request that the case does not know: {request.messages[-1]}"
        return waiting.pop(0)

    return next_reply


# -- the session --------------------------------------------------------------------------------------------


def messages_from(history: Sequence[Mapping[str, Any]]) -> list[Msg]:
    """Messages of a case as ours."""
    names: dict[str, str] = {}
    found: list[Msg] = []
    for message in history:
        text = message["content"]
        match message["role"]:
            case "user":
                found.append(Msg.user(text))
            case "assistant":
                calls = [_call(call) for call in message.get("tool_calls") or ()]
                names |= {call.id: call.name for call in calls}
                found.append(Msg.assistant(*([text] if text else []), *calls))
            case "tool":
                id = message["tool_call_id"]
                found.append(Msg.tool(ToolResultBlock(id=id, name=names[id], output=(TextBlock(text=text),))))
            case role:
                raise AssertionError(role)
    return found


def _call(call: Mapping[str, Any]) -> ToolUseBlock:
    function = call["function"]
    return ToolUseBlock(id=call["id"], name=function["name"], content=function["arguments"])


def options_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a builder that a case's config stands for."""
    options = dict(config)
    if "context_policy" in options:
        options["context_policy"] = ContextPolicy(**options["context_policy"])
    return options


@dataclass
class Watched(Seen):
    """What a run gave to its subscriber, how often it ended, and whether the subscriber left before."""

    left: bool = False
    ends: list[Exception | None] = field(default_factory=list[Exception | None])
    late: list[AgentEvent] = field(default_factory=list[AgentEvent])

    def customs(self, name: str) -> list[Mapping[str, Any]]:
        """The values of the CUSTOM events with this name."""
        return [cast("Mapping[str, Any]", event.value) for event in self.of(Custom) if event.name == name]

    def manifests(self, purpose: Purpose = "reasoning") -> list[ContextManifest]:
        """The accounts of the requests for this purpose."""
        found = [value["context_manifest"] for value in self.customs("context_build")]
        return [manifest for manifest in found if manifest.purpose == purpose]


@dataclass
class LongSession:
    """A session at play.

    Args:
        folder: The agent's workspace, which holds the session too.
        provider: Whom it asks.
        script: What that answers.
        tools: The case's tools.
        builder: Makes agents of the session.
        agent: One of them.
    """

    folder: Path
    provider: FakeProvider
    script: Script
    tools: dict[str, CaseTool]
    builder: HarnessBuilder
    agent: HarnessAgent
    runs: list[Watched] = field(default_factory=list[Watched])

    @property
    def main(self) -> list[Body]:
        """The bodies of the agent's own requests."""
        return [each.body for each in self.provider.requests if not is_for_summary(each.body)]

    @property
    def summary(self) -> list[Body]:
        """The bodies of the requests for a summary."""
        return [each.body for each in self.provider.requests if is_for_summary(each.body)]

    async def watch(self, input: str | None, *, stop_at: Callable[[AgentEvent], bool] | None = None) -> Watched:
        """Run to the end, and keep everything, summaries included; I3 is checked when the session is closed.

        Args:
            input: What the user says; None = the run goes on with what is there.
            stop_at: The subscriber leaves at the first event of which this is true.
        """
        seen, over = Watched(), asyncio.Event()
        self.runs.append(seen)

        def on_next(event: AgentEvent) -> None:
            if over.is_set():
                seen.late.append(event)
                return
            seen.events.append(event)
            if stop_at is not None and stop_at(event):
                seen.left = True
                subscription.dispose()
                over.set()

        def ended(error: Exception | None) -> None:
            seen.ends.append(error)
            seen.error = seen.error or error
            over.set()

        stream = self.agent.stream_events(input, ALICE, purposes=BOTH)
        subscription = stream.subscribe(on_next, ended, lambda: ended(None))
        await over.wait()
        return seen

    async def history(self) -> list[bytes]:
        """The working history as the store has it, byte for byte."""
        return [message.to_json() for message in (await self.agent.state(ALICE)).context.messages]

    async def said(self) -> list[str]:
        """The same as texts; of calls, their ids; of results, their texts."""
        return [words_of(message) for message in (await self.agent.state(ALICE)).context.messages]

    async def summaries(self) -> list[Msg]:
        """The summaries in the working history."""
        return [message for message in (await self.agent.state(ALICE)).context.messages if is_summary(message)]

    async def once_said(self) -> list[str]:
        """Everything that was ever part of the history: what gave way to the last compaction, then what is there."""
        *_, last = await self.agent.compactions(ALICE)
        replaced = [words_of(message) for message in await self.agent.expand(ALICE, last.id)]
        history = (await self.agent.state(ALICE)).context
        behind = [words_of(message) for exchange in list(history)[len(last.by) :] for message in exchange.messages]
        return [*replaced, *behind]

    async def next_turn_works(self) -> None:
        """I6: a fresh agent that loads the session from the disk can go on with it."""
        self.script.end_case()
        async with self.builder.runtime(Runtime()).build() as fresh:
            reply = await fresh.call("next", ALICE)
        assert reply.text == "next ok"
        assert conversation_of(self.main[-1])[-1] == ("user", "next")


@asynccontextmanager
async def long_session(
    folder: Path,
    script: Script,
    history: Sequence[Mapping[str, Any]] = (),
    *,
    tools: Mapping[str, str] | None = None,
    model: type[HttpxChatModel] | type[OpenAIChatModel] = HttpxChatModel,
    window: int | None = None,
    make: Callable[[FakeProvider], Mapping[str, Any]] = lambda provider: {},
    **options: Any,
) -> AsyncGenerator[LongSession]:
    """A session with this past before a strict provider, in a folder; at the end its invariants are checked.

    Those are I1 and I7 for all requests, I3 for all runs, and I6. Whoever plays a case counts calls (I5) and looks at
    errors (I4) themselves.

    Args:
        folder: An empty folder.
        script: What the provider answers.
        history: What the session holds.
        tools: What each tool answers.
        model: The class of the model.
        window: The model's window; None = not known.
        make: Makes options that need the provider.
        options: Further options of the builder.
    """
    made = {name: CaseTool(name, answer) for name, answer in (tools or {}).items()}
    async with FakeProvider(script) as provider:
        keywords: dict[str, Any] = {
            "name": "tester",
            "model": model("fake-model", base_url=provider.base_url, api_key="test-key", context_window=window),
            "tools": list(made.values()),
            "workspace": folder,
            "execution": ONE_ATTEMPT,
            **make(provider),
            **options,
        }
        builder = HarnessAgent.builder(**keywords).runtime(Runtime())
        async with builder.build() as agent:
            session = LongSession(folder, provider, script, made, builder, agent)
            if history:
                await agent.observe(messages_from(history), ALICE)
            yield session
            await session.next_turn_works()
    assert provider.refusals == []
    for body in (*session.main, *session.summary):
        check_pairs(body)
    for run in session.runs:
        assert len(run.ends) == (0 if run.left else 1)
        assert run.late == []


# -- what was sent ------------------------------------------------------------------------------------------


def words_of(message: Msg) -> str:
    """What a message says: its text, its calls' ids, its result's text."""
    if message.tool_result is not None:
        return message.tool_result.text
    return message.text or " ".join(call.id for call in message.tool_calls)


def conversation_of(body: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Role and words of a request's messages between the System message and what each request has at its end."""
    system, *others = body["messages"]
    assert system["role"] == "system"
    while others and others[-1]["role"] == "user" and str(others[-1]["content"]).startswith("<"):
        others.pop()
    return [(each["role"], _words(each)) for each in others]


def _words(message: Mapping[str, Any]) -> Any:
    calls: Sequence[Mapping[str, Any]] = message.get("tool_calls") or ()
    return message["content"] if message["content"] is not None else " ".join(call["id"] for call in calls)


def asked_to_summarise(body: Mapping[str, Any]) -> str:
    """The conversation in the prompt of a request for a summary."""
    prompt = body["messages"][-1]["content"]
    before, after = SUMMARY_PROMPT.split(MESSAGES_FIELD)
    assert prompt.startswith(before)
    assert prompt.endswith(after)
    return prompt[len(before) : len(prompt) - len(after)]


def check_summary_request(body: Mapping[str, Any]) -> None:
    """It offers no tool, has one System message, and says how long the answer may be."""
    assert not {"tools", "tool_choice", "parallel_tool_calls", "functions"} & set(body)
    assert [message["role"] for message in body["messages"]] == ["system", "user"]
    assert output_limit_of(body) >= 1


def output_limit_of(body: Mapping[str, Any]) -> int:
    """How many tokens of answer a request asks for."""
    (limit,) = [body[key] for key in ("max_tokens", "max_completion_tokens") if key in body]
    return limit
