"""The toolkit is a value: what is on offer, in which order, and what cannot be put together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Annotated, Any

import pytest

from agentscope_rx.errors import InvalidOption
from agentscope_rx.messages import ToolUseBlock
from agentscope_rx.tools import ToolGroup, Toolkit, schema_tool, tool
from agentscope_rx.tools.execution import batches


@tool(read_only=True)
async def read(path: str) -> str:
    """Read a file."""
    return path


@tool(concurrency_safe=False)
def write(path: str, text: str = "") -> str:
    """Write a file."""
    return path + text


async def search(query: str, limit: int = 10) -> str:
    """Search the web."""
    return f"{query} {limit}"


@tool
def fetch(url: str) -> str:
    """Fetch a page."""
    return url


class Desk:
    @tool
    def tidy(self) -> str:
        """Tidy up."""
        return "tidy"


WEB = Toolkit.of(read).group("web", "Read the web.", search, fetch).group("disk", "Change files.", write, active=True)


def names(toolkit: Toolkit, *groups: str) -> list[str]:
    return [spec.name for spec in toolkit.specs(groups)]


def calls(*wanted: str) -> list[ToolUseBlock]:
    return [ToolUseBlock(id=str(index), name=name) for index, name in enumerate(wanted)]


# -- a value ------------------------------------------------------------------------------------------------


def test_every_method_gives_a_new_toolkit() -> None:
    """What somebody else holds never changes."""
    first = Toolkit.of(read)
    second = first.add(write).remove("read").configure(parallel=False)
    assert (first.names, first.parallel) == (("read",), True)
    assert (second.names, second.parallel) == (("write",), False)
    assert first == Toolkit.of(read)
    with pytest.raises(FrozenInstanceError):
        first.parallel = False  # type: ignore[misc]


def test_the_defaults_are_documented_ones() -> None:
    """Parallel, five minutes, a million characters, no meta tool."""
    toolkit = Toolkit.of()
    assert (toolkit.parallel, toolkit.default_timeout, toolkit.max_result_chars) == (True, 300.0, 1_000_000)
    assert toolkit.specs() == ()


def test_the_same_groups_give_the_same_tuple() -> None:
    """Who remembers by identity sees that nothing has changed; a new toolkit keeps the old specs."""
    assert WEB.specs(["web", "disk"]) is WEB.specs({"disk", "web"})
    assert WEB.specs() is WEB.specs(WEB.default_groups)
    assert WEB.specs({"web", "gone"}) is WEB.specs({"web"})
    assert WEB.add(tool(search, name="more")).specs(())[0] is WEB.specs(())[0]


def test_functions_become_tools() -> None:
    """A plain function, a bound method and a tool may all be handed in."""
    toolkit = Toolkit.of(search, Desk().tidy, schema_tool("pay", "Pay.", {}))
    assert toolkit.names == ("search", "tidy", "pay")
    assert toolkit.specs()[0].description == "Search the web."


# -- groups -------------------------------------------------------------------------------------------------


def test_only_active_groups_are_on_offer() -> None:
    """Tools without a group come first and always; the others with their group, in the order of groups."""
    assert [spec.name for spec in WEB.specs()] == ["read", "write"]
    assert names(WEB) == ["read"]
    assert names(WEB, "disk", "web") == ["read", "search", "fetch", "write"]
    assert names(WEB.add(tool(read, name="late")), "web") == ["read", "late", "search", "fetch"]


def test_find_sees_what_the_model_sees() -> None:
    """A tool of an inactive group is not found, though the toolkit knows it."""
    assert WEB.find("write") is write
    assert WEB.find("write", ()) is None
    assert WEB.find("fetch", ["web"]) is fetch
    assert WEB.find("nothing") is None
    entry = WEB.entry("fetch")
    assert entry is not None
    assert entry.group == "web"


def test_the_meta_tool_names_the_groups() -> None:
    """The model is told every group, active or not, and can name no other."""
    spec: Any = WEB.with_meta_tool().specs(())[-1]
    assert spec.name == "reset_equipped_tools"
    assert "- web: Read the web.\n- disk: Change files." in spec.description
    assert spec.parameters["properties"]["to_activate"]["items"]["enum"] == ["web", "disk"]
    assert names(Toolkit.of(read).with_meta_tool()) == ["read"]  # nothing to choose from
    assert names(WEB.with_meta_tool().remove("reset_equipped_tools")) == ["read"]


# -- presets ------------------------------------------------------------------------------------------------


def test_presets_are_hidden_from_the_schema() -> None:
    """The model sees neither the argument nor that it is required; the tool itself is as it was."""
    toolkit = Toolkit.of(search, read).preset("search", query="x").preset("search", limit=3)
    spec = toolkit.specs()[0]
    assert (spec.parameters["properties"], spec.parameters["required"]) == ({}, [])
    assert toolkit.presets("search") == {"query": "x", "limit": 3}
    assert toolkit.presets("read") == toolkit.presets("nothing") == {}
    assert Toolkit.of(search).specs()[0].parameters["required"] == ["query"]


# -- what is refused ----------------------------------------------------------------------------------------


@tool(name="read")
def read_again(path: Annotated[str, "which"]) -> str:
    """Read it again."""
    return path


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Toolkit.of(read, read_again), ["'read'", "test_toolkit.read and ", "test_toolkit.read_again"]),
        (lambda: WEB.add(fetch), ["'fetch'"]),
        (lambda: WEB.with_meta_tool().add(tool(read, name="reset_equipped_tools")), ["GroupSwitch"]),
        (lambda: WEB.group("web", "Again."), ["'web'"]),
        (lambda: WEB.group("a b", "Blank in it."), ["'a b'"]),
        (lambda: WEB.group("mail", " "), ["description"]),
        (lambda: ToolGroup(name="", description="x"), ["group=''"]),
        (lambda: WEB.remove("nothing"), ["'nothing'", "read, search, fetch, write"]),
        (lambda: WEB.preset("nothing", x=1), ["'nothing'", "read, search, fetch, write"]),
        (lambda: WEB.preset("read", x=1), ["x=1", "read", "path"]),
        (lambda: WEB.preset("search", limit="many"), ["limit='many'", "valid integer"]),
        (lambda: Toolkit.of(default_timeout=0), ["default_timeout=0"]),
        (lambda: Toolkit.of(max_result_chars=10), ["max_result_chars=10", "1,000"]),
        (lambda: Toolkit.of(Desk.tidy), ["instance.method"]),
        (lambda: Toolkit.of(Desk), ["give functions"]),  # type: ignore[arg-type]
        (lambda: Toolkit.of("read"), ["'read'", "give functions"]),  # type: ignore[arg-type]
    ],
)
def test_what_does_not_fit_is_refused_at_once(make: Callable[[], object], told: list[str]) -> None:
    """A mistake is an `InvalidOption` where it is made; it names the value and what there is instead."""
    with pytest.raises(InvalidOption) as raised:
        make()
    for part in told:
        assert part in str(raised.value)


# -- batches ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "sizes"),
    [
        ([], []),
        (["read"], [1]),
        (["read", "fetch", "read"], [3]),
        (["read", "write", "read", "read"], [1, 1, 2]),
        (["write", "write"], [1, 1]),
        (["read", "unknown", "read"], [3]),
        (["read", "read", "write"], [2, 1]),
    ],
)
def test_neighbouring_safe_calls_run_together(wanted: list[str], sizes: list[int]) -> None:
    """An unsafe call runs alone, in its place; an unknown name counts as safe; the order is the model's."""
    found = batches(calls(*wanted), WEB)
    assert [len(batch) for batch in found] == sizes
    assert [call.name for batch in found for call in batch] == wanted


def test_without_parallel_every_call_runs_alone() -> None:
    """`parallel=False` means one after another, whatever the tools say."""
    found = batches(calls("read", "read", "write"), WEB.configure(parallel=False))
    assert [len(batch) for batch in found] == [1, 1, 1]
