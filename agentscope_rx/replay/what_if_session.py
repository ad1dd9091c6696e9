"""A step of a session, out of its log, prepared once more under other settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.builder import AgentBuilder
from agentscope_rx.context.materials import Materials
from agentscope_rx.context.sources import Loaded
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import ReplayMismatch
from agentscope_rx.preparation import Earlier, PreparedRequest, prepare
from agentscope_rx.replay.clocks import RunClock
from agentscope_rx.replay.codecs import reached_from
from agentscope_rx.replay.driving import offline
from agentscope_rx.replay.given import SOURCE, Given
from agentscope_rx.replay.logged_steps import LoggedStep
from agentscope_rx.replay.sent_blocks import sent_block
from agentscope_rx.replay.sent_differences import differences_from_sent
from agentscope_rx.replay.what_if_outcome import WhatIf
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.state import AgentState
from agentscope_rx.step import Mode

_MATERIALS: Final = "materials"
_MATERIALS_BY: Final = "load_materials"
_SOURCES_BY: Final = "load_sources"
_WORKSPACE: Final = "workspace:"
_BLOCKS: Final = ("transient", "references")
_NOTHING: Final[Mapping[str, Any]] = {"blocks": [], "failure": None}
_WATCHED: Final = "only the log of an agent that SessionRecorder().watch(builder) watches holds it"
_MODES: Final = {"conclude": Mode.CONCLUDE, "empty_response": Mode.ASK_AGAIN}


async def compare(step: LoggedStep, builder: AgentBuilder[Any, Any], other: AgentBuilder[Any, Any]) -> WhatIf:
    """Prepare a request again, as it was and as it would have been.

    Args:
        step: The step.
        builder: The agent of that time.
        other: The one with other settings.

    Raises:
        ReplayMismatch: With the agent the request is not the one that was sent.
    """
    reached, notes = _reached(step), list[str]()
    previous = await _previous(step, builder, notes)
    then = Given(reached, ask=False)
    before = await _prepared(step, builder, step.sent, then, previous)
    _check(step, before)
    silent = {name: reached_from(name, _NOTHING) for name in then.unknown if name.startswith(SOURCE)}
    now = Given({**silent, **reached})
    after = await _prepared(step, other, step.found, now, previous)
    notes += _notes(step, before, reached)
    notes += (f"{name} was asked now: the log does not hold it" for name in now.unknown)
    manifest = replace(before.manifest, call_id=step.asked.request.call_id)
    return WhatIf(step=step.number, before=manifest, after=after.manifest, error=after.error, notes=tuple(notes))


async def _prepared(
    step: LoggedStep,
    builder: AgentBuilder[Any, Any],
    state: AgentState,
    given: Given,
    previous: RequestDraft | None,
) -> PreparedRequest:
    """The request of a step, by some agent, from a state."""
    context = RuntimeContext(user_id=step.user_id, session_id=step.session_id)
    moment = datetime.fromtimestamp(step.asked.occurred_at / 1_000, UTC)
    async with offline(builder, None).build() as agent:
        call = agent.prepared_call(None, context)
        runtime = call.options.runtime.seen_through(clock=RunClock(moment, 0.0), outside=given)
        earlier = Earlier(
            state=state,
            number=step.number,
            mode=next((_MODES[each["sourceType"]] for each in step.items if each["sourceType"] in _MODES), Mode.NORMAL),
            previous_request=previous,
            pressure_level=0 if previous is None or step.previous is None else step.previous.account["pressureLevel"],
        )
        return await prepare(call.through(runtime), earlier=earlier)


async def _previous(step: LoggedStep, builder: AgentBuilder[Any, Any], notes: list[str]) -> RequestDraft | None:
    """The request before it, with which it was compared when it was sent; None where it was not compared with any."""
    if step.previous is None or not step.account["prefix"]["tokens"]:
        return None
    prepared = await _prepared(
        step.previous, builder, step.previous.sent, Given(_reached(step.previous), ask=False), None
    )
    if differences_from_sent(step.previous, prepared.manifest):
        notes.append("the request before it cannot be made again: what both begin with is not counted")
        return None
    return prepared.manifest.draft


def _check(step: LoggedStep, prepared: PreparedRequest) -> None:
    """Refuse an agent that would have sent something else."""
    found = differences_from_sent(step, prepared.manifest)
    if not found and prepared.error is None:
        return
    what = f"with this agent the request of step {step.number} is not the one that session {step.session_id!r} sent"
    why = [] if prepared.error is None else [str(prepared.error)]
    raise ReplayMismatch("\n".join([what, *why, *map(str, found)]), step=step.number, differences=found)


# -- what sources and workspace gave ------------------------------------------------------------------------


def _reached(step: LoggedStep) -> Mapping[str, object]:
    """What they gave, by name: out of the request, and where the agent was watched with what the request left out."""
    sent = {item["sourceId"]: (item, sent_block(step.asked.request, item)) for item in step.items}
    shown: dict[str, ContextBlock] = {}
    material: dict[str, list[ContextBlock]] = {"system": [], "transient": [], "references": []}
    sources: dict[str, list[ContextBlock]] = {}
    for id, (item, block) in sent.items():
        if block is None or item["operator"] not in (_MATERIALS_BY, _SOURCES_BY):
            continue
        shown[id] = block
        if item["operator"] == _MATERIALS_BY:
            material[item["placement"]].append(block)
        else:
            sources.setdefault("/".join(id.split("/")[:2]), []).append(block)
    if step.reached is not None:
        return {name: _as_shown(reached_from(name, line["value"]), shown) for name, line in step.reached.items()}
    known: dict[str, object] = {
        _MATERIALS: Materials(
            system=tuple(material["system"]),
            references=tuple(material["references"]),
            runtime=tuple(material["transient"]),
        )
    }
    for name, blocks in sources.items():
        loaded = reached_from(name, _NOTHING)
        assert isinstance(loaded, Loaded)
        known[name] = replace(loaded, blocks=tuple(blocks))
    return known


def _as_shown(value: object, shown: Mapping[str, ContextBlock]) -> object:
    """What was taken down, in the words of the request: those of a log that is watched are without secrets."""

    def each(blocks: tuple[ContextBlock, ...]) -> tuple[ContextBlock, ...]:
        return tuple(shown.get(block.id, block) for block in blocks)

    if isinstance(value, Loaded):
        return replace(value, blocks=each(value.blocks))
    if isinstance(value, Materials):
        parts = {name: each(getattr(value, name)) for name in ("system", "references", "runtime")}
        return replace(value, **parts)
    return value


def _notes(step: LoggedStep, before: PreparedRequest, reached: Mapping[str, object]) -> Iterator[str]:
    """What cannot be known, and what this agent reckons otherwise."""
    account, manifest = step.account, before.manifest
    if step.again:
        yield "an earlier request of this step had failed; this one is prepared as if it were the first"
    if manifest.input_limit != account["inputLimit"]:
        yield f"the limit was {account['inputLimit']} tokens then; with this agent it is {manifest.input_limit}"
    elif manifest.estimated_input_tokens != account["estimatedInputTokens"]:
        yield f"the request was counted as {account['estimatedInputTokens']:,} tokens then"
    if step.reached is not None:
        return
    gone = (each for each in account["changes"] if each["action"] == "dropped" and each["zone"] in _BLOCKS)
    for change in gone:
        id = change["sourceId"]
        if id.startswith((SOURCE, _WORKSPACE)) and change["operator"] not in (_MATERIALS_BY, _SOURCES_BY):
            yield f"{id} was left out then, and its text is not known: {_WATCHED}"
