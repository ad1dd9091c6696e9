"""What looking through files costs: grep_files over 50,000 files, and read_file at the end of a gigabyte.

    .bench/agentscope_rx/bin/python benchmarks/workspace.py --reps 5     (`make bench` makes this environment)

grep_files is measured with our own scan, and with ripgrep beside ripgrep itself where `rg` is on PATH. Figures are wall
time, the best of interleaved repetitions, since half of it is the system's. Each way may take 4 times what ripgrep
takes by itself, and a read 50 MB of memory, else the exit code is 1.
"""

from __future__ import annotations

import argparse
import asyncio
import os
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


def plant(root: Path) -> int:
    """Make the files of an ordinary project; return how many hold the text."""
    for number in range(FILES):
        path = root / f"part{number // 5000}" / f"module{number // A_FOLDER}" / f"file{number}.py"
        if number % A_FOLDER == 0:
            path.parent.mkdir(parents=True)
        found = f"# {TEXT}\n" if number % EVERY == 0 else ""
        path.write_text(f"def function_{number}(value):\n    return value + {number}\n\n" * 20 + found)
    return -(-FILES // EVERY)


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


async def best_times(root: Path, found: int, reps: int) -> dict[str, float]:
    """Seconds of each, the best of all repetitions."""
    times: dict[str, list[float]] = {}
    for _ in range(reps):
        for name, measure in measures(root, found).items():
            began = time.perf_counter()
            await measure()
            times.setdefault(name, []).append(time.perf_counter() - began)
    return {name: min(all_of) for name, all_of in times.items()}


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


def table(times: dict[str, float], seconds: float, peak: int) -> Iterator[str]:
    alone = times.get("ripgrep alone")
    yield f"| {'':<32} | {'seconds':>8} | {'times ripgrep':>13} | {'memory':>8} |"
    yield f"|{'-' * 34}|{'-' * 10}|{'-' * 15}|{'-' * 10}|"
    for name, taken in times.items():
        ratio = "" if alone is None else f"{taken / alone:.2f}"
        yield f"| {name:<32} | {taken:>8.3f} | {ratio:>13} | {'':>8} |"
    yield f"| {'read_file at the end of 1 GiB':<32} | {seconds:>8.3f} | {'':>13} | {peak / 1e6:>5.1f} MB |"


async def measured(root: Path, reps: int) -> int:
    """Measure everything, print it, and say whether it holds."""
    plant_gigabyte(root / "huge")
    seconds, peak = await read_at_the_end(root)
    (root / "huge").unlink()
    times = await best_times(root, plant(root), reps)
    print(f"\n## Looking through files ({FILES:,} of them)\n", *table(times, seconds, peak), sep="\n")
    alone = times.get("ripgrep alone")
    slow = alone is not None and max(times.values()) > MOST_TIMES * alone
    return int(slow or peak > MOST_BYTES)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=5)
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(measured(Path(folder), parser.parse_args().reps))


if __name__ == "__main__":
    sys.exit(main())
