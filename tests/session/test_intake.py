"""What comes into a session: identity, order, and open calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given

from agentscope_rx.errors import InvalidOption, InvalidToolPairs
from agentscope_rx.history import History
from agentscope_rx.messages import (
    DataBlock,
    GenerateReason,
    Msg,
    TextBlock,
    ToolResultBlock,
    ToolResultState,
    ToolUseBlock,
    URLSource,
)
from agentscope_rx.records import CallsClosed, InputAccepted
from agentscope_rx.session.intake import CLOSED_TEXT, Intake, messages_of, take_in
from agentscope_rx.state import AgentState, Record
from agentscope_rx.usage import ChatUsage
from tests.strategies import ODD_TEXTS, conversations, result_of

NOW = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)


def intake() -> Intake:
    """Ids `n1`, `n2`, ... and one moment."""
    numbers = iter(range(1, 10_000))
    return Intake(new_id=lambda: f"n{next(numbers)}", now=NOW)


def asked(id: str, *call_ids: str) -> Msg:
    return replace(Msg.assistant(*(ToolUseBlock(id=call_id, name="look") for call_id in call_ids)), id=id)


def answer(call_id: str, text: str = "seen") -> Msg:
    return result_of(ToolUseBlock(id=call_id, name="look"), text)


def after(history: History, messages: Sequence[Msg]) -> History:
    """The history when the records of an input were folded in."""
    return folded(history, take_in(history, messages, intake()))


def folded(history: History, records: Sequence[Record]) -> History:
    state = AgentState(session_id="s", context=history)
    for record in records:
        state = state.apply(record)
    return state.context


def shown(history: History) -> list[list[str]]:
    """Each exchange as the texts of its messages; a call is `?`, a result its text."""
    return [
        [(m.tool_result.text if m.tool_result else m.text) or "?" for m in exchange.messages] for exchange in history
    ]


# -- the forms of an input ----------------------------------------------------------------------------------


def test_an_input_has_four_forms() -> None:
    """Nothing, a text, a message, or several."""
    one, two = Msg.user("one"), Msg.assistant("two")
    assert messages_of(None) == messages_of([]) == ()
    assert messages_of("one") == messages_of(one) == messages_of([one]) == (one,)
    assert messages_of([one, two]) == (one, two)


@pytest.mark.parametrize("input", [Msg.system("obey"), [Msg.user("hi"), Msg.system("obey")]])
def test_a_system_message_is_no_input(input: Msg | list[Msg]) -> None:
    """System text is the developer's: an input that holds some is refused, with the way that there is."""
    with pytest.raises(InvalidOption, match="set sys_prompt instead"):
        messages_of(input)


# -- identity -----------------------------------------------------------------------------------------------


def test_a_session_gives_identity() -> None:
    """Id and timestamp are the session's, whatever the message brought along; all else is kept."""
    given_message = replace(
        Msg.assistant("hi", name="bob").with_reason(GenerateReason.MODEL_STOP),
        id="mine",
        timestamp="long ago",
        usage=ChatUsage(input_tokens=1),
    )
    accepted = intake().accept(given_message)
    assert (accepted.id, accepted.timestamp) == ("n1", "2026-01-02 03:04:05.678")
    assert replace(accepted, id="mine", timestamp="long ago") == given_message


def test_each_message_gets_its_own_id() -> None:
    """The same message given twice is two messages."""
    message = Msg.user("again")
    (record,) = take_in(History(), [message, message], intake())
    assert isinstance(record, InputAccepted)
    assert [each.id for each in record.messages] == ["n1", "n2"]


@given(ODD_TEXTS)
def test_texts_come_in_clean(text: str) -> None:
    """Lone surrogates become U+FFFD before anybody sees them, in results too; other blocks are not touched (O29)."""
    image = DataBlock(source=URLSource(url="u"), name="n")
    clean = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    assert intake().accept(Msg.user(text, image)).content == (TextBlock(text=clean), image)
    result = ToolResultBlock(id="c", name="look", output=(TextBlock(text=text), image), state=ToolResultState.ERROR)
    kept = intake().accept(Msg.tool(result)).tool_result
    assert kept == replace(result, output=(TextBlock(text=clean), image))


# -- open calls ---------------------------------------------------------------------------------------------


def test_an_input_alone_is_one_record() -> None:
    """Without open calls the messages are accepted as they are, and no input is no record."""
    history = History.of(Msg.user("q"), Msg.assistant("a"))
    (record,) = take_in(history, [Msg.user("one"), Msg.user("two")], intake())
    assert isinstance(record, InputAccepted)
    assert [message.text for message in record.messages] == ["one", "two"]
    assert take_in(history, [], intake()) == []


def test_open_calls_are_closed_before_the_input() -> None:
    """A call that nobody answered gets a result that says so, in call order, before what comes next."""
    history = History.of(Msg.user("q"), asked("m", "c1", "c2", "c3"), answer("c2"))
    closed, accepted = take_in(history, [Msg.user("next")], intake())
    assert isinstance(closed, CallsClosed)
    assert isinstance(accepted, InputAccepted)
    results = [message.tool_result for message in closed.results]
    assert results == [
        ToolResultBlock(id=id, name="look", output=(TextBlock(text=CLOSED_TEXT),), state=ToolResultState.INTERRUPTED)
        for id in ("c1", "c3")
    ]
    assert all(message.id and message.timestamp for message in closed.results)
    assert shown(folded(history, [closed, accepted])) == [["q"], ["?", CLOSED_TEXT, "seen c2", CLOSED_TEXT], ["next"]]


def test_no_input_closes_open_calls_too() -> None:
    """A run that only goes on would send calls without results to the model."""
    assert shown(after(History.of(asked("m", "c1")), [])) == [["?", CLOSED_TEXT]]


def test_results_from_outside_answer_their_calls() -> None:
    """Results come first, wherever they stand in the input; only calls that get none are closed."""
    history = History.of(asked("m", "c1", "c2"))
    records = take_in(history, [Msg.user("next"), answer("c2", "outside")], intake())
    assert [type(record) for record in records] == [InputAccepted, CallsClosed, InputAccepted]
    assert shown(folded(history, records)) == [["?", CLOSED_TEXT, "outside c2"], ["next"]]


def test_a_call_far_back_is_answered_or_closed() -> None:
    """Open calls are found wherever they are, also two under the same id, and each gets one result."""
    talk = [Msg.user(f"q{n}") for n in range(70)]
    history = History.of(asked("m1", "c1"), *talk, asked("m2", "c1"))
    found = after(history, [answer("c1", "outside")])
    assert found.open_calls == ()
    assert [row for row in shown(found) if row[0] == "?"] == [["?", CLOSED_TEXT], ["?", "outside c1"]]


@pytest.mark.parametrize("messages", [[answer("c9")], [answer("c1"), answer("c1")], [Msg.user("q"), answer("c9")]])
def test_a_result_for_no_open_call_is_refused(messages: list[Msg]) -> None:
    """A result that nobody waits for is an error, and nothing is recorded."""
    with pytest.raises(InvalidToolPairs):
        take_in(History.of(asked("m", "c1")), messages, intake())


def test_an_input_may_bring_a_whole_conversation() -> None:
    """Results of calls that are part of the input stay with them; those of the session are answered first."""
    history = History.of(asked("m", "old"))
    given_messages = [Msg.user("q"), asked("", "new"), answer("new"), answer("old", "late"), Msg.user("next")]
    assert shown(after(history, given_messages)) == [["?", "late old"], ["q"], ["?", "seen new"], ["next"]]


@given(conversations(), conversations(answered=True))
def test_after_an_input_no_call_of_before_is_open(held: tuple[Msg, ...], given_messages: tuple[Msg, ...]) -> None:
    """Whatever the session held and whatever comes: every call has one result, and nothing is lost or reordered."""
    history = History.of(*held)
    found = after(history, given_messages)
    assert found.open_calls == ()
    assert [x.messages[0].content for x in found] == [
        *(x.messages[0].content for x in history),
        *(x.messages[0].content for x in History.of(*given_messages)),
    ]
