"""What every runner must do, as a check that any test framework can run.

await check_runner(lambda builder: MyRunner(builder))
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from agentscope_rx.background import AgentSession, SessionRunner, TaskReport, TaskStatus
from agentscope_rx.background.telling import Teller, command, sender_of
from agentscope_rx.builder import AgentBuilder
from agentscope_rx.errors import AgentClosed, ConformanceFailed, NothingRunning
from agentscope_rx.events import AgentEnd, AgentStart
from agentscope_rx.inbox import CommandKind
from agentscope_rx.messages import Msg
from agentscope_rx.records import CommandBegun, CommandQueued, InputAccepted
from agentscope_rx.runtime_context import RuntimeContext
from agentscope_rx.state import Record
from agentscope_rx.stores import InMemoryStore, SessionStore
from agentscope_rx.testing._rules import refused, require
from agentscope_rx.testing._runner_bench import Bench
from agentscope_rx.testing.store_conformance import MakeStore

MakeRunner: TypeAlias = Callable[[AgentBuilder[Any, Any]], AbstractAsyncContextManager[SessionRunner]]
"""Makes a runner of a builder; inside its block it is at work."""

OPEN_INSIDE: Final = "sessions are told something inside the runner's block, and not outside"
ONCE: Final = "each task is done once, in the order of its session"
NOT_HELD_UP: Final = "a session that waits holds up no other"
SAME_KEY: Final = "what is submitted twice under one key is one task"
TOLD_MEANWHILE: Final = "a run at work is told what comes meanwhile, and what was submitted is done behind it"
INTERRUPTED: Final = "an interrupt ends the run at work, and no other"
ANSWERED: Final = "what waits for a person waits, with all that is behind it, and goes on with the answer"
FAILED: Final = "a task that fails is a report, and what is behind it is done"
LET_GO: Final = "a session that is let go of stops behind its tools, and is gone on with when it is started"
GOOD_ORDER: Final = "who leaves lets runs stop behind their tools, and the next runner goes on with them by itself"
LEFT: Final = "what a process that died has left is done when the session is started, and nothing of it twice"
EVENTS: Final = "events tell of each run from its beginning to its end, once, and go on behind a cursor"
IDLE: Final = "waking a session that has nothing to do does nothing"
NO_WAKE_LOST: Final = "what is submitted in the moment in which the work has ended is done"
NO_TASK: Final = "no task is left behind"
IN_TIME: Final = "work comes to an end"

_MOMENTS: Final = 16  # turns of the loop behind the end of a task, in each of which another one is submitted
_TURNS_TO_END: Final = 16  # which cancelled tasks of the runner's own may take


@asynccontextmanager
async def in_memory() -> AsyncGenerator[SessionStore]:
    """A store in memory."""
    yield InMemoryStore()


async def check_runner(
    make: MakeRunner, store: MakeStore = in_memory, *, moment: float = 0.5, patience: float = 60.0
) -> None:
    """Check a runner of sessions against every rule.

    The runner must do the work on this event loop, be able to work on three sessions at once, and wait for runs at
    its end for longer than a moment. In virtual time (`run_virtual`), over a store in memory, no second passes.

    Args:
        make: Makes a runner. One that is made while another one, which was left, has work must find that by itself.
        store: Makes the store of its sessions, for each rule anew. Default: one in memory.
        moment: How many seconds it is watched that nothing happens, where nothing may. 0.5 by default.
        patience: Seconds within which everything else must happen, for each rule. 60 by default.

    Raises:
        ConformanceFailed: With the first rule that is not kept.

    Examples:
        >>> from agentscope_rx.background import InProcessRunner
        >>> from agentscope_rx.testing import run_virtual
        >>> run_virtual(lambda: check_runner(InProcessRunner))  # no answer is a good answer
    """
    for number, (rule, check) in enumerate(_CHECKS.items(), 1):
        others = asyncio.all_tasks()
        async with store() as made:
            await _hold(rule, check, _Case(number, rule, make, made, moment), patience)
        for _ in range(_TURNS_TO_END):
            await asyncio.sleep(0)
        if left := asyncio.all_tasks() - others - {asyncio.current_task()}:
            raise ConformanceFailed(f"{NO_TASK}; these are alive: {', '.join(sorted(map(repr, left)))}")


async def _hold(rule: str, check: Callable[[_Case], Awaitable[None]], case: _Case, patience: float) -> None:
    try:
        async with asyncio.timeout(patience):
            await check(case)
    except ConformanceFailed:
        raise
    except TimeoutError as error:
        raise ConformanceFailed(f"{rule}; {IN_TIME}, and after {patience:g} s this had not") from error
    except Exception as error:
        raise ConformanceFailed(f"{rule}; something raised {error!r}") from error


@dataclass(frozen=True, slots=True)
class _Case:
    number: int
    rule: str
    make: MakeRunner
    store: SessionStore
    moment: float

    def context(self, session: str = "s1") -> RuntimeContext:
        """A session of this rule alone: an engine may remember those of another."""
        return RuntimeContext(user_id=f"checked-{self.number}", session_id=session)

    def session(self, runner: SessionRunner, session: str = "s1") -> AgentSession:
        """The same, on a runner."""
        return AgentSession(runner, self.context(session))

    def runner(self, bench: Bench) -> AbstractAsyncContextManager[SessionRunner]:
        """A runner that works on this bench."""
        return self.make(bench.builder(self.store))

    def require(self, kept: bool, found: str) -> None:
        require(kept, f"{self.rule}; {found}")

    def completed(self, report: TaskReport, answer: str) -> None:
        """Hold that a task is done, with this answer."""
        said = report.reply and report.reply.text
        found = f"{report.id} ended as {report.status.value} ({report.reason}) with {said!r}, not with {answer!r}"
        self.require((report.status, said) == (TaskStatus.COMPLETED, answer), found)

    def all_once(self, *benches: Bench) -> None:
        """Hold that each call that has begun has begun once, and come to its end."""
        begun = Counter(call for bench in benches for call in bench.begun)
        ended = Counter(call for bench in benches for call in bench.ended)
        self.require(max(begun.values(), default=1) == 1, f"these calls of tools have begun: {dict(begun)}")
        self.require(begun == ended, f"of the calls {sorted(begun)} only {sorted(ended)} came to their end")


async def _said(session: AgentSession) -> list[str]:
    return [message.text for message in await session.transcript() if message.text]


# -- the rules ----------------------------------------------------------------------------------------------


async def _is_open_inside(case: _Case) -> None:
    bench = Bench()
    made = case.runner(bench)
    if isinstance(made, SessionRunner):
        with refused(AgentClosed, f"{case.rule}; before its block"):
            await case.session(made).submit("say early")
    async with made as runner:
        session = case.session(runner)
        case.completed(await (await session.submit("say one")), "answer to say one")
    with refused(AgentClosed, f"{case.rule}; behind its block"):
        await session.submit("say late")
    case.require(await _said(session) == ["say one", "answer to say one"], f"said was {await _said(session)}")


async def _does_each_once(case: _Case) -> None:
    bench = Bench()
    async with case.runner(bench) as runner:
        sessions = [case.session(runner, f"s{n}") for n in (1, 2, 3)]
        words = [f"work {n} in {session.session_id}" for n in (2, 1, 3) for session in sessions]
        tasks = [await session.submit(said) for said, session in zip(words, sessions * 3, strict=True)]
        for said, report in zip(words, await asyncio.gather(*tasks), strict=True):
            case.completed(report, f"answer to {said}")
        for at, session in enumerate(sessions):
            wanted = [each for said in words[at::3] for each in (said, f"answer to {said}")]
            case.require(await _said(session) == wanted, f"said was {await _said(session)}, and not {wanted}")
    case.all_once(bench)
    case.require(bench.asked == 27, f"the model was asked {bench.asked} times, and 27 requests were needed")


async def _holds_up_no_other(case: _Case) -> None:
    bench = Bench(open=False)
    async with case.runner(bench) as runner:
        session = case.session(runner)
        waiting = await session.submit("work 1")
        await bench.at_work(1)
        other = case.session(runner, "s2")
        case.completed(await (await other.submit("say two")), "answer to say two")
        bench.open.set()
        case.completed(await waiting, "answer to work 1")


async def _knows_keys(case: _Case) -> None:
    bench = Bench(open=False)
    async with case.runner(bench) as runner:
        session = case.session(runner)
        one, two = await asyncio.gather(*(session.submit("work 1", key="k") for _ in range(2)))
        await bench.at_work(1)
        three = await session.submit("work 1", key="k")
        bench.open.set()
        case.completed(await one, "answer to work 1")
        await session.submit("work 1", key="k")
        await asyncio.sleep(case.moment)
        case.require(one.turn_id == two.turn_id == three.turn_id, "they have several turns")
        case.require(len(await session.tasks()) == 1, f"they are {len(await session.tasks())} tasks")
    case.all_once(bench)
    case.require(bench.asked == 2, f"the model was asked {bench.asked} times, and 2 requests were needed")


async def _is_told_meanwhile(case: _Case) -> None:
    bench = Bench(open=False)
    async with case.runner(bench) as runner:
        session = case.session(runner)
        with refused(NothingRunning, f"{case.rule}; where no run is at work"):
            await session.steer("hurry")
        one = await session.submit("work 1")
        await bench.at_work(1)
        two = await session.submit("say two")
        await session.steer("be brief")
        bench.open.set()
        case.completed(await one, "answer to work 1, and be brief")
        case.completed(await two, "answer to say two")
        said = await _said(session)
        wanted = ["work 1", "be brief", "answer to work 1, and be brief", "say two", "answer to say two"]
        case.require(said == wanted, f"said was {said}, and not {wanted}")


async def _interrupts(case: _Case) -> None:
    bench = Bench(open=False)
    async with case.runner(bench) as runner:
        session = case.session(runner)
        case.require(not await session.interrupt(), "there was a run before anything was submitted")
        one = await session.submit("work 2")
        await bench.at_work(1)
        two = await session.submit("say two")
        case.require(await session.interrupt(), "there was no run while a tool was at work")
        report = await one
        case.require(report.status is TaskStatus.INTERRUPTED, f"the run at work ended as {report.status.value}")
        case.completed(await two, "answer to say two")
        await asyncio.sleep(case.moment)
    case.require(bench.begun == ["work 2/0"], f"these calls of tools have begun: {bench.begun}")


async def _waits_for_answers(case: _Case) -> None:
    bench = Bench()
    async with case.runner(bench) as runner:
        session = case.session(runner)
        one, two = await session.submit("pay one"), await session.submit("say two")
        asked = await one
        case.require(asked.status is TaskStatus.SUSPENDED, f"it ended as {asked.status.value}")
        await session.start()
        await asyncio.sleep(case.moment)
        case.require(bench.begun == [], f"these calls of tools have begun before the answer: {bench.begun}")
        case.require((await two.report()).status is TaskStatus.QUEUED, "what is behind it did not wait")
        (waiting,) = await session.pending()
        case.completed(await (await session.respond({waiting.id: True})), "answer to pay one")
        case.completed(await two, "answer to say two")
    case.all_once(bench)


async def _reports_failures(case: _Case) -> None:
    bench = Bench()
    async with case.runner(bench) as runner:
        session = case.session(runner)
        one, two = await session.submit("fail one"), await session.submit("say two")
        failed = await one
        case.require(failed.status is TaskStatus.FAILED, f"it ended as {failed.status.value}")
        case.completed(await two, "answer to say two")
        await asyncio.sleep(case.moment)  # it is idle now, and has to be woken
        again = await (await session.submit("fail three"))
        bench.failing = False
        case.completed(await (await session.resume(again.turn_id)), "answer to fail three")


async def _lets_go(case: _Case) -> None:
    bench = Bench(open=False)
    async with case.runner(bench) as runner:
        session = case.session(runner)
        task, behind = await session.submit("work 3"), await session.submit("say two")
        await bench.at_work(1)
        closing = asyncio.ensure_future(session.close())
        await asyncio.sleep(case.moment)
        bench.open.set()
        await closing
        count = len(bench.begun)
        await asyncio.sleep(case.moment)
        case.all_once(bench)
        case.require(count == len(bench.begun) < 3, f"calls of tools that have begun since: {bench.begun}")
        later = case.session(runner)
        case.require(not (await later.report(task)).status.is_settled, "the task was settled")
        await later.start()
        case.completed(await later.wait(task), "answer to work 3")
        case.completed(await later.wait(behind), "answer to say two")
    case.all_once(bench)


async def _leaves_in_good_order(case: _Case) -> None:
    bench, next_bench = Bench(open=False), Bench()
    async with case.runner(bench) as runner:
        session = case.session(runner)
        task, behind = await session.submit("work 3"), await session.submit("say two")
        await bench.at_work(1)
        asyncio.get_running_loop().call_later(case.moment, bench.open.set)
    case.all_once(bench)
    case.require(len(bench.begun) < 3, "the run was waited for to its end")
    case.require(not (await session.report(task)).status.is_settled, "its task was settled")
    async with case.runner(next_bench) as runner:
        later = case.session(runner)
        case.completed(await later.wait(task), "answer to work 3")
        case.completed(await later.wait(behind), "answer to say two")
    case.all_once(bench, next_bench)


async def _takes_up_what_was_left(case: _Case) -> None:
    messages = (Msg.user("work 2"),)
    for begun in (False, True):
        bench, context = Bench(), case.context(f"left-{begun}")
        async with bench.builder(case.store).build() as agent:
            teller = Teller(agent, agent.options.key_of(context))
            accepted = tuple(map(teller.intake().accept, messages))
            given = command(CommandKind.SUBMIT, "left", turn_id="turn", sender=sender_of(context), messages=accepted)
            records: list[Record] = [CommandQueued(given)]
            if begun:
                records += [CommandBegun("left", "died"), InputAccepted(accepted)]
            for record in records:
                await teller.tell(lambda _, record=record: record)
        async with case.runner(bench) as runner:
            session = AgentSession(runner, context)
            await session.start()
            case.completed(await session.wait("left"), "answer to work 2")
            said = await _said(session)
            case.require(said == ["work 2", "answer to work 2"], f"said was {said}")
        case.all_once(bench)


async def _tells_events(case: _Case) -> None:
    bench = Bench()
    async with case.runner(bench) as runner:
        session = case.session(runner)
        tasks = [await session.submit(said) for said in ("work 1", "say two")]
        reports = [await task for task in tasks]
        events = [each async for each in session.events(follow=False)]
        edges = [each.event for each in events if isinstance(each.event, AgentStart | AgentEnd)]
        runs = [event.execution and event.execution.run_id for event in edges]
        wanted = [report.run_id for report in reports for _ in range(2)]
        case.require(runs == wanted, f"beginnings and ends are those of {runs}, and not of {wanted}")
        ids = [each.event.id for each in events]
        case.require(len(ids) == len(set(ids)), "an event is there twice")
        for at in range(0, len(events), max(1, len(events) // 8)):
            rest = [each.event.id async for each in session.events(after=events[at].cursor, follow=False)]
            case.require(rest == ids[at + 1 :], f"behind the cursor {events[at].cursor} there are {len(rest)} events")


async def _is_woken_for_nothing(case: _Case) -> None:
    bench = Bench()
    async with case.runner(bench) as runner:
        session = case.session(runner)
        await (await session.submit("say one"))
        asked, seq = bench.asked, (await session.inspect()).as_of_seq
        for _ in range(3):
            await session.start()
        await case.session(runner, "never").start()
        await asyncio.sleep(case.moment)
        case.require(bench.asked == asked, "the model was asked")
        case.require((await session.inspect()).as_of_seq == seq, "something was written")
        case.require(list(await case.store.list(limit=10)) == [session.key], "a session was made")


async def _loses_no_wake(case: _Case) -> None:
    bench = Bench()
    async with case.runner(bench) as runner:
        session = case.session(runner)
        for turns in range(_MOMENTS):
            await (await session.submit(f"say {turns}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            case.completed(await (await session.submit(f"say {turns} again")), f"answer to say {turns} again")


_CHECKS: Final[dict[str, Callable[[_Case], Awaitable[None]]]] = {
    OPEN_INSIDE: _is_open_inside,
    ONCE: _does_each_once,
    NOT_HELD_UP: _holds_up_no_other,
    SAME_KEY: _knows_keys,
    TOLD_MEANWHILE: _is_told_meanwhile,
    INTERRUPTED: _interrupts,
    ANSWERED: _waits_for_answers,
    FAILED: _reports_failures,
    LET_GO: _lets_go,
    GOOD_ORDER: _leaves_in_good_order,
    LEFT: _takes_up_what_was_left,
    EVENTS: _tells_events,
    IDLE: _is_woken_for_nothing,
    NO_WAKE_LOST: _loses_no_wake,
}
