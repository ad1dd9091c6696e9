"""The preparation of a request without the request: what would be sent, and why."""

from __future__ import annotations

from functools import partial

from agentscope_rx.context.layout import lay_out
from agentscope_rx.events import AgentEvent, Custom
from agentscope_rx.frozen import frozen
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.pulling import last
from agentscope_rx.requests import ModelRequest
from agentscope_rx.run import Call
from agentscope_rx.session import StoredSession
from agentscope_rx.step import Emitter, Step


@frozen
class PreparedRequest:
    """What a call would send first.

    Args:
        manifest: The account of it.
        request: The request; None where it would be refused, or an operator ends the run before it.
        error: Why it would be refused.
    """

    manifest: ContextManifest
    request: ModelRequest | None = None
    error: Exception | None = None


async def prepare(call: Call) -> PreparedRequest:
    """Run the preparation of a call's first step over a copy of its session.

    Args:
        call: What would be called.
    """
    session = StoredSession.beside(await call.read_state())  # what is recorded here is seen by nobody else
    call.take_in(session)
    identity, manifests = call.identity(), list[ContextManifest]()
    run = call.handle(Emitter(identity, call.options.runtime, partial(_keep_manifest, manifests)), session)
    first = Step(number=0, identity=identity, card=call.card, dry_run=True, run=run)
    try:
        step = await last(call.pipeline.group("prepare").attempt(first))
    except Exception as error:
        return PreparedRequest(manifest=manifests[-1], error=error)
    return PreparedRequest(manifest=manifests[-1], request=None if step.finished else lay_out(step))


def _keep_manifest(manifests: list[ContextManifest], event: AgentEvent) -> None:
    """Of the events of a preparation, only the account of it is wanted."""
    manifest = event.value.get("context_manifest") if isinstance(event, Custom) else None
    if isinstance(manifest, ContextManifest):
        manifests.append(manifest)
