"""How much of a request is, from its beginning, what the session's previous one was: what a provider's cache keeps."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import TypeAlias

from agentscope_rx.blocks import ContextBlock, by_priority, system_order, transient_order
from agentscope_rx.digests import DIGEST_LENGTH, DIGESTS, block_digest, digest_of, digest_of_all, tool_digest
from agentscope_rx.draft import RequestDraft
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History, Leaf
from agentscope_rx.request_tokens import token_cost
from agentscope_rx.requests import ToolSpec
from agentscope_rx.token_counter import TokenCounter

_Fixed: TypeAlias = ContextBlock | ToolSpec


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


def prefix_of(draft: RequestDraft, previous: RequestDraft | None, counter: TokenCounter | None) -> Prefix:
    """What a request has in common with the one before it."""
    system = system_order(draft.system)
    transient, references = transient_order(draft.transient), by_priority(draft.references)
    zones = {
        "tools": digest_of_all(map(tool_digest, draft.tools)),
        "system": digest_of_all(map(block_digest, system)),
        "conversation": digest_of(draft.conversation.measure(DIGESTS).encode()),
        "transient": digest_of_all(map(block_digest, transient)),
        "references": digest_of_all(map(block_digest, references)),
    }
    if previous is None or counter is None:
        return Prefix(tokens=0, fixed=0, exchanges=0, digest=digest_of(b""), first_different="", zones=zones)
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
        return self._hashed.hexdigest()[:DIGEST_LENGTH]

    def take(self, old: Sequence[_Fixed], new: Sequence[_Fixed]) -> None:
        if self.first_different:
            return
        for before, after in zip_longest(old, new):
            if before != after:
                self.first_different = _name(after or before)
                return
            self.items += 1
            self.tokens += token_cost(after, self._counter)
            digest = tool_digest(after) if isinstance(after, ToolSpec) else block_digest(after)
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


def _name(each: _Fixed) -> str:
    return each.name if isinstance(each, ToolSpec) else each.id
