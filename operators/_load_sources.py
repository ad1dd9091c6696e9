"""`load_sources`: the context sources of the application, all at once, each with its time-out and its policy."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Sequence
from contextvars import Context, copy_context
from dataclasses import replace
from functools import partial
from typing import cast

from reactivex import Observable

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.context.sources import Ask, ContextRequest, ContextSource, Loaded, Loader, load_source
from agentscope_rx.draft import Change
from agentscope_rx.lifting import Operator, effect_operator
from agentscope_rx.outside import Outside
from agentscope_rx.pulling import last
from agentscope_rx.runtime import Runtime
from agentscope_rx.step import Step
from agentscope_rx.tools.callables import way_of


def load_sources(*, sources: Sequence[ContextSource], concurrent: bool = False) -> Operator:
    """Ask the context sources, and put their blocks into the draft.

        --s---------|
        load_sources
        --------t---|     t.draft holds their blocks

        --s---------|
        load_sources     at the same time
        -----t------|     t.draft holds their blocks

        --s---------|
        load_sources     one fails that may not be left out
        -----#

    Args:
        sources: The sources, in the order of their blocks.
        concurrent: Whether they are asked at the same time.

    Raises:
        SourceFailed: A source failed that may not be left out, or gave what cannot be used.

    Only for reasoning; a summary needs no sources.
    """

    async def loaded(step: Step) -> Step:
        identity = step.identity
        request = ContextRequest(
            agent_id=identity.agent_id,
            user_id=identity.user_id,
            session_id=identity.session_id,
            call_id=step.call_id,
            purpose=step.purpose,
        )
        runtime = step.run.runtime
        return _filled(step, await load_all(request, _asking(runtime), runtime.outside))

    async def load_all(request: ContextRequest, ask: Ask, outside: Outside) -> list[Loaded]:
        async def load(source: ContextSource) -> Loaded:
            return await outside.reach(f"source/{source.name}", partial(load_source, source, request, ask))

        if not concurrent:
            return [await load(source) for source in sources]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(load(source)) for source in sources]
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from failures.exceptions[0].__cause__
        return [task.result() for task in tasks]

    note = ", ".join(f"{each.name} ({each.timeout:g} s, {each.on_failure})" for each in sources)

    @effect_operator
    def load_sources(step: Step) -> Step | Awaitable[Step]:
        return loaded(step) if sources and step.purpose == "reasoning" else step

    return replace(load_sources, note=note)


def _asking(runtime: Runtime) -> Ask:
    """How loaders are asked: async functions on the loop, plain ones in a thread, an Observable by its last item."""

    async def ask(load: Loader, request: ContextRequest) -> object:
        if way_of(load) == "thread":
            context, loop = copy_context(), asyncio.get_running_loop()
            given = await loop.run_in_executor(runtime.threads, _called, context, load, request)
        else:
            given = load(request)
        if isinstance(given, Observable):
            return await last(cast("Observable[object]", given))
        return await given if inspect.isawaitable(given) else given

    return ask


def _called(context: Context, load: Loader, request: ContextRequest) -> object:
    try:
        return context.run(load, request)
    except StopIteration as error:  # no future can hold it
        raise RuntimeError("the loader raised StopIteration") from error


def _filled(step: Step, loaded: Sequence[Loaded]) -> Step:
    blocks = [block for each in loaded for block in each.blocks]
    missing = tuple(_missing(each) for each in loaded if each.failure is not None)
    draft = replace(
        step.draft,
        transient=(*step.draft.transient, *_of_kind("runtime", blocks)),
        references=(*step.draft.references, *_of_kind("reference", blocks)),
    )
    return replace(step, draft=draft, changes=(*step.changes, *missing))


def _of_kind(kind: str, blocks: Sequence[ContextBlock]) -> tuple[ContextBlock, ...]:
    return tuple(block for block in blocks if block.kind == kind)


def _missing(loaded: Loaded) -> Change:
    id = f"source/{loaded.source.name}/"
    return Change(
        operator="load_sources",
        zone="references",
        action="dropped",
        item_id=id,
        reason=f"source_unavailable:{id}:{loaded.failure}",
    )
