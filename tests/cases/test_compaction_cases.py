"""Cases O01 to O09: compactions that split what belongs together, go round in circles, or trust a bad summary."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

import agentscope_rx.events as ev
from agentscope_rx import ContextPolicy
from agentscope_rx.compaction.prompt import SUMMARY_PROMPT, notes_of
from agentscope_rx.compactions import CompactionOutcome
from agentscope_rx.context.counting import counter_for
from agentscope_rx.errors import ContextBudgetExceeded, ProviderError
from agentscope_rx.history import Exchange
from agentscope_rx.messages import GenerateReason, Msg, ToolResultState
from agentscope_rx.models import HttpxChatModel
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import RecordedRequest, ScriptedReply
from tests.cases import case
from tests.cases.long_sessions import (
    ALICE,
    Script,
    Watched,
    asked_to_summarise,
    check_summary_request,
    conversation_of,
    long_session,
    messages_from,
    options_of,
    output_limit_of,
    words_of,
)


def texts(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages]


def words(history: list[dict[str, Any]]) -> list[str]:
    """What a history of a case says, as `once_said` tells it."""
    return [each["content"] or " ".join(call["id"] for call in each["tool_calls"]) for each in history]


def check_no_failure_told(seen: Watched, logs: list[Any]) -> None:
    assert seen.customs("compaction_failed") == []
    assert [entry for entry in logs if entry["event"] == "compaction_failed"] == []


# -- pairs --------------------------------------------------------------------------------------------------


async def test_o01_the_cut_falls_between_a_call_and_its_result(tmp_path: Path) -> None:
    """The tail grows backwards to the message that called; what gave way can be read back word for word."""
    the = case("O01")
    script = Script(the["model"], the["summary"])
    async with long_session(tmp_path, script, the["history"], **options_of(the["config"])) as session:
        seen = await session.watch(the["input"]["content"])
        assert (seen.error, seen.result.text) == (None, "ok")
        (body,), (asked,) = session.main, session.summary
        (_, summary), *tail = conversation_of(body)
        assert "<summary>\nS1\n</summary>" in summary
        assert tail == [("assistant", "c2"), ("tool", "B"), ("assistant", "two"), ("user", "u3")]
        check_summary_request(asked)
        assert [text in asked_to_summarise(asked) for text in ("u1", "one", "u2", "two", "u3")] == [True] * 3 + [
            False
        ] * 2
        (manifest,) = seen.manifests()
        assert manifest.validation == "passed"
        assert list(manifest.transforms) == ["history_compaction"]
        assert manifest.compaction is not None
        assert (manifest.compaction.outcome, manifest.compaction.trigger) == (CompactionOutcome.DONE, "messages")
        assert (manifest.compaction.messages_before, manifest.compaction.messages_after) == (9, 5)
        written = json.loads(manifest.to_json())
        assert (written["transforms"], written["compaction"]["outcome"]) == (["history_compaction"], "done")
        assert len(seen.customs("compaction_start")) == len(seen.customs("compaction_end")) == 1
        assert await session.said() == [summary, "c2", "B", "two", "u3", "ok"]
        assert await session.once_said() == [*words(the["history"]), "u3", "ok"]
    assert len(session.main) == 2


async def test_o02_ten_parallel_calls_and_a_tail_of_six(tmp_path: Path) -> None:
    """Only what was said before the calls gives way, and of that not what the user said last; all ten stay paired."""
    the = case("O02")
    script = Script(the["model"], the["summary"])
    before = texts(the["history"][:3])
    async with long_session(tmp_path, script, the["history"], **options_of(the["config"])) as session:
        seen = await session.watch(None)
        assert (seen.error, seen.result.text) == (None, "done")
        (body,), (asked,) = session.main, session.summary
        (_, summary), *rest = conversation_of(body)
        assert "\nS\n" in summary
        calls = " ".join(f"k{i}" for i in range(10))
        results = [("tool", f"body {i}") for i in range(10)]
        assert rest == [("user", before[2]), ("assistant", calls), *results]
        answered = [each["tool_call_id"] for each in body["messages"] if each["role"] == "tool"]
        assert answered == calls.split()
        check_summary_request(asked)
        shown = asked_to_summarise(asked)
        assert all(text in shown for text in before[:2])
        assert "body" not in shown
        assert "k0" not in shown
        (manifest,) = seen.manifests()
        assert (manifest.validation, list(manifest.transforms)) == ("passed", ["history_compaction"])
        (compaction,) = await session.agent.compactions(ALICE)
        assert {words_of(message) for message in compaction.replaced.messages} <= set(before)
        assert await session.once_said() == [*words(the["history"]), "done"]


async def test_o03_a_dead_call_does_not_block_compaction(tmp_path: Path) -> None:
    """It is closed once, with a result that says so, and never executed; then compaction does its work."""
    the = case("O03")
    script = Script(the["model"], the["summary"])
    options: dict[str, Any] = {"tools": {"deploy": "deployed"}, **options_of(the["config"])}
    async with long_session(tmp_path, script, the["history"], **options) as session:
        assert [call.id for call in (await session.agent.state(ALICE)).context.open_calls] == ["dead1"]
        seen = await session.watch(the["input"]["content"])
        assert (seen.error, seen.result.text) == (None, "a9")
        assert session.tools["deploy"].calls == []
        (body,), (asked,) = session.main, session.summary
        (_, summary), *tail = conversation_of(body)
        assert "\nS\n" in summary
        assert tail == [("assistant", "a7"), ("user", "q8"), ("assistant", "a8"), ("user", "q9")]
        check_summary_request(asked)
        (manifest,) = seen.manifests()
        assert (manifest.validation, list(manifest.transforms)) == ("passed", ["history_compaction"])
        (compaction,) = await session.agent.compactions(ALICE)
        closed = [message.tool_result for message in compaction.replaced.messages if message.tool_result]
        assert [(each.id, each.state) for each in closed] == [("dead1", ToolResultState.INTERRUPTED)]
        assert "interrupted" in closed[0].text
        assert closed[0].text in asked_to_summarise(asked)
        head, dead, *others = words(the["history"])
        assert await session.once_said() == [head, dead, closed[0].text, *others, "q9", "a9"]
        assert (await session.agent.state(ALICE)).context.open_calls == ()


# -- loops --------------------------------------------------------------------------------------------------


async def test_o05_a_compaction_that_gains_next_to_nothing_is_not_repeated(tmp_path: Path) -> None:
    """At most one summary call in a run in which nothing was added that could be summarised."""
    (the,) = [each for each in case("O05")["variants"] if each["name"] == "no-gain"]
    script = Script(the["model"], the["summary"])
    options: dict[str, Any] = {"tools": the["tools"], **options_of(the["config"])}
    async with long_session(tmp_path, script, the["history"], **options) as session:
        seen = await session.watch(the["input"]["content"])
        assert (seen.error, seen.result.text) == (None, "end")
        assert (len(session.main), len(session.summary)) == (3, 1)
        assert len(session.tools["look"].calls) == 2
        check_summary_request(session.summary[0])
        outcomes = [manifest.compaction.outcome for manifest in seen.manifests() if manifest.compaction]
        # The summary is shorter than what it stands for, and what it leaves is over the trigger all the same.
        assert outcomes == [CompactionOutcome.DONE, *[CompactionOutcome.NOT_NEEDED] * 2]
        assert all(manifest.validation == "passed" for manifest in seen.manifests())
        assert len(await session.summaries()) == 1
        assert await session.once_said() == [*words(the["history"]), "go", "c1", "1", "c2", "1", "end"]


async def test_o05_a_summary_that_gains_nothing_at_all(tmp_path: Path) -> None:
    """It is refused, none is asked for again in the run, and the history stays as it is."""
    (the,) = [each for each in case("O05")["variants"] if each["name"] == "no-gain"]
    script = Script(the["model"], [{"text": the["summary"][0]["text"] * 4}])
    options: dict[str, Any] = {"tools": the["tools"], **options_of(the["config"])}
    async with long_session(tmp_path, script, the["history"], **options) as session:
        before = await session.history()
        seen = await session.watch(the["input"]["content"])
        assert (seen.error, seen.result.text) == (None, "end")
        assert (len(session.main), len(session.summary)) == (3, 1)
        assert [told["reason"] for told in seen.customs("compaction_failed")] == ["no_gain"]
        decisions = [manifest.compaction for manifest in seen.manifests() if manifest.compaction]
        assert [each.reason for each in decisions] == ["no_gain", "cooldown", "cooldown"]
        assert [list(manifest.transforms) for manifest in seen.manifests()] == [[]] * 3
        assert (await session.history())[: len(before)] == before
        assert await session.said() == [*words(the["history"]), "go", "c1", "1", "c2", "1", "end"]


@pytest.mark.parametrize("times", [1, 400])
async def test_o06_a_summary_of_a_summary_does_not_grow(times: int, tmp_path: Path) -> None:
    """One summary at a time, the former one in the request for the next once, and a bound on their length; the same
    where messages are so long that a summary may have its greatest length."""
    the = case("O06")
    messages = [{**each, "content": " ".join([each["content"]] * times)} for each in the["per_round"]]

    def echo(request: RecordedRequest) -> ScriptedReply:
        prompt = request.messages[-1]["content"]
        return fake.text(prompt[: output_limit_of(request.body) * 4])

    script = Script(lambda request: fake.text("noted"), echo)
    sizes: list[int] = []
    kept: list[str] = []
    async with long_session(tmp_path, script, **options_of(the["config"])) as session:
        everything: list[str] = []
        for number in range(1, the["rounds"] + 1):
            await session.agent.observe(messages_from(messages), ALICE)
            seen = await session.watch(f"go on {number}")
            assert (seen.error, seen.result.text) == (None, "noted")
            everything += [*texts(messages), f"go on {number}", "noted"]
            assert len(session.summary) == number
            asked = session.summary[-1]
            check_summary_request(asked)
            for former in kept[-1:]:
                assert asked_to_summarise(asked).count(former) == 1
            (message,) = await session.summaries()
            kept.append(notes_of(Exchange(message)))
            sizes.append(len(message.text))
            (manifest,) = seen.manifests()
            assert manifest.compaction is not None
            assert (manifest.validation, manifest.compaction.outcome) == ("passed", CompactionOutcome.DONE)
            assert manifest.compaction.summary_tokens <= manifest.compaction.budget / 4
            assert await session.once_said() == everything
        assert sizes[4] <= 1.25 * sizes[2]
    assert len(session.main) == the["rounds"] + 1


# -- summaries that fail ------------------------------------------------------------------------------------

BAD: dict[str, Any] = {
    **dict(zip(["empty", "blank", "tool call", "failed", "cut"], case("O07")["summary_variants"], strict=True)),
    "too long": {"stream": [{"d": {"content": "half a sum"}}, {"d": {}, "f": "length"}]},
}
REASONS = {
    "empty": {"empty", "unfinished"},
    "blank": {"empty"},
    "tool call": {"called_tools"},
    "failed": {"server_failed"},
    "cut": {"stream_incomplete"},
    "too long": {"unfinished"},
}


@pytest.mark.parametrize("bad", BAD)
async def test_o07_a_bad_summary_changes_nothing(bad: str, tmp_path: Path) -> None:
    """The history stays byte for byte, an event says why, and the model is asked once, with all of it."""
    the = case("O07")
    script = Script(the["model"], [BAD[bad]])
    options: dict[str, Any] = {"tools": {"look": "1"}, **options_of(the["config"])}
    async with long_session(tmp_path, script, the["history"], **options) as session:
        before = await session.history()
        seen = await session.watch(the["input"]["content"])
        assert (seen.error, seen.result.text) == (None, "a5")
        after = await session.history()
        assert after[:8] == before
        assert await session.said() == [*texts(the["history"]), "q5", "a5"]
        assert await session.summaries() == []
        assert await session.agent.compactions(ALICE) == ()
        (body,), (asked,) = session.main, session.summary
        assert [text for _, text in conversation_of(body)] == [*texts(the["history"]), "q5"]
        assert body["tools"]
        check_summary_request(asked)
        (told,) = seen.customs("compaction_failed")
        assert told["reason"] in REASONS[bad]
        assert seen.customs("compaction_end") == []
        (manifest,) = seen.manifests()
        assert (manifest.validation, list(manifest.transforms)) == ("passed", [])
        assert manifest.compaction is not None
        outcome = CompactionOutcome.FAILED if bad in ("failed", "cut") else CompactionOutcome.REFUSED
        assert (manifest.compaction.outcome, manifest.compaction.reason) == (outcome, told["reason"])
        assert session.tools["look"].calls == []


@pytest.mark.parametrize("bad", BAD)
async def test_o07_where_the_input_does_not_fit(bad: str, tmp_path: Path) -> None:
    """ContextBudgetExceeded with what was wrong with the summary as its cause; nothing is sent, nothing is lost."""
    the = case("O07")
    history = [{**message, "content": f"{message['content']} " * 400} for message in the["history"]]
    policy = ContextPolicy(max_input_tokens=5_000)
    options: dict[str, Any] = {**options_of(the["config"]), "context_policy": policy}
    async with long_session(tmp_path, Script([], [BAD[bad]]), history, **options) as session:
        before = await session.history()
        seen = await session.watch(the["input"]["content"])
        assert isinstance(seen.error, ContextBudgetExceeded)
        assert seen.error.__cause__ is not None
        if bad == "failed":
            assert isinstance(seen.error.__cause__, ProviderError)
            assert "upstream died" in str(seen.error.__cause__)
        assert (len(session.main), len(session.summary)) == (0, 1)
        assert (await session.history())[:8] == before
        assert await session.said() == [*texts(history), "q5"]
        (manifest,) = seen.manifests()
        assert manifest.validation == "budget_exceeded"
        assert len(seen.customs("compaction_failed")) == 1


async def test_o08_a_summariser_with_a_smaller_window(tmp_path: Path) -> None:
    """It reads in parts that fit its window; one summary comes of them, and its refusals reach nobody."""
    the = case("O08")
    config = dict(the["config"]["compaction"])
    window = config.pop("model_window")
    counter = counter_for(None, "small-model")

    def cost(messages: list[dict[str, Any]]) -> int:
        return sum(Exchange(Msg.user(message["content"])).measure(counter) for message in messages)

    def small(request: RecordedRequest) -> ScriptedReply:
        if cost(request.messages) + output_limit_of(request.body) > window:
            return fake.failure(400, {"error": {"code": "context_length_exceeded", "message": "too long"}})
        return fake.text("S")

    def with_summariser(provider: fake.FakeProvider) -> dict[str, Any]:
        model = HttpxChatModel("small-model", base_url=provider.base_url, api_key="test-key", context_window=window)
        return {"compaction": {**config, "model": model}}

    script = Script(the["model"], small)
    async with long_session(tmp_path, script, the["history"], make=with_summariser) as session:
        seen = await session.watch(the["input"]["content"])
        assert (seen.error, seen.result.text) == (None, "done")
        assert len(session.main) == 1
        assert {body["model"] for body in session.summary} == {"small-model"}
        for body in session.summary:
            check_summary_request(body)
            assert cost(body["messages"]) < window
        accounts = seen.manifests("summary")
        assert len(accounts) == len(session.summary)
        assert all(account.validation == "passed" for account in accounts)
        assert all(account.estimated_input_tokens < window for account in accounts)
        (manifest,) = seen.manifests()
        assert manifest.compaction is not None
        assert (manifest.validation, manifest.compaction.outcome) == ("passed", CompactionOutcome.DONE)
        assert manifest.compaction.model == "small-model"
        limit = accounts[0].input_limit
        assert limit is not None
        frame = accounts[0].categories["system"] + cost([{"content": SUMMARY_PROMPT}])
        part = limit - frame - 2 * output_limit_of(session.summary[0])
        assert 1 < len(session.summary) <= -(-manifest.compaction.replaced_tokens // part) + 1
        # Each part of what gave way is read once.
        assert sum(asked_to_summarise(body).count("alpha beta") for body in session.summary) == sum(
            words_of(message).count("alpha beta")
            for compaction in await session.agent.compactions(ALICE)
            for message in compaction.replaced.messages
        )
        (summary,) = await session.summaries()
        assert notes_of(Exchange(summary)) == "S"
        assert conversation_of(session.main[0])[0] == ("user", summary.text)
        assert await session.once_said() == [*texts(the["history"]), "go on", "done"]
        assert seen.customs("compaction_failed") == []


# -- whose failure it is ------------------------------------------------------------------------------------

O09 = {each["name"]: each for each in case("O09")["variants"]}


async def test_o09_an_error_of_the_model_is_no_failure_of_the_compaction(tmp_path: Path) -> None:
    """It reaches the caller unchanged after one call, and the compaction stands."""
    the, variant = case("O09"), O09["model error"]
    script = Script(variant["model"], variant["summary"])
    async with long_session(tmp_path, script, the["history"], **options_of(the["config"])) as session:
        with capture_logs() as logs:
            seen = await session.watch(the["input"]["content"])
        assert isinstance(seen.error, ProviderError)
        assert (seen.error.kind, seen.error.status) == ("server", 500)
        assert "boom" in str(seen.error)
        assert (len(session.main), len(session.summary)) == (1, 1)
        check_no_failure_told(seen, logs)
        assert seen.of(ev.AgentResult) == []
        assert seen.types[-1] == "AGENT_END"
        (manifest,) = seen.manifests()
        assert (manifest.validation, list(manifest.transforms)) == ("passed", ["history_compaction"])
        assert await session.once_said() == [*texts(the["history"]), "q4"]


def first_of(purpose: str) -> Any:
    """Whether an event is the first piece of an answer to a request for this purpose."""

    def found(event: ev.AgentEvent) -> bool:
        return isinstance(event, ev.TextBlockDelta) and ev.is_aside(event) == (purpose == "summary")

    return found


def held(variant: dict[str, Any], key: str) -> list[Any]:
    """The replies of a variant, where the first one stops after its first piece until the client leaves."""
    first, *others = variant[key]
    if "stream" not in first:
        return [first, *others]
    head, *rest = first["stream"]
    return [{"stream": [head, {"stall": True}, *rest]}, *others]


@pytest.mark.parametrize("how", ["dispose", "interrupt"])
@pytest.mark.parametrize(
    ("name", "purpose", "calls"), [("stop in summary", "summary", 0), ("stop in model", "reasoning", 1)]
)
async def test_o09_a_stop_is_no_failure_of_the_compaction(
    name: str, purpose: str, calls: int, how: str, tmp_path: Path
) -> None:
    """The run ends, the connection too, no further call is made, and what was not decided yet is not decided."""
    the, variant = case("O09"), O09[name]
    script = Script(held(variant, "model"), held(variant, "summary"))
    async with long_session(tmp_path, script, the["history"], **options_of(the["config"])) as session:
        before = await session.history()
        reached = first_of(purpose)

        def interrupt(event: ev.AgentEvent) -> bool:
            if reached(event):
                session.agent.interrupt(ALICE)
            return False

        with capture_logs() as logs:
            seen = await session.watch(the["input"]["content"], stop_at=reached if how == "dispose" else interrupt)
            await session.provider.client_gone(len(session.provider.requests))
            await session.agent.close()  # which waits until the session has been saved
        assert seen.error is None
        assert seen.left == (how == "dispose")
        last = ["par"] if calls else []  # what the user has seen of the answer
        if how == "interrupt":
            assert seen.result.reason is GenerateReason.INTERRUPTED
            last.append(seen.result.text)
        assert (len(session.main), len(session.summary)) == (calls, 1)
        check_no_failure_told(seen, logs)
        if purpose == "summary":
            assert (await session.history())[:6] == before
            assert await session.said() == [*texts(the["history"]), "q4", *last]
            assert await session.agent.compactions(ALICE) == ()
            assert seen.customs("compaction_end") == []
        else:
            assert await session.once_said() == [*texts(the["history"]), "q4", *last]
            assert len(await session.summaries()) == 1


async def test_o09_an_error_of_the_summary_is_one(tmp_path: Path) -> None:
    """One call with all of the input."""
    the, variant = case("O09"), O09["summary error"]
    script = Script(variant["model"], variant["summary"])
    async with long_session(tmp_path, script, the["history"], **options_of(the["config"])) as session:
        before = await session.history()
        seen = await session.watch(the["input"]["content"])
        assert (seen.error, seen.result.text) == (None, "fine")
        (body,) = session.main
        assert [text for _, text in conversation_of(body)] == [*texts(the["history"]), "q4"]
        assert len(session.summary) == 1
        assert len(seen.customs("compaction_failed")) == 1
        assert (await session.history())[:6] == before
        assert await session.said() == [*texts(the["history"]), "q4", "fine"]
