"""Which call a piece of a tool call belongs to, whatever ids, indexes and names a provider leaves out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final, cast

from agentscope_rx.frozen import frozen
from agentscope_rx.requests import CallDelta
from agentscope_rx.wire import json_object, to_json

_KNOWN: Final = frozenset({"index", "id", "type", "function", "name", "arguments"})


@frozen(kw_only=False)
class _Piece:
    """A piece as it came, read leniently."""

    place: int | None  # the provider's index
    id: str
    name: str
    arguments: str
    opaque: dict[str, object]


class _Call:
    """A call in the making."""

    __slots__ = ("announced", "arguments", "index", "name", "named_again", "opaque", "place", "wire_id")

    def __init__(self, index: int, piece: _Piece) -> None:
        self.index = index
        self.place = piece.place
        self.wire_id = piece.id
        self.name = ""
        self.arguments: list[str] = []
        self.opaque: dict[str, object] = {}
        self.announced = False
        self.named_again = False  # its name came again after its end: further arguments are another call's

    @property
    def begun(self) -> bool:
        return any(piece.strip() for piece in self.arguments)

    @property
    def complete(self) -> bool:
        last = next((piece for piece in reversed(self.arguments) if piece.strip()), "")
        # Some servers repeat the name with each piece: only a last brace is worth reading all of it.
        return last.rstrip().endswith("}") and json_object("".join(self.arguments)) is not None


class CallAssembler:
    """Sorts the pieces of one answer's tool calls.

    Rules, in this order. A new id opens a new call whatever its index; but a piece without a name continues
    an unfinished call at the same index, since some servers give each piece an id of its own. Without an id,
    the index says which call it is, and without an index it is the last one. A name that comes again after
    complete arguments opens a new call.

    The first delta of a call comes with its first arguments, or at the end of the answer; it brings id and
    name, which never change after it. Ids are unique within the answer; a call that has none by then gets one
    made of the request's id.

    Args:
        call_id: The id of the model call.
    """

    __slots__ = ("_by_id", "_by_place", "_call_id", "_calls", "_ids", "_waiting")

    def __init__(self, call_id: str) -> None:
        self._call_id = call_id
        self._calls: list[_Call] = []
        self._by_id: dict[str, _Call] = {}
        self._by_place: dict[int, _Call] = {}
        self._ids: set[str] = set()
        self._waiting = 0  # the first call that was not announced yet

    def feed(self, entries: object, *, whole: bool = False) -> tuple[CallDelta, ...]:
        """Take the `tool_calls` of one delta.

        Args:
            entries: What the provider sent; anything that is no call is left out.
            whole: Whether each entry is a call of its own, as in an answer that was not streamed.
        """
        listed = cast("list[object]", entries) if isinstance(entries, list) else [entries]
        if len(listed) == 1 and (delta := self._plain_continuation(listed[0])) is not None:
            return (delta,)
        out: list[CallDelta] = []
        for entry in listed:
            if isinstance(entry, dict):
                self._take(_piece(cast("dict[str, object]", entry)), whole, out)
        return tuple(out)

    def flush(self) -> tuple[CallDelta, ...]:
        """Announce what is still held back; to be called at the end of the answer."""
        out: list[CallDelta] = []
        self._announce(len(self._calls), out)
        return tuple(out)

    def _plain_continuation(self, entry: object) -> CallDelta | None:
        """What nearly every piece is, read in a third of the time: an index and more arguments."""
        if not isinstance(entry, dict) or len(fields := cast("dict[str, object]", entry)) != 2:
            return None
        place, function = fields.get("index"), fields.get("function")
        if type(place) is not int or not isinstance(function, dict):
            return None
        inner = cast("dict[str, object]", function)
        arguments, call = inner.get("arguments"), self._by_place.get(place)
        if len(inner) != 1 or not isinstance(arguments, str) or not arguments:
            return None
        if call is None or not call.announced or call.named_again:
            return None
        call.arguments.append(arguments)
        return CallDelta(call.index, arguments=arguments)

    def _take(self, piece: _Piece, whole: bool, out: list[CallDelta]) -> None:
        call = None if whole else self._owner(piece)
        if call is None:
            if not (piece.id or piece.name or piece.arguments.strip()):
                return  # an index with nothing behind it is no call
            call = self._opened(piece)
        elif piece.id and piece.id != call.wire_id:
            call.wire_id = call.wire_id or piece.id
            self._by_id[piece.id] = call
        late_name = _renamed(call, piece.name)
        call.arguments.append(piece.arguments)
        call.opaque.update(piece.opaque)
        if not call.announced:
            if call.name and call.begun:
                self._announce(call.index + 1, out)
        elif piece.arguments or late_name or piece.opaque:
            opaque = dict(call.opaque) if piece.opaque else None
            out.append(CallDelta(call.index, "", late_name, piece.arguments, opaque))

    # -- whose it is ----------------------------------------------------------------------------------------

    def _owner(self, piece: _Piece) -> _Call | None:
        """The call that a piece continues; None where it opens one."""
        if piece.place is not None:
            current = self._by_place.get(piece.place)
        else:
            current = self._calls[-1] if self._calls else None
        if piece.id:
            return self._owner_by_id(piece, current)
        if current is None:
            return None
        if not piece.name:
            return self._next_of_its_name(piece, current)
        if not current.name:
            return current
        if piece.name == current.name:
            if current.complete and piece.arguments.strip():
                return None
            current.named_again = current.complete
            return current
        # A different name is a different call, but for servers that cut names too: they do give ids.
        return current if current.wire_id and not current.begun else None

    def _owner_by_id(self, piece: _Piece, current: _Call | None) -> _Call | None:
        known = current if current and current.wire_id == piece.id else self._by_id.get(piece.id)
        if known is not None:
            if not piece.name:
                return known
            elsewhere = piece.place is not None and known.place is not None and known.place != piece.place
            return None if elsewhere or (piece.arguments.strip() and known.complete) else known
        if current is None or current.complete:
            return None
        if piece.name:
            return current if not current.wire_id and current.name in ("", piece.name) else None
        return current if current.name else None

    def _next_of_its_name(self, piece: _Piece, current: _Call) -> _Call:
        if current.named_again and piece.arguments.strip():
            current.named_again = False
            following = self._opened(_Piece(piece.place, "", current.name, "", {}))
            following.name = current.name
            return following
        return current

    def _opened(self, piece: _Piece) -> _Call:
        call = _Call(len(self._calls), piece)
        self._calls.append(call)
        if piece.place is not None:
            self._by_place[piece.place] = call
        if piece.id:
            self._by_id[piece.id] = call
        return call

    # -- letting out ----------------------------------------------------------------------------------------

    def _announce(self, end: int, out: list[CallDelta]) -> None:
        """Let out the calls before `end` that were held back: calls appear in the order of their index."""
        for call in self._calls[self._waiting : end]:
            call.announced = True
            arguments, opaque = "".join(call.arguments), dict(call.opaque) or None
            out.append(CallDelta(call.index, self._unique_id(call), call.name, arguments, opaque))
        self._waiting = max(self._waiting, end)

    def _unique_id(self, call: _Call) -> str:
        wanted = call.wire_id or f"call_{_digest(self._call_id)}_{call.index}"
        unique, number = wanted, 1
        while unique in self._ids:
            number += 1
            unique = f"{wanted}_{number}"
        self._ids.add(unique)
        return unique


def _renamed(call: _Call, name: str) -> str:
    """Take a name, or the next piece of one; gives it where the call was announced without."""
    if not name or name == call.name:
        return ""
    if call.announced:
        if call.name:
            return ""
        call.name = name
        return name
    if not call.begun or not call.name:
        call.name = name if name.startswith(call.name) else call.name + name
    return ""


def _piece(entry: Mapping[str, object]) -> _Piece:
    function = entry.get("function")
    inner = cast("dict[str, object]", function) if isinstance(function, dict) else entry
    place = entry.get("index")
    return _Piece(
        place=place if type(place) is int else None,
        id=_text(entry.get("id")),
        name=_text(inner.get("name")),
        arguments=_arguments(inner.get("arguments")),
        opaque={key: value for key, value in entry.items() if key not in _KNOWN and value is not None},
    )


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    return str(value) if type(value) is int else ""


def _arguments(value: object) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return to_json(value).decode()  # some servers give the object itself


def _digest(call_id: str) -> str:
    # A digest and not the first characters, which ids of one run may have in common.
    return hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:8]
