"""Configures a HarnessAgent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from pydantic import BaseModel, ValidationError

from agentscope_rx.builder import AgentBuilder, BuilderKeywords, at_least, check_is, resolved
from agentscope_rx.compaction import CompactionConfig, ToolResultEvictionConfig
from agentscope_rx.context.policy import ContextPolicy, SelectionPolicy, SourceFailurePolicy
from agentscope_rx.context.sources import ContextSource, Loader
from agentscope_rx.errors import InvalidOption, PathRefused
from agentscope_rx.harness_options import HarnessOptions
from agentscope_rx.memory import MemoryConfig
from agentscope_rx.tasks import PlanModeConfig, TaskContextOptions
from agentscope_rx.tools.config import ToolsConfig
from agentscope_rx.tools.shell_tool import ShellSettings
from agentscope_rx.workspace import IsolationScope, WorkspaceFS, resolve_path

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    from agentscope_rx.harness_agent import HarnessAgent  # noqa: F401 - named as a text in the head of a class

ConfigT = TypeVar("ConfigT", bound=BaseModel)


class HarnessKeywords(BuilderKeywords, total=False):
    """The options of a `HarnessAgent` as keywords; each is also a method, which says what it means."""

    instructions: Mapping[str, str]
    context_sources: Mapping[str, Loader]
    concurrent_sources: bool
    context_policy: ContextPolicy
    context_selection_policy: SelectionPolicy
    workspace: str | Path | WorkspaceFS
    additional_context_files: Iterable[str]
    max_context_tokens: int
    workspace_context: bool
    environment_memory: str
    filesystem_tools: bool | Literal["read_only"]
    shell_tool: bool | ShellSettings
    isolation: IsolationScope | str | None
    project: str | Path
    project_writable: bool
    tools_config: ToolsConfig | Mapping[str, Any] | None
    at_path_expansion: bool
    task_context: TaskContextOptions | Mapping[str, Any] | None
    enable_plan_mode: PlanModeConfig | Mapping[str, Any] | bool | None
    session_tools: bool
    memory: MemoryConfig | Mapping[str, Any] | None
    memory_hooks: bool
    memory_tools: bool
    compaction: CompactionConfig | Mapping[str, Any] | None
    tool_result_eviction: ToolResultEvictionConfig | Mapping[str, Any] | None


class HarnessBuilder(AgentBuilder["HarnessAgent", HarnessOptions]):
    """Configures a `HarnessAgent`; every method returns a new builder."""

    keywords = HarnessKeywords

    def instruction(self, name: str, text: str) -> Self:
        """Add a trusted rule under a name: part of the System message, never left out.

        Raises:
            InvalidOption: The name has other characters than letters, digits, `_`, `.` and `-`, or is taken; or the
                text is none.
        """
        check_is("instruction", text, str, "a text")
        return self._with(instructions=self._options.with_instruction(name, text))

    def instructions(self, instructions: Mapping[str, str]) -> Self:
        """Add several rules by name."""
        builder = self
        for name, text in instructions.items():
            builder = builder.instruction(name, text)
        return builder

    def context_source(
        self,
        name: str,
        load: Loader,
        *,
        timeout: float = 5.0,
        on_failure: SourceFailurePolicy = SourceFailurePolicy.FAIL,
    ) -> Self:
        """Add a source of context blocks, asked before every reasoning request.

        Args:
            name: Its name; its blocks are known as `source/<name>/<block id>`.
            load: A function of a `ContextRequest` that gives a list of blocks: an async one; a plain one, which runs
                in a thread; or one that gives an Observable of the list.
            timeout: Seconds that it may take.
            on_failure: FAIL refuses the request when it fails; OMIT goes without it, and the manifest says so.

        Raises:
            InvalidOption: The name is taken or malformed, the loader no function, the time-out not above 0, or the
                failure policy none.
        """
        if not callable(load):
            raise InvalidOption("context_source", load, "a function that loads blocks")
        at_least("timeout", timeout, 0)
        if not timeout:
            raise InvalidOption("timeout", timeout, "must be above 0")
        if on_failure not in tuple(SourceFailurePolicy):
            raise InvalidOption("on_failure", on_failure, f"one of {', '.join(SourceFailurePolicy)}")
        source = ContextSource(name=name, load=load, timeout=timeout, on_failure=SourceFailurePolicy(on_failure))
        return self._with(sources=self._options.with_source(source))

    def context_sources(self, sources: Mapping[str, Loader]) -> Self:
        """Add several sources by name, with the defaults of `context_source`."""
        builder = self
        for name, load in sources.items():
            builder = builder.context_source(name, load)
        return builder

    def concurrent_sources(self, concurrent: bool) -> Self:
        """Ask all sources at the same time; the order of their blocks stays that of registration."""
        check_is("concurrent_sources", concurrent, bool, "True or False")
        return self._with(concurrent_sources=concurrent)

    def context_policy(self, policy: ContextPolicy) -> Self:
        """How much may go into a request.

        Raises:
            InvalidOption: It is no `ContextPolicy`.
        """
        check_is("context_policy", policy, ContextPolicy, "a ContextPolicy(...)")
        return self._with(context_policy=policy)

    def context_selection_policy(self, policy: SelectionPolicy) -> Self:
        """Which optional block is left out first when a request is too large.

        Raises:
            InvalidOption: It is no function.
        """
        if not callable(policy):
            raise InvalidOption("context_selection_policy", policy, "a function of the optional blocks")
        return self._with(selection_policy=policy)

    def workspace(self, workspace: str | Path | WorkspaceFS) -> Self:
        """The folder that the agent works in, or any workspace.

        A folder is made when the agent is built, and keeps the states of sessions in its private part. Without this
        option it is the one that the environment variable `AGENTSCOPE_WORKSPACE` names, else `.agentscope/workspace`
        below the current one. With any other workspace states are kept in memory, unless there is a `state_store`.

        Raises:
            InvalidOption: The path is blank, or it is no workspace.
        """
        if isinstance(workspace, str) and not workspace.strip():
            raise InvalidOption("workspace", workspace, "a folder; leave the option out for the default one")
        if not isinstance(workspace, str | Path | WorkspaceFS):  # type: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption("workspace", workspace, "a folder, or an object with the verbs of WorkspaceFS")
        return self._with(workspace=Path(workspace) if isinstance(workspace, str) else workspace)

    def additional_context_file(self, path: str) -> Self:
        """Show a further file of the workspace in every request.

        Raises:
            InvalidOption: It is no path inside the workspace.
        """
        return self._with(additional_files=self._options.with_files((path,)))

    def additional_context_files(self, paths: Iterable[str]) -> Self:
        """Show several further files."""
        return self._with(additional_files=self._options.with_files(paths))

    def max_context_tokens(self, tokens: int) -> Self:
        """How much workspace material is shown; memory is cut to fit. 8,000 by default."""
        at_least("max_context_tokens", tokens, 0)
        return self._with(max_context_tokens=tokens)

    def workspace_context(self, shown: bool) -> Self:
        """Whether the workspace's rules, memory, knowledge and files are part of requests."""
        check_is("workspace_context", shown, bool, "True or False")
        return self._with(workspace_context=shown)

    def disable_workspace_context(self) -> Self:
        """Leave the workspace's rules, memory, knowledge and files out of all requests."""
        return self.workspace_context(False)

    def filesystem_tools(self, offered: bool | Literal["read_only"]) -> Self:
        """Whether the model may work on the workspace's files: `read_file`, `list_files`, `glob_files`, `grep_files`,
        `write_file` and `edit_file`, where no tool of yours has the name.

        Args:
            offered: True (the default), False, or `read_only`: only those that look, as also for a workspace that
                refuses every change.
        """
        if offered not in (True, False, "read_only") or isinstance(offered, int) is not isinstance(offered, bool):
            raise InvalidOption("filesystem_tools", offered, "True, False or 'read_only'")
        return self._with(filesystem_tools=offered)

    def disable_filesystem_tools(self) -> Self:
        """Offer no tools for files."""
        return self.filesystem_tools(False)

    def shell_tool(self, offered: bool | ShellSettings) -> Self:
        """Whether the model may run commands, by `execute`, and how; where no tool of yours has the name.

        Commands run in the project's folder, else in the workspace's. By default there is the tool where one of them
        is a folder of this machine and `isolation` keeps no files apart.

        **A shell is not containment.** A command may do all that this process may, also outside of the folder, and
        read the files of every user. Rules and modes of permissions guard against mistakes. An application that serves
        others switches the tool off, or runs in a sandbox.

        Args:
            offered: True, False, or `ShellSettings(...)`: yes, with these.

        Raises:
            InvalidOption: It is none of them. When the agent is built: there is no folder to run commands in, or they
                would see the files that `isolation` keeps apart.
        """
        if not isinstance(offered, bool | ShellSettings):  # type: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption("shell_tool", offered, "True, False or ShellSettings(...)")
        return self._with(file_choices=replace(self._options.file_choices, shell=offered))

    def disable_shell_tool(self) -> Self:
        """Let the model run no commands."""
        return self.shell_tool(False)

    def tools_config(self, config: ToolsConfig | Mapping[str, Any] | None) -> Self:
        """Which tools are on offer, yours included: `{"allow": [...], "deny": ["execute", "session_*"]}`.

        Without this option it is what `tools.json` in the workspace's folder says, read when the agent is built.

        Args:
            config: A `ToolsConfig`, or its options as a mapping; None = all tools are, whatever the file says.

        Raises:
            InvalidOption: It is none. When the agent is built: the file is none.
        """
        made = _configured("tools_config", ToolsConfig, config, {})
        return self._with(tools_config=made, reads_tools_config=False)

    def disable_tools_config(self) -> Self:
        """Offer all tools, whatever `tools.json` says."""
        return self.tools_config(None)

    def at_path_expansion(self, expanded: bool) -> Self:
        """Whether files that a user mentions as `@path` are put behind what they say: by default they are.

        Each is read once, when it is said: its first 1,000 lines or 64 KiB, up to 20 files a message. It is one of
        those that the session sees, so that no path leads out of them, and none that `read_file` is denied.
        """
        check_is("at_path_expansion", expanded, bool, "True or False")
        return self._with(at_path_expansion=expanded)

    def disable_at_path_expansion(self) -> Self:
        """Leave `@path` in what a user says as it is."""
        return self.at_path_expansion(False)

    def isolation(self, scope: IsolationScope | str | None) -> Self:
        """Who shares the files that the model writes.

        Who has files of their own reads those of the workspace too, where they have none of that path, and changes
        only their own: an `AGENTS.md` or `MEMORY.md` of a user's own takes the place of the one for all. States and
        logs are kept by session whatever this says. `agent.files(ctx)` gives the files of a session.

        Args:
            scope: `session`, `user` (a session without a user shares with nobody), `agent`, or `global`: all work on
                the workspace itself. None, the default: each user has files of their own, and who calls without a user
                works on the workspace itself, as programs of one person do.

        Raises:
            InvalidOption: There is no such scope.
        """
        if scope is not None and scope not in tuple(IsolationScope):
            raise InvalidOption("isolation", scope, f"one of {', '.join(IsolationScope)}, or None")
        found = None if scope is None else IsolationScope(scope)
        return self._with(file_choices=replace(self._options.file_choices, isolation=found))

    def project(self, folder: str | Path) -> Self:
        """A folder whose files are there too, behind those of the workspace; commands run in it.

        It is only read, and what the model writes goes to the workspace, unless `project_writable` says otherwise.
        Where the workspace lies in it, that is not seen through it.

        All users share it, and a shell is not containment: commands of one user can read and change whatever is in the
        folder, what others have put there and a workspace that lies in it among it. See `disable_shell_tool`.

        Raises:
            InvalidOption: The path is blank. When the agent is built: there is no such folder.
        """
        if isinstance(folder, str) and not folder.strip():
            raise InvalidOption("project", folder, "a folder")
        if not isinstance(folder, str | Path):  # type: ignore[reportUnnecessaryIsInstance]
            raise InvalidOption("project", folder, "a folder")
        found = Path(folder).expanduser().absolute()
        return self._with(file_choices=replace(self._options.file_choices, project=found))

    def project_writable(self, writable: bool = True) -> Self:
        """Whether what the model writes goes to the project, for all who call.

        `AGENTS.md`, `MEMORY.md`, `memory`, `knowledge`, `tools.json`, plans, results that were moved and additional
        context files stay the workspace's; of that nothing else is seen then.
        """
        check_is("project_writable", writable, bool, "True or False")
        return self._with(file_choices=replace(self._options.file_choices, project_writable=writable))

    def session_tools(self, offered: bool = True) -> Self:
        """Whether the model may look at earlier conversations of the user who calls: `session_list`,
        `session_history` and `session_search`, where no tool of yours has the name. Off by default."""
        check_is("session_tools", offered, bool, "True or False")
        return self._with(session_tools=offered)

    def memory(self, config: MemoryConfig | Mapping[str, Any] | EllipsisType | None = ..., /, **options: Any) -> Self:
        """Let the agent remember over sessions; off by default.

        At the end of a call, and before messages give way to a summary, a model writes down the facts that will
        matter later, in `memory/YYYY-MM-DD.md`; from time to time one makes `MEMORY.md` of them, which every request
        shows. All of that happens in the background: no answer waits for it. The model gets `memory_search`,
        `memory_get` and `memory_save`, where no tool of yours has the name.

        Args:
            config: A `MemoryConfig`, or its options as a mapping; None = nothing is remembered. `MEMORY.md` is shown
                all the same.
            options: The same as keywords: `memory(flush_trigger=FlushTrigger.throttled(timedelta(minutes=10)))`.

        Raises:
            InvalidOption: An option is wrong, or both ways were used.
        """
        made = _configured("memory", MemoryConfig, config, options)
        if made is not None and made.model is not None:
            made = made.model_copy(update={"model": resolved("memory.model", made.model)})
        return self._with(memory=made)

    def memory_hooks(self, used: bool) -> Self:
        """Whether the end of a call has facts written down and merged; where there is a memory, it does."""
        check_is("memory_hooks", used, bool, "True or False")
        return self._with(memory_hooks=used)

    def disable_memory_hooks(self) -> Self:
        """Do nothing for the memory at the end of calls.

        What is written down before messages give way to a summary is `flush_before_compact` of the compaction's to
        say. With `disable_memory_tools` too, `MEMORY.md` is not shown.
        """
        return self.memory_hooks(False)

    def memory_tools(self, offered: bool) -> Self:
        """Whether the model may search, read and save memories, and look at earlier conversations where there are
        `session_tools`."""
        check_is("memory_tools", offered, bool, "True or False")
        return self._with(memory_tools=offered)

    def disable_memory_tools(self) -> Self:
        """Offer no tools for the memory, nor for earlier conversations. With `disable_memory_hooks` too, `MEMORY.md`
        is not shown."""
        return self.memory_tools(False)

    def environment_memory(self, text: str) -> Self:
        """A text for the environment section of the System message."""
        check_is("environment_memory", text, str, "a text")
        return self._with(environment_memory=text)

    def task_context(
        self, config: TaskContextOptions | Mapping[str, Any] | EllipsisType | None = ..., /, **options: Any
    ) -> Self:
        """What of a session's task the model sees beside its to-do list; nothing by default.

        What was said before about it is replaced. The task itself is the application's to change, by
        `agent.update_tasks`; nothing of it is derived from messages or files.

        Args:
            config: `TaskContextOptions`, or its options as a mapping; None = nothing.
            options: The same as keywords: `task_context(requirements=True, verification=True, proposals=True)`.

        Raises:
            InvalidOption: An option is wrong, both ways were used, or the model could propose what it cannot see.
        """
        made = _configured("task_context", TaskContextOptions, config, options)
        return self._with(task_context=made or TaskContextOptions())

    def enable_plan_mode(
        self, config: PlanModeConfig | Mapping[str, Any] | bool | None = True, /, **options: Any
    ) -> Self:
        """Let the model plan before it works; off by default.

        While a session plans, only tools that read can be called, beside those of the plan and the to-do list. A
        person is asked about the end of planning, in every mode of permissions: a `plan_exit` call waits like any call
        that is asked about, `agent.respond(ctx, {call.id: approve()})` ends planning, `reject("why")` does not.

        Args:
            config: `PlanModeConfig`, or its options as a mapping; False or None = off.
            options: The same as keywords: `enable_plan_mode(directory="docs/plans", allow_shell=True)`.

        Raises:
            InvalidOption: An option is wrong, both ways were used, or the directory is none of the workspace.
        """
        given = ... if config is True else config
        made = None if config is False else _configured("enable_plan_mode", PlanModeConfig, given, options)
        if made is not None:
            try:
                resolve_path(made.file)
            except PathRefused as error:
                raise InvalidOption("enable_plan_mode.directory", made.directory, str(error)) from error
        return self._with(plan_mode=made)

    def compaction(
        self, config: CompactionConfig | Mapping[str, Any] | EllipsisType | None = ..., /, **options: Any
    ) -> Self:
        """When older messages give way to a summary; on by default.

        Args:
            config: A `CompactionConfig`, or its options as a mapping; None = never.
            options: The same as keywords: `compaction(trigger_messages=30, keep_messages=10)`.

        Raises:
            InvalidOption: An option is wrong, or both ways were used.
        """
        made = _configured("compaction", CompactionConfig, config, options)
        if made is not None and made.model is not None:
            made = made.model_copy(update={"model": resolved("compaction.model", made.model)})
        return self._with(compaction=made)

    def disable_compaction(self) -> Self:
        """Never let messages give way to a summary, whatever asks for it; results are not pruned either."""
        return self.compaction(None)

    def tool_result_eviction(
        self, config: ToolResultEvictionConfig | Mapping[str, Any] | EllipsisType | None = ..., /, **options: Any
    ) -> Self:
        """When large tool results move into files of the workspace; on by default.

        Args:
            config: A `ToolResultEvictionConfig`, or its options as a mapping; None = never.
            options: The same as keywords: `tool_result_eviction(max_result_chars=20_000)`.

        Raises:
            InvalidOption: An option is wrong, or both ways were used.
        """
        return self._with(
            tool_result_eviction=_configured("tool_result_eviction", ToolResultEvictionConfig, config, options)
        )

    def disable_tool_result_eviction(self) -> Self:
        """Never move tool results into files."""
        return self.tool_result_eviction(None)


def _configured(option: str, kind: type[ConfigT], config: object, options: Mapping[str, Any]) -> ConfigT | None:
    """A config as it was given, or made of its options."""
    if config is None and not options:
        return None
    if isinstance(config, kind) and not options:
        return config
    if isinstance(config, Mapping):
        options = {**cast("Mapping[str, Any]", config), **options}
    elif config is not ...:
        raise InvalidOption(option, config, f"a {kind.__name__}, None, or its options as keywords")
    try:
        return kind(**options)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = ".".join((option, *map(str, first["loc"])))
        raise InvalidOption(name, first["input"], first["msg"]) from None  # pydantic's own words quote the value
