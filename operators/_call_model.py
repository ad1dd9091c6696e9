"""`call_model`: the request goes out, and the chunks that come back are events before they are a reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from reactivex import Observable, abc
from reactivex.disposable import CompositeDisposable, Disposable, SingleAssignmentDisposable

from agentscope_rx.attempts import attempts
from agentscope_rx.bridge import from_aiter
from agentscope_rx.context.layout import lay_out
from agentscope_rx.errors import ProviderError
from agentscope_rx.events import Custom
from agentscope_rx.lifting import Operator, effect_operator
from agentscope_rx.logs import logger
from agentscope_rx.messages import GenerateReason, Msg
from agentscope_rx.pipeline import named_timeout
from agentscope_rx.records import ReplyBroken, ReplyRecorded
from agentscope_rx.reply_writer import ReplyWriter
from agentscope_rx.requests import ExecutionConfig, ModelChunk
from agentscope_rx.step import Mode, Step
from agentscope_rx.tokens import MeasuredRatio

#: A provider that counts so much less than was sent has left some of it out, and said nothing.
_TRUNCATED_SHARE: Final = 0.5
_TRUNCATED_TOKENS: Final = 1_000
ChunkOperator: TypeAlias = Callable[[Observable[ModelChunk]], Observable[ModelChunk]]


def call_model(*, execution: ExecutionConfig, chunks: Sequence[ChunkOperator] = ()) -> Operator:
    """Ask the model; its answer becomes events while it arrives, and the step's reply when it is whole.

        --s-----------------|
        call_model
        -------------t------|     t.reply is the answer
        ----h--------(i|)         model
        --S-(bh)-----(ieE)        events: S MODEL_CALL_START, b TEXT_BLOCK_START, e TEXT_BLOCK_END, E MODEL_CALL_END

        --s-----------------|
        call_model     the provider is overloaded
        -----------t--------|     t.reply is the answer
        ---o-------(h|)           model
        --SR-------(bheE)         events: S MODEL_CALL_START, R model_retry, b TEXT_BLOCK_START, e TEXT_BLOCK_END,
                                  E MODEL_CALL_END

        --s-----------------|
        call_model     the answer breaks off
        ---------#
        -----h---o                model
        --S--(bh)(eE)             events: S MODEL_CALL_START, b TEXT_BLOCK_START, e TEXT_BLOCK_END, E MODEL_CALL_END

    Args:
        execution: Time-outs and retry.
        chunks: Rx operators on the stream of the answer's pieces: an idle time-out, a redaction.

    Emits:
        `MODEL_CALL_START`, the blocks and tool calls, `MODEL_CALL_END`; `CUSTOM model_retry` before each further
        attempt; `CUSTOM input_truncated` after an answer whose provider has counted less than half of what was sent.

    Raises:
        ProviderError: The model could not be asked, or failed.
    """

    def stream_of(step: Step) -> Observable[ModelChunk]:
        request, runtime = replace(lay_out(step), connect_timeout=execution.connect_timeout), step.run.runtime
        step.run.note_request(request, step.card.name)

        def on_retry(attempt: int, wait: float, error: ProviderError) -> None:
            step.emit(Custom(name="model_retry", value={"attempt": attempt, "wait": wait, "error": error.kind}))

        source = from_aiter(
            lambda: attempts(
                runtime.outside.model_for(step), request, execution, jitter=runtime.jitter, on_retry=on_retry
            )
        )
        for operator in chunks:
            source = operator(source)
        return source

    @effect_operator
    def call_model(step: Step) -> Observable[Step]:
        def subscribe(
            observer: abc.ObserverBase[Step], scheduler: abc.SchedulerBase | None = None
        ) -> abc.DisposableBase:
            call = _Call(step, observer)
            call.writer.start()
            subscription = SingleAssignmentDisposable()
            leaving = CompositeDisposable(subscription, Disposable(call.abandon))
            subscription.disposable = stream_of(step).subscribe(
                call.writer.take, call.fail, call.finish, scheduler=scheduler
            )
            return leaving

        return Observable(subscribe)

    return call_model


class _Call:
    """One model call, from its first event to its record."""

    def __init__(self, step: Step, observer: abc.ObserverBase[Step]) -> None:
        self.step, self.observer = step, observer
        self.writer = ReplyWriter(step)
        self._clock = step.run.runtime.clock
        self._began = self._clock.monotonic()
        self._over = False

    @property
    def _seconds(self) -> float:
        return self._clock.monotonic() - self._began

    def finish(self) -> None:
        self._over = True
        writer, step = self.writer, self.step
        writer.end(time=self._seconds)
        reply = writer.message()
        self._note_usage(reply)
        if step.mode is Mode.CONCLUDE:
            reply = reply.with_reason(GenerateReason.MAX_ITERATIONS)
        state = step.run.record(ReplyBroken(reply) if writer.empty else ReplyRecorded(reply))
        self.observer.on_next(replace(step, reply=reply, state=state, history=state.context))
        self.observer.on_completed()

    def _note_usage(self, reply: Msg) -> None:
        run = self.step.run
        if reply.usage is None or run.estimated_tokens is None:
            return
        ratios, model = run.runtime.single(MeasuredRatio), self.step.card.name
        reported, estimated = reply.usage.input_tokens, run.estimated_tokens
        expected = int(estimated * (ratios.ratio(model) or 1))
        if 0 < reported < _TRUNCATED_SHARE * expected and expected - reported > _TRUNCATED_TOKENS:
            value = {"model_call_id": self.step.call_id, "estimated_tokens": estimated, "reported_tokens": reported}
            logger().warning("input_truncated", model=model, estimated=estimated, reported=reported)
            self.step.emit(Custom(name="input_truncated", value=value))
        else:
            ratios.note(model, estimated, reported)

    def fail(self, error: Exception) -> None:
        self._over = True
        error = named_timeout(error, "a chunk operator of call_model")
        kind = error.kind if isinstance(error, ProviderError) else "error"
        self.writer.end(time=self._seconds, error={"class": type(error).__name__, "kind": kind})
        self.step.run.answer_begun = self.writer.begun
        if self.writer.begun:
            self.step.run.record(ReplyBroken(self.writer.message()))
        self.observer.on_error(error)

    def abandon(self) -> None:
        """Nobody waits for the answer any more; what the user saw of its text stays in the conversation."""
        if self._over:
            return
        self._over = True
        self.writer.end(time=self._seconds, error={"class": "Interrupted", "kind": "interrupted"})
        if self.writer.begun:
            fragment = self.writer.message()
            self.step.run.record(ReplyBroken(fragment, _visible(fragment)))


def _visible(fragment: Msg) -> Msg | None:
    if not fragment.text.strip():
        return None
    kept = replace(fragment, content=Msg.assistant(fragment.text).content)
    return kept.with_reason(GenerateReason.INTERRUPTED)
