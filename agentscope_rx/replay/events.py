"""Events as a recording holds them: without what all of a run have, and their text once, at the end of its block."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, cast

from agentscope_rx.events import AgentEvent
from agentscope_rx.replay.redaction import Redaction
from agentscope_rx.wire import from_json

_OF_THE_RUN: Final = ("callReplyId", "execution")
_DELTA: Final = "_DELTA"
_END: Final = "_END"
_TEXT: Final = "_TEXT"  # the pieces of a result are `TOOL_RESULT_TEXT_DELTA`, its end is `TOOL_RESULT_END`
_DIGEST: Final = re.compile(r"[0-9a-f]{12}(?:[0-9a-f]{4})?")
_BLOCK: Final = ("blockId", "toolCallId")


class EventLines:
    """Writes the events of one run as plain data.

    The pieces of a text tell when they came; what they said together stands at the end of the block, so that no
    secret is hidden in several of them.

    Args:
        redaction: What is left out.
        deltas: Whether the pieces are told at all; else only what they said together.
    """

    def __init__(self, redaction: Redaction, *, deltas: bool = True) -> None:
        self._redaction, self._deltas = redaction, deltas
        self._texts: dict[tuple[str, str], list[str]] = {}

    def data(self, event: AgentEvent) -> Mapping[str, object] | None:
        """An event as plain data; None where it is not told."""
        fields = cast("dict[str, object]", from_json(event.to_json()))
        for name in _OF_THE_RUN:
            fields.pop(name, None)
        type = str(fields["type"])
        block = (type.removesuffix(_DELTA).removesuffix(_END).removesuffix(_TEXT), _block_of(fields))
        if type.endswith(_DELTA) and isinstance(fields.get("delta"), str):
            self._texts.setdefault(block, []).append(str(fields.pop("delta")))
            if not self._deltas:
                return None
        elif type.endswith(_END) and (pieces := self._texts.pop(block, None)) is not None:
            fields["text"] = "".join(pieces)
        return cast("Mapping[str, object]", self._redaction.data(fields))


def without_figures(value: object) -> object:
    """An event without numbers and digests, which are others where a secret was removed."""
    if isinstance(value, Mapping):
        return {name: without_figures(each) for name, each in cast("Mapping[str, object]", value).items()}
    if isinstance(value, list):
        return [without_figures(each) for each in cast("list[object]", value)]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return value
    return "" if isinstance(value, str) and _DIGEST.fullmatch(value) else value if isinstance(value, str) else 0


def _block_of(fields: Mapping[str, object]) -> str:
    return "/".join(str(fields[name]) for name in ("replyId", *_BLOCK) if name in fields)
