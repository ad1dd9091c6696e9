"""`what_if`: a request of the past, prepared once more under other settings, and what that changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from agentscope_rx.builder import AgentBuilder
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.errors import InvalidOption
from agentscope_rx.harness_builder import HarnessBuilder
from agentscope_rx.options import Arrangement
from agentscope_rx.portal import PORTAL, refuse_running_loop
from agentscope_rx.replay.logged_steps import logged_step
from agentscope_rx.replay.reading import Recording
from agentscope_rx.replay.what_if_outcome import WhatIf
from agentscope_rx.replay.what_if_recording import RecordedStep
from agentscope_rx.replay.what_if_session import compare
from agentscope_rx.session import SessionLog
from agentscope_rx.testing.virtual_loop import run_virtual

BuilderT = TypeVar("BuilderT", bound=AgentBuilder[Any, Any])


def what_if(
    past: str | Path | SessionLog,
    builder: BuilderT,
    *,
    step: int | str,
    run: int = 0,
    policy: ContextPolicy | None = None,
    pipeline: Arrangement | None = None,
    change: Callable[[BuilderT], AgentBuilder[Any, Any]] | None = None,
) -> WhatIf:
    """Prepare a request of the past once more under other settings; no model is called.

    A recording is replayed up to the request. From the log of a session the request is made again: the history and the
    state that it saw, and the blocks of sources and workspace that it shows. What the log does not hold, such as a
    block that was left out, is told in the `notes`; the log of an agent that a `SessionRecorder` watches holds it.

    Args:
        past: A recording, or the log of a session: `agent.session_log(ctx)`.
        builder: The agent of that time.
        step: Which reasoning step of the run, from 0; or in a log the id of a model call, as its events and its
            manifest have it.
        run: Which run, from 0, or from the end, from -1. Default: the first.
        policy: Another `ContextPolicy`. Default: the agent's.
        pipeline: Another arrangement of the pipeline. Default: the agent's.
        change: Any other change of the builder. Default: none.

    Raises:
        InvalidOption: There is no such run or step, or the agent has no policy.
        ReplayMismatch: The agent is not the one of that time; the error names the items in which it differs.
        RunningLoopError: This thread runs an event loop; call it by `asyncio.to_thread(what_if, ...)`.

    Examples:
        >>> print(what_if("fix.jsonl", builder, step=7, policy=ContextPolicy(max_input_tokens=8_000)))
        step 7: 11,204 -> 7,950 tokens
        limit: 62,764 -> 8,000 tokens
        ...
        >>> log = agent.session_log(ctx)
        >>> print(what_if(log, builder, step=7, run=-1, pipeline=lambda p: p.remove("prune_tool_results")))
        step 7: 11,204 -> 19,820 tokens
        ...
    """
    refuse_running_loop()
    other = _changed(builder, policy, pipeline, change)
    if isinstance(past, SessionLog):
        logged = PORTAL.call(lambda: logged_step(past, run, step))
        return run_virtual(lambda: compare(logged, builder, other))
    recorded = _recorded_step(Recording.read(past), run, step)
    return run_virtual(lambda: recorded.compare(builder, other))


def _changed(
    builder: BuilderT,
    policy: ContextPolicy | None,
    pipeline: Arrangement | None,
    change: Callable[[BuilderT], AgentBuilder[Any, Any]] | None,
) -> AgentBuilder[Any, Any]:
    other: AgentBuilder[Any, Any] = builder if change is None else change(builder)
    if policy is not None:
        if not isinstance(other, HarnessBuilder):
            raise InvalidOption("policy", policy, "is for a HarnessAgent")
        other = other.context_policy(policy)
    return other if pipeline is None else other.pipeline(pipeline)


def _recorded_step(recording: Recording, run: int, step: int | str) -> RecordedStep:
    count = len(recording.calls)
    if not -count <= run < count:
        raise InvalidOption("run", run, f"the recording has {count} runs, counted from 0")
    run %= count
    steps = {asked.items.step for asked in recording.calls[run].asked if asked.items.purpose == "reasoning"}
    if not isinstance(step, int) or step not in steps:
        raise InvalidOption("step", step, f"run {run} has requests of the steps 0 to {max(steps, default=-1)}")
    return RecordedStep(recording, run, step)
