"""`assemble_request`: what the application says goes into the draft; the conversation is there already."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.draft import RequestDraft
from agentscope_rx.lifting import Operator, view_operator
from agentscope_rx.requests import GenerateOptions
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.step import Mode, Step
from agentscope_rx.tasks import PlanModeConfig
from agentscope_rx.tasks.plan_mode import mode_rules, plan_state
from agentscope_rx.tasks.projection import TaskProjection
from agentscope_rx.tools import Toolkit

SystemPrompt: TypeAlias = str | Callable[[RuntimeContext], str | Awaitable[str]]

_PROMPT: Final = "system_prompt"
_ASK_AGAIN: Final = ContextBlock(
    id="harness:empty_response",
    kind="empty_response",
    required=True,
    text="Your last reply was empty. Answer the user, or call a tool.",
)
_CONCLUDE: Final = ContextBlock(
    id="harness:conclude",
    kind="conclude",
    required=True,
    text=(
        "The limit of steps for this task is reached and no tool can be called any more. Say briefly what was "
        "done, what was found, and what is left to do."
    ),
)


def assemble_request(
    *,
    sys_prompt: SystemPrompt,
    toolkit: Toolkit,
    options: GenerateOptions,
    instructions: Sequence[ContextBlock] = (),
    tasks: TaskProjection | None = None,
    plan_mode: PlanModeConfig | None = None,
) -> Operator:
    """Put the system prompt, the instructions, the task, the tools and the options into the draft.

        --s-------|
        assemble_request
        -----t----|     t.draft is what the model will read: prompt, tools and options

    Args:
        sys_prompt: The prompt, or a function that makes it, called once a call.
        toolkit: The tools; those of switched-off groups are left out.
        options: How the model is to answer.
        instructions: Trusted rules of the application.
        tasks: Shows the session's task. Here it is shown whole, so that there is room for all of it whatever becomes
            of the conversation; `project_task_state` leaves out what that still shows. None = it is not shown.
        plan_mode: How a session plans; that it does is shown from its state. Default: as `PlanModeConfig()` has it.
    """

    planning = plan_mode or PlanModeConfig()

    def assembled(draft: RequestDraft, step: Step, prompt: str) -> RequestDraft:
        block = ContextBlock(id=_PROMPT, kind="system_input", text=prompt, required=True)
        concluding = step.mode is Mode.CONCLUDE
        plan = step.state.plan_mode_context
        rules, state = mode_rules(plan, planning), plan_state(plan)
        draft = replace(
            draft,
            system=(*((block,) if prompt.strip() else ()), *draft.system, *instructions, *((rules,) if rules else ())),
            tools=() if concluding else toolkit.specs(step.state.tool_context.activated_groups),
            options=options if step.max_output is None else options.with_output_limit(step.max_output),
        )
        if state is not None:
            draft = draft.add_transient(state)
        if tasks is not None:
            draft = tasks.onto(draft, step.state.tasks_context)
        if concluding:
            return draft.add_transient(_CONCLUDE)
        return draft.add_transient(_ASK_AGAIN) if step.mode is Mode.ASK_AGAIN else draft

    async def with_function(draft: RequestDraft, step: Step) -> RequestDraft:
        materials = step.run.materials
        if _PROMPT not in materials:
            materials[_PROMPT] = await _text_of(sys_prompt, step.run.context)
        return assembled(draft, step, str(materials[_PROMPT]))

    @view_operator
    def assemble_request(draft: RequestDraft, step: Step) -> RequestDraft | Awaitable[RequestDraft]:
        return assembled(draft, step, sys_prompt) if isinstance(sys_prompt, str) else with_function(draft, step)

    return assemble_request


async def _text_of(sys_prompt: SystemPrompt, context: RuntimeContext) -> str:
    if isinstance(sys_prompt, str):
        return sys_prompt
    made = sys_prompt(context)
    return await made if inspect.isawaitable(made) else made
