"""Events as a recording holds them: without what all of a run have, and their text once, at the end of its block."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, cast

from agentscope_rx.events import AgentEvent
from agentscope_rx.replay.redaction import Redaction
from agentscope_rx.wire import from_json

_OF_THE_RUN: Final = ("callReplyId", "execution")
_DELTA: Final = "_DELTA"
_BLOCK: Final = ("blockId", "toolCallId")


class EventLines:
    """Writes the events of one run as plain data.

    The pieces of a text tell when they came; what they said together stands at the end of the block, so that no
    secret is hidden in several of them.

    Args:
        redaction: What is left out.
    """

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._texts: dict[tuple[str, str], list[str]] = {}

    def data(self, event: AgentEvent) -> Mapping[str, object]:
        """An event as plain data."""
        fields = cast("dict[str, object]", from_json(event.to_json()))
        for name in _OF_THE_RUN:
            fields.pop(name, None)
        type = str(fields["type"])
        key = (type.partition("_DELTA")[0].rpartition("_END")[0] or type.partition("_DELTA")[0], _block_of(fields))
        if type.endswith(_DELTA) and isinstance(fields.get("delta"), str):
            self._texts.setdefault(_stage(key), []).append(str(fields.pop("delta")))
        elif type.endswith("_END") and (pieces := self._texts.pop(_stage(key), None)) is not None:
            fields["text"] = "".join(pieces)
        return cast("Mapping[str, object]", self._redaction.data(fields))


def _block_of(fields: Mapping[str, object]) -> str:
    return "/".join(str(fields[name]) for name in ("replyId", *_BLOCK) if name in fields)


def _stage(key: tuple[str, str]) -> tuple[str, str]:
    """`TOOL_RESULT_TEXT` and `TOOL_RESULT` are one block."""
    return key[0].removesuffix("_TEXT") if key[0].startswith("TOOL_RESULT") else key[0], key[1]
