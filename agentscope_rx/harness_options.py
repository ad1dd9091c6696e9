"""What a HarnessAgent is made of."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, cast

from agentscope_rx.agent_files import AgentFiles, FileChoices
from agentscope_rx.blocks import ContextBlock
from agentscope_rx.compaction import CompactionConfig, ToolResultEvictionConfig
from agentscope_rx.context.counting import RequestCounter, counter_for
from agentscope_rx.context.limit import check_room
from agentscope_rx.context.materials import (
    KNOWLEDGE_FOLDER,
    MEMORY_FILE,
    MEMORY_FOLDER,
    RULES_FILE,
    WorkspaceMaterial,
    guidance_block,
)
from agentscope_rx.context.policy import ContextPolicy, SelectionPolicy, memory_knowledge_rest
from agentscope_rx.context.sources import ContextSource
from agentscope_rx.errors import InvalidOption, PathRefused
from agentscope_rx.memory import MemoryConfig
from agentscope_rx.memory.tools import guidance as memory_guidance
from agentscope_rx.memory.tools import memory_tools
from agentscope_rx.operators import MemoryKeeper, Summariser
from agentscope_rx.options import AgentOptions
from agentscope_rx.requests import Model
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.session_tools import session_tools
from agentscope_rx.step import ModelCard
from agentscope_rx.stores import JsonFileStore, SessionKey, StateStore
from agentscope_rx.stores.store import is_local
from agentscope_rx.tasks import PlanModeConfig, TaskContextOptions, requirements
from agentscope_rx.tasks.plan_mode import plan_tools
from agentscope_rx.tasks.projection import TaskProjection
from agentscope_rx.tasks.requirements import task_requirement_propose
from agentscope_rx.tools import Tool, Toolkit
from agentscope_rx.tools.config import TOOLS_FILE, ToolsConfig
from agentscope_rx.tools.outputs import OutputTool
from agentscope_rx.tools.session_tool import SessionTool, session_file_tools, session_shell_tool
from agentscope_rx.workspace import RUNTIME_FOLDER, LocalWorkspace, WorkspaceFS, resolve_path
from agentscope_rx.workspace.filesystem import is_read_only, is_shared

WORKSPACE_VARIABLE: Final = "AGENTSCOPE_WORKSPACE"
_DEFAULT_WORKSPACE: Final = Path(".agentscope") / "workspace"
#: Tools that belong to how an agent works; who allows certain tools need not name them.
_ALWAYS_OFFERED: Final = frozenset({"todo_write", "plan_enter", "plan_write", "plan_exit", "task_requirement_propose"})
_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")


@dataclass(frozen=True, kw_only=True)
class HarnessOptions(AgentOptions):
    """The choices behind a `HarnessAgent`; its builder says what each means."""

    instructions: tuple[tuple[str, str], ...] = ()
    sources: tuple[ContextSource, ...] = ()
    concurrent_sources: bool = False
    context_policy: ContextPolicy = field(default_factory=ContextPolicy)
    selection_policy: SelectionPolicy = memory_knowledge_rest
    workspace: Path | WorkspaceFS | None = None
    additional_files: tuple[str, ...] = ()
    max_context_tokens: int = 8_000
    workspace_context: bool = True
    environment_memory: str = ""
    state_only: bool = False
    filesystem_tools: bool | Literal["read_only"] = True
    file_choices: FileChoices = field(default_factory=FileChoices)
    at_path_expansion: bool = True
    tools_config: ToolsConfig | None = None
    reads_tools_config: bool = True
    task_context: TaskContextOptions = field(default_factory=TaskContextOptions)
    plan_mode: PlanModeConfig | None = None
    session_tools: bool = False
    memory: MemoryConfig | None = None
    memory_hooks: bool = True
    memory_tools: bool = True
    compaction: CompactionConfig | None = field(default_factory=CompactionConfig)
    tool_result_eviction: ToolResultEvictionConfig | None = field(default_factory=ToolResultEvictionConfig)

    def with_instruction(self, name: str, text: str) -> tuple[tuple[str, str], ...]:
        """The instructions with one more."""
        _check_name("instruction", name, [known for known, _ in self.instructions])
        return (*self.instructions, (name, text))

    def with_files(self, paths: Iterable[str]) -> tuple[str, ...]:
        """The additional files with more."""
        if isinstance(paths, str):
            raise InvalidOption("additional_context_files", paths, "several paths; for one, additional_context_file")
        files = list(self.additional_files)
        for path in paths:
            try:
                file = str(resolve_path(path))
            except (PathRefused, TypeError) as error:
                raise InvalidOption("additional_context_file", path, str(error)) from error
            if file == ".":
                raise InvalidOption("additional_context_file", path, "a file of the workspace, not the workspace")
            if file not in files:
                files.append(file)
        return tuple(files)

    def with_source(self, source: ContextSource) -> tuple[ContextSource, ...]:
        """The sources with one more."""
        _check_name("context_source", source.name, [known.name for known in self.sources])
        return (*self.sources, source)

    @cached_property
    def folder(self) -> Path | None:
        """The workspace's folder; None where it is not one of this machine."""
        if self.workspace is None:
            named = os.environ.get(WORKSPACE_VARIABLE, "").strip()
            return (Path(named).expanduser() if named else _DEFAULT_WORKSPACE).absolute()
        return self.workspace.expanduser().absolute() if isinstance(self.workspace, Path) else None

    @cached_property
    def files(self) -> WorkspaceFS:
        """The workspace.

        Raises:
            InvalidOption: There can be no such folder.
        """
        if self.folder is None:
            return cast(WorkspaceFS, self.workspace)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return LocalWorkspace(self.folder)
        except OSError as error:
            raise InvalidOption(
                "workspace", str(self.folder), f"a folder that is there or can be made ({error})"
            ) from error

    @cached_property
    def agent_files(self) -> AgentFiles:
        """The files, as each session sees them.

        Raises:
            InvalidOption: There is no such folder, or commands would have none that they may see.
        """
        kept = (RULES_FILE, MEMORY_FILE, MEMORY_FOLDER, KNOWLEDGE_FOLDER, TOOLS_FILE, *self.additional_files)
        plans = () if self.plan_mode is None else (self.plan_mode.file,)
        results = () if self.tool_result_eviction is None else (self.tool_result_eviction.eviction_path,)
        return AgentFiles(
            self.files,
            self.file_choices,
            agent_name=self.name,
            eviction=self.tool_result_eviction,
            kept=(*kept, *plans, *results),
        )

    def _key_with(self, context: RuntimeContext, agent_id: str) -> SessionKey:
        return self.key_of(context, agent_id=agent_id)

    @property
    def store(self) -> StateStore:
        """Where states are kept: what was given, else files in the workspace, else the Runtime's memory."""
        if self.state_store is not None or self.folder is None:
            return super().store
        folder = self.folder / RUNTIME_FOLDER
        return self.runtime.single(JsonFileStore, folder)

    @property
    def material(self) -> Callable[[SessionKey], WorkspaceMaterial] | None:
        """Where a session's material of the workspace comes from; None where it is not shown."""
        return self._material_of if self.workspace_context else None

    def _material_of(self, key: SessionKey) -> WorkspaceMaterial:
        files, project = self.agent_files, self.file_choices.project
        folder = files.folder
        return WorkspaceMaterial(
            files=files.of(key),
            name="workspace" if folder is None else folder.name,
            location="" if folder is None or files.are_apart(key) else str(folder),
            project="" if project is None else str(project),
            agent_name=self.name,
            additional_files=self.additional_files,
            max_tokens=self.max_context_tokens,
            environment_memory=self.environment_memory,
            memory=self.memory_hooks or self.memory_tools,
            memory_searched=self._remembering,
        )

    @property
    def own_tools(self) -> tuple[Tool, ...]:
        """The tools that come with what was switched on."""
        proposing = (task_requirement_propose,) if self.task_context.proposals else ()
        planning = () if self.plan_mode is None else plan_tools(self.plan_mode, self.agent_files.of_call)
        taken = set(self.toolkit.names)
        free = (each for each in self._working() if each.spec.name not in taken)
        return (*super().own_tools, *proposing, *planning, *free)

    def _working(self) -> Iterator[SessionTool]:
        """The tools for files, commands, earlier conversations and what is remembered of them."""
        files = self.agent_files
        if self.filesystem_tools:
            fixed = files.read_only or self.filesystem_tools == "read_only"
            yield from session_file_tools(files.of_call, read_only=fixed)
        if files.shell is not None:
            yield session_shell_tool(files.shell, files.refuses_commands)
        if self.session_tools and self.memory_tools:
            yield from session_tools(self.session_store, self.id, self._key_with)
        if self._remembering:
            yield from memory_tools(files.of_call, self.runtime.clock.now)

    @property
    def _remembering(self) -> bool:
        """Whether the model has tools for its memory."""
        return self.memory is not None and self.memory_tools

    def _offered(self, tools: Toolkit) -> Toolkit:
        config = self.agent_files.tools_config() if self.reads_tools_config else self.tools_config
        if config is None:
            return tools
        config.warn_of_unknown(tools.names)
        answering = tuple(each.spec.name for each in super().own_tools if isinstance(each, OutputTool))
        return tools.only(lambda name: name in answering or config.offers(name, always=_ALWAYS_OFFERED))

    @property
    def planning(self) -> PlanModeConfig:
        """How a session plans that does."""
        return self.plan_mode or super().planning

    @property
    def guidance(self) -> tuple[ContextBlock, ...]:
        """What the model is told about them."""
        proposing = (guidance_block("requirements", requirements.GUIDANCE),) if self.task_context.proposals else ()
        memory = memory_guidance(memory_shown=self.workspace_context)
        remembering = (guidance_block("memory", memory),) if self._remembering else ()
        return (*super().guidance, *proposing, *remembering)

    @property
    def tasks(self) -> TaskProjection | None:
        """Shows the session's task; None where none of it is to be shown."""
        shown = self.task_list or self.task_context.shows_scope
        return TaskProjection(options=self.task_context) if shown else None

    @property
    def memory_keeper(self) -> MemoryKeeper | None:
        """Who remembers over sessions; None = nobody."""
        config = self.memory
        if config is None:
            return None
        return MemoryKeeper(
            config=config,
            files_of=self.agent_files.of,
            scope_of=self.agent_files.scope_of,
            execution=self.execution,
            policy=self.context_policy,
            options=self.generate_options,
            card=self._card_of(config.model),
            at_call_end=self.memory_hooks,
        )

    def check(self) -> None:
        """Refuse what could never be sent.

        Raises:
            InvalidOption: The model's window has no room for input beside the answer, or choices exclude each other.
        """
        super().check()
        if not isinstance(self.workspace, Path | None) and is_shared(self.workspace) and is_local(self.store):
            rule = "keeps sessions on this machine, and others share the workspace: give a RedisStore or a SqlStore"
            raise InvalidOption("state_store", self.store, f"{rule} on a server")
        if self.memory is not None and is_read_only(self.files):
            raise InvalidOption("memory", self.memory, "is written to the workspace, and this one is only read")
        for model in (self.model, self.fallback_model):
            if model is not None:
                check_room(model.context_window, self.generate_options, self.context_policy)

    @property
    def counter(self) -> RequestCounter:
        """What counts tokens."""
        return counter_for(self.context_policy.estimator, self.model.name if self.model is not None else "")

    def counter_of(self, model: Model) -> RequestCounter:
        """What counts the tokens of another model's requests."""
        return counter_for(self.context_policy.estimator, model.name)

    def summariser(self, config: CompactionConfig) -> Summariser:
        """Who writes summaries."""
        return Summariser(
            template=config.summary_prompt,
            execution=self.execution,
            policy=self.context_policy,
            card=self._card_of(config.model),
        )

    def _card_of(self, model: Model | str | None) -> ModelCard | None:
        """The card of a model that is asked beside the conversation; None = the agent's own is."""
        assert not isinstance(model, str)  # the builder has found the model that a string names
        return None if model is None else ModelCard.of(model, self.counter_of(model), own=False)


def _check_name(option: str, name: str, taken: list[str]) -> None:
    if not isinstance(name, str) or not _NAME.fullmatch(name):  # type: ignore[reportUnnecessaryIsInstance]
        raise InvalidOption(option, name, "letters, digits, '_', '.' and '-', beginning with a letter or digit")
    if name in taken:
        raise InvalidOption(option, name, "this name is taken already")
