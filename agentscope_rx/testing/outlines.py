"""Events and manifests as lines for people: what happened and what was asked, without ids and moments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final, cast

from agentscope_rx.events import AgentEvent
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.messages import Msg

#: What differs from run to run, whatever happens in it.
_IDENTITY: Final = frozenset({"id", "created_at", "call_reply_id", "execution", "reply_id", "type", "session_id"})
_IDS_IN_VALUES: Final = frozenset({"model_call_id", "run_id", "compaction_id"})
_LONGEST: Final = 200


def outline(events: Iterable[AgentEvent]) -> list[str]:
    """Events as one line each, for comparing what two runs told.

    Args:
        events: The events, as a stream gave them.

    Examples:
        >>> from agentscope_rx.events import TextBlockDelta
        >>> outline([TextBlockDelta(reply_id="r1", block_id="text", delta="Hi.")])
        ["TEXT_BLOCK_DELTA block_id='text' delta='Hi.'"]
    """
    return list(map(_line, events))


def outline_manifest(manifest: ContextManifest) -> list[str]:
    """The account of a request, one line for each item and each change."""
    lines = [
        f"model {manifest.model}, {manifest.estimated_input_tokens} tokens of {manifest.input_limit or 'any number'}"
    ]
    for item in manifest.items:
        by = f", by {item.operator}" if item.operator else ""
        lines.append(f"{item.zone}: {item.id} ({item.kind}, {item.tokens} tokens, {item.digest}{by})")
    lines += [f"change: {_short(change)}" for change in manifest.changes]
    if manifest.failed_in:
        lines.append(f"failed in {manifest.failed_in}: {manifest.error_code}")
    return lines


def _line(event: AgentEvent) -> str:
    kind = str(cast("Any", event).type)
    shown = ((each.name, getattr(event, each.name)) for each in fields(event) if each.name not in _IDENTITY)
    return " ".join([kind, *(f"{name}={_short(value)}" for name, value in shown if value is not None)])


def _short(value: object) -> str:
    match value:
        case Msg():
            return f"{value.role.value}:{value.text!r:.{_LONGEST}}"
        case ContextManifest():
            return f"<manifest of {value.estimated_input_tokens} tokens>"
        case Mapping():
            pairs = cast("Mapping[object, object]", value).items()
            return "{" + ", ".join(f"{k}: {_short(each)}" for k, each in pairs if k not in _IDS_IN_VALUES) + "}"
        case _:
            return f"{value!r:.{_LONGEST}}"
