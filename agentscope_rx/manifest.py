"""ContextManifest: what went into a request, what did not, by whom, why, and what it cost.

A manifest holds references to the request and counts when it is read: a run whose manifests nobody reads pays
nothing for them, and a step never pays for old messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import chain, islice, zip_longest
from typing import Final, TypeAlias

from agentscope_rx.blocks import ContextBlock, by_priority, system_order, transient_order
from agentscope_rx.draft import Change, RequestDraft, Zone
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History, Leaf, Measure
from agentscope_rx.messages import NOTHING, Msg, message_adapter
from agentscope_rx.requests import Purpose, ToolSpec
from agentscope_rx.token_counter import TokenCounter
from agentscope_rx.wire import clean_text, to_json, write

POLICY_VERSION: Final = "rx-context-v1"
FRAMING_ID: Final = "harness:framing"
_DIGEST_LENGTH: Final = 16
_REMEMBERED_TOOLS: Final = 1_024
_Fixed: TypeAlias = ContextBlock | ToolSpec


class Validation(StrEnum):
    """Whether a request may go out."""

    PASSED = "passed"
    BUDGET_EXCEEDED = "budget_exceeded"
    INVALID_TOOL_PAIRS = "invalid_tool_pairs"
    STATE_CONFLICT = "state_conflict"
    HISTORY_CONFLICT = "history_conflict"
    BUILD_FAILED = "build_failed"


@frozen
class ManifestItem:
    """One item of a request.

    Args:
        id: Message id, block id or tool name.
        kind: `message`, `tool_schema`, `framing`, or the block's kind.
        zone: Where it lies.
        tokens: What it costs.
        digest: A hash of its content; 16 hexadecimal digits.
        operator: Who put it there; empty for what the session holds.
        revision: Which version of its source it is.
        required: Whether the request is refused rather than sent without it.
        priority: Its priority.
    """

    id: str
    kind: str
    zone: Zone
    tokens: int
    digest: str
    operator: str = ""
    revision: str | None = None
    required: bool = False
    priority: int = 0


@frozen
class Prefix:
    """How much of a request is, from its beginning, what the session's previous request was.

    Args:
        tokens: Tokens that are equal from the beginning on, in the order tools, System, conversation, current
            state, references.
        fixed: Tools and System blocks among what is equal.
        exchanges: Exchanges of the conversation among it.
        digest: A hash of the digests of what is equal up to and with the conversation, item by item.
        first_different: The id of the first item that differs, is new or is gone; empty where nothing does.
        zones: A hash for each zone.
    """

    tokens: int
    fixed: int
    exchanges: int
    digest: str
    first_different: str
    zones: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class ContextManifest:
    """The account of one request; counted when it is read.

    Args:
        call_id: The request: `replyId` of its model call, and its id in the log.
        purpose: What the model is called for.
        model: The model's name.
        draft: The request, as far as it got.
        counter: Counts tokens; None = the request failed before it was known how.
        input_limit: How many tokens it may have; None = no limit.
        window: The model's window; None = not known.
        window_origin: Where the window comes from.
        validation: Whether it may go out.
        changes: What operators did to it.
        timings: Seconds by operator; no part of the JSON.
        previous: The session's previous request.
        failed_in: The operator in which it failed; empty where it passed.
        error_code: The code of the error; empty where it passed.
        pressure_levels: From which shares of the limit on the pressure is 1, 2 and 3.
        measured_ratio: What the provider counted, divided by what was estimated, so far.
    """

    call_id: str
    purpose: Purpose
    model: str
    draft: RequestDraft = field(repr=False)
    counter: TokenCounter | None = field(repr=False)
    input_limit: int | None
    window: int | None = None
    window_origin: str = "unknown"
    validation: Validation
    changes: tuple[Change, ...] = ()
    timings: tuple[tuple[str, float], ...] = field(default=(), compare=False)
    previous: RequestDraft | None = field(default=None, repr=False)
    task_revision: int = 0
    failed_in: str = ""
    error_code: str = ""
    pressure_levels: tuple[float, float, float] = (0.70, 0.85, 0.95)
    measured_ratio: float | None = None
    policy_version: str = POLICY_VERSION

    # -- figures --------------------------------------------------------------------------------------------

    @cached_property
    def estimated_input_tokens(self) -> int:
        """What the request costs; -1 where it was never counted."""
        return -1 if self.counter is None else draft_tokens(self.draft, self.counter)

    @property
    def counting_method(self) -> str:
        """How tokens were counted."""
        if self.counter is None:
            return "unavailable"
        return self.counter.method_for(self.draft.conversation)

    @property
    def exact(self) -> bool:
        """Whether the count is the provider's own, framing apart."""
        return self.counter is not None and self.counter.exact_for(self.draft.conversation)

    @cached_property
    def categories(self) -> Mapping[Zone, int]:
        """Tokens by category; they add up to the estimate."""
        return {} if self.counter is None else category_tokens(self.draft, self.counter)

    @property
    def pressure(self) -> float:
        """The estimate as a share of the limit; 0 without a limit."""
        if not self.input_limit or self.estimated_input_tokens < 0:
            return 0.0
        return round(self.estimated_input_tokens / self.input_limit, 4)

    @property
    def pressure_level(self) -> int:
        """How many of the levels the pressure has reached: 0 to 3."""
        return sum(self.pressure >= level for level in self.pressure_levels)

    @cached_property
    def sources(self) -> Mapping[str, int]:
        """Tokens by context source."""
        counter, totals = self.counter, dict[str, int]()
        if counter is not None:
            for block in (*self.draft.transient, *self.draft.references):
                parts = block.id.split("/")
                if parts[0] == "source" and len(parts) > 2:
                    totals[parts[1]] = totals.get(parts[1], 0) + counter.block(block)
        return totals

    @property
    def items(self) -> Sequence[ManifestItem]:
        """All that the request holds, in the order in which it is read; their tokens add up to the estimate."""
        return tuple(self._items())

    @property
    def transforms(self) -> Sequence[str]:
        """Why items were left out, shortened or replaced: coded reasons, each once, in order of happening."""
        return tuple(dict.fromkeys(change.reason for change in self.changes if change.action != "added"))

    @cached_property
    def prefix(self) -> Prefix:
        """What this request has in common with the session's previous one."""
        return _prefix(self.draft, self.previous, self.counter)

    # -- JSON -----------------------------------------------------------------------------------------------

    def to_json(self, *, full: bool = False) -> bytes:
        """The manifest as JSON, without any text of the request.

        Args:
            full: All items; else those after the part that the previous request holds already.
        """
        return to_json(self.to_data(full=full))

    def to_data(self, *, full: bool = False) -> dict[str, object]:
        """What `to_json` writes, as plain data."""
        prefix = self.prefix
        items = self._items() if full else self._items(from_fixed=prefix.fixed, from_exchange=prefix.exchanges)
        return {
            "callId": self.call_id,
            "purpose": self.purpose.upper(),
            "model": self.model,
            "policyVersion": self.policy_version,
            "estimatedInputTokens": self.estimated_input_tokens,
            "inputLimit": self.input_limit,
            "window": self.window,
            "windowOrigin": self.window_origin,
            "countingMethod": self.counting_method,
            "exact": self.exact,
            "measuredRatio": self.measured_ratio,
            "taskRevision": self.task_revision,
            "validation": self.validation.value,
            "failedIn": self.failed_in,
            "errorCode": self.error_code,
            "pressure": self.pressure,
            "pressureLevel": self.pressure_level,
            "categories": dict(self.categories),
            "sources": dict(self.sources),
            "prefix": {
                "tokens": prefix.tokens,
                "fixed": prefix.fixed,
                "exchanges": prefix.exchanges,
                "digest": prefix.digest,
                "firstDifferent": prefix.first_different,
                "zones": dict(prefix.zones),
            },
            "full": full,
            "items": [_item_data(item) for item in items],
            "changes": [self._change_data(change) for change in self._changes_to_tell(full)],
            "transforms": list(self.transforms),
        }

    def _changes_to_tell(self, full: bool) -> Iterator[Change]:
        """What is no addition; nor, unless all is told, what was rewritten in the previous request already."""
        new = {exchange.id for exchange in _exchanges_from(self.draft.conversation, self.prefix.exchanges)}
        for change in self.changes:
            old = change.zone == "conversation" and change.action in ("rewritten", "kept") and change.item_id not in new
            if change.action != "added" and (full or not old):
                yield change

    def _change_data(self, change: Change) -> dict[str, object]:
        ids = _changed_ids(change)
        data: dict[str, object] = {
            "operator": change.operator,
            "zone": change.zone,
            "action": change.action,
            "sourceId": ids[0],
            "reason": change.reason,
            "count": len(ids),
            "tokensBefore": self._tokens_of(change.before),
            "tokensAfter": self._tokens_of(change.after),
        }
        if len(ids) > 1:
            data["lastSourceId"] = ids[-1]
        return data

    def _tokens_of(self, objects: Sequence[object]) -> int:
        counter = self.counter
        return 0 if counter is None else sum(_cost(each, counter) for each in objects)

    def _items(self, *, from_fixed: int = 0, from_exchange: int = 0) -> Iterator[ManifestItem]:
        counter, draft = self.counter, self.draft
        if counter is None:
            return
        yield from islice(self._fixed_items(counter), from_fixed, None)
        yield from self._message_items(counter, from_exchange)
        yield from (self._block_item(block, "transient", counter) for block in transient_order(draft.transient))
        yield from (self._block_item(block, "references", counter) for block in by_priority(draft.references))
        yield ManifestItem(
            id=FRAMING_ID, kind="framing", zone="system", tokens=counter.framing(draft), digest=_digest(b"framing")
        )

    def _fixed_items(self, counter: TokenCounter) -> Iterator[ManifestItem]:
        for tool in self.draft.tools:
            yield ManifestItem(
                id=tool.name,
                kind="tool_schema",
                zone="tools",
                tokens=counter.tool(tool),
                digest=_tool_digest(tool),
                operator=self._added_by.get(tool.name, ""),
            )
        for block in system_order(self.draft.system):
            yield self._block_item(block, "system", counter)

    def _block_item(self, block: ContextBlock, zone: Zone, counter: TokenCounter) -> ManifestItem:
        return ManifestItem(
            id=block.id,
            kind=block.kind,
            zone=zone,
            tokens=counter.block(block),
            digest=_block_digest(block),
            operator=self._added_by.get(block.id, ""),
            revision=block.revision,
            required=block.required,
            priority=block.priority,
        )

    def _message_items(self, counter: TokenCounter, from_exchange: int) -> Iterator[ManifestItem]:
        for exchange in _exchanges_from(self.draft.conversation, from_exchange):
            digests, tokens = exchange.measure(DIGESTS), counter.items(exchange)
            for at, message in enumerate(exchange.messages):
                yield ManifestItem(
                    id=message.id,
                    kind="message",
                    zone="conversation",
                    tokens=tokens[at],
                    digest=digests[_DIGEST_LENGTH * at : _DIGEST_LENGTH * (at + 1)],
                    operator=self._added_by.get(message.id, ""),
                )

    @cached_property
    def _added_by(self) -> Mapping[str, str]:
        return {change.item_id: change.operator for change in self.changes if change.action == "added"}


# -- counting -----------------------------------------------------------------------------------------------


def draft_tokens(draft: RequestDraft, counter: TokenCounter) -> int:
    """What a request costs: the sum of its items."""
    return fixed_tokens(draft, counter) + draft.conversation.measure(counter)


def fixed_tokens(draft: RequestDraft, counter: TokenCounter) -> int:
    """What all of a request costs that is not its conversation."""
    blocks = sum(counter.block(block) for _, zone in _block_zones(draft) for block in zone)
    return blocks + sum(map(counter.tool, draft.tools)) + counter.framing(draft)


def category_tokens(draft: RequestDraft, counter: TokenCounter) -> dict[Zone, int]:
    """Tokens by category; framing counts as System."""
    zones = {zone: sum(map(counter.block, blocks)) for zone, blocks in _block_zones(draft)}
    return {
        "system": zones["system"] + counter.framing(draft),
        "tools": sum(map(counter.tool, draft.tools)),
        "conversation": draft.conversation.measure(counter),
        "transient": zones["transient"],
        "references": zones["references"],
    }


def _block_zones(draft: RequestDraft) -> tuple[tuple[Zone, tuple[ContextBlock, ...]], ...]:
    return (("system", draft.system), ("transient", draft.transient), ("references", draft.references))


def _cost(each: object, counter: TokenCounter) -> int:
    match each:
        case ContextBlock():
            return counter.block(each)
        case ToolSpec():
            return counter.tool(each)
        case Exchange():
            return each.measure(counter)
        case _:
            return 0


def _changed_ids(change: Change) -> Sequence[str]:
    """The items that a change is about; of an exchange that was rewritten, the messages that are other ones now."""
    old, new = _messages_in(change.before), _messages_in(change.after)
    if change.action == "rewritten" and old and new:
        known = {message.id: message for message in old}
        return [message.id for message in new if known.get(message.id) != message] or [change.item_id]
    return [message.id for message in old or new] or [change.item_id]


def _messages_in(objects: Sequence[object]) -> list[Msg]:
    return [message for each in objects if isinstance(each, Exchange) for message in each.messages]


# -- digests and the prefix ---------------------------------------------------------------------------------


class _Digests:
    """Sixteen hexadecimal digits for each message, one after the other, as a measure."""

    def of(self, exchange: Exchange, /) -> str:
        return "".join(map(_message_digest, exchange.messages))

    def join(self, parts: Sequence[str], /) -> str:
        return "".join(parts)


DIGESTS: Final[Measure[str]] = _Digests()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGEST_LENGTH]


def _message_digest(message: Msg) -> str:
    """A hash of role and content; also of text that cannot be written as UTF-8."""
    return _digest(
        write(message_adapter(), replace(message, id="", name=None, metadata=NOTHING, timestamp="", usage=None))
    )


def _block_digest(block: ContextBlock) -> str:
    return _digest(clean_text(block.text).encode())


#: Tools by their identity, each with its digest; the tool itself keeps its identity from being used again.
_tools: Final[dict[int, tuple[ToolSpec, str]]] = {}


def _tool_digest(tool: ToolSpec) -> str:
    known = _tools.get(id(tool))
    if known is not None:
        return known[1]
    digest = _digest(to_json(tool))
    if len(_tools) >= _REMEMBERED_TOOLS:
        _tools.clear()  # at once, since dropping one by one is not safe among threads
    _tools[id(tool)] = tool, digest
    return digest


def _digest_of_all(parts: Iterable[str]) -> str:
    return _digest("".join(parts).encode())


def _prefix(draft: RequestDraft, previous: RequestDraft | None, counter: TokenCounter | None) -> Prefix:
    system = system_order(draft.system)
    transient, references = transient_order(draft.transient), by_priority(draft.references)
    zones = {
        "tools": _digest_of_all(map(_tool_digest, draft.tools)),
        "system": _digest_of_all(map(_block_digest, system)),
        "conversation": _digest(draft.conversation.measure(DIGESTS).encode()),
        "transient": _digest_of_all(map(_block_digest, transient)),
        "references": _digest_of_all(map(_block_digest, references)),
    }
    if previous is None or counter is None:
        return Prefix(tokens=0, fixed=0, exchanges=0, digest=_digest(b""), first_different="", zones=zones)
    shared = _Shared(counter)
    shared.take(previous.tools, draft.tools)
    shared.take(system_order(previous.system), system)
    fixed = shared.items
    exchanges = shared.take_conversation(previous.conversation, draft.conversation)
    digest = shared.digest
    shared.take(transient_order(previous.transient), transient)
    shared.take(by_priority(previous.references), references)
    return Prefix(
        tokens=shared.tokens,
        fixed=fixed,
        exchanges=exchanges,
        digest=digest,
        first_different=shared.first_different,
        zones=zones,
    )


class _Shared:
    """What two requests have in common from the beginning on; nothing is taken after the first difference."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter, self._hashed = counter, hashlib.sha256()
        self.tokens = self.items = 0
        self.first_different = ""

    @property
    def digest(self) -> str:
        return self._hashed.hexdigest()[:_DIGEST_LENGTH]

    def take(self, old: Sequence[_Fixed], new: Sequence[_Fixed]) -> None:
        if self.first_different:
            return
        for before, after in zip_longest(old, new):
            if before != after:
                self.first_different = _name(after or before)
                return
            self.items += 1
            self.tokens += _cost(after, self._counter)
            digest = _tool_digest(after) if isinstance(after, ToolSpec) else _block_digest(after)
            self._hashed.update(digest.encode())

    def take_conversation(self, old: History, new: History) -> int:
        """Equal exchanges at the beginning, and how many: whole leaves at a glance, then one by one."""
        count = at = 0
        if self.first_different:
            return count
        while at < min(len(old.leaves), len(new.leaves)) and old.leaves[at] is new.leaves[at]:
            count += len(new.leaves[at].exchanges)
            self._add(new.leaves[at])
            at += 1
        for before, after in zip_longest(_exchanges(old.leaves[at:]), _exchanges(new.leaves[at:])):
            if before is not after and before != after:
                self.first_different = (after or before).id
                break
            count += 1
            self._add(after)
        return count

    def _add(self, part: Leaf | Exchange) -> None:
        self.tokens += part.measure(self._counter)
        self._hashed.update(part.measure(DIGESTS).encode())


def _exchanges(leaves: Sequence[Leaf]) -> Iterator[Exchange]:
    return chain.from_iterable(leaf.exchanges for leaf in leaves)


def _exchanges_from(history: History, start: int) -> Iterator[Exchange]:
    """The exchanges behind the first `start`; leaves that are passed over are not looked into."""
    for leaf in history.leaves:
        yield from leaf.exchanges[start:] if start < len(leaf.exchanges) else ()
        start = max(0, start - len(leaf.exchanges))


def _name(each: _Fixed) -> str:
    return each.name if isinstance(each, ToolSpec) else each.id


def _item_data(item: ManifestItem) -> dict[str, object]:
    return {
        "sourceId": item.id,
        "sourceType": item.kind,
        "placement": item.zone,
        "tokens": item.tokens,
        "contentHash": item.digest,
        "operator": item.operator,
        "revision": item.revision,
        "required": item.required,
        "priority": item.priority,
    }
