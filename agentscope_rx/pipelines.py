"""The default pipelines: read this first. What happens in one reasoning step, from top to bottom."""

from __future__ import annotations

from collections.abc import Iterator

import agentscope_rx.operators as op
from agentscope_rx.context.materials import instruction_blocks
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.errors import InvalidOption
from agentscope_rx.harness_options import HarnessOptions
from agentscope_rx.lifting import Operator
from agentscope_rx.options import AgentOptions
from agentscope_rx.pipeline import Pipeline


def react_pipeline(options: AgentOptions) -> Pipeline:
    """One reasoning step of a `ReActAgent`: prepare a request, ask the model, run the tools that it calls."""
    prepare = Pipeline.of(
        "prepare",
        op.begin_request(),
        op.assemble_request(
            sys_prompt=options.sys_prompt,
            toolkit=options.all_tools,
            options=options.generate_options,
            instructions=options.guidance,
            tasks=options.tasks,
            plan_mode=options.planning,
        ),
        *_output_form(options),
        *_task_state(options),
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
        *_mentioned_files(options),
        op.assemble_request(
            sys_prompt=options.sys_prompt,
            toolkit=options.all_tools,
            options=options.generate_options,
            instructions=(*options.guidance, *instruction_blocks(options.instructions)),
            tasks=options.tasks,
            plan_mode=options.planning,
        ),
        *_output_form(options),
        *_oversized_results(options),
        op.evict_optional_blocks(policy=policy, selection=options.selection_policy),
        *_shortening(options),
        *_task_state(options),
        op.validate_request(policy=policy),
        op.commit_history(),
    )
    return _step(prepare, options, policy=policy)


def _mentioned_files(options: HarnessOptions) -> Iterator[Operator]:
    """The files that a user names in what they say."""
    if options.at_path_expansion:
        files = options.agent_files
        yield op.attach_files(files_of=files.of, roots=files.roots, permissions=options.permissions)


def _oversized_results(options: HarnessOptions) -> Iterator[Operator]:
    """What is done for each result that is too large, whether there is room for it or not."""
    if options.tool_result_eviction is not None:
        yield op.offload_tool_results(config=options.tool_result_eviction, workspace=options.files)


def _shortening(options: HarnessOptions) -> Iterator[Operator]:
    """What is done so that the conversation has room, the lightest first."""
    policy, eviction, compaction = options.context_policy, options.tool_result_eviction, options.compaction
    if compaction is not None:
        if compaction.truncate_args is not None:
            yield op.truncate_arguments(config=compaction.truncate_args)
        if compaction.prune is not None:
            yield op.prune_tool_results(config=compaction.prune)
        yield op.compact_history(
            config=compaction,
            policy=policy,
            summariser=options.summariser(compaction),
            can_offload=eviction is not None,
            memory=options.memory_keeper if compaction.flush_before_compact else None,
        )
    if eviction is not None:
        yield op.offload_to_fit(config=eviction, policy=policy, workspace=options.files)


def _output_form(options: AgentOptions) -> Iterator[Operator]:
    """The form of the answer, in calls that want one."""
    if options.output is not None:
        yield op.offer_output(output=options.output)


def _end_with_output(options: AgentOptions) -> Iterator[Operator]:
    """The end of calls that want an answer of a form."""
    if options.output is not None:
        yield op.settle_output(output=options.output)


def _task_state(options: AgentOptions) -> Iterator[Operator]:
    """The task once more, when it is settled what of it the conversation still shows."""
    if options.tasks is not None:
        yield op.project_task_state(tasks=options.tasks)


def _step(prepare: Pipeline, options: AgentOptions, *, policy: ContextPolicy | None) -> Pipeline:
    """The whole step, as the user wants it; the report of `prepare` is about all that they put into and around it."""
    call_model = op.call_model(execution=options.execution, chunks=options.chunk_operators)
    request = Pipeline.of("request", prepare, call_model)
    if options.output is not None:
        request = request.guard(
            "request", op.without_output_format(output=options.output), name="without_output_format"
        )
    if isinstance(options, HarnessOptions) and options.compaction is not None:
        request = request.guard("request", op.recover_overflow(policy=options.context_policy), name="recover_overflow")
    if (card := options.fallback_card) is not None:
        request = request.guard("request", op.fallback(card=card), name="fallback")
    run_tools = op.run_tools(
        toolkit=options.all_tools,
        plan_mode=options.planning,
        permissions=options.permissions,
        stop_on_reject=options.stop_on_reject,
    )
    pipeline = Pipeline.of("step", request, run_tools, *_end_with_output(options))
    for arrange in options.arrangements:
        pipeline = arrange(pipeline)
        if not isinstance(pipeline, Pipeline):  # type: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption("pipeline", arrange, f"gave {pipeline!r}; it must give a Pipeline")
    return pipeline.guard("prepare", op.report_context(policy=policy), name="report_context").check_complete()
