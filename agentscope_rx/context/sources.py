"""Context sources: who may add blocks to a request, and what happens when they cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, cast

from agentscope_rx.blocks import ContextBlock
from agentscope_rx.context.materials import digest
from agentscope_rx.context.policy import SourceFailurePolicy
from agentscope_rx.errors import SourceFailed
from agentscope_rx.frozen import frozen
from agentscope_rx.requests import Purpose
from agentscope_rx.wire import clean_text


@frozen
class ContextRequest:
    """What a source is asked: for whom, and for which request.

    Args:
        agent_id: The agent.
        user_id: The user; None = nobody's in particular.
        session_id: The session.
        call_id: The request.
        purpose: What the model is called for.
    """

    agent_id: str
    user_id: str | None
    session_id: str
    call_id: str
    purpose: Purpose = "reasoning"


#: Gives blocks: as an async function; as a plain one, which runs in a thread; or as an Observable of one list.
Loader: TypeAlias = Callable[[ContextRequest], "Sequence[ContextBlock] | Awaitable[Sequence[ContextBlock]] | Any"]
#: Asks a loader, in whichever way it wants to be asked.
Ask: TypeAlias = Callable[[Loader, ContextRequest], Awaitable[object]]


@frozen
class ContextSource:
    """A named source of blocks.

    Args:
        name: Its name; blocks are known as `source/<name>/<block id>`.
        load: Asked once for each request.
        timeout: Seconds that it may take, on the loop's clock. A plain function that takes longer is not waited
            for, but goes on in its thread.
        on_failure: Whether the request fails with it.
    """

    name: str
    load: Loader
    timeout: float = 5.0
    on_failure: SourceFailurePolicy = SourceFailurePolicy.FAIL


@frozen
class Loaded:
    """What a source gave.

    Args:
        source: The source.
        blocks: Its blocks, under their full ids.
        failure: The class of the error, where it was left out.
    """

    source: ContextSource
    blocks: tuple[ContextBlock, ...] = ()
    failure: str | None = None


async def load_source(source: ContextSource, request: ContextRequest, ask: Ask) -> Loaded:
    """Ask one source.

    Args:
        source: The source.
        request: What it is asked.
        ask: How loaders are asked.

    Raises:
        SourceFailed: It failed and may not be left out, or what it gave cannot be used; the cause is chained.
    """
    limit = asyncio.timeout(source.timeout)
    try:
        async with limit:
            given = await ask(source.load, request)
    except (Exception, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and _is_cancelled():
            raise
        if source.on_failure is SourceFailurePolicy.OMIT:
            return Loaded(source=source, failure=type(error).__name__)
        why = (
            f"took longer than {source.timeout:g} s"
            if limit.expired()
            else f"failed: {str(error) or type(error).__name__}"
        )
        raise SourceFailed(source.name, why) from error
    return Loaded(source=source, blocks=_checked(source, given))


def _is_cancelled() -> bool:
    """Whether somebody wants this task to end; a loader may also raise such an error of its own."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _checked(source: ContextSource, given: object) -> tuple[ContextBlock, ...]:
    """Errors of structure are never hidden, whatever the source's failure policy."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise SourceFailed(source.name, f"gave a {type(given).__name__} and not a list of ContextBlock")
    blocks: dict[str, ContextBlock] = {}
    for block in cast("Sequence[object]", given):
        if not isinstance(block, ContextBlock):
            raise SourceFailed(source.name, f"gave a {type(block).__name__} among its blocks")
        if block.kind not in ("runtime", "reference"):
            raise SourceFailed(
                source.name, f"block {block.id!r} has kind {block.kind!r}; runtime or reference is possible"
            )
        if block.required and source.on_failure is SourceFailurePolicy.OMIT:
            raise SourceFailed(source.name, f"block {block.id!r} is required, but the source may be left out")
        full_id, text = f"source/{source.name}/{clean_text(block.id)}", clean_text(block.text)
        if full_id in blocks:
            raise SourceFailed(source.name, f"gave block {block.id!r} twice")
        blocks[full_id] = replace(block, id=full_id, text=text, revision=clean_text(block.revision or digest(text)))
    return tuple(block for block in blocks.values() if not block.blank)
