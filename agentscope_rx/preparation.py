"""The preparation of a request without the request: what would be sent, and why."""

from __future__ import annotations

from dataclasses import dataclass

from agentscope_rx.context.layout import lay_out
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.events import AgentEvent
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.operators import furthest, manifest_of
from agentscope_rx.pulling import last
from agentscope_rx.requests import ModelRequest
from agentscope_rx.run import Call
from agentscope_rx.step import Emitter, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedRequest:
    """What a call would send first.

    Args:
        manifest: The account of it.
        request: The request; None where it would be refused.
        error: Why it would be refused.
    """

    manifest: ContextManifest
    request: ModelRequest | None = None
    error: Exception | None = None


async def prepare(call: Call, *, policy: ContextPolicy | None) -> PreparedRequest:
    """Run the preparation of a call's first step over a copy of its session.

    Args:
        call: What would be called.
        policy: The limits; None = there are none.
    """
    session = await call.open_session()  # never saved: what is recorded here is seen by nobody else
    call.take_in(session)
    identity = call.identity()
    run = call.handle(Emitter(identity, call.options.runtime, _to_nobody), session)
    first = Step(number=0, identity=identity, card=call.card, dry_run=True, run=run)
    try:
        step = await last(call.pipeline.group("prepare").attempt(first))
    except Exception as error:
        return PreparedRequest(manifest=manifest_of(furthest(first), policy, error), error=error)
    return PreparedRequest(manifest=manifest_of(step, policy), request=lay_out(step))


def _to_nobody(_: AgentEvent) -> None:
    """Where the events of a preparation go."""
