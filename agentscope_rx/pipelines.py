"""The default pipeline: read this first. What happens in one reasoning step, from top to bottom."""

from __future__ import annotations

import agentscope_rx.operators as op
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
    request = Pipeline.of(
        "request", prepare, op.call_model(execution=options.execution, chunks=options.chunk_operators)
    )
    return arranged(Pipeline.of("step", request, op.run_tools(toolkit=options.toolkit)), options)


def arranged(pipeline: Pipeline, options: AgentOptions) -> Pipeline:
    """The pipeline as the user wants it.

    Raises:
        PipelineError: What came out lacks an operator that no step can do without.
    """
    for arrange in options.arrangements:
        pipeline = arrange(pipeline)
    return pipeline.check_complete()
