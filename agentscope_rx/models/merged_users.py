"""For providers that refuse a message of the user right after another one, or right after a tool result.

What the user says is added to the message before it, on the wire alone. What cannot be added to, or cannot be added,
because it holds media, gets a short answer of the assistant before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Final, Literal, NamedTuple

from agentscope_rx.history import Exchange
from agentscope_rx.messages import Msg
from agentscope_rx.models.chat_messages import MessageStyle, written_messages
from agentscope_rx.wire import to_json

_BETWEEN: Final = rb"\n\n"  # inside of a JSON text
_USER: Final = b'{"role":"user","content":"%b"}'
_BRIDGE: Final = b'{"role":"assistant","content":"(noted)"}'
#: What the last message is: the assistant's; one that text can be added to; the user's or a tool's, with media.
End = Literal["closed", "open", "media"]


class Run(NamedTuple):
    """Neighbouring messages, of which the first and the last may still be merged with others.

    Args:
        lead: What the user says at the beginning, as a JSON text without its quotes; empty = something else begins.
        rest: The messages after that.
        end: What the last message is.
        media_first: Whether `rest` begins with a message of the user that holds media.
    """

    lead: bytes = b""
    rest: bytes = b""
    end: End = "closed"
    media_first: bool = False

    @property
    def bytes(self) -> bytes:
        """The messages, with commas between."""
        return b",".join(filter(None, (_USER % self.lead if self.lead else b"", self.rest)))


class MergedBytes:
    """The messages of an exchange, open at both ends; a measure, so taken once per exchange."""

    def __init__(self, style: MessageStyle) -> None:
        self._style = style

    def of(self, exchange: Exchange, /) -> Run:
        """The messages of one exchange."""
        return self.of_messages(exchange.messages)

    def of_messages(self, messages: Sequence[Msg]) -> Run:
        """Neighbouring messages that are no exchange."""
        return self.join([_run_of(fields) for fields in written_messages(messages, self._style)])

    def join(self, parts: Sequence[Run], /) -> Run:
        """Neighbours, merged where they meet."""
        joining = _Joining()
        for part in parts:
            joining.add(part)
        return joining.run


@cache
def merged_bytes(style: MessageStyle) -> MergedBytes:
    """The measure of a style: one per process."""
    return MergedBytes(style)


class _Joining:
    """Runs becoming one; bytes are put together once."""

    def __init__(self) -> None:
        self._lead = list[bytes]()
        self._rest = list[bytes]()
        self._end: End = "closed"
        self._media_first = False

    @property
    def run(self) -> Run:
        return Run(_BETWEEN.join(self._lead), b",".join(self._rest), self._end, self._media_first)

    def add(self, part: Run) -> None:
        if not part.lead and not part.rest:
            return
        nothing_yet = not self._lead and not self._rest
        if part.lead:
            self._add_words(part.lead, first=nothing_yet)
        if part.rest:
            begins_with_media = part.media_first and not part.lead
            if begins_with_media and not nothing_yet and self._end != "closed":
                self._rest.append(_BRIDGE)
            elif nothing_yet:
                self._media_first = begins_with_media
            self._rest.append(part.rest)
        self._end = part.end

    def _add_words(self, words: bytes, *, first: bool) -> None:
        if first or (self._end == "open" and not self._rest):
            self._lead.append(words)
        elif self._end == "open":
            self._rest[-1] = b'%b%b%b"}' % (self._rest[-1][:-2], _BETWEEN, words)
        else:
            self._rest.extend((_BRIDGE, _USER % words) if self._end == "media" else (_USER % words,))


def _run_of(fields: dict[str, object]) -> Run:
    """One message."""
    role, content = fields["role"], fields.get("content")
    written = to_json(fields)
    if role == "assistant":
        return Run(rest=written)
    if not isinstance(content, str):
        return Run(rest=written, end="media", media_first=role == "user")
    if role == "user":
        return Run(lead=to_json(content)[1:-1], end="open")
    return Run(rest=written, end="open")
