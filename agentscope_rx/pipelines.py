"""The default pipelines: read this first. What happens in one reasoning step, from top to bottom."""

from __future__ import annotations

import agentscope_rx.operators as op
from agentscope_rx.context.materials import instruction_blocks
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.errors import InvalidOption
from agentscope_rx.harness_options import HarnessOptions
from agentscope_rx.options import AgentOptions
from agentscope_rx.pipeline import Pipeline


def react_pipeline(options: AgentOptions) -> Pipeline:
    """One reasoning step of a `ReActAgent`: prepare a request, ask the model, run the tools that it calls."""
    prepare = Pipeline.of(
        "prepare",
        op.begin_request(),
        op.assemble_request(sys_prompt=options.sys_prompt, toolkit=options.toolkit, options=options.generate_options),
        op.validate_request(),
        op.commit_history(),
    )
    return _step(prepare, options, policy=None)


def harness_pipeline(options: HarnessOptions) -> Pipeline:
    """One reasoning step of a `HarnessAgent`: the request is filled, kept within its limit, checked and reported."""
    policy = options.context_policy
    prepare = Pipeline.of(
        "prepare",
        op.begin_request(),
        op.load_materials(workspace=options.material),
        op.load_sources(sources=options.sources, concurrent=options.concurrent_sources),
        op.assemble_request(
            sys_prompt=options.sys_prompt,
            toolkit=options.toolkit,
            options=options.generate_options,
            instructions=instruction_blocks(options.instructions),
        ),
        op.evict_optional_blocks(policy=policy, selection=options.selection_policy),
        op.validate_request(policy=policy),
        op.commit_history(),
    )
    return _step(prepare, options, policy=policy)


def _step(prepare: Pipeline, options: AgentOptions, *, policy: ContextPolicy | None) -> Pipeline:
    """The whole step, as the user wants it; the report of `prepare` is about all that they put into and around it."""
    call_model = op.call_model(execution=options.execution, chunks=options.chunk_operators)
    request = Pipeline.of("request", prepare, call_model)
    pipeline = Pipeline.of("step", request, op.run_tools(toolkit=options.toolkit))
    for arrange in options.arrangements:
        pipeline = arrange(pipeline)
        if not isinstance(pipeline, Pipeline):  # type: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption("pipeline", arrange, f"gave {pipeline!r}; it must give a Pipeline")
    return pipeline.guard("prepare", op.report_context(policy=policy), name="report_context").check_complete()
