"""Builders: immutable, so that one can be configured at start-up and shared by everybody."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Generic, Self, TypedDict, cast

import reactivex
from reactivex import Observable
from reactivex import operators as ops
from typing_extensions import TypeVar

from agentscope_rx.agent import NOBODY, Agent, checked_answers
from agentscope_rx.bridge import from_coroutine
from agentscope_rx.errors import InvalidOption, PathRefused
from agentscope_rx.event_stream import EventStream, Reply, reply_of
from agentscope_rx.events import AgentEvent
from agentscope_rx.interactions import Answer, PendingCall
from agentscope_rx.messages import Msg
from agentscope_rx.operators import ChunkOperator, SystemPrompt
from agentscope_rx.options import AgentOptions, Arrangement, SessionKeys, mode_of
from agentscope_rx.permission_context import PermissionMode, PermissionRule, WorkingDirectory
from agentscope_rx.pulling import Stream
from agentscope_rx.requests import ExecutionConfig, GenerateOptions, Model, Purpose
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session import ConflictPolicy, UncertainCalls, messages_of
from agentscope_rx.stores import StateStore
from agentscope_rx.stores.keys import check_identifier
from agentscope_rx.tools import Tool, Toolkit
from agentscope_rx.tools.outputs import OutputSpec, OutputType
from agentscope_rx.witness import Witness
from agentscope_rx.workspace.paths import resolve_path

AgentT = TypeVar("AgentT", bound=Agent[Any])
OptionsT = TypeVar("OptionsT", bound=AgentOptions, default=AgentOptions)
T = TypeVar("T")


class BuilderKeywords(TypedDict, total=False):
    """The options of a builder as keywords; each is also a method, which says what it means."""

    name: str
    agent_id: str
    model: Model | str
    fallback_model: Model | str
    sys_prompt: SystemPrompt
    tools: Iterable[Tool | Callable[..., Any]]
    toolkit: Toolkit
    enable_task_list: bool
    max_iters: int
    generate_options: GenerateOptions
    execution: ExecutionConfig
    chunk_operators: Iterable[ChunkOperator]
    pipeline: Arrangement
    state_store: StateStore
    session_key: SessionKeys
    conflict_policy: ConflictPolicy
    state_only: bool
    log_requests: bool
    lease_seconds: float
    uncertain_calls: UncertainCalls
    default_session_id: str
    wait_timeout: float
    permission_mode: PermissionMode | str
    permission_rules: Iterable[PermissionRule]
    working_directories: Iterable[str]
    stop_on_reject: bool
    record_events: bool
    runtime: Runtime


class AgentBuilder(Generic[AgentT, OptionsT]):
    """Configures an agent. Every method returns a new builder; nothing that was built changes.

    A wrong value is refused by the method that gets it, with an `InvalidOption` that names option, value and rule.

    Args:
        make: Makes the agent.
        options: The choices so far.
    """

    keywords: ClassVar[type] = BuilderKeywords

    def __init__(self, make: Callable[[OptionsT], AgentT], options: OptionsT) -> None:
        self._make, self._options = make, options

    def _with(self, **changes: Any) -> Self:
        return type(self)(self._make, replace(self._options, **changes))

    def configured(self, keywords: BuilderKeywords) -> Self:
        """The builder with several options at once."""
        builder = self
        known = self.keywords.__annotations__
        given = cast("dict[str, object]", keywords)
        for option in sorted(given, key=lambda each: each != "toolkit"):  # `tools` adds to it
            value = given[option]
            if option not in known:
                raise InvalidOption(option, value, f"no such option; there are {', '.join(sorted(known))}")
            setter = getattr(type(self), option)
            builder = cast("Self", setter(builder, value))
        return builder

    # -- options --------------------------------------------------------------------------------------------

    def name(self, name: str) -> Self:
        """The agent's name: shown in events, and its id and default session where none is given."""
        check_is("name", name, str, "a text")
        return self._with(name=check_identifier("name", name))

    def agent_id(self, agent_id: str) -> Self:
        """A stable id, where the name may change."""
        check_is("agent_id", agent_id, str, "a text")
        return self._with(agent_id=check_identifier("agent_id", agent_id))

    def model(self, model: Model | str) -> Self:
        """The model, or `provider:model` (`openai:gpt-5-mini`, `dashscope:qwen-plus`, `ollama:llama3.2`, ...).

        Raises:
            UnknownProvider: No provider of this name is known.
            MissingApiKey: The provider's key is not in the environment.
        """
        return self._with(model=resolved("model", model))

    def fallback_model(self, model: Model | str) -> Self:
        """A model that is asked when the agent's own fails before its answer begins; errors as for `model`.

        It is kept for the rest of the call. Its requests are prepared for its own window.
        """
        return self._with(fallback_model=resolved("fallback_model", model))

    def sys_prompt(self, sys_prompt: SystemPrompt) -> Self:
        """The system prompt, or a function of the context that makes it, called once a call."""
        if not isinstance(sys_prompt, str) and not callable(sys_prompt):  # type: ignore[reportUnnecessaryComparison]
            raise InvalidOption("sys_prompt", sys_prompt, "a text, or a function of the context that gives one")
        return self._with(sys_prompt=sys_prompt)

    def tools(self, tools: Iterable[Tool | Callable[..., Any]]) -> Self:
        """Add tools: decorated functions, plain ones, or anything that is a `Tool`."""
        check_is("tools", tools, Iterable, "a list of tools")
        return self._with(toolkit=self._options.toolkit.add(*tools))

    def toolkit(self, toolkit: Toolkit) -> Self:
        """The tools with their groups and presets, in the place of all that were added before."""
        check_is("toolkit", toolkit, Toolkit, "a Toolkit")
        return self._with(toolkit=toolkit)

    def enable_task_list(self, enabled: bool = True) -> Self:
        """Give the model a to-do list, `todo_write`, which it sees as long as the session lasts; off by default."""
        check_is("enable_task_list", enabled, bool, "True or False")
        return self._with(task_list=enabled)

    def max_iters(self, max_iters: int) -> Self:
        """How many reasoning steps a call may take; 10 by default."""
        check_is("max_iters", max_iters, int, "a whole number")
        at_least("max_iters", max_iters, 1)
        return self._with(max_iters=max_iters)

    def generate_options(self, options: GenerateOptions) -> Self:
        """How the model is to answer."""
        check_is("generate_options", options, GenerateOptions, "GenerateOptions(...)")
        return self._with(generate_options=options)

    def execution(self, config: ExecutionConfig) -> Self:
        """Time-outs and retry of model calls."""
        check_is("execution", config, ExecutionConfig, "an ExecutionConfig(...)")
        return self._with(execution=config)

    def chunk_operators(self, operators: Iterable[ChunkOperator]) -> Self:
        """Rx operators on the stream of the model's pieces, after those that were added before."""
        check_is("chunk_operators", operators, Iterable, "a list of Rx operators")
        added = tuple(operators)
        for each in added:
            if not callable(each):
                raise InvalidOption("chunk_operators", each, "an Rx operator")
        return self._with(chunk_operators=(*self._options.chunk_operators, *added))

    def pipeline(self, arrange: Arrangement) -> Self:
        """Change the pipeline: a function that gets the default and gives another; several are applied in order.

        Examples:
            builder.pipeline(lambda default: default.insert_before("validate_request", redact_emails))
        """
        if not callable(arrange):
            raise InvalidOption("pipeline", arrange, "a function that gets a Pipeline and gives one")
        return self._with(arrangements=(*self._options.arrangements, arrange))

    def state_store(self, store: StateStore) -> Self:
        """Where the states of sessions are kept; in memory by default."""
        if not callable(getattr(store, "get", None)) or not callable(getattr(store, "put", None)):
            raise InvalidOption("state_store", store, "a StateStore, such as JsonFileStore(folder)")
        if type(store).__hash__ is None:  # type: ignore[reportUnnecessaryComparison]
            raise InvalidOption("state_store", store, "must be hashable: equal stores keep the same states")
        return self._with(state_store=store)

    def state_only(self, only: bool = True) -> Self:
        """Whether only the states of sessions are kept, saved at the end of each call, and no logs.

        `HarnessAgent` keeps logs by default, `ReActAgent` does not.
        """
        check_is("state_only", only, bool, "True or False")
        return self._with(state_only=only)

    def log_requests(self, keep: bool = True) -> Self:
        """Whether logs keep what models were asked, each request by what is new in it; they do by default.

        `session_log(context).requests()` then makes the requests again as they were.
        """
        check_is("log_requests", keep, bool, "True or False")
        return self._with(log_requests=keep)

    def session_key(self, key_of: SessionKeys) -> Self:
        """Under which keys sessions are kept: a function of a context, which names its session, and an agent's id.

        Without it a key is made of agent, user and session as they are. It must give the same key for the same
        context. What tells tenants apart belongs into the user: the files of large results and the tools that look
        at other sessions of the caller go by that.

        Examples:
            >>> from agentscope_rx import ReActAgent, RuntimeContext
            >>> from agentscope_rx.stores import SessionKey
            >>> from agentscope_rx.testing import ScriptedModel
            >>> def by_tenant(context: RuntimeContext, agent_id: str) -> SessionKey:
            ...     user = f"{context.attributes['tenant']:d}/{context.user_id or ''}"  # a number holds no slash
            ...     return SessionKey(agent_id=agent_id, user_id=user, session_id=context.session_id or "")
            >>> agent = ReActAgent.builder(name="a", model=ScriptedModel(["Hi."]), session_key=by_tenant).build()
            >>> alice = RuntimeContext(user_id="alice", session_id="s1", attributes={"tenant": 7})
            >>> agent.call("Hello.", alice).run().text
            'Hi.'
            >>> agent.options.key_of(alice).user_id
            '7/alice'
        """
        if not callable(key_of):
            raise InvalidOption("session_key", key_of, "a function of a RuntimeContext and an agent id")
        return self._with(session_key=key_of)

    def conflict_policy(self, policy: ConflictPolicy) -> Self:
        """What becomes of a state whose session another process has saved meanwhile, where there is no log: `fail`
        (the default), `overwrite` what they saved, or `append_merge`: add what was said here behind it."""
        if policy not in tuple(ConflictPolicy):
            raise InvalidOption("conflict_policy", policy, f"one of {', '.join(ConflictPolicy)}")
        return self._with(conflict_policy=ConflictPolicy(policy))

    def lease_seconds(self, seconds: float) -> Self:
        """After how long another process may go on with a session whose process has died; 30 by default."""
        at_least("lease_seconds", seconds, 0)
        if not seconds:
            raise InvalidOption("lease_seconds", seconds, "must be above 0")
        return self._with(lease_seconds=seconds)

    def uncertain_calls(self, what: UncertainCalls) -> Self:
        """What becomes of tool calls that ran when their process died: `tell` the model (the default), or `refuse`
        runs until `reconcile` says what became of them."""
        if what not in tuple(UncertainCalls):
            raise InvalidOption("uncertain_calls", what, f"one of {', '.join(UncertainCalls)}")
        return self._with(uncertain_calls=UncertainCalls(what))

    def default_session_id(self, session_id: str) -> Self:
        """The session of calls that name none; the agent's name by default."""
        check_is("default_session_id", session_id, str, "a text")
        return self._with(default_session_id=check_identifier("default_session_id", session_id))

    def wait_timeout(self, seconds: float) -> Self:
        """How long a call waits for its session's turn; 300 by default, 0 = not at all."""
        at_least("wait_timeout", seconds, 0)
        return self._with(wait_timeout=seconds)

    def permission_mode(self, mode: PermissionMode | str) -> Self:
        """What becomes of tool calls that no rule speaks of, in sessions that were put into no other mode.

        `default` asks as soon as there are rules, `accept_edits` allows reading, and edits inside the working
        directories, `explore` allows reading only, `bypass` allows, `dont_ask` denies what would have to be asked.

        Raises:
            InvalidOption: There is no such mode.
        """
        changed = self._options.permissions.with_mode(mode_of("permission_mode", mode))
        return self._with(permissions=changed)

    def permission_rules(self, rules: Iterable[PermissionRule]) -> Self:
        """Add rules that hold for all sessions: `PermissionRule.deny("read_file", "secrets/**")`, `.ask`, `.allow`.

        Raises:
            InvalidOption: Something is no rule.
        """
        check_is("permission_rules", rules, Iterable, "a list of rules")
        added = tuple(rules)
        for each in added:
            check_is(
                "permission_rules", each, PermissionRule, "PermissionRule.allow, .deny or .ask(tool_name, content)"
            )
        return self._with(permissions=self._options.permissions.with_rules(added))

    def working_directories(self, directories: Iterable[str]) -> Self:
        """Add directories of the workspace in which `accept_edits` lets files be edited; `.` is all of it.

        Raises:
            InvalidOption: A path leads out of the workspace.
        """
        if isinstance(directories, str):
            raise InvalidOption("working_directories", directories, "several paths, in a list")
        check_is("working_directories", directories, Iterable, "a list of paths")
        added: list[WorkingDirectory] = []
        for each in directories:
            check_is("working_directories", each, str, "paths of the workspace, such as 'src'")
            try:
                added.append(WorkingDirectory(path=str(resolve_path(each)), source="policy"))
            except PathRefused as error:
                raise InvalidOption("working_directories", each, str(error)) from error
        return self._with(permissions=self._options.permissions.with_directories(added))

    def stop_on_reject(self, stop: bool) -> Self:
        """Whether a run ends, with `ALL_TOOLS_DENIED`, when all tool calls of a step were denied; else it goes on."""
        check_is("stop_on_reject", stop, bool, "True or False")
        return self._with(stop_on_reject=stop)

    def record_events(self, kept: bool) -> Self:
        """Whether the events of all calls are written to the session's log, for those who watch from elsewhere or
        later (`AgentSession.events`). Off by default: only those of background work are."""
        check_is("record_events", kept, bool, "True or False")
        return self._with(record_events=kept)

    def runtime(self, runtime: Runtime) -> Self:
        """Share clock, ids, threads, sessions and memory with other builders."""
        check_is("runtime", runtime, Runtime, "a Runtime")
        return self._with(runtime=runtime)

    @property
    def shared_runtime(self) -> Runtime:
        """The Runtime that all agents of this builder, and of those derived from it, share."""
        return self._options.runtime

    def witnessed_by(self, witness: Witness | None) -> Self:
        """Let somebody see all runs, and stand between them and what is outside; None = nobody."""
        return self._with(witness=witness)

    # -- building -------------------------------------------------------------------------------------------

    def build(self) -> AgentT:
        """Make an agent.

        Raises:
            InvalidOption: Name or model is missing.
            PipelineError: The pipeline lacks an operator that no step can do without.
        """
        return self._make(self._options)

    def call(
        self,
        input: str | Msg | Sequence[Msg] | None = None,
        context: RuntimeContext = NOBODY,
        /,
        *,
        output: OutputType | None = None,
    ) -> Reply:
        """Ask an agent that is made for this call and closed at its end; arguments as in `ReActAgent.call`.

        What goes on in the background then is the Runtime's: `shut_down(runtime)` waits for it, and after a blocking
        `run()` the exit of the interpreter does.
        """
        return reply_of(self.stream_events(input, context, output=output))

    def stream_events(
        self,
        input: str | Msg | Sequence[Msg] | None = None,
        context: RuntimeContext = NOBODY,
        /,
        *,
        output: OutputType | None = None,
        purposes: Sequence[Purpose] = ("reasoning",),
    ) -> EventStream:
        """Ask such an agent, and get everything that happens; arguments as in `ReActAgent.stream_events`."""
        messages = messages_of(input)
        self._options.key_of(context)
        if output is not None:
            OutputSpec.of(output)  # refused here and not in the stream

        def ask(agent: AgentT) -> Observable[AgentEvent]:
            return agent.stream_events(messages, context, output=output, purposes=purposes)

        return EventStream(self._by_one_agent(ask), label="stream_events(...)")

    def pending(self, context: RuntimeContext = NOBODY, /) -> Stream[tuple[PendingCall, ...]]:
        """The tool calls of a session that wait, as in `ReActAgent.pending`: `await` it, or `run()` it."""
        self._options.key_of(context)

        def look(agent: AgentT) -> Observable[tuple[PendingCall, ...]]:
            return from_coroutine(lambda: agent.pending(context))

        return Stream(self._by_one_agent(look), label="pending(...)")

    def respond(
        self,
        context: RuntimeContext,
        answers: Mapping[str, Answer],
        /,
        *,
        output: OutputType | None = None,
        purposes: Sequence[Purpose] = ("reasoning",),
    ) -> EventStream:
        """Answer tool calls that wait, and get everything that happens; arguments as in `ReActAgent.respond`.

        Examples:
            reply = builder.respond(ctx, {call.id: approve() for call in builder.pending(ctx).run()}).reply().run()
        """
        self._options.key_of(context)
        given = checked_answers(answers)
        if output is not None:
            OutputSpec.of(output)  # refused here and not in the stream

        def answer(agent: AgentT) -> Observable[AgentEvent]:
            return agent.respond(context, given, output=output, purposes=purposes)

        return EventStream(self._by_one_agent(answer), label="respond(...)")

    def _by_one_agent(self, use: Callable[[AgentT], Observable[T]]) -> Observable[T]:
        """What an agent gives that is made for each subscription, and closed at its end."""

        def one_agent(_: object) -> Observable[T]:
            agent = self.build()
            return use(agent).pipe(_and_then(partial(agent.close, background=None)), ops.finally_action(agent.refuse))

        return reactivex.defer(one_agent)


def _and_then(end: Callable[[], Awaitable[None]]) -> Callable[[Observable[T]], Observable[T]]:
    """Do something at the end of a stream, good or bad, before the end is told."""

    def at_end(source: Observable[T]) -> Observable[T]:
        done: Observable[Any] = from_coroutine(end).pipe(ops.ignore_elements())

        def failed(error: Exception, _: Observable[T]) -> Observable[T]:
            return done.pipe(ops.concat(reactivex.throw(error)))

        return source.pipe(ops.catch(failed), ops.concat(done))

    return at_end


def resolved(option: str, model: Model | str) -> Model:
    """A model, or the one that a string names.

    Raises:
        UnknownProvider: No provider of this name is known.
        MissingApiKey: The provider's key is not in the environment.
        InvalidOption: It is no model.
    """
    if isinstance(model, str):
        from agentscope_rx.models import resolve_model

        model = resolve_model(model)
    if not callable(getattr(model, "stream", None)):
        raise InvalidOption(option, model, "a Model, or a string such as 'openai:gpt-5-mini'")
    return model


def at_least(option: str, value: float, least: float) -> None:
    """Refuse a number that is too small, or no number, with an `InvalidOption`."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:  # type: ignore[redundant-expr]
        raise InvalidOption(option, value, f"must be a number of at least {least}")


def check_is(option: str, value: object, kind: type, rule: str) -> None:
    """Refuse a value of another kind with an `InvalidOption`."""
    if not isinstance(value, kind):
        raise InvalidOption(option, value, rule)
