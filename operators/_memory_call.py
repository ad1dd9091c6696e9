"""Who keeps a memory: facts of conversations are written down, and merged, by model calls beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.compaction.prompt import in_parts, quoted
from agentscope_rx.context.limit import request_limit
from agentscope_rx.context.policy import ContextPolicy
from agentscope_rx.digests import digest_of
from agentscope_rx.draft import RequestDraft
from agentscope_rx.errors import AgentScopeError, ContextBudgetExceeded
from agentscope_rx.events import Custom
from agentscope_rx.frozen import frozen
from agentscope_rx.history import Exchange, History
from agentscope_rx.logs import logger
from agentscope_rx.memory.config import MemoryConfig
from agentscope_rx.memory.consolidation import BYTES_PER_TOKEN, Consolidation, ConsolidationRefused, time_left
from agentscope_rx.memory.facts import facts_in
from agentscope_rx.memory.files import MEMORY_FILE, MemoryFiles, ledger_path
from agentscope_rx.memory.flushing import MemoryGates, Waiting, append_facts
from agentscope_rx.memory.progress import flushed, set_flushed, watermark
from agentscope_rx.memory.prompts import flush_request, rendered
from agentscope_rx.operators._aside_call import AnswerRefused, answer_to, beside, worded, worded_text
from agentscope_rx.request_tokens import fixed_tokens, text_tokens
from agentscope_rx.requests import ExecutionConfig, GenerateOptions
from agentscope_rx.step import ModelCard, Step
from agentscope_rx.stores import SessionKey
from agentscope_rx.token_counter import TokenCounter
from agentscope_rx.tools.texts import clean
from agentscope_rx.workspace import WorkspaceFS

_SLACK_TOKENS: Final = 128  # headings and tags
_LEAST_ROOM: Final = 256
_TURN: Final = 600.0  # seconds that one waits for another to have done with the same files
_FLUSH: Final = "flush"
_CONSOLIDATION: Final = "consolidation"


@frozen
class MemoryKeeper:
    """Who keeps the memory of a workspace, and how.

    All of it happens beside the conversation, in the background: no answer waits for it, and what fails is told and
    changes nothing.

    Args:
        config: What is remembered, and when.
        files_of: Gives the workspace of a session.
        scope_of: Names it: of two that write to the same files at the same time one waits.
        execution: Time-outs and retry of model calls.
        policy: How large a request of the agent's own model may be.
        options: How the agent's own model is to answer.
        card: The model; None = the one that the step is for.
        at_call_end: Whether anything is done at the end of calls.

    Emits:
        With the purpose `memory`: the events of its model calls; `CUSTOM memory_flush` with `trigger`, `path`,
        `facts` and `calls`; `CUSTOM memory_consolidation` with `ledgers` and `archived`; `CUSTOM memory_failed` with
        `work` (`flush` or `consolidation`), `reason` and `error_type`.
    """

    config: MemoryConfig
    files_of: Callable[[SessionKey], WorkspaceFS]
    scope_of: Callable[[SessionKey], Hashable]
    execution: ExecutionConfig
    policy: ContextPolicy
    options: GenerateOptions
    card: ModelCard | None = None
    at_call_end: bool = True

    def after_call(self, step: Step) -> None:
        """Begin what is due at the end of a call.

        Args:
            step: The last step of the call.
        """
        run = step.run.apart()
        if not self.at_call_end or run is None:
            return
        step = replace(step, run=run)
        with _telling(step, _FLUSH):  # the answer is there, and nothing of this may keep it back
            runtime, scope = step.run.runtime, self.scope_of(_key(step))
            gates, now, flush = runtime.single(MemoryGates), runtime.clock.monotonic(), None
            history, gap = step.run.state.context, self.config.flush_trigger.gap
            if gap is not None and history and gates.passes((_FLUSH, scope), now, gap):
                flush = gates.ask(self._session(step), history, history)
            maintain = gates.passes((_CONSOLIDATION, scope), now, self.config.consolidation_min_gap)
            if flush is not None or maintain:
                step.run.in_background(self._after(step, flush, maintain=maintain))

    def before_compaction(self, step: Step, summarised: Sequence[Exchange], trigger: str) -> None:
        """Begin to write down the facts of what is about to give way to a summary.

        Args:
            step: The step whose history becomes shorter.
            summarised: What gives way.
            trigger: What asks for it.
        """
        run = step.run.apart()
        if run is None:
            return
        step = replace(step, run=run)
        with _telling(step, _FLUSH):
            waiting = step.run.runtime.single(MemoryGates).ask(self._session(step), step.history, summarised)
            step.run.in_background(self._flushed(step, waiting, f"compaction:{trigger}"))

    async def _after(self, step: Step, flush: Waiting | None, *, maintain: bool) -> None:
        """What the end of a call has made due, one after the other."""
        if flush is not None:
            await self._flushed(step, flush, "call_end")
        if maintain:
            with _telling(step, _CONSOLIDATION):
                await self._maintain(step)

    # -- flush ----------------------------------------------------------------------------------------------

    async def _flushed(self, step: Step, waiting: Waiting, trigger: str) -> None:
        with _telling(step, _FLUSH):
            await self._flush(step, waiting, trigger)

    async def _flush(self, step: Step, waiting: Waiting, trigger: str) -> None:
        runtime, (scope, session) = step.run.runtime, self._session(step)
        async with runtime.gate((_FLUSH, scope)).enter(wait_timeout=_TURN):
            if not runtime.single(MemoryGates).take((scope, session), waiting):
                return  # one that came first has taken it along
            files = MemoryFiles(self.files_of(_key(step)))
            fresh = waiting.behind(await flushed(files, session))
            if not fresh:
                return
            aside = self._aside(step, self.config.flush_prompt)
            await _counter(aside).ready()
            parts = self._parts(aside, worded(step, fresh))
            path, facts = ledger_path(runtime.clock.now()), 0
            for part in parts:
                answer = await self._answer(aside, await self._flush_prompt(aside, files, part))
                path, added = await append_facts(files, answer, now=runtime.clock.now(), heading="Memory Flush")
                facts += facts_in(added) if added else 0
            await set_flushed(files, session, fresh[-1].messages[-1].id)
        if parts:
            value = {"trigger": trigger, "path": path, "facts": facts, "calls": len(parts)}
            aside.emit(Custom(name="memory_flush", value=value))

    def _parts(self, aside: Step, conversation: History) -> list[list[str]]:
        room = self._room(aside) - 2 * self._known_tokens(aside)
        return in_parts([*conversation], _counter(aside), max(_LEAST_ROOM, room), render=rendered)

    async def _flush_prompt(self, aside: Step, files: MemoryFiles, part: Sequence[str]) -> str:
        today = ledger_path(aside.run.runtime.clock.now())
        memory, ledger = await self._known(aside, files, MEMORY_FILE), await self._known(aside, files, today)
        return flush_request(memory, ledger, part)

    async def _known(self, aside: Step, files: MemoryFiles, path: str) -> str:
        """The beginning of what is known already, as far as there is room for it."""
        most = self._known_tokens(aside)
        text = worded_text(aside, await files.beginning(path, most * BYTES_PER_TOKEN))
        tokens = text_tokens(quoted(text), _counter(aside)) if text else 0
        return text if tokens <= most else text[: len(text) * most // tokens]

    def _known_tokens(self, aside: Step) -> int:
        """How much of what is known already is shown; as much of the memory and of today."""
        return self._room(aside) // 4

    # -- consolidation --------------------------------------------------------------------------------------

    async def _maintain(self, step: Step) -> None:
        runtime, scope = step.run.runtime, self.scope_of(_key(step))
        async with runtime.gate((_CONSOLIDATION, scope)).enter(wait_timeout=_TURN):
            files = MemoryFiles(self.files_of(_key(step)))
            now = runtime.clock.now()
            left = time_left(await watermark(files), now, self.config.consolidation_min_gap)
            if left:
                gates, what = runtime.single(MemoryGates), (_CONSOLIDATION, scope)
                gates.put_off(what, runtime.clock.monotonic(), left)
                return
            aside = self._aside(step, self.config.consolidation_prompt)
            counter = _counter(aside)
            await counter.ready()
            room = self._room(aside) // 2  # for the file, and for what comes to it
            work = Consolidation(
                config=self.config,
                ask=lambda rules, prompt: self._answer(_with_rules(aside, rules), prompt),
                now=now,
                room=room,
                tokens_of=lambda text: text_tokens(text, counter),
                worded=lambda text: worded_text(aside, text),
            )
            ledgers, archived = await work.run(files), await work.archive(files)
        if ledgers or archived:
            value = {"ledgers": ledgers, "archived": archived}
            aside.emit(Custom(name="memory_consolidation", value=value))

    # -- asking ---------------------------------------------------------------------------------------------

    def _aside(self, step: Step, rules: str) -> Step:
        options = self.options if self.card is None else GenerateOptions()
        return _with_rules(beside(step, "memory", RequestDraft(options=options), card=self.card), rules)

    async def _answer(self, aside: Step, prompt: str) -> str:
        answer = await answer_to(aside, prompt, execution=self.execution, policy=self._policy)
        return clean(answer.text).strip()

    def _room(self, aside: Step) -> int:
        """How many tokens one request has room for beside what it always holds."""
        limit = request_limit(aside, self._policy).limit
        fixed = fixed_tokens(aside.draft, _counter(aside)) + _SLACK_TOKENS
        if limit - fixed < _LEAST_ROOM:
            raise ContextBudgetExceeded(fixed + _LEAST_ROOM, limit, (("the frame of a memory request", fixed),))
        return limit - fixed

    def _session(self, step: Step) -> tuple[Hashable, str]:
        """Whose files a session works on, and its name in the notes of how far its facts are written down."""
        key = _key(step)
        name = "\0".join((key.agent_id, key.user_id or "", key.session_id))
        return self.scope_of(key), digest_of(name.encode("utf-8", "replace"))

    @property
    def _policy(self) -> ContextPolicy:
        return self.policy if self.card is None else ContextPolicy()


def _with_rules(aside: Step, rules: str) -> Step:
    block = ContextBlock(id="harness:memory", kind="system_input", text=rules, required=True)
    return replace(aside, draft=replace(aside.draft, system=(block,)))


def _counter(aside: Step) -> TokenCounter:
    assert aside.card.counter is not None  # every request of a HarnessAgent is counted
    return aside.card.counter


def _key(step: Step) -> SessionKey:
    who = step.identity
    return SessionKey(agent_id=who.agent_id, user_id=who.user_id, session_id=who.session_id)


@contextmanager
def _telling(step: Step, work: str) -> Generator[None]:
    """Tell of a failure, which is nobody else's."""
    try:
        yield
    except asyncio.CancelledError:
        logger().warning("memory_failed", work=work, reason="cancelled")
        raise
    except Exception as error:
        reason = _reason(error)
        logger().warning("memory_failed", work=work, reason=reason, error=type(error).__name__)
        value = {"work": work, "reason": reason, "error_type": type(error).__name__}
        replace(step, purpose="memory").emit(Custom(name="memory_failed", value=value))


def _reason(error: Exception) -> str:
    if isinstance(error, AnswerRefused | ConsolidationRefused):
        return str(error)
    return error.code if isinstance(error, AgentScopeError) else type(error).__name__
