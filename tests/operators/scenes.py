"""The scenes of the pictures in the docstrings of operators: a real operator, real steps, and what the words mean.

A scene is known by its operator and case, and holds the very words of the picture beside what they mean: whoever
changes either has to look at the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from pydantic import BaseModel

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.compaction import CompactionConfig, PruneConfig, ToolResultEvictionConfig, TruncateArgsConfig
from agentscope_rx.compactions import is_summary
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.context.sources import ContextRequest, ContextSource
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import (
    BadRequest,
    ContextOverflow,
    EditRefused,
    HistoryConflict,
    InvalidToolPairs,
    RetryRefused,
    ServerFailed,
    SourceFailed,
    StepLost,
    StreamFailed,
)
from agentscope_rx.events import Custom
from agentscope_rx.history import History
from agentscope_rx.lifting import StepOperator, effect_operator, history_operator, text_operator, view_operator
from agentscope_rx.messages import Msg, TextBlock, ToolUseBlock
from agentscope_rx.operators import (
    assemble_request,
    attach_files,
    begin_request,
    call_model,
    commit_history,
    evict_optional_blocks,
    fallback,
    load_materials,
    load_sources,
    offer_output,
    offload_to_fit,
    offload_tool_results,
    project_task_state,
    prune_tool_results,
    recover_overflow,
    report_context,
    run_tools,
    settle_output,
    truncate_arguments,
    validate_request,
    without_output_format,
)
from agentscope_rx.permission_context import PermissionContextState, PermissionRule
from agentscope_rx.pipeline import Guard, Pipeline
from agentscope_rx.records import InputAccepted
from agentscope_rx.request_tokens import draft_tokens
from agentscope_rx.requests import ExecutionConfig, GenerateOptions, ModelChunk
from agentscope_rx.state import AgentState
from agentscope_rx.step import ModelCard, Step
from agentscope_rx.tasks import Task, TaskContextState
from agentscope_rx.tasks.projection import TaskProjection
from agentscope_rx.testing import MarbleModel, a_history, a_run, a_step, marbles
from agentscope_rx.testing.marbles import MarbleError
from agentscope_rx.testing.pipeline_marbles import StepLetters
from agentscope_rx.tools import Toolkit, tool
from agentscope_rx.tools.outputs import OutputSpec
from agentscope_rx.workspace import InMemoryWorkspace
from tests.compaction.support import COUNTER, ONCE, asked, calls_of, compaction, step_of, user
from tests.context.test_materials import material
from tests.tasks.test_projection import receipt

WIDE: Final = 100_000


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What a picture is played with.

    Args:
        operator: The operator.
        steps: What the letters of its steps stand for.
        words: What the picture says of them.
        chunks: What letters of the model stand for.
        error: What `#` stands for.
    """

    operator: StepOperator
    steps: StepLetters
    words: str = ""
    chunks: Mapping[str, ModelChunk | Exception] = field(default_factory=dict[str, "ModelChunk | Exception"])
    error: type[Exception] | Exception = MarbleError


#: Each scene is made anew for each time that it is played.
SCENES: Final[dict[tuple[str, str], Callable[[], Scene]]] = {}


def scene(name: str, case: str = "") -> Callable[[Callable[[], Scene]], Callable[[], Scene]]:
    """A scene of an operator, in a case of it."""

    def added(make: Callable[[], Scene]) -> Callable[[], Scene]:
        SCENES[name, case] = make
        return make

    return added


# -- lifting -----------------------------------------------------------------------------------------------------------


def without_references(draft: RequestDraft, step: Step) -> RequestDraft:
    return draft.without((block.id for block in draft.references), reason="too_much")


def another_draft(before: Step, step: Step) -> bool:
    return replace(step, draft=before.draft, changes=(), timings=()) == before and not step.draft.references


@scene("view_operator")
def view_operator_() -> Scene:
    step = with_blocks(2)
    words = "t is s with another draft"
    operator = view_operator(without_references)
    return Scene(operator=operator, steps={"s": step, "t": partial(another_draft, step)}, words=words)


@scene("view_operator", "the function is async")
def view_operator_async() -> Scene:
    async def later(draft: RequestDraft, step: Step) -> RequestDraft:
        await asyncio.sleep(2)
        return without_references(draft, step)

    step = with_blocks(2)
    words = "t is s with another draft"
    return Scene(operator=view_operator(later), steps={"s": step, "t": partial(another_draft, step)}, words=words)


@scene("text_operator")
def text_operator_() -> Scene:
    step = a_step()

    def louder(after: Step) -> bool:
        said = [message.text for message in after.draft.conversation.messages]
        return said == [message.text.upper() for message in step.history.messages] and after.history is step.history

    words = "t is s with other texts in its draft"
    return Scene(operator=text_operator(str.upper), steps={"s": step, "t": louder}, words=words)


@scene("history_operator")
def history_operator_() -> Scene:
    def newest(history: History, step: Step) -> History:
        return History(tuple(history)[-1:])

    def proposed(step: Step) -> bool:
        return len(step.history) == 1 and step.draft.conversation is step.history

    words = "t.history is the proposal, and t.draft shows it"
    step = a_step(history=a_history(8))
    return Scene(operator=history_operator(newest), steps={"s": step, "t": proposed}, words=words)


@scene("history_operator", "the proposal reorders exchanges")
def history_operator_refused() -> Scene:
    operator = history_operator(lambda history, step: History(reversed(tuple(history))))
    return Scene(operator=operator, steps={"s": a_step(history=a_history(8))}, error=EditRefused)


@scene("effect_operator")
def effect_operator_() -> Scene:
    @effect_operator
    async def telling(step: Step) -> Step:
        step.emit(Custom(name="first", value={}))
        await asyncio.sleep(1)
        step.emit(Custom(name="second", value={}))
        await asyncio.sleep(1)
        return replace(step, number=7)

    words = "t is the step that it gave"
    return Scene(operator=telling, steps={"s": a_step(), "t": lambda step: step.number == 7}, words=words)


@scene("effect_operator", "its Observable gives a second step")
def effect_operator_twice() -> Scene:
    operator = effect_operator(lambda step: marbles("-s-s|", {"s": step}))
    return Scene(operator=operator, steps={"s": a_step()}, error=StepLost)


# -- before the request ------------------------------------------------------------------------------------------------


@scene("begin_request")
def begin_request_() -> Scene:
    run = a_run()
    left = RequestDraft(conversation=a_history(8), references=(ContextBlock.reference("old", "of the step before"),))

    def fresh(step: Step) -> bool:
        return step.draft == RequestDraft(conversation=run.state.context) and step.state is run.state

    words = "t.draft holds the session's conversation and nothing else"
    return Scene(operator=begin_request(), steps={"s": a_step(run=run, draft=left), "t": fresh}, words=words)


@scene("begin_request", "the same step begins again")
def begin_request_again() -> Scene:
    ids: set[str] = set()

    def another(step: Step) -> bool:
        known, _ = step.call_id in ids, ids.add(step.call_id)
        return not known

    return Scene(operator=begin_request(), steps={"s": a_step(), "t": another}, words="t has an id of its own")


@scene("begin_request", "the step has run its tools")
def begin_request_acted() -> Scene:
    run = a_run()
    run.acted = 0
    return Scene(operator=begin_request(), steps={"s": a_step(run=run)}, error=RetryRefused)


class SlowFiles(InMemoryWorkspace):
    """Whose first file takes three seconds to be read."""

    asked = 0

    async def read(self, path: Any, *, offset: int = 0, limit: int | None = None) -> Any:
        self.asked += 1
        if self.asked == 1:
            await asyncio.sleep(3)
        return await super().read(path, offset=offset, limit=limit)


@scene("load_materials")
def load_materials_() -> Scene:
    files, reads = SlowFiles({"AGENTS.md": "Rules.", "MEMORY.md": "Tea."}), list[int]()

    def loaded(step: Step) -> bool:
        reads.append(files.asked)
        kinds = {block.kind for block in (*step.draft.system, *step.draft.references)}
        return {"project_rules", "memory"} <= kinds and reads[0] == reads[-1] > 0

    words = "loaded at the first step of a call, used again by the others"
    operator = load_materials(workspace=lambda _: material(files))
    return Scene(operator=operator, steps={"s": a_step(), "t": loaded}, words=words)


def source(name: str) -> ContextSource:
    async def load(request: ContextRequest) -> list[ContextBlock]:
        await asyncio.sleep(3)
        return [ContextBlock.reference(name, f"what {name} says")]

    return ContextSource(name=name, load=load)


def both_sources(step: Step) -> bool:
    return [block.text for block in step.draft.references] == ["what one says", "what two says"]


@scene("load_sources")
def load_sources_() -> Scene:
    operator = load_sources(sources=[source("one"), source("two")])
    return Scene(operator=operator, steps={"s": a_step(), "t": both_sources}, words="t.draft holds their blocks")


@scene("load_sources", "at the same time")
def load_sources_concurrent() -> Scene:
    operator = load_sources(sources=[source("one"), source("two")], concurrent=True)
    return Scene(operator=operator, steps={"s": a_step(), "t": both_sources}, words="t.draft holds their blocks")


@scene("load_sources", "one fails that may not be left out")
def load_sources_failing() -> Scene:
    async def broken(request: ContextRequest) -> list[ContextBlock]:
        await asyncio.sleep(3)
        raise LookupError("no such record")

    operator = load_sources(sources=[ContextSource(name="record", load=broken)])
    return Scene(operator=operator, steps={"s": a_step()}, error=SourceFailed)


def mentioning(text: str) -> Step:
    return a_step(history=a_history().append(replace(Msg.user(text), id="new")))


@scene("attach_files")
def attach_files_() -> Scene:
    files = SlowFiles({"long.txt": "line\n" * 2_000, "wide.txt": "x" * 100_000})
    operator = attach_files(files_of=lambda _: files, permissions=PermissionContextState())

    def attached(step: Step) -> bool:
        assert step.history.last is not None
        said, shown = [b.text for b in step.history.last.messages[0].content if isinstance(b, TextBlock)]
        return said == "Read @long.txt and @gone.txt." and shown.count("line\n") == 1_000

    words = "t.history holds each file that could be read, its first 1,000 lines or 64 KiB"
    return Scene(
        operator=operator, steps={"s": mentioning("Read @long.txt and @gone.txt."), "t": attached}, words=words
    )


@scene("attach_files", "nothing is mentioned")
def attach_files_nothing() -> Scene:
    operator = attach_files(files_of=lambda _: SlowFiles(), permissions=PermissionContextState())
    return Scene(operator=operator, steps={"s": mentioning("Write to ann@example.org.")})


@tool
async def look() -> str:
    """Look."""
    await asyncio.sleep(5)
    return "seen"


@scene("assemble_request")
def assemble_request_() -> Scene:
    async def prompt(_: object) -> str:
        await asyncio.sleep(3)
        return "Be brief."

    options = GenerateOptions(temperature=0.5)

    def whole(step: Step) -> bool:
        draft = step.draft
        prompts = ["Be brief." in block.text for block in draft.system]
        return any(prompts) and [spec.name for spec in draft.tools] == ["look"] and draft.options.temperature == 0.5

    operator = assemble_request(sys_prompt=prompt, toolkit=Toolkit.of(look), options=options)
    words = "t.draft is what the model will read: prompt, tools and options"
    return Scene(operator=operator, steps={"s": a_step(), "t": whole}, words=words)


class Invoice(BaseModel):
    """A form."""

    total: int


FORM: Final = OutputSpec.of(Invoice)
HELD: Final = replace(a_step().card, json_schema=True)


@scene("offer_output")
def offer_output_() -> Scene:
    def wanted(step: Step) -> bool:
        return step.draft.options.response_format is not None

    operator = offer_output(output=FORM)
    return Scene(operator=operator, steps={"s": a_step(card=HELD), "t": wanted}, words="t.draft asks for the form")


# -- what has no room --------------------------------------------------------------------------------------------------


class SlowWrites(InMemoryWorkspace):
    """Whose files take four seconds to be written."""

    async def write(self, path: Any, data: bytes, *, if_match: str | None = None, create_only: bool = False) -> str:
        await asyncio.sleep(4)
        return await super().write(path, data, if_match=if_match, create_only=create_only)


def with_results(count: int, size: int) -> Step:
    return step_of(History.of(user("u"), *calls_of(count, size)))


def results_of(step: Step) -> list[int]:
    """How long its results are, the oldest first."""
    found = (message.tool_result for message in step.history.messages)
    return [len(result.text) for result in found if result is not None]


@scene("offload_tool_results")
def offload_tool_results_() -> Scene:
    operator = offload_tool_results(
        config=ToolResultEvictionConfig(max_result_chars=1_000, preview_chars=20), workspace=SlowWrites()
    )

    def small(step: Step) -> bool:
        return max(results_of(step)) <= 1_000

    words = "no result of t.history is larger than it may be"
    return Scene(operator=operator, steps={"s": with_results(1, 5_000), "t": small}, words=words)


def fits(limit: int, step: Step) -> bool:
    return draft_tokens(step.draft, COUNTER) <= limit


@scene("offload_to_fit")
def offload_to_fit_() -> Scene:
    operator = offload_to_fit(
        config=ToolResultEvictionConfig(preview_chars=20),
        policy=ContextPolicy(max_input_tokens=2_000),
        workspace=SlowWrites(),
    )
    words = "t.draft fits, or no result is left that could move"
    return Scene(operator=operator, steps={"s": with_results(1, 5_000), "t": partial(fits, 2_000)}, words=words)


@scene("offload_to_fit", "all fits")
def offload_to_fit_room() -> Scene:
    operator = offload_to_fit(
        config=ToolResultEvictionConfig(), policy=ContextPolicy(max_input_tokens=WIDE), workspace=SlowWrites()
    )
    return Scene(operator=operator, steps={"s": with_results(1, 5_000)})


def with_blocks(count: int) -> Step:
    history = a_history()
    blocks = tuple(ContextBlock.reference(f"b{at}", "x" * 100) for at in range(count))
    return step_of(history, draft=RequestDraft(conversation=history, references=blocks))


@scene("evict_optional_blocks")
def evict_optional_blocks_() -> Scene:
    operator = evict_optional_blocks(policy=ContextPolicy(max_input_tokens=600))

    def left(step: Step) -> bool:
        return fits(600, step) and 0 < len(step.draft.references) < 9

    words = "t.draft fits, or holds no optional block any more"
    return Scene(operator=operator, steps={"s": with_blocks(9), "t": left}, words=words)


@scene("evict_optional_blocks", "all fits")
def evict_optional_blocks_room() -> Scene:
    operator = evict_optional_blocks(policy=ContextPolicy(max_input_tokens=WIDE))
    return Scene(operator=operator, steps={"s": with_blocks(9)})


@scene("truncate_arguments")
def truncate_arguments_() -> Scene:
    config = TruncateArgsConfig(trigger_messages=2, keep_messages=2, max_arg_length=30)
    step = step_of(History.of(user("u"), *calls_of(3, text="t" * 400)))

    def cut(step: Step) -> bool:
        calls = [call for message in step.history.messages for call in message.tool_calls]
        return [len(str(call.input["text"])) < 400 for call in calls] == [True, True, False]

    words = "t.history holds only short arguments before its newest messages"
    return Scene(operator=truncate_arguments(config=config), steps={"s": step, "t": cut}, words=words)


@scene("prune_tool_results")
def prune_tool_results_() -> Scene:
    config = PruneConfig(protect_tokens=400, min_prune_tokens=1, max_output_chars=40)

    def pruned(step: Step) -> bool:
        return [size < 500 for size in results_of(step)] == [True, True, False]

    words = "t.history holds only short results before its newest ones"
    return Scene(
        operator=prune_tool_results(config=config), steps={"s": with_results(3, 500), "t": pruned}, words=words
    )


COMPACT: Final = CompactionConfig(trigger_messages=6, keep_tokens=0, keep_messages=2, prune=None)
LONG: Final = History.of(user("u0", "the task"), *calls_of(4, 500), user("u1", "the wish"), *a_history(4).messages)


def long_step() -> Step:
    return step_of(LONG, card=ModelCard.of(MarbleModel(context_window=WIDE), COUNTER))


@scene("compact_history")
def compact_history_() -> Scene:
    def compacted(step: Step) -> bool:
        first, *rest = step.history.messages
        return is_summary(first) and "notes" in first.text and rest == list(LONG.messages)[-len(rest) :]

    words = "t.history is [summary][what the user said last][the newest messages]"
    chunks = {"n": ModelChunk(text="notes")}
    operator = compaction(config=COMPACT)
    return Scene(operator=operator, steps={"s": long_step(), "t": compacted}, words=words, chunks=chunks)


def not_compacted(step: Step) -> bool:
    return step.history is step.run.state.context


@scene("compact_history", "there is room for all")
def compact_history_room() -> Scene:
    operator = compaction(config=CompactionConfig())
    return Scene(operator=operator, steps={"s": long_step(), "t": not_compacted}, words="t.history is s.history")


@scene("compact_history", "the summary is empty")
def compact_history_empty() -> Scene:
    operator = compaction(config=COMPACT)
    return Scene(operator=operator, steps={"s": long_step(), "t": not_compacted}, words="t.history is s.history")


# -- the last of preparation -------------------------------------------------------------------------------------------


@scene("project_task_state")
def project_task_state_() -> Scene:
    older = TaskContextState(tasks=(Task(subject="reproduce"),), revision=1)
    newest = TaskContextState(tasks=(Task(subject="reproduce"), Task(subject="verify")), revision=2)
    projection = TaskProjection()
    history = a_history().append(*receipt("c1", older)).append(*receipt("c2", newest))
    draft = projection.onto(RequestDraft(conversation=history), newest)
    run = a_run(history)
    state = AgentState(session_id="session", context=history, tasks_context=newest)

    def once(step: Step) -> bool:
        said = [message.text for message in step.draft.conversation.messages]
        results = [message.tool_result.text for message in step.draft.conversation.messages if message.tool_result]
        shown = [
            text for text in (*said, *results, *(block.text for block in step.draft.transient)) if "verify" in text
        ]
        return len(shown) == 1 and len(results[-2].splitlines()) == 1

    words = "t.draft shows the newest to-do list in the conversation or behind it, and no older one"
    step = a_step(run=run, history=history, state=state, draft=draft)
    return Scene(operator=project_task_state(tasks=projection), steps={"s": step, "t": once}, words=words)


@scene("validate_request")
def validate_request_() -> Scene:
    return Scene(operator=validate_request(), steps={"s": a_step()})


@scene("validate_request", "a tool call is open")
def validate_request_open() -> Scene:
    step = a_step(history=History.of(user("u"), asked("a", "c")))
    return Scene(operator=validate_request(), steps={"s": step}, error=InvalidToolPairs)


def shorter() -> Step:
    run = a_run(a_history(8))
    return a_step(run=run, history=History(tuple(run.state.context)[2:]))


@scene("commit_history")
def commit_history_() -> Scene:
    step = shorter()

    def committed(after: Step) -> bool:
        return after.state is step.run.state and after.state.context == after.history == step.history

    words = "t.state.context is t.history"
    return Scene(operator=commit_history(), steps={"s": step, "t": committed}, words=words)


@scene("commit_history", "the session has changed meanwhile")
def commit_history_conflict() -> Scene:
    step = shorter()
    step.run.record(InputAccepted((replace(Msg.user("Stop."), id="later"),)))
    return Scene(operator=commit_history(), steps={"s": step}, error=HistoryConflict)


# -- model and tools ---------------------------------------------------------------------------------------------------

MODEL: Final = ExecutionConfig(initial_backoff=8.0, max_backoff=8.0, max_attempts=2)


def says(text: str) -> Callable[[Step], bool]:
    return lambda step: step.reply is not None and step.reply.text == text


@scene("call_model")
def call_model_() -> Scene:
    operator = call_model(execution=MODEL)
    return Scene(operator=operator, steps={"s": a_step(), "t": says("hi")}, words="t.reply is the answer")


@scene("call_model", "the provider is overloaded")
def call_model_retry() -> Scene:
    return Scene(
        operator=call_model(execution=MODEL),
        steps={"s": a_step(), "t": says("h")},
        words="t.reply is the answer",
        chunks={"o": ServerFailed("overloaded", status=503)},
    )


@scene("call_model", "the answer breaks off")
def call_model_broken() -> Scene:
    return Scene(
        operator=call_model(execution=MODEL),
        steps={"s": a_step()},
        chunks={"o": StreamFailed("connection reset")},
        error=StreamFailed,
    )


def calling(*blocks: ToolUseBlock) -> Step:
    reply = replace(Msg.assistant(*blocks), id="reply")
    return a_step(run=a_run(a_history().append(reply)), reply=reply)


@scene("run_tools")
def run_tools_() -> Scene:
    def results(step: Step) -> bool:
        newest = step.state.context.last
        return newest is not None and [m.tool_result.id for m in newest.messages if m.tool_result] == ["c1"]

    operator = run_tools(toolkit=Toolkit.of(look))
    step = calling(ToolUseBlock(id="c1", name="look"))
    words = "t.state holds one result per call, in call order"
    return Scene(operator=operator, steps={"s": step, "t": results}, words=words)


@scene("run_tools", "a call waits for a person")
def run_tools_asking() -> Scene:
    permissions = PermissionContextState().with_rules([PermissionRule.ask("look")])
    operator = run_tools(toolkit=Toolkit.of(look), permissions=permissions)

    def waiting(step: Step) -> bool:
        return step.finished is not None and not any(message.tool_result for message in new_messages(step))

    words = "t is finished, and no call has run"
    return Scene(operator=operator, steps={"s": calling(ToolUseBlock(id="c1", name="look")), "t": waiting}, words=words)


def new_messages(step: Step) -> tuple[Msg, ...]:
    newest = step.run.state.context.last
    return () if newest is None else tuple(newest.messages)


def answering(text: str) -> Step:
    reply = replace(Msg.assistant(text), id="reply")
    return a_step(run=a_run(a_history().append(replace(Msg.user("How much?"), id="asked")).append(reply)), reply=reply)


@scene("settle_output")
def settle_output_() -> Scene:
    def settled(step: Step) -> bool:
        return step.finished is not None and step.reply is not None and step.reply.output(Invoice) == Invoice(total=7)

    operator = settle_output(output=FORM)
    return Scene(operator=operator, steps={"s": answering('{"total": 7}'), "t": settled}, words="t is finished")


@scene("settle_output", "the answer has another form")
def settle_output_wrong() -> Scene:
    def corrected(step: Step) -> bool:
        return step.finished is None and "total" in step.correction

    words = "t.correction says what was wrong"
    operator = settle_output(output=FORM)
    return Scene(operator=operator, steps={"s": answering('{"sum": 7}'), "t": corrected}, words=words)


# -- guards ------------------------------------------------------------------------------------------------------------


def guarded(guard: Guard, *operators: StepOperator) -> StepOperator:
    return Pipeline.of("request", *operators).guard("request", guard)


@scene("report_context")
def report_context_() -> Scene:
    @effect_operator
    async def preparing(step: Step) -> Step:
        await asyncio.sleep(2)
        return replace(step, number=7)

    operator = guarded(report_context(policy=None), preparing)
    words = "t is what preparation gave"
    return Scene(operator=operator, steps={"s": a_step(), "t": lambda step: step.number == 7}, words=words)


@scene("report_context", "preparation fails")
def report_context_failing() -> Scene:
    @effect_operator
    async def failing(step: Step) -> Step:
        await asyncio.sleep(2)
        raise LookupError("no such record")

    operator = guarded(report_context(policy=None), failing)
    return Scene(operator=operator, steps={"s": a_step()}, error=LookupError("no such record"))


TOO_LONG: Final = ContextOverflow("maximum context length is 900 tokens", status=400)
TOO_LONG.limit = 900


def recovering() -> StepOperator:
    guard = recover_overflow(policy=ContextPolicy(max_input_tokens=1_000))
    return guarded(guard, begin_request(), call_model(execution=ONCE))


@scene("recover_overflow")
def recover_overflow_() -> Scene:
    def pressed(step: Step) -> bool:
        return step.pressed is not None and 0 < (step.pressed.learned or 0) < 900

    words = "t.pressed says how many tokens it may have"
    chunks = {"o": TOO_LONG}
    return Scene(operator=recovering(), steps={"s": a_step(), "t": pressed}, words=words, chunks=chunks)


@scene("recover_overflow", "the second one is refused too")
def recover_overflow_again() -> Scene:
    return Scene(operator=recovering(), steps={"s": a_step()}, chunks={"o": TOO_LONG}, error=TOO_LONG)


@scene("fallback")
def fallback_() -> Scene:
    other = ModelCard.of(MarbleModel("-------(h|)", name="other"), own=False)
    operator = guarded(fallback(card=other), begin_request(), call_model(execution=ONCE))

    def stood_in(step: Step) -> bool:
        return step.card is other and says("h")(step)

    return Scene(
        operator=operator,
        steps={"s": a_step(), "t": stood_in},
        words="t.reply is the other model's",
        chunks={"o": ServerFailed("overloaded", status=503)},
    )


@scene("fallback", "the answer has begun")
def fallback_begun() -> Scene:
    other = ModelCard.of(MarbleModel(name="other"), own=False)
    operator = guarded(fallback(card=other), begin_request(), call_model(execution=ONCE))
    broken = StreamFailed("connection reset")
    return Scene(operator=operator, steps={"s": a_step()}, chunks={"o": broken}, error=broken)


@scene("without_output_format")
def without_output_format_() -> Scene:
    operator = guarded(
        without_output_format(output=FORM), begin_request(), offer_output(output=FORM), call_model(execution=ONCE)
    )

    def in_words(step: Step) -> bool:
        kinds = [block.kind for block in step.draft.transient]
        return step.draft.options.response_format is None and kinds == ["output_reminder"]

    return Scene(
        operator=operator,
        steps={"s": a_step(card=HELD), "t": in_words},
        words="t.draft asks for the form in words",
        chunks={"o": BadRequest("unsupported response_format", status=400)},
    )
