"""ContextManifest: what went into a request, what did not, by whom, why, and what it cost.

A manifest holds references to the request and counts when it is read: a run whose manifests nobody reads pays
nothing for them, and a step never pays for old messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache, cached_property
from itertools import islice
from typing import Final

from pydantic.alias_generators import to_camel

from agentscope_rx.blocks import ContextBlock, by_priority, system_order, transient_order
from agentscope_rx.compactions import CompactionDecision
from agentscope_rx.digests import (
    DIGEST_LENGTH,
    DIGESTS,
    block_digest,
    digest_of,
    tool_digest,
)
from agentscope_rx.draft import Change, RequestDraft, Zone
from agentscope_rx.edits import shared_exchanges
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange
from agentscope_rx.messages import Msg
from agentscope_rx.prefix import Prefix, prefix_of
from agentscope_rx.request_tokens import category_tokens, draft_tokens, token_cost
from agentscope_rx.requests import Purpose
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
        compaction: Whether the history was made shorter for it, and why; None = nobody asked.
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
    compaction: CompactionDecision | None = None
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
        return tuple(self._sorted_changes.reasons)

    @cached_property
    def prefix(self) -> Prefix:
        """What this request has in common with the session's previous one."""
        return prefix_of(self.draft, self.previous, self.counter)

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
        shown = (0, 0) if full else (prefix.fixed, prefix.exchanges)
        return self._data(self._items(*shown), self._changes_to_tell(0 if full else prefix.exchanges), full=full)

    def for_log(self, *, full: bool) -> dict[str, object]:
        """The account as a log keeps it: what earlier requests hold of the conversation is one item, with its count.

        Args:
            full: All items of the other zones; else those after the part that the previous request holds already.
        """
        conversation, previous = self.draft.conversation, self.previous
        known = len(conversation) - 1 if previous is None else shared_exchanges(previous.conversation, conversation)
        known = max(0, known)
        items = list(self._items(0 if full else self.prefix.fixed, known))
        data = self._data(items, self._changes_to_tell(known), full=full)
        if known and self.counter is not None:
            data["known"] = {
                "sourceId": next(conversation.after(0)).id,
                "lastSourceId": next(conversation.after(known - 1)).id,
                "exchanges": known,
                "tokens": conversation.first(known).measure(self.counter),
            }
        return data

    def _data(self, items: Iterable[ManifestItem], changes: Iterable[Change], *, full: bool) -> dict[str, object]:
        prefix = self.prefix
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
            "compaction": None if self.compaction is None else _decision_data(self.compaction),
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
            "changes": [self._change_data(change) for change in changes],
            "transforms": list(self.transforms),
        }

    def _changes_to_tell(self, known: int) -> Iterable[Change]:
        """What is no addition; nor what was rewritten already among the first exchanges, which are known."""
        told = self._sorted_changes.told
        if not known:
            return told
        new = {exchange.id for exchange in self.draft.conversation.after(known)}
        return [each for each in told if each.item_id in new or each.zone != "conversation" or each.action == "dropped"]

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
        return 0 if counter is None else sum(token_cost(each, counter) for each in objects)

    def _items(self, from_fixed: int = 0, from_exchange: int = 0) -> Iterator[ManifestItem]:
        counter, draft = self.counter, self.draft
        if counter is None:
            return
        yield from islice(self._fixed_items(counter), from_fixed, None)
        yield from self._message_items(counter, from_exchange)
        yield from (self._block_item(block, "transient", counter) for block in transient_order(draft.transient))
        yield from (self._block_item(block, "references", counter) for block in by_priority(draft.references))
        yield ManifestItem(
            id=FRAMING_ID, kind="framing", zone="system", tokens=counter.framing(draft), digest=digest_of(b"framing")
        )

    def _fixed_items(self, counter: TokenCounter) -> Iterator[ManifestItem]:
        for tool in self.draft.tools:
            yield ManifestItem(
                id=tool.name,
                kind="tool_schema",
                zone="tools",
                tokens=counter.tool(tool),
                digest=tool_digest(tool),
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
            digest=block_digest(block),
            operator=self._added_by.get(block.id, ""),
            revision=block.revision,
            required=block.required,
            priority=block.priority,
        )

    def _message_items(self, counter: TokenCounter, from_exchange: int) -> Iterator[ManifestItem]:
        for exchange in self.draft.conversation.after(from_exchange):
            digests, tokens = exchange.measure(DIGESTS), counter.items(exchange)
            for at, message in enumerate(exchange.messages):
                yield ManifestItem(
                    id=message.id,
                    kind="message",
                    zone="conversation",
                    tokens=tokens[at],
                    digest=digests[DIGEST_LENGTH * at : DIGEST_LENGTH * (at + 1)],
                    operator=self._added_by.get(message.id, ""),
                )

    @property
    def _added_by(self) -> Mapping[str, str]:
        return self._sorted_changes.added_by

    @cached_property
    def _sorted_changes(self) -> _Changes:
        return _Changes(self.changes)


class _Changes:
    """Changes by what is asked of them; looked through once, since there may be one a message.

    Attributes:
        added_by: Who added what.
        told: What is no addition.
        reasons: Why, each once, in order of happening.
    """

    def __init__(self, changes: Sequence[Change]) -> None:
        self.added_by: dict[str, str] = {}
        self.told: list[Change] = []
        self.reasons: dict[str, None] = {}
        before = ""
        for change in changes:
            if change.action == "added":
                self.added_by[change.item_id] = change.operator
                continue
            self.told.append(change)
            if change.reason != before:
                before = change.reason
                self.reasons[before] = None


def _decision_data(decision: CompactionDecision) -> dict[str, object]:
    data = {name: getattr(decision, field) for field, name in _decision_names().items()}
    return {name: value for name, value in data.items() if value not in ("", None, 0) or name == "outcome"}


@cache
def _decision_names() -> Mapping[str, str]:
    names = (each.name for each in fields(CompactionDecision))  # type: ignore[reportArgumentType]
    return {name: to_camel(name) for name in names if name != "failure"}


def _changed_ids(change: Change) -> Sequence[str]:
    """The items that a change is about; of an exchange that was rewritten, the messages that are other ones now."""
    old, new = _messages_in(change.before), _messages_in(change.after)
    if change.action == "rewritten" and old and new:
        known = {message.id: message for message in old}
        return [message.id for message in new if known.get(message.id) != message] or [change.item_id]
    return [message.id for message in old or new] or [change.item_id]


def _messages_in(objects: Sequence[object]) -> list[Msg]:
    return [message for each in objects if isinstance(each, Exchange) for message in each.messages]


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
