"""ContextManifest: what went into a request, what did not, by whom, why, and what it cost.

A manifest holds references to the request and counts when it is read: a run whose manifests nobody reads pays
nothing for them, and a step never pays for old messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.draft import Change, RequestDraft, Zone
from agentscope_rx.history import Exchange, History, Leaf, Measure
from agentscope_rx.messages import message_adapter
from agentscope_rx.requests import Purpose, ToolSpec
from agentscope_rx.token_counter import TokenCounter
from agentscope_rx.wire import to_json

POLICY_VERSION: Final = "rx-context-v1"
FRAMING_ID: Final = "harness:framing"


class Validation(StrEnum):
    """Whether a request may go out."""

    PASSED = "passed"
    BUDGET_EXCEEDED = "budget_exceeded"
    INVALID_TOOL_PAIRS = "invalid_tool_pairs"
    STATE_CONFLICT = "state_conflict"
    HISTORY_CONFLICT = "history_conflict"
    BUILD_FAILED = "build_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """How much of a request is, from its beginning, what the session's previous request was.

    Args:
        tokens: Tokens that are equal from the beginning on.
        exchanges: Exchanges of the conversation among them.
        digest: A hash of them.
        first_different: The id of the first item that differs; empty where nothing does.
        zones: A hash for each zone.
    """

    tokens: int
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
    def categories(self) -> Mapping[str, int]:
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
        """Everything that the request holds: tools, blocks, messages, framing; their tokens add up to the estimate."""
        return tuple(self._items(from_exchange=0))

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
        shared = 0 if full else prefix.exchanges
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
                "exchanges": prefix.exchanges,
                "digest": prefix.digest,
                "firstDifferent": prefix.first_different,
                "zones": dict(prefix.zones),
            },
            "full": full,
            "items": [_item_data(item) for item in self._items(from_exchange=shared)],
            "changes": [self._change_data(change) for change in self.changes],
        }

    def _change_data(self, change: Change) -> dict[str, object]:
        data: dict[str, object] = {
            "operator": change.operator,
            "zone": change.zone,
            "action": change.action,
            "id": change.item_id,
            "reason": change.reason,
            "count": change.count,
            "tokensBefore": self._tokens_of(change.before),
            "tokensAfter": self._tokens_of(change.after),
        }
        if change.count > 1:
            data["lastId"] = change.last_id
        return data

    def _tokens_of(self, objects: Sequence[object]) -> int:
        counter = self.counter
        return 0 if counter is None else sum(_cost(each, counter) for each in objects)

    def _items(self, *, from_exchange: int) -> Iterator[ManifestItem]:
        counter = self.counter
        if counter is None:
            return
        draft, added = self.draft, self._added_by
        for tool in draft.tools:
            yield ManifestItem(
                id=tool.name,
                kind="tool_schema",
                zone="tools",
                tokens=counter.tool(tool),
                digest=_digest(to_json(tool)),
                operator=added.get(tool.name, ""),
            )
        for zone, blocks in _block_zones(draft):
            for block in blocks:
                yield ManifestItem(
                    id=block.id,
                    kind=block.kind,
                    zone=zone,
                    tokens=counter.block(block),
                    digest=_digest(block.text.encode()),
                    operator=added.get(block.id, ""),
                    revision=block.revision,
                    required=block.required,
                    priority=block.priority,
                )
        yield from _message_items(draft.conversation, counter, from_exchange)
        yield ManifestItem(
            id=FRAMING_ID, kind="framing", zone="system", tokens=counter.framing(draft), digest=_digest(b"framing")
        )

    @cached_property
    def _added_by(self) -> Mapping[str, str]:
        return {change.item_id: change.operator for change in self.changes if change.action != "dropped"}


# -- counting -----------------------------------------------------------------------------------------------


def draft_tokens(draft: RequestDraft, counter: TokenCounter) -> int:
    """What a request costs: the sum of its items."""
    return fixed_tokens(draft, counter) + draft.conversation.measure(counter)


def fixed_tokens(draft: RequestDraft, counter: TokenCounter) -> int:
    """What all of a request costs that is not its conversation."""
    blocks = sum(counter.block(block) for _, zone in _block_zones(draft) for block in zone)
    return blocks + sum(map(counter.tool, draft.tools)) + counter.framing(draft)


def category_tokens(draft: RequestDraft, counter: TokenCounter) -> dict[str, int]:
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


def _message_items(history: History, counter: TokenCounter, from_exchange: int) -> Iterator[ManifestItem]:
    for number, exchange in enumerate(history):
        if number < from_exchange:
            continue
        digests, tokens = exchange.measure(DIGESTS), counter.items(exchange)
        for at, message in enumerate(exchange.messages):
            yield ManifestItem(
                id=message.id,
                kind="message",
                zone="conversation",
                tokens=tokens[at],
                digest=digests[16 * at : 16 * at + 16],
            )


# -- digests and the prefix ---------------------------------------------------------------------------------


class _Digests:
    """Sixteen hexadecimal digits for each message, one after the other, as a measure."""

    def of(self, exchange: Exchange, /) -> str:
        adapter = message_adapter()
        return "".join(
            _digest(adapter.dump_json(message, include={"role", "content"})) for message in exchange.messages
        )

    def join(self, parts: Sequence[str], /) -> str:
        return "".join(parts)


DIGESTS: Final[Measure[str]] = _Digests()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _zone_digest(blocks: Sequence[ContextBlock]) -> str:
    return _digest(to_json([(block.id, block.kind, block.text) for block in blocks]))


def _prefix(draft: RequestDraft, previous: RequestDraft | None, counter: TokenCounter | None) -> Prefix:
    zones = {
        "system": _zone_digest(draft.system),
        "tools": _digest(to_json(draft.tools)),
        "conversation": _digest(draft.conversation.measure(DIGESTS).encode()),
        "transient": _zone_digest(draft.transient),
        "references": _zone_digest(draft.references),
    }
    if previous is None or counter is None:
        return Prefix(tokens=0, exchanges=0, digest=_digest(b""), first_different="", zones=zones)
    different = _first_difference(previous.system, draft.system) or _first_difference(previous.tools, draft.tools)
    if different:
        return Prefix(tokens=0, exchanges=0, digest=_digest(b""), first_different=different, zones=zones)
    tokens = sum(map(counter.block, draft.system)) + sum(map(counter.tool, draft.tools))
    count, conversation_tokens, digest, different = _common_conversation(previous, draft, counter)
    return Prefix(
        tokens=tokens + conversation_tokens, exchanges=count, digest=digest, first_different=different, zones=zones
    )


def _common_conversation(
    previous: RequestDraft, draft: RequestDraft, counter: TokenCounter
) -> tuple[int, int, str, str]:
    """Equal exchanges at the beginning: whole leaves at a glance, then one by one."""
    hashed, count, tokens = hashlib.sha256(), 0, 0
    old, new = previous.conversation.leaves, draft.conversation.leaves
    at = 0
    while at < min(len(old), len(new)) and old[at] is new[at]:
        count, tokens = count + len(new[at].exchanges), tokens + new[at].measure(counter)
        hashed.update(new[at].measure(DIGESTS).encode())
        at += 1
    rest = _exchanges(new[at:])
    for before in _exchanges(old[at:]):
        after = next(rest, None)
        if after is None or (after is not before and after != before):
            break
        count, tokens = count + 1, tokens + after.measure(counter)
        hashed.update(after.measure(DIGESTS).encode())
    else:
        after = next(rest, None)
    if after is None:
        tail = (*draft.transient, *draft.references)
        return count, tokens, hashed.hexdigest()[:16], tail[0].id if tail else ""
    return count, tokens, hashed.hexdigest()[:16], after.id


def _exchanges(leaves: Sequence[Leaf]) -> Iterator[Exchange]:
    for leaf in leaves:
        yield from leaf.exchanges


def _first_difference(old: Sequence[ContextBlock | ToolSpec], new: Sequence[ContextBlock | ToolSpec]) -> str:
    if old is new:
        return ""
    for before, after in zip(old, new, strict=False):
        if before != after:
            return _name(after)
    if len(old) == len(new):
        return ""
    return _name(new[len(old)]) if len(new) > len(old) else _name(old[len(new)])


def _name(each: ContextBlock | ToolSpec) -> str:
    return each.name if isinstance(each, ToolSpec) else each.id


def _item_data(item: ManifestItem) -> dict[str, object]:
    return {
        "id": item.id,
        "sourceType": item.kind,
        "placement": item.zone,
        "tokens": item.tokens,
        "contentHash": item.digest,
        "operator": item.operator,
        "revision": item.revision,
        "required": item.required,
        "priority": item.priority,
    }
