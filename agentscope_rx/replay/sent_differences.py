"""In what a request that was prepared again differs from the one that a log tells of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from agentscope_rx.differences import Difference
from agentscope_rx.digests import message_digest
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.messages import Msg
from agentscope_rx.replay.codecs import message_data
from agentscope_rx.replay.logged_steps import LoggedStep
from agentscope_rx.replay.request_differences import shown
from agentscope_rx.replay.requests import operators_of
from agentscope_rx.replay.sent_blocks import sent_block
from agentscope_rx.wire import to_json


def differences_from_sent(step: LoggedStep, manifest: ContextManifest) -> tuple[Difference, ...]:
    """In what a request differs from the one that was sent, item by item; by hashes, zone by zone.

    Args:
        step: The one that was sent.
        manifest: The account of the other one.
    """
    sent, now = step.account["prefix"]["zones"], manifest.prefix.zones
    return tuple(each for zone in now if sent[zone] != now[zone] for each in _in_zone(zone, step, manifest))


def _in_zone(zone: str, step: LoggedStep, manifest: ContextManifest) -> Iterator[Difference]:
    before, after = _sent(zone, step), _prepared(zone, manifest)
    operators = dict(operators_of(manifest.changes))
    gone_from = {item["sourceId"]: item["operator"] for item in step.items}
    found = False
    for id in {**before, **after}:
        old, new = before.get(id), after.get(id)
        if old is not None and new is not None and old[0] == new[0]:
            continue
        found = True
        yield Difference(
            zone=zone,
            item=id,
            kind="added" if old is None else "removed" if new is None else "changed",
            operator=operators.get(id) or gone_from.get(id, ""),
            before="" if old is None else old[1],
            after="" if new is None else new[1],
        )
    if not found:
        yield Difference(zone=zone, item="its items", kind="moved")


def _sent(zone: str, step: LoggedStep) -> Mapping[str, tuple[str, str]]:
    """Hash and text of the items of a request that was sent."""
    request = step.asked.request
    if zone == "conversation":
        return {message.id: (message_digest(message), _text(message)) for message in request.conversation.messages}
    texts = {tool.name: to_json(tool).decode() for tool in request.tools} if zone == "tools" else {}
    items: dict[str, tuple[str, str]] = {}
    for item in step.items:
        if item["placement"] == zone and item["sourceType"] != "framing":
            block = None if zone == "tools" else sent_block(request, item)
            text = texts.get(item["sourceId"], "") if block is None else block.text
            items[item["sourceId"]] = item["contentHash"], text
    return items


def _prepared(zone: str, manifest: ContextManifest) -> Mapping[str, tuple[str, str]]:
    """Hash and text of the items of a request that was prepared."""
    draft = manifest.draft
    texts = {message.id: _text(message) for message in draft.conversation.messages}
    texts |= {tool.name: to_json(tool).decode() for tool in draft.tools}
    texts |= {block.id: block.text for block in (*draft.system, *draft.transient, *draft.references)}
    items = (item for item in manifest.items if item.zone == zone and item.kind != "framing")
    return {item.id: (item.digest, texts.get(item.id, "")) for item in items}


def _text(message: Msg) -> str:
    return shown(message_data(message))
