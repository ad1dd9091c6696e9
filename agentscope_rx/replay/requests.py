"""Requests as a recording holds them: each item once, and of each request what the one before did not have."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

from agentscope_rx.blocks import ContextBlock, by_priority, system_order, transient_order
from agentscope_rx.digests import digest_of
from agentscope_rx.draft import Change, RequestDraft
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, Measure
from agentscope_rx.messages import Msg
from agentscope_rx.replay.codecs import message_data
from agentscope_rx.replay.redaction import Redaction
from agentscope_rx.requests import GenerateOptions, ModelRequest, ToolSpec
from agentscope_rx.step import Step
from agentscope_rx.wire import from_json, to_json

#: Id and digest of an item.
Item: TypeAlias = tuple[str, str]
ZONES: Final = ("system", "tools", "conversation", "transient", "references")
#: Those whose items are blocks.
BLOCK_ZONES: Final = ("system", "transient", "references")
_NOT_SENT: Final = ("timestamp", "usage")
_REMEMBERED: Final = 4_096


@frozen
class RequestItems:
    """A request, item by item.

    Args:
        purpose: What the model is called for.
        model: Its name.
        step: The reasoning step that it belongs to.
        zones: The items of each zone, in the order in which the model reads them.
        options: How the model is to answer.
        layout: A digest of the texts around the items.
        operators: Who has put items there or changed them.
        asker: The operator that asks the model.
    """

    purpose: str
    model: str
    step: int
    zones: Mapping[str, tuple[Item, ...]]
    options: Mapping[str, object]
    layout: str
    operators: Mapping[str, str]
    asker: str

    @property
    def compared(self) -> object:
        """What makes two requests the same request."""
        return self.purpose, self.model, self.zones, self.options, self.layout


class Itemizer:
    """Takes requests apart; what it has seen of a conversation costs nothing again.

    Args:
        redaction: What is left out.
        zones: Which zones are looked at; the others are as if they were empty.
    """

    def __init__(self, redaction: Redaction, *, zones: Sequence[str] = ZONES) -> None:
        self._redaction, self._looked_at = redaction, zones
        self._measure: Measure[tuple[Item, ...]] = _MessageItems(self._message_digest)
        self._blocks: dict[tuple[str, str, str | None], str] = {}
        self._tools: dict[int, tuple[ToolSpec, str]] = {}

    def of(self, step: Step, request: ModelRequest) -> RequestItems:
        """The items of a request.

        Args:
            step: The step whose request it is.
            request: The request.
        """
        return RequestItems(
            purpose=request.purpose,
            model=step.card.name,
            step=step.number,
            zones=self.zones(step.draft),
            options=self._options(step.draft.options),
            layout=digest_of(self._redaction.text(_layout(request)).encode()),
            operators=dict(operators_of(step.changes)),
            asker=step.run.running,
        )

    def zones(self, draft: RequestDraft) -> Mapping[str, tuple[Item, ...]]:
        """The items of a draft, by zone."""
        return {zone: self._zone(draft, zone) if zone in self._looked_at else () for zone in ZONES}

    def new_items(
        self, draft: RequestDraft, items: RequestItems, before: RequestItems | None, known: set[str]
    ) -> Iterator[Mapping[str, object]]:
        """The items that nobody has written yet, as lines of a recording say them.

        Args:
            draft: The request.
            items: Its items.
            before: The request before it; what both begin with is not looked at.
            known: The digests of what was written; what is new is added.
        """
        for zone in ZONES:
            kept = 0 if before is None else common(before.zones[zone], items.zones[zone])
            for id, digest in items.zones[zone][kept:]:
                if digest not in known:
                    known.add(digest)
                    yield {"zone": zone, "digest": digest, "value": self.value(draft, zone, id)}

    def _zone(self, draft: RequestDraft, zone: str) -> tuple[Item, ...]:
        match zone:
            case "system":
                return self._block_items(system_order(draft.system))
            case "tools":
                return tuple((tool.name, self._tool_digest(tool)) for tool in draft.tools)
            case "conversation":
                return draft.conversation.measure(self._measure)
            case "transient":
                return self._block_items(transient_order(draft.transient))
            case _:
                return self._block_items(by_priority(draft.references))

    def value(self, draft: RequestDraft, zone: str, id: str) -> object:
        """An item of a draft, as it is recorded.

        Raises:
            KeyError: The draft has no such item.
        """
        if zone == "conversation":
            return self._message(next(_found(each for each in draft.conversation.messages if each.id == id)))
        if zone == "tools":
            return self._tool(next(_found(each for each in draft.tools if each.name == id)))
        blocks: Sequence[ContextBlock] = getattr(draft, zone)
        return self._block(next(_found(each for each in blocks if each.id == id)))

    def _block_items(self, blocks: Iterable[ContextBlock]) -> tuple[Item, ...]:
        return tuple((block.id, self._block_digest(block)) for block in blocks if not block.blank)

    def _block_digest(self, block: ContextBlock) -> str:
        key = (block.kind, block.text, block.revision)
        if key not in self._blocks:
            if len(self._blocks) >= _REMEMBERED:
                self._blocks.clear()
            self._blocks[key] = _digest(self._block(block))
        return self._blocks[key]

    def _block(self, block: ContextBlock) -> object:
        revision = {} if block.revision is None else {"revision": block.revision}
        return {"kind": block.kind, "text": self._redaction.text(block.text), **revision}

    def _tool_digest(self, tool: ToolSpec) -> str:
        known = self._tools.get(id(tool))
        if known is None:
            known = self._tools[id(tool)] = (tool, _digest(self._tool(tool)))
        return known[1]

    def _tool(self, tool: ToolSpec) -> object:
        return self._redaction.data(from_json(to_json(tool)))

    def _message_digest(self, message: Msg) -> str:
        return _digest(self._message(message))

    def _message(self, message: Msg) -> object:
        data = cast("Mapping[str, object]", message_data(message))
        return self._redaction.data({name: value for name, value in data.items() if name not in _NOT_SENT})

    def _options(self, options: GenerateOptions) -> Mapping[str, object]:
        given = options.model_dump(mode="json", exclude_defaults=True)
        return cast("Mapping[str, object]", from_json(to_json(self._redaction.data(given))))


class _MessageItems:
    """Id and digest of each message, as a measure."""

    def __init__(self, digest: Callable[[Msg], str]) -> None:
        self._digest = digest

    def of(self, exchange: Exchange, /) -> tuple[Item, ...]:
        return tuple((message.id, self._digest(message)) for message in exchange.messages)

    def join(self, parts: Sequence[tuple[Item, ...]], /) -> tuple[Item, ...]:
        return tuple(item for part in parts for item in part)


def _digest(value: object) -> str:
    return digest_of(to_json(value))


def _layout(request: ModelRequest) -> str:
    return "\n".join((request.system, *(message.text for message in request.tail)))


def _found(items: Iterator[Any]) -> Iterator[Any]:
    for item in items:
        yield item
        return
    raise KeyError("there is no such item")


def operators_of(changes: Iterable[Change]) -> Iterator[tuple[str, str]]:
    """Who was the last to change each item."""
    for change in changes:
        yield change.item_id, change.operator
        for each in (*change.before, *change.after):
            if isinstance(each, Exchange):
                yield from ((message.id, change.operator) for message in each.messages)
            elif isinstance(each, ContextBlock):
                yield each.id, change.operator


# -- as lines -----------------------------------------------------------------------------------------------


def request_line(items: RequestItems, before: RequestItems | None) -> Mapping[str, object]:
    """What is written of a request.

    Args:
        items: The request.
        before: The one before it in its run, for the same purpose.
    """
    zones: dict[str, object] = {}
    for zone in ZONES:
        new, old = items.zones[zone], () if before is None else before.zones[zone]
        kept = common(old, new)
        zones[zone] = {"keep": kept, "then": [list(item) for item in new[kept:]]}
    operators: Mapping[str, str] = {} if before is None else before.operators
    changed = {id: name for id, name in items.operators.items() if operators.get(id) != name}
    return {
        "purpose": items.purpose,
        "model": items.model,
        "step": items.step,
        "asker": items.asker,
        "zones": zones,
        "options": items.options,
        "layout": items.layout,
        "operators": changed,
    }


def request_from(line: Mapping[str, Any], before: RequestItems | None) -> RequestItems:
    """The request of a line.

    Args:
        line: The line.
        before: The request before it, as for `request_line`.

    Raises:
        KeyError: Something is missing.
    """
    zones: dict[str, tuple[Item, ...]] = {}
    for zone in ZONES:
        part, old = line["zones"][zone], () if before is None else before.zones[zone]
        zones[zone] = (*old[: part["keep"]], *((str(id), str(digest)) for id, digest in part["then"]))
    return RequestItems(
        purpose=line["purpose"],
        model=line["model"],
        step=line["step"],
        zones=zones,
        options=line["options"],
        layout=line["layout"],
        operators={**({} if before is None else before.operators), **line["operators"]},
        asker=line["asker"],
    )


def common(old: Sequence[Item], new: Sequence[Item]) -> int:
    """How many items two zones begin with together."""
    if old == new[: len(old)]:
        return len(old)
    return next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
