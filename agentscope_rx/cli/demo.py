"""`agentscope-rx demo`: watch an agent work on a real folder."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import agentscope_rx.pipelines as pipelines
from agentscope_rx.cli.exit_codes import ExitCode, code_of
from agentscope_rx.cli.run import NAME, agent_builder, chosen_model, folder_of
from agentscope_rx.cli.scenes import SCENES
from agentscope_rx.cli.stage import Stage
from agentscope_rx.cli.story import TASK, Story
from agentscope_rx.pipeline import Pipeline
from agentscope_rx.requests import Model

_PACE: Final = 0.032  # seconds between two words: about as fast as one reads
_MAX_ITERS: Final = 30
_SCRIPTED: Final = (
    "The model is scripted, so this needs no key and no network. The rest is real: the folder, the tools that look "
    "at it, and a streaming HTTP connection to a provider on this machine. The script decides what to do next from "
    "what the tools found."
)
_OF_PEOPLE: Final = (
    "A real model gets a task about a real folder, and tools that can look at it. What it does is up to the model."
)


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """The options of `demo`.

    Args:
        model: A real model as provider:model, or `local` for a small one on this machine; else the environment
            variable AGENTSCOPE_RX_MODEL says it, and without that the model is scripted.
        json: Print every event as one line of JSON.
        fast: Do not wait between the words of the scripted model.
        debug: Show the traceback of an error.
    """

    model: str | None = None
    json: bool = False
    fast: bool = False
    debug: bool = False


async def demo(options: DemoOptions) -> ExitCode:
    """Play the demo.

    Args:
        options: With which model, and how fast.

    Raises:
        ConfigError: The model cannot be had.
        AgentScopeError: A run failed.
    """
    stage = Stage(json=options.json)
    wanted = chosen_model(options.model)
    folder = demo_folder(Path.cwd())
    if wanted == "local":
        from agentscope_rx.cli.local_demo import local_demo

        return await local_demo(stage, folder)
    with _scripted(0 if options.fast else _PACE) if wanted is None else _as_it_is(wanted) as model:
        agent = agent_builder(model, folder_of(folder), max_iters=_MAX_ITERS).build()
        async with agent:
            _introduce(stage, wanted, agent.pipeline, folder)
            result = await stage.play(agent, TASK)
    stage.summarise("" if wanted else " · tokens are estimates, at four bytes each")
    _say_how_to_go_on(stage)
    return code_of(result.reason)


def demo_folder(here: Path) -> Path:
    """The folder to explore: the current one where it is a checkout of this library, else the library's own.

    Args:
        here: The current folder.
    """
    if (here / "agentscope_rx" / "pipelines.py").is_file() and (here / "operators").is_dir():
        return here
    package = Path(pipelines.__file__).parent
    # In a checkout the operators lie beside the package, and a link that leads out of a workspace is refused.
    return package.parent if (package / "operators").is_symlink() else package


@contextmanager
def _scripted(pace: float) -> Generator[Model]:
    from agentscope_rx.models.http_chat import HttpxChatModel
    from agentscope_rx.testing.fake_provider import FakeProvider

    with FakeProvider.in_thread(Story(SCENES, pace=pace)) as provider:
        yield HttpxChatModel("scripted", base_url=provider.base_url)


@contextmanager
def _as_it_is(model: str) -> Generator[str]:
    yield model


def _introduce(stage: Stage, wanted: str | None, pipeline: Pipeline, folder: Path) -> None:
    stage.say(f"{NAME} demo", "bold")
    stage.say(_OF_PEOPLE if wanted else _SCRIPTED)
    stage.space()
    stage.say("Every numbered step below goes through this pipeline, whose operators can be replaced one by one:")
    stage.block("\n".join(f"  {line}" for line in str(pipeline).splitlines()), "cyan")
    stage.space()
    stage.fact("model", wanted or "scripted, over HTTP")
    stage.fact("folder", str(folder))


def _say_how_to_go_on(stage: Stage) -> None:
    stage.space()
    stage.block("Go on", "bold")
    stage.say("All of the above came out of one observable, agent.stream_events(task). To see it raw:", indent=2)
    stage.block(f"    {NAME} demo --json --fast", "cyan")
    stage.say("With your model (for openai the key is OPENAI_API_KEY), on the folder that you are in:", indent=2)
    stage.block(f'    {NAME} run "What is in this folder?" --model openai:gpt-5-mini', "cyan")
    stage.say("With a small real model on this machine, without a key (about 200 MB):", indent=2)
    stage.block(f"    {NAME} demo --model local", "cyan")
