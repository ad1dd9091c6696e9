"""HarnessAgent: its builder, where it keeps things, and what building and calling it costs."""

from __future__ import annotations

import asyncio
import stat
import threading
from collections.abc import Callable
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from agentscope_rx import (
    ContextBlock,
    ContextPolicy,
    ContextRequest,
    GenerateOptions,
    HarnessAgent,
    InMemoryStore,
    InMemoryWorkspace,
    LocalWorkspace,
    Pipeline,
    RuntimeContext,
    SourceFailurePolicy,
)
from agentscope_rx.agent import Agent
from agentscope_rx.errors import AgentClosed, InvalidIdentifier, InvalidOption, PipelineError, StateUnreadable
from agentscope_rx.stores.keys import folder_name
from agentscope_rx.testing import ScriptedModel, calls
from agentscope_rx.testing import fake_provider as fake
from agentscope_rx.testing.fake_provider import FakeProvider
from agentscope_rx.tokens.encodings import Encodings
from agentscope_rx.tools import tool
from tests.context.support import ALICE, builder_before, harness, manifests, model_of, scripted, system_of
from tests.support import watch

RUNTIME_FOLDER = ".agentscope-runtime"


async def load(request: ContextRequest) -> list[ContextBlock]:
    """A source."""
    return [ContextBlock.reference("x", "from the source")]


def in_order(optional: Any) -> list[str]:
    """A selection policy."""
    return [block.id for block in optional]


# -- options ------------------------------------------------------------------------------------------------


async def test_every_option_is_a_method_and_a_keyword() -> None:
    """Both ways give the same request."""
    files = {"AGENTS.md": "Rules.", "notes.txt": "Notes."}
    policy = ContextPolicy(max_input_tokens=9_000)
    async with FakeProvider([fake.text("done")] * 2) as provider:
        plain = builder_before(provider, workspace=InMemoryWorkspace(files))
        by_method = (
            plain.instruction("tone", "Be brief.")
            .context_source("s", load)
            .concurrent_sources(True)
            .context_policy(policy)
            .context_selection_policy(in_order)
            .additional_context_file("notes.txt")
            .max_context_tokens(4_000)
            .environment_memory("Tea is at four.")
            .sys_prompt("You help.")
        )
        by_keyword = builder_before(
            provider,
            workspace=InMemoryWorkspace(files),
            instructions={"tone": "Be brief."},
            context_sources={"s": load},
            concurrent_sources=True,
            context_policy=policy,
            context_selection_policy=in_order,
            additional_context_files=["notes.txt"],
            max_context_tokens=4_000,
            environment_memory="Tea is at four.",
            sys_prompt="You help.",
        )
        await by_method.call("go", ALICE)
        await by_keyword.call("go", ALICE)
    first, second = (request.body for request in provider.requests)
    assert first == second
    said = "\n".join(message["content"] for message in first["messages"])
    for words in ("You help.", "Be brief.", "Rules.", "Notes.", "Tea is at four.", "from the source"):
        assert words in said


WRONG: dict[str, tuple[Callable[[Any], Any], str]] = {
    "an instruction without a name": (lambda b: b.instruction("", "x"), "instruction"),
    "an instruction with a slash": (lambda b: b.instruction("a/b", "x"), "instruction='a/b'"),
    "an instruction twice": (lambda b: b.instruction("a", "x").instruction("a", "y"), "instruction='a'"),
    "an instruction that is no text": (lambda b: b.instruction("a", None), "instruction=None"),
    "a source with a bad name": (lambda b: b.context_source("-a", load), "context_source='-a'"),
    "a source with no name": (lambda b: b.context_source(None, load), "context_source=None"),
    "a source twice": (lambda b: b.context_source("a", load).context_source("a", load), "context_source='a'"),
    "a source that is no function": (lambda b: b.context_source("a", [1]), "context_source=[1]"),
    "no time": (lambda b: b.context_source("a", load, timeout=0), "timeout=0"),
    "negative time": (lambda b: b.context_source("a", load, timeout=-1), "timeout=-1"),
    "no number": (lambda b: b.context_source("a", load, timeout=float("nan")), "timeout=nan"),
    "another failure policy": (lambda b: b.context_source("a", load, on_failure="hide"), "on_failure='hide'"),
    "a policy that is none": (lambda b: b.context_policy({"max_input_tokens": 3}), "context_policy="),
    "a selection that is none": (lambda b: b.context_selection_policy(["a"]), "context_selection_policy="),
    "a blank workspace": (lambda b: b.workspace("  "), "workspace='  '"),
    "a workspace that is none": (lambda b: b.workspace(3), "workspace=3"),
    "a file outside": (lambda b: b.additional_context_file("../secret"), "additional_context_file='../secret'"),
    "an absolute file": (lambda b: b.additional_context_file("/etc/passwd"), "additional_context_file="),
    "a blank file": (lambda b: b.additional_context_file(""), "additional_context_file=''"),
    "the workspace as a file": (lambda b: b.additional_context_file("."), "additional_context_file='.'"),
    "the private folder": (lambda b: b.additional_context_file(f"{RUNTIME_FOLDER}/x"), "additional_context_file="),
    "one text as several files": (lambda b: b.additional_context_files("abc"), "additional_context_files='abc'"),
    "negative tokens": (lambda b: b.max_context_tokens(-1), "max_context_tokens=-1"),
    "tokens that are no number": (lambda b: b.max_context_tokens("8"), "max_context_tokens='8'"),
    "a name that is no text": (lambda b: b.name(None), "name=None"),
    "a model that is none": (lambda b: b.model(3), "model=3"),
    "a prompt that is none": (lambda b: b.sys_prompt(3), "sys_prompt=3"),
    "a pipeline that is none": (lambda b: b.pipeline("x"), "pipeline='x'"),
    "options that are none": (lambda b: b.generate_options({"max_tokens": 3}), "generate_options="),
    "an execution that is none": (lambda b: b.execution({"timeout": 3}), "execution="),
    "a Runtime that is none": (lambda b: b.runtime(3), "runtime=3"),
    "a switch that is none": (lambda b: b.concurrent_sources("no"), "concurrent_sources='no'"),
    "another switch that is none": (lambda b: b.workspace_context(None), "workspace_context=None"),
    "a memory that is no text": (lambda b: b.environment_memory(3), "environment_memory=3"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_values_fail_at_the_builder(case: str) -> None:
    """Each is refused by the method that gets it, with the option, the value and the rule."""
    use, words = WRONG[case]
    with pytest.raises(InvalidOption) as caught:
        use(HarnessAgent.builder())
    assert str(caught.value).startswith(words)
    assert caught.value.rule
    assert str(caught.value).endswith(caught.value.rule)


def test_unknown_options_are_refused() -> None:
    """The error lists those that there are."""
    with pytest.raises(InvalidOption, match="colour='red'.*context_policy.*workspace_context"):
        HarnessAgent.builder(colour="red")  # type: ignore[call-arg]


def test_a_policy_refuses_what_it_cannot_mean() -> None:
    """Negative numbers, shares out of order, floors above everything, an observer that somebody would have to await."""

    async def observer(manifest: Any) -> None:
        """Nobody awaits it."""

    for wrong in (
        {"max_input_tokens": -1},
        {"reserved_output_tokens": -1},
        {"safety_margin_tokens": -1},
        {"pressure": (0.9, 0.8, 0.95)},
        {"pressure": (0.0, 0.5, 0.9)},
        {"observer": observer},
        {"estimator": 3},
        {"category_budgets": {"references": {"floor": 0.6}, "conversation": {"floor": 0.6}}},
        {"category_budgets": {"references": {"floor": 0.6, "ceiling": 0.5}}},
        {"category_budgets": {"memory": {"ceiling": 0.5}}},
        {"colour": "red"},
    ):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ContextPolicy(**wrong)  # type: ignore[arg-type]


def test_builders_are_immutable() -> None:
    """What one builds is not changed by those derived from it."""
    plain = scripted()
    derived = plain.instruction("a", "x").context_source("s", load).additional_context_file("f.txt")
    options = plain.build().options
    assert (options.instructions, options.sources, options.additional_files) == ((), (), ())
    assert derived.build().options.instructions == (("a", "x"),)


async def test_a_copy_has_the_same_policy_sources_and_selection() -> None:
    """builder_from: by reference, with the Runtime and so the session; what is changed in the copy stays there."""
    policy = ContextPolicy(max_input_tokens=9_000)
    made = scripted("one", "two", context_sources={"s": load}, context_policy=policy, context_selection_policy=in_order)
    agent = made.build()
    await agent.call("first", ALICE)
    copy = HarnessAgent.builder_from(agent).instruction("tone", "Be brief.").build()
    assert copy.options.context_policy is policy
    assert copy.options.selection_policy is in_order
    assert copy.options.sources[0] is agent.options.sources[0]
    assert copy.options.runtime is agent.options.runtime
    await copy.call("second", ALICE)
    first, second = model_of(agent).requests
    assert [message.text for message in second.conversation.messages] == ["first", "one", "second"]
    assert "Be brief." in second.system
    assert "Be brief." not in first.system
    assert agent.options.instructions == ()


def test_an_agent_needs_name_and_model() -> None:
    """build() says what is missing."""
    with pytest.raises(InvalidOption, match="model"):
        HarnessAgent.builder(name="a", workspace=InMemoryWorkspace()).build()
    with pytest.raises(InvalidOption, match="name"):
        HarnessAgent.builder(model=ScriptedModel([]), workspace=InMemoryWorkspace()).build()


def test_a_pipeline_needs_its_operators() -> None:
    """Without the group of preparation, or what no step can do without, nothing is built."""

    def replaced(default: Pipeline) -> Pipeline:
        return default.remove("prepare")

    with pytest.raises(PipelineError, match="prepare"):
        scripted().pipeline(replaced).build()
    for name in ("begin_request", "commit_history", "call_model"):
        with pytest.raises(PipelineError, match=name):
            scripted().pipeline(lambda default, name=name: default.remove(name)).build()


def test_the_default_pipeline_prints() -> None:
    """Operators in their order, with what there is to know of each; the report is outside of all that users add."""
    builder = (
        scripted()
        .context_source("change-record", load)
        .context_source("news", load, timeout=1, on_failure=SourceFailurePolicy.OMIT)
    )
    printed = str(builder.build().pipeline)
    names = [line.split()[0] for line in printed.splitlines()]
    assert names == [
        "step",
        "request",
        "prepare",
        "begin_request",
        "load_materials",
        "load_sources",
        "attach_files",
        "assemble_request",
        "offload_tool_results",
        "evict_optional_blocks",
        "prune_tool_results",
        "compact_history",
        "offload_to_fit",
        "validate_request",
        "commit_history",
        "call_model",
        "run_tools",
    ]
    assert "(recover_overflow)" in printed.splitlines()[1]
    assert "50 messages since the last and 50% full, or over budget; tail 25%, 2,000 to 8,000" in printed
    assert "(report_context)" in printed.splitlines()[2]
    assert "change-record (5 s, fail), news (1 s, omit)" in printed
    assert "memory, knowledge, other; priority, id" in printed


# -- calling ------------------------------------------------------------------------------------------------


async def test_a_builder_makes_an_agent_for_each_subscription_and_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """builder.call and builder.stream_events: made when subscribed, closed before the end is told."""
    told: list[str] = []
    close, made = Agent[Any].close, HarnessAgent._make_pipeline  # pyright: ignore[reportPrivateUsage]

    async def closing(agent: Agent[Any], **options: Any) -> None:
        await close(agent, **options)
        told.append("closed")

    def making(agent: HarnessAgent, options: Any) -> Pipeline:
        told.append("made")
        return made(agent, options)

    monkeypatch.setattr(Agent, "close", closing)
    monkeypatch.setattr(HarnessAgent, "_make_pipeline", making)
    builder = scripted("one", "two", LookupError("no model"))
    reply = builder.call("go", ALICE)
    assert told == []
    assert (await reply).text == "one"
    assert told == ["made", "closed"]
    events = [event async for event in builder.stream_events("go", ALICE)]
    assert events
    assert told == ["made", "closed"] * 2
    with pytest.raises(LookupError):
        await builder.call("go", ALICE)
    assert told == ["made", "closed"] * 3


async def test_the_agent_of_a_builder_refuses_after_its_call() -> None:
    """Also where the subscriber left in the middle: nobody can go on with an agent whose call is over."""
    agents: list[HarnessAgent] = []

    class Kept(HarnessAgent):
        def __init__(self, options: Any) -> None:
            super().__init__(options)
            agents.append(self)

    builder = scripted("one", "two")
    kept = type(builder)(Kept, scripted("one", "two").build().options)
    await kept.call("go", ALICE)
    async with aclosing(aiter(kept.stream_events("go", ALICE))) as events:
        await anext(events)
    for agent in agents:
        with pytest.raises(AgentClosed):
            await agent.call("more", ALICE)
    assert len(agents) == 2


def test_a_builder_works_without_a_loop() -> None:
    """call(...).run() and a plain for, as in the README."""
    builder = scripted("one", "two")
    assert builder.call("go", ALICE).run().text == "one"
    assert [type(event).__name__ for event in builder.stream_events("go", ALICE)][-1] == "AgentEnd"


async def test_ids_are_checked_at_the_call() -> None:
    """Before any file or key is touched."""
    agent = scripted().build()
    with pytest.raises(InvalidIdentifier):
        agent.call("go", RuntimeContext(session_id=" "))
    with pytest.raises(InvalidIdentifier):
        await agent.prepare("go", RuntimeContext(session_id="a\nb"))


async def test_the_prompt_may_be_a_function() -> None:
    """sys_prompt(fn) is asked once a call, with the context; instructions follow what it says."""
    asked: list[RuntimeContext] = []

    def prompt(context: RuntimeContext) -> str:
        asked.append(context)
        return f"You serve {context.user_id}."

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    replies = (fake.tool_calls(("c1", "look", "{}")), "done")
    async with harness(*replies, sys_prompt=prompt, tools=[look], instructions={"a": "Be brief."}) as (agent, provider):
        await agent.call("go", ALICE)
    assert asked == [ALICE]
    for number in (0, 1):
        assert system_of(provider, number).startswith("You serve alice.\n\n<BUSINESS_INSTRUCTION ")


# -- workspace and files ------------------------------------------------------------------------------------


def test_the_workspace_is_given_or_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Explicit, else AGENTSCOPE_WORKSPACE, else .agentscope/workspace below the current folder; made at build."""
    monkeypatch.chdir(tmp_path)
    model = ScriptedModel([])
    monkeypatch.setenv("AGENTSCOPE_WORKSPACE", str(tmp_path / "named"))
    given = HarnessAgent.builder(name="a", model=model, workspace=str(tmp_path / "given")).build()
    named_one = HarnessAgent.builder(name="a", model=model).build()
    monkeypatch.setenv("AGENTSCOPE_WORKSPACE", " ")
    default = HarnessAgent.builder(name="a", model=model).build()
    folders = [agent.options.folder for agent in (given, named_one, default)]
    assert folders == [tmp_path / "given", tmp_path / "named", tmp_path / ".agentscope" / "workspace"]
    assert all(folder is not None and folder.is_dir() for folder in folders)


def test_a_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` is the user's home, and no folder of that name is made."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    agent = HarnessAgent.builder(name="a", model=ScriptedModel([]), workspace="~/ws").build()
    assert agent.options.folder == tmp_path / "ws"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ws"]


def test_a_workspace_that_cannot_be_is_refused_at_build(tmp_path: Path) -> None:
    """A file in its place: the error names the option and the path."""
    (tmp_path / "file").write_text("x")
    builder = HarnessAgent.builder(name="a", model=ScriptedModel([]), workspace=tmp_path / "file")
    with pytest.raises(InvalidOption, match="workspace=.*file"):
        builder.build()


async def test_states_are_kept_in_the_private_part_of_the_workspace(tmp_path: Path) -> None:
    """One file for a session, in folders that nobody else may enter; another process goes on with it."""
    path = tmp_path / "ws"
    sessions = path / RUNTIME_FOLDER / "agents" / folder_name("tester") / "sessions"
    state = sessions / folder_name("alice") / folder_name("s1") / "state.json"
    async with FakeProvider([fake.text("one"), fake.text("two")]) as provider:
        await builder_before(provider, workspace=path).call("first", ALICE)
        assert state.is_file()
        folders = [folder for folder in state.parents if path in folder.parents]
        assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700] * len(folders)
        assert folders[-1].name == RUNTIME_FOLDER
        await builder_before(provider, workspace=path).call("second", ALICE)  # knows nothing of the first one's Runtime
    said = [(m["role"], m["content"]) for m in provider.requests[1].messages]
    start = said.index(("user", "first"))
    assert said[start : start + 3] == [("user", "first"), ("assistant", "one"), ("user", "second")]


async def test_a_state_that_cannot_be_read_is_no_fresh_start(tmp_path: Path) -> None:
    """The call fails and the file stays as it was."""
    async with FakeProvider([fake.text("one")]) as provider:
        await builder_before(provider, workspace=tmp_path).call("first", ALICE)
        (state,) = tmp_path.rglob("state.json")
        state.write_bytes(b"{")
        seen = await watch(builder_before(provider, workspace=tmp_path).build(), "second", ALICE)
    assert isinstance(seen.error, StateUnreadable)
    assert state.read_bytes() == b"{"
    assert len(provider.requests) == 1


async def test_a_state_store_overrules_the_workspace(tmp_path: Path) -> None:
    """Nothing is written beside it; a workspace that is no folder keeps states in memory."""
    await scripted(workspace=tmp_path, state_store=InMemoryStore()).call("go", ALICE)
    assert not (tmp_path / RUNTIME_FOLDER).exists()
    local = LocalWorkspace(tmp_path)
    builder = scripted("one", "two", workspace=local)
    await builder.call("first", ALICE)
    await builder.call("second", ALICE)
    assert not (tmp_path / RUNTIME_FOLDER).exists()
    assert len((await builder.build().state(ALICE)).context) == 4


async def test_tools_of_files_never_see_the_states(tmp_path: Path) -> None:
    """The private part is in no listing that the workspace gives, and no path leads there."""
    builder = scripted(workspace=tmp_path)
    await builder.call("go", ALICE)
    files = builder.build().options.files
    assert [entry.path.name for entry in await files.list()] == []
    with pytest.raises(OSError, match="runtime"):
        await files.list(RUNTIME_FOLDER)


# -- what it costs ------------------------------------------------------------------------------------------


def test_building_reads_and_loads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file, no source, no encoding, no prompt: that is what keeps it under a millisecond (`benchmarks/`)."""

    class Untouched(InMemoryWorkspace):
        async def read(self, path: Any, *, offset: int = 0, limit: int | None = None) -> Any:
            raise AssertionError("a file was read")

        async def list(self, path: Any = ".") -> Any:
            raise AssertionError("a folder was listed")

    def touched(*_: Any) -> Any:
        raise AssertionError("called")

    monkeypatch.setattr(Encodings, "load", touched)
    builder = scripted(workspace=Untouched({"AGENTS.md": "x"}), context_sources={"s": touched}, sys_prompt=touched)
    assert builder.additional_context_file("notes.txt").build().pipeline


async def test_many_calls_at_once_share_a_builder() -> None:
    """Many sessions at a time, each with its own conversation."""
    async with FakeProvider(lambda request, _: fake.text(request.messages[-1]["content"])) as provider:
        builder = builder_before(provider, workspace_context=False)
        contexts = [RuntimeContext(user_id=f"u{at}", session_id="s") for at in range(100)]
        replies = await asyncio.gather(*(builder.call(context.user_id or "", context) for context in contexts))
    assert [reply.text for reply in replies] == [context.user_id for context in contexts]


def test_builders_work_in_several_loops_at_once() -> None:
    """Two threads, each with a loop of its own, one builder."""
    builder, texts = scripted(*["done"] * 4), list[str]()

    def use(user: str) -> None:
        context = RuntimeContext(user_id=user)
        texts.extend(asyncio.run(builder.build().acall("go", context)).text for _ in range(2))

    threads = [threading.Thread(target=use, args=(user,)) for user in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["done"] * 4


# -- what cannot be sent ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "options", "words"),
    [
        (4_096, {"generate_options": GenerateOptions(max_tokens=8_192)}, "generate_options.max_tokens=8192"),
        (4_096, {"generate_options": GenerateOptions(max_completion_tokens=4_096)}, "generate_options.max_tokens=4096"),
        (
            4_096,
            {"context_policy": ContextPolicy(reserved_output_tokens=5_000)},
            "context_policy.reserved_output_tokens",
        ),
        (4_096, {"context_policy": ContextPolicy(safety_margin_tokens=5_000)}, "context_policy.safety_margin_tokens"),
    ],
)
def test_an_answer_that_leaves_no_room_for_input_is_refused_at_build(
    window: int, options: dict[str, Any], words: str
) -> None:
    """The error names the option that is at fault, and the sum."""
    with pytest.raises(InvalidOption, match=r"window of 4,096 tokens") as caught:
        scripted(window=window, **options).build()
    assert words in str(caught.value)


async def test_the_manifest_comes_before_the_request() -> None:
    """context_build lies before MODEL_CALL_START, for each step."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    agent = scripted(calls(("c1", "look", "{}")), "done", tools=[look]).build()
    seen = await watch(agent, "go", ALICE)
    order = [name for name in seen.types if name in ("CUSTOM", "MODEL_CALL_START")]
    assert order == ["CUSTOM", "MODEL_CALL_START"] * 2
    assert len(manifests(seen)) == 2
