from __future__ import annotations

from dataclasses import replace
from typing import Final, cast

from agentscope_rx.context.materials import Materials, WorkspaceMaterial
from agentscope_rx.lifting import Operator, effect_operator
from agentscope_rx.step import Step

_MATERIALS: Final = "workspace"


def load_materials(*, workspace: WorkspaceMaterial | None) -> Operator:
    """Put the workspace's material into the draft: rules, guidance, environment, memory, knowledge, files.

        --s-------|
        load_materials
        --t-------|     loaded at the first step of a call, used again by the others

    Args:
        workspace: Where from; None = there is none.

    A file that an agent changes in the middle of a call is seen by the next call (facts F.4).
    """

    @effect_operator
    async def load_materials(step: Step) -> Step:
        if step.card.counter is not None:
            await step.card.counter.ready()
        if workspace is None:
            return step
        run = step.run
        if _MATERIALS not in run.materials:
            run.materials[_MATERIALS] = await workspace.load(
                today=run.runtime.clock.now(), session_id=step.identity.session_id
            )
        loaded, draft = cast(Materials, run.materials[_MATERIALS]), step.draft
        if step.purpose != "reasoning":
            return replace(step, draft=replace(draft, system=(*draft.system, *loaded.system)))
        draft = replace(
            draft,
            system=(*draft.system, *loaded.system),
            references=(*draft.references, *loaded.references),
            transient=(*draft.transient, *loaded.runtime),
        )
        return replace(step, draft=draft)

    return load_materials
