"""Cases O10 to O12: requests that a provider finds too long, and refusals that only sound like it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

import agentscope_rx.events as ev
from agentscope_rx import GenerateOptions
from agentscope_rx.compactions import CompactionOutcome
from agentscope_rx.errors import ContextOverflow, ProviderError
from agentscope_rx.models import HttpxChatModel, OpenAIChatModel
from agentscope_rx.requests import ExecutionConfig
from tests.cases import case
from tests.cases.long_sessions import (
    ALICE,
    LongSession,
    Script,
    Watched,
    check_summary_request,
    conversation_of,
    long_session,
    options_of,
    words_of,
)
from tests.cases.playing import calls_of
from tests.support import MODELS

Model = type[HttpxChatModel] | type[OpenAIChatModel]


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages]


def check_no_answer(seen: Watched) -> None:
    """I4: a run that failed has no result."""
    assert seen.of(ev.AgentResult) == []
    assert seen.types[-1] == "AGENT_END"
    assert seen.ends == [seen.error]


# -- recovery -----------------------------------------------------------------------------------------------


def o10(name: str) -> tuple[dict[str, Any], Script]:
    """The case, and the replies of one of its variants."""
    the = case("O10")
    (variant,) = [each for each in the["variants"] if each["name"] == name]
    replies = [the["overflow"] if reply == "overflow" else reply for reply in variant["model"]]
    return the, Script(replies, the["summary"])


@pytest.mark.parametrize("model", MODELS)
async def test_o10_a_wording_without_context_or_tokens(model: Model, tmp_path: Path) -> None:
    """One compaction, one more try of the same step; the tool that ran before is not run again."""
    the, script = o10("recovers")
    options: dict[str, Any] = {"tools": the["tools"], "model": model, **options_of(the["config"])}
    async with long_session(tmp_path, script, the["history"], **options) as session:
        seen = await session.watch(the["input"]["content"])
        assert (seen.error, seen.result.text) == (None, "done")
        assert (len(session.main), len(session.summary)) == (3, 1)
        assert len(session.tools["pay"].calls) == 1
        check_summary_request(session.summary[0])
        _, refused, again = session.main
        assert len(json.dumps(again["messages"])) < len(json.dumps(refused["messages"]))
        assert calls_of(again) == calls_of(refused) == [("c1", "pay", "{}")]
        (_, summary), *tail = conversation_of(again)
        assert "\nS\n" in summary
        assert tail == [("user", "go"), ("assistant", "c1"), ("tool", "paid")]
        once = await session.once_said()
        assert once == [*texts(the["history"]), "go", "c1", "paid", "done"]
        check_told(seen, session)
        assert await session.said() == [summary, "go", "c1", "paid", "done"]


def check_told(seen: Watched, session: LongSession) -> None:
    """The events and accounts of a recovery."""
    (told,) = seen.customs("overflow_recovery")
    assert (told["error"], told["limit"]) == ("context_overflow", 98_304)
    *_, refused, again = seen.manifests()
    assert told["failed_call_id"] == refused.call_id
    assert [list(each.transforms) for each in (refused, again)] == [[], ["history_compaction"]]
    assert again.estimated_input_tokens < refused.estimated_input_tokens
    assert {each.validation for each in seen.manifests()} == {"passed"}
    assert again.compaction is not None
    assert (again.compaction.outcome, again.compaction.trigger) == (CompactionOutcome.DONE, "overflow")
    assert seen.customs("compaction_failed") == []
    assert len(seen.of(ev.AgentResult)) == 1


@pytest.mark.parametrize("model", MODELS)
async def test_o10_the_second_refusal_is_the_end(model: Model, tmp_path: Path) -> None:
    """It is raised in the provider's words; nothing is tried a third time, and the session goes on."""
    the, script = o10("twice")
    options: dict[str, Any] = {"tools": the["tools"], "model": model, **options_of(the["config"])}
    async with long_session(tmp_path, script, the["history"], **options) as session:
        seen = await session.watch(the["input"]["content"])
        assert isinstance(seen.error, ContextOverflow)
        assert seen.error.kind == "context_overflow"
        assert "Range of input length should be [1, 98304]" in str(seen.error)
        assert (len(session.main), len(session.summary)) == (3, 1)
        assert len(session.tools["pay"].calls) == 1
        assert len(seen.customs("overflow_recovery")) == 1
        check_no_answer(seen)
        assert await session.once_said() == [*texts(the["history"]), "go", "c1", "paid"]


async def test_o10_where_nothing_can_be_shortened(tmp_path: Path) -> None:
    """The provider's own error is raised, and no second request is sent."""
    the = case("O10")
    script = Script([the["overflow"]])
    async with long_session(tmp_path, script, **options_of(the["config"])) as session:
        seen = await session.watch(the["input"]["content"])
        assert isinstance(seen.error, ContextOverflow)
        assert "Range of input length" in str(seen.error)
        assert (len(session.main), len(session.summary)) == (1, 0)
        check_no_answer(seen)
        assert await session.said() == ["go"]


async def test_o10_where_a_summary_shortens_nothing(tmp_path: Path) -> None:
    """The same, and what was summarised for nothing stays in the history word for word."""
    the = case("O10")
    script = Script([the["overflow"]], [{"text": "many words " * 20}])
    async with long_session(tmp_path, script, the["history"], **options_of(the["config"])) as session:
        before = await session.history()
        seen = await session.watch(the["input"]["content"])
        assert isinstance(seen.error, ContextOverflow)
        assert "Range of input length" in str(seen.error)
        assert (len(session.main), len(session.summary)) == (1, 1)
        check_no_answer(seen)
        assert (await session.history())[:-1] == before
        assert await session.said() == [*texts(the["history"]), "go"]
        assert [each.validation for each in seen.manifests()] == ["passed", "build_failed"]


async def test_o10_without_compaction_there_is_no_recovery(tmp_path: Path) -> None:
    """Who has switched compaction off gets the provider's error, and keeps the history as it was."""
    the = case("O10")
    async with long_session(tmp_path, Script([the["overflow"]]), the["history"], compaction=None) as session:
        before = await session.history()
        seen = await session.watch(the["input"]["content"])
        assert isinstance(seen.error, ContextOverflow)
        assert (len(session.main), len(session.summary)) == (1, 0)
        assert (await session.history())[:-1] == before


async def test_o10_each_step_has_a_recovery_of_its_own(tmp_path: Path) -> None:
    """One a step: a later step of the same run recovers too, where something new can give way."""
    the = case("O10")
    pay, again = ({"call": [[id, "pay", "{}"]]} for id in ("c1", "c2"))
    script = Script([the["overflow"], pay, again, the["overflow"], {"text": "done"}], [{"text": "S"}, {"text": "T"}])
    options: dict[str, Any] = {"tools": the["tools"], **options_of(the["config"])}
    async with long_session(tmp_path, script, the["history"], **options) as session:
        seen = await session.watch(the["input"]["content"])
        assert (seen.error, seen.result.text) == (None, "done")
        assert (len(session.main), len(session.summary)) == (5, 2)
        assert len(seen.customs("overflow_recovery")) == 2
        assert len(session.tools["pay"].calls) == 2
        assert await session.once_said() == [*texts(the["history"]), "go", "c1", "paid", "c2", "paid", "done"]


# -- in both ways of calling --------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
async def test_o11_a_call_and_a_stream_of_events_recover_alike(model: Model, tmp_path: Path) -> None:
    """The same requests, the same history, the same answer; no subscriber sees the refusal as an error."""
    the = case("O11")
    sent: list[list[Any]] = []
    histories: list[list[tuple[str, str]]] = []
    for way in the["run_both"]:
        script = Script(the["model"], the["summary"])
        options: dict[str, Any] = {"model": model, **options_of(the["config"])}
        async with long_session(tmp_path / way, script, the["history"], **options) as session:
            if way == "call":
                assert (await session.agent.call(the["input"]["content"], ALICE)).text == "done"
            else:
                check_recovered(await session.watch(the["input"]["content"]))
            assert (len(session.main), len(session.summary)) == (2, 1)
            check_summary_request(session.summary[0])
            sent.append([conversation_of(body) for body in session.main])
            state = await session.agent.state(ALICE)
            histories.append([(message.role, words_of(message)) for message in state.context.messages])
            assert await session.once_said() == [*texts(the["history"]), "go", "done"]
    assert sent[0] == sent[1]
    assert histories[0] == histories[1]
    (_, summary), *rest = sent[0][1]
    assert "\nS\n" in summary
    assert rest == [("user", "go")]


def check_recovered(seen: Watched) -> None:
    """One answer, one end, and the failed attempt before the recovery."""
    assert (seen.error, seen.result.text, seen.ends) == (None, "done", [None])
    assert [event.delta for event in seen.of(ev.TextBlockDelta) if not ev.is_aside(event)] == ["done"]
    assert seen.types.count("AGENT_END") == 1
    ends = [event for event in seen.of(ev.ModelCallEnd) if not ev.is_aside(event)]
    told = [cast("Mapping[str, Any]", event.metadata or {}).get("error") for event in ends]
    assert told == [{"class": "ContextOverflow", "kind": "context_overflow"}, None]
    (recovery,) = [each for each in seen.of(ev.Custom) if each.name == "overflow_recovery"]
    order = [seen.events.index(each) for each in (ends[0], recovery, ends[1])]
    assert order == sorted(order)
    assert not any(b"input token limit" in event.to_json() for event in seen.events)
    first, second = seen.manifests()
    assert [list(each.transforms) for each in (first, second)] == [[], ["history_compaction"]]


# -- what is none -------------------------------------------------------------------------------------------

NEAR_MISSES = case("O12")["errors"]
IDS = [f"{number}-{each['kind']}" for number, each in enumerate(NEAR_MISSES)]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("error", NEAR_MISSES, ids=IDS)
async def test_o12_what_is_no_overflow_shortens_nothing(error: dict[str, Any], model: Model, tmp_path: Path) -> None:
    """An error of its own kind, after one call, or two where waiting may help; the history stays byte for byte."""
    the = case("O12")
    tries = 2 if error["kind"] == "rate_limit" else 1
    patient = ExecutionConfig(max_attempts=2, initial_backoff=0)
    options: dict[str, Any] = {"model": model, "execution": patient}
    async with long_session(tmp_path, Script([error] * tries), the["history"], **options) as session:
        before = await session.history()
        seen = await session.watch(the["input"]["content"])
        assert isinstance(seen.error, ProviderError)
        assert (seen.error.kind, seen.error.status) == (error["kind"], error["status"])
        assert (len(session.main), len(session.summary)) == (tries, 0)
        after = await session.history()
        assert after[:-1] == before
        assert await session.said() == [*texts(the["history"]), "go"]
        assert await session.agent.compactions(ALICE) == ()
        assert [list(each.transforms) for each in seen.manifests()] == [[]]
        assert seen.customs("compaction_start") == seen.customs("overflow_recovery") == []
        check_no_answer(seen)


@pytest.mark.parametrize("error", [each for each in NEAR_MISSES if each["kind"] == "output_cap"])
async def test_o12_a_cap_of_output_lowers_what_is_asked_for(error: dict[str, Any], tmp_path: Path) -> None:
    """Where the agent asks for a length at all, it asks once more for less, and the history stays as it is."""
    the = case("O12")
    script = Script([error, {"text": "done"}])
    options: dict[str, Any] = {"generate_options": GenerateOptions(max_tokens=64_000)}
    async with long_session(tmp_path, script, the["history"], **options) as session:
        before = await session.history()
        seen = await session.watch(the["input"]["content"])
        assert (seen.error, seen.result.text) == (None, "done")
        first, second = (body["max_tokens"] for body in session.main)
        assert 1 <= second < first == 64_000
        assert session.summary == []
        assert (await session.history())[:12] == before
        assert [list(each.transforms) for each in seen.manifests()] == [[], []]
