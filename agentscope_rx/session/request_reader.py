"""Requests as they were, made again from the records of a log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from agentscope_rx.digests import DIGESTS, digest_of
from agentscope_rx.errors import InvalidToolPairs, LogUnreadable
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History
from agentscope_rx.messages import Msg, message_adapter
from agentscope_rx.records.asked import Part, RequestPrepared
from agentscope_rx.requests import GenerateOptions, ModelRequest, ToolSpec
from agentscope_rx.session.codecs import codec_for
from agentscope_rx.session.log_record import LogRecord
from agentscope_rx.state import AgentState


@frozen
class LoggedRequest:
    """A request that went to a model, as it was.

    Args:
        seq: The number of its record.
        occurred_at: When it was made, in milliseconds since 1970 in UTC.
        run_id: The run.
        turn_id: The turn.
        model: The model's name.
        step: Which reasoning step of the run it is of, from 0; None = of none, or nobody said.
        request: The request, without `additional_headers` and `additional_query`, and without what is secret in
            `additional_body` by its name: a log holds no keys.
        manifest: Its account, as `ContextManifest.for_log` gives it; None = nobody gave one.
    """

    seq: int
    occurred_at: int
    run_id: str
    turn_id: str
    model: str
    step: int | None = None
    request: ModelRequest
    manifest: Mapping[str, Any] | None = None


class RequestReader:
    """Makes requests again while it goes through a log: each record is taken with the state before it."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._last: ModelRequest | None = None

    def take(self, record: LogRecord, state: AgentState) -> LoggedRequest | None:
        """One more record; gives the request that it is of, if it is of one.

        Raises:
            LogUnreadable: The request cannot be made again as it was.
        """
        codec = codec_for(record.type)
        if codec is None or codec.record is not RequestPrepared:
            return None
        asked = cast("RequestPrepared", codec.read(record.version, record.payload, state))
        self._values.update(asked.values)
        try:
            request = self._made(asked, state.context)
        except (ValidationError, KeyError, TypeError, InvalidToolPairs) as error:
            raise LogUnreadable(_unlike(record, f"({type(error).__name__})")) from None
        if digest_of(request.conversation.measure(DIGESTS).encode()) != asked.digest:
            raise LogUnreadable(_unlike(record, "(its conversation is another one)"))
        if request.purpose == "reasoning":
            self._last = request
        return LoggedRequest(
            seq=record.seq,
            occurred_at=record.occurred_at,
            run_id=record.run_id,
            turn_id=record.turn_id,
            model=asked.model,
            step=asked.step,
            request=request,
            manifest=asked.manifest,
        )

    def _made(self, asked: RequestPrepared, history: History) -> ModelRequest:
        last = self._last if asked.since else ModelRequest(call_id="")
        if last is None or last.call_id != asked.since:
            raise KeyError(asked.since)
        tools, tail = asked.tools, asked.tail
        return ModelRequest(
            call_id=asked.call_id,
            purpose=asked.purpose,
            system=last.system if asked.system is None else self._value(asked.system),
            conversation=last.conversation.extended(self._exchanges(asked, history)),
            tail=last.tail if tail is None else tuple(map(self._message, tail)),
            tools=last.tools if tools is None else tuple(map(self._tool, tools)),
            options=last.options if asked.options is None else GenerateOptions(**self._value(asked.options)),
        )

    def _exchanges(self, asked: RequestPrepared, history: History) -> Iterator[Exchange]:
        for piece in asked.conversation:
            if "shown" in piece:
                yield Exchange(*map(self._message, piece["shown"]))
            else:
                yield from _part_of(history, piece["from"], piece["count"])

    def _value(self, part: Part) -> Any:
        return self._values[part["hash"]] if "hash" in part else part["value"]

    def _message(self, part: Part) -> Msg:
        return message_adapter().validate_python(self._value(part))

    def _tool(self, part: Part) -> ToolSpec:
        return _tool_adapter().validate_python(self._value(part))


def _part_of(history: History, begin: str, count: int) -> Sequence[Exchange]:
    """So many exchanges of a history from one on, which is looked for from the end."""
    end = len(history)
    for leaf in reversed(history.leaves):
        end -= len(leaf.exchanges)
        for at, exchange in enumerate(leaf.exchanges, end):
            if exchange.id == begin:
                found = tuple(islice(history.after(at), count))
                if len(found) == count:
                    return found
    raise KeyError(begin)


def _unlike(record: LogRecord, why: str) -> str:
    return f"the request of record {record.seq} cannot be made again as it was {why}"


@cache
def _tool_adapter() -> TypeAdapter[ToolSpec]:
    return TypeAdapter(ToolSpec)
