"""What was said in a session, for those who only look, whether it is kept with a log or without."""

from __future__ import annotations

from collections.abc import Sequence

from agentscope_rx.frozen import frozen
from agentscope_rx.messages import Msg
from agentscope_rx.session.folding import is_checkpoint
from agentscope_rx.session.lineage import whole_past
from agentscope_rx.session.transcript import Transcript
from agentscope_rx.state import AgentState
from agentscope_rx.stores import SessionKey, SessionStore


@frozen
class Said:
    """What was said in a session.

    Args:
        as_of_seq: The last record of its log; 0 = it has none.
        messages: Word for word from the log; without one, as the working history has them.
    """

    as_of_seq: int
    messages: Sequence[Msg]


async def said_in(store: SessionStore, key: SessionKey) -> Said | None:
    """What was said in a session; None where it is not there.

    Args:
        store: Where it is kept.
        key: The session.

    Raises:
        LogUnreadable: A record of its log cannot be read.
        StateUnreadable: Its state cannot be read.
    """
    stored = await store.get(key)
    if stored is not None and not is_checkpoint(stored.body):
        return Said(as_of_seq=0, messages=tuple(AgentState.from_json(stored.body).context.messages))
    transcript, seq = Transcript(), 0
    async for whose, record in whole_past(store, key):
        transcript.take(record)
        seq = record.seq if whose == key else seq
    return Said(as_of_seq=seq, messages=transcript.messages) if seq or stored is not None else None
