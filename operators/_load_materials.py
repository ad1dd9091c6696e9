"""`load_materials`: what the workspace holds for requests, read at the first step of a call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final

from agentscope_rx.context.materials import Materials, WorkspaceMaterial
from agentscope_rx.lifting import Operator, effect_operator
from agentscope_rx.step import Step
from agentscope_rx.stores import SessionKey

_MATERIALS: Final = "workspace"


def load_materials(*, workspace: Callable[[SessionKey], WorkspaceMaterial] | None) -> Operator:
    """Put the workspace's material into the draft: rules, guidance, environment, memory, knowledge, files.

        --s-----s-|
        load_materials
        -----t--t-|     loaded at the first step of a call, used again by the others

    Args:
        workspace: Where from, for each session; None = there is none.

    A file that an agent changes in the middle of a call is seen by the next call. What could not be read
    or was cut stands among the changes.
    """

    async def loading(step: Step) -> Step:
        run = step.run
        if step.card.counter is not None:
            await step.card.counter.ready()
        run.materials[_ready(step)] = True
        if workspace is not None and _MATERIALS not in run.materials:
            who = step.identity
            key = SessionKey(agent_id=who.agent_id, user_id=who.user_id, session_id=who.session_id)
            load = partial(workspace(key).load, today=run.runtime.clock.now(), session_id=who.session_id)
            run.materials[_MATERIALS] = await run.runtime.outside.reach("materials", load)
        return _filled(step)

    @effect_operator
    def load_materials(step: Step) -> Step | Awaitable[Step]:
        return _filled(step) if _ready(step) in step.run.materials else loading(step)

    return load_materials


def _ready(step: Step) -> str:
    """What says that everything is loaded that this model's requests need."""
    return f"ready for {step.card.name}"


def _filled(step: Step) -> Step:
    loaded, draft = step.run.materials.get(_MATERIALS), step.draft
    if not isinstance(loaded, Materials):
        return step
    draft = replace(draft, system=(*draft.system, *loaded.system))
    if step.purpose != "reasoning":
        return replace(step, draft=draft)
    draft = replace(
        draft,
        references=(*draft.references, *loaded.references),
        transient=(*draft.transient, *loaded.runtime),
    )
    return replace(step, draft=draft, changes=(*step.changes, *loaded.changes))
