"""The request before it is laid out: rewriting its texts, leaving items out, and what is told of both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, SupportsIndex, TypeVar, cast, overload

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.draft import Change, RequestDraft, Zone, changes_between, map_message_text
from agentscope_rx.history import LEAF_SIZE, Exchange, History, Leaf
from agentscope_rx.messages import HintBlock, Msg, ThinkingBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.requests import GenerateOptions, ToolSpec
from tests.strategies import conversations, messages

T = TypeVar("T")
SECRET = "bob@example.org"


def marked(text: str) -> str:
    return f"<{text}>"


def hidden(text: str) -> str:
    return text.replace(SECRET, "[email]")


def unchanged(text: str) -> str:
    return text


def said(id: str, text: str = "") -> Msg:
    return replace(Msg.user(text or id), id=id)


def block(id: str, text: str = "words") -> ContextBlock:
    return ContextBlock.reference(id, text)


def spec(name: str) -> ToolSpec:
    return ToolSpec(name=name, description=SECRET, parameters={"description": SECRET})


def full(*messages: Msg) -> RequestDraft:
    """A draft with something in every zone, and the same words in each."""
    return RequestDraft(
        system=(ContextBlock(id="prompt", kind="system_input", text=SECRET),),
        conversation=History.of(*(messages or (said("m0", SECRET), said("m1")))),
        transient=(ContextBlock.runtime("status", SECRET),),
        references=(block("format", SECRET), block("note")),
        tools=(spec("look"), spec("read")),
        options=GenerateOptions(temperature=0.5),
    )


def differing(before: RequestDraft, after: RequestDraft) -> list[str]:
    """The zones that are not the same objects."""
    zones = ("system", "conversation", "transient", "references", "tools")
    return [zone for zone in zones if getattr(before, zone) is not getattr(after, zone)]


# -- other words --------------------------------------------------------------------------------------------


def test_text_is_rewritten_in_three_zones() -> None:
    """Conversation, current state and references are rewritten; system and tools only say what the author said."""
    before = full()
    after = before.map_text(hidden)
    assert [message.text for message in after.conversation.messages] == ["[email]", "m1"]
    assert [b.text for b in (*after.transient, *after.references)] == ["[email]", "[email]", "words"]
    assert (after.system, after.tools, after.options) == (before.system, before.tools, before.options)


@pytest.mark.parametrize("zone", ["system", "conversation", "transient", "references"])
def test_the_zones_can_be_chosen(zone: Zone) -> None:
    """Only the zones that are named are rewritten, the System zone among them; the others stay the same objects."""
    before = full()
    after = before.map_text(hidden, zones=(zone,))
    assert differing(before, after) == [zone]


def rewritten(block: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    """What rewriting means for the JSON of a content block, said again without the library."""

    def values(value: Any) -> Any:
        match value:
            case str():
                return change(value)
            case list():
                return [values(each) for each in value]  # type: ignore[reportUnknownVariableType]
            case dict():
                return {key: values(each) for key, each in value.items()}  # type: ignore[reportUnknownVariableType]
            case _:
                return value

    match block["type"]:
        case "text":
            return {**block, "text": change(block["text"])}
        case "tool_result":
            return {**block, "output": [rewritten(each, change) for each in block["output"]]}
        case "tool_use" if block["input"]:
            arguments = values(block["input"])
            return block if arguments == block["input"] else {**block, "input": arguments, "content": arguments}
        case _:
            return block


def as_json(message: Msg, *, arguments_of: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A message as JSON; the text of call arguments as the value that it stands for, where it was rewritten."""
    fields = json.loads(message.to_json())
    for old, new in zip(
        arguments_of["content"] if arguments_of else [], fields["content"], strict=arguments_of is not None
    ):
        if new["type"] == "tool_use" and isinstance(old.get("content"), dict):
            new["content"] = json.loads(new["content"])
    return fields


@given(messages())
def test_only_texts_are_rewritten(message: Msg) -> None:
    """Text blocks, text in results and strings in arguments; never ids, names, keys, thinking, hints or media."""
    before = as_json(message)
    expected = {**before, "content": [rewritten(block, marked) for block in before["content"]]}
    assert as_json(map_message_text(marked, message), arguments_of=expected) == expected


def test_what_is_never_touched() -> None:
    """The same words stand where a model or a provider needs them back as they were."""
    kept = Msg.assistant(
        ThinkingBlock(thinking=SECRET, metadata={"signature": SECRET}),
        HintBlock(id=SECRET, hint=SECRET, source=SECRET),
        ToolUseBlock(id=SECRET, name=SECRET, input={SECRET: 1}, content="{}", metadata={"opaque": SECRET}),
        ToolResultBlock(id=SECRET, name=SECRET, metadata={"k": SECRET}),
        name=SECRET,
    ).with_metadata(k=SECRET)
    assert map_message_text(hidden, kept) is kept


def test_strings_in_arguments_are_rewritten_at_any_depth() -> None:
    """Values are rewritten, keys are not, and the text of the arguments follows."""
    call = ToolUseBlock(
        id="c", name="send", input={"to": SECRET, "cc": [{SECRET: SECRET}], "n": 1}, content='{"to": "..."}'
    )
    (after,) = map_message_text(hidden, Msg.assistant(call)).tool_calls
    assert after.input == {"to": "[email]", "cc": [{SECRET: "[email]"}], "n": 1}
    assert after.content is not None
    assert json.loads(after.content) == after.input
    assert call.input["to"] == SECRET


@given(conversations())
def test_rewriting_that_changes_nothing_keeps_every_object(conversation: tuple[Msg, ...]) -> None:
    """A text operator that finds nothing costs no new message, and tells of no change."""
    before = full(*conversation)
    after = before.map_text(unchanged)
    assert differing(before, after) == []
    assert changes_between(before, after, "op") == ()


@given(st.integers(0, 2 * LEAF_SIZE), st.integers(0, 5))
def test_each_message_is_rewritten_once(old: int, new: int) -> None:
    """The outcome is remembered per message under the function: a grown conversation costs what is new."""
    read: list[str] = []

    def noted(text: str) -> str:
        read.append(text)
        return marked(text)

    history = History.of(*(said(f"m{at}") for at in range(old)))
    first = RequestDraft(conversation=history).map_text(noted)
    grown = RequestDraft(conversation=history.append(*(said(f"n{at}") for at in range(new)))).map_text(noted)
    assert len(read) == old + new
    assert [m.text for m in grown.conversation.messages] == [
        *(m.text for m in first.conversation.messages),
        *(f"<n{at}>" for at in range(new)),
    ]


# -- leaving out, replacing, adding -------------------------------------------------------------------------


def test_items_of_every_zone_can_be_left_out() -> None:
    """Blocks by id, tools by name, messages by id; each with the reason that was given."""
    before = full()
    after = before.without(["prompt", "m0", "status", "note", "read"], reason="stale")
    assert [b.id for b in (*after.system, *after.transient, *after.references)] == ["format"]
    assert [tool.name for tool in after.tools] == ["look"]
    assert [message.id for message in after.conversation.messages] == ["m1"]
    assert {(c.zone, c.item_id, c.action, c.reason) for c in changes_between(before, after, "op")} == {
        ("system", "prompt", "dropped", "stale"),
        ("conversation", "m0", "dropped", "stale"),
        ("transient", "status", "dropped", "stale"),
        ("references", "note", "dropped", "stale"),
        ("tools", "read", "dropped", "stale"),
    }


@pytest.mark.parametrize("id", ["m1", "m2", "m3"])
def test_a_message_takes_its_exchange_with_it(id: str) -> None:
    """No request holds a call without its result; whichever message was named, the reason is told."""
    calls = (ToolUseBlock(id="a", name="look"), ToolUseBlock(id="b", name="look"))
    results = (Msg.tool(ToolResultBlock(id=call.id, name=call.name)) for call in calls)
    conversation = (said("m0"), Msg.assistant(*calls), *results, said("m4"))
    before = full(*(replace(message, id=f"m{at}") for at, message in enumerate(conversation)))
    after = before.without([id], reason="stale")
    assert [message.id for message in after.conversation.messages] == ["m0", "m4"]
    (change,) = changes_between(before, after, "op")
    assert (change.item_id, change.reason, change.count) == ("m1", "stale", 1)


def test_leaving_out_touches_only_where_something_is() -> None:
    """Zones without such an item stay the same objects; without ids the draft is the same object."""
    before = full()
    after = before.without({"note"}, reason="stale")
    assert differing(before, after) == ["references"]
    assert before.without((), reason="stale") is before
    assert before.without(iter(["note"]), reason="stale") == after


def test_a_message_can_be_shown_in_other_words() -> None:
    """A replaced message keeps its id and its place."""
    before = full()
    after = before.replace("m0", Msg.user("other words"))
    assert [(m.id, m.text) for m in after.conversation.messages] == [("m0", "other words"), ("m1", "m1")]
    (change,) = changes_between(before, after, "op")
    assert (change.action, change.item_id, change.reason) == ("rewritten", "m0", "op")
    with pytest.raises(ValueError, match="no message 'm9'"):
        before.replace("m9", Msg.user("x"))


def test_blocks_are_added_at_the_end() -> None:
    """Material and current state are added behind what is there."""
    before = full()
    after = before.add_reference(block("new")).add_transient(ContextBlock.runtime("now", "12:00"))
    assert [b.id for b in after.references] == ["format", "note", "new"]
    assert [b.id for b in after.transient] == ["status", "now"]
    assert [(c.zone, c.action, c.item_id) for c in changes_between(before, after, "op")] == [
        ("transient", "added", "now"),
        ("references", "added", "new"),
    ]


# -- what changed -------------------------------------------------------------------------------------------


class Unread(tuple[T, ...]):
    """A tuple that nobody may read from the beginning to the end."""

    __slots__ = ()

    def __iter__(self) -> Iterator[T]:
        raise AssertionError("an untouched zone was read")

    @overload
    def __getitem__(self, key: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[T, ...]: ...
    def __getitem__(self, key: Any) -> Any:
        found = cast("Any", super().__getitem__(key))
        assert not isinstance(key, slice) or len(found) <= 1, "an untouched leaf was read"
        return found


def test_untouched_zones_cost_nothing() -> None:
    """A zone that is the same object is not read, and of a leaf that is the same one exchange at most."""
    leaf = Leaf(Unread(Exchange(said(f"m{at}")) for at in range(LEAF_SIZE)))
    before = RequestDraft(
        system=Unread([block("s")]),
        transient=Unread([block("t")]),
        references=Unread([block("r")]),
        tools=Unread([spec("look")]),
        conversation=History([Exchange(said("new"))], leaves=(leaf, leaf)),
    )
    after = replace(before, conversation=History([Exchange(said("newer"))], leaves=(leaf, leaf)))
    assert changes_between(before, before, "op") == ()
    assert [(c.action, c.item_id) for c in changes_between(before, after, "op")] == [
        ("dropped", "new"),
        ("added", "newer"),
    ]


def test_neighbours_that_are_dropped_for_one_reason_are_one_change() -> None:
    """A compaction of a thousand messages is one entry with its range, whatever the borders of leaves."""
    ids = [f"m{at}" for at in range(3 * LEAF_SIZE)]
    before = RequestDraft(conversation=History.of(*map(said, ids)))
    after = replace(before, conversation=before.conversation.replace_first(LEAF_SIZE + 5, said("summary")))
    dropped, added = changes_between(before, after, "compact")
    assert (dropped.action, dropped.item_id, dropped.last_id, dropped.count) == ("dropped", "m0", "m68", LEAF_SIZE + 5)
    assert (added.action, added.item_id, added.reason) == ("added", "summary", "compact")


def test_ranges_end_where_something_is_kept_or_the_reason_changes() -> None:
    """A range never reaches over an exchange that stayed, nor over another reason; blocks are told one by one."""
    before = full(*(said(f"m{at}") for at in range(7)))
    after = before.without(["m0", "m1", "note", "format"], reason="old").without(["m2", "m4", "m6"], reason="odd")
    found = changes_between(before, after, "op")
    assert [(c.item_id, c.last_id, c.count, c.reason) for c in found] == [
        ("format", "", 1, "old"),
        ("note", "", 1, "old"),
        ("m0", "m1", 2, "old"),
        ("m2", "", 1, "odd"),
        ("m4", "", 1, "odd"),
        ("m6", "", 1, "odd"),
    ]


def test_changes_carry_both_versions() -> None:
    """Before and after are the items themselves, for those who measure what was gained; they are not shown."""
    before = full()
    after = before.map_text(hidden)
    found = {(c.zone, c.item_id): c for c in changes_between(before, after, "redact")}
    assert set(found) == {("conversation", "m0"), ("transient", "status"), ("references", "format")}
    change = found["references", "format"]
    assert (change.before, change.after) == ((before.references[0],), (after.references[0],))
    assert SECRET not in repr(change)
    assert (change.operator, change.action, change.reason) == ("redact", "rewritten", "redact")


@given(conversations(answered=True), st.data())
def test_changes_account_for_every_exchange(conversation: tuple[Msg, ...], data: st.DataObject) -> None:
    """Dropped, rewritten and added exchanges are told, each once, and no others."""
    before = full(*conversation)
    ids = [message.id for message in before.conversation.messages]
    gone = data.draw(st.lists(st.sampled_from(ids or ["none"]), max_size=4))
    after = before.without(gone, reason="stale").map_text(marked, zones=("conversation",))
    after = replace(after, conversation=after.conversation.append(said("new")))
    found = [c for c in changes_between(before, after, "op") if c.zone == "conversation"]
    old = {x.id: x for x in before.conversation}
    new = {x.id: x for x in after.conversation}
    assert sum(c.count for c in found if c.action == "dropped") == len(old.keys() - new.keys())
    assert ids_of(found, "added") == ["new"]
    assert ids_of(found, "rewritten") == [id for id, x in old.items() if id in new and new[id] != x]
    assert {c.reason for c in found if c.action == "dropped"} <= {"stale"}


def ids_of(changes: list[Change], action: str) -> list[str]:
    return [change.item_id for change in changes if change.action == action]


def test_blocks_need_an_id() -> None:
    """What has no name cannot be left out, told of or kept."""
    for id in ("", " \n"):
        with pytest.raises(ValueError, match="may not be blank"):
            ContextBlock.reference(id, "words")


def test_blocks_can_be_copied_with_one_difference() -> None:
    """Each copy differs in one thing, and the block that was copied in none."""
    original = ContextBlock.reference("format", "words", priority=3)
    assert original.as_required() == replace(original, required=True)
    assert original.with_priority(20) == replace(original, priority=20)
    assert original.with_revision("r2") == replace(original, revision="r2")
    assert original.with_text("other") == replace(original, text="other")
    assert original == ContextBlock(id="format", text="words", kind="reference", priority=3)
    assert ContextBlock.runtime("status", "words").kind == "runtime"
