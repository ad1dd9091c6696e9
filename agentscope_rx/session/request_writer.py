"""Requests as a log tells them: by what it holds already, so that a step costs what is new in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from itertools import chain
from typing import Any, Final

from agentscope_rx.digests import DIGESTS, digest_of
from agentscope_rx.edits import shared_exchanges
from agentscope_rx.history import Exchange, History, Measure
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.messages import Msg
from agentscope_rx.records.asked import Part, RequestPrepared
from agentscope_rx.requests import GenerateOptions, ModelRequest
from agentscope_rx.secret_names import without_secrets
from agentscope_rx.session.known_values import KnownValues
from agentscope_rx.wire import from_json, to_json

#: After so many requests that lean on the one before, one says all.
FULL_EVERY: Final = 200
_HASH_LENGTH: Final = 32
_SHORT: Final = 64  # bytes; such a value costs less than its hash


class _Hashes:
    """The hash of each message as JSON, as a measure: what a request shows in other words is told again and again."""

    def of(self, exchange: Exchange, /) -> tuple[str, ...]:
        return tuple(_hash_of(message.to_json()) for message in exchange.messages)

    def join(self, parts: Sequence[tuple[str, ...]], /) -> tuple[str, ...]:
        return tuple(chain.from_iterable(parts))


_HASHES: Final[Measure[tuple[str, ...]]] = _Hashes()


class RequestWriter:
    """Tells the requests of a session, one after the other, as long as nobody else writes any.

    Args:
        known: What the log holds of values; what is written is added.
    """

    def __init__(self, known: KnownValues) -> None:
        self.known = known
        self._last: ModelRequest | None = None
        self._tail: Sequence[Part] = ()
        self._told = 0

    @property
    def newest(self) -> str:
        """The id of the request that the next one can lean on; empty = there is none."""
        return "" if self._last is None else self._last.call_id

    def record_of(
        self, request: ModelRequest, model: str, manifest: ContextManifest | None, history: History
    ) -> RequestPrepared:
        """The record of a request.

        Args:
            request: The request, as it goes out.
            model: The model's name.
            manifest: Its account; None = there is none.
            history: The session's working history at this moment.
        """
        last = self._last if request.purpose == "reasoning" else None
        shared = 0 if last is None else shared_exchanges(last.conversation, request.conversation)
        if last is not None and (shared < len(last.conversation) or self._told >= FULL_EVERY):
            last, shared = None, 0
        values: dict[str, Any] = {}
        tail = self._parts_of_tail(request.tail, last, values)
        record = RequestPrepared(
            call_id=request.call_id,
            purpose=request.purpose,
            model=model,
            since="" if last is None else last.call_id,
            digest=_digest(request, manifest),
            conversation=self._pieces(request.conversation, shared, history, values),
            tail=None if last is not None and tail == self._tail else tail,
            values=values,
            manifest=None if manifest is None else manifest.for_log(full=last is None),
        )
        record = self._with_fixed(record, request, last, values)
        self.known.add(values)
        if request.purpose == "reasoning":
            self._last, self._tail = request, tail
            self._told = 1 if last is None else self._told + 1
        return record

    def _with_fixed(
        self, record: RequestPrepared, request: ModelRequest, last: ModelRequest | None, values: dict[str, Any]
    ) -> RequestPrepared:
        """The record with what seldom changes, where it has."""
        changed: dict[str, Any] = {}
        if last is None or last.system != request.system:
            changed["system"] = self._part(to_json(request.system), values)
        if last is None or last.tools != request.tools:
            changed["tools"] = [self._part(to_json(tool), values) for tool in request.tools]
        if last is None or last.options != request.options:
            changed["options"] = self._part(to_json(_plain_options(request.options)), values)
        return replace(record, **changed) if changed else record

    def _parts_of_tail(self, tail: Sequence[Msg], last: ModelRequest | None, values: dict[str, Any]) -> Sequence[Part]:
        before = () if last is None else last.tail
        known = {message.id: at for at, message in enumerate(before)}
        parts: list[Part] = []
        for message in tail:
            at = known.get(message.id)
            same = at is not None and before[at] == message
            parts.append(self._tail[at] if same and at is not None else self._part(message.to_json(), values))
        return parts

    def _pieces(
        self, conversation: History, shared: int, history: History, values: dict[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        """What comes behind the first `shared` exchanges: as the working history has it, or as it is shown."""
        same = 0 if shared else shared_exchanges(history, conversation)
        pieces: list[dict[str, Any]] = [{"from": next(iter(conversation)).id, "count": same}] if same else []
        new = list(conversation.after(shared + same))
        places, follows = _places(history, new), same or -1
        for exchange in new:
            at, held = places.get(exchange.id, (-1, None))
            if held is None or (held is not exchange and held != exchange):
                pieces.append({"shown": self._shown(exchange, values)})
                follows = -1
            elif at == follows:
                pieces[-1]["count"] += 1
                follows += 1
            else:
                pieces.append({"from": exchange.id, "count": 1})
                follows = at + 1
        return pieces

    def _part(self, data: bytes, values: dict[str, Any]) -> Part:
        if len(data) <= _SHORT:
            return {"value": from_json(data)}
        hash = _hash_of(data)
        if hash not in self.known:
            values[hash] = from_json(data)
        return {"hash": hash}

    def _shown(self, exchange: Exchange, values: dict[str, Any]) -> Sequence[Part]:
        hashes = exchange.measure(_HASHES)
        for hash, message in zip(hashes, exchange.messages, strict=True):
            if hash not in self.known:
                values[hash] = from_json(message.to_json())
        return [{"hash": hash} for hash in hashes]


def _hash_of(data: bytes) -> str:
    return sha256(data).hexdigest()[:_HASH_LENGTH]


def _digest(request: ModelRequest, manifest: ContextManifest | None) -> str:
    """A hash of the conversation; the manifest has taken it already where it is about the same one."""
    if manifest is not None and manifest.draft.conversation is request.conversation:
        return manifest.prefix.zones["conversation"]
    return digest_of(request.conversation.measure(DIGESTS).encode())


def _places(history: History, wanted: Sequence[Exchange]) -> Mapping[str, tuple[int, Exchange]]:
    """Where the working history has exchanges, found from its end, where new ones are."""
    ids = {exchange.id for exchange in wanted}
    found: dict[str, tuple[int, Exchange]] = {}
    end = len(history)
    for leaf in reversed(history.leaves):
        if not ids:
            break
        end -= len(leaf.exchanges)
        for at, exchange in enumerate(leaf.exchanges, end):
            if exchange.id in ids:
                found[exchange.id] = at, exchange
                ids.discard(exchange.id)
    return found


def _plain_options(options: GenerateOptions) -> dict[str, object]:
    given = options.model_dump(exclude_defaults=True, exclude={"additional_headers", "additional_query"})
    if "additional_body" in given:
        given["additional_body"] = without_secrets("", options.additional_body)
    return given
