"""What an agent is made of: the builder's settled choices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from agentscope_rx.context.counting import RequestCounter, counter_for
from agentscope_rx.errors import InvalidOption
from agentscope_rx.operators import ChunkOperator, SystemPrompt
from agentscope_rx.permission_context import PermissionContextState, PermissionMode
from agentscope_rx.pipeline import Pipeline
from agentscope_rx.requests import ExecutionConfig, GenerateOptions, Model
from agentscope_rx.runtime import Runtime
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.step import ModelCard
from agentscope_rx.stores import InMemoryStore, SessionKey, StateStore
from agentscope_rx.tools import Toolkit

Arrangement: TypeAlias = Callable[[Pipeline], Pipeline]


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
    max_iters: int = 10
    generate_options: GenerateOptions = field(default_factory=GenerateOptions)
    execution: ExecutionConfig = field(default_factory=ExecutionConfig)
    chunk_operators: tuple[ChunkOperator, ...] = ()
    arrangements: tuple[Arrangement, ...] = ()
    state_store: StateStore | None = None
    default_session_id: str = ""
    wait_timeout: float = 300.0
    permissions: PermissionContextState = field(default_factory=PermissionContextState)
    stop_on_reject: bool = False

    @property
    def id(self) -> str:
        """The agent's id; its name where none was given."""
        return self.agent_id or self.name

    @property
    def store(self) -> StateStore:
        """Where states are kept; the Runtime's memory where nothing else was given."""
        return self.state_store or self.runtime.single(InMemoryStore)

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

    def key_of(self, context: RuntimeContext) -> SessionKey:
        """The session that a context means.

        Raises:
            InvalidIdentifier: An id of the context cannot be one.
            InvalidOption: It is no context.
        """
        if not isinstance(context, RuntimeContext):  # type: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption("context", context, "a RuntimeContext(...)")
        session_id = self.default_session_id or self.name if context.session_id is None else context.session_id
        return SessionKey(agent_id=self.id, user_id=context.user_id, session_id=session_id)


def mode_of(option: str, mode: PermissionMode | str) -> PermissionMode:
    """A permission mode by its name, whatever its case.

    Raises:
        InvalidOption: There is no such mode.
    """
    try:
        return PermissionMode(mode)
    except ValueError:
        raise InvalidOption(option, mode, f"one of {', '.join(PermissionMode)}") from None
