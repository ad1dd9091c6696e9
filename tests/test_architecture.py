"""Who may import whom. The tables are the rule; the tests compare every import of the package with them.

Imports count wherever they stand: at the top, in a function, below `if TYPE_CHECKING:`, or as
`import_module("...")`. A new module gets its place in `LAYERS`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

# -- the tables ---------------------------------------------------------------------------------------------


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: Each layer with its modules: the first name below `agentscope_rx`.
LAYERS: Mapping[str, frozenset[str]] = {
    "values": _names(
        "__about__ messages events errors usage history edits blocks requests manifest state records queries"
        " runtime_context wire compactions condensing frozen draft logs token_counter finishing digests prefix"
        " request_tokens loop_local recent task_state permission_context interactions interaction_json secret_names"
        " past differences inbox"
    ),
    "kernel": _names(
        "gates runtime outside emitter step bridge portal streams lifting pipeline pulling shared_run event_stream"
        " attempts reply_writer background_work"
    ),
    "services": _names("models tools workspace stores session context tokens permissions tasks memory compaction"),
    "operators": frozenset({"operators"}),
    "top": _names(
        "pipelines live witness shutdown session_tools call attendance step_loop run agent_sessions agent react_agent"
        " harness_agent harness_builder builder options harness_options preparation verification agent_files"
    ),
    "testing": frozenset({"testing"}),
    "beside": _names("background replay"),
    "edges": _names("cli server __main__ pytest_plugin"),
    "facade": frozenset({"__init__"}),
}

#: Each layer with the layers that its modules may import. A module may always import itself.
MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "values": frozenset({"values"}),
    "kernel": frozenset({"values", "kernel"}),
    "services": frozenset({"values"}),
    "operators": frozenset({"values", "kernel", "services"}),
    "top": frozenset({"values", "kernel", "services", "operators", "top"}),
    "testing": frozenset({"values", "kernel", "services", "operators", "top"}),
    "beside": frozenset({"values", "kernel", "services", "operators", "top", "testing"}),
    "edges": frozenset({"values", "kernel", "services", "operators", "top", "testing", "beside"}),
    "facade": frozenset(set(LAYERS) - {"edges"}),
}

#: Single modules that a layer may import beside those.
MAY_ALSO_IMPORT: Mapping[str, frozenset[str]] = {
    "services": frozenset({"runtime", "step"}),
    "testing": frozenset({"background"}),  # runners are checked, too
}

#: Pairs of modules of one layer in which the first may import the second.
SIDEWAYS: frozenset[tuple[str, str]] = frozenset(
    {
        ("tools", "workspace"),
        ("tasks", "tools"),
        ("tasks", "workspace"),
        ("tasks", "permissions"),
        ("tools", "permissions"),
        ("permissions", "workspace"),
        ("session", "stores"),
        ("compaction", "workspace"),
        ("context", "tokens"),
        ("context", "workspace"),
        ("memory", "workspace"),
        ("memory", "tools"),
        ("memory", "permissions"),
        ("memory", "compaction"),  # untrusted text is quoted in one way
        ("workspace", "stores"),  # ids become names of folders in one way
        ("__main__", "cli"),
    }
)

#: Packages of others, with the modules that may import them.
CONFINED: Mapping[str, frozenset[str]] = {
    "reactivex": _names("bridge portal streams lifting pipeline pulling shared_run event_stream")
    | _names("operators pipelines step_loop run agent builder testing background replay"),
    "openai": frozenset({"models", "testing"}),
    "httpx": frozenset({"models", "testing"}),
    "httpx2": frozenset({"models", "testing"}),
    "sqlalchemy": frozenset({"stores"}),
    "redis": frozenset({"stores"}),
    "fsspec": frozenset({"workspace"}),
    "dbos": frozenset({"background"}),
    "hypothesis": frozenset({"testing"}),
    "subprocess": frozenset({"tools", "workspace", "cli", "testing"}),
}

#: Functions that start a process without an import of `subprocess`; only its modules may use them.
STARTS_A_PROCESS = frozenset({"create_subprocess_exec", "create_subprocess_shell", "popen", "system"})

# -- reading imports ----------------------------------------------------------------------------------------

PACKAGE = "agentscope_rx"
ROOT = Path(__file__).resolve().parents[1]
LAYER_OF = {module: layer for layer, modules in LAYERS.items() for module in modules}


@dataclass(frozen=True)
class Import:
    """One imported name: the absolute module, the name taken from it, the line, and when it happens."""

    module: str
    name: str | None
    line: int
    at_start: bool  # when the module is loaded: not in a function, not for type checkers only

    @property
    def ours(self) -> str | None:
        """The first name below our package, where the import goes to one."""
        head, _, rest = self.module.partition(".")
        return rest.partition(".")[0] if head == PACKAGE and rest else None


@dataclass(frozen=True)
class Source:
    """One file of the package: its place in the tables and its syntax tree."""

    path: str
    module: str  # the first name below our package
    package: str  # what its relative imports start from
    tree: ast.Module

    @property
    def imports(self) -> Sequence[Import]:
        return tuple(_imports(self.tree, self.package, at_start=True))


def planted(module: str, code: str) -> Source:
    """A source that is not on disk, for the tests of the rules themselves."""
    return Source(path=f"{module}.py", module=module, package=PACKAGE, tree=ast.parse(code))


def _imports(node: ast.AST, package: str, *, at_start: bool) -> Iterator[Import]:
    match node:
        case ast.Import(names=names):
            for alias in names:
                yield Import(alias.name, None, node.lineno, at_start)
        case ast.ImportFrom(module=module, names=names, level=level):
            origin = _absolute(module or "", level, package)
            for alias in names:
                yield Import(origin, alias.name, node.lineno, at_start)
        case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=[ast.Constant(value=str(name)), *_]):
            if called in {"import_module", "__import__"}:
                dots = len(name) - len(name.lstrip("."))
                yield Import(_absolute(name[dots:], dots, package), None, node.lineno, at_start)
        case _:
            pass
    if isinstance(node, ast.If) and _for_type_checkers(node.test):
        for child in node.body:
            yield from _imports(child, package, at_start=False)
        for child in node.orelse:
            yield from _imports(child, package, at_start=at_start)
        return
    inside = at_start and not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    for child in ast.iter_child_nodes(node):
        yield from _imports(child, package, at_start=inside)


def _absolute(module: str, level: int, package: str) -> str:
    if not level:
        return module
    parts = package.split(".")
    return ".".join([*parts[: len(parts) - level + 1], *([module] if module else [])])


def _for_type_checkers(test: ast.expr) -> bool:
    match test:
        case ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"):
            return True
        case _:
            return False


@cache
def package_sources() -> Sequence[Source]:
    """All files of the package; those of `operators` from their real folder, not through the link."""
    package, operators = ROOT / PACKAGE, ROOT / "operators"
    files = [(path, path.relative_to(package)) for path in package.rglob("*.py")]
    files = [(path, inner) for path, inner in files if inner.parts[0] != "operators"]
    files += [(path, path.relative_to(ROOT)) for path in operators.rglob("*.py")]
    return tuple(
        Source(
            path=str(path.relative_to(ROOT)),
            module=inner.parts[0].removesuffix(".py"),
            package=".".join([PACKAGE, *inner.parts[:-1]]),
            tree=ast.parse(path.read_bytes()),
        )
        for path, inner in sorted(files)
    )


# -- the rules ----------------------------------------------------------------------------------------------


def without_layer(source: Source) -> list[str]:
    names = {source.module, *(found.ours for found in source.imports if found.ours)}
    return [
        f"{source.path}: {PACKAGE}.{name} has no layer; add it to LAYERS in tests/test_architecture.py"
        for name in sorted(names)
        if name not in LAYER_OF
    ]


def out_of_layer(source: Source) -> list[str]:
    layer = LAYER_OF.get(source.module)
    if layer is None:
        return []
    allowed = {module for name in MAY_IMPORT[layer] for module in LAYERS[name]}
    allowed |= MAY_ALSO_IMPORT.get(layer, frozenset())
    allowed |= {to for module, to in SIDEWAYS if module == source.module} | {source.module}
    return [
        f"{source.path}:{found.line}: {source.module} ({layer}) may not import {found.module}"
        for found in source.imports
        if found.ours in LAYER_OF and found.ours not in allowed
    ]


def out_of_bounds(source: Source, *packages: str) -> list[str]:
    return [
        f"{source.path}:{found.line}: {source.module} may not import {package}"
        for package in packages
        if source.module not in CONFINED[package]
        for found in source.imports
        if found.module.split(".")[0] == package
    ]


def starting_processes(source: Source) -> list[str]:
    if source.module in CONFINED["subprocess"]:
        return []
    from_asyncio = [
        found.line
        for found in source.imports
        if found.module == "asyncio.subprocess" or (found.module, found.name) == ("asyncio", "subprocess")
    ]
    called = [
        node.lineno
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute)
        and node.attr in STARTS_A_PROCESS
        and isinstance(node.value, ast.Name)
        and node.value.id in {"asyncio", "os"}
    ]
    imported = [
        found.line for found in source.imports if found.module in {"asyncio", "os"} and found.name in STARTS_A_PROCESS
    ]
    return out_of_bounds(source, "subprocess") + [
        f"{source.path}:{line}: {source.module} may not start a process"
        for line in sorted(from_asyncio + called + imported)
    ]


def through_the_facade(source: Source) -> list[str]:
    return [
        f"{source.path}:{found.line}: import from the submodule, not from {PACKAGE} itself"
        for found in source.imports
        if found.module == PACKAGE
    ]


def bare_operators(source: Source) -> list[str]:
    return [
        f"{source.path}:{found.line}: import agentscope_rx.operators; a bare `operators` is a second copy"
        for found in source.imports
        if found.module.split(".")[0] == "operators"
    ]


def circle(sources: Sequence[Source]) -> list[str]:
    """The modules of the first circle found among imports that run when modules are loaded."""
    graph: dict[str, set[str]] = {source.module: set() for source in sources if source.module != "__init__"}
    for source in sources:
        if source.module in graph:
            targets = {found.ours for found in source.imports if found.at_start and found.ours in graph}
            graph[source.module] |= {target for target in targets if target and target != source.module}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(name) for name in error.args[1]]
    return []


def in_layer(layer: str) -> list[str]:
    return [line for source in package_sources() if source.module in LAYERS[layer] for line in out_of_layer(source)]


def report(violations: Sequence[str]) -> str:
    return "\n" + "\n".join(violations)


# -- the rules hold -----------------------------------------------------------------------------------------


def test_every_module_has_a_layer() -> None:
    """Every module of the package, and every one that is imported, stands in `LAYERS`, once."""
    found = [line for source in package_sources() for line in without_layer(source)]
    assert not found, report(found)
    assert sum(map(len, LAYERS.values())) == len(LAYER_OF)


def test_values_import_only_values() -> None:
    """Values import values."""
    assert not (found := in_layer("values")), report(found)


def test_the_kernel_imports_only_values_and_itself() -> None:
    """The kernel imports values and the kernel."""
    assert not (found := in_layer("kernel")), report(found)


def test_services_import_values_and_three_modules_of_the_kernel() -> None:
    """Services import values, `wire`, `runtime` and `step`; one another only where `SIDEWAYS` says so."""
    assert not (found := in_layer("services")), report(found)


def test_operators_import_nothing_above_services() -> None:
    """Operators import values, kernel and services."""
    assert not (found := in_layer("operators")), report(found)


def test_agents_import_nothing_above_themselves() -> None:
    """The agents and what assembles them import all below, and one another."""
    assert not (found := in_layer("top")), report(found)


def test_the_testing_kit_imports_agents_and_below() -> None:
    """The testing kit imports agents and all below, never an edge."""
    assert not (found := in_layer("testing")), report(found)


def test_background_and_replay_do_not_know_each_other() -> None:
    """`background` and `replay` stand on the agents, and import neither each other nor an edge."""
    assert not (found := in_layer("beside")), report(found)


def test_edges_do_not_know_each_other() -> None:
    """Edges import all below and never each other; `python -m agentscope_rx` starts the command line."""
    assert not (found := in_layer("edges")), report(found)


def test_the_facade_exports_no_edge() -> None:
    """`import agentscope_rx` reaches no edge."""
    assert not (found := in_layer("facade")), report(found)


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    """Imports that run when modules are loaded form no circle."""
    assert not (found := circle(package_sources())), " -> ".join(found)


def test_reactivex_stays_where_it_is_known() -> None:
    """Only kernel, operators, agents and what stands on them know Rx; services are plain async Python."""
    found = [line for source in package_sources() for line in out_of_bounds(source, "reactivex")]
    assert not found, report(found)


def test_http_clients_stay_in_models() -> None:
    """Only `models` and the testing kit import an HTTP client or a provider's SDK."""
    clients = ("openai", "httpx", "httpx2")
    found = [line for source in package_sources() for line in out_of_bounds(source, *clients)]
    assert not found, report(found)


def test_databases_stay_in_stores() -> None:
    """Only `stores` imports what talks to a database."""
    found = [line for source in package_sources() for line in out_of_bounds(source, "sqlalchemy", "redis")]
    assert not found, report(found)


def test_object_stores_stay_in_the_workspace() -> None:
    """Only `workspace` imports what talks to an object store."""
    found = [line for source in package_sources() for line in out_of_bounds(source, "fsspec")]
    assert not found, report(found)


def test_a_program_needs_no_test_framework() -> None:
    """Only the testing kit imports hypothesis."""
    found = [line for source in package_sources() for line in out_of_bounds(source, "hypothesis")]
    assert not found, report(found)


def test_processes_start_in_few_places() -> None:
    """Only tools, workspace, command line and testing kit start processes, by whichever function."""
    found = [line for source in package_sources() for line in starting_processes(source)]
    assert not found, report(found)


def test_nothing_inside_imports_the_facade() -> None:
    """Inside the package every import names the submodule; the facade is for users."""
    found = [line for source in package_sources() for line in through_the_facade(source)]
    assert not found, report(found)


def test_operators_have_one_name() -> None:
    """Nothing, tests and examples included, imports `operators` without `agentscope_rx` in front."""
    others = [
        Source(
            path=str(path.relative_to(ROOT)),
            module=path.stem,
            package=folder,
            tree=ast.parse(path.read_bytes()),
        )
        for folder in ("tests", "examples", "benchmarks")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "rig" not in path.parts
    ]
    found = [line for source in (*package_sources(), *others) for line in bare_operators(source)]
    assert not found, report(found)


# -- the rules find what is planted -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("messages", "from agentscope_rx.step import Step"),
        ("messages", "import agentscope_rx.step"),
        ("messages", "from .step import Step"),
        ("messages", "def later():\n    from agentscope_rx.step import Step"),
        ("messages", "if TYPE_CHECKING:\n    from agentscope_rx.step import Step"),
        ("messages", "import_module('agentscope_rx.step')"),
        ("messages", "importlib.import_module('.step', __package__)"),
        ("step", "from agentscope_rx.models import ChatModel"),
        ("models", "from agentscope_rx.streams import chain"),
        ("tools", "from agentscope_rx.session.log import SessionLog"),
        ("workspace", "from agentscope_rx.tools import tool"),
        ("operators", "from agentscope_rx.run import Reply"),
        ("run", "from agentscope_rx.testing import ScriptedModel"),
        ("testing", "from agentscope_rx.cli import main"),
        ("replay", "from agentscope_rx.background import AgentSession"),
        ("server", "from agentscope_rx.cli import main"),
        ("__init__", "from agentscope_rx.cli import main"),
    ],
)
def test_an_import_against_the_direction_is_found(module: str, code: str) -> None:
    """One planted violation for each layer and each way to import."""
    assert len(out_of_layer(planted(module, code))) == 1


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("events", "from agentscope_rx.messages import Msg"),
        ("streams", "from agentscope_rx.step import Step"),
        ("models", "from agentscope_rx.wire import dumps"),
        ("models", "from agentscope_rx.models.openai import OpenAIChatModel"),
        ("tools", "from agentscope_rx.workspace import Workspace"),
        (
            "operators",
            "from agentscope_rx.operators._lift import lift\nfrom agentscope_rx.tokens import count",
        ),
        ("builder", "from agentscope_rx.harness_agent import HarnessAgent"),
        ("__main__", "from agentscope_rx.cli import main"),
        ("messages", "import json, agentscope_rx_other.step"),
    ],
)
def test_an_import_with_the_direction_is_allowed(module: str, code: str) -> None:
    """The rules refuse no more than they say."""
    assert out_of_layer(planted(module, code)) == []


def test_an_unknown_module_is_found() -> None:
    """A module without a layer is named, whether it exists or is only imported."""
    (own,) = without_layer(planted("helpers", "import json"))
    (imported,) = without_layer(planted("messages", "from agentscope_rx.utils import first"))
    assert "agentscope_rx.helpers has no layer; add it to LAYERS" in own
    assert "agentscope_rx.utils has no layer; add it to LAYERS" in imported


@pytest.mark.parametrize("package", sorted(CONFINED))
def test_a_package_out_of_bounds_is_found(package: str) -> None:
    """A confined package is found in a module that may not know it, and only there."""
    code = f"import {package}.part as part"
    assert out_of_bounds(planted("messages", code), package) == [f"messages.py:1: messages may not import {package}"]
    assert [name for name in sorted(CONFINED[package]) if out_of_bounds(planted(name, code), package)] == []


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess",
        "from subprocess import run",
        "from asyncio import subprocess",
        "from asyncio.subprocess import PIPE",
        "await_me = asyncio.create_subprocess_exec('ls')",
        "from asyncio import create_subprocess_shell",
        "os.system('ls')",
    ],
)
def test_a_started_process_is_found(code: str) -> None:
    """Every usual way to start a process is found in a module that may not, and allowed in `tools`."""
    assert len(starting_processes(planted("stores", code))) == 1
    assert starting_processes(planted("tools", code)) == []


@pytest.mark.parametrize("code", ["import agentscope_rx", "from agentscope_rx import tool", "from . import messages"])
def test_an_import_of_the_facade_is_found(code: str) -> None:
    """Each way to import the facade is found; a submodule is none."""
    assert len(through_the_facade(planted("run", code))) == 1
    assert through_the_facade(planted("run", "from agentscope_rx.tools import tool")) == []


@pytest.mark.parametrize("code", ["import operators", "from operators._map import map_", "import operators.x"])
def test_a_bare_import_of_operators_is_found(code: str) -> None:
    """Each way to import `operators` bare is found; the full name and reactivex's are none."""
    assert len(bare_operators(planted("run", code))) == 1
    full = "from agentscope_rx.operators import call_model\nfrom reactivex import operators as ops"
    assert bare_operators(planted("run", full)) == []


def test_a_circle_is_found() -> None:
    """A circle through module-level imports is named; one that closes in a function or for types is none."""
    step = planted("step", "from agentscope_rx.streams import chain")
    assert set(circle([step, planted("streams", "from agentscope_rx.step import Step")])) == {
        "step",
        "streams",
    }
    assert circle([step, planted("streams", "def f():\n    from agentscope_rx.step import Step")]) == []
    assert circle([step, planted("streams", "if TYPE_CHECKING:\n    from agentscope_rx.step import Step")]) == []
