"""Requests to models, made again from a log: word for word what went out."""

from __future__ import annotations

import random
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from agentscope_rx import ContextPolicy, RuntimeContext
from agentscope_rx.draft import RequestDraft
from agentscope_rx.edits import edits_between
from agentscope_rx.errors import LogUnreadable, RequestUnknown
from agentscope_rx.events import Custom
from agentscope_rx.harness_agent import HarnessAgent
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.history import History
from agentscope_rx.lifting import effect_operator
from agentscope_rx.messages import Msg, ToolUseBlock
from agentscope_rx.models import HttpxChatModel
from agentscope_rx.models.chat_body import encode
from agentscope_rx.models.providers import COMPATIBLE
from agentscope_rx.operators import text_operator
from agentscope_rx.records import ContextCleared, HistoryEdited, ReplyRecorded, ResultsRecorded
from agentscope_rx.requests import GenerateOptions, ModelRequest, ToolSpec
from agentscope_rx.secret_names import NOT_SHOWN
from agentscope_rx.session import FoldCache, LoggedRequest, SessionLog
from agentscope_rx.session.log_record import LogRecord
from agentscope_rx.session.request_writer import FULL_EVERY
from agentscope_rx.step import Step
from agentscope_rx.stores import InMemoryStore, JsonFileStore, SessionKey, SessionStore
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import FakeProvider, RecordedRequest, ScriptedReply
from agentscope_rx.tools import tool
from agentscope_rx.tools.outputs import OUTPUT_TOOL
from agentscope_rx.workspace import InMemoryWorkspace
from tests.session.support import KEY, agent_on, input_of, opened, said
from tests.strategies import result_of
from tests.support import MODELS, ONE_ATTEMPT, Seen, watch

ALICE = RuntimeContext(user_id="alice", session_id="s1")
WINDOW = 8_000


class Verdict(BaseModel):
    """A form of answer."""

    good: bool


@tool
async def look(at: int = 0) -> str:
    """Look at something."""
    return f"what is at {at}: secret word, " + "and more of it. " * (800 if at % 7 == 3 else at % 40)


@text_operator
def redact(text: str) -> str:
    return text.replace("secret", "[gone]")


class Provider:
    """Plays both models of an agent: the small one fails now and then, and refuses once what it could take."""

    def __init__(self, steps: int) -> None:
        self._chance, self._steps, self.asked = random.Random(5), steps, 0
        self.refused = self.failed = 0

    def __call__(self, request: RecordedRequest, number: int) -> ScriptedReply:
        body = request.body
        if not body.get("tools"):
            return fake.text("## SESSION INTENT\nWork on the secret.\n## SUMMARY\n" + "Looked. " * 30)
        if any(each["function"]["name"] == OUTPUT_TOOL for each in body["tools"]):
            return fake.tool_calls(("v1", OUTPUT_TOOL, '{"response": {"good": true}}'))
        self.asked += 1
        if self.asked == 17 and not self.refused:
            self.refused += 1
            message = "This model's maximum context length is 6000 tokens. However, you requested 7000 tokens"
            return fake.failure(400, {"error": {"code": "context_length_exceeded", "message": message}})
        if self.asked % 23 == 0 and body["model"] == "small":
            self.failed += 1
            return fake.failure(500, {"error": {"message": "down"}})
        if self.asked % self._steps == 0:
            return fake.text(f"done {self.asked}, secret")
        said = "word " * self._chance.randint(0, 30)
        call = (f"c{self.asked}", "look", f'{{"at":{self.asked}}}')
        return fake.tool_calls(call, text=said or None)


def harness(provider: FakeProvider, store: SessionStore, kind: type[Any]) -> HarnessBuilder:
    """An agent with all that makes a request another one than its history."""
    url = provider.base_url
    return HarnessAgent.builder(
        name="worker",
        model=kind("small", base_url=url, api_key="k", context_window=WINDOW),
        fallback_model=kind("large", base_url=url, api_key="k", context_window=3 * WINDOW),
        execution=ONE_ATTEMPT,
        state_store=store,
        workspace=InMemoryWorkspace({"AGENTS.md": "Be short.\n" * 20, "MEMORY.md": "Alice has a secret.\n" * 9}),
        tools=[look],
        max_iters=60,
        enable_task_list=True,
        context_policy=ContextPolicy(reserved_output_tokens=500),
        compaction={"keep_messages": 6, "keep_tokens": 0},
        pipeline=lambda default: default.insert_before("validate_request", redact),
    )


def sent_to(provider: FakeProvider) -> list[bytes]:
    """What a provider got, each once however often it was asked it in a row."""
    return [raw for raw, _ in groupby(request.raw for request in provider.requests)]


async def asked_of(log: SessionLog) -> list[LoggedRequest]:
    """All requests of a log."""
    async with aclosing(log.requests()) as found:
        return [each async for each in found]


@pytest.mark.parametrize("kind", MODELS)
async def test_every_request_is_made_again_as_it_was_sent(kind: type[HttpxChatModel], tmp_path: Path) -> None:
    """What a provider got is in the log to the byte, whatever made it: redaction, offloaded and pruned results,
    compactions, an overflow, a fallback, a form of answer, and another process that goes on with the session."""
    script = Provider(20)
    async with FakeProvider(script) as provider:
        store = JsonFileStore(tmp_path)
        seen = list[Seen]()
        for n in range(3):  # each as a process of its own
            async with harness(provider, store, kind).build() as agent:
                seen += [await watch(agent, f"Look at the secret {n}{m}.", ALICE) for m in range(2)]
        async with harness(provider, JsonFileStore(tmp_path), kind).build() as agent:
            verdict = await agent.call("Was it good?", ALICE, output=Verdict)
            models = {name: kind(name, base_url=provider.base_url, api_key="k") for name in ("small", "large")}
            log = agent.session_log(ALICE)
            found = await asked_of(log)
            one = await log.request(found[7].request.call_id)
    names = {event.name for each in seen for event in each.of(Custom)}
    assert {"compaction_end", "overflow_recovery", "model_fallback"} <= names
    assert verdict.output(Verdict).good
    assert [models[each.model].body(each.request) for each in found] == sent_to(provider)
    assert {each.request.purpose for each in found} == {"reasoning", "summary"}
    assert b"[gone]" in provider.requests[-1].raw
    assert b"secret" not in provider.requests[-1].raw
    assert one == found[7]


# -- what it costs ------------------------------------------------------------------------------------------


def payloads(log: list[LogRecord]) -> list[Mapping[str, Any]]:
    """What the records of requests say."""
    return [record.payload for record in log if record.type == "request/prepared"]


async def test_a_value_is_written_once(tmp_path: Path) -> None:
    """System prompt, schemas and material are in the log once, however many requests, runs and processes show them."""
    async with FakeProvider(lambda request, _: fake.text("fine")) as provider:
        for _ in range(3):
            async with harness(provider, JsonFileStore(tmp_path), HttpxChatModel).build() as agent:
                for _ in range(2):
                    await agent.call("Look.", ALICE)
        session_log = harness(provider, JsonFileStore(tmp_path), HttpxChatModel).build().session_log(ALICE)
        log, found = await session_log.read_after(0), await asked_of(session_log)
    text = "".join(str(record.payload) for record in log)
    assert [text.count(part) for part in ("Be short.", "Look at something.")] == [20, 1]
    assert len(found) == len(provider.requests) == 6
    assert all("Be short." in each.request.system for each in found)
    assert [bool(each["since"]) for each in payloads(list(log))] == [False, True] * 3


async def test_when_a_record_says_all() -> None:
    """A request leans on the one before it; in a new process, behind a changed history and after 200 it says all."""
    store = InMemoryStore()
    script = (fake.tool_calls((f"c{n}", "look", '{"at": 0}')) for n in range(FULL_EVERY + 1))
    async with FakeProvider([*script, fake.text("done"), *(fake.text("fine") for _ in range(3))]) as provider:
        model = HttpxChatModel("m", base_url=provider.base_url, api_key="k")
        agent = agent_on(store, model, tools=[look], max_iters=1_000)
        await agent.call("work", ALICE)
        await agent.call("more", ALICE)
        await agent.clear_context(ALICE)
        await agent.call("anew", ALICE)
        agent = agent_on(store, model)
        await agent.call("elsewhere", ALICE)
        found = payloads(list(await agent.session_log(ALICE).read_after(0, 10_000)))
        assert [model.body(each.request) for each in await asked_of(agent.session_log(ALICE))] == sent_to(provider)
    full = [at for at, each in enumerate(found) if not each["since"]]
    assert full == [0, FULL_EVERY, FULL_EVERY + 3, FULL_EVERY + 4]


async def test_requests_need_not_be_kept(tmp_path: Path) -> None:
    """Where nobody wants them, there is no record of a request, and asking for one says so."""
    async with FakeProvider([fake.text("fine")]) as provider:
        agent = harness(provider, JsonFileStore(tmp_path), HttpxChatModel).log_requests(False).build()
        await agent.call("Look.", ALICE)
        assert not payloads(list(await agent.session_log(ALICE).read_after(0)))
        with pytest.raises(RequestUnknown, match="holds no request 'c1'"):
            await agent.session_log(ALICE).request("c1")


async def test_no_key_is_in_the_log(tmp_path: Path) -> None:
    """Headers and URL parameters are not kept, nor what is secret in further fields of the body by its name."""
    options = GenerateOptions(
        temperature=0.5,
        additional_headers={"x-api-key": "planted-1"},
        additional_query={"key": "planted-2"},
        additional_body={"metadata": {"access_token": "planted-3", "team": "blue"}},
    )
    async with FakeProvider([fake.text("fine")]) as provider:
        agent = harness(provider, JsonFileStore(tmp_path), HttpxChatModel).generate_options(options).build()
        await agent.call("Look.", ALICE)
        (found,) = await asked_of(agent.session_log(ALICE))
    assert b"planted-3" in provider.requests[0].raw
    assert found.request.options.temperature == 0.5
    assert found.request.options.additional_body == {"metadata": {"access_token": NOT_SHOWN, "team": "blue"}}
    assert not any(b"planted" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


async def test_requests_of_a_preparation_that_failed(tmp_path: Path) -> None:
    """A summary that was asked for is in the log also where nothing came of the step that wanted it."""

    @effect_operator
    async def refuse(step: Step) -> Step:
        raise ValueError("not today")

    def script(request: RecordedRequest, _: int) -> ScriptedReply:
        return fake.text("## SESSION INTENT\nWork.")

    async with FakeProvider(script) as provider:
        builder = harness(provider, JsonFileStore(tmp_path), HttpxChatModel)
        builder = builder.compaction(trigger_messages=4, keep_messages=2, keep_tokens=0)
        agent = builder.pipeline(lambda default: default.insert_after("compact_history", refuse)).build()
        await agent.observe([Msg.user("word " * 200) for _ in range(8)], ALICE)
        with pytest.raises(ValueError, match="not today"):
            await agent.call("Look.", ALICE)
        found = await asked_of(agent.session_log(ALICE))
        model = HttpxChatModel("small", base_url=provider.base_url, api_key="k")
        assert [model.body(each.request) for each in found] == sent_to(provider)
    assert [each.request.purpose for each in found] == ["summary"]


async def test_the_account_is_kept_with_it(tmp_path: Path) -> None:
    """Each record has the manifest of its request; what older requests hold of the conversation is one entry of it."""
    replies = [fake.tool_calls((f"c{n}", "look", '{"at": 1}')) for n in range(5)]
    async with FakeProvider([*replies, fake.text("done")]) as provider:
        agent = harness(provider, JsonFileStore(tmp_path), HttpxChatModel).build()
        seen = await watch(agent, "Look.", ALICE)
        found = await asked_of(agent.session_log(ALICE))
    manifests = [event.value["context_manifest"] for event in seen.of(Custom) if event.name == "context_build"]
    for at, (manifest, each) in enumerate(zip(manifests, found, strict=True)):
        assert each.manifest is not None
        assert each.manifest["callId"] == each.request.call_id == manifest.call_id
        assert each.manifest["estimatedInputTokens"] == manifest.estimated_input_tokens
        messages = [item for item in each.manifest["items"] if item["sourceType"] == "message"]
        known = each.manifest.get("known", {"exchanges": 0, "tokens": 0})
        assert (known["exchanges"], len(messages)) == (at, 1 if not at else 2)
        assert known["tokens"] + sum(item["tokens"] for item in messages) == manifest.categories["conversation"]


async def test_what_cannot_be_made_again_is_an_error(tmp_path: Path) -> None:
    """A log that was changed gives an error for its requests, and never one that was not sent."""
    store = InMemoryStore()
    async with FakeProvider([fake.text("fine"), fake.text("fine")]) as provider:
        model = HttpxChatModel("m", base_url=provider.base_url, api_key="k")
        agent = agent_on(store, model)
        await agent.call("one", ALICE)
        await agent.call("two", ALICE)
    key = agent.options.key_of(ALICE)
    bodies = await store.read_after(key, 0)
    other = SessionKey(agent_id=key.agent_id, user_id="alice", session_id="other")
    for old, new, why in (
        (b'"text":"one"', b'"text":"two"', "another one"),
        (b'"since":"', b'"since":"not', "KeyError"),
        (b'"count":1', b'"count":9', "KeyError"),
    ):
        assert any(old in body for body in bodies)
        await store.append(other, [body.replace(old, new) for body in bodies], expected_seq=0)
        with pytest.raises(LogUnreadable, match=f"cannot be made again as it was.*{why}"):
            await asked_of(SessionLog(store, other))
        await store.delete(other)


# -- whatever happens to a session --------------------------------------------------------------------------

_TEXT = st.sampled_from(["a", "secret", "word " * 30, "\ud83d", "é"])
_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["say", "say", "act", "shorten", "rewrite", "clear", "leave", "other", "crash"]),
        st.integers(0, 9),
        _TEXT,
    ),
    max_size=14,
)


@given(_STEPS)
async def test_whatever_happens_to_a_session(steps: list[tuple[str, int, str]]) -> None:
    """Requests are made again as they were, whatever is said, shortened, shown otherwise or left out, in whichever of
    two processes, and also where one of them dies."""
    store, caches = InMemoryStore(), [FoldCache(), FoldCache()]
    sent: list[ModelRequest] = []
    session, process = await opened(store, cache=caches[0]), 0
    for number, (what, at, text) in enumerate([("say", 0, "begin"), *steps]):
        history = session.state.context
        match what:
            case "shorten" if len(history) > 1:
                after = history.replace_first(1 + at % (len(history) - 1), said(f"s{number}", text))
                session.record(HistoryEdited(edits_between(history, after)))
            case "rewrite" if len(history):
                after = history.with_messages(replace(next(history.messages), content=Msg.user(text).content))
                session.record(HistoryEdited(edits_between(history, after)))
            case "clear":
                session.record(ContextCleared())
            case "act":
                call = ToolUseBlock(id=f"c{number}", name="look", input={"at": text})
                session.record(ReplyRecorded(replace(Msg.assistant(call), id=f"a{number}")))
                session.record(ResultsRecorded((replace(result_of(call), id=f"r{number}"),)))
            case "leave" | "other" | "crash":
                if what != "crash":
                    await session.save()
                elif at % 2:
                    await session.barrier()
                kept = {record.payload["call_id"] for record in await records_of(store)}
                sent = [each for each in sent if each.call_id in kept]
                await session.close()
                process ^= what == "other"
                caches[process] = FoldCache() if what == "crash" and at % 3 else caches[process]
                session = await opened(store, cache=caches[process])
            case _:
                pass
        session.record(input_of(said(f"m{number}", text)))
        request = shown(session.state.context, number, at, text)
        session.note_request(request, "m", None)
        sent.append(request)
    await session.save()
    await session.close()
    found = [each.request for each in await asked_of(SessionLog(store, KEY))]
    assert [model_body(each) for each in found] == [model_body(each) for each in sent]


async def test_a_value_that_was_never_written_is_not_counted_on() -> None:
    """What a run noted and did not come to write is written by the next one that needs it."""
    store, cache = InMemoryStore(), FoldCache()
    session = await opened(store, cache=cache)
    session.record(input_of(said("m1")))
    await session.barrier()
    summary = replace(shown(session.state.context, 1, 0, "a"), purpose="summary")
    session.note_request(summary, "m", None)
    await session.close()
    session = await opened(store, cache=cache)
    request = shown(session.state.context, 2, 0, "a")
    session.note_request(request, "m", None)
    await session.save()
    await session.close()
    (found,) = await asked_of(SessionLog(store, KEY))
    assert model_body(found.request) == model_body(request)


def shown(history: History, number: int, at: int, text: str) -> ModelRequest:
    """A request for a history, which it shows in one way or another."""
    if at % 3 == 1:
        history = RequestDraft(conversation=history).map_text(redact.function).conversation
    if at % 4 == 2:
        ids = [exchange.id for exchange in history]
        history = history.without(frozenset([ids[number % len(ids)]]))
    tail = [replace(Msg.user(f"{kind} {text}"), id=f"harness:{kind}") for kind in "ab"[: at % 3]]
    tools = [ToolSpec(name=name, description=text * (at % 2), parameters={}) for name in "xyz"[: at % 4]]
    return ModelRequest(
        call_id=f"call{number}",
        purpose="summary" if at == 9 else "reasoning",
        system=f"Be {text}." if at % 2 else "Be good, and do what you are told. " * 3,
        conversation=history,
        tail=tuple(tail),
        tools=tuple(tools),
        options=GenerateOptions(max_tokens=1 + at // 5),
    )


def model_body(request: ModelRequest) -> bytes:
    """A request on the wire."""
    return encode(request, model="m", provider=COMPATIBLE)


async def records_of(store: InMemoryStore) -> list[LogRecord]:
    """The records of requests."""
    found = [LogRecord.from_json(body) for body in await store.read_after(KEY, 0)]
    return [record for record in found if record.type == "request/prepared"]
