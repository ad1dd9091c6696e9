"""What an agent is made of: the builder's settled choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias, cast

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.context.counting import RequestCounter, counter_for
from agentscope_rx.context.materials import guidance_block
from agentscope_rx.errors import InvalidOption
from agentscope_rx.operators import ChunkOperator, MemoryKeeper, SystemPrompt
from agentscope_rx.permission_context import PermissionContextState, PermissionMode
from agentscope_rx.pipeline import Pipeline
from agentscope_rx.requests import ExecutionConfig, GenerateOptions, Model
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session.conflicts import ConflictPolicy
from agentscope_rx.session.intake import UncertainCalls
from agentscope_rx.session.logged import LEASE_SECONDS
from agentscope_rx.step import ModelCard
from agentscope_rx.stores import InMemoryStore, SessionKey, SessionStore, StateStore
from agentscope_rx.tasks import PlanModeConfig, todo
from agentscope_rx.tasks.projection import TaskProjection
from agentscope_rx.tasks.todo import todo_write
from agentscope_rx.tools import Tool, Toolkit
from agentscope_rx.tools.outputs import OutputSpec, OutputTool
from agentscope_rx.witness import Witness

Arrangement: TypeAlias = Callable[[Pipeline], Pipeline]

#: Says under which key a session is kept, from a context that names its session and the id of an agent.
SessionKeys: TypeAlias = Callable[[RuntimeContext, str], SessionKey]


@dataclass(frozen=True, kw_only=True)
class AgentOptions:
    """The choices behind an agent; `ReActAgent.builder` says what each means."""

    runtime: Runtime = field(default_factory=Runtime)
    name: str = ""
    agent_id: str = ""
    model: Model | None = None
    fallback_model: Model | None = None
    sys_prompt: SystemPrompt = ""
    toolkit: Toolkit = field(default_factory=Toolkit)
    task_list: bool = False
    output: OutputSpec | None = None
    max_iters: int = 10
    generate_options: GenerateOptions = field(default_factory=GenerateOptions)
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    chunk_operators: tuple[ChunkOperator, ...] = ()
    arrangements: tuple[Arrangement, ...] = ()
    state_store: StateStore | None = None
    default_session_id: str = ""
    wait_timeout: float = 300.0
    session_key: SessionKeys | None = None
    conflict_policy: ConflictPolicy = ConflictPolicy.FAIL
    state_only: bool = True
    log_requests: bool = True
    lease_seconds: float = LEASE_SECONDS
    uncertain_calls: UncertainCalls = UncertainCalls.TELL
    permissions: PermissionContextState = field(default_factory=PermissionContextState)
    stop_on_reject: bool = False
    witness: Witness | None = None
    record_events: bool = False

    @property
    def id(self) -> str:
        """The agent's id; its name where none was given."""
        return self.agent_id or self.name

    @property
    def store(self) -> StateStore:
        """Where states are kept; the Runtime's memory where nothing else was given."""
        return self.state_store or self.runtime.single(InMemoryStore)

    @property
    def own_tools(self) -> tuple[Tool, ...]:
        """The tools that come with what was switched on."""
        tools: list[Tool] = [todo_write] if self.task_list else []
        return (*tools, OutputTool(self.output)) if self.output is not None else tuple(tools)

    @property
    def guidance(self) -> tuple[ContextBlock, ...]:
        """What the model is told about them."""
        return (guidance_block("todo", todo.GUIDANCE),) if self.task_list else ()

    @cached_property
    def all_tools(self) -> Toolkit:
        """All tools of the agent.

        Raises:
            InvalidOption: One of the user's has the name of one that comes with an option.
        """
        return self._offered(self.toolkit.add(*self.own_tools))

    def _offered(self, tools: Toolkit) -> Toolkit:
        """Those of all tools that are on offer."""
        return tools

    @property
    def tasks(self) -> TaskProjection | None:
        """Shows the session's task; None where none of it is to be shown."""
        return TaskProjection() if self.task_list else None

    @property
    def planning(self) -> PlanModeConfig:
        """How a session plans that does."""
        return PlanModeConfig()

    @property
    def memory_keeper(self) -> MemoryKeeper | None:
        """Who remembers over sessions; None = nobody."""
        return None

    @property
    def counter(self) -> RequestCounter:
        """What counts tokens."""
        return counter_for(None, self.model.name if self.model is not None else "")

    @property
    def fallback_card(self) -> ModelCard | None:
        """The model that stands in for the agent's own; None where there is none."""
        if self.fallback_model is None:
            return None
        return ModelCard.of(self.fallback_model, self.counter_of(self.fallback_model), own=False)

    def counter_of(self, model: Model) -> RequestCounter:
        """What counts the tokens of another model's requests."""
        return counter_for(None, model.name)

    @property
    def log_store(self) -> SessionStore | None:
        """Where the logs of sessions are kept; None = only their states are kept.

        Raises:
            InvalidOption: There is to be a log, and the store keeps only states.
        """
        return None if self.state_only else self.session_store

    @property
    def session_store(self) -> SessionStore:
        """The store, as one that keeps whole sessions.

        Raises:
            InvalidOption: It keeps only states.
        """
        store = self.store
        if not callable(getattr(store, "append", None)):
            rule = "keeps only states; give one that keeps logs too, such as JsonFileStore(folder), or state_only(True)"
            raise InvalidOption("state_store", store, rule)
        return cast("SessionStore", store)

    def check(self) -> None:
        """Refuse choices that exclude each other.

        Raises:
            InvalidOption: Sessions with a log have a policy for conflicts, which they cannot have.
        """
        if self.conflict_policy is not ConflictPolicy.FAIL and not self.state_only:
            rule = "is for state_only(True); a session with a log has one writer at a time, and so no conflicts"
            raise InvalidOption("conflict_policy", self.conflict_policy.value, rule)
        if self.record_events and self.state_only:
            raise InvalidOption(
                "record_events", True, "needs a log of the session; build the agent with state_only(False)"
            )

    def key_of(self, context: RuntimeContext, *, agent_id: str = "") -> SessionKey:
        """The session that a context means: the one place where identities become a key.

        Args:
            context: For whom.
            agent_id: The agent whose session it is; this one's where nothing is given.

        Raises:
            InvalidIdentifier: An id of the context, or of what `session_key` makes of it, cannot be one.
            InvalidOption: It is no context, or `session_key` gave no key.
        """
        if not isinstance(context, RuntimeContext):  # type: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption("context", context, "a RuntimeContext(...)")
        session_id = self.default_session_id or self.name if context.session_id is None else context.session_id
        key = SessionKey(agent_id=agent_id or self.id, user_id=context.user_id, session_id=session_id)
        if self.session_key is None:
            return key
        made = self.session_key(replace(context, session_id=session_id), key.agent_id)
        if not isinstance(made, SessionKey):  # type: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption("session_key", self.session_key, f"gave {made!r}; it must give a SessionKey")
        return made


def mode_of(option: str, mode: PermissionMode | str) -> PermissionMode:
    """A permission mode by its name, whatever its case.

    Raises:
        InvalidOption: There is no such mode.
    """
    try:
        return PermissionMode(mode)
    except ValueError:
        raise InvalidOption(option, mode, f"one of {', '.join(PermissionMode)}") from None
