"""The chunks of a Chat Completions answer, read as leniently as providers write them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, cast

from agentscope_rx.errors import StreamFailed, StreamIncomplete
from agentscope_rx.models.call_deltas import CallAssembler
from agentscope_rx.models.failures import finish_failure, reports_failure, stream_failure
from agentscope_rx.models.provider_state import ProviderState
from agentscope_rx.requests import CallDelta, ModelChunk
from agentscope_rx.usage import ChatUsage
from agentscope_rx.wire import from_json

_SHOWN: Final = 200


class ChatChunkParser:
    """Reads the events of one answer; make one for each.

    It also takes the object that answers a request without streaming. What says nothing gives no chunk. The
    provider's state (`ModelChunk.opaque`) comes as a whole with the last chunk.

    Args:
        call_id: The id of the model call; ids of tool calls that the provider left out are made of it.
        hide: Secrets that must not get into an error's message.

    Attributes:
        done: Whether nothing more can come.
        finish_reason: The last one that the provider gave.

    Examples:
        >>> parser = ChatChunkParser("r1")
        >>> parser.feed(b'{"choices": [{"delta": {"content": "Hi"}}]}')[0].text
        'Hi'
        >>> parser.feed(b"[DONE]"), parser.done, parser.finish()
        ([], True, [])
    """

    __slots__ = ("_begun", "_calls", "_choice", "_hide", "_state", "_visible", "done", "finish_reason")

    def __init__(self, call_id: str = "", *, hide: Sequence[str] = ()) -> None:
        self.done = False
        self.finish_reason: str | None = None
        self._hide = hide
        self._calls = CallAssembler(call_id)
        self._state = ProviderState()
        self._begun = False
        self._visible = False
        self._choice: object = None

    def feed(self, data: bytes, event: str = "") -> list[ModelChunk]:
        """Read the data of one event.

        Args:
            data: The data, usually a JSON object or `[DONE]`.
            event: The name of the event; `error` makes of any data an error.

        Raises:
            ProviderError: The provider reports one: `StreamFailed`, or the class that its words call for.
            StreamFailed: The data are broken.
        """
        if event == "error":
            raise stream_failure(data, hide=self._hide)
        try:
            value = from_json(data)
        except (ValueError, RecursionError) as error:
            return self._without_json(data, error)
        if not isinstance(value, dict):
            return []
        return self._read(cast("dict[str, object]", value))

    def finish(self) -> list[ModelChunk]:
        """Take note of the end of the stream.

        Raises:
            StreamIncomplete: It came before the model had finished: without `[DONE]` or a finish reason.
        """
        if not self.done and self.finish_reason is None:
            raise StreamIncomplete("the answer ended without a finish reason or [DONE], before its end")
        calls, opaque = self._calls.flush(), self._state.fields or None
        return [ModelChunk(calls=calls, opaque=opaque)] if calls or opaque else []

    def _without_json(self, data: bytes, error: Exception) -> list[ModelChunk]:
        text = data.strip()
        if text == b"[DONE]":
            self.done = True
        elif text:
            shown = text[:_SHOWN].decode("utf-8", "replace")
            raise StreamFailed(f"a chunk of the answer is no JSON: {shown!r}") from error
        return []

    def _read(self, value: Mapping[str, object]) -> list[ModelChunk]:
        choices = value.get("choices")
        if value.get("error") or (not choices and reports_failure(value)):
            raise stream_failure(value, hide=self._hide)
        usage = _usage(value.get("usage"))
        choice = self._chosen(choices)
        if choice is None:
            return [ModelChunk(usage=usage)] if usage else []
        text, thinking, calls = self._said(choice)
        self._visible = self._visible or bool(calls) or (bool(text) and not text.isspace())
        reason = choice.get("finish_reason")
        if reason:
            calls = (*calls, *self._finished(str(reason), choice))
        else:
            reason = None
        if text or thinking or calls or usage or reason:
            self._begun = True
            return [ModelChunk(text, thinking, calls, usage, cast("str | None", reason))]
        return []

    def _chosen(self, choices: object) -> Mapping[str, object] | None:
        """The choice to read: of several answers at once only the first one seen."""
        if not isinstance(choices, list):
            return None
        for choice in cast("list[object]", choices):
            if isinstance(choice, dict):
                found = cast("dict[str, object]", choice)
                index = found.get("index", 0)
                if self._choice is None:
                    self._choice = index
                if index == self._choice:
                    return found
        return None

    def _said(self, choice: Mapping[str, object]) -> tuple[str, str, tuple[CallDelta, ...]]:
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return self._whole(choice.get("message"))
        delta = cast("dict[str, object]", delta)
        text = delta.get("content")
        if len(delta) == 1 and isinstance(text, str):  # nearly every chunk
            return text, "", ()
        return self._delta(delta)

    def _whole(self, message: object) -> tuple[str, str, tuple[CallDelta, ...]]:
        """Read an answer that was not streamed; one that only repeats what was streamed is left out."""
        if self._begun or not isinstance(message, dict):
            return "", "", ()
        self.done = True
        return self._delta(cast("dict[str, object]", message), whole=True)

    def _delta(self, delta: Mapping[str, object], *, whole: bool = False) -> tuple[str, str, tuple[CallDelta, ...]]:
        text, inner = _texts(delta.get("content"))
        refusal = delta.get("refusal")
        if isinstance(refusal, str):
            text += refusal  # what the model says when it declines is its answer
        # Some servers send the thinking under both names.
        thinking = delta.get("reasoning_content") or delta.get("reasoning")
        entries = delta.get("tool_calls")
        calls = self._calls.feed(entries, whole=whole) if entries else ()
        self._state.take(delta)
        return text, thinking if isinstance(thinking, str) else inner, calls

    def _finished(self, reason: str, choice: Mapping[str, object]) -> tuple[CallDelta, ...]:
        if reason == "error":
            raise stream_failure(choice.get("error") or dict(choice), hide=self._hide)
        calls = self._calls.flush()
        # A full window after visible text or a call is no error: the answer was cut, as by its output limit.
        if not calls and not self._visible and (failure := finish_failure(reason)):
            raise failure
        self.finish_reason = reason
        return calls


def _texts(content: object) -> tuple[str, str]:
    """The text and the thinking of a content that may be a list of parts."""
    if content is None or isinstance(content, str):
        return content or "", ""
    text, thinking = "", ""
    for part in cast("list[object]", content) if isinstance(content, list) else [content]:
        if isinstance(part, str):
            text += part
        elif isinstance(part, dict):
            fields = cast("dict[str, object]", part)
            said = fields.get("text") or fields.get("refusal")
            if isinstance(said, str):
                text += said
            elif fields.get("type") == "thinking":
                thinking += "".join(_texts(fields.get("thinking")))
    return text, thinking


def _usage(usage: object) -> ChatUsage | None:
    if not isinstance(usage, dict):
        return None
    counts = cast("dict[str, object]", usage)
    details = counts.get("prompt_tokens_details")
    cached = cast("dict[str, object]", details).get("cached_tokens") if isinstance(details, dict) else None
    found = ChatUsage(
        input_tokens=_count(counts.get("prompt_tokens")),
        output_tokens=_count(counts.get("completion_tokens")),
        cached_tokens=_count(cached) or _count(counts.get("prompt_cache_hit_tokens")),
    )
    return found if found.total_tokens else None


def _count(value: object) -> int:
    return max(0, int(value)) if isinstance(value, int | float) and math.isfinite(value) else 0
