"""`begin_request`: the first operator of `prepare`, so that all later ones work on one snapshot."""

from __future__ import annotations

from dataclasses import replace

from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import RetryRefused
from agentscope_rx.events import Custom
from agentscope_rx.lifting import Operator, effect_operator
from agentscope_rx.step import Step


def begin_request() -> Operator:
    """Begin a request: a new id, and a fresh snapshot of the session.

        --s-------|
        begin_request
        --t-------|     t.draft holds the session's conversation and nothing else

        --s--s----|
        begin_request     the same step begins again
        --t--t----|     t has an id of its own
        -----R          events: R request_retry

        --s-------|
        begin_request     the step has run its tools
        --#

    Everything up to `run_tools` hangs on this snapshot, and may for that reason be subscribed again.

    Emits:
        `CUSTOM request_retry`, when the same step begins again and no guard has said why.

    Raises:
        RetryRefused: The step has already run its tools.
    """

    @effect_operator
    def begin_request(step: Step) -> Step:
        run = step.run
        if run.acted == step.number:
            raise RetryRefused(
                f"step {step.number} has already run its tools; a retry behind run_tools would pay for the model "
                'and run the tools again. Put it around the request: pipeline.around("request", ops.retry(2))'
            )
        call_id = run.runtime.ids.new_id("call")
        if run.begins(step.number, call_id) and not run.retry_told:
            failed = run.furthest.call_id if run.furthest is not None else ""
            step.emit(Custom(name="request_retry", value={"failed_call_id": failed}))
        run.retry_told = False
        state = run.state
        return replace(
            step,
            call_id=call_id,
            state=state,
            history=state.context,
            lasting=None,
            compaction=None,
            draft=RequestDraft(conversation=state.context),
            changes=(),
            timings=(),
            reply=None,
        )

    return begin_request
