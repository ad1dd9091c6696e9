"""What looking through files costs: grep_files over trees of several shapes, and read_file at the end of a gigabyte.

    .bench/agentscope_rx/bin/python benchmarks/workspace.py --reps 5     (`make bench` makes this environment)

grep_files is measured with our own scan, and with ripgrep beside ripgrep itself where `rg` is on PATH. Figures are wall
time and the time of all processors, each the best of interleaved repetitions: the first is what a user waits, and
flatters whoever waits on a busy machine. Of 50,000 files each way may take 4 times what ripgrep takes by itself in
wall time, and a read 50 MB of memory, else the exit code is 1. The other shapes are shown, not judged: ripgrep searches
large files on all processors and walks a chain of directories without a question for each.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from agentscope_rx.tools.file_tools import FileToolLimits, FileTools
from agentscope_rx.workspace import LocalWorkspace
from agentscope_rx.workspace.ripgrep import find_ripgrep
from agentscope_rx.workspace.search import SearchLimits

FILES: Final = 50_000
A_FOLDER: Final = 100
EVERY: Final = 997  # how many files there are for each that holds the text
TEXT: Final = "the text that is looked for"
GIGABYTE: Final = 1 << 30
LINES: Final = 10_000
MOST_TIMES: Final = 4.0
MOST_BYTES: Final = 50_000_000


def plant_project(root: Path) -> int:
    """The files of an ordinary project, 100 in a folder; return how many hold the text, as all of these do."""
    for number in range(FILES):
        path = root / f"part{number // 5000}" / f"module{number // A_FOLDER}" / f"file{number}.py"
        if number % A_FOLDER == 0:
            path.parent.mkdir(parents=True)
        found = f"# {TEXT}\n" if number % EVERY == 0 else ""
        path.write_text(f"def function_{number}(value):\n    return value + {number}\n\n" * 20 + found)
    return -(-FILES // EVERY)


def plant_one_folder(root: Path) -> int:
    """As many files in one folder."""
    for number in range(FILES):
        (root / f"file{number}.py").write_text("x = 1\n" * 60 + (f"# {TEXT}\n" if number % EVERY == 0 else ""))
    return -(-FILES // EVERY)


def plant_large(root: Path) -> int:
    """30 files of 9.5 MB, just below the limit of a search."""
    for number in range(30):
        (root / f"log{number}").write_text("INFO a request was answered\n" * 339_000 + f"{TEXT}\n" * (number == 29))
    return 1


def plant_deep(root: Path) -> int:
    """200 chains of ten folders, three files in each."""
    for number in range(200):
        folder = root / f"part{number}"
        for depth in range(10):
            folder /= f"below{depth}"
            folder.mkdir(parents=True)
            for name in "abc":
                (folder / f"{name}.java").write_text("class A {}\n" * 60)
        (folder / "found.java").write_text(f"// {TEXT}\n")
    return 200


SHAPES: Final[Mapping[str, Callable[[Path], int]]] = {
    f"{FILES:,} files": plant_project,
    f"{FILES:,} files in one folder": plant_one_folder,
    "30 files of 9.5 MB": plant_large,
    "2,000 folders, ten deep": plant_deep,
}

# -- grep ---------------------------------------------------------------------------------------------------


async def grep(root: Path, found: int) -> None:
    """Search by the tool, all files."""
    limits = FileToolLimits(search=SearchLimits(files=2 * FILES))
    lines = (await FileTools(LocalWorkspace(root), limits=limits).grep_files(TEXT)).splitlines()
    assert len(lines) == found, lines[-1]


def measures(root: Path, found: int) -> Mapping[str, Callable[[], Awaitable[None]]]:
    """What is measured, by name; with ripgrep only where it is."""
    program, path = find_ripgrep(), os.environ.get("PATH", "")

    async def own() -> None:
        os.environ["PATH"] = ""
        try:
            await grep(root, found)
        finally:
            os.environ["PATH"] = path

    async def with_ripgrep() -> None:
        await grep(root, found)

    async def ripgrep_alone() -> None:
        arguments = [str(program), "--no-config", "--no-ignore", "--fixed-strings", "--line-number", TEXT, str(root)]
        await asyncio.to_thread(subprocess.run, arguments, stdout=subprocess.PIPE, check=True)

    alone = {"grep_files, own scan": own}
    if program is None:
        return alone
    return {**alone, "grep_files, ripgrep": with_ripgrep, "ripgrep alone": ripgrep_alone}


async def best_times(root: Path, found: int, reps: int) -> dict[str, tuple[float, float]]:
    """Seconds of each, on the wall and of the processors; the best of all repetitions."""
    times: dict[str, list[tuple[float, float]]] = {}
    for _ in range(reps):
        for name, measure in measures(root, found).items():
            began, used = time.perf_counter(), processors()
            await measure()
            times.setdefault(name, []).append((time.perf_counter() - began, processors() - used))
    return {name: (min(wall for wall, _ in all_of), min(used for _, used in all_of)) for name, all_of in times.items()}


def processors() -> float:
    """Seconds that processors have worked for this process and those that it waited for."""
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in both)


# -- read ---------------------------------------------------------------------------------------------------


def plant_gigabyte(path: Path) -> None:
    """A sparse file: lines, a hole of a gigabyte, which is one line, and a line at the end."""
    with path.open("wb") as file:
        file.write(b"".join(b"line %d\n" % number for number in range(LINES)))
        file.seek(GIGABYTE)
        file.write(b"\nthe last line\n")


async def read_at_the_end(root: Path) -> tuple[float, int]:
    """Seconds and bytes of memory, above what there was before, of a read with offset and limit."""
    tools = FileTools(LocalWorkspace(root))
    await tools.read_file("huge", limit=1)
    before, began = _new_peak(), time.perf_counter()
    text = await tools.read_file("huge", offset=LINES + 1, limit=1)
    assert text == "the last line", text[:100]
    return time.perf_counter() - began, _memory("VmHWM") - before


def _new_peak() -> int:
    """Have the peak begin anew; return what there is now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory("VmRSS")


def _memory(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


# -- the answer ---------------------------------------------------------------------------------------------


def table(times: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    wall, used = times.get("ripgrep alone", (None, None))
    yield f"| {'':<22} | {'seconds':>8} | {'times ripgrep':>13} | {'processors':>10} | {'times ripgrep':>13} |"
    yield f"|{'-' * 24}|{'-' * 10}|{'-' * 15}|{'-' * 12}|{'-' * 15}|"
    for name, (seconds, work) in times.items():
        ratios = ["" if alone is None else f"{own / alone:.2f}" for own, alone in ((seconds, wall), (work, used))]
        yield f"| {name:<22} | {seconds:>8.3f} | {ratios[0]:>13} | {work:>10.3f} | {ratios[1]:>13} |"


async def measured(folder: Path, reps: int) -> int:
    """Measure everything, print it, and say whether it holds."""
    plant_gigabyte(folder / "huge")
    seconds, peak = await read_at_the_end(folder)
    (folder / "huge").unlink()
    print(f"read_file at the end of 1 GiB: {seconds:.3f} seconds, {peak / 1e6:.1f} MB")
    slow = False
    for shape, plant in SHAPES.items():
        with tempfile.TemporaryDirectory(dir=folder) as root:
            times = await best_times(Path(root), plant(Path(root)), reps)
        print(f"\n## {shape}\n", *table(times), sep="\n")
        if plant is plant_project and "ripgrep alone" in times:
            slow = max(wall for wall, _ in times.values()) > MOST_TIMES * times["ripgrep alone"][0]
    return int(slow or peak > MOST_BYTES)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5)
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measured(Path(folder), parser.parse_args().reps))


if __name__ == "__main__":
    sys.exit(main())
