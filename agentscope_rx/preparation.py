"""The preparation of a request without the request: what would be sent, and why."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from agentscope_rx.call import Call
from agentscope_rx.context.layout import lay_out
from agentscope_rx.draft import RequestDraft
from agentscope_rx.emitter import Emitter
from agentscope_rx.events import AgentEvent, Custom
from agentscope_rx.frozen import frozen
from agentscope_rx.manifest import ContextManifest
from agentscope_rx.pulling import last
from agentscope_rx.requests import ModelRequest
from agentscope_rx.session import StoredSession
from agentscope_rx.state import AgentState
from agentscope_rx.step import Mode, Pressed, Step


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


@frozen
class Earlier:
    """A step of a run, as it began its request.

    Args:
        state: The session's state.
        number: Which step, from 0.
        mode: What it is for.
        correction: As for `Step`.
        max_output: As for `Step`.
        pressed: As for `Step`.
        previous_request: The request before it.
        pressure_level: How near to its limit that was.
    """

    state: AgentState
    number: int
    mode: Mode = Mode.NORMAL
    correction: str = ""
    max_output: int | None = None
    pressed: Pressed | None = None
    previous_request: RequestDraft | None = None
    pressure_level: int = 0

    @classmethod
    def of(cls, step: Step) -> Earlier:
        """A step that is at work."""
        return cls(
            state=step.state,
            number=step.number,
            mode=step.mode,
            correction=step.correction,
            max_output=step.max_output,
            pressed=step.pressed,
            previous_request=step.run.previous_request,
            pressure_level=step.run.pressure_level,
        )


async def prepare(call: Call, *, earlier: Earlier | None = None) -> PreparedRequest:
    """Run the preparation of a call's first step over a copy of its session.

    Args:
        call: What would be called.
        earlier: The step whose request is prepared once more, over its own session. Default None: the first step.
    """
    state = await call.read_state() if earlier is None else earlier.state
    session = StoredSession.beside(state)  # what is recorded here is seen by nobody else
    if earlier is None:
        call.take_in(session)
    identity, manifests = call.identity(), list[ContextManifest]()
    run = call.handle(Emitter(identity, call.options.runtime, partial(_keep_manifest, manifests)), session)
    first = Step(number=0, identity=identity, card=call.card, dry_run=True, run=run)
    if earlier is not None:
        run.previous_request, run.pressure_level = earlier.previous_request, earlier.pressure_level
        first = replace(
            first,
            number=earlier.number,
            mode=earlier.mode,
            correction=earlier.correction,
            max_output=earlier.max_output,
            pressed=earlier.pressed,
        )
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
