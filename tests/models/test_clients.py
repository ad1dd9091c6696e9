"""One client per event loop: several loops, several threads, and what happens at a loop's end."""

from __future__ import annotations

import asyncio
import gc
import threading

import pytest

from agentscope_rx.loop_local import LoopLocal
from agentscope_rx.requests import Model
from agentscope_rx.testing.fake_provider import FakeProvider, stream, text
from tests.models.answers import Answer
from tests.models.asking import BOTH, ModelClass, ask, question, watched_server

both = pytest.mark.parametrize("model_class", BOTH)


class Thing:
    """Something that belongs to a loop."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.closed = asyncio.Event()

    async def close(self) -> None:
        assert asyncio.get_running_loop() is self.loop
        self.closed.set()


def things() -> LoopLocal[Thing]:
    return LoopLocal(Thing, Thing.close)


def test_one_for_each_loop() -> None:
    """A loop always gets the same one, another loop another one; each is closed on its own loop."""
    local = things()

    async def twice() -> tuple[Thing, Thing]:
        return await local.get(), await local.get()

    first, again = asyncio.run(twice())
    other, _ = asyncio.run(twice())
    assert first is again
    assert other is not first
    assert first.closed.is_set()
    assert other.closed.is_set()


def test_tasks_of_a_loop_share_one() -> None:
    """Tasks that ask at the same time get the same one."""
    local = things()

    async def main() -> list[Thing]:
        return list(await asyncio.gather(*(local.get() for _ in range(10))))

    assert len(set(asyncio.run(main()))) == 1


def test_closed_when_no_longer_used() -> None:
    """What belongs to a model that is gone is closed while the loop still runs."""

    async def main() -> bool:
        local = things()
        thing = await local.get()
        del local
        await asyncio.wait_for(thing.closed.wait(), 5)
        return thing.closed.is_set()

    gc.disable()  # it is not the garbage collector that does it, at some time or other
    try:
        assert asyncio.run(main())
    finally:
        gc.enable()


def test_closing_that_has_begun_is_finished() -> None:
    """A loop that ends while something is being closed waits for it instead of cancelling it half-way."""

    async def slowly(thing: Thing) -> None:
        for _ in range(10):
            await asyncio.sleep(0)
        await thing.close()

    async def main() -> Thing:
        local = LoopLocal(Thing, slowly)
        thing = await local.get()
        del local
        for _ in range(3):
            await asyncio.sleep(0)
        return thing

    assert asyncio.run(main()).closed.is_set()


def test_loop_that_closes_nothing_is_forgotten() -> None:
    """A loop that ended without closing anything is let go when the next one asks."""
    local = things()
    loop = asyncio.new_event_loop()
    thing = loop.run_until_complete(local.get())
    loop.close()
    asyncio.run(local.get())
    assert not thing.closed.is_set()
    assert loop not in local._kept  # pyright: ignore[reportPrivateUsage]


def test_error_while_closing_does_not_stop_the_loop_from_ending() -> None:
    """An error of one that is closed is reported to the loop, which ends all the same."""
    reported: list[object] = []

    async def broken(thing: Thing) -> None:
        raise OSError("already gone")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
        await LoopLocal(Thing, broken).get()

    asyncio.run(main())
    assert [str(error) for error in reported] == ["already gone"]


@both
def test_two_runs_with_one_model(model_class: ModelClass) -> None:
    """A model works in one `asyncio.run` after the other; each closes its connections at its end."""
    with watched_server() as server:
        model = model_class("m", base_url=server.base_url, api_key="k")
        for run in range(2):
            assert asyncio.run(ask(model)).text == "hello"
            assert server.ended[run].wait(5)
        assert len(server.ended) == 2


@both
def test_two_threads_with_one_model(model_class: ModelClass) -> None:
    """Two threads, each with its loop, use one model at the same time over connections of their own."""
    together = threading.Barrier(2)
    answers: list[Answer] = []

    async def several(model: Model) -> None:
        together.wait(5)
        answers.extend([await ask(model) for _ in range(5)])

    with FakeProvider.in_thread([text("hello", deltas=3) for _ in range(10)]) as provider:
        model = model_class("m", base_url=provider.base_url, api_key="k")
        threads = [threading.Thread(target=asyncio.run, args=(several(model),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert [answer.text for answer in answers] == ["hello"] * 10
    assert len({request.connection for request in provider.requests}) == 2


@both
def test_answer_given_up_at_the_end_of_a_loop(model_class: ModelClass) -> None:
    """An answer that nobody reads on is closed with its loop, without a warning."""

    async def main(model: Model) -> object:
        answer = model.stream(question())
        await anext(answer)
        return answer

    with FakeProvider.in_thread([stream([{"d": {"content": "a"}}, {"stall": True}])]) as provider:
        model = model_class("m", base_url=provider.base_url, api_key="k")
        asyncio.run(main(model))
        assert asyncio.run(provider.client_gone(1)).client_left
