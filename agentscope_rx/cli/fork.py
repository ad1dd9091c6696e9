"""`agentscope-rx fork`: another session that goes on from a point of one."""

from __future__ import annotations

from dataclasses import replace

from agentscope_rx.cli.exit_codes import ExitCode
from agentscope_rx.cli.outputs import say
from agentscope_rx.cli.plain import harmless_json, one_line
from agentscope_rx.cli.sessions import SessionsOptions, check_there, key_of, store_of
from agentscope_rx.cli.tally import counted
from agentscope_rx.runtime import Runtime
from agentscope_rx.session import FoldCache, Holder, LoggedSession, SessionLog
from agentscope_rx.wire import to_json


async def fork(session: str, to: str, options: SessionsOptions, *, at: str | None, run_tools_again: bool) -> ExitCode:
    """Begin the session `to` as another one is, or was at a step or behind a record."""
    store, key = store_of(options), key_of(session, options)
    await check_there(store, key)
    where = int(at) if at is not None and at.isdecimal() else at
    branch = await SessionLog(store, key).branch(where, reuse_tool_effects=not run_tools_again)
    target, holder = replace(key, session_id=to), Holder(name="agentscope-rx fork", wait=0)
    begun = await LoggedSession.open(target, store=store, runtime=Runtime(), cache=FoldCache(), holder=holder)
    try:
        state = await begun.begin_from(branch)
    finally:
        await begun.close()
    effects = state.tool_context.effects
    if options.json:
        line = {"sessionId": to, "from": branch.past.session_id, "seq": branch.past.seq, "recordedCalls": len(effects)}
        print(harmless_json(to_json(line).decode()), flush=True)
    else:
        say(f"{one_line(to)} goes on from record {branch.past.seq} of {one_line(branch.past.session_id)}")
        if effects:
            say(f"{counted(len(effects), 'call')} that ran behind it will not run again")
    return ExitCode.DONE
