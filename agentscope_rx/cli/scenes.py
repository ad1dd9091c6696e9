"""The scenes of the demo's story, in order. Each looks at the results of the calls of the one before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from agentscope_rx.cli.story import Notes, Scene, emitted, files, matches, operators_in
from agentscope_rx.cli.tally import counted

Results: TypeAlias = Sequence[str]

#: Looked for in the sources. Put together where they are used, so that this file is not among the matches.
_MAKER: Final = "react_pipeline"
_EVENTS: Final = "ev"


def look_around(notes: Notes, results: Results) -> Scene:
    """The first look."""
    return Scene(
        thinking="I know nothing about this folder yet. Before I search I should see how it is laid out.",
        text="Let me look around.",
        calls=[("list_files", {"path": "."})],
    )


def find_the_pipeline(notes: Notes, results: Results) -> Scene:
    """Where is the default pipeline made?"""
    entries = results[0].splitlines()
    notes.home = "agentscope_rx" if "[DIR] agentscope_rx" in entries else "."
    notes.tests = "tests" if "[DIR] tests" in entries else ""
    kind = "a checkout with tests" if notes.tests else "the installed package itself"
    return Scene(
        thinking=f"{len(entries)} entries: this is {kind}. The default pipeline must be made by some function.",
        text="I search for the function that makes the default pipeline.",
        calls=[("grep_files", {"pattern": f"def {_MAKER}(", "path": notes.home, "glob": "*.py"})],
    )


def read_the_pipeline(notes: Notes, results: Results) -> Scene:
    """The file that was found."""
    found = matches(results[0])
    notes.pipeline, notes.pipeline_line, _ = found[0] if found else (notes.within("pipelines.py"), 1, "")
    return Scene(
        text=f"There it is: line {notes.pipeline_line} of {notes.pipeline}. I read it.",
        calls=[("read_file", {"path": notes.pipeline})],
    )


def list_the_operators(notes: Notes, results: Results) -> Scene:
    """The operators by name, and where they live."""
    notes.operators = operators_in(results[0], _MAKER)
    first, last = (notes.operators or ("?",))[0], (notes.operators or ("?",))[-1]
    return Scene(
        thinking="Each `op.name(...)` in there is an operator, and their order is the order of the work.",
        text=f"A step runs through {counted(len(notes.operators), 'operator')}, from {first} to {last}. "
        "Each should be a file of its own.",
        calls=[("list_files", {"path": "operators"})],
    )


def read_two_at_once(notes: Notes, results: Results) -> Scene:
    """The first operator and the smallest one, side by side."""
    notes.sizes = {path: size for path, size in files(results[0]).items() if not path.endswith("__init__.py")}
    first = f"operators/_{notes.operators[0]}.py" if notes.operators else notes.largest
    others = [path for path in notes.sizes if path != first]
    smallest = min(others, key=lambda path: notes.sizes[path], default=notes.largest)
    return Scene(
        text=f"{counted(len(notes.sizes), 'file')}, {sum(notes.sizes.values()):,} bytes together. I read the first "
        "operator and the smallest one; both at once, since neither depends on the other.",
        calls=[("read_file", {"path": path, "limit": 40}) for path in (first, smallest)],
    )


def read_the_largest(notes: Notes, results: Results) -> Scene:
    """The largest operator."""
    marbles = sum("--s-" in result for result in results)
    return Scene(
        thinking=f"{marbles} of {len(results)} have a marble diagram: one step goes in, one comes out.",
        text=f"The largest is {notes.largest} with {notes.sizes.get(notes.largest, 0):,} bytes. There is more in it, "
        "so I read how it begins.",
        calls=[("read_file", {"path": notes.largest, "limit": 60})],
    )


def who_emits(notes: Notes, results: Results) -> Scene:
    """Which operators emit events?"""
    return Scene(
        thinking="Events are emitted by a method. One search over all operators tells who uses it.",
        text="Now the events: which operators emit any?",
        calls=[("grep_files", {"pattern": "emit(", "path": "operators", "glob": "_*.py"})],
    )


def guess_a_path(notes: Notes, results: Results) -> Scene:
    """A path that does not exist: what a model gets wrong, it can put right."""
    found = matches(results[0])
    notes.emitters = Counter(path for path, _, _ in found)
    notes.emit_line = next((line for path, line, _ in found if path == notes.busiest), 1)
    name = notes.busiest.rpartition("/")[2].removeprefix("_")
    return Scene(
        text=f"{counted(len(notes.emitters), 'operator')} do, in {len(found)} places; most of them in {name}, from "
        f"line {notes.emit_line} on. Let me read that part.",
        calls=[("read_file", {"path": f"operators/{name}", **_around(notes.emit_line)})],
    )


def put_it_right(notes: Notes, results: Results) -> Scene:
    """The tool's error is a result like any other."""
    return Scene(
        thinking="That path was wrong: the tool says that there is no such file. In the list its name began with an "
        "underscore.",
        text="My mistake: the file names begin with an underscore.",
        calls=[("read_file", {"path": notes.busiest, **_around(notes.emit_line)})],
    )


def count_the_events(notes: Notes, results: Results) -> Scene:
    """How many kinds of event are there, and where else are they emitted?"""
    return Scene(
        text="Next: how many kinds of event are there, and who emits some outside the operators?",
        calls=[
            ("grep_files", {"pattern": "type: Literal[", "path": notes.within("events.py")}),
            ("grep_files", {"pattern": f"emit({_EVENTS}.", "path": notes.home, "glob": "*.py"}),
        ],
    )


def read_the_frame(notes: Notes, results: Results) -> Scene:
    """The code around the steps, at the line that the search gave."""
    notes.event_types = len(matches(results[0]))
    elsewhere = [found for found in matches(results[1]) if "/operators/" not in f"/{found[0]}"]
    notes.other_emitters = len({path for path, _, _ in elsewhere})
    starts = [found for found in elsewhere if "AgentStart" in found[2]]
    notes.frame, notes.frame_line, _ = starts[0] if starts else (notes.within("run.py"), 1, "")
    named = ", ".join(sorted(set(emitted(elsewhere)))[:4])
    return Scene(
        text=f"{notes.event_types} kinds. {counted(len(elsewhere), 'more place')} emit some, among them {named}. The "
        f"very first event comes from {notes.frame}, line {notes.frame_line}.",
        calls=[("read_file", {"path": notes.frame, **_around(notes.frame_line)})],
    )


def find_a_check(notes: Notes, results: Results) -> Scene:
    """What holds the pipeline to its word?"""
    pattern, path = ("def test_", "tests/test_architecture.py") if notes.tests else ("class ", "testing")
    what = "a test that holds this in place" if notes.tests else "what the package brings for tests"
    return Scene(
        thinking="So the run emits the first and the last event, and the operators what is between them.",
        text=f"One thing is left: I look for {what}.",
        calls=[("grep_files", {"pattern": pattern, "path": path})],
    )


def read_a_check(notes: Notes, results: Results) -> Scene:
    """One of them, at its line."""
    notes.checks = tuple(matches(results[0]))
    wanted = [found for found in notes.checks if "reactivex" in found[2] or "ScriptedModel" in found[2]]
    path, line, _ = (wanted or list(notes.checks) or [(notes.pipeline, 1, "")])[0]
    return Scene(
        text=f"{counted(len(notes.checks), 'place')} there. I read the one at line {line}.",
        calls=[("read_file", {"path": path, "offset": line - 1, "limit": 6, "line_numbers": True})],
    )


def report(notes: Notes, results: Results) -> Scene:
    """The answer."""
    order = " → ".join(notes.operators)
    emitters = ", ".join(f"{path.rpartition('/')[2]} ({count})" for path, count in notes.emitters.most_common(3))
    largest = f"{notes.largest} ({notes.sizes.get(notes.largest, 0):,} bytes)"
    checks = f"tests/test_architecture.py holds this in place, with {len(notes.checks)} rules."
    if not notes.tests:
        checks = f"testing/ has {len(notes.checks)} classes for your own tests, ScriptedModel among them."
    return Scene(
        text=f"One reasoning step is one pass through a pipeline of {len(notes.operators)} operators "
        f"({notes.pipeline}, line {notes.pipeline_line}):\n\n  {order}\n\n"
        f"- operators/ holds {len(notes.sizes)} files, {sum(notes.sizes.values()):,} bytes, an operator each; the "
        f"largest is {largest}.\n"
        f"- There are {notes.event_types} kinds of event. Operators emit them in {sum(notes.emitters.values())} "
        f"places: {emitters}.\n"
        f"- What frames the steps is emitted by {notes.frame} (line {notes.frame_line}); in all, "
        f"{counted(notes.other_emitters, 'file')} outside the operators emit something.\n"
        f"- {checks}\n"
        "- One of my paths was wrong. The tool answered with an error, I read it and went on.",
    )


def _around(line: int) -> dict[str, object]:
    """Arguments that read the lines around one."""
    return {"offset": max(0, line - 3), "limit": 12}


SCENES: Final[Sequence[Callable[[Notes, Results], Scene]]] = (
    look_around,
    find_the_pipeline,
    read_the_pipeline,
    list_the_operators,
    read_two_at_once,
    read_the_largest,
    who_emits,
    guess_a_path,
    put_it_right,
    count_the_events,
    read_the_frame,
    find_a_check,
    read_a_check,
    report,
)
