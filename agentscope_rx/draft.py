"""The request before it is laid out, and what operators did to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import chain
from typing import Final, Literal, TypeVar, cast

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.edits import Edit, unshared
from agentscope_rx.frozen import frozen
from agentscope_rx.history import LEAF_SIZE, Exchange, History, Leaf
from agentscope_rx.messages import Msg, TextBlock, ToolResultBlock, ToolUseBlock
from agentscope_rx.requests import GenerateOptions, ToolSpec
from agentscope_rx.wire import to_json

Zone = Literal["system", "conversation", "transient", "references", "tools"]
Action = Literal["added", "dropped", "rewritten", "kept"]
TextFunction = Callable[[str], str]
VIEW_VERSION_KEPT: Final = "view_version_kept"
_TEXT_ZONES: Final[tuple[Zone, ...]] = ("conversation", "transient", "references")
_NO_REASONS: Final[Mapping[str, str]] = {}
V = TypeVar("V")


@frozen
class RequestDraft:
    """A request in zones. Its items keep their ids until the last moment; nothing is rendered before the call.

    Args:
        system: What becomes the one System message.
        conversation: The history, as this request shows it.
        transient: Current state, after the conversation.
        references: Material, after that.
        tools: The tools on offer.
        options: How the model is to answer.
        reasons: Why items were left out, by item id.
    """

    system: tuple[ContextBlock, ...] = ()
    conversation: History = field(default_factory=History)
    transient: tuple[ContextBlock, ...] = ()
    references: tuple[ContextBlock, ...] = ()
    tools: tuple[ToolSpec, ...] = ()
    options: GenerateOptions = field(default_factory=GenerateOptions)
    reasons: Mapping[str, str] = field(default_factory=lambda: _NO_REASONS)

    def without(self, ids: Iterable[str], *, reason: str) -> RequestDraft:
        """Leave items out of this request.

        Args:
            ids: Ids of blocks, tool names, or message ids; a message takes its whole exchange with it.
            reason: A short code that says why, for the manifest.
        """
        gone = frozenset(ids)
        if not gone:
            return self
        blocks = (block.id for zone in (self.system, self.transient, self.references) for block in zone)
        messages = gone.difference(blocks, (tool.name for tool in self.tools))
        return replace(
            self,
            system=_without(self.system, gone),
            conversation=self.conversation.without(messages) if messages else self.conversation,
            transient=_without(self.transient, gone),
            references=_without(self.references, gone),
            tools=_without_tools(self.tools, gone),
            reasons={**self.reasons, **dict.fromkeys(gone, reason)},
        )

    def replace(self, item_id: str, message: Msg) -> RequestDraft:
        """Show a message in other words; it keeps its id and its place.

        Raises:
            ValueError: No message has this id.
        """
        return replace(self, conversation=self.conversation.with_messages(replace(message, id=item_id)))

    def add_reference(self, block: ContextBlock) -> RequestDraft:
        """Add material to this request."""
        return replace(self, references=(*self.references, block))

    def add_transient(self, block: ContextBlock) -> RequestDraft:
        """Add current state to this request."""
        return replace(self, transient=(*self.transient, block))

    def map_text(self, function: TextFunction, *, zones: Sequence[Zone] = _TEXT_ZONES) -> RequestDraft:
        """The same request in other words.

        Args:
            function: Called with text blocks, the text of tool results and the texts in call arguments; never
                with ids, names or thinking. It is remembered per message under its identity, so give it a name:
                a function made anew for each request reads the whole conversation each time.
            zones: Where; the System zone only when it is named.
        """

        def blocks(zone: Zone, old: tuple[ContextBlock, ...]) -> tuple[ContextBlock, ...]:
            return _map_blocks(function, old) if zone in zones else old

        def rewrite(exchange: Exchange) -> Exchange:
            return exchange.map(lambda message: map_message_text(function, message))

        conversation = self.conversation
        if "conversation" in zones:
            conversation = conversation.map(rewrite, key=(map_message_text, function))
        return replace(
            self,
            system=blocks("system", self.system),
            conversation=conversation,
            transient=blocks("transient", self.transient),
            references=blocks("references", self.references),
        )


def map_message_text(function: TextFunction, message: Msg) -> Msg:
    """The same message with each of its texts changed; the very same where none is."""
    content = tuple(_map_block(function, block) for block in message.content)
    same = all(new is old for new, old in zip(content, message.content, strict=True))
    return message if same else replace(message, content=content)


def _map_block(function: TextFunction, block: V) -> V:
    match block:
        case TextBlock(text=text):
            return block if (new := function(text)) == text else replace(block, text=new)
        case ToolResultBlock(output=output):
            after = tuple(_map_block(function, each) for each in output)
            return block if after == output else replace(block, output=after)
        case ToolUseBlock(input=arguments) if arguments:
            after = cast("Mapping[str, object]", _map_strings(function, arguments))
            return block if after == arguments else replace(block, input=after, content=to_json(after).decode())
        case _:
            return block


def _map_strings(function: TextFunction, value: object) -> object:
    if isinstance(value, str):
        return function(value)
    if isinstance(value, dict):
        entries = cast("dict[str, object]", value)
        return {key: _map_strings(function, each) for key, each in entries.items()}
    if isinstance(value, list):
        return [_map_strings(function, each) for each in cast("list[object]", value)]
    return value


def _map_blocks(function: TextFunction, blocks: tuple[ContextBlock, ...]) -> tuple[ContextBlock, ...]:
    after = tuple(b if (text := function(b.text)) == b.text else b.with_text(text) for b in blocks)
    return blocks if after == blocks else after


def _without(blocks: tuple[ContextBlock, ...], ids: frozenset[str]) -> tuple[ContextBlock, ...]:
    kept = tuple(block for block in blocks if block.id not in ids)
    return blocks if len(kept) == len(blocks) else kept


def _without_tools(tools: tuple[ToolSpec, ...], names: frozenset[str]) -> tuple[ToolSpec, ...]:
    kept = tuple(tool for tool in tools if tool.name not in names)
    return tools if len(kept) == len(tools) else kept


# -- what changed -------------------------------------------------------------------------------------------


@frozen
class Change:
    """What an operator did to one item of a request, or to several neighbours.

    Args:
        operator: Which operator it was.
        zone: Where the item lies.
        action: What became of it; `kept`: a history operator rewrote a message that this request already shows in
            other words, and shows so on.
        item_id: The item; of several, the first.
        reason: Why, as a short code.
        last_id: Of several, the last.
        count: How many items.
        before: What was there; nothing where the item is new.
        after: What is there; nothing where it is gone.
    """

    operator: str
    zone: Zone
    action: Action
    item_id: str
    reason: str
    last_id: str = ""
    count: int = 1
    before: tuple[object, ...] = field(default=(), repr=False)
    after: tuple[object, ...] = field(default=(), repr=False)


def changes_between(before: RequestDraft, after: RequestDraft, operator: str, reason: str = "") -> tuple[Change, ...]:
    """What `operator` changed, item by item; a zone or leaf that is the same object costs one comparison.

    Args:
        before: The draft that it got.
        after: The draft that it gave.
        operator: Its name.
        reason: The code for what it gave no reason of its own for; empty = its name.
    """
    found: list[Change] = []
    by = _By(operator, reason or operator)
    for zone in ("system", "transient", "references"):
        old: tuple[ContextBlock, ...] = getattr(before, zone)
        new: tuple[ContextBlock, ...] = getattr(after, zone)
        if old is not new:
            _compare(found, by, zone, ({b.id: b for b in old}, {b.id: b for b in new}), after.reasons)
    if len(found) > 1 and after.reasons is not before.reasons:
        order = {reason: at for at, reason in enumerate(dict.fromkeys(after.reasons.values()))}  # as they happened
        found.sort(key=lambda change: order.get(change.reason, -1) if change.action == "dropped" else -1)
    if before.tools is not after.tools:
        tools = ({t.name: t for t in before.tools}, {t.name: t for t in after.tools})
        _compare(found, by, "tools", tools, after.reasons)
    if before.conversation is not after.conversation:
        rewritten = _rewritten(before.conversation, after.conversation, by)
        if rewritten is not None:
            found.extend(rewritten)
            return tuple(found)
        old_part, new_part = unshared(before.conversation, after.conversation)
        exchanges = ({x.id: x for x in old_part}, {x.id: x for x in new_part})
        _compare(found, by, "conversation", exchanges, after.reasons)
    return tuple(found)


@frozen(kw_only=False)
class _By:
    """Who has changed something, and the code for it."""

    operator: str
    reason: str


def _rewritten(old: History, new: History, who: _By) -> list[Change] | None:
    """What was rewritten, where that is all that was done; remembered for each leaf, since it is done at each step."""
    if len(old.leaves) != len(new.leaves):
        return None
    found: list[Change] = []
    for before, after in zip(old.leaves, new.leaves, strict=True):
        if before is after:
            continue
        if len(before.exchanges) != len(after.exchanges):
            return None
        by = _Rewritten(who, before)
        # The last leaf is another one at each step: what is remembered of it would only pile up.
        whole = len(after.exchanges) == LEAF_SIZE
        changes = after.measure(by) if whole else by.join([by.of(exchange) for exchange in after.exchanges])
        if changes is None:
            return None
        found.extend(changes)
    return found


class _Rewritten:
    """What an operator has rewritten in a leaf, as a measure of what came out; None = it did something else."""

    def __init__(self, by: _By, old: Leaf) -> None:
        self._by, self._old = by, old

    @cached_property
    def _by_id(self) -> Mapping[str, Exchange]:
        return {exchange.id: exchange for exchange in self._old.exchanges}

    def __hash__(self) -> int:
        return hash((self._by.operator, id(self._old)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Rewritten) and (other._by, other._old) == (self._by, self._old)

    def of(self, exchange: Exchange, /) -> tuple[Change, ...] | None:
        old = self._by_id.get(exchange.id)
        if old is None:
            return None
        if old is exchange:
            return ()
        return (
            _change(
                self._by.operator,
                "conversation",
                "rewritten",
                [exchange.id],
                self._by.reason,
                before=(old,),
                after=(exchange,),
            ),
        )

    def join(self, parts: Sequence[tuple[Change, ...] | None], /) -> tuple[Change, ...] | None:
        known = [part for part in parts if part is not None]
        return tuple(chain.from_iterable(known)) if len(known) == len(parts) else None


def versions_kept(edits: Sequence[Edit], view: History, operator: str) -> tuple[Change, ...]:
    """The messages that `operator` has rewritten in the history and that a request shows in other words than either.

    Args:
        edits: What the operator did to the history.
        view: The conversation of the request, with the edits made.
        operator: Its name.
    """
    proposed = {edit.removed[0].id: edit.inserted[0] for edit in edits if edit.rewrites}
    return tuple(
        _change(operator, "conversation", "kept", [shown.id], VIEW_VERSION_KEPT, before=(shown,), after=(shown,))
        for shown in (view if proposed else ())
        if proposed.get(shown.id, shown) is not shown
    )


def _compare(
    found: list[Change],
    by: _By,
    zone: Zone,
    items: tuple[Mapping[str, object], Mapping[str, object]],
    reasons: Mapping[str, str],
) -> None:
    old, new = items
    gone: list[tuple[str, object]] = []  # neighbours of a conversation that were dropped for one reason
    gone_reason = ""

    def tell_gone() -> None:
        if gone:
            ids, objects = [id for id, _ in gone], tuple(each for _, each in gone)
            found.append(_change(by.operator, zone, "dropped", ids, gone_reason, before=objects))
            gone.clear()

    for id, before in old.items():
        after = new.get(id)
        if after is not None:
            tell_gone()
            if after is not before:
                found.append(_change(by.operator, zone, "rewritten", [id], by.reason, before=(before,), after=(after,)))
            continue
        reason = _reason_for(id, before, reasons) or by.reason
        if zone != "conversation" or reason != gone_reason:
            tell_gone()
        gone_reason = reason
        gone.append((id, before))
    tell_gone()
    for id, after in new.items():
        if id not in old:
            found.append(_change(by.operator, zone, "added", [id], by.reason, after=(after,)))


def _reason_for(id: str, item: object, reasons: Mapping[str, str]) -> str:
    """Why an item was left out, where that was said; an exchange goes with any of its messages."""
    if not reasons:
        return ""
    ids = [message.id for message in item.messages] if isinstance(item, Exchange) else (id,)
    return next((reasons[each] for each in ids if each in reasons), "")


def _change(
    operator: str,
    zone: Zone,
    action: Action,
    ids: Sequence[str],
    reason: str,
    *,
    before: tuple[object, ...] = (),
    after: tuple[object, ...] = (),
) -> Change:
    return Change(
        operator=operator,
        zone=zone,
        action=action,
        item_id=ids[0],
        last_id=ids[-1] if len(ids) > 1 else "",
        count=len(ids),
        reason=reason,
        before=before,
        after=after,
    )
