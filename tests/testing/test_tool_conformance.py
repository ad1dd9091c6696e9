"""The check of tools: ours pass it, and each broken one is told which rule it breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from agentscope_rx.errors import ConformanceFailed
from agentscope_rx.requests import ToolSpec
from agentscope_rx.testing import check_tool
from agentscope_rx.tools import Tool, ToolContext, tool
from agentscope_rx.tools.file_tools import file_tools
from agentscope_rx.workspace import InMemoryWorkspace
from tests.virtual import virtual

GOOD: Mapping[str, object] = {"path": "a.txt", "lines": [1, 2]}


async def test_tools_that_come_along() -> None:
    """The file tools keep every rule."""

    def named(name: str) -> Callable[[], Tool]:
        def make() -> Tool:
            workspace = InMemoryWorkspace({"a.txt": b"alpha\n"})
            return next(each for each in file_tools(workspace) if each.spec.name == name)

        return make

    await check_tool(named("read_file"), {"path": "a.txt"}, failing={"path": "missing"})
    await check_tool(named("grep_files"), {"pattern": "alpha"}, failing={"pattern": "alpha", "path": ".."})
    await check_tool(named("list_files"), {"path": "."}, failing={"path": "missing"})


@virtual
async def test_tools_that_wait() -> None:
    """A tool that takes minutes is checked at once in virtual time, an external one as one that waits."""

    @tool
    async def slow(path: str) -> str:
        """Wait."""
        await asyncio.sleep(200)
        if path == "none":
            raise ValueError("there is none")
        return path

    @tool(external=True)
    def elsewhere(path: str) -> str:
        """Somebody else does it."""
        raise NotImplementedError

    await check_tool(lambda: slow, {"path": "a.txt"}, failing={"path": "none"}, patience=600)
    await check_tool(lambda: elsewhere, {"path": "a.txt"})
    with pytest.raises(ConformanceFailed, match="a call ends; after 60 s this one had not"):
        await check_tool(lambda: slow, {"path": "a.txt"})


class Broken(Tool):
    """A tool that breaks one rule."""

    def __init__(self, fault: str) -> None:
        self.fault, self.busy = fault, False
        self.loop: asyncio.AbstractEventLoop | None = None
        self.tasks: list[asyncio.Task[None]] = []
        self.own = self.made()

    def made(self) -> ToolSpec:
        kind = "array" if self.fault == "schema" else "object"
        parameters: dict[str, Any] = {
            "type": kind,
            "properties": {"path": {"type": "string"}, "lines": {"type": "array"}},
            "required": ["path", "lines"],
        }
        if self.fault == "no JSON":
            parameters["default"] = {1, 2}
        name = "look at it" if self.fault == "name" else "look"
        return ToolSpec(name=name, description=" " if self.fault == "silent" else "Look.", parameters=parameters)

    @property
    def spec(self) -> ToolSpec:
        return self.made() if self.fault == "another spec" else self.own

    @property
    def concurrency_safe(self) -> bool:
        return "yes" if self.fault == "fact" else True  # type: ignore[reportReturnType]

    async def call(self, arguments: Mapping[str, object], context: ToolContext, /) -> object:
        loop = asyncio.get_running_loop()
        self.loop = self.loop or loop
        match self.fault:
            case "fails":
                raise ValueError("no")
            case "changes":
                arguments["lines"].append(3)  # type: ignore[reportUnknownMemberType, reportAttributeAccessIssue, reportIndexIssue]
            case "task":
                self.tasks.append(loop.create_task(asyncio.sleep(3_600)))
                await asyncio.sleep(0)
                self.tasks[-1].cancel()
            case "one loop" if loop is not self.loop:
                raise ValueError("another loop")
            case "alone" if self.busy:
                raise ValueError("busy")
            case _:
                pass
        self.busy = True
        await asyncio.sleep(0)
        self.busy = False
        return "fine"


FAULTS = {
    "another spec": "spec is the same object each time",
    "name": "a name has 1 to 64 of",
    "silent": "a description says what the tool is for",
    "schema": "the parameters are the JSON schema of an object",
    "no JSON": "the schema is plain JSON",
    "fact": "concurrency_safe is True or False",
    "fails": "it succeeds with",
    "changes": "the arguments are not changed",
    "task": "a call that is cancelled leaves no task behind",
    "alone": "calls side by side succeed, or concurrency_safe is False",
    "one loop": "it can be called from several event loops",
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_broken_tool(fault: str) -> None:
    """Each rule is broken by some tool, and is then named."""
    made: list[Broken] = []

    def make() -> Broken:
        made.append(Broken(fault))
        return made[-1]

    try:
        with pytest.raises(ConformanceFailed, match=FAULTS[fault]):
            await check_tool(make, GOOD)
    finally:
        for task in [task for each in made for task in each.tasks if not task.done()]:
            task.cancel()


async def test_arguments_that_must_fail() -> None:
    """Arguments that are said to fail and do not are told, and so is a tool that takes what its schema forbids."""

    @tool
    def look(path: str) -> str:
        """Look."""
        return path

    with pytest.raises(ConformanceFailed, match="it fails with {'path': 'b'}"):
        await check_tool(lambda: look, {"path": "a"}, failing={"path": "b"})
