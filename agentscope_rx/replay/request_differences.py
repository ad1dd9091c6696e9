"""In what two requests differ, item by item, and who made it so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import cast

from agentscope_rx.differences import Difference
from agentscope_rx.replay.requests import ZONES, Item, RequestItems
from agentscope_rx.wire import to_json


def differences_between(
    before: RequestItems,
    after: RequestItems,
    *,
    old: Callable[[str, Item], object],
    new: Callable[[str, Item], object],
) -> tuple[Difference, ...]:
    """In what two requests differ.

    Args:
        before: The older one.
        after: The newer one.
        old: Looks an item of the older one up, by zone.
        new: Looks an item of the newer one up.
    """
    found: list[Difference] = []
    for name in ("purpose", "model"):
        a, b = str(getattr(before, name)), str(getattr(after, name))
        if a != b:
            asker = after.asker if before.purpose == "reasoning" else before.asker
            found.append(Difference(zone="request", item=name, kind="changed", before=a, after=b, operator=asker))
    for zone in ZONES:
        found += _zone_differences(zone, before, after, old, new)
    found += _option_differences(before.options, after.options)
    if not found and before.layout != after.layout:
        found.append(Difference(zone="layout", item="texts around the items", kind="changed"))
    return tuple(found)


def _zone_differences(
    zone: str,
    before: RequestItems,
    after: RequestItems,
    old: Callable[[str, Item], object],
    new: Callable[[str, Item], object],
) -> Iterator[Difference]:
    first, second = dict(before.zones[zone]), dict(after.zones[zone])
    for id, digest in first.items():
        operator = after.operators.get(id, before.operators.get(id, ""))
        if id not in second:
            text = shown(old(zone, (id, digest)))
            yield Difference(zone=zone, item=id, kind="removed", operator=operator, before=text)
        elif second[id] != digest:
            texts = {"before": shown(old(zone, (id, digest))), "after": shown(new(zone, (id, second[id])))}
            yield Difference(zone=zone, item=id, kind="changed", operator=operator, **texts)
    for id, digest in second.items():
        if id not in first:
            text = shown(new(zone, (id, digest)))
            yield Difference(zone=zone, item=id, kind="added", operator=after.operators.get(id, ""), after=text)
    kept, stays = [id for id in first if id in second], [id for id in second if id in first]
    for id in (b for a, b in zip(kept, stays, strict=True) if a != b):
        yield Difference(zone=zone, item=id, kind="moved", operator=after.operators.get(id, ""))


def _option_differences(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[Difference]:
    for name in sorted(before.keys() | after.keys()):
        a, b = before.get(name), after.get(name)
        if a != b:
            texts = {"before": to_json(a).decode(), "after": to_json(b).decode()}
            yield Difference(zone="options", item=name, kind="changed", operator="assemble_request", **texts)


def shown(value: object) -> str:
    """An item as a text of several lines."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, object]", value)
        if isinstance(fields.get("text"), str):
            return str(fields["text"])
        return "\n".join(f"{name}: {shown(each)}" for name, each in fields.items() if each not in (None, "", {}, []))
    if isinstance(value, list):
        return "\n".join(map(shown, cast("list[object]", value)))
    return value if isinstance(value, str) else to_json(value).decode()
