"""A clock around the preparation of requests, for the benchmarks beside it."""

from __future__ import annotations

import time

from reactivex import Observable

from agentscope_rx import Pipeline
from agentscope_rx.lifting import Attempt
from agentscope_rx.operators import effect_operator
from agentscope_rx.step import Step


def clocked(default: Pipeline, seconds: list[float]) -> Pipeline:
    """The pipeline with a clock that starts with each request and stops before the model is called.

    Args:
        default: The pipeline.
        seconds: Gets the CPU time of each preparation.
    """
    began = 0.0

    def clock(attempt: Attempt) -> Attempt:
        def start(step: Step) -> Observable[Step]:
            nonlocal began
            began = time.process_time()
            return attempt(step)

        return start

    @effect_operator
    def stop_the_clock(step: Step) -> Step:
        seconds.append(time.process_time() - began)
        return step

    return default.guard("request", clock).insert_before("call_model", stop_the_clock)
