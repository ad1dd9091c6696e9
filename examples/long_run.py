"""Two thousand steps in a window of 8,000 tokens, and a picture of them: python examples/long_run.py [steps]

Writes long_run.svg into the current folder. Scripted: no key, no network, the same figures every time.
"""

import asyncio
import random
import sys
from collections.abc import AsyncIterator

from token_chart import Point, draw, figures

from agentscope_rx import ContextManifest, HarnessAgent, InMemoryWorkspace, tool
from agentscope_rx.events import Custom
from agentscope_rx.requests import ModelChunk, ModelRequest
from agentscope_rx.testing import ScriptedModel, calls

STEPS = int(sys.argv[1]) if sys.argv[1:] else 2_000
chance = random.Random(8_000)


def words(count: int) -> str:
    return " ".join(chance.choices(("order", "paid", "by", "alice", "seven", "crates", "1742"), k=count))


class Reader(ScriptedModel):
    """Reads a page at every step, and writes notes whenever it is asked for a summary."""

    def stream(self, request: ModelRequest, /) -> AsyncIterator[ModelChunk]:
        if request.purpose == "summary":
            return ScriptedModel([f"## SUMMARY\n{words(chance.randrange(150, 700))}"]).stream(request)
        return super().stream(request)


@tool
def read_page() -> str:
    """Read the next page of the archive."""
    return words(chance.choice((5, 40, 120, 400)) if chance.random() < 0.96 else chance.randrange(2_000, 30_000))


pages = [calls((f"c{n}", "read_page", "{}")) for n in range(STEPS - 1)]
model = Reader([*pages, "All is read."], context_window=8_000, keep_requests=False)
builder = HarnessAgent.builder(name="reader", model=model, workspace=InMemoryWorkspace()).tools([read_page])


async def main() -> tuple[list[Point], list[int]]:
    requests: list[Point] = []
    async with builder.max_iters(STEPS).tool_result_eviction(max_result_chars=8_000).build() as agent:
        async for event in agent.stream_events("Read the archive, page by page."):
            manifest = event.value.get("context_manifest") if isinstance(event, Custom) else None
            if isinstance(manifest, ContextManifest):  # the account of a request, before it goes out
                requests.append(Point.of(manifest))
        return requests, [each.tokens_before - each.tokens_after for each in await agent.compactions()]


if __name__ == "__main__":
    points, freed = asyncio.run(main())
    draw(points, "long_run.svg")
    print(*figures(points, freed), "picture     long_run.svg", sep="\n")
